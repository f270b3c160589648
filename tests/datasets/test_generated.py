"""Generated populations: their exact marginals, and that samples follow them."""

from itertools import combinations

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import ParameterError, SchemaError
from dither.schema import encode


def brute_force(network):
    """The joint table, one cell at a time."""
    joint = np.empty(network.schema.cardinalities)
    for cell in np.ndindex(joint.shape):
        joint[cell] = np.prod(
            [
                t[(*(cell[p] for p in parents), cell[i])]
                for i, (parents, t) in enumerate(
                    zip(network.parents, network.conditionals, strict=True)
                )
            ]
        )
    return joint


@pytest.mark.parametrize(
    ("sizes", "parents"),
    [((2, 3, 4, 2, 3), 2), ((3, 2, 2, 4), 1), ((2, 2, 2, 2, 3), 3), ((2, 5), 0)],
)
def test_marginals_equal_those_of_the_joint_table(sizes, parents):
    network = generate_network(sizes, parents=parents, seed=3)
    joint = brute_force(network)
    assert joint.sum() == pytest.approx(1)
    for count in range(1, len(sizes) + 1):
        for chosen in combinations(range(len(sizes)), count):
            summed = joint.sum(axis=tuple(i for i in range(len(sizes)) if i not in chosen))
            names = [network.schema.names[i] for i in chosen]
            np.testing.assert_allclose(network.marginal(names), summed, atol=1e-12)
            np.testing.assert_allclose(network.marginal(names[::-1]), summed.T, atol=1e-12)


def chi_square(codes, network, names):
    expected = network.marginal(names) * len(codes)
    positions = [network.schema.index(name) for name in names]
    counts = np.bincount(
        np.ravel_multi_index(codes[:, positions].T, expected.shape), minlength=expected.size
    )
    return ((counts.reshape(expected.shape) - expected) ** 2 / expected).sum(), expected.size - 1


def test_samples_follow_the_marginals_and_other_populations_do_not():
    network = generate_network(6, seed=11)
    other = generate_network(network.schema.cardinalities, seed=12)
    codes = network.sample_codes(50_000, np.random.default_rng(0))
    assert codes.dtype == np.int32
    assert codes.flags.f_contiguous
    for names in combinations(network.schema.names, 2):
        statistic, freedom = chi_square(codes, network, names)
        assert statistic < freedom + 6 * np.sqrt(2 * freedom)
    wrong, freedom = chi_square(codes, other, network.schema.names[:2])
    assert wrong > freedom + 6 * np.sqrt(2 * freedom)
    shuffled = np.random.default_rng(1).permuted(
        codes, axis=0
    )  # right one-way marginals, no dependence
    assert (
        max(chi_square(shuffled, network, p)[0] for p in combinations(network.schema.names, 2))
        > 1000
    )


def test_strength_zero_is_independence():
    network = generate_network(5, strength=0.0, seed=1)
    a, b, c = (network.marginal([name]) for name in ("x1", "x3", "x4"))
    np.testing.assert_allclose(
        network.marginal(["x1", "x3", "x4"]), np.einsum("i,j,k->ijk", a, b, c), atol=1e-12
    )
    strong = generate_network(5, strength=2.0, seed=1)
    pair = strong.marginal(["x3", "x4"])
    assert np.abs(pair - np.outer(pair.sum(1), pair.sum(0))).max() > 0.01


def test_many_attributes_stay_cheap():
    network = generate_network([4] * 80, seed=2)
    assert network.marginal(["x0", "x79"]).sum() == pytest.approx(1)


def test_tables_have_every_kind_and_encode_to_the_same_codes():
    network = generate_network((3, 4, 3, 3, 4, 5, 2, 2), seed=5, missing=True)
    assert {a.kind for a in network.schema} == {"categorical", "ordinal", "numeric", "boolean"}
    assert [a.missing for a in network.schema] == [
        False,
        True,
        False,
        True,
        False,
        True,
        False,
        False,
    ]
    assert network.schema.cardinalities == (3, 4, 3, 3, 4, 5, 2, 2)
    table = network.table(1000, np.random.default_rng(7))
    codes = network.sample_codes(1000, np.random.default_rng(7))
    np.testing.assert_array_equal(encode(table, network.schema).codes, codes)
    assert table["x1"].null_count > 0


def test_the_same_seed_gives_the_same_network():
    one, two = generate_network(4, seed=9), generate_network(4, seed=9)
    assert one.schema == two.schema
    assert all((a == b).all() for a, b in zip(one.conditionals, two.conditionals, strict=True))


def test_wrong_parameters_are_named():
    for wrong in (0, [], [2, 1]):
        with pytest.raises(ParameterError, match="at least"):
            generate_network(wrong, seed=0)
    with pytest.raises(ParameterError, match="parents"):
        generate_network(3, parents=-1, seed=0)
    with pytest.raises(ParameterError, match="strength"):
        generate_network(3, strength=float("inf"), seed=0)
    network = generate_network(3, seed=0)
    for wrong in ("x0", [], ["x0", "x0"]):
        with pytest.raises(ParameterError, match=r"at least one attribute|an attribute twice"):
            network.marginal(wrong)
    with pytest.raises(SchemaError, match="y0"):
        network.marginal(["y0"])
    with pytest.raises(ParameterError, match="1,000,000,000 cells, more than"):
        generate_network([10] * 9, seed=0).marginal([f"x{i}" for i in range(9)])
