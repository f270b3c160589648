"""Releases beside each other: a difference has the errors of both, and only of one schema."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dither.collector.exploring import Axis, Cell, Explored, Panel
from dither.collector.pages.comparing import Series, compare, difference
from dither.errors import ParameterError
from dither.schema import schema_from_json

REACH = 1.96
SCHEMA = schema_from_json(
    {
        "attributes": [
            {
                "name": "x",
                "kind": "categorical",
                "values": ["p", "q"],
                "labels": ["Pears", "Quinces"],
                "question": "Which fruit?",
            }
        ]
    }
)


def cell(estimate: float, error: float | None) -> Cell:
    if error is None:
        return Cell(estimate, None, None)
    return Cell(estimate, estimate - REACH * error, estimate + REACH * error)


def release(name: str, *cells: Cell) -> Series:
    return Series(name, Explored((Panel((Axis("x", ((0,), (1,))),), cells),)))


def test_the_interval_of_a_difference_follows_from_both_intervals() -> None:
    found = difference(cell(0.3, 0.03), cell(0.5, 0.04))
    assert (found.estimate, found.low, found.high) == pytest.approx(
        (0.2, 0.2 - REACH * 0.05, 0.2 + REACH * 0.05)
    )
    # Ends that face each other count: an interval cut at zero is shorter on that side only.
    cut = difference(Cell(0.01, 0.0, 0.05), Cell(0.2, 0.1, 0.3))
    assert cut.low == pytest.approx(0.19 - math.hypot(0.1, 0.04))
    assert cut.high == pytest.approx(0.19 + math.hypot(0.1, 0.01))
    assert difference(cell(0.3, None), cell(0.5, 0.1)).low is None


def test_equal_populations_look_different_in_one_of_twenty() -> None:
    """And would in far more, were the errors of one release forgotten."""
    draw, error, trials = np.random.default_rng(11), 0.02, 4000
    seen = alone = 0
    for a, b in draw.normal(0.4, error, (trials, 2)):
        found = difference(cell(float(a), error), cell(float(b), error))
        assert found.low is not None
        assert found.high is not None
        seen += not found.low <= 0 <= found.high
        alone += abs(a - b) > REACH * error
    spread = 5 * math.sqrt(0.05 * 0.95 / trials)
    assert abs(seen / trials - 0.05) < spread
    assert not abs(alone / trials - 0.05) < spread


def test_two_releases_share_an_axis_and_more_are_trends() -> None:
    two = [
        release("2024", cell(0.3, 0.01), cell(0.7, 0.01)),
        release("2025", cell(0.5, 0.01), cell(0.5, 0.01)),
    ]
    (found,) = compare(two, SCHEMA)
    assert (found.title, found.values, found.differ) == ("Which fruit?", 2, 2)
    assert found.distance == pytest.approx(0.2)
    ((label, chart),) = found.charts
    assert label == ""
    assert chart.count("<svg") == 1
    assert "2024, Pears: 30.0\xa0% (28.0\xa0% to 32.0\xa0%)" in chart
    assert found.table.rows[0][1][2].text == "+20.0"
    (trend,) = compare([*two, release("2026", cell(0.4, 0.01), cell(0.6, 0.01))], SCHEMA)
    assert [label for label, _ in trend.charts] == ["Pears", "Quinces"]
    assert trend.table.head == ["", "2024", "2025", "2026", "Difference"]
    assert trend.charts[0][1].count("<title>") == 3
    for wrong in (two[:1], two * 7):
        with pytest.raises(ParameterError, match="two to 12 releases"):
            compare(wrong, SCHEMA)
