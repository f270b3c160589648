"""2. On the device: a value becomes a report. Exact epsilon, variance, and count-only simulation.

Importing this package needs the standard library only; `fleet` holds the NumPy side (many people at once).
"""

from dither.mechanisms.bloom import BloomRappor, bloom_size
from dither.mechanisms.choose import NAMES, best, mechanism, mechanism_from_json
from dither.mechanisms.grr import GRR
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.mechanism import (
    ByteSource,
    Estimate,
    Mechanism,
    PackedReports,
    frequency_variance,
    total_variance,
)
from dither.mechanisms.subset import SubsetSelection
from dither.mechanisms.unary import Unary, oue, sue, sue_from_flip

__all__ = [
    "GRR",
    "NAMES",
    "BloomRappor",
    "ByteSource",
    "Estimate",
    "LocalHash",
    "Mechanism",
    "PackedReports",
    "SubsetSelection",
    "Unary",
    "best",
    "bloom_size",
    "frequency_variance",
    "mechanism",
    "mechanism_from_json",
    "oue",
    "sue",
    "sue_from_flip",
    "total_variance",
]
