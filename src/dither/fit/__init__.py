"""From tallies to models.

Frequencies with known variance (`pool`), named projections (`project`), joint distributions by EM
and Lasso, dependence tests and junction trees, and the models themselves: a joint distribution with
`marginal()` and `sample()`.
"""

from __future__ import annotations

from dither.fit.bayes_net import BayesNet, Network, candidates_computed, chain_joint, search_network
from dither.fit.dependence import (
    Dependence,
    Pruning,
    Variant,
    dependence,
    entropy,
    mutual_information,
    mutual_information_threshold,
    prune_by_entropy,
    relative_entropy,
    shrunk_squares,
)
from dither.fit.junction_tree import (
    JunctionTree,
    MessagePass,
    TreeFit,
    fit_tree,
    independent_tree,
)
from dither.fit.marginal import Marginal
from dither.fit.model import KINDS, Independent, Model, check_marginal, model_from_bytes
from dither.fit.pool import (
    AnswerCounts,
    PoolWeights,
    WeightedAnswer,
    answers_of,
    check_asked,
    contrast_noise,
    noise_variances,
    pool,
    precision,
    read_marginal,
    weigh_answers,
)
from dither.fit.project import apportion, make_consistent, norm_sub, normal_interval, projection
from dither.fit.raked import Raked, rake, read_totals
from dither.fit.ruled import Ruled, add_up, core_of, grouped_marginal, root_of, told_within_groups
from dither.fit.triangulate import (
    MAX_EXHAUSTIVE,
    Factorisation,
    Triangulation,
    compose,
    factorise,
    factorise_by_information,
    factorise_exhaustively,
    reduce_conditions,
    triangulate,
    triangulate_capped,
)

__all__ = [
    "KINDS",
    "MAX_EXHAUSTIVE",
    "AnswerCounts",
    "BayesNet",
    "Dependence",
    "Factorisation",
    "Independent",
    "JunctionTree",
    "Marginal",
    "MessagePass",
    "Model",
    "Network",
    "PoolWeights",
    "Pruning",
    "Raked",
    "Ruled",
    "TreeFit",
    "Triangulation",
    "Variant",
    "WeightedAnswer",
    "add_up",
    "answers_of",
    "apportion",
    "candidates_computed",
    "chain_joint",
    "check_asked",
    "check_marginal",
    "compose",
    "contrast_noise",
    "core_of",
    "dependence",
    "entropy",
    "factorise",
    "factorise_by_information",
    "factorise_exhaustively",
    "fit_tree",
    "grouped_marginal",
    "independent_tree",
    "make_consistent",
    "model_from_bytes",
    "mutual_information",
    "mutual_information_threshold",
    "noise_variances",
    "norm_sub",
    "normal_interval",
    "pool",
    "precision",
    "projection",
    "prune_by_entropy",
    "rake",
    "read_marginal",
    "read_totals",
    "reduce_conditions",
    "relative_entropy",
    "root_of",
    "search_network",
    "shrunk_squares",
    "told_within_groups",
    "triangulate",
    "triangulate_capped",
    "weigh_answers",
]
