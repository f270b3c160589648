"""Covers: every pair inside some set, no set too wide, and the predicted noise that picks between them."""

import math
from itertools import combinations

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.methods.calm import cover_pairs, pair_noise


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cells", [2, 40, 400])
def test_every_pair_is_covered_within_the_cap(seed, cells):
    sizes = np.random.default_rng(seed).integers(2, 12, 9).tolist()
    cover = cover_pairs(sizes, cells)
    covered = {p for s in cover for p in combinations(s, 2)}
    assert covered == set(combinations(range(9), 2))
    for s in cover:
        assert len(s) == 2 or math.prod(sizes[a] for a in s) <= cells
        assert s == tuple(sorted(set(s)))


def test_a_wider_cap_needs_fewer_sets_and_size_limits_them():
    sizes = [2] * 10
    assert len(cover_pairs(sizes, 2)) == 45
    few = cover_pairs(sizes, 16)
    assert len(few) < 20
    assert max(map(len, cover_pairs(sizes, 1 << 10, 3))) == 3
    assert cover_pairs(sizes, 1 << 10) == [tuple(range(10))]
    assert cover_pairs([5], 100) == [(0,)]


def test_predicted_noise_is_that_of_a_simulation():
    """Two overlapping sets of unary bits: the L1 noise of a pair, pooled by inverse variance, against the formula."""
    sizes, sets = [3, 4, 2], [(0, 1), (0, 1, 2)]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2_000):
        a = rng.normal(0, math.sqrt(1 / 0.25), 12)
        b = rng.normal(0, math.sqrt(1 / 0.75), 24).reshape(12, 2).sum(1)
        wa, wb = 0.25, 0.75 / 2
        found.append(((wa * a + wb * b) / (wa + wb)) ** 2)
    simulated = 12 * math.sqrt(np.mean(found))
    covered_only = pair_noise(sizes[:2], [(0, 1), (0, 1)], [0.25, 0.75 / 2], lambda cells: 1.0)
    assert covered_only == pytest.approx(simulated, rel=0.02)
    assert math.isinf(pair_noise(sizes, [(0, 1)], [1.0], lambda cells: 1.0))
    assert pair_noise(
        sizes, [*sets, (1, 2), (0, 2)], [0.1, 0.7, 0.1, 0.1], lambda cells: 4.0
    ) == pytest.approx(
        2 * pair_noise(sizes, [*sets, (1, 2), (0, 2)], [0.1, 0.7, 0.1, 0.1], lambda cells: 1.0)
    )


def test_bad_caps_are_refused():
    with pytest.raises(ParameterError, match="marginal_cells must be a whole number of at least 2"):
        cover_pairs([2, 2], 1)
    with pytest.raises(ParameterError, match="size must be a whole number of at least 2"):
        cover_pairs([2, 2], 4, 1)
