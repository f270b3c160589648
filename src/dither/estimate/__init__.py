"""7. Estimates: tallies become frequencies with known variance. Projection, pooling and consistency are separate, named steps."""

from dither.estimate.consistency import make_consistent
from dither.estimate.intervals import normal_interval, with_sampling
from dither.estimate.pool import Answered, Pooled, answered, check_asked, pool
from dither.estimate.project import base_cut, norm_sub, projection
from dither.estimate.support_em import em_frequencies

__all__ = [
    "Answered",
    "Pooled",
    "answered",
    "base_cut",
    "check_asked",
    "em_frequencies",
    "make_consistent",
    "norm_sub",
    "normal_interval",
    "pool",
    "projection",
    "with_sampling",
]
