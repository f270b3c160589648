"""The four joint estimators of PrivIncr's figure 3."""

import numpy as np
import pytest

from benchmarks.rivals import RIVALS, central_jtree, rival_joint
from dither.central import seeded_source
from dither.datasets import generate_network
from dither.errors import ParameterError
from dither.schema import Schema

NETWORK = generate_network((3, 2, 4), parents=1, strength=2.0, seed=1)
SCHEMA = NETWORK.schema
CODES = NETWORK.sample_codes(20_000, np.random.default_rng(0))
EXACT = np.zeros(SCHEMA.cardinalities)
np.add.at(EXACT, tuple(CODES.T), 1 / len(CODES))


def error(rival, epsilon, seed=0):
    joint = rival_joint(SCHEMA, CODES, rival, epsilon, np.random.default_rng(seed))
    assert joint.shape == SCHEMA.cardinalities
    assert (joint >= 0).all()
    assert joint.sum() == pytest.approx(1)
    return np.abs(joint - EXACT).sum() / 2


@pytest.mark.parametrize("rival", RIVALS)
def test_each_learns_the_joint_when_epsilon_is_large(rival):
    # Epsilon 12 is 4 per attribute. The product of one-way marginals is this far off:
    product = np.einsum(
        "a,b,c->abc", *(EXACT.sum(axis=tuple(j for j in range(3) if j != i)) for i in range(3))
    )
    independent = np.abs(product - EXACT).sum() / 2
    assert error(rival, 12.0) < 0.05 < independent


def test_the_whole_domain_beats_splitting_epsilon_as_in_figure_3():
    found = {rival: np.mean([error(rival, 1.5, seed) for seed in range(3)]) for rival in RIVALS}
    assert found["voue"] < found["oue+em"]
    assert found["vrappor"] < found["rappor+em"]


def test_bad_input_is_named():
    with pytest.raises(ParameterError, match="no rival"):
        rival_joint(SCHEMA, CODES, "guess", 1.0, np.random.default_rng(0))
    with pytest.raises(ParameterError, match="columns"):
        rival_joint(Schema(SCHEMA.attributes[:2]), CODES, "voue", 1.0, np.random.default_rng(0))


def _tree(epsilon, seed=0):
    return central_jtree(SCHEMA, CODES, epsilon, seeded_source(seed), phi=0.1)


def _tvd(model):
    return np.abs(model.marginal(SCHEMA.names) - EXACT).sum() / 2


def test_the_central_tree_spends_epsilon_and_no_more():
    for epsilon in (0.05, 1.0, 30.0):
        assert 0.98 * epsilon < _tree(epsilon).epsilon <= epsilon


def test_the_central_tree_learns_with_epsilon_and_its_noise_is_that_of_the_tables():
    large = _tree(100.0)
    assert large.edges > 0
    assert _tvd(large.model) < 0.05
    few = np.mean([_tvd(_tree(0.01, seed).model) for seed in range(5)])
    assert few > 3 * _tvd(large.model)


def test_pairs_are_kept_by_noisy_dependence_not_by_the_true_one():
    edges = {_tree(0.005, seed).edges for seed in range(8)}
    assert len(edges) > 1, "at epsilon 0.005 the choice must vary with the noise"
