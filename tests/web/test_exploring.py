"""The explorer's figures: shares add up, parts are at most wholes, and every figure is the library's own, with its interval."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import dither
from dither.collector.exploring import (
    QUANTILE_LEVELS,
    Cell,
    Explored,
    Group,
    View,
    explore,
)
from dither.collector.pages.asking import python_line
from dither.collector.pages.explorer import (
    axis_words,
    cards,
    figures_json,
    figures_table,
    points,
    shown,
)
from dither.collector.pages.preview import HEIGHT, WIDTH, preview
from dither.collector.releases import write_spreadsheet
from dither.display import stand_alone
from dither.errors import ParameterError
from dither.languages import speaking
from dither.release import Release
from dither.release.charts import sheet_of_charts
from dither.schema import schema_from_json

GOLDEN = Path(__file__).parents[1] / "golden"
EVIL = "<img src=x onerror=alert(1)>"
SCHEMA = schema_from_json(
    {
        "attributes": [
            {
                "name": "way",
                "kind": "categorical",
                "values": ["foot", "car", "=1"],
                "labels": ["On foot", "By car", EVIL],
                "question": "How do you travel?",
                "missing": True,
            },
            {"name": "age", "kind": "numeric", "edges": [0, 20, 40, 100], "unit": 1.0},
            {"name": "member", "kind": "boolean", "question": "Are you a member?"},
            {"name": "town", "kind": "categorical", "values": [f"Town {i}" for i in range(40)]},
        ]
    }
)


@pytest.fixture(scope="module")
def release() -> Release:
    rows = range(3000)
    table = pa.table(
        {
            "way": [(None, "foot", "car", "car", "=1")[i % 5] for i in rows],
            "age": [(i * 7) % 100 if i % 5 else (i * 7) % 30 for i in rows],
            "member": [bool(i % 5 > 1 and i % 3) for i in rows],
            "town": [f"Town {min(i % 80, i % 40)}" for i in rows],
        }
    )
    return dither.publish(
        table, schema=SCHEMA, epsilon=4.0, seed=5, replicates=5, method="privincr"
    )


def figures(release: Release, view: View) -> Explored:
    return explore(view, release, release.content.questions(release))


def near(cell: Cell, answer: Any) -> bool:
    ends = (answer.estimate, answer.low, answer.high)
    return (cell.estimate, cell.low, cell.high) == pytest.approx(ends, abs=1e-9)


def test_shares_add_up_and_a_part_is_at_most_its_whole(release: Release) -> None:
    for panel in figures(release, View()).panels:
        assert math.fsum(cell.estimate for cell in panel.cells) == pytest.approx(1.0, abs=1e-9)
    for given in (None, "age < 40"):
        (panel,) = figures(release, View(by=("way", "age"), given=given)).panels
        assert panel.total is not None
        assert panel.total.estimate == pytest.approx(1.0)
        width = len(panel.column_totals)
        for i, total in enumerate(panel.row_totals):
            row = panel.cells[i * width : (i + 1) * width]
            assert math.fsum(cell.estimate for cell in row) == pytest.approx(total.estimate)
            assert all(cell.estimate <= total.estimate + 1e-12 for cell in row)
        for j, total in enumerate(panel.column_totals):
            column = panel.cells[j::width]
            assert math.fsum(cell.estimate for cell in column) == pytest.approx(total.estimate)
        (within,) = figures(release, View(by=("way", "age"), given=given, within=True)).panels
        for i in range(len(panel.row_totals)):
            row = within.cells[i * width : (i + 1) * width]
            assert math.fsum(cell.estimate for cell in row) == pytest.approx(1.0)
    three = figures(release, View(by=("way", "age", "member")))
    everything = [cell.estimate for panel in three.panels for cell in panel.cells]
    assert math.fsum(everything) == pytest.approx(1.0)
    assert len(three.panels) == 2


def test_every_figure_is_the_library_s_own(release: Release) -> None:
    given = "member"
    (one,) = figures(release, View(by=("way",), given=given)).panels
    for cell, row in zip(one.cells, release.table("way", given=given).rows, strict=True):
        assert near(cell, row)
    (two,) = figures(release, View(by=("way", "age"), within=True)).panels
    assert near(two.cells[1], release.table("age", given="way == 'foot'").rows[1])
    assert near(two.column_totals[0], release.query("age < 20"))
    # A cell is hatched exactly if the library cannot tell P(age | way) from P(age).
    for i, way in enumerate(("'foot'", "'car'", "'=1'", "None")):
        for j, age in enumerate(SCHEMA["age"].labels):
            apart = release.query(f"age == {age!r}", given=f"way == {way}") - release.query(
                f"age == {age!r}"
            )
            assert apart.low is not None
            assert two.cells[3 * i + j].unclear == (apart.low <= 0 <= apart.high)
    assert 0 < sum(cell.unclear for cell in two.cells) < len(two.cells)
    (means,) = figures(release, View(by=("way",), figure="mean", of="age")).panels
    for cell, row in zip(means.cells, release.mean("age", by="way").rows, strict=True):
        assert near(cell, row)
    levels = figures(release, View(figure="quantiles", of="age", given=given)).panels
    expected = release.quantile("age", QUANTILE_LEVELS, where=given).rows
    assert all(near(p.cells[0], row) for p, row in zip(levels, expected, strict=True))
    versus = (Group("member", 0), Group("member", 1))
    rows = figures(release, View(by=("way",), versus=versus)).contrasts
    apart = release.query("way == 'car'", given="not member") - release.query(
        "way == 'car'", given="member"
    )
    assert near(rows[1].difference, apart)
    (mean,) = figures(release, View(figure="mean", of="age", versus=versus)).contrasts
    assert near(
        mean.difference,
        release.mean("age", given="not member") - release.mean("age", given="member"),
    )


@pytest.mark.parametrize(
    "view",
    [
        View(),
        View(by=("way",), where="age < 40", given="member"),
        View(by=("way", "member")),
        View(by=("way", "member"), within=True, given="age < 40"),
        View(by=("way", "age", "member")),
        View(by=("way", "age", "member"), within=True),
        View(figure="mean", of="age", by=("way",), where="member"),
        View(figure="median", of="age", by=("member",), given="age < 40"),
        View(figure="quantiles", of="age"),
        View(by=("way",), versus=(Group("member", 0), Group("member", 1))),
        View(where="age < 40", versus=(Group("way", 0), Group("way", 3)), given="member"),
        View(figure="mean", of="age", where="member", versus=(Group("way", 0), Group("way", 1))),
    ],
)
def test_the_python_line_gives_the_same_figures(release: Release, view: View) -> None:
    explored = figures(release, view)
    document = figures_json(explored, view, SCHEMA)
    json.dumps(document, allow_nan=False)
    key = "difference_" if view.versus else ""
    seen = sorted(
        ((row[f"{key}estimate"], row[f"{key}low"], row[f"{key}high"]) for row in document["rows"]),
        key=_rounded,
    )
    # The line is Python that we wrote; the release's own parser reads the questions in it.
    given = eval(python_line(view, SCHEMA), {"release": release})
    expected = sorted(_ends(given), key=_rounded)
    assert len(seen) == len(expected)
    for mine, theirs in zip(seen, expected, strict=True):
        assert _rounded(mine) == pytest.approx(_rounded(theirs), abs=2e-6)


def _rounded(ends: tuple[float | None, ...]) -> list[float]:
    """A figure and its interval; -9 where there is none."""
    return [-9.0 if end is None else round(end, 6) for end in ends]


def _ends(given: Any) -> list[tuple[float, float, float]]:
    if isinstance(given, dict):
        return [end for one in given.values() for end in _ends(one)]
    if isinstance(given, list):
        return [end for one in given for end in _ends(one)]
    rows = getattr(given, "rows", [given])
    return [(row.estimate, row.low, row.high) for row in rows]


def test_many_values_share_positions_and_the_work_is_bounded(release: Release) -> None:
    (panel,) = figures(release, View(by=("town", "way"))).panels
    towns, ways = panel.axes
    assert len(towns.groups) <= 16
    assert len(ways.groups) == 4
    assert sorted(code for codes in towns.groups for code in codes) == list(range(40))
    assert axis_words(towns, SCHEMA)[-1] == "25 others"
    assert panel.total is not None
    assert math.fsum(cell.estimate for cell in panel.cells) == pytest.approx(1.0)
    for wrong, said in (
        (View(by=("way", "way")), "each once"),
        (View(by=("way", "age", "member", "town")), "at most 3"),
        (View(by=("nothing",)), "nothing"),
        (View(figure="mean"), "choose the attribute"),
        (View(figure="mean", of="way"), "way"),
        (View(figure="most"), "must be one of"),
        (View(versus=(Group("member", 0), Group("member", 1))), "choose one question"),
        (View(by=("way",), versus=(Group("member", 0), Group("member", 9))), "no value"),
        (View(figure="median", of="age", versus=(Group("way", 0), Group("way", 1))), "subtracted"),
    ):
        with pytest.raises(ParameterError, match=said):
            figures(release, wrong)


def test_labels_are_text_in_pictures_and_files_and_codes_are_nowhere(release: Release) -> None:
    for view in (View(), View(by=("way",)), View(by=("way", "member")), View(by=("age",))):
        explored = figures(release, view)
        found = cards(explored, view, SCHEMA)
        charts = [(card.title, card.chart) for card in found if card.chart]
        picture = stand_alone(sheet_of_charts("<Title>", charts, EVIL)).svg
        ElementTree.fromstring(picture)
        assert "<img" not in picture
        assert ">foot<" not in picture
        assert not re.search(r"\bfoot\b", picture.replace("On foot", ""))
        out = io.BytesIO()
        write_spreadsheet([figures_table(explored, view, SCHEMA)], out)
        assert not re.search(r"(^|,)\"?=", out.getvalue().decode(), re.MULTILINE)
        png = preview(explored)
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert (int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (WIDTH, HEIGHT)


def test_unequal_bins_are_densities_and_sorting_keeps_their_order(release: Release) -> None:
    view = View(by=("age",))
    (card,) = cards(figures(release, view), view, SCHEMA, "size")
    assert card.density
    assert [label for label, _ in card.table.rows] == ["0 to 19", "20 to 39", "40 to 100"]
    assert "% of people per unit" in card.chart
    view = View(by=("way",))
    (by_size,) = cards(figures(release, view), view, SCHEMA, "size")
    (in_order,) = cards(figures(release, view), view, SCHEMA, "order")
    assert by_size.table.rows[0][0] == "By car"
    (as_it_comes,) = cards(figures(release, view), view, SCHEMA)
    assert as_it_comes.table == by_size.table
    offered = [card.other_sort for card in (as_it_comes, by_size, in_order)]
    assert offered == ["order", "order", "size"]
    assert [label for label, _ in in_order.table.rows] == ["On foot", "By car", EVIL, "No answer"]


@pytest.mark.parametrize(
    ("cell", "text", "interval"),
    [
        (Cell(0.38931, 0.37, 0.41), "38.9 %", "37.0 % to 41.0 %"),
        (Cell(0.38931, 0.1, 0.7), "39 %", "10 % to 70 %"),
        (Cell(0.5, None, None), "50.00 %", "none"),
        (Cell(1.0, 1.0, 1.0), "100 %", ""),
        (Cell(math.nan, None, None), "unknown", "none"),
    ],
)
def test_figures_have_no_more_digits_than_their_error(cell: Cell, text: str, interval: str) -> None:
    found = shown(cell, "share")
    assert (found.text.replace("\xa0", " "), found.interval.replace("\xa0", " ")) == (
        text,
        interval,
    )


def test_figures_are_written_as_the_language_writes_them() -> None:
    with speaking("de"):
        assert shown(Cell(0.38931, 0.37, 0.41), "share").text == "38,9\xa0%"
        assert points(Cell(-0.004, -0.11, 0.1)).text == "0", "no sign of a zero"
        assert points(Cell(-0.1, -0.12, -0.08)).text == "\N{MINUS SIGN}10,0"


@pytest.mark.parametrize("folder", ["central-laplace", "central-csm", "table-privincr"])
def test_every_kind_of_table_can_be_explored(folder: str) -> None:
    saved = dither.load_release(GOLDEN / folder)
    names = saved.schema.names
    view = View(by=tuple(names[:2]))
    (panel,) = figures(saved, view).panels
    if len(panel.axes) == 2:
        assert panel.total is not None
        assert math.fsum(cell.estimate for cell in panel.cells) == pytest.approx(
            panel.total.estimate
        )
    assert cards(figures(saved, View()), View(), saved.schema)


@pytest.mark.parametrize("folder", ["number-chp", "number-ranges"])
def test_a_number_shows_each_consumer_s_counts(folder: str) -> None:
    saved = dither.load_release(GOLDEN / folder)
    explored = figures(saved, View())
    found = cards(explored, View(), saved.schema)
    assert [card.title for card in found] == [consumer.name for consumer in saved.consumers]
    for histogram in explored.histograms:
        assert all(cell.estimate >= 0 for cell in histogram.cells)
        assert math.fsum(cell.estimate for cell in histogram.cells) == pytest.approx(saved.people)
    assert not any("e+" in label for card in found for label, _ in card.table.rows)
    with pytest.raises(ParameterError, match="one number"):
        figures(saved, View(by=("x",)))


def test_a_mean_shows_itself() -> None:
    saved = dither.load_release(GOLDEN / "number-mean")
    explored = figures(saved, View())
    assert explored.mean is not None
    assert near(explored.mean, saved.mean())
    assert cards(explored, View(), saved.schema) == []
