"""7. Which attributes depend on which: dependence tests, pruning, and the junction tree of a dependence graph."""

from dither.structure.dependence import (
    Dependence,
    Pruning,
    dependence,
    entropy,
    mutual_information,
    mutual_information_threshold,
    prune_by_entropy,
    relative_entropy,
)
from dither.structure.shrink import shrunk_squares
from dither.structure.triangulate import (
    Triangulation,
    triangulate,
    triangulate_capped,
)

__all__ = [
    "Dependence",
    "Pruning",
    "Triangulation",
    "dependence",
    "entropy",
    "mutual_information",
    "mutual_information_threshold",
    "prune_by_entropy",
    "relative_entropy",
    "shrunk_squares",
    "triangulate",
    "triangulate_capped",
]
