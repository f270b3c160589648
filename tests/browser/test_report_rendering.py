"""All kinds of pages as headless Chromium shows them, on a desk and on a phone; and that the checks find what they are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.fit import Marginal
from dither.fit.mixture import Mixture
from dither.lab.harness import Bench, Chart, Study, execute
from dither.notice import Notice
from dither.release import Bound, Call, CentralGuarantee, Release, TableContent, truth_from_codes
from dither.schema import Attribute, Schema

AUDIT = (Path(__file__).parent / "page_audit.js").read_text(encoding="utf-8")
OPEN_ALL = "document.querySelectorAll('details').forEach((part) => { part.open = true })"
WIDTHS = (1280, 390)
HOSTILE = '<script>console.error("in")</script>"><img src=x onerror=console.error("in")>'

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Releases: a simulation, the same as a collection, a wide one, one with hardly any data; and the other kinds of pages."""
    folder = tmp_path_factory.mktemp("reports")
    adult = dither.publish("adult", epsilon=4.0, method="calm", population=10_000, rows=20, seed=3)
    table = pa.table(
        {f"answer {i}": [f"choice {(j * (i + 2)) % 7}" for j in range(120)] for i in range(5)}
    )
    releases = {
        "simulated": adult,
        "collected": replace(
            adult,
            call=Call(epsilon=adult.call.epsilon, method=adult.method),
            truth=None,
            content=replace(
                adult.content,
                central=CentralGuarantee(Bound(1.9, 1e-9, 700), Bound(0.8, 1e-9, 10_000)),
            ),
        ),
        "wide": wide_release(60),
        "tiny": dither.publish(table, epsilon=0.5, method="independent", rows=20, seed=3),
    }
    values = np.random.default_rng(2).normal(40_000, 15_000, 5000).clip(0, 100_000)
    consumers = [4, [0, 12.5, 40_000, 100_000], {"name": HOSTILE, "bins": 60}]
    others = {
        "histogram": dither.histogram(
            values, consumers=consumers, epsilon=1.0, low=0, high=100_000, seed=1
        ),
        "central": dither.central_release(
            hostile_table(), epsilon=1.0, method="laplace", seed=1, replicates=4
        ),
    }
    out = {}
    for name, release in (releases | others).items():
        out[name] = folder / f"{name}.html"
        out[name].write_text(release.report(), encoding="utf-8")
    execute(bench(), folder / "bench", show=lambda words: None)
    return out | {"benchmark": folder / "bench" / "index.html"}


def hostile_table() -> pa.Table:
    """Labels and a name that would speak up if they were not escaped."""
    return pa.table({"plain": ["yes", "no"] * 60, HOSTILE: [HOSTILE, "Donau" * 9, "回答なし"] * 40})


def bench() -> Bench:
    """Lines over several orders of magnitude, in two panels, one of them with a single place; and a long table."""

    def measure(**point: Any) -> dict[str, Any]:
        return {
            "error": 10 ** (2 * point["epsilon"] - 3) * (1 + point["seed"]),
            "seconds": 1 / point["epsilon"],
        }

    axes = {
        "dataset": ("Adult", HOSTILE),
        "method": ("first", "second"),
        "epsilon": (0.5, 1.0, 4.0),
        "seed": (0, 1),
    }
    charts = (
        Chart("epsilon", "error", log_x=True, log_y=True),
        Chart("epsilon", "seconds", panels=()),
    )
    skip = lambda dataset, method, epsilon, seed: dataset == HOSTILE and epsilon != 1.0  # noqa: E731
    long = {"case": tuple(f"a case with a name of its own, number {i}" for i in range(30))}
    return Bench(
        "made-up",
        "Made up",
        "Numbers that follow from their labels.",
        (
            Study("lines", "Lines", axes, measure, charts=charts, skip=skip),
            Study("long", "Long", long, lambda case: {f"measure_{i}": 1e6 / 3 for i in range(9)}),
        ),
        "smoke",
    )


def wide_release(attributes: int) -> Release:
    """Many attributes, some with names and labels that no phone has room for."""
    rng = np.random.default_rng(4)
    labels = (
        "Yes",
        "No",
        "Unverhältnismäßig-lange-Antwort-ohne-Leerzeichen",
        "an answer of many short words in a row",
        "回答なし",
    )
    schema = Schema(
        tuple(
            Attribute(
                f"{'a_question_with_a_very_long_name_' if i % 7 == 0 else 'q'}{i}",
                "categorical",
                values=labels,
            )
            for i in range(attributes)
        )
    )
    tables = tuple(rng.dirichlet(np.full(5, 0.5), size=4) for _ in range(attributes))
    model = Mixture(schema, np.full(4, 0.25), tables)
    measured = [Marginal((n,), model.marginal([n]), np.full(5, 0.01), 3000) for n in schema.names]
    return Release(
        call=Call(epsilon=2.0, method="mixture", simulated=True),
        content=TableContent(model, None, measured),
        schema=schema,
        epsilon_achieved=2.0,
        participants=3000,
        rounds=1,
        rows=10,
        truth=truth_from_codes(schema, model.sample(3000, rng)),
        warnings=[Notice("first", "a warning"), Notice("second", "another one")],
        notes={"manipulation": {name: {"1%": 0.01, "5%": 0.05} for name in schema.names}},
    )


def audit(window: Any, page: Path, width: int, scheme: str = "light") -> list[str]:
    """Everything found on a page, folded up and opened."""
    window.visit(page.as_uri(), width, scheme)
    assert window.run("innerWidth") == width
    found = [*window.run(AUDIT)]
    window.run(OPEN_ALL)
    found += [finding for finding in window.run(AUDIT) if finding not in found]
    found += [f"console: {line}" for line in window.complaints]
    return found + [
        f"request: {address}" for address in window.requests if address != page.as_uri()
    ]


WANTED = {
    "simulated": (5, "truth, known in this simulation only"),
    "collected": (5, "Half-width of the 95 % interval"),
    "wide": (5, "The other 36 attributes"),
    "tiny": (5, "Too little data"),
    "histogram": (3, HOSTILE),
    "central": (2, HOSTILE),
    "benchmark": (3, "All 30 lines"),
}


@pytest.mark.parametrize("name", WANTED)
def test_a_page_is_whole_at_every_width(window: Any, pages: dict[str, Path], name: str) -> None:
    for width in WIDTHS:
        assert audit(window, pages[name], width) == [], width
    pictures, words = WANTED[name]
    assert window.run("document.querySelectorAll('svg[role=img]').length") >= pictures
    assert words in window.run("document.body.innerText")


@pytest.mark.parametrize("name", ["collected", "histogram", "central", "benchmark"])
def test_a_page_can_be_read_in_the_dark(window: Any, pages: dict[str, Path], name: str) -> None:
    assert audit(window, pages[name], 390, "dark") == []
    dark = window.run("getComputedStyle(document.body).backgroundColor")
    window.visit(pages[name].as_uri(), 390)
    assert window.run("getComputedStyle(document.body).backgroundColor") != dark


@pytest.mark.parametrize("name", WANTED)
def test_a_page_fits_a_phone_with_letters_of_twice_the_size(
    window: Any, pages: dict[str, Path], name: str
) -> None:
    window.visit(pages[name].as_uri(), 390)
    window.run("document.documentElement.style.fontSize = '200%'")
    window.run(OPEN_ALL)
    found = [line for line in window.run(AUDIT) if line.startswith("overflow")]
    assert found == []
    assert (
        window.run("parseFloat(getComputedStyle(document.querySelector('main p')).fontSize)") >= 25
    )


FLAWS = {
    "overflow: the page": '<div style="width: 2000px">wide</div>',
    "overflow: div.card": '<div class="card" style="width: 90vw"><div style="width: 120vw">sticks out of its card</div></div>',
    "no name: svg": '<svg role="img" viewBox="0 0 9 9"></svg>',
    "no role: svg": '<svg aria-label="a picture of something" viewBox="0 0 9 9"></svg>',
    "heading skips: h5": "<h5>too deep</h5>",
    "contrast: p": '<p style="color: #9a9a9a; background: #ffffff">pale on white</p>',
    "small type: text": (
        '<svg role="img" aria-label="a picture of small type" viewBox="0 0 340 40" style="width: 200px">'
        '<text x="9" y="20">small</text></svg>'
    ),
    "clipped: text": (
        '<svg role="img" aria-label="a picture with a label cut off" viewBox="0 0 340 40">'
        '<text x="320" y="20">cut off here</text></svg>'
    ),
    "overlap: text": (
        '<svg role="img" aria-label="a picture with two labels in one place" viewBox="0 0 340 40">'
        '<text x="9" y="20">one label</text><text x="20" y="22">another</text></svg>'
    ),
    "broken word: p": '<p style="width: 3rem; overflow-wrap: anywhere">unbreakable</p>',
    "uneven: div.card": (
        '<div class="grid" style="display: flex; align-items: start"><div class="card">one</div>'
        '<div class="card"><p>two</p><p>three</p></div></div>'
    ),
    "landmark: 2 of main": "<main></main>",
    "dead link: a": '<a href="#nowhere">nowhere</a>',
    "console:": '<script>console.error("no")</script>',
    "request: http:": '<img alt="a picture from elsewhere" src="http://127.0.0.1:9/picture.png">',
}


def test_every_flaw_is_found(window: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    """A sound page with one thing wrong at a time: the check that is for it finds it."""
    sound = pages["tiny"].read_text(encoding="utf-8")
    for number, (expected, flaw) in enumerate(FLAWS.items()):
        page = tmp_path / f"{number}.html"
        page.write_text(sound.replace("</main>", f"{flaw}</main>", 1), encoding="utf-8")
        found = audit(window, page, 390)
        assert any(finding.startswith(expected) for finding in found), (expected, found)
