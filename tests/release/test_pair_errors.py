"""Intervals of pairs in a release that knows no truth: from pooled answers, and from whole randomised records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.fit import Independent, Marginal
from dither.mechanisms import Mechanism, mechanism
from dither.release import Release, figures
from dither.release.figures import pair_errors, split_errors
from dither.schema import Attribute, Schema


def people(rows: int = 4000) -> pa.Table:
    rng = np.random.default_rng(1)
    a, c = rng.integers(0, 4, rows), rng.integers(0, 3, rows)
    b, d = (a + rng.integers(0, 2, rows)) % 4, (c + (rng.random(rows) < 0.2)) % 3
    columns = {"a": a, "b": b, "c": c, "d": d}
    return pa.table({name: [f"v{x}" for x in codes] for name, codes in columns.items()})


def collected(method: str, holdout: float = 0.0, seed: int = 1) -> Release:
    """As the collector makes it: no truth."""
    release = dither.publish(
        people(), epsilon=4.0, method=method, rows=50, seed=seed, holdout=holdout
    )
    return replace(release, call=replace(release.call, simulated=False), truth=None)


@pytest.mark.parametrize("method", ["mixture", "privincr", "calm", "lopub", "bayesnet"])
def test_every_pair_that_was_asked_has_standard_errors(method: str) -> None:
    release = collected(method)
    errors = pair_errors(release)
    found = {pair: errors(pair) for pair in combinations(release.schema.names, 2)}
    known = {pair: e for pair, e in found.items() if e is not None}
    assert ("a", "b") in known
    assert ("c", "d") in known
    for pair, e in known.items():
        assert e.shape == release.model.marginal(pair).shape
        assert (e > 0).all()
        assert (e < 0.5).all()
        other = errors(pair[::-1])
        assert other is not None
        assert np.allclose(other.T, e)


def test_independent_answers_tell_of_no_pair() -> None:
    assert pair_errors(collected("independent"))(["a", "b"]) is None


def test_held_out_answers_are_not_counted() -> None:
    """The fit did not see them, so the estimate is no surer for them."""
    half, whole = (
        pair_errors(collected("mixture", holdout=0.5))(["a", "b"]),
        pair_errors(collected("mixture"))(["a", "b"]),
    )
    assert half is not None
    assert whole is not None
    assert np.median(half / whole) == pytest.approx(2**0.5, rel=0.25)


def test_a_measured_pair_wins_and_unknown_ones_say_so(
    make_release: Callable[..., Release], simulated: Release
) -> None:
    names = simulated.schema.names[:2]
    joint = simulated.model.marginal(names)
    held = Marginal(tuple(names), joint, np.full(joint.shape, 0.02), 12345)
    release = make_release(model=simulated.model, measured=[held])
    errors = pair_errors(release)
    assert errors(names) == pytest.approx(np.full(joint.shape, 0.02))
    assert errors([simulated.schema.names[0], simulated.schema.names[2]]) is None


@pytest.mark.slow
def test_pooled_errors_are_those_of_repeated_collections() -> None:
    """The raw estimates of the pair scatter over seeds as the standard errors say, within what 30 runs can tell."""
    from dither.fit import answers_of, pool
    from dither.methods import fitted_tallies

    runs = [collected("calm", seed=seed) for seed in range(30)]
    pair = ("a", "b")
    raw = []
    for run in runs:
        raw.append(pool(run.schema, answers_of(fitted_tallies(run.state)), pair).frequencies)
    stated = [np.median(found) for run in runs if (found := pair_errors(run)(pair)) is not None]
    scatter = np.sqrt(np.var(raw, axis=0, ddof=1).mean())
    # 16 cells of 30 runs: the standard deviation's own relative error is about 1/sqrt(2 * 16 * 29), 3.3 %
    assert scatter / np.mean(stated) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("name", ["grr", "oue"])
def test_split_errors_are_those_of_products_of_single_estimates(name: str) -> None:
    """Against a simulation of whole records; the variance without the joint's own terms is rejected."""
    first, second = mechanism(name, 3, 1.0), mechanism(name, 2, 1.0)
    joint = np.array([[0.5, 0.05], [0.1, 0.1], [0.05, 0.2]])
    rng = np.random.default_rng(7)
    n, trials = 60, 4000
    cells = np.repeat(np.arange(6), np.round(joint.ravel() * n).astype(int))
    u = single_estimates(first, np.tile(cells // 2, (trials, 1)), rng)
    w = single_estimates(second, np.tile(cells % 2, (trials, 1)), rng)
    products = np.einsum("tia,tib->tab", u, w) / n
    assert products.mean(axis=0) == pytest.approx(joint, abs=5 * products.std() / trials**0.5)
    spread = products.std(axis=0)
    # 4000 trials: a standard deviation is known to 1.1 %, a little more where the products' tails are long
    assert split_errors(first, second, joint, n) == pytest.approx(spread, rel=0.06)
    assert split_errors(first, second, np.full((3, 2), 1 / 6), n) != pytest.approx(spread, rel=0.06)


def single_estimates(
    mechanism: Mechanism, values: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(support - q) / (p - q) of each person's report, drawn by the law of the mechanism."""
    p, q, k = float(mechanism.p), float(mechanism.q), mechanism.cells
    own = values[..., None] == np.arange(k)
    if mechanism.name == "grr":
        kept = rng.random(values.shape) < p
        other = (values + rng.integers(1, k, values.shape)) % k
        support = np.where(kept, values, other)[..., None] == np.arange(k)
    else:
        support = rng.random(own.shape) < np.where(own, p, q)
    return (support - q) / (p - q)


def test_groups_of_a_heat_map_add_up_in_squares(make_release: Callable[..., Release]) -> None:
    schema = Schema(
        (
            Attribute("steps", "ordinal", values=tuple(range(24))),
            Attribute("kind", "categorical", values=tuple("abcdefghijkl")),
        )
    )
    kinds = np.arange(12, 0, -1) / 78
    model = Independent(schema, (np.full(24, 1 / 24), kinds))
    release = make_release(schema=schema, model=model, measured=())
    heat = figures.heat_map(
        release, figures.Pair("kind", "steps", 1.0), lambda names: np.full((24, 12), 0.01)
    )
    assert (heat.pair.first, heat.pair.second) == ("steps", "kind")
    assert heat.intervals
    assert heat.estimate.shape == (12, 8)
    assert heat.columns == (*"abcdefg", "5 others")
    assert heat.beside is not None
    assert heat.beside[:, :7] == pytest.approx(np.full((12, 7), 1.959964 * 0.01 * 2**0.5), rel=1e-6)
    assert heat.beside[:, 7] == pytest.approx(np.full(12, 1.959964 * 0.01 * 10**0.5), rel=1e-6)
    assert heat.estimate.sum() == pytest.approx(1)
