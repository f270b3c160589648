"""Releases, marginals and answers in a notebook: every label escaped, pictures that stand alone, clear errors without a library."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.release.conftest import NAUGHTY

from dither import display as show
from dither.display import Bar, bar_chart, stand_alone
from dither.errors import InputError
from dither.fit import Marginal
from dither.release import Release
from dither.release.charts import histogram_chart
from dither.release.query.answer import Unit, figure_texts

HARMLESS = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p", "ul", "li", "img"}
EVIL = "<script>alert('x')</script>\"&"


def asked(release: Release) -> list[object]:
    """All that shows itself."""
    return [
        release,
        release.marginal(["colour", NAUGHTY]),
        release.marginal("colour"),
        release.query(f"attr['{NAUGHTY}'] and colour == 'green <&>'"),
        release.table([NAUGHTY, "colour"]),
        release.quantile("age", [0.5], where={"colour": ["green <&>"]}),
    ]


def checked(html: str) -> None:
    """Well formed, made of harmless elements alone, with no attribute that acts."""
    root = ElementTree.fromstring(f"<div>{html}</div>")
    assert {part.tag for part in root.iter()} <= HARMLESS
    assert {name for part in root.iter() for name in part.attrib} <= {"style", "alt", "src"}


def test_every_label_is_escaped_in_html(make_release: Callable[..., Release]) -> None:
    release = make_release(method="lopub", parameters={}, description=EVIL)
    for shown in asked(release):
        html = shown._repr_html_()  # type: ignore[attr-defined]
        checked(html)
        assert "<b>" not in html
        assert "<&>" not in html
    assert "green &lt;&amp;&gt;" in release.marginal("colour")._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in release.table([NAUGHTY])._repr_html_()


def test_pictures_stand_alone_and_hold_no_script(
    make_release: Callable[..., Release], tmp_path: Path
) -> None:
    release = make_release(method="lopub", parameters={})
    pictures = [shown.plot() for shown in asked(release)[1:]]  # type: ignore[attr-defined]
    for picture in pictures:
        root = ElementTree.fromstring(picture._repr_svg_())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert {part.tag.split("}")[1] for part in root.iter()} <= {
            "svg",
            "style",
            "path",
            "g",
            "text",
        }
        assert not re.search(r"\son\w+=|href|url\(", picture.svg)
        html = picture._repr_html_()
        checked(html.replace('">', '"/>'))
        assert base64.b64decode(html.split("base64,")[1].split('"')[0]).decode() == picture.svg
    saved = pictures[0].save(tmp_path / "p.svg")
    assert saved.read_text(encoding="utf-8") == pictures[0].svg
    assert repr(pictures[0]).startswith("Picture(Frequencies of colour x <b>x</b>: 6 of 6 cells.")
    with pytest.raises(ValueError, match="not a chart"):
        stand_alone("<p>")  # type: ignore[arg-type]


def test_a_picture_has_the_interval_of_each_figure() -> None:
    with_ends = bar_chart([Bar("a", 0.2, 0.1, 0.3), Bar("b", -0.1, -0.2, 0.0)], "words")
    without = bar_chart([Bar("a", 0.2), Bar("b", -0.1)], "words")
    assert with_ends.count('class="reach"') == 1
    assert 'class="reach"' not in without
    dots = re.findall(r'class="dot" d="M([\d.]+) ([\d.]+)', with_ends)
    assert len(dots) == 1
    places = [float(x) for x in re.findall(r"M([\d.]+) [\d.]+a2.8", with_ends)]
    assert places[0] > places[1]  # a negative figure lies to the left
    reaches = re.search(r'class="reach" d="([^"]*)"', with_ends)
    assert reaches is not None
    assert reaches[1].count("v6") == 4


def test_a_release_draws_what_depends_on_what(
    simulated: Release, make_release: Callable[..., Release]
) -> None:
    assert "Graph of" in simulated.plot().words
    assert simulated.plot("colour").words == simulated.marginal("colour").plot().words
    with pytest.raises(InputError, match="no attributes of this release depend on each other"):
        make_release().plot()


def test_marginals_show_intervals_where_they_are_known() -> None:
    marginal = Marginal(
        ("a",), np.array([0.25, 0.75]), np.array([0.1, np.nan]), labels=(("x", "y"),)
    )
    html = marginal._repr_html_()
    assert "0.0540 to 0.4460" in html  # 0.25 plus and minus 1.96 standard errors
    assert html.count("none") == 1
    many = Marginal(("a",), np.full(100, 0.01))
    assert "the 60 smaller ones not shown" in many._repr_html_()
    assert many._repr_html_().count("<tr>") == 41


def test_a_release_is_its_synthetic_table(make_release: Callable[..., Release]) -> None:
    release = make_release()
    assert release.to_arrow().column_names == list(release.schema.names)
    assert release.to_pandas().shape == release.to_polars().shape == (2, 3)
    marginal = release.marginal("colour")
    assert marginal.to_pandas()["frequency"].tolist() == marginal.to_polars()["frequency"].to_list()


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named(
    name: str, make_release: Callable[..., Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(wanted: str) -> ModuleType:
        raise ImportError(wanted)

    monkeypatch.setattr(show, "import_module", absent)
    with pytest.raises(InputError, match=f"{name} is not installed: pip install {name}"):
        getattr(make_release().marginal("colour"), f"to_{name}")()


@pytest.mark.parametrize(
    ("estimate", "low", "high", "unit", "texts"),
    [
        (0.1672, 0.135, 0.199, "share", ("16.7 %", "13.5 % to 19.9 %")),
        (0.4, 0.2, 0.61, "share", ("40 %", "20 % to 61 %")),
        (0.16667, 0.16651, 0.16683, "share", ("16.67 %", "16.65 % to 16.68 %")),
        (1234.56, 1145.2, 1323.9, "number", ("1,235", "1,145 to 1,324")),
        (0.5, None, None, "share", ("50.00 %", "none")),
        (1.0, 1.0, 1.0, "share", ("100.00 %", "100.00 % to 100.00 %")),
    ],
)
def test_no_digit_is_shown_that_the_interval_blurs(
    estimate: float, low: float | None, high: float | None, unit: Unit, texts: tuple[str, str]
) -> None:
    assert figure_texts(estimate, low, high, unit) == texts


def test_bars_of_unequal_width_are_densities() -> None:
    """Four times as many people in a bin four times as wide: a bar of the same height."""
    counts = np.array([100.0, 400.0])
    drawn = histogram_chart(np.array([0.0, 1.0, 5.0]), counts, counts, counts, "two bins")
    assert "people per unit" in drawn
    heights = re.findall(r"V([\d.]+)H", drawn)
    assert len(heights) == 2
    assert heights[0] == heights[1]
    equal = histogram_chart(np.array([0.0, 1.0, 2.0]), counts, counts, counts, "two bins")
    assert "people per unit" not in equal
