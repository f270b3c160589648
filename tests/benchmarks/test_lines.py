"""Line charts: points where their numbers are, and axes that say so."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from dither.release.charts import Line, line_chart


def shown_ticks(low: float, high: float) -> list[str]:
    """The numbers under a logarithmic axis of many points."""
    points = [(x, 1.0, 1.0, 1.0) for x in np.geomspace(low, high, 12).tolist()]
    chart = line_chart([Line(1, points)], ("across", "up"), "a line", log_x=True)
    texts = ElementTree.fromstring(chart).iter("text")
    middle = [text.text or "" for text in texts if text.attrib.get("class") == "m"]
    return [text for text in middle if text not in ("across", "up")]


def test_ticks_of_a_logarithmic_axis() -> None:
    assert shown_ticks(3.0, 2e5) == ["10", "100", "1000", "10k", "100k"]
    assert shown_ticks(0.3, 4.0) == ["0.5", "1", "2"]
    narrow = [float(tick) for tick in shown_ticks(0.2259, 0.4777)]
    assert len(narrow) > 1
    assert all(0.2259 <= tick <= 0.4777 for tick in narrow)
    assert shown_ticks(0.213, 0.2131)


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
