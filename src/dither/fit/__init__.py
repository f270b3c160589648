"""From tallies to models.

Frequencies with known variance (`pool`), named projections (`project`), joint distributions by EM
and Lasso, dependence tests and junction trees, and the models themselves: a joint distribution with
`marginal()` and `sample()`.
"""

from __future__ import annotations

from importlib import import_module

from dither.errors import ReportError
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
from dither.fit.model import Independent, Model
from dither.fit.pool import AnswerCounts, answers_of, check_asked, pool
from dither.fit.project import make_consistent, norm_sub, normal_interval, projection
from dither.fit.triangulate import Triangulation, triangulate, triangulate_capped
from dither.tally.archive import decoding, unpack

# A model's kind -> module in this package and class in it; a module is imported when its kind is read.
KINDS: dict[str, str] = {
    "bayes_net": "bayes_net:BayesNet",
    "independent": "model:Independent",
    "junction_tree": "junction_tree:JunctionTree",
    "mixture": "mixture.model:Mixture",
    "ruled": "ruled:Ruled",
}

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


def model_from_bytes(data: bytes) -> Model:
    """Rebuild any model from the bytes that its `to_bytes` returned.

    Raises:
        ReportError: The bytes are not a model of a known kind.
    """
    kind = unpack(data)[0].get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ReportError(
            f"a model of kind {kind!r} is not known; this version reads {', '.join(sorted(KINDS))}",
            value=kind,
        )
    module, name = KINDS[kind].split(":")
    with decoding("model"):
        model: Model = getattr(import_module(f"dither.fit.{module}"), name).from_bytes(data)
    return model
