"""From tallies to models.

Frequencies with known variance (`pool`), named projections (`project`), joint distributions by EM
and Lasso, dependence tests and junction trees, and the models themselves: a joint distribution with
`marginal()` and `sample()`.
"""

from __future__ import annotations

from dither.fit.dependence import (
    Dependence,
    Pruning,
    dependence,
    entropy,
    mutual_information,
    mutual_information_threshold,
    prune_by_entropy,
    relative_entropy,
    shrunk_squares,
)
from dither.fit.marginal import Marginal
from dither.fit.model import KINDS, Independent, Model, model_from_bytes
from dither.fit.pool import AnswerCounts, answers_of, check_asked, pool
from dither.fit.project import make_consistent, norm_sub, normal_interval, projection
from dither.fit.triangulate import Triangulation, triangulate, triangulate_capped

__all__ = [
    "KINDS",
    "AnswerCounts",
    "Dependence",
    "Independent",
    "Marginal",
    "Model",
    "Pruning",
    "Triangulation",
    "answers_of",
    "check_asked",
    "dependence",
    "entropy",
    "make_consistent",
    "model_from_bytes",
    "mutual_information",
    "mutual_information_threshold",
    "norm_sub",
    "normal_interval",
    "pool",
    "projection",
    "prune_by_entropy",
    "relative_entropy",
    "shrunk_squares",
    "triangulate",
    "triangulate_capped",
]
