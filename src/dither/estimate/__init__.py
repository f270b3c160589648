"""7. Estimates: tallies become frequencies with known variance. Projection, pooling and consistency are separate, named steps."""

from dither.estimate.pool import Answered, Pooled, answered, check_asked, pool
from dither.estimate.project import base_cut, make_consistent, norm_sub, normal_interval, projection, with_sampling

__all__ = [
    "Answered",
    "Pooled",
    "answered",
    "base_cut",
    "check_asked",
    "make_consistent",
    "norm_sub",
    "normal_interval",
    "pool",
    "projection",
    "with_sampling",
]
