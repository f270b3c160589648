"""A junction tree of the true table, without privacy, to separate model error from noise.

Reference: NoPrivJTree of Liu et al., EDBT 2023, section 6.1; the tree is that of Chen, Xiao,
Zhang, Xu, KDD 2015. It reads the records, so it is not a `ProtocolMachine`, needs an explicit
switch, and its release states that it is not private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np

from dither.checks import check_between, check_whole
from dither.errors import ParameterError, PrivacyError
from dither.fit import (
    Triangulation,
    mutual_information,
    mutual_information_threshold,
    triangulate_capped,
)
from dither.fit.junction_tree import JunctionTree
from dither.methods.diagnostics import TreeFacts
from dither.schema import Schema
from dither.schema.cells import count_cells
from dither.types import Codes, Floats, JsonObject

METHOD = "jtree-nonprivate"
EPSILON = math.inf
SUMMARY = "NOT private: a junction tree of the true records, to tell a model's own error from that of the noise."
REFERENCE = (
    "Liu, Tang, Hu, Jin, Guo, EDBT 2023, section 6.1 (NoPrivJTree); Chen, Xiao, Zhang, Xu, KDD 2015"
)
Pair = tuple[int, int]


@dataclass(frozen=True)
class TrueTreeParameters:
    """`phi`: a pair with mutual information below min(k-1) phi^2 / 2 counts as independent."""

    phi: float = 0.3
    max_clique_cells: int = 20_000

    def __post_init__(self) -> None:
        check_between("phi", self.phi, 0, 1)
        check_whole("max_clique_cells", self.max_clique_cells, 2)


def require_switch(no_privacy: bool) -> None:
    """Raise `PrivacyError` unless the caller set `no_privacy`."""
    if not no_privacy:
        raise PrivacyError(
            f"method {METHOD!r} reads the true records without protection; it needs no_privacy",
            where="no_privacy",
        )


def publish_nonprivate(
    codes: Codes,
    schema: Schema,
    parameters: TrueTreeParameters | None = None,
    *,
    no_privacy: bool = False,
) -> JunctionTree:
    """The junction tree of the table's true clique distributions. NOT private: epsilon is infinite."""
    require_switch(no_privacy)
    if not len(codes):
        raise ParameterError("a junction tree needs at least one row", where="table")
    chosen = parameters or TrueTreeParameters()
    tree = _true_tree(codes, schema, chosen)
    return JunctionTree(
        schema, tree, tuple(_frequencies(codes, schema, clique) for clique in tree.cliques)
    )


def _true_tree(codes: Codes, schema: Schema, parameters: TrueTreeParameters) -> Triangulation:
    """The tree of the pairs above the threshold; the weakest are dropped to respect the cap."""
    strengths: dict[Pair, float] = {}
    for i, j in combinations(range(len(schema)), 2):
        information = mutual_information(_frequencies(codes, schema, (i, j)))
        if information >= mutual_information_threshold(
            schema.cardinalities[i], schema.cardinalities[j], parameters.phi
        ):
            strengths[i, j] = information
    return triangulate_capped(schema.cardinalities, strengths, parameters.max_clique_cells)


def release_notes(model: JunctionTree) -> JsonObject:
    """The notes of a release."""
    return {
        "private": False,
        "warning": "made from the true records without any privacy; for comparison only, not to be published",
        **asdict(TreeFacts.of(model.schema, model.tree)),
    }


def _frequencies(codes: Codes, schema: Schema, positions: Sequence[int]) -> Floats:
    return np.asarray(count_cells(codes, schema.cardinalities, positions) / len(codes), np.float64)
