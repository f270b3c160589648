"""CALM: covering sets, consistent marginals, any k-way marginal, and a synthetic table."""

import math
from itertools import combinations

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import ParameterError
from dither.methods import start
from dither.methods.calm import pair_noise, reconstruct
from dither.schema import Attribute, Schema
from dither.simulate import simulate

NETWORK = generate_network((3, 2, 4, 3, 2), parents=1, strength=2.0, seed=4)
SCHEMA = NETWORK.schema
NARROW = generate_network((2, 2, 2, 3), parents=1, strength=2.0, seed=4).schema
N = 60_000


def run(epsilon=4.0, **parameters):
    machine = start("calm", SCHEMA, epsilon, N, parameters).machine
    simulate(machine, NETWORK.sample_codes(N, np.random.default_rng(0)), np.random.default_rng(1))
    return machine


@pytest.mark.parametrize("cells", [None, 12, 48])
def test_marginals_are_consistent_and_right(cells):
    machine = run(marginal_cells=cells)
    covered = {p for s in machine.cover for p in combinations(s, 2)}
    assert covered == set(combinations(range(5), 2))
    tables = machine.marginals
    for (a, first), (b, second) in combinations(tables, 2):
        shared = [x for x in a if x in b]
        views = [
            t.sum(axis=tuple(i for i, x in enumerate(n) if x not in shared))
            for n, t in ((a, first), (b, second))
        ]
        if shared == [x for x in b if x in a]:
            assert np.abs(views[0] - views[1]).max() < 0.005
    for size in (1, 2, 3):
        for names in combinations(SCHEMA.names, size):
            exact = NETWORK.marginal(names)
            product = NETWORK.marginal(names[:1])
            for name in names[1:]:
                product = np.multiply.outer(product, NETWORK.marginal([name]))
            # Raw pairs of 12 cells from 6,000 answers at epsilon 4: standard errors near 0.005, half their L1 norm 0.03.
            assert np.abs(machine.marginal(names) - exact).sum() / 2 < 0.08
            assert np.abs(machine.model().marginal(names) - exact).sum() / 2 < 0.08
    strong = NETWORK.marginal(["x0", "x1"]) - np.outer(
        NETWORK.marginal(["x0"]), NETWORK.marginal(["x1"])
    )
    assert np.abs(strong).sum() / 2 > 0.1, "independence would not pass"


def test_reconstruction_is_the_distribution_of_largest_entropy():
    """A chain's pairs determine it: given x0-x1 and x1-x2 the entropy is largest when x0 and x2 are independent given x1."""
    rng = np.random.default_rng(0)
    names = SCHEMA.names[:3]
    middle = rng.dirichlet(np.ones(2))
    first, last = rng.dirichlet(np.ones(3), 2), rng.dirichlet(np.ones(4), 2)
    chain = np.einsum("b,ba,bc->abc", middle, first, last)
    tables = [((names[0], names[1]), chain.sum(2)), ((names[1], names[2]), chain.sum(0))]
    np.testing.assert_allclose(reconstruct(SCHEMA, tables, names), chain, atol=1e-6)
    np.testing.assert_allclose(
        reconstruct(SCHEMA, tables, [names[2], names[0]]),
        chain.sum(1).sum(0)[:, None] * chain.sum((1, 2)),
        atol=1e-6,
    )
    with pytest.raises(ParameterError, match="twice"):
        reconstruct(SCHEMA, tables, ["x0", "x0"])


def largest_set(epsilon, **parameters):
    plan = start("calm", NARROW, epsilon, N, parameters).plan()
    return max(len(asked.attributes) for asked in plan.questions)


def test_sets_grow_where_noise_allows():
    assert largest_set(8.0) > largest_set(0.5)
    assert largest_set(8.0, size=2) == 2


def test_bad_input_is_named():
    for parameter, value in (("marginal_cells", 1), ("size", 1), ("max_clique_cells", 3)):
        with pytest.raises(ParameterError, match=parameter):
            start("calm", SCHEMA, 1.0, N, {parameter: value})


def test_noise_alone_falls_back_to_independence():
    machine = start("calm", SCHEMA, 0.05, 500, {"significance": 6.0})
    simulate(machine, NETWORK.sample_codes(500, np.random.default_rng(0)), np.random.default_rng(2))
    assert "independent" in machine.diagnostics().to_json()["fallback"]
    assert np.isfinite(machine.model().marginal(["x0", "x1"])).all()


def asked_sets(sizes, **parameters):
    """The sets of positions that are asked together."""
    schema = Schema(
        tuple(Attribute(f"x{i}", "ordinal", tuple(range(k))) for i, k in enumerate(sizes))
    )
    plan = start("calm", schema, 2.0, N, parameters).plan()
    return [tuple(map(schema.index, asked.attributes)) for asked in plan.questions]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cells", [2, 40, 400])
def test_every_pair_is_covered_within_the_cap(seed, cells):
    sizes = np.random.default_rng(seed).integers(2, 12, 9).tolist()
    cover = asked_sets(sizes, marginal_cells=cells)
    covered = {p for s in cover for p in combinations(s, 2)}
    assert covered == set(combinations(range(9), 2))
    for s in cover:
        assert len(s) == 2 or math.prod(sizes[a] for a in s) <= cells


def test_a_wider_cap_needs_fewer_sets_and_size_limits_them():
    sizes = [2] * 10
    assert len(asked_sets(sizes, marginal_cells=2)) == 45
    assert len(asked_sets(sizes, marginal_cells=16)) < 20
    assert max(map(len, asked_sets(sizes, marginal_cells=1 << 10, size=3))) == 3
    assert asked_sets(sizes, marginal_cells=1 << 10) == [tuple(range(10))]
    assert asked_sets([5]) == [(0,)]


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
