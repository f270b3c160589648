"""Numbers inside their bins: the density follows the neighbours, keeps each bin's share, and nothing leaves its cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.schema import build_line
from dither.schema.columns import (
    draw_multiples,
    draw_places,
    draw_reals,
    from_multiples,
    knots,
    multiples_in,
)

RNG = np.random.default_rng


def chi_square(drawn, support, shares=None):
    counts = np.array([(drawn == value).sum() for value in support])
    assert counts.sum() == len(drawn)
    expected = len(drawn) * (
        np.full(len(support), 1 / len(support)) if shares is None else np.asarray(shares)
    )
    return ((counts - expected) ** 2 / expected).sum()


def test_cells_of_a_line_are_in_the_order_of_the_numbers():
    line = build_line([0, 10, 20], [0, 5, 99])
    assert line.ends == ((0, 0), (0, 5), (5, 5), (5, 10), (10, 20), (99, 99))
    found = [line.code(x) for x in (-1, 0, 0.1, 5, 5.1, 9.9, 10, 20, 20.1, 99, 100, float("nan"))]
    assert found == [None, 0, 1, 2, 3, 3, 4, 4, None, 5, None, None]
    assert build_line([0, 10, 20], closed=False).code(20) is None
    assert build_line([0, 10], [10]).ends == ((0, 10), (10, 10))


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_the_density_is_continuous_keeps_every_share_and_is_never_negative(seed):
    rng = RNG(seed)
    edges = np.cumsum(rng.uniform(0.01, 5, 9))
    counts = rng.integers(0, 1000, 8) * (rng.random(8) < 0.8)
    joined = rng.random(7) < 0.8
    found = knots(edges[:-1], edges[1:], counts, joined)
    for values in (found.lower, found.middle, found.upper):
        assert (values >= -1e-9).all()
    mass = (found.lower + 2 * found.middle + found.upper) / 4 * np.diff(edges)
    np.testing.assert_allclose(mass, counts, atol=1e-9)
    np.testing.assert_allclose(found.upper[:-1][joined], found.lower[1:][joined], atol=1e-9)


def test_places_follow_the_density():
    """Against numerical integration of the same three knots; draws of a uniform block would fail."""
    found = knots(
        np.array([0.0, 1, 2]), np.array([1.0, 2, 3]), np.array([100, 40, 5]), np.array([True, True])
    )
    uniform = (np.arange(20_000) + 0.5) / 20_000
    for i in range(3):
        places = draw_places(found, np.full(20_000, i), uniform)
        grid = (np.arange(2000) + 0.5) / 2000
        density = np.interp(grid, [0, 0.5, 1], [found.lower[i], found.middle[i], found.upper[i]])
        mean = (grid * density).sum() / density.sum()
        assert abs(places.mean() - mean) < 1e-3
        assert (np.diff(places) >= 0).all()
    assert (
        draw_places(found, np.zeros(20_000, int), uniform).mean() < 0.49
    )  # falls: not the block's 0.5


def test_an_exponential_is_drawn_more_truly_than_by_blocks():
    edges = [0, 1, 2, 4, 8, 16]
    truth = RNG(0).exponential(2, 40_000)
    truth = truth[truth < 16]
    codes = np.searchsorted(edges, truth, "right") - 1
    drawn = draw_reals(build_line(edges), codes, np.float64, RNG(1))
    blocks = np.asarray(edges)[codes] + np.diff(edges)[codes] * RNG(2).random(len(codes))

    def ks(values):
        grid = np.linspace(0, 16, 500)
        return max(abs((values <= x).mean() - (truth <= x).mean()) for x in grid)

    assert ks(drawn) < 0.5 * ks(blocks)
    assert abs(drawn.mean() - truth.mean()) < 0.25 * abs(blocks.mean() - truth.mean())


def test_a_bin_alone_is_uniform_over_its_integers():
    line = build_line([0.0, 4.2])
    codes = np.zeros(20_000, dtype=np.int32)
    # Chi-square with k - 1 degrees of freedom: mean k - 1, variance 2(k - 1); six standard deviations above.
    assert chi_square(
        draw_multiples(line, codes, 1.0, (-99, 99), RNG(1)), range(5)
    ) < 4 + 6 * np.sqrt(8)
    # Rounding a uniform real is a usual mistake: it gives the outer integers half their share, and this test sees it.
    assert chi_square(np.rint(RNG(4).uniform(0, 4.2, 20_000)), range(5)) > 4 + 6 * np.sqrt(8)


def test_a_bin_without_multiples_gives_the_nearest():
    first, last = multiples_in(build_line([0.0, 0.4, 0.6, 0.9, 1.5, 1.7, 1.9]), 1.0, (-99, 99))
    assert (
        first.tolist() == last.tolist() == [0, 0, 1, 1, 1, 1]
    )  # nothing beyond 1.9, although 2 is nearer to 1.8
    first, last = multiples_in(build_line([0.0, 100.0, 200.0, 1e300]), 1.0, (-128, 127))
    assert first.tolist() == [0, 100, 127]
    assert last.tolist() == [99, 127, 127]


def test_multiples_leave_atoms_alone_and_are_written_without_crumbs():
    line = build_line([0, 4.35, 10], [0, 4.99])
    first, last = multiples_in(line, 0.01, (-(10**9), 10**9))
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == [
        (0, 0),
        (1, 434),
        (435, 498),
        (499, 499),
        (500, 1000),
    ]
    codes = RNG(0).integers(0, 5, 5000)
    prices = from_multiples(draw_multiples(line, codes, 0.01, (0, 10**6), RNG(1)), 0.01)
    assert {line.code(price) for price in prices} == set(range(5))
    assert [line.code(price) for price in prices] == codes.tolist()
    assert all(price == round(price, 2) for price in prices)


@given(st.integers(0, 2**32), st.sampled_from([np.float64, np.float32, np.float16]))
@settings(max_examples=60, deadline=None)
def test_reals_stay_in_their_cell_after_rounding(seed, dtype):
    rng = RNG(seed)
    edges = np.cumsum(rng.uniform(0.01, 2, 6)) - 3
    atoms = np.float64(np.float16(rng.uniform(-2, 5, 2)))
    line = build_line(edges.tolist(), atoms.tolist())
    codes = rng.integers(0, line.cells, 300)
    low, high = np.asarray(line.ends)[codes].T
    wide_enough = (high - low > 0.02) | (high == low)
    drawn = draw_reals(line, codes, dtype, rng)
    assert drawn.dtype == dtype
    found = np.array([line.code(float(x)) for x in drawn])
    np.testing.assert_array_equal(found[wide_enough], codes[wide_enough])


def test_wide_and_narrow_numbers_do_not_overflow():
    for edges in ([-1e300, 0, 1e300], [0, 1e-300, 2e-300], [1e18, 1e18 + 4096]):
        drawn = draw_reals(build_line(edges), np.zeros(50, int), np.float64, RNG(0))
        assert np.isfinite(drawn).all()
        assert (drawn >= edges[0]).all()
        assert (drawn <= edges[1]).all()


@pytest.mark.parametrize("unit", [0.25, 0.05, 1.0, 10.0])
def test_units(unit):
    drawn = from_multiples(
        draw_multiples(
            build_line([0, 50, 100]), RNG(0).integers(0, 2, 999), unit, (0, 10**6), RNG(1)
        ),
        unit,
    )
    np.testing.assert_allclose(drawn / unit, np.rint(drawn / unit), atol=1e-9)
    assert drawn.max() <= 100


def test_long_tails_are_drawn_on_a_logarithmic_scale(monkeypatch):
    edges = [0.0, 2, 5, 10, 30, 100, 1000]
    truth = RNG(0).lognormal(2, 1.3, 40_000)
    truth = truth[truth < 1000]
    codes = np.searchsorted(edges, truth, "right") - 1
    drawn = draw_reals(build_line(edges), codes, np.float64, RNG(1))
    found = np.searchsorted(edges, drawn, "right") - 1
    np.testing.assert_array_equal(found, codes)
    monkeypatch.setattr("dither.schema.columns.SKEWED", np.inf)
    straight = draw_reals(build_line(edges), codes, np.float64, RNG(1))
    assert abs(drawn.mean() - truth.mean()) < 0.5 * abs(straight.mean() - truth.mean())
    monkeypatch.undo()
    mirrored = draw_reals(build_line([-e for e in reversed(edges)]), 5 - codes, np.float64, RNG(1))
    assert abs(mirrored.mean() + truth.mean()) < 0.5 * abs(straight.mean() - truth.mean())


def test_bins_that_vanish_beside_others_are_drawn_from():
    """On a scale in units of the widest bin the narrow ones in the middle have no width."""
    line = build_line([-6e17, 0.25, 2.5, 7.5, 73.0, 1770.0, 4e6, 3e24, 9e24, 9.5e24])
    codes = np.arange(900) % 9
    drawn = draw_reals(line, codes, np.float64, RNG(0))
    assert [line.code(number) for number in drawn] == codes.tolist()
