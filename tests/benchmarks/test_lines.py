"""Line charts: points where their numbers are, and axes that say so."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from dither.release.charts import Line, LogAxis, line_chart


def test_ticks_of_a_logarithmic_axis() -> None:
    assert LogAxis(3.0, 2e5, 0, 1).ticks() == [10.0, 100.0, 1000.0, 10_000.0, 100_000.0]
    assert LogAxis(0.3, 4.0, 0, 1).ticks() == [0.5, 1.0, 2.0]
    narrow = LogAxis(0.2259, 0.4777, 0, 1).ticks()
    assert len(narrow) > 1
    assert all(0.2259 <= tick <= 0.4777 for tick in narrow)
    assert LogAxis(0.213, 0.2131, 0, 1).ticks()


def test_points_of_a_line_stand_where_their_numbers_are() -> None:
    chart = line_chart(
        [Line(1, [(1.0, 0.0, 0.0, 0.0), (2.0, 5.0, 4.0, 6.0), (3.0, 10.0, 9.0, 11.0)])],
        ("x", "y"),
        "a line of three",
    )
    (course,) = [
        p for p in ElementTree.fromstring(chart).iter("path") if p.attrib["class"] == "course"
    ]
    places = [tuple(map(float, step.split())) for step in re.split("[ML]", course.attrib["d"])[1:]]
    assert places[1][0] - places[0][0] == pytest.approx(places[2][0] - places[1][0], abs=0.11)
    assert places[0][1] - places[1][1] == pytest.approx(places[1][1] - places[2][1], abs=0.11)
    assert places[0][1] > places[2][1]


@pytest.mark.parametrize("log", [True, False])
def test_a_single_place_is_drawn(log: bool) -> None:
    ElementTree.fromstring(
        line_chart([Line(0, [(4.0, 2.0, 2.0, 2.0)])], ("x", "y"), "one point", log_x=log, log_y=log)
    )
