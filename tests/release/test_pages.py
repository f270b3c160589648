"""The four kinds of pages: what comes from outside is inert on each, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dither import histogram
from dither.central.curator import central_release
from dither.fit.mixture import Mixture
from dither.lab.harness import Bench, Chart, NotAvailable, Study, execute, write_contents
from dither.methods.histogram import Consumer
from dither.notice import Notice
from dither.release import Release, truth_from_codes
from dither.schema import Attribute, Schema

HOSTILE = (
    "<script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)",
    "</title></style><img src=x onerror=alert(1)>",
    "{{ 7 * 191 }}{% for x in y %}",
    "<!-- &lt;b&gt;",
)
NAMES = ("a</p>", *HOSTILE)


class PageParser(HTMLParser):
    """Every tag with its attributes, and the text; attributes that speak and comments are kept apart."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.comments: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def said(self) -> str:
        return "\n".join(
            (*self.words, *(value for name, value in self.attributes if name == "aria-label"))
        )


def dangers(html: str) -> list[str]:
    """Whatever a page must not hold."""
    seen = PageParser(html)
    bad = ("script", "img", "iframe", "object", "embed", "link", "base", "form", "b")
    found = [tag for tag in seen.tags if tag in bad]
    found += [
        name
        for name, _ in seen.attributes
        if name.startswith("on") or name in ("src", "srcdoc", "action")
    ]
    found += [f"comment {words}" for words in seen.comments]
    found += [
        value
        for name, value in seen.attributes
        if name == "href" and not re.fullmatch(r"#[\w-]+|[\w%-]+/index\.html", value)
    ]
    found += ["a template ran"] if "1337" in seen.said else []
    return found + (["@import"] if "@import" in html or re.search(r"url\((?!#)", html) else [])


def report(make_release: Callable[..., Release], folder: Path) -> str:
    schema = Schema(tuple(Attribute(name, "categorical", values=HOSTILE) for name in NAMES))
    rng = np.random.default_rng(3)
    model = Mixture(
        schema,
        np.full(3, 1 / 3),
        tuple(rng.dirichlet(np.full(len(HOSTILE), 0.3), size=3) for _ in NAMES),
    )
    changes: dict[str, Any] = {
        "schema": schema,
        "model": model,
        "measured": (),
        "simulated": True,
        "truth": truth_from_codes(schema, model.sample(500, rng)),
        "synthetic": pa.table({name: ["x"] for name in NAMES}),
        "parameters": {HOSTILE[0]: HOSTILE[1]},
        "notes": {
            HOSTILE[2]: list(HOSTILE),
            "manipulation": {name: {"1%": 0.1, "5%": 0.2} for name in NAMES},
        },
        "warnings": [Notice("hostile", words) for words in HOSTILE],
        "seconds": {HOSTILE[0]: 1.0},
        "source": " ".join(HOSTILE),
        "description": HOSTILE[3],
        "reference": HOSTILE[4],
    }
    return make_release(**changes).report()


def histogram_page(make_release: Callable[..., Release], folder: Path) -> str:
    consumers = [Consumer(name, (0.0, 1.0, 3.0)) for name in NAMES]
    return histogram(
        [0.5, 2.0] * 50, consumers=consumers, epsilon=1.0, low=0, high=3, seed=1
    ).report()


def central_page(make_release: Callable[..., Release], folder: Path) -> str:
    schema = Schema(tuple(Attribute(name, "categorical", values=HOSTILE) for name in NAMES[:3]))
    rows = pa.table({name: list(HOSTILE) * 20 for name in NAMES[:3]})
    return central_release(
        rows, epsilon=1.0, method="laplace", schema=schema, seed=1, replicates=2
    ).report()


def benchmark_page(make_release: Callable[..., Release], folder: Path) -> str:
    execute(hostile_bench(), folder, show=lambda words: None)
    return (folder / "index.html").read_text(encoding="utf-8")


def hostile_bench() -> Bench:
    def measure(**point: Any) -> dict[str, Any]:
        if point["dataset"] == "absent":
            raise NotAvailable(HOSTILE[0])
        return {"error": point["epsilon"], HOSTILE[1]: 1.0}

    axes = {"dataset": (*HOSTILE, "absent"), "method": HOSTILE, "epsilon": (1.0, 2.0)}
    charts = (Chart("epsilon", "error", title=HOSTILE[2]), Chart("epsilon", HOSTILE[1]))
    study = Study("one", HOSTILE[3], axes, measure, charts=charts, note=HOSTILE[4])
    return Bench("made-up", HOSTILE[5], " ".join(HOSTILE), (study,), "smoke")


PAGES = {
    "report": report,
    "histogram": histogram_page,
    "central": central_page,
    "benchmark": benchmark_page,
}


@pytest.mark.parametrize("page", PAGES)
def test_names_and_labels_are_inert_on_every_page(
    page: str, make_release: Callable[..., Release], tmp_path: Path
) -> None:
    html = PAGES[page](make_release, tmp_path)
    assert dangers(html) == []
    said = PageParser(html).said
    for words in HOSTILE:
        assert words in said, "shown as it is"


def test_the_contents_of_benchmarks_are_inert(tmp_path: Path) -> None:
    outcome = execute(hostile_bench(), tmp_path / "one", show=lambda words: None)
    html = write_contents({HOSTILE[1]: outcome, "one": outcome}, tmp_path).read_text(
        encoding="utf-8"
    )
    assert dangers(html) == []
    assert ("href", "one/index.html") in PageParser(html).attributes


@pytest.mark.parametrize("words", HOSTILE[:4])
def test_the_check_finds_what_is_not_escaped(words: str) -> None:
    """Each string breaks out of at least one of these places when it is put there as it is."""
    places = ("<p>{}</p>", '<p title="{}">x</p>', "<p title='{}'>x</p>")
    assert any(dangers(place.format(words)) for place in places)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_one_file_with_a_heading_and_contents(
    page: str, make_release: Callable[..., Release], tmp_path: Path
) -> None:
    html = PAGES[page](make_release, tmp_path)
    seen = PageParser(html)
    for tag in ("h1", "main", "header", "footer", "nav", "title", "style"):
        assert seen.tags.count(tag) == 1, tag
    assert html.startswith("<!DOCTYPE html>")
    assert "prefers-color-scheme: dark" in html
    assert "http" not in html
    ids = [value for name, value in seen.attributes if name == "id"]
    links = [value[1:] for name, value in seen.attributes if name == "href"]
    assert len(set(ids)) == len(ids)
    assert set(links) <= set(ids)
    assert links
