"""How far an average goes towards a public table: the standard error of the estimated gain, and what the reports cannot judge."""

from __future__ import annotations

import numpy as np
import pytest
from small_mixture import COLUMNS, SCHEMA, answers, known_mixture

from dither.fit import Model
from dither.fit.average import Candidate, gram
from dither.fit.mixture import Mixture, Weights, inverse_variances, pair_targets
from dither.fit.mixture.public_prior import (
    DESCENT,
    OWN,
    PUBLIC,
    LatentClasses,
    cautious_shares,
    gain_error,
    with_public,
)

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


def known(name: str = OWN, df: float = 0.0, penalty: float = 1.2) -> Candidate:
    weights, components = known_mixture()
    model: Model = Mixture.side_by_side(SCHEMA, weights, components)
    pairs = (components.T * weights) @ components
    return Candidate(name, model, pairs, weights @ components, df, penalty)


def candidates(*df: float) -> list[Candidate]:
    return [known(name, d) for name, d in zip((OWN, PUBLIC, DESCENT), df, strict=False)]


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


def offered(classes: LatentClasses, asked: int = 5) -> tuple[set[str], float]:
    """The candidates named in the note, and how far off the classes are in the fit's risks.

    The last attributes are asked alone.
    """
    rng = np.random.default_rng(1)
    found = [
        a
        for a in answers(200_000, 4.0, rng)
        if len(a.question.attributes) == 1
        or all(SCHEMA.index(name) < asked for name in a.question.attributes)
    ]
    targets = pair_targets(SCHEMA, found)
    moved = [pair_targets(SCHEMA, found, 0.1, rng) for _ in range(3)]
    own = known(df=20.0)
    weights = Weights(*inverse_variances(targets, own.pairs, own.one))
    pairs = (classes.components.T * classes.weights) @ classes.components
    one = classes.weights @ classes.components
    public = Candidate(PUBLIC, own.model, pairs, one, 0.0)
    products = gram(targets, weights, [own, public])
    risk = max(products[0, 0] + 2 * own.penalty * own.df - targets.cells, 0.0)
    _, shares, note = with_public(
        targets, moved, 0.1, weights, [own], np.ones(1), classes, np.random.default_rng(4)
    )
    assert shares.sum() == pytest.approx(1.0)
    return set(note["shares"]), (products[1, 1] - targets.cells) / risk


def test_a_descent_starts_from_a_table_that_is_near_and_from_none_far_off() -> None:
    """A public table whose first attribute is tilted."""
    weights, components = known_mixture()
    first = COLUMNS.of(0)
    found = {}
    for tilt in (0.0, 0.02, 0.05, 0.5, 2.0):
        turned = components.copy()
        turned[:, first] *= np.exp(tilt * np.arange(first.stop - first.start))
        turned[:, first] /= turned[:, first].sum(axis=1, keepdims=True)
        names, times = offered(LatentClasses(weights, turned))
        found[times] = names
    near = [names for times, names in found.items() if times < 5]
    far = [names for times, names in found.items() if times > 15]
    assert near
    assert far
    assert all(DESCENT in names for names in near)
    assert not any(DESCENT in names for names in far)


def test_attributes_that_were_not_asked_in_pairs_keep_the_marginals_of_the_fit() -> None:
    """What the public table says of how the last attribute depends on others is not used."""
    rng = np.random.default_rng(2)
    weights, components = known_mixture()
    last = COLUMNS.of(4)
    other = components.copy()
    other[:, last] = rng.dirichlet(np.ones(last.stop - last.start), size=len(weights))
    assert offered(LatentClasses(weights, other), asked=4)[0] >= {OWN, PUBLIC, DESCENT}
    assert DESCENT not in offered(LatentClasses(weights, other))[0]
