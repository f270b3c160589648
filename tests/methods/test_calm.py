"""CALM: covering sets, consistent marginals, any k-way marginal, and a synthetic table."""

from itertools import combinations

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import ParameterError, StateError
from dither.methods import Campaign, MethodRun, restore
from dither.methods.calm import Calm, CalmParameters, choose_cover, reconstruct
from dither.simulate import simulate

NETWORK = generate_network((3, 2, 4, 3, 2), parents=1, strength=2.0, seed=4)
SCHEMA = NETWORK.schema
N = 60_000


def run(epsilon=4.0, **parameters):
    machine = Calm(Campaign(SCHEMA, epsilon, N), CalmParameters(**parameters))
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


def test_sets_grow_where_noise_allows():
    small = choose_cover(SCHEMA, 0.5, CalmParameters())
    large = choose_cover(SCHEMA, 8.0, CalmParameters())
    assert max(map(len, large)) >= max(map(len, small))
    assert max(map(len, choose_cover(SCHEMA, 8.0, CalmParameters(size=2)))) == 2


def test_saved_and_restored_it_is_the_same():
    machine = run()
    again = restore(MethodRun(machine).state()).machine
    assert again.model().to_bytes() == machine.model().to_bytes()


def test_bad_input_is_named():
    with pytest.raises(ParameterError, match="marginal_cells"):
        CalmParameters(marginal_cells=1)
    with pytest.raises(ParameterError, match="max_clique_cells"):
        Calm(Campaign(SCHEMA, 1.0, N), CalmParameters(max_clique_cells=3))
    with pytest.raises(StateError, match="still open"):
        Calm(Campaign(SCHEMA, 1.0, N), CalmParameters()).model()


def test_noise_alone_falls_back_to_independence():
    machine = Calm(Campaign(SCHEMA, 0.05, 500), CalmParameters(significance=6.0))
    simulate(machine, NETWORK.sample_codes(500, np.random.default_rng(0)), np.random.default_rng(2))
    assert "independent" in machine.diagnostics().to_json()["fallback"]
    assert np.isfinite(machine.model().marginal(["x0", "x1"])).all()
