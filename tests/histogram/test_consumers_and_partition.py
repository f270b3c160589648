"""Consumers' bins, the union of their edges, and values put into cells."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.errors import ParameterError, TableError
from dither.methods.histogram import (
    Consumer,
    Partition,
    as_numbers,
    consumers_from_text,
    gather,
    mapping,
    police,
    read_consumers,
    union,
)


def slow_cell(edges: tuple[float, ...], x: float) -> int:
    """Half-open cells, the last one closed, one comparison at a time."""
    return min(bisect.bisect_right(edges, x) - 1, len(edges) - 2)


@pytest.mark.parametrize(
    ("bins", "cells"),
    [([10], 10), ([3, 5, 7], 13), ([3, 5, 7, 10, 15], 26), ([5, 10], 10), ([1], 1)],
)
def test_union_has_every_edge_once(bins: list[int], cells: int) -> None:
    consumers = read_consumers(bins, 1_800, 250_000)
    assert union(consumers, 1_800, 250_000).cells == cells


def test_thirds_computed_two_ways_are_one_edge() -> None:
    explicit = Consumer("thirds", (0.0, 0.1 + 0.2, 1.0))
    partition = union([Consumer.by_count(10, 0, 1), explicit], 0, 1)
    assert partition.cells == 10
    assert partition.spans(explicit) == [(0, 3), (3, 10)]


def test_width_leaves_a_narrower_last_bin() -> None:
    assert Consumer.by_width(30, 0, 100).edges == (0, 30, 60, 90, 100)
    assert Consumer.by_width(25, 0, 100).edges == (0, 25, 50, 75, 100)


def test_membership_and_mapping_agree() -> None:
    consumers = read_consumers([3, 5, {"name": "top", "edges": [0.5, 0.9, 1.0]}], 0, 1)
    partition = union(consumers, 0, 1)
    for consumer in consumers:
        own = union([consumer], 0, 1)
        to_own = mapping(partition, own)
        by_mapping = np.array([to_own == own.spans(consumer)[i][0] for i in range(consumer.bins)])
        assert np.array_equal(partition.membership(consumer) > 0, by_mapping)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12, unique=True).map(sorted),
    st.lists(st.floats(0, 1), min_size=1, max_size=50),
)
def test_cells_match_plain_comparisons(edges: list[float], shares: list[float]) -> None:
    if min(np.diff(edges)) < 1e-6:
        return
    partition = Partition(tuple(edges))
    inside = [edges[0] + s * (edges[-1] - edges[0]) for s in shares]
    values = np.clip([*inside, *edges], edges[0], edges[-1])
    people = gather(values, partition, reports=True)
    expected = [slow_cell(partition.edges, x) for x in values]
    assert people.codes is not None
    assert people.codes.tolist() == expected
    assert (
        gather(values, partition, reports=False).by_cell.tolist()
        == np.bincount(expected, minlength=partition.cells).tolist()
    )


def test_an_edge_value_is_counted_once_and_the_top_is_in_the_last_bin() -> None:
    people = gather(np.array([0.0, 1.0, 1.0, 2.0]), Partition((0.0, 1.0, 2.0)), reports=False)
    assert people.by_cell.tolist() == [1, 3]


def test_policies() -> None:
    values = np.array([-1.0, 0.5, 3.0])
    assert police(values, 0, 1, "clip").values.tolist() == [0.0, 0.5, 1.0]
    assert police(values, 0, 1, "drop").values.tolist() == [0.5]
    with pytest.raises(TableError, match=r"-1 in row 1 is outside \[0, 1\]"):
        police(values, 0, 1, "error")
    with pytest.raises(TableError, match="row 2 has no number"):
        police(np.array([0.5, np.nan]), 0, 1, "clip")
    with pytest.raises(TableError, match="every value"):
        police(values + 10, 0, 1, "drop")
    with pytest.raises(ParameterError, match="clip"):
        police(values, 0, 1, "ignore")  # type: ignore[arg-type]
    with pytest.raises(TableError, match="row 2 has no number"):
        gather(np.array([0.5, np.nan]), Partition((0.0, 1.0)), reports=False)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ([], "at least one"),
        ([0], "whole number"),
        ([2.5], "whole number"),
        ([True], "whole number"),
        ([[0, 2]], "outside"),
        ([[0.5, 0.5]], "increasing"),
        ([{"bins": 3, "width": 1}], "one of"),
        ([{"bins": 3, "colour": 1}], "colour"),
        ([{"edges": 5}], "must be a list"),
        ([{"bins": 3, "name": {"a": 1}}], "must be text"),
        ([65_536] * 1000, "262,144 edges"),
    ],
)
def test_wrong_consumers_are_named(given_: list[object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        read_consumers(given_, 0, 1)


def test_same_names_are_numbered() -> None:
    assert [c.name for c in read_consumers([3, 3], 0, 1)] == ["3 bins", "3 bins (2)"]
    named = [{"bins": 2, "name": name} for name in ("a", "a", "a (3)", "a")]
    assert [c.name for c in read_consumers(named, 0, 1)] == ["a", "a (2)", "a (3)", "a (4)"]


def test_consumers_with_too_many_brackets_are_one_error() -> None:
    with pytest.raises(ParameterError, match="JSON list"):
        consumers_from_text("[" * 100_000, 0.0, 1.0)


@pytest.mark.parametrize("values", [["a"], [[1.0]], [], [True]])
def test_values_must_be_numbers(values: list[object]) -> None:
    with pytest.raises(TableError):
        as_numbers(values)


@pytest.mark.parametrize("given", [[0, 10**400], {"width": 10**400}, {"width": 1e-300}])
def test_numbers_that_no_float_holds_are_one_clear_error(given: object) -> None:
    with pytest.raises(ParameterError) as found:
        read_consumers([given], 0.0, 4.0)
    assert len(str(found.value).replace(str(10**400), "")) < 200
