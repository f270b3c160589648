"""The report as headless Chromium shows it, on a desk and on a phone; and that the checks find what they are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.estimate import Marginal
from dither.models.mixture import Mixture
from dither.notice import Notice
from dither.release import Call, Release, truth_from_codes
from dither.schema import Attribute, Schema

AUDIT = (Path(__file__).parent / "page_audit.js").read_text(encoding="utf-8")
OPEN_ALL = "document.querySelectorAll('details').forEach((part) => { part.open = true })"
WIDTHS = (1280, 390)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A simulation, the same as a collection, a wide one and one with hardly any data, each in a file."""
    folder = tmp_path_factory.mktemp("reports")
    adult = dither.publish("adult", epsilon=4.0, method="noincremental", population=10_000, rows=20, seed=3)
    table = pa.table({f"answer {i}": [f"choice {(j * (i + 2)) % 7}" for j in range(120)] for i in range(5)})
    releases = {
        "simulated": adult,
        "collected": replace(adult, call=Call(epsilon=adult.call.epsilon, method=adult.method), truth=None),
        "wide": wide_release(60),
        "tiny": dither.publish(table, epsilon=0.5, method="independent", rows=20, seed=3),
    }
    out = {}
    for name, release in releases.items():
        out[name] = folder / f"{name}.html"
        out[name].write_text(release.report(), encoding="utf-8")
    return out


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
            Attribute(f"{'a_question_with_a_very_long_name_' if i % 7 == 0 else 'q'}{i}", "categorical", values=labels)
            for i in range(attributes)
        )
    )
    tables = tuple(rng.dirichlet(np.full(5, 0.5), size=4) for _ in range(attributes))
    model = Mixture(schema, np.full(4, 0.25), tables)
    measured = [Marginal((n,), model.marginal([n]), np.full(5, 0.01), 3000) for n in schema.names]
    return Release(
        call=Call(epsilon=2.0, method="mixture", simulated=True),
        schema=schema,
        model=model,
        synthetic=None,
        measured=measured,
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
    return found + [f"request: {address}" for address in window.requests if address != page.as_uri()]


@pytest.mark.parametrize("name", ["simulated", "collected", "wide", "tiny"])
def test_a_report_is_whole_at_every_width(window: Any, pages: dict[str, Path], name: str) -> None:
    for width in WIDTHS:
        assert audit(window, pages[name], width) == [], width
    assert window.run("document.querySelectorAll('svg[role=img]').length") >= 5
    wanted = {
        "simulated": "truth, known in this simulation only",
        "collected": "Half-width of the 95 % interval",
        "wide": "The other 36 attributes",
        "tiny": "Too little data",
    }
    assert wanted[name] in window.run("document.body.innerText")


def test_a_report_can_be_read_in_the_dark(window: Any, pages: dict[str, Path]) -> None:
    assert audit(window, pages["collected"], 390, "dark") == []
    dark = window.run("getComputedStyle(document.body).backgroundColor")
    window.visit(pages["collected"].as_uri(), 390)
    assert window.run("getComputedStyle(document.body).backgroundColor") != dark


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
