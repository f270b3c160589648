"""A mixture whose strong pairs are tied by edges: everything against the whole joint, by enumeration."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import add_up, grouped_marginal, model_from_bytes
from dither.fit.mixture import Edge, Mixture
from dither.fit.mixture import model as module
from dither.schema import Attribute, Schema
from dither.tally import pack, unpack

SIZES = (3, 2, 4, 2, 3)
SCHEMA = Schema(
    tuple(
        Attribute(f"x{i}", "categorical", tuple(f"v{v}" for v in range(k)))
        for i, k in enumerate(SIZES)
    )
)
ENDS = ((0, 2), (1, 4))
TREE = ((3, 0, 2), (1, 4))  # the first edge ties three attributes, in no order
ROW = ((3, 0, 2, 4),)
BOTH = pytest.mark.parametrize("ends", [ENDS, TREE, ROW], ids=["pairs", "a tree", "a row of four"])
NAMES = list(SCHEMA.names)


def tied(
    ends: tuple[tuple[int, ...], ...] = ENDS, components: int = 7, groups: int = 3, seed: int = 0
) -> Mixture:
    rng = np.random.default_rng(seed)
    tables = tuple(rng.dirichlet(np.ones(k) / 2, size=components) for k in SIZES)
    edges = []
    for i, j, *third in ends:
        width = SIZES[j] * int(np.prod([SIZES[k] for k in third]))
        edges.append(Edge(i, j, rng.gamma(0.3, size=(groups, SIZES[i], width)) + 1e-3, *third))
    return Mixture(
        SCHEMA,
        rng.dirichlet(np.ones(components)),
        tables,
        tuple(edges),
        rng.integers(0, groups, components),
    )


def joint(m: Mixture) -> np.ndarray:
    """Record by record."""
    assert m.groups is not None
    out = np.zeros(SIZES)
    for c, weight in enumerate(m.weights):
        chances = np.zeros(SIZES)
        for record in product(*map(range, SIZES)):
            chances[record] = np.prod(
                [table[c, code] for table, code in zip(m.components, record, strict=True)]
            )
            for edge in m.edges:
                value = record[edge.second]
                for end in edge.rest[1:]:
                    value = value * SIZES[end] + record[end]
                chances[record] *= edge.psi[m.groups[c], record[edge.first], value]
        out += weight * chances / chances.sum()
    return out


def summed(whole: np.ndarray, names: list[str]) -> np.ndarray:
    letters = "abcde"
    return np.einsum(f"{letters}->{''.join(letters[NAMES.index(name)] for name in names)}", whole)


@BOTH
@pytest.mark.parametrize("block", [1 << 24, 5])
def test_marginals_are_sums_of_the_joint(
    block: int, ends: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_CELLS", block)
    m = tied(ends)
    whole = joint(m)
    for size in (1, 2, 3):
        for names in permutations(NAMES, size):
            np.testing.assert_allclose(m.marginal(names), summed(whole, list(names)), atol=1e-12)
    np.testing.assert_allclose(m.marginal(NAMES[::-1]), summed(whole, NAMES[::-1]), atol=1e-12)


@BOTH
def test_groups_of_values_are_added_up(ends: tuple[tuple[int, ...], ...]) -> None:
    m, rng = tied(ends), np.random.default_rng(1)
    for size in (1, 2, 3, 5):
        for names in list(permutations(NAMES, size))[::7]:
            groups = [rng.permutation(np.arange(SCHEMA[n].cardinality) % 2) for n in names]
            slow = add_up(m.marginal(names), groups)
            np.testing.assert_allclose(grouped_marginal(m, names, groups), slow, atol=1e-12)
    whole = [np.arange(k) for k in SIZES]
    np.testing.assert_allclose(m.grouped(NAMES, whole), m.marginal(NAMES), atol=1e-12)


def test_a_question_about_many_attributes_needs_no_table_of_them() -> None:
    wide = Schema(
        tuple(Attribute(f"w{i}", "categorical", tuple(map(str, range(40)))) for i in range(8))
    )
    rng = np.random.default_rng(2)
    tables = tuple(rng.dirichlet(np.ones(40), size=5) for _ in range(8))
    m = Mixture(
        wide,
        np.full(5, 0.2),
        tables,
        (Edge(0, 7, rng.gamma(1.0, size=(1, 40, 40))),),
        np.zeros(5, np.intp),
    )
    with pytest.raises(ParameterError, match="cells"):
        m.marginal(wide.names)
    groups = [(np.arange(40) >= 20).astype(np.intp)] * 8
    found = m.grouped(wide.names, groups)
    assert found.shape == (2,) * 8
    np.testing.assert_allclose(
        found.sum(axis=(1, 2, 3, 4, 5, 6)), add_up(m.marginal(["w0", "w7"]), groups[:2])
    )


@BOTH
def test_rows_follow_the_joint_and_not_the_mixture_without_its_edges(
    ends: tuple[tuple[int, ...], ...],
) -> None:
    m, n = tied(ends), 200_000
    rows = m.sample(n, np.random.default_rng(3))
    assert rows.dtype == np.int32
    seen = np.bincount(np.ravel_multi_index(tuple(rows.T), SIZES), minlength=int(np.prod(SIZES)))

    def chi2(expected: np.ndarray) -> tuple[float, int]:
        often = expected > 5
        return float(((seen - expected) ** 2 / np.maximum(expected, 1e-9))[often].sum()), int(
            often.sum()
        )

    found, cells = chi2(joint(m).ravel() * n)
    assert found < cells + 5 * np.sqrt(2 * cells)
    loose = Mixture(SCHEMA, m.weights, m.components)
    assert chi2(loose.marginal(NAMES).ravel() * n)[0] > 10 * found


def test_what_an_edge_rules_out_is_never_drawn() -> None:
    schema = Schema(SCHEMA.attributes[:2])
    psi = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    tables = (np.full((2, 3), 1 / 3), np.full((2, 2), 0.5))
    m = Mixture(schema, np.array([0.5, 0.5]), tables, (Edge(0, 1, psi),), np.zeros(2, np.intp))
    rows = m.sample(10_000, np.random.default_rng(0))
    assert {tuple(row) for row in rows.tolist()} == {(0, 0), (1, 1)}


@BOTH
def test_archives_keep_edges_and_those_without_are_as_before(
    ends: tuple[tuple[int, ...], ...],
) -> None:
    m = tied(ends)
    again = model_from_bytes(m.to_bytes())
    assert isinstance(again, Mixture)
    assert again.to_bytes() == m.to_bytes()
    np.testing.assert_array_equal(
        again.marginal(["x2", "x0", "x1"]), m.marginal(["x2", "x0", "x1"])
    )
    np.testing.assert_array_equal(*(a.sample(500, np.random.default_rng(1)) for a in (m, again)))
    meta, arrays = unpack(Mixture(SCHEMA, m.weights, m.components).to_bytes())
    assert sorted(meta) == ["kind", "schema"]
    assert sorted(arrays) == ["0", "1", "2", "3", "4", "weights"]


HOSTILE = {
    "an attribute that is not there": ({"edges": [[0, 9], [1, 4]]}, {}),
    "before the first": ({"edges": [[-1, 2], [1, 4]]}, {}),
    "in the wrong order": ({"edges": [[2, 0], [1, 4]]}, {}),
    "with itself": ({"edges": [[2, 2], [1, 4]]}, {}),
    "shared": ({"edges": [[0, 2], [2, 4]]}, {}),
    "no pair": ({"edges": [[0, 2, 1], [1, 4]]}, {}),
    "a third attribute without a table": ({"edges": [[0, 2, 3], [1, 4]]}, {}),
    "more than four": ({"edges": [[0, 2, 3, 1, 4]]}, {}),
    "between two attributes": ({"edges": [[0, 2.7], [1, 4]]}, {}),
    "no number": ({"edges": [[0, "2"], [1, 4]]}, {}),
    "one alone": ({"edges": [[0], [1, 4]]}, {}),
    "no list": ({"edges": "xyz"}, {}),
    "another shape": ({}, {"edge 0": np.ones((3, 3, 3))}),
    "too few groups": ({}, {"edge 0": np.ones((1, 3, 4))}),
    "negative": ({}, {"edge 0": np.full((3, 3, 4), -1.0)}),
    "not a number": ({}, {"edge 0": np.full((3, 3, 4), np.nan)}),
    "infinite": ({}, {"edge 0": np.full((3, 3, 4), np.inf)}),
    "nothing left": ({}, {"edge 0": np.zeros((3, 3, 4))}),
    "hardly anything left": ({}, {"edge 0": np.full((3, 3, 4), 1e-320)}),
    "weights of two dimensions": ({}, {"weights": np.full((7, 2), 1 / 14)}),
    "a negative group": ({}, {"groups": np.full(7, -1)}),
    "groups of another length": ({}, {"groups": np.zeros(6, dtype=np.int64)}),
    "groups that are no numbers": ({}, {"groups": np.zeros(7)}),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_hostile_archives_are_refused(why: str) -> None:
    meta, arrays = unpack(tied().to_bytes())
    header, tables = HOSTILE[why]
    with pytest.raises(ValueError, match=r"edge|group|weights|unpack"):
        Mixture.from_bytes(pack({**meta, **header}, {**arrays, **tables}))
