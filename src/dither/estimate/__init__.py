"""6. Estimates: tallies become frequencies with known variance. Projection, pooling and consistency are separate, named steps."""

from dither.estimate.marginal import Marginal
from dither.estimate.pool import AnswerCounts, answers_of, check_asked, pool
from dither.estimate.project import make_consistent, norm_sub, normal_interval, projection

__all__ = [
    "AnswerCounts",
    "Marginal",
    "answers_of",
    "check_asked",
    "make_consistent",
    "norm_sub",
    "normal_interval",
    "pool",
    "projection",
]
