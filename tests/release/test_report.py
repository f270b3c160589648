"""The report: self-contained, accessible, escaped, and right in its figures."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import combinations, pairwise

import numpy as np
import pytest

from dither.fit import Independent, Marginal
from dither.release import (
    Release,
    campaign_command,
    command,
    figures,
    python_code,
    truth_from_codes,
)
from dither.schema import Attribute, Schema

VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}


class Page(HTMLParser):
    """Collects tags and checks that they nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture
def page(simulated: Release) -> Page:
    return Page(simulated.report())


def test_a_simulated_report_says_what_matters(page: Page, simulated: Release) -> None:
    for words in (
        "12,345 participants",
        "epsilon 2",
        "7.39",
        "independent",
        "This is a simulation",
        "Somebody 2020",
    ):
        assert words in page.text
    assert "Dependency graph" in page.text
    assert "What it does not promise" in page.text
    assert "dither publish people.csv --epsilon 2 --method independent --seed 7" in page.text
    headings = [tag for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert headings.count("h1") == 1
    assert all(int(b[1]) - int(a[1]) <= 1 for a, b in pairwise(headings))


def test_nothing_is_loaded_from_elsewhere(page: Page, simulated: Release) -> None:
    html = simulated.report()
    assert "http" not in html
    assert "//" not in re.sub(r"<(style|code)[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "img", "object", "embed")
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in html
    assert all(reference.startswith("#") for reference in re.findall(r"url\(([^)]*)\)", html))


def test_every_chart_has_a_text_alternative_and_ids_are_unique(page: Page) -> None:
    svgs = [attributes for tag, attributes in page.tags if tag == "svg"]
    charts = [a for a in svgs if a.get("role") == "img"]
    # three attributes, the graph, three pairs with the truth beside the estimate
    assert len(charts) == 3 + 1 + 3 + 1 + 6  # at a glance, distances, attributes, graph, pairs
    assert all(len(a["aria-label"] or "") > 30 and a.get("viewbox") for a in charts)
    assert all(a.get("aria-hidden") == "true" for a in svgs if a not in charts)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    anchors = {(a["href"] or "")[1:] for tag, a in page.tags if tag == "a"}
    assert anchors <= set(ids)
    assert len([tag for tag, _ in page.tags if tag == "details"]) >= 4


def test_names_and_labels_are_escaped(page: Page, simulated: Release) -> None:
    html = simulated.report()
    assert "<b>" not in html
    assert "green <&>" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert "<b>x</b>" in page.text
    assert "green <&>" in page.text


def test_a_real_release_shows_no_truth(make_release: Callable[..., Release]) -> None:
    shown = Page(make_release().report())
    assert "This is a simulation" not in shown.text
    assert not re.search(r"\btruth\b", shown.text)
    assert "How good it is" not in shown.text
    assert "no pair has a dependence" in shown.text
    assert "Whatever one person's record says" in shown.text


def test_without_a_truth_pairs_stand_beside_their_intervals(
    simulated: Release, make_release: Callable[..., Release]
) -> None:
    model = simulated.model
    both = combinations(simulated.schema.names, 2)
    measured = [
        Marginal(p, model.marginal(p), np.full(model.marginal(p).shape, 0.02), 12345) for p in both
    ]
    release = make_release(model=model, measured=measured)
    pair = figures.strong_pairs(release)[0]
    heat = figures.heat_map(release, pair)
    assert heat.beside is not None
    assert heat.beside == pytest.approx(np.full(heat.beside.shape, 1.959964 * 0.02), rel=1e-6)
    shown = Page(release.report())
    assert "Half-width of the 95 % interval, ± %" in shown.text
    assert heat.ranked is not None
    wide = f"± {100 * heat.ranked.flat[0]:.1f} %"
    assert wide in shown.text.replace("\xa0", " ")
    assert heat.ranked.min() > heat.beside.max(), "a list of the largest cells holds together"
    assert shown.text.count("3.9 ") >= heat.beside.size  # the numbers stand in the cells
    assert any(
        "95 % interval" in (a.get("aria-label") or "") for tag, a in shown.tags if tag == "svg"
    )


def test_pairs_are_ranked_by_mutual_information(simulated: Release) -> None:
    found = figures.strong_pairs(simulated)
    assert len(found) == 3
    assert [p.bits for p in found] == sorted((p.bits for p in found), reverse=True)
    joint = simulated.model.marginal([found[0].first, found[0].second])
    slow = sum(
        joint[i, j] * np.log2(joint[i, j] / (joint[i].sum() * joint[:, j].sum()))
        for i in range(joint.shape[0])
        for j in range(joint.shape[1])
        if joint[i, j] > 0
    )
    assert found[0].bits == pytest.approx(slow)


def test_quality_is_measured_against_the_truth(simulated: Release) -> None:
    found = figures.quality(simulated)
    assert found is not None
    assert simulated.truth is not None
    for name, distance in found.one_way.items():
        assert distance == pytest.approx(
            0.5 * np.abs(simulated.model.marginal([name]) - simulated.truth.marginal([name])).sum()
        )
    pairs = [
        0.5 * np.abs(simulated.model.marginal(p) - simulated.truth.marginal(p)).sum()
        for p in combinations(simulated.schema.names, 2)
    ]
    assert found.two_way_mean == pytest.approx(np.mean(pairs))
    assert found.two_way_worst is not None
    assert found.two_way_worst[1] == pytest.approx(max(pairs))
    assert found.intervals == 9


def big_release(make_release: Callable[..., Release]) -> Release:
    values = tuple(f"value {i}" for i in range(120))
    schema = Schema(
        (
            Attribute("many", "categorical", values=values),
            Attribute("steps", "ordinal", values=values, missing=True),
            Attribute("pay", "numeric", edges=tuple(25_000.0 * i for i in range(51))),
        )
    )
    rng = np.random.default_rng(1)
    marginals = tuple(rng.dirichlet(np.ones(k)) for k in schema.cardinalities)
    measured = [
        Marginal((a.name,), m, np.full(m.shape, 0.001), 12345)
        for a, m in zip(schema, marginals, strict=True)
    ]
    codes = np.stack([rng.integers(0, k, 500) for k in schema.cardinalities], axis=1)
    return make_release(
        schema=schema,
        model=Independent(schema, marginals),
        measured=measured,
        simulated=True,
        truth=truth_from_codes(schema, codes),
    )


def figure_of(release: Release, name: str) -> figures.AttributeFigure:
    assert release.truth is not None
    return figures.attribute_figure(
        release.schema[name], release.marginal([name]), release.truth.marginal([name])
    )


def test_large_domains_are_drawn_in_few_bars_that_lose_nothing(
    make_release: Callable[..., Release],
) -> None:
    release = big_release(make_release)
    many = figure_of(release, "many")
    assert len(many.bars) == 20
    assert [bar.estimate for bar in many.bars] == sorted(
        (bar.estimate for bar in many.table), reverse=True
    )[:20]
    assert "100 more" in many.remark
    for name, most in (("steps", 20), ("pay", 20)):
        figure = figure_of(release, name)
        assert len(figure.bars) <= most
        assert sum(bar.estimate for bar in figure.bars) == pytest.approx(1)
        assert sum(bar.truth or 0 for bar in figure.bars) == pytest.approx(1)
        assert len(figure.table) == release.schema[name].cardinality
    steps = figure_of(release, "steps")
    assert steps.bars[-1].label == "(missing)"
    first = steps.bars[0]
    size = 7  # 120 values in at most 19 groups
    assert first.label == f"value 0 to value {size - 1}"
    assert first.high is not None
    assert first.high - first.estimate == pytest.approx(1.959964 * 0.001 * size**0.5, rel=1e-6)
    assert figure_of(release, "pay").bars[0].label == "0 to 75k"
    heat = figures.heat_map(release, figures.Pair("many", "steps", 1.0))
    assert heat.estimate.shape == (16, 16)
    assert heat.estimate.sum() == pytest.approx(1)
    assert "105 others" in heat.rows + heat.columns


def test_only_so_many_charts_are_drawn_but_every_attribute_is_listed(
    make_release: Callable[..., Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dither.release.report.MAX_CHARTS", 1)
    shown = Page(make_release().report())
    assert len([a for tag, a in shown.tags if tag == "svg" and a.get("role") == "img"]) == 3 + 1
    assert all(name in shown.text for name in ("colour", "<b>x</b>", "age"))


def test_the_command_to_rerun_is_quoted_and_python_compiles(
    make_release: Callable[..., Release],
) -> None:
    release = make_release(
        simulated=True,
        source="my people.csv",
        schema_file="a'b.json",
        population=50,
        parameters={"deep": True, "k": None},
    )
    again, code = command(release.call), python_code(release.call)
    assert again is not None
    assert again.startswith(
        "dither publish 'my people.csv' --epsilon 2 --method independent --schema "
    )
    assert "--population 50" in again
    assert again.endswith("--set deep=true -o out")
    compile(code, "rerun", "exec")
    assert "parameters={'deep': True}" in code
    page = html.unescape(release.report())
    assert again in page
    assert code in page


def test_a_collected_release_says_how_to_ask_again(make_release: Callable[..., Release]) -> None:
    release = make_release(parameters={"deep": True, "k": None})
    again = campaign_command(release.call, 12345)
    assert again.startswith(
        "dither campaign create --schema schema.json --epsilon 2 --participants 12345 "
    )
    assert "--method independent --holdout 0 --assignment token --seed 7 --set deep=true\n" in again
    page = html.unescape(release.report())
    assert again in page
    assert 'dither.load_release("out")' in page


@pytest.mark.parametrize("differ", [[], ["age"]])
def test_a_collection_says_whether_its_rounds_agree(
    make_release: Callable[..., Release], differ: list[str]
) -> None:
    tests = [{"attribute": "age", "rounds": [0, 2], "statistic": 3.0, "degrees": 2, "p": 0.223}]
    said = "The rounds differ about age." if differ else "No difference can be told."
    note = {"differ": differ, "level": 0.01, "tests": tests, "sentence": said}
    release = make_release(notes={"rounds_agree": note})
    assert [w.code for w in release.warnings if w.code == "rounds-differ"] == [
        "rounds-differ"
    ] * len(differ)
    page = release.report()
    assert said in page
    assert "Do the rounds agree?" in page
    assert "<td>1, 3</td><td>0.223</td>" in page
    assert "Do the rounds agree?" not in make_release().report()
