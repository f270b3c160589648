"""The mixture of products that the default method fits to all noisy marginals at once."""

from dither.fit.mixture.fit import (
    Descent,
    MixtureFit,
    MixtureSettings,
    Weights,
    component_count,
    fit_mixture,
    start_count,
)
from dither.fit.mixture.model import (
    Edge,
    Mixture,
)
from dither.fit.mixture.targets import (
    Columns,
    PairTargets,
    inverse_variances,
    one_way_precisions,
    pair_targets,
)

__all__ = [
    "Columns",
    "Descent",
    "Edge",
    "Mixture",
    "MixtureFit",
    "MixtureSettings",
    "PairTargets",
    "Weights",
    "component_count",
    "fit_mixture",
    "inverse_variances",
    "one_way_precisions",
    "pair_targets",
    "start_count",
]
