"""The mixture model: marginals against the full joint, sampling against its law, wrong input refused."""

from __future__ import annotations

import numpy as np
import pytest

from dither.fit.mixture import Mixture
from dither.fit.mixture import model as module
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True), missing=True),
        Attribute("c", "ordinal", (1, 2, 3, 4)),
    )
)


def model(components: int = 7, seed: int = 0) -> Mixture:
    rng = np.random.default_rng(seed)
    tables = tuple(rng.dirichlet(np.ones(k) / 2, size=components) for k in SCHEMA.cardinalities)
    return Mixture(SCHEMA, rng.dirichlet(np.ones(components)), tables)


def joint(m: Mixture) -> np.ndarray:
    return np.einsum("w,wa,wb,wc->abc", m.weights, *m.components)


@pytest.mark.parametrize("names", [["a"], ["c", "a"], ["b", "c"], ["a", "b", "c"], ["c", "b", "a"]])
def test_marginals_are_sums_of_the_joint(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    m = model()
    letters = "".join(names)
    np.testing.assert_allclose(
        m.marginal(names), np.einsum(f"abc->{letters}", joint(m)), atol=1e-12
    )
    monkeypatch.setattr(module, "_BLOCK_CELLS", 5)  # blocks of one or two components give the same
    np.testing.assert_allclose(
        m.marginal(names), np.einsum(f"abc->{letters}", joint(m)), atol=1e-12
    )


def test_rows_follow_the_joint_and_not_the_product() -> None:
    m, n = model(), 200_000
    rows = m.sample(n, np.random.default_rng(3))
    assert rows.dtype == np.int32
    cells = np.ravel_multi_index(tuple(rows.T), SCHEMA.cardinalities)
    seen = np.bincount(cells, minlength=36)
    expected = joint(m).ravel() * n
    chi2 = float(((seen - expected) ** 2 / np.maximum(expected, 1e-9))[expected > 5].sum())
    assert chi2 < 35 + 5 * np.sqrt(70)
    product = np.einsum("a,b,c->abc", *(m.marginal([name]) for name in SCHEMA.names)).ravel() * n
    assert ((seen - product) ** 2 / product).sum() > 10 * chi2


def test_the_same_seed_gives_the_same_rows_and_archives_keep_everything() -> None:
    m = model()
    again = Mixture.from_bytes(m.to_bytes())
    np.testing.assert_array_equal(
        m.sample(1000, np.random.default_rng(1)), again.sample(1000, np.random.default_rng(1))
    )
    np.testing.assert_array_equal(m.marginal(["a", "c"]), again.marginal(["a", "c"]))


def test_a_certain_value_is_always_drawn_and_an_impossible_one_never() -> None:
    schema = Schema((Attribute("a", "categorical", ("x", "y", "z")),))
    m = Mixture(schema, np.array([0.5, 0.5]), (np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),))
    rows = m.sample(10_000, np.random.default_rng(0))[:, 0]
    assert set(np.unique(rows)) == {0, 1}


@pytest.mark.parametrize(
    ("weights", "table"),
    [
        ([0.5, 0.6], [[0.5, 0.3, 0.2]] * 2),
        ([1.5, -0.5], [[0.5, 0.3, 0.2]] * 2),
        ([0.5, 0.5], [[0.5, 0.3, 0.3]] * 2),
        ([0.5, 0.5], [[1.2, -0.2, 0.0]] * 2),
        ([0.5, 0.5], [[0.5, 0.5]] * 2),
    ],
)
def test_what_is_no_distribution_is_refused(weights: list[float], table: list[list[float]]) -> None:
    schema = Schema((Attribute("a", "categorical", ("x", "y", "z")),))
    with pytest.raises(ValueError, match=r"mixture|component"):
        Mixture(schema, np.array(weights), (np.array(table),))
