"""A reader of a published release as people act: look, filter, share the address, download, compare; in both themes and widths."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow.parquet as pq
import pytest
from axe_playwright_python.sync_playwright import Axe
from collector_harness import KEY, Caller, ServerThread, answers_of, plan_of
from playwright.sync_api import Browser, Page, expect

from dither.collector import SqliteStore, add_pages
from dither.schema import schema_from_json

pytestmark = pytest.mark.slow
EVIL = "<img src=x onerror=window.stolen=1>"
FORMULA = "=HYPERLINK(1)"
SCHEMA: dict[str, Any] = {
    "attributes": [
        {
            "name": f"way {EVIL}",
            "kind": "categorical",
            "values": ["on foot", EVIL, FORMULA],
            "question": f"How? {EVIL}",
            "help": EVIL,
            "labels": ["On foot", EVIL, "'\"><script>window.stolen=1</script>"],
        },
        {"name": "member", "kind": "boolean", "missing": True, "question": "Are you a member?"},
        {
            "name": "score",
            "kind": "numeric",
            "edges": [0.0, 1.0, 5.0, 9.0],
            "question": "How many points?",
        },
    ]
}


@dataclass(frozen=True)
class Site:
    """A collector with two published releases of one schema and one that is not public."""

    server: ServerThread
    first: str
    second: str
    private: str

    def address(self, below: str = "", campaign: str = "") -> str:
        return f"{self.server.url}/releases/{campaign or self.first}{below}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    server = ServerThread(
        SqliteStore(tmp_path_factory.mktemp("releases") / "c.db"), pages=add_pages
    )
    caller = Caller(server.url, 120)
    made = []
    for i, people in enumerate((400, 250, 60)):
        campaign = caller.create(
            schema=SCHEMA, title=f"Survey {i} {EVIL}", purpose=EVIL, contact=EVIL, participants=400
        )
        plan = plan_of(caller.announcement(campaign))
        body = answers_of(campaign, plan, schema_from_json(SCHEMA), people, f"s{i}")
        assert caller.upload(campaign, body).status == 201
        assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
        assert caller.admin("POST", f"/{campaign}/finalise", {"rows": 30}).status == 200
        if i < 2:
            server.collector.publications.publish(campaign)
        made.append(campaign)
    caller.connection.close()
    yield Site(server, *made)
    server.stop()


@pytest.fixture
def reader(browser: Browser, site: Site) -> Iterator[Page]:
    """A window in which nothing may complain, nothing leaves the origin and no text of a curator may run."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on(
        "console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    yield page
    stolen = page.evaluate("window.stolen")
    context.close()
    assert stolen is None
    assert [text for text in complaints if "Failed to load resource" not in text] == []
    assert all(url.startswith(site.server.url) for url in requests)


# What Python prints of its own objects, and of numbers that were not made for people.
REPR = re.compile(
    r"<built-in|<bound method|<function |object at 0x|\bnp\.|Decimal\(|\bNone\b|\bnan\b|\{'|"
    r"\b\d(\.\d+)?e[+-]\d"
)


def shares_of(text: str) -> list[float]:
    """The percentages in a text."""
    return [float(found) for found in re.findall(r"(\d+(?:\.\d+)?)\s%", text)]


def test_the_report_with_its_warnings_first(site: Site, reader: Page) -> None:
    reader.goto(site.address("/report"))
    expect(reader.get_by_role("heading", level=1)).to_have_text(f"Survey 0 {EVIL}")
    headings = reader.get_by_role("main").get_by_role("heading", level=2).all_inner_texts()
    assert headings[:2] == ["In short", "What is promised"]
    assert "Each attribute" in headings
    expect(reader.get_by_role("img").first).to_be_visible()
    expect(reader.get_by_text("95 % interval").first).to_be_visible()


def test_every_question_has_a_chart_that_is_read_out_by_keyboard(site: Site, reader: Page) -> None:
    reader.goto(site.address())
    charts = reader.locator("figure[data-chart]")
    expect(charts).to_have_count(3)
    for question in (f"How? {EVIL}", "Are you a member?", "How many points?"):
        expect(reader.get_by_role("link", name=question)).to_have_count(1)
    chart = charts.nth(1)
    chart.locator(".mark").first.focus()
    first = chart.locator("[data-readout]").inner_text()
    assert re.match(r"(Yes|No|No answer): \d", first)
    reader.keyboard.press("ArrowRight")
    second = chart.locator("[data-readout]").inner_text()
    assert second != first
    assert " to " in second
    reader.keyboard.press("ArrowLeft")
    assert chart.locator("[data-readout]").inner_text() == first
    chart.locator(".mark").nth(2).hover()
    assert chart.locator("[data-readout]").inner_text() not in (first, second)


def test_choose_filter_share_the_address_and_open_the_file(
    site: Site, reader: Page, browser: Browser
) -> None:
    reader.goto(site.address())
    reader.get_by_label("Show", exact=True).select_option("score")
    reader.get_by_text("Only among people who").click()
    reader.locator("form .filters summary", has_text="member").first.click()
    reader.get_by_role("checkbox", name="Yes").first.check()
    reader.get_by_role("button", name="Show").click()
    answer = reader.locator("#answer")
    expect(answer.locator(".chips")).to_contain_text("Are you a member? Yes")
    rows = answer.locator("tbody tr")
    expect(rows).to_have_count(3)
    address = reader.url
    assert address.endswith("?by=score&g1=1#answer"), (
        "the address holds what was asked and nothing else"
    )
    with browser.new_context(java_script_enabled=False) as other:
        elsewhere = other.new_page()
        elsewhere.goto(address)
        assert (
            elsewhere.locator("#answer tbody").inner_text() == answer.locator("tbody").inner_text()
        )
    with reader.expect_download() as started:
        reader.get_by_role("link", name="CSV").click()
    saved = Path(started.value.path()).read_text(encoding="utf-8")
    table = list(csv.DictReader(io.StringIO(saved)))
    assert [row["score"] for row in table] == ["0 to below 1", "1 to below 5", "5 to 9"]
    assert sum(float(row["estimate"]) for row in table) == pytest.approx(1.0)
    expect(answer).to_contain_text("release.table(['score'], given='member == True')")
    answer.get_by_role("link", name=re.compile("Remove")).click()
    assert reader.url.split("#")[0].endswith("?by=score")
    reader.get_by_role("link", name="Deutsch").click()
    assert reader.url.endswith("?by=score&language=de"), "another language of the same view"
    reader.get_by_role("button", name="Zeigen").click()
    assert dict(parse_qsl(urlsplit(reader.url).query)) == {"by": "score", "language": "de"}


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of a page on another origin."""

    class News(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<p>News")

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), News)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_heat_map_adds_up_and_is_embedded_elsewhere(
    site: Site, reader: Page, elsewhere: str
) -> None:
    reader.goto(site.address("?by=member&by=score"))
    cells = [
        [shares_of(cell)[0] for cell in row.locator("td").all_inner_texts()]
        for row in reader.locator("#answer table tbody tr").all()
    ]
    totals = [shares_of(t)[0] for t in reader.locator("#answer tfoot td").all_inner_texts()]
    assert len(cells) == 3
    # Each figure is rounded to half a digit that its error leaves, one point at most.
    for row in [*cells, totals]:
        assert sum(row[:-1]) == pytest.approx(row[-1], abs=0.5 * len(row))
        assert all(part <= row[-1] + 0.5 for part in row[:-1])
    for column in zip(*cells, totals, strict=True):
        assert sum(column[:-1]) == pytest.approx(column[-1], abs=0.5 * len(column))
    assert totals[-1] == 100
    reader.get_by_text("Show it on another site").click()
    snippet = reader.locator("#embed").inner_text()
    assert f'<iframe src="{site.server.url}/releases/{site.first}/embed?by=member&by=score' in (
        snippet.replace("&amp;", "&")
    )
    # On a page of another origin the frame is shown, and the explorer itself is not.
    for below, shown in (("/embed?by=member&by=score", 1), ("?by=member&by=score", 0)):
        inside = reader.context.new_page()
        inside.goto(elsewhere)
        framed = site.address(below)
        inside.evaluate(
            "(at) => new Promise((done) => { const f = document.createElement('iframe'); f.src = at;"
            " f.onload = done; document.body.append(f); })",
            framed,
        )
        assert inside.frames[1].locator("figure[data-chart]").count() == shown
        inside.close()
    with reader.expect_download() as started:
        reader.get_by_role("button", name="PNG").click()
    assert Path(started.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_one_figure_has_one_interval_on_every_page(site: Site, reader: Page) -> None:
    address = site.address("/view.json?by=member")
    rows = reader.request.get(address).json()["rows"]
    reader.goto(site.address("?by=member"))
    explorer = dict(
        zip(
            reader.locator("#answer tbody th").all_inner_texts(),
            map(shares_of, reader.locator("#answer tbody tr").all_inner_texts()),
            strict=True,
        )
    )
    reader.goto(site.address("/report"))
    reader.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    card = reader.locator(".card", has=reader.get_by_role("heading", name="member", exact=True))
    named = {"true": "Yes", "false": "No", "(missing)": "No answer"}
    report = {}
    for row in card.locator("tbody tr").all():
        figures = re.findall(r"\d+\.\d+", row.locator("td").nth(1).inner_text())
        report[named[row.locator("th").inner_text()]] = [
            *shares_of(row.locator("td").first.inner_text()),
            *map(float, figures),
        ]
    assert len(report) == len(explorer) == len(rows) == 3
    for row in rows:
        exact = [100 * row[name] for name in ("estimate", "low", "high")]
        assert report[row["member"]] == pytest.approx(exact, abs=0.006)
        assert explorer[row["member"]] == pytest.approx(exact, abs=0.51)


@pytest.mark.parametrize(
    "below",
    [
        *("", "/report", "/download", "?by=score", "?by=member&by=score&within=1"),
        *("?by=score&by=member&by=" + "way", "?figure=quantiles&of=score&by=member"),
        *("?by=member&first=1.0&second=1.1", "/embed?by=score", "/compare?with="),
    ],
)
def test_no_page_shows_what_python_prints(site: Site, reader: Page, below: str) -> None:
    address = below + (site.second if below.endswith("=") else "")
    reader.goto(site.address(address))
    reader.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    reader.evaluate("document.querySelectorAll('pre').forEach((part) => part.remove())")
    text = reader.locator("body").inner_text()
    # Labels and chart texts too; a release's options may be None in the report's table of options.
    titles = " ".join(reader.locator("svg title").all_text_contents())
    found = REPR.findall(titles if below == "/report" else text + titles)
    assert found == [], found


def test_what_cannot_be_trusted_says_why_in_its_place(site: Site, reader: Page) -> None:
    reader.goto(site.address("?by=member&given=score+%3E%3D+5"))
    expect(reader.locator("#answer .warnings")).to_contain_text("independent")
    reader.goto(site.address("?where=membr"))
    expect(reader.get_by_role("alert")).to_contain_text("member")
    assert reader.evaluate("fetch(location.href).then((a) => a.status)") == 422


def test_labels_of_a_curator_are_text_in_the_form_the_answer_and_the_files(
    site: Site, reader: Page
) -> None:
    reader.goto(site.address("?g0=1&g0=2&by=" + f"way {EVIL}"))
    answer = reader.locator("#answer")
    expect(answer.locator("tbody")).to_contain_text(EVIL)
    with reader.expect_download() as started:
        answer.get_by_role("link", name="CSV").click()
    saved = Path(started.value.path()).read_text(encoding="utf-8")
    assert EVIL in saved
    assert not re.search(r'(^|,)"?=', saved, re.MULTILINE)


def test_downloads_and_the_citation(site: Site, reader: Page) -> None:
    reader.goto(site.address("/download"))
    with reader.expect_download() as started:
        reader.get_by_role("link", name="Parquet").click()
    assert pq.read_table(started.value.path()).num_rows == 30
    assert started.value.suggested_filename == "synthetic.parquet"
    expect(reader.locator("#citation")).to_contain_text("local differential privacy")
    expect(reader.locator("#citation")).to_contain_text(f"{site.server.url}/releases/{site.first}")
    with reader.expect_download() as started:
        reader.get_by_role("link", name="BibTeX").click()
    entry = started.value.path().read_text(encoding="utf-8")
    assert entry.startswith("@misc{dither-" + site.first[:12])
    assert "url = " not in entry, "the collector was not told its public address"


def test_two_releases_share_one_axis(site: Site, reader: Page) -> None:
    reader.goto(site.address("/compare"))
    boxes = reader.locator("form input[type=checkbox]")
    expect(boxes).to_have_count(1)
    boxes.first.check()
    reader.get_by_role("button", name="Compare").click()
    expect(reader.locator("section.pair")).to_have_count(3)
    for section in reader.locator("section.pair").all():
        expect(section.locator("svg")).to_have_count(1)
        assert section.locator("svg .first").count() == section.locator("svg .second").count() == 1
    assert "people, epsilon" in reader.locator(".legend").inner_text()
    reader.locator("section.pair summary").first.click()
    expect(reader.locator("section.pair table").first).to_contain_text(" to ")


def test_a_link_s_preview_is_named_and_drawn(site: Site, reader: Page) -> None:
    reader.goto(site.address("?by=member&by=score"))
    found = reader.locator("meta[property]").evaluate_all(
        "(all) => Object.fromEntries(all.map((m) => [m.getAttribute('property'), m.content]))"
    )
    assert found["og:title"].startswith("Are you a member? / How many points?: Survey 0")
    assert "400 people" in found["og:description"]
    assert "og:image" not in found, "the collector was not told its public address"
    picture = reader.request.get(site.address("/view.png?by=member&by=score"))
    assert picture.headers["content-type"] == "image/png"


def test_what_is_not_public_is_nothing_without_a_session(site: Site, reader: Page) -> None:
    pages = set()
    for campaign in (site.private, "0" * 32):
        for below in (
            "",
            "/ask",
            "/report",
            "/download",
            "/compare",
            "/embed",
            "/view.csv",
            "/citation.bib",
        ):
            reader.goto(site.address(below, campaign))
            pages.add(reader.content())
    reader.goto(site.address(f"/compare?with={site.private}"))
    assert pages == {reader.content()}
    value, _ = site.server.collector.sessions.sign_in(KEY)
    reader.context.add_cookies([{"name": "dither-session", "value": value, "url": site.server.url}])
    reader.goto(site.address("", site.private))
    expect(reader.get_by_role("note").first).to_contain_text("not published")


@pytest.mark.parametrize(
    "below",
    [
        *("", "?by=score&by=member&g1=1", "?by=score&by=member&by=way", "/report", "/download"),
        *("?by=member&first=1.0&second=1.1", "/embed?by=score&by=member", "/compare?with="),
    ],
)
def test_anybody_can_read_it(site: Site, reader: Page, below: str) -> None:
    reader.goto(site.address(below + (site.second if below.endswith("=") else "")))
    reader.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    for width, scheme in product((390, 1280), ("light", "dark")):
        reader.set_viewport_size({"width": width, "height": 900})
        reader.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = Axe().run(reader)
        told = [
            (v["id"], [n["html"][:120] for n in v["nodes"][:3]])
            for v in found.response["violations"]
        ]
        assert told == [], (width, scheme, json.dumps(told))
        wide = reader.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, (width, scheme)
    if below == "/report":  # wide tables of the report do not fit a phone at twice the size yet
        return
    reader.set_viewport_size({"width": 390, "height": 900})
    reader.evaluate("document.documentElement.style.fontSize = '200%'")
    assert reader.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (
        "text of twice the size"
    )
