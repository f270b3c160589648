"""Mechanisms turn a value into a report on the device, with an exact epsilon and variance.

Importing this package needs the standard library only. `dither.mechanisms.kernels` has the
NumPy code for batches: randomise, count, simulate and estimate many reports at once.
"""

from dither.mechanisms.base import (
    ByteSource,
    Estimate,
    Mechanism,
    PackedReports,
    PureMechanism,
    Randomiser,
)
from dither.mechanisms.bloom import BloomRappor, bloom_size, independent_filter_seed
from dither.mechanisms.grr import GRR
from dither.mechanisms.hadamard import Hadamard
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.means import (
    GRIDS,
    HYBRID_FROM,
    Duchi,
    GridMean,
    Hybrid,
    MeanMechanism,
    Piecewise,
    mean_mechanism,
)
from dither.mechanisms.outputs import OutputMechanism, Window
from dither.mechanisms.probability import (
    DRAW_WIDTHS,
    THRESHOLD_BITS,
    check_epsilon,
    check_spent,
    exp_down,
    log_up,
)
from dither.mechanisms.registry import (
    MEANS,
    MECHANISMS,
    NAMES,
    POOLED_NAMES,
    best,
    device_work,
    list_fields,
    mean_from_json,
    mechanism,
    mechanism_from_json,
    plugin_kind,
)
from dither.mechanisms.set_strategy import SetStrategy
from dither.mechanisms.several_means import MAX_ATTRIBUTES, DuchiVector, MultiMean, multi_mean
from dither.mechanisms.square_wave import SquareWave
from dither.mechanisms.subset import SubsetSelection
from dither.mechanisms.unary import BitMechanism, Unary, oue, sue, sue_from_flip

__all__ = [
    "DRAW_WIDTHS",
    "GRIDS",
    "GRR",
    "HYBRID_FROM",
    "MAX_ATTRIBUTES",
    "MEANS",
    "MECHANISMS",
    "NAMES",
    "POOLED_NAMES",
    "THRESHOLD_BITS",
    "BitMechanism",
    "BloomRappor",
    "ByteSource",
    "Duchi",
    "DuchiVector",
    "Estimate",
    "GridMean",
    "Hadamard",
    "Hybrid",
    "LocalHash",
    "MeanMechanism",
    "Mechanism",
    "MultiMean",
    "OutputMechanism",
    "PackedReports",
    "Piecewise",
    "PureMechanism",
    "Randomiser",
    "SetStrategy",
    "SquareWave",
    "SubsetSelection",
    "Unary",
    "Window",
    "best",
    "bloom_size",
    "check_epsilon",
    "check_spent",
    "device_work",
    "exp_down",
    "independent_filter_seed",
    "list_fields",
    "log_up",
    "mean_from_json",
    "mean_mechanism",
    "mechanism",
    "mechanism_from_json",
    "multi_mean",
    "oue",
    "plugin_kind",
    "sue",
    "sue_from_flip",
]
