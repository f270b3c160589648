"""Charts written as SVG text: labels that fit, colours that can be read, wide schemas that stay small."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from dither.display import (
    AMBER,
    VIRIDIS,
    Bar,
    fit,
    fit_all,
    ramp,
    reads_dark,
    short_number,
    text_width,
    ticks,
)
from dither.fit import BayesNet, Independent, Marginal
from dither.fit.mixture import Mixture
from dither.release import Release, figures, truth_from_codes
from dither.release.charts import (
    Line,
    attribute_chart,
    dependency_chart,
    heat_charts,
    histogram_chart,
    line_chart,
)
from dither.release.figures import AttributeFigure, HeatMap, Pair
from dither.schema import Attribute, Schema


def wide_release(make_release: Callable[..., Release], attributes: int) -> Release:
    """A mixture of six classes of people, with the truth."""
    values = tuple(f"a value with number {i}" for i in range(12))
    schema = Schema(
        tuple(Attribute(f"attribute {i}", "categorical", values=values) for i in range(attributes))
    )
    rng = np.random.default_rng(3)
    components = 6
    tables = tuple(rng.dirichlet(np.full(12, 0.7), size=components) for _ in range(attributes))
    model = Mixture(schema, np.full(components, 1 / components), tables)
    codes = model.sample(2000, rng)
    measured = [Marginal((n,), model.marginal([n]), np.full(12, 0.004), 2000) for n in schema.names]
    return make_release(
        schema=schema,
        model=model,
        measured=measured,
        simulated=True,
        truth=truth_from_codes(schema, codes),
        synthetic=pa.table({name: ["x"] for name in schema.names}),
        notes={"manipulation": {name: {"1%": 0.01, "5%": 0.05} for name in schema.names}},
    )


def test_a_hundred_attributes_stay_a_small_page(make_release: Callable[..., Release]) -> None:
    release = wide_release(make_release, 100)
    html = release.report()
    assert len(html.encode()) < 1_500_000
    assert (
        html.count("<svg role=") == 3 + 1 + 24 + 1 + 12
    )  # at a glance, distances, attributes, graph, pairs
    assert "The other 76 attributes" in html
    assert all(
        f">attribute {i}<" in html or f">attribute {i}: 12 values" in html for i in range(100)
    )
    assert "300 of 4,950 pairs" in html
    assert re.search(
        r"Drawn are \d+ of the strongest among [\d,]+ dependent pairs, between \d+ of 100", html
    )


def test_the_graph_and_the_charts_show_the_strongest() -> None:
    found = [Pair(f"n{i}", f"n{i + 1}", 1 / (i + 1)) for i in range(60)]
    edges = figures.graph_edges(found)
    assert edges == tuple(found[:29])  # a chain of 30 attributes
    dense = [Pair(f"n{i}", f"n{j}", 1.0) for i in range(20) for j in range(i)]
    assert len(figures.graph_edges(dense)) == 40


def test_attributes_that_depend_most_are_charted(make_release: Callable[..., Release]) -> None:
    release = wide_release(make_release, 8)
    names = release.schema.names
    strong = [
        Pair(names[5], names[2], 0.9),
        Pair(names[7], names[2], 0.5),
        Pair(names[0], names[1], 0.1),
    ]
    assert figures.telling_attributes(release, strong, 3) == (names[2], names[5], names[7])
    assert figures.telling_attributes(release, [], 3) == names[:3]


def test_a_wide_net_is_searched_along_its_edges(make_release: Callable[..., Release]) -> None:
    """A chain of 40: each neighbour pair is found, and nothing that needs a walk through the net is computed."""
    schema = Schema(tuple(Attribute(f"x{i}", "boolean", values=(False, True)) for i in range(40)))
    flip = np.array([[0.9, 0.1], [0.2, 0.8]])
    parents = ((), *((i,) for i in range(39)))
    model = BayesNet(schema, parents, (np.array([0.5, 0.5]), *[flip] * 39))
    truth = truth_from_codes(schema, model.sample(50, np.random.default_rng(1)))
    release = make_release(schema=schema, model=model, measured=(), simulated=True, truth=truth)
    found = figures.strong_pairs(release)
    assert {frozenset((p.first, p.second)) for p in found} == {
        frozenset((f"x{i}", f"x{i + 1}")) for i in range(39)
    }
    quality = figures.quality(release)
    assert quality is not None
    assert quality.pairs == figures.MAX_DISTANT


def test_every_label_stays_inside_its_picture() -> None:
    long = "an extremely long label that no phone has room for"
    bars = (
        *(Bar(f"{long} {i}", 0.3, 0.1, 0.7, 0.2) for i in range(3)),
        Bar("WWWWWWWWWWWWWWWWWW", 0.1),
    )
    heat = HeatMap(
        Pair("p", "q", 0.1),
        (long, "b"),
        tuple(f"{long} {i}" for i in range(8)),
        np.full((2, 8), 1 / 16),
        None,
        "",
    )
    graph = dependency_chart(
        [f"{long} {i}" for i in range(30)], [Pair(f"{long} 0", f"{long} 1", 0.2)]
    )
    counts = np.array([-20.0, 1e7, 123_456.0])
    bins = histogram_chart(
        np.array([-1e6, 0.0, 3.0, 2e9]), counts, counts - 5e6, counts + 5e6, "bins"
    )
    points = [
        (10.0**i, 10.0 ** (3 * i), 10.0 ** (3 * i) / 2, 10.0 ** (3 * i) * 2) for i in range(5)
    ]
    lines = [
        line_chart([Line(0, points)], ("people", "error"), "lines", log_x=log, log_y=log)
        for log in (True, False)
    ]
    for svg in (
        attribute_chart(AttributeFigure("x", bars, bars)),
        graph,
        *heat_charts(heat),
        bins,
        *lines,
    ):
        root = ElementTree.fromstring(svg)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for text in root.iter("text"):
            if "transform" in text.attrib:
                continue
            x, y, taken = (
                float(text.attrib["x"]),
                float(text.attrib["y"]),
                text_width(text.text or ""),
            )
            left = {"e": x - taken, "m": x - taken / 2, "n": x - taken / 2}.get(
                text.attrib.get("class", " ")[0], x
            )
            assert left >= -0.5, text.text
            assert left + taken <= width + 0.5, text.text
            assert 8 <= y <= height


def test_names_in_a_graph_keep_a_line_apart() -> None:
    for count in (2, 7, 30):
        names = [f"name {i}" for i in range(count)]
        root = ElementTree.fromstring(dependency_chart(names, [Pair(names[0], names[1], 0.4)]))
        heights: dict[str, list[float]] = {"": [], "e": []}
        for text in root.iter("text"):
            heights[text.attrib.get("class", "")].append(float(text.attrib["y"]))
        for side in heights.values():
            assert len(side) < 2 or min(np.diff(sorted(side))) >= 14


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2.2."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("stops", [VIRIDIS, AMBER])
def test_numbers_on_every_colour_can_be_read(stops: list[str]) -> None:
    for position in np.linspace(0, 1, 200):
        colour = ramp(stops, float(position))
        light = luminance(colour)
        contrast = (light + 0.05) / 0.05 if reads_dark(colour) else 1.05 / (light + 0.05)
        assert contrast >= 4.5
    assert ramp(stops, 0.0) == stops[0]
    assert ramp(stops, 1.0) == stops[-1]


@pytest.mark.parametrize(
    ("shares", "shown"),
    [
        ([0.4034, 0.0994, 0.0996, 0.002], ["40", "9.9", "10", "0.2"]),
        ([0.005, 0.0004], ["0.50", "0.04"]),
    ],
)
def test_cells_have_as_few_digits_as_they_need(shares: list[float], shown: list[str]) -> None:
    heat = HeatMap(
        Pair("p", "q", 0.1),
        ("row",),
        tuple(f"c{i}" for i in range(len(shares))),
        np.array([shares]),
        None,
        "",
    )
    chart, *_ = heat_charts(heat)
    texts = ElementTree.fromstring(chart).iter("text")
    assert [text.text for text in texts if "n" in text.attrib.get("class", "").split()] == shown


def test_ticks() -> None:
    assert ticks(0.43) == pytest.approx([0.0, 0.2, 0.4])
    assert ticks(1.0) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])
    assert ticks(0.0) == [0.0]
    assert ticks(0.0007)[-1] <= 0.0007
    assert ticks(15.0, 4, -10.0) == [-10.0, 0.0, 10.0]
    assert [short_number(v) for v in (0.0, -250.0, 9999.0, 15_000.0, 2e6, 0.001)] == [
        "0",
        "−250",
        "9999",
        "15k",
        "2M",
        "0.001",
    ]


def test_cut_labels_stay_apart() -> None:
    assert fit("short", 100) == "short"
    cut = fit("a label that is too long", 80)
    assert cut.endswith("…")
    assert text_width(cut) <= 80
    same = fit_all(["a label that is too long 1", "a label that is too long 2", "x", "x"], 80)
    assert len(set(same)) == 4
    assert all(text_width(words) <= 80 for words in same)


def test_an_attribute_nobody_has_is_drawn(make_release: Callable[..., Release]) -> None:
    bars = (Bar("none", 0.0, 0.0, 0.0, 0.0),)
    ElementTree.fromstring(attribute_chart(AttributeFigure("x", bars, bars)))
    schema = Schema((Attribute("only", "boolean", values=(False, True)),))
    release = make_release(
        schema=schema, model=Independent(schema, (np.array([1.0, 0.0]),)), measured=()
    )
    assert "no pair has a dependence" in release.report()
