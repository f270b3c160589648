"""The contract of models (`dither.lab.testing.ModelContract`) on every model there is."""

from __future__ import annotations

import numpy as np
import pytest

from dither.fit import Independent, JunctionTree, Model, triangulate_capped
from dither.fit.mixture import Mixture
from dither.lab.testing import ModelContract
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True), missing=True),
        Attribute("c", "ordinal", (1, 2, 3, 4)),
        Attribute("d", "numeric", edges=(0.0, 1.0, 5.0)),
    )
)


def independent() -> Model:
    rng = np.random.default_rng(0)
    return Independent(SCHEMA, tuple(rng.dirichlet(np.ones(k)) for k in SCHEMA.cardinalities))


def mixture() -> Model:
    rng = np.random.default_rng(1)
    tables = tuple(rng.dirichlet(np.ones(k) / 2, size=5) for k in SCHEMA.cardinalities)
    return Mixture(SCHEMA, rng.dirichlet(np.ones(5)), tables)


def junction_tree() -> Model:
    joint = np.random.default_rng(2).dirichlet(np.ones(36)).reshape(3, 3, 4)
    tree = triangulate_capped(SCHEMA.cardinalities, {(0, 1): 2.0, (1, 2): 1.0, (2, 3): 0.5}, 1000)
    tables = []
    last = np.array([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7], [0.2, 0.8]])
    whole = joint[..., None] * last  # d depends on c alone
    for clique in tree.cliques:
        tables.append(whole.sum(axis=tuple(i for i in range(4) if i not in clique)))
    return JunctionTree(SCHEMA, tree, tuple(tables))


BUILDERS = {"independent": independent, "mixture": mixture, "junction_tree": junction_tree}


class TestEveryModel(ModelContract):
    @pytest.fixture(params=BUILDERS)
    def model(self, request: pytest.FixtureRequest) -> Model:
        return BUILDERS[request.param]()
