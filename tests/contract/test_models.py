"""One contract for all models: marginals are distributions that agree with each other and with samples; archives are exact."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dither.errors import ParameterError, SchemaError
from dither.models import Independent, Model, model_from_bytes
from dither.models.junction_tree import JunctionTree
from dither.models.mixture import Mixture
from dither.schema import Attribute, Schema
from dither.structure import triangulate_capped

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


@pytest.fixture(params=BUILDERS)
def model(request: pytest.FixtureRequest) -> Model:
    return BUILDERS[request.param]()


def test_marginals_are_distributions_and_agree(model: Model) -> None:
    assert isinstance(model, Model)
    whole = model.marginal(SCHEMA.names)
    assert whole.shape == SCHEMA.cardinalities
    assert (whole >= 0).all()
    assert whole.sum() == pytest.approx(1)
    for size in (1, 2, 3):
        for positions in combinations(range(4), size):
            other = tuple(i for i in range(4) if i not in positions)
            marginal = model.marginal([SCHEMA.names[i] for i in positions])
            np.testing.assert_allclose(marginal, whole.sum(axis=other), atol=1e-9)
    np.testing.assert_allclose(model.marginal(["c", "a"]), model.marginal(["a", "c"]).T, atol=1e-12)


def test_samples_follow_the_joint_distribution(model: Model) -> None:
    n = 200_000
    rows = model.sample(n, np.random.default_rng(1))
    assert rows.shape == (n, 4)
    assert rows.dtype == np.int32
    counts = np.zeros(SCHEMA.cardinalities)
    np.add.at(counts, tuple(rows.T), 1)
    expected = model.marginal(SCHEMA.names)
    z = (counts / n - expected) / np.sqrt(np.maximum(expected * (1 - expected), 1e-12) / n)
    assert np.abs(z[expected * n > 10]).max() < 5
    np.testing.assert_array_equal(rows, model.sample(n, np.random.default_rng(1)))
    assert (rows != model.sample(n, np.random.default_rng(2))).any()
    assert model.sample(0, np.random.default_rng(1)).shape == (0, 4)


def test_archive_round_trip_is_exact(model: Model) -> None:
    again = model_from_bytes(model.to_bytes())
    assert again.to_bytes() == model.to_bytes()
    assert again.schema == model.schema
    np.testing.assert_array_equal(again.marginal(["b", "d"]), model.marginal(["b", "d"]))
    np.testing.assert_array_equal(
        again.sample(50, np.random.default_rng(3)), model.sample(50, np.random.default_rng(3))
    )


def test_marginals_that_make_no_sense_are_refused(model: Model) -> None:
    with pytest.raises(ParameterError, match="twice"):
        model.marginal(["a", "a"])
    with pytest.raises(ParameterError, match="at least one"):
        model.marginal([])
    with pytest.raises(SchemaError, match="nope"):
        model.marginal(["nope"])
