"""2. On the device: a value becomes a report. Exact epsilon, variance, and count-only simulation.

Importing this package needs the standard library only; `kernels` holds the NumPy side (many people at once).
"""

from dither.mechanisms.base import ByteSource, Estimate, Mechanism, PackedReports, PureMechanism
from dither.mechanisms.bloom import BloomRappor, bloom_size, telling_seed
from dither.mechanisms.grr import GRR
from dither.mechanisms.hadamard import Hadamard
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.registry import NAMES, POOLED_NAMES, best, mechanism, mechanism_from_json
from dither.mechanisms.set_strategy import SetStrategy
from dither.mechanisms.subset import SubsetSelection
from dither.mechanisms.unary import BitMechanism, Unary, oue, sue, sue_from_flip

__all__ = [
    "GRR",
    "NAMES",
    "POOLED_NAMES",
    "BitMechanism",
    "BloomRappor",
    "ByteSource",
    "Estimate",
    "Hadamard",
    "LocalHash",
    "Mechanism",
    "PackedReports",
    "PureMechanism",
    "SetStrategy",
    "SubsetSelection",
    "Unary",
    "best",
    "bloom_size",
    "mechanism",
    "mechanism_from_json",
    "oue",
    "sue",
    "sue_from_flip",
    "telling_seed",
]
