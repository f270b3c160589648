"""A curator as people act, from a schema typed into a form to a published release; and every page by axe-core, in both themes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from collector_harness import KEY, Caller, ServerThread, envelope_of, plan_of, token_of
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.participant_page import answer, practise

from dither.cli import run

pytestmark = pytest.mark.slow

HOSTILE = '"><script>document.title="taken"</script><img src=x onerror=document.title="taken">'
PATIENT = 60_000  # milliseconds, on a loaded machine
WIDTHS = (390, 1280)
TABLE = "way,age,far\n" + "".join(
    f"{('foot', 'bus', 'car')[i % 3]},{18 + 7 * i % 60},{i % 2 == 0}\n" for i in range(400)
)


@pytest.fixture(scope="module")
def signed_in(browser: Browser, running: ServerThread) -> Iterator[BrowserContext]:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{running.url}/console")
    page.get_by_label("Key").fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Campaigns")).to_be_visible()
    page.close()
    yield context
    context.close()


@pytest.fixture
def desk(signed_in: BrowserContext, running: ServerThread) -> Iterator[Page]:
    """A window in which no policy is broken, no script fails, and nothing leaves the origin."""
    page = signed_in.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request", lambda r: None if r.url.startswith(running.url) else complaints.append(r.url)
    )
    yield page
    page.close()
    assert [text for text in complaints if "Failed to load resource" not in text] == []


def test_from_a_schema_in_a_form_to_a_published_release(
    running: ServerThread, desk: Page, tmp_path: Path
) -> None:
    desk.set_default_timeout(PATIENT)
    desk.goto(f"{running.url}/console")
    desk.get_by_role("link", name="New campaign").first.click()
    desk.get_by_label("Title").fill("How we get to work")
    desk.get_by_label("Short name").fill("way")
    desk.get_by_label("Question, as people read it").fill("How do you get to work?")
    desk.get_by_label("Answers, one a line").fill("foot | On foot\nbus | By bus\ncar | By car")
    desk.get_by_role("button", name="Add a question").click()
    expect(desk.locator("#a1-name")).to_be_visible()
    desk.locator("#a1-name").fill("age")
    desk.locator("#a1-kind").select_option("numeric")
    expect(desk.locator("#a1-values")).to_be_hidden()
    desk.locator("#a1-low").fill("18")
    desk.locator("#a1-high").fill("78")
    desk.locator("#a1-bins").fill("3")
    desk.get_by_role("button", name="Add a question").click()
    expect(desk.locator("#a2-name")).to_be_visible()
    desk.locator("#a2-name").fill("far")
    desk.locator("#a2-kind").select_option("boolean")
    desk.get_by_label("Participants").fill("20000")
    expect(desk.locator("#plan svg")).to_be_visible(timeout=PATIENT)
    expect(desk.locator("#plan")).to_contain_text(re.compile("[Ee]nough"))
    desk.get_by_role("button", name="Open at once").click()
    expect(desk.get_by_role("heading", name="How we get to work")).to_be_visible()
    campaign = desk.url.split("/")[-1].partition("?")[0]
    expect(desk.get_by_role("img", name="QR code")).to_be_visible()
    people = tmp_path / "people.csv"
    people.write_text(TABLE, encoding="utf-8")
    rounds = 0
    while running.collector.campaigns.get(campaign).stored.state.value == "open":
        assert run(["submit", str(people), "--campaign", campaign, "--url", running.url]) == 0
        line = desk.locator("#live tbody").first.locator("tr").nth(rounds)
        expect(line.locator("td").nth(1)).to_have_text("400", timeout=PATIENT)  # it came by itself
        desk.get_by_role("link", name="Close the round").click()
        expect(desk.get_by_text("cannot be opened again")).to_be_visible()
        desk.get_by_role("button", name="Close it").click()
        expect(desk.get_by_text("The round is closed.")).to_be_visible()
        rounds += 1
    assert rounds >= 2
    desk.get_by_role("link", name="Make the release").click()
    desk.get_by_role("button", name="Make the release").click()
    desk.get_by_role("link", name="Publish it").click(timeout=PATIENT)
    desk.get_by_role("button", name="Publish it").click()
    expect(desk.get_by_text("Anybody may read it")).to_be_visible(timeout=PATIENT)
    desk.goto(running.url)
    expect(desk.get_by_role("link", name="How we get to work")).to_be_visible()
    desk.goto(f"{running.url}/console/audit")
    for what in ("create", "close-round", "finalise", "publish-release"):
        expect(desk.get_by_role("cell", name=what, exact=True).first).to_be_visible()


@pytest.mark.parametrize("events", [True, False])
def test_progress_comes_with_events_and_without(
    running: ServerThread, desk: Page, events: bool
) -> None:
    """Where a proxy or an old browser lets no events through, the page asks now and then."""
    caller = Caller(running.url)
    campaign = caller.create(title="Watched")
    if not events:
        desk.route("**/events", lambda route: route.abort())
    desk.goto(f"{running.url}/console/c/{campaign}")
    expect(desk.locator("#live .big").first).to_have_text("0")
    sent = envelope_of(
        campaign, plan_of(caller.announcement(campaign)), [token_of(i) for i in range(7)]
    )
    assert caller.upload(campaign, sent).status == 201
    expect(desk.locator("#live .big").first).to_have_text("7", timeout=20_000)
    assert (
        caller.admin("POST", f"/{campaign}/close-round", {"round": 0, "hold": True}).status == 200
    )
    expect(desk.locator("#live")).to_contain_text("takes no more answers", timeout=20_000)
    caller.connection.close()


@pytest.fixture(scope="module")
def hostile(running: ServerThread) -> str:
    """A campaign that would speak up wherever something typed became a part of a page."""
    caller = Caller(running.url)
    attributes = [
        {
            "name": HOSTILE,
            "kind": "categorical",
            "values": [HOSTILE, "b", "Donaudampfschifffahrtsgesellschaft" * 3],
            "labels": [HOSTILE, "", ""],
            "question": HOSTILE,
            "help": HOSTILE,
        }
    ]
    words = {
        "title": HOSTILE,
        "purpose": HOSTILE,
        "contact": HOSTILE,
        "name": HOSTILE,
        "listed": True,
    }
    campaign = caller.create(schema={"attributes": attributes}, **words)
    caller.connection.close()
    return campaign


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nothing-here",
        "/c/{campaign}",
        "/console",
        "/console/c/{campaign}",
        "/console/c/{campaign}/ask/close-round",
        "/console/new",
        "/console/keys",
        "/console/keys/revoke/operator",
        "/console/audit",
    ],
)
def test_every_page_can_be_used_by_everybody(
    running: ServerThread, hostile: str, desk: Page, path: str
) -> None:
    desk.goto(running.url + path.replace("{campaign}", hostile))
    if path.startswith("/c/"):
        answer(desk)
        practise(desk)
        expect(desk.locator("#practised")).to_contain_text("of 20")
    desk.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    for scheme in ("light", "dark"):
        desk.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for width in WIDTHS:
            desk.set_viewport_size({"width": width, "height": 900})
            found = Axe().run(desk)
            assert found.violations_count == 0, found.generate_report()
            assert desk.evaluate("document.scrollingElement.scrollWidth") <= width
    desk.evaluate("document.documentElement.style.fontSize = '200%'")
    assert desk.evaluate("document.scrollingElement.scrollWidth") <= WIDTHS[-1]
    assert desk.title() != "taken"
    assert desk.locator("main img").count() == 0


def test_the_sign_in_page_and_a_wrong_key(browser: Browser, running: ServerThread) -> None:
    with browser.new_page() as page:
        page.goto(f"{running.url}/console/keys")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert Axe().run(page).violations_count == 0
        page.get_by_label("Key").fill("not the key, not the key")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not a key of this collector")
        page.get_by_label("Key").fill(KEY)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Keys", exact=True)).to_be_visible()
        page.get_by_role("button", name=re.compile("Sign out")).click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
