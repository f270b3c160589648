"""Algorithms 3 and 4 against their pseudo-code written out, and the number of mutual informations they compute."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import candidates_computed, search_network


def fixed_scores(d, degree, seed=0):
    rng = np.random.default_rng(seed)
    table = {}
    for a in range(d):
        for size in range(1, degree + 1):
            for given in combinations([x for x in range(d) if x != a], size):
                table[a, given] = float(rng.random()) + size
    return lambda a, given: table[a, tuple(given)]


def slow_algorithm_3(d, degree, score, root):
    inside, parents, computed = [root], {root: ()}, 0
    for _ in range(d - 1):
        best = None
        for a in sorted(set(range(d)) - set(inside)):
            for given in combinations(sorted(inside), min(degree, len(inside))):
                computed += 1
                if best is None or score(a, given) > best[0]:
                    best = (score(a, given), a, given)
        inside.append(best[1])
        parents[best[1]] = best[2]
    return inside, parents, computed


def slow_algorithm_4(d, degree, score, root):
    inside, parents, computed, kept, newest = [root], {root: ()}, 0, None, root
    for _ in range(d - 1):
        options = []
        for a in sorted(set(range(d)) - set(inside)):
            for given in combinations(sorted(inside), min(degree, len(inside))):
                if len(inside) <= degree or newest in given:
                    computed += 1
                    options.append((score(a, given), a, given))
        if kept is not None and kept[1] not in inside:
            options.append(kept)
        best = max(options, key=lambda o: (o[0], -o[1]))
        rest = [o for o in options if o[1] != best[1]]
        kept = max(rest, key=lambda o: (o[0], -o[1])) if rest else None
        inside.append(best[1])
        newest = best[1]
        parents[best[1]] = best[2]
    return inside, parents, computed


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_both_algorithms_equal_their_pseudo_code(degree, seed):
    d = 7
    score = fixed_scores(d, degree, seed)
    for cached, slow in ((False, slow_algorithm_3), (True, slow_algorithm_4)):
        found = search_network(d, degree, score, 2, cached=cached)
        order, parents, computed = slow(d, degree, score, 2)
        assert list(found.order) == order
        assert found.parents == tuple(parents[a] for a in range(d))
        assert found.computed == computed
        assert found.total == pytest.approx(sum(score(a, g) for a, g in parents.items() if g))
        assert all(len(g) <= degree for g in found.parents)


def test_algorithm_4_computes_far_fewer():
    d, k = 15, 2
    full = sum((d - i) * comb(i, min(k, i)) for i in range(1, d))
    assert candidates_computed(d, k, cached=False) == full
    assert candidates_computed(d, k, cached=True) < full / 3
    assert candidates_computed(d, 1, cached=True) == sum(d - i for i in range(1, d))


def test_wide_candidates_give_way_to_their_subsets():
    score = fixed_scores(5, 2)
    only_pairs = search_network(5, 2, score, 0, cached=False, fits=lambda a, given: len(given) < 2)
    assert all(len(g) == (0 if a == 0 else 1) for a, g in enumerate(only_pairs.parents))
    nothing = search_network(5, 2, score, 0, cached=True, fits=lambda a, given: False)
    assert nothing.parents == ((),) * 5
    assert nothing.edges() == set()


def test_candidates_are_announced_before_they_are_scored():
    told = set()

    def score(a, given):
        assert (a, given) in told
        return float(a)

    search_network(6, 2, score, 0, cached=True, ahead=told.update)


@pytest.mark.parametrize("degree", [0, 5])
def test_degrees_are_one_to_four(degree):
    with pytest.raises(ParameterError, match="degree"):
        search_network(3, degree, lambda a, g: 0.0, 0, cached=False)
