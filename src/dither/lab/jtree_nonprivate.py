"""A junction tree of the true table, without privacy, to separate model error from noise.

Reference: NoPrivJTree of Liu et al., EDBT 2023, section 6.1; the tree is that of Chen, Xiao,
Zhang, Xu, KDD 2015. It reads the records, so it is not a `ProtocolMachine`, needs an explicit
switch, and its release states that it is not private. The registry of methods loads it on use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from dither.checks import check_between, check_choice, check_whole
from dither.errors import ParameterError
from dither.fit import (
    JunctionTree,
    Triangulation,
    mutual_information,
    mutual_information_threshold,
    triangulate_capped,
)
from dither.methods.diagnostics import Diagnostics, TreeFacts
from dither.methods.machine import build_parameters
from dither.methods.registry import NONPRIVATE, NonprivateFit
from dither.schema import Schema
from dither.schema.cells import count_cells
from dither.types import Codes, Floats, JsonMapping

Pair = tuple[int, int]


@dataclass(frozen=True)
class _TrueTreeParameters:
    """`phi`: a pair with mutual information below min(k-1) phi^2 / 2 counts as independent.

    `unit` is that of the mutual information; the paper names none.
    """

    phi: float = 0.3
    unit: Literal["nats", "bits"] = "nats"
    max_clique_cells: int = 20_000

    def __post_init__(self) -> None:
        check_between("phi", self.phi, 0, 1)
        check_choice("unit", self.unit, ("nats", "bits"))
        check_whole("max_clique_cells", self.max_clique_cells, 2)


@dataclass(frozen=True, kw_only=True)
class _TrueTreeDiagnostics(Diagnostics):
    """States that the release is not private, and the tree."""

    private: bool = False
    warning: str = (
        "made from the true records without any privacy; for comparison only, not to be published"
    )
    tree: TreeFacts


def fit(codes: Codes, schema: Schema, parameters: JsonMapping) -> NonprivateFit:
    """The junction tree of the table's true clique distributions, for `NONPRIVATE.fit`."""
    if not len(codes):
        raise ParameterError("a junction tree needs at least one row", where="table")
    chosen = build_parameters(_TrueTreeParameters, parameters, NONPRIVATE.name)
    tree = _true_tree(codes, schema, chosen)
    cliques = tuple(_frequencies(codes, schema, clique) for clique in tree.cliques)
    facts = _TrueTreeDiagnostics(tree=TreeFacts.of(schema, tree))
    return NonprivateFit(JunctionTree(schema, tree, cliques), asdict(chosen), facts)


def _true_tree(codes: Codes, schema: Schema, parameters: _TrueTreeParameters) -> Triangulation:
    """The tree of the pairs above the threshold; the weakest are dropped to respect the cap."""
    strengths: dict[Pair, float] = {}
    unit = math.log(2) if parameters.unit == "bits" else 1.0
    for i, j in combinations(range(len(schema)), 2):
        information = mutual_information(_frequencies(codes, schema, (i, j)))
        threshold = mutual_information_threshold(
            schema.cardinalities[i], schema.cardinalities[j], parameters.phi
        )
        if information >= unit * threshold:
            strengths[i, j] = information
    return triangulate_capped(schema.cardinalities, strengths, parameters.max_clique_cells)


def _frequencies(codes: Codes, schema: Schema, positions: Sequence[int]) -> Floats:
    return np.asarray(count_cells(codes, schema.cardinalities, positions) / len(codes), np.float64)
