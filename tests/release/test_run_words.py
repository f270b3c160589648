"""The facts of a run in words, numbers as people write them, and lines that break where words end."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dither.fit import Marginal
from dither.release import Release
from dither.release.figures import attribute_figure
from dither.schema import Attribute

FIT = {
    "shares": {"product": 0.02, "mixture": 0.38, "tree": 0.6},
    "edges": [["education", "education_num"], ["age", "income"]],
    "components": 601,
}


Facts = Callable[[dict[str, Any]], dict[str, str]]


@pytest.fixture
def facts(make_release: Callable[..., Release]) -> Facts:
    """The table of a report's facts for a method's notes, as HTML."""

    def read(notes: dict[str, Any]) -> dict[str, str]:
        page = make_release(notes=notes).report()
        table = page[page.index('class="text run"') :].partition("</table>")[0]
        return dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', table))

    return read


def words(text: str) -> str:
    return html.unescape(text.replace("<wbr>", ""))


def test_a_fit_is_told_in_words(facts: Facts) -> None:
    assert words(facts({"fit": FIT})["The fit"]) == (
        "average of product 2\N{NO-BREAK SPACE}%, mixture 38\N{NO-BREAK SPACE}%, tree 60\N{NO-BREAK SPACE}%; "
        "pairs of the tree: education and education_num; age and income."
    )


def test_notes_of_other_methods_lose_their_underscores(facts: Facts) -> None:
    notes = {
        "pairs_left_after_each_round": [105, 30],
        "cliques": [["a", "b"], ["b", "c_d"]],
        "something_new": {"deep_one": 1.5, "on": True, "off": None},
        "objective": "per_consumer",
        "x": ["word"] * 999,
    }
    told = {name: words(text) for name, text in facts(notes).items()}
    assert told["Pairs kept after each round"] == "105, 30"
    assert told["Sets of attributes modelled together"] == "a and b; b and c_d"
    assert told["Something new"] == "deep one 1.5; on yes; off none"
    assert told["Objective"] == "per consumer"
    assert len(told["X"]) == 400


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (16710.0755, "16,710"),
        (0.05, "0.05"),
        (7.65e-287, "8 × 10⁻²⁸⁷"),
        (3.0, "3"),
        (1.5e15, "1.5 × 10¹⁵"),
        (582.06, "582.1"),
        (0.0, "0"),
    ],
)
def test_numbers_are_written_as_people_write_them(
    number: float, written: str, facts: Facts
) -> None:
    assert facts({"x": number})["X"] == written


@pytest.mark.parametrize(
    ("edges", "shown"),
    [
        ((0, 99_999, 100_000), ["0", "99,999", "100k"]),
        ((0, 50_000, 750_000, 1e6, 1.125e6), ["0", "50k", "750k", "1M", "1.125M"]),
        ((-20_000, 0, 12_500), ["-20k", "0", "12.5k"]),
        ((0, 0.25, 2500), ["0", "0.25", "2500"]),
        ((12_345_678, 12_345_679, 12_345_680), ["12,345,678", "12,345,679", "12,345,680"]),
        ((10_000.25, 10_000.5, 10_001), ["10,000.2", "10,000.5", "10,001.0"]),
    ],
)
def test_edges_of_bins_are_too(edges: tuple[float, ...], shown: list[str]) -> None:
    attribute = Attribute("x", "numeric", edges=tuple(map(float, edges)))
    bins = len(edges) - 1
    marginal = Marginal(("x",), np.full(bins, 1 / bins), labels=(attribute.labels,))
    labels = [bar.label for bar in attribute_figure(attribute, marginal).bars]
    assert labels == [f"{low} to {high}" for low, high in pairwise(shown)]


def test_lines_break_after_marks_and_never_inside_a_word_that_fits(facts: Facts) -> None:
    for text, shown in (
        ("education_num and marital_status", "education_<wbr>num and marital_<wbr>status"),
        ("1,234.5 – 99.5 %", "1,234.5 – 99.5 %"),
        ("<B>&", "&lt;B&gt;&amp;"),
        ("X" * 30, "X" * 24 + "<wbr>" + "X" * 6),
    ):
        assert facts({"x": [[text]]})["X"] == shown
