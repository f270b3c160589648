"""A reader of a published release as people act: look, filter, share the address, download, compare; in both themes and widths."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

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


def test_the_report_with_its_warnings_first(site: Site, reader: Page) -> None:
    reader.goto(site.address())
    expect(reader.get_by_role("heading", level=1)).to_have_text(f"Survey 0 {EVIL}")
    headings = reader.get_by_role("main").get_by_role("heading", level=2).all_inner_texts()
    assert headings[:2] == ["In short", "What is promised"]
    assert "Each attribute" in headings
    expect(reader.get_by_role("img").first).to_be_visible()
    expect(reader.get_by_text("95 % interval").first).to_be_visible()


def test_filter_share_the_address_and_open_the_file(
    site: Site, reader: Page, browser: Browser
) -> None:
    reader.goto(site.address())
    reader.get_by_role("link", name="Ask", exact=True).click()
    reader.get_by_label("First attribute").select_option("score")
    reader.locator("form summary", has_text="member").first.click()
    reader.get_by_role("checkbox", name="Yes").first.check()
    reader.get_by_role("button", name="Ask").click()
    answer = reader.locator("#answer")
    expect(answer).to_contain_text("member == True")
    rows = answer.locator("tbody tr")
    expect(rows).to_have_count(3)
    assert re.search(r"\d+\.\d\d %", rows.first.inner_text())
    address = reader.url
    assert address.endswith("/ask?by=score&w1=1#answer"), (
        "the address holds what was asked and nothing else"
    )
    expect(reader.get_by_role("checkbox", name="Yes").first).to_be_checked()
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
    assert len(table) == 3
    shown = [float(text.split(" %")[0].split()[-1]) for text in rows.all_inner_texts()]
    assert all(
        abs(100 * float(row["estimate"]) - seen) < 10
        for row, seen in zip(table, shown, strict=True)
    )
    expect(answer).to_contain_text("release.table(['score'], where='member == True')")


def test_what_cannot_be_trusted_says_why_in_its_place(site: Site, reader: Page) -> None:
    reader.goto(site.address("/ask?by=member&given=score+%3E%3D+5"))
    cells = reader.locator("#answer tbody tr td:last-child").all_inner_texts()
    assert len(cells) == 3
    assert cells[0].startswith("none")
    assert "independent" in cells[0], "why there is no interval stands where it would"
    assert set(cells[1:]) == {"none\nas above"}
    reader.goto(site.address("/ask?where=membr"))
    expect(reader.get_by_role("alert")).to_contain_text("member")
    assert reader.evaluate("fetch(location.href).then((a) => a.status)") == 422


def test_labels_of_a_curator_are_text_in_the_form_the_answer_and_the_files(
    site: Site, reader: Page
) -> None:
    reader.goto(site.address("/ask?w0=1&w0=2&by=" + f"way {EVIL}"))
    answer = reader.locator("#answer")
    expect(answer.locator("tbody")).to_contain_text(EVIL)
    with reader.expect_download() as started:
        answer.get_by_role("link", name="CSV").click()
    saved = Path(started.value.path()).read_text(encoding="utf-8")
    assert "'" + FORMULA in saved
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


def test_two_releases_side_by_side(site: Site, reader: Page) -> None:
    reader.goto(site.address("/compare"))
    options = reader.get_by_label("The other release").locator("option").all_inner_texts()
    assert len(options) == 2, "the public ones of the same schema, and no other"
    reader.get_by_label("The other release").select_option(site.second)
    reader.get_by_role("button", name="Compare").click()
    expect(reader.locator("section.pair")).to_have_count(3)
    reader.locator("section.pair summary").first.click()
    expect(reader.locator("section.pair table").first).to_contain_text(" to ")


def test_what_is_not_public_is_nothing_without_a_session(site: Site, reader: Page) -> None:
    pages = set()
    for campaign in (site.private, "0" * 32):
        for below in ("", "/ask", "/download", "/compare", "/citation.bib"):
            reader.goto(site.address(below, campaign))
            pages.add(reader.content())
    reader.goto(site.address(f"/compare?with={site.private}"))
    assert pages == {reader.content()}
    value, _ = site.server.collector.sessions.sign_in(KEY)
    reader.context.add_cookies([{"name": "dither-session", "value": value, "url": site.server.url}])
    reader.goto(site.address("", site.private))
    expect(reader.get_by_role("note").first).to_contain_text("not published")


@pytest.mark.parametrize(
    "below", ["", "/ask?by=score&by=member&w1=1", "/download", "/compare?with="]
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
    if not below:  # wide tables of the report do not fit a phone at twice the size yet
        return
    reader.set_viewport_size({"width": 390, "height": 900})
    reader.evaluate("document.documentElement.style.fontSize = '200%'")
    assert reader.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (
        "text of twice the size"
    )
