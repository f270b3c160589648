"""Promise 4: a figure has one interval, the same in Python, on the command line and in the report.

The intervals on a page are read from its HTML. Over HTTP the collector calls the same functions, which
`tests/collector` compares with those of the folder.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_laws import CommandLine
from test_promise_3_figures_add_up import release as made_release

from dither.release import Answer, AnswerRow, Release, figures
from dither.release.figures import Pair, heat_map
from dither.release.query.answer import figure_texts

KINDS = ("table", "table that fell back", "central laplace")


@cache
def release(kind: str) -> Release:
    """A release as a collector makes it, without a truth."""
    found = made_release(kind)
    if found.kind != "table":
        return found
    return replace(found, call=replace(found.call, simulated=False), truth=None)


def ends(answer: Answer | AnswerRow) -> tuple[float, float, float]:
    assert answer.low is not None
    assert answer.high is not None
    return answer.estimate, answer.low, answer.high


def shown_in_report(found: Release, name: str) -> dict[str, str]:
    """The intervals in the report's table of one attribute, by value."""
    page = found.report()
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    out: dict[str, str] = {}
    for row in rows:
        cells = [re.sub(r"<[^>]*>", "", c).strip() for c in re.findall(r"<t[hd].*?</t[hd]>", row)]
        if len(cells) >= 3 and cells[0] in found.schema[name].labels:
            out.setdefault(cells[0], cells[2])
    return out


def check_one_interval(found: Release) -> None:
    """A value of one attribute in every place. The report lists the values by size, so that their intervals are those of
    the table whose intervals hold together."""
    table, together = found.table(["a"]), found.table(["a"], simultaneous=True)
    page = shown_in_report(found, "a")
    marginal = found.marginal(["a"])
    assert marginal.standard_errors is not None
    for i, row in enumerate(table.rows):
        (label,) = row.values
        asked = found.query({"a": [label]})
        assert ends(asked) == pytest.approx(ends(row))
        half = marginal.reach * marginal.standard_errors[i]
        assert np.clip(marginal.frequencies[i] + half, 0, 1) == pytest.approx(row.high)
        wide = ends(together.rows[i])
        assert wide[2] - wide[1] > row.high - row.low
        assert page[str(label)] == figure_texts(*wide, "share")[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_has_one_interval(kind: str) -> None:
    check_one_interval(release(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_has_the_same(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = release(kind)
    folder = made_release(kind).save(tmp_path / "out")
    told = CommandLine(str(folder), capsys).share("a == 'a1' and b == 'b0'")
    answer = found.query("a == 'a1' and b == 'b0'")
    assert (told["estimate"], told["low"], told["high"]) == pytest.approx(ends(answer))


@pytest.mark.parametrize("kind", ["table", "table that fell back"])
def test_a_cell_of_a_pair_has_the_interval_of_its_question(kind: str) -> None:
    found = release(kind)
    heat = heat_map(found, Pair("a", "b", 1.0))
    assert heat.intervals
    assert heat.beside is not None
    assert found.replicates is not None
    interval = found.replicates.interval(["a", "b"])
    for i, row in enumerate(heat.rows):
        for j, column in enumerate(heat.columns):
            asked = found.query({"a": row, "b": column})
            estimate, low, high = ends(asked)
            assert heat.estimate[i, j] == pytest.approx(estimate)
            assert np.clip(estimate + heat.beside[i, j], 0, 1) == pytest.approx(high)
            assert (interval.low[i, j], interval.high[i, j]) == pytest.approx((low, high))


def test_grouped_bars_have_the_interval_of_their_range() -> None:
    found = release("table")
    shares = figures.group_shares(found)
    assert shares is not None
    answered = shares(["c"], [[[0, 1], [2]]])
    assert answered is not None
    asked = found.query("c < 2.5")
    assert (answered.estimates[0], answered.low[0], answered.high[0]) == pytest.approx(ends(asked))


@pytest.mark.parametrize("method", ["chp", "ranges"])
def test_a_bin_of_a_number_has_one_interval(method: str) -> None:
    found = made_release(f"number {method}")
    consumer = found.consumers[1]
    late = found.number.answer(consumer.edges.tolist())
    page = found.report()
    for i, (low, high) in enumerate(zip(consumer.edges[:-1], consumer.edges[1:], strict=True)):
        asked = found.number.range(float(low), float(high))
        counts = (late.estimates[i], late.low[i], late.high[i])
        assert tuple(count / found.people for count in counts) == pytest.approx(ends(asked))
        assert f"{late.low[i]:,.0f} to {late.high[i]:,.0f}" in page


def test_a_report_with_its_own_intervals_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(found: Any) -> None:
        return None

    monkeypatch.setattr("dither.release.report.group_shares", nothing)
    with pytest.raises(AssertionError):
        check_one_interval(release("table"))
