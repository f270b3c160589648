"""How far an average goes towards a public table: the standard error of the estimated gain, and what the reports cannot judge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_mixture import COLUMNS
from test_mixture_fit import collected

from dither.fit.mixture.fit import Candidate, FitOptions, fit_mixture, gram
from dither.fit.mixture.public_prior import (
    DESCENT,
    OWN,
    PUBLIC,
    LatentClasses,
    as_fit,
    cautious_shares,
    gain_error,
    judged,
    paired,
    with_public,
)
from dither.fit.mixture.targets import inverse_variances

CELLS, FOLLOWED = 100, 40


def test_the_standard_error_of_a_gain_is_what_repeated_data_scatter_by() -> None:
    """Data are noise around 0. The fit keeps the first 40 cells, a table says something fixed; both risks are estimated."""
    rng = np.random.default_rng(1)
    table = np.full(CELLS, 0.2)
    gaps, errors, short = [], [], []
    for _ in range(4_000):
        y = rng.standard_normal(CELLS)
        fit = np.where(np.arange(CELLS) < FOLLOWED, y, 0.0)
        off = np.stack([fit - y, table - y])
        products, df, step = off @ off.T, np.array([FOLLOWED, 0.0]), np.array([-1.0, 1.0])
        estimated = products[0, 0] + 2 * FOLLOWED - products[1, 1]
        gaps.append(estimated - (fit @ fit - table @ table))
        errors.append(gain_error(step, products, df) ** 2)
        short.append(4 * step @ products @ step)  # the noise along the step alone
    scatter = np.var(gaps)
    # A variance from 4,000 values has a relative error of sqrt(2 / 4000) = 0.022.
    assert np.mean(errors) == pytest.approx(scatter, rel=0.1)
    assert np.mean(short) < 0.7 * scatter
    assert np.mean(gaps) == pytest.approx(0.0, abs=4 * np.sqrt(scatter / 4_000))


def candidates(*df: float) -> list[Candidate]:
    fit = fit_mixture(
        collected(20_000, 3.0, np.random.default_rng(1)), np.random.default_rng(1), OPTIONS
    )
    return [Candidate(name, fit, d) for name, d in zip((OWN, PUBLIC, DESCENT), df, strict=False)]


OPTIONS = FitOptions(total=24, components=8, iterations=10, edges=())


def test_a_gain_within_its_error_gives_no_share_and_a_large_one_nearly_all() -> None:
    cells, both = 100.0, candidates(40.0, 0.0)
    close = np.array([[60.0, 100.0], [100.0, 150.0]])  # a gain of 6, with an error of 11
    shares, (risk, without) = cautious_shares(both, close, cells)
    assert shares.tolist() == [1.0, 0.0]
    assert risk == without
    right = np.array([[60.0, 60.0], [60.0, 100.0]])
    shares, (risk, without) = cautious_shares(both, right, cells)
    assert 0.2 < shares[1] < 0.9
    assert shares.sum() == pytest.approx(1.0)
    assert risk < without
    # The same table, and a hundred times as many cells about which the reports agree with it.
    shares, _ = cautious_shares(candidates(4_000.0, 0.0), 100 * right, 100 * cells)
    assert shares[1] > 0.9


def test_degrees_of_freedom_below_zero_win_no_share() -> None:
    """A campaign's figures where the table was one row again and again: the descent from it was thrice as far off as the fit."""
    cells, three = 80.0, candidates(43.0, 0.0, -161.0)
    products = np.array([[41.0, 100.0, 30.0], [100.0, 4_977.0, 900.0], [30.0, 900.0, 511.0]])
    shares, (risk, without) = cautious_shares(three, products, cells)
    assert shares.tolist() == [1.0, 0.0, 0.0]
    assert risk == without


def test_a_descent_starts_from_a_table_that_is_off_by_several_times_the_risk_of_the_fit_and_from_none_far_beyond() -> (
    None
):
    """A public table whose first attribute is tilted: the better the fit, the farther off the table is beside it."""
    targets = collected(200_000, 4.0, np.random.default_rng(1))
    own = fit_mixture(targets, np.random.default_rng(3), OPTIONS)
    first = COLUMNS.of(0)
    weights, df = (
        inverse_variances(targets, own.pairs, own.one),
        own.diagnostics["degrees_of_freedom"],
    )
    found: dict[float, set[str]] = {}
    for tilt in np.linspace(0.0, 3.0, 16):
        turned = own.components.copy()
        turned[:, first] *= np.exp(tilt * np.arange(first.stop - first.start))
        turned[:, first] /= turned[:, first].sum(axis=1, keepdims=True)
        classes = LatentClasses(own.weights, turned)
        products = gram(targets, *weights, [own, as_fit(targets, own, classes)])
        times = (products[1, 1] - targets.cells) / (
            products[0, 0] + 2 * OPTIONS.penalty * df - targets.cells
        )
        found[times] = set(with_public(targets, own, df, classes, np.random.default_rng(4)).shares)
    near, far = (
        [names for t, names in found.items() if 5 < t < 9],
        [names for t, names in found.items() if t > 15],
    )
    assert near
    assert far
    assert all(DESCENT in names for names in near)
    assert not any(DESCENT in names for names in far)


def test_attributes_that_were_not_asked_in_pairs_keep_the_marginals_of_the_fit() -> None:
    targets = collected(20_000, 3.0, np.random.default_rng(1))
    noise = tuple(c.copy() for c in targets.pair_noise)
    for c in noise:
        c[-1, :] = c[:, -1] = 0.0
    targets = replace(targets, pair_noise=noise)
    assert paired(targets).tolist() == [True] * (len(noise[0]) - 1) + [False]
    rng = np.random.default_rng(2)
    classes = LatentClasses(
        np.full(5, 0.2), COLUMNS.softmax(rng.standard_normal((5, COLUMNS.width)))
    )
    known = judged(targets, classes, targets.one)
    last = COLUMNS.of(len(noise[0]) - 1)
    assert np.array_equal(known.components[:, : last.start], classes.components[:, : last.start])
    assert np.allclose(known.components[:, last], targets.one[last], atol=1e-4)
    own = fit_mixture(targets, np.random.default_rng(3), OPTIONS)
    found = with_public(
        targets, own, own.diagnostics["degrees_of_freedom"], classes, np.random.default_rng(4)
    )
    assert set(found.shares) >= {OWN, PUBLIC}
