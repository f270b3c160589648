"""A curator as people act, from a schema typed into a form to a published release; and every page by axe-core, in both themes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from collector_harness import KEY, Caller, ServerThread, envelope_of, plan_of, token_of
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.participant_page import answer, practise, send

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
    fill_two_questions(desk)
    expect(desk.locator("#a1-values")).to_be_hidden()
    desk.get_by_role("button", name="Add a question").click()
    expect(desk.locator("#a2-name")).to_be_visible()
    desk.locator("#a2-name").fill("far")
    desk.locator("#a2-kind").select_option("boolean")
    desk.get_by_label("Participants").fill("20000")
    expect(desk.locator("#plan")).to_contain_text("Enough: expect the share", timeout=PATIENT)
    expect(desk.locator("#saving")).to_contain_text("Saved", timeout=PATIENT)
    desk.get_by_role("button", name="Open it now").click()
    expect(desk.get_by_role("heading", name="How we get to work")).to_be_visible()
    campaign = desk.url.split("/")[-1].partition("?")[0]
    expect(desk.get_by_role("img", name="QR code")).to_be_visible()
    people = tmp_path / "people.csv"
    people.write_text(TABLE, encoding="utf-8")
    rounds = 0
    while running.collector.campaigns.get(campaign).stored.state.value == "open":
        assert run(["submit", str(people), "--campaign", campaign, "--url", running.url]) == 0
        line = desk.locator("#rounds tr").nth(rounds)
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
    expect(desk.get_by_label("Name it on this collector's first page")).not_to_be_checked()
    desk.get_by_label("Name it on this collector's first page").check()
    desk.get_by_role("button", name="Publish it").click()
    expect(desk.get_by_text("Everyone can read it")).to_be_visible(timeout=PATIENT)
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


def fill_two_questions(desk: Page) -> None:
    desk.get_by_label("Title").fill("How we get to work")
    desk.locator("#a0-name").fill("way")
    desk.locator("#a0-question").fill("How do you get to work?")
    desk.locator("#a0-values").fill("foot | On foot\nbus | By bus\ncar | By car")
    desk.get_by_role("button", name="Add a question").click()
    expect(desk.locator("#a1-name")).to_be_focused()
    desk.locator("#a1-name").fill("age")
    desk.locator("#a1-kind").select_option("numeric")
    desk.locator("#a1-low").fill("18")
    desk.locator("#a1-high").fill("78")
    desk.locator("#a1-bins").fill("3")


def names_of(desk: Page) -> list[str]:
    found: list[str] = desk.evaluate(
        "[...document.querySelectorAll('#new [data-list=a] input[name$=\"-name\"]')].map((i) => i.value)"
    )
    return found


def test_questions_are_changed_in_the_page_by_keyboard_and_saved(
    running: ServerThread, desk: Page
) -> None:
    desk.goto(f"{running.url}/console/new")
    desk.evaluate("window.stays = true")
    fill_two_questions(desk)
    button = desk.get_by_role("button", name="Move up question 2")
    button.focus()
    desk.keyboard.press("Enter")
    assert names_of(desk) == ["age", "way"]
    assert desk.evaluate("document.activeElement.value") == "up-a0", "the focus moves along"
    desk.get_by_role("button", name="Duplicate question 1").press("Enter")
    assert names_of(desk) == ["age", "age", "way"]
    assert desk.locator("#a1-high").input_value() == "78"
    assert desk.locator("#a1-kind").input_value() == "numeric"
    desk.get_by_role("button", name="Remove question 3").press("Enter")
    assert names_of(desk) == ["age", "age"]
    expect(desk.locator("#saving")).to_contain_text("Question 3 is removed.")
    desk.get_by_role("button", name="Undo").click()
    assert names_of(desk) == ["age", "age", "way"]
    desk.get_by_label("Why you ask").fill("One line.\nAnother line.")
    expect(desk.locator("#saving")).to_contain_text("Saved", timeout=PATIENT)
    assert desk.evaluate("window.stays"), "nothing was loaded again"
    saved = desk.url
    desk.goto(f"{running.url}/console")
    desk.goto(saved)
    assert names_of(desk) == ["age", "age", "way"]
    assert desk.get_by_label("Why you ask").input_value() == "One line.\nAnother line."


def test_an_ended_session_loses_nothing_that_was_typed(
    running: ServerThread, browser: Browser
) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(PATIENT)
        sign_in(page, running)
        page.goto(f"{running.url}/console/new")
        fill_two_questions(page)
        expect(page.locator("#saving")).to_contain_text("Saved", timeout=PATIENT)
        context.clear_cookies()
        page.get_by_label("Title").fill("Typed after the session ended")
        expect(page.locator("#saving")).to_contain_text("you are signed out", timeout=PATIENT)
        page.get_by_role("button", name="Open it now").click()
        page.get_by_role("link", name="Sign in again").click()
        page.get_by_label("Key").fill(KEY)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_label("Title")).to_have_value("Typed after the session ended")
        assert names_of(page) == ["way", "age"]
        titles = [draft.title for draft in running.collector.store.drafts.all()]
        assert "Typed after the session ended" in titles
        # Signed in again in another window: the page goes on by itself.
        context.clear_cookies()
        sign_in(context.new_page(), running)
        page.get_by_label("Title").fill("Typed in the first window")
        expect(page.locator("#saving")).to_contain_text("Saved", timeout=PATIENT)


def sign_in(page: Page, running: ServerThread) -> None:
    page.goto(f"{running.url}/console")
    page.get_by_label("Key").fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Campaigns")).to_be_visible()


def test_a_preview_works_and_sends_nothing(running: ServerThread, desk: Page) -> None:
    desk.set_default_timeout(PATIENT)
    desk.goto(f"{running.url}/console/new")
    fill_two_questions(desk)
    desk.locator("#participation").select_option("tokens")  # of which a participant's page asks
    sent: list[str] = []
    desk.get_by_role("button", name="Preview").click()
    expect(desk.locator("#preview")).to_contain_text("This is a preview")
    desk.on("request", lambda r: sent.append(r.url) if r.method == "POST" else None)
    desk.reload()  # what the page asks as it begins
    answer(desk)
    practise(desk)
    expect(desk.locator("#practised")).to_contain_text("of 20 tries")
    send(desk)
    expect(desk.locator("#state")).to_contain_text("This is a preview: nothing was sent.")
    expect(desk.locator("#state")).to_be_focused()
    expect(desk.locator("#left")).to_be_hidden()
    desk.reload()
    expect(desk.locator("#begin")).to_be_visible()  # nothing is kept either
    assert sent == []
    assert desk.evaluate("Object.keys(localStorage)") == []
    desk.locator("#preview").get_by_role("link").click()
    expect(desk.locator("#a0-name")).to_have_value("way")


BAD_WORDS = re.compile(
    r"<built-in|<[a-z_.]+ object|\bNone\b|\bnan\b|\bTrue\b|\bFalse\b|\[\'|\{\'|Traceback"
    r"|\d\.\d+e[+-]?\d+|\bMarkup\b|dict_|-\d[\d,.]* people"
)


@pytest.mark.parametrize("kind", ["table", "number", "mean"])
def test_no_page_of_the_console_shows_what_only_programs_read(
    running: ServerThread, desk: Page, kind: str, tmp_path: Path
) -> None:
    desk.set_default_timeout(PATIENT)
    desk.goto(f"{running.url}/console/new")
    if kind == "table":
        fill_two_questions(desk)
        rows = "way,age\n" + "".join(
            f"{('foot', 'bus', 'car')[i % 3]},{18 + i % 60}\n" for i in range(300)
        )
    else:
        desk.get_by_label("Title").fill("What we earn")
        desk.get_by_label("One number").check()
        expect(desk.locator("#a0-name")).to_be_hidden()
        desk.locator("#n-name").fill("pay")
        desk.locator("#n-low").fill("0")
        desk.locator("#n-high").fill("250000")
        desk.locator("#figure").select_option("mean" if kind == "mean" else "chp")
        if kind == "number":
            desk.locator("#c0-name").fill("The town")
            desk.locator("#c0-edges").fill("0, 20000, 50000, 250000")
            desk.get_by_role("button", name="Add a recipient").click()
            desk.locator("#c1-name").fill("The union")
        rows = "pay\n" + "".join(f"{1000 + 823 * i}\n" for i in range(300))
    desk.get_by_label("Participants").fill("300")
    expect(desk.locator("#plan .lead")).to_contain_text("±", timeout=PATIENT)
    check_words(desk)
    desk.get_by_role("button", name="Make the link, open later").click()
    expect(desk.locator("#live")).to_contain_text("answers", timeout=PATIENT)
    check_words(desk)
    campaign = desk.url.split("/")[-1].partition("?")[0]
    desk.get_by_role("button", name="Open it").click()
    expect(desk.locator("#live .state").first).to_have_text("open")
    table = tmp_path / "people.csv"
    table.write_text(rows, encoding="utf-8")
    for _ in range(10):
        if running.collector.campaigns.get(campaign).stored.state.value != "open":
            break
        assert run(["submit", str(table), "--campaign", campaign, "--url", running.url]) == 0
        desk.goto(f"{running.url}/console/c/{campaign}")
        expect(desk.locator("#live .big").first).not_to_have_text("0", timeout=PATIENT)
        expect(desk.locator("#live")).to_contain_text("if it ended now", timeout=PATIENT)
        check_words(desk)
        desk.goto(f"{running.url}/console/c/{campaign}/ask/close-round")
        check_words(desk)
        desk.get_by_role("button", name="Close it").click()
        expect(desk.get_by_text("The round is closed.")).to_be_visible()
    for step, button in (("finalise", "Make the release"), ("publish", "Publish it")):
        desk.goto(f"{running.url}/console/c/{campaign}/ask/{step}")
        check_words(desk)
        desk.get_by_role("button", name=button).click()
        done = "Download it" if step == "finalise" else "Everyone can read it"
        expect(desk.locator("#live")).to_contain_text(done, timeout=PATIENT)
        check_words(desk)
    for path in ("/console", "/console/audit"):
        desk.goto(running.url + path)
        check_words(desk)


def check_words(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    found = BAD_WORDS.search(page.inner_text("main"))
    assert found is None, (page.url, found)


def test_what_was_opened_stays_open_while_answers_arrive(running: ServerThread, desk: Page) -> None:
    caller = Caller(running.url)
    campaign = caller.create(title="Opened")
    desk.goto(f"{running.url}/console/c/{campaign}")
    part = "document.querySelector('#live')"
    desk.evaluate(
        f"{part}.insertAdjacentHTML('beforeend', '<details open><summary>Mine</summary>x</details>')"
    )
    desk.evaluate(
        "(() => { const real = DOMParser.prototype.parseFromString;"
        " DOMParser.prototype.parseFromString = function (text, type) { return real.call(this,"
        " `${text}<details><summary>Mine</summary>x</details>`, type); }; })()"
    )
    sent = envelope_of(
        campaign, plan_of(caller.announcement(campaign)), [token_of(i) for i in range(5)]
    )
    assert caller.upload(campaign, sent).status == 201
    expect(desk.locator("#live .big").first).to_have_text("5", timeout=20_000)
    assert desk.evaluate(f"{part}.querySelector('details').open")
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
        "/console/drafts/{draft}",
        "/console/drafts/{draft}/preview",
        "/console/drafts/{draft}/delete",
        "/console/keys",
        "/console/keys/revoke/operator",
        "/console/audit",
    ],
)
def test_every_page_can_be_used_by_everybody(
    running: ServerThread, hostile: str, desk: Page, path: str
) -> None:
    address = running.url + path.replace("{campaign}", hostile)
    if "{draft}" in path:
        desk.goto(f"{running.url}/console/c/{hostile}")
        desk.get_by_role("button", name="Duplicate as a draft").click()
        desk.wait_for_url("**/console/drafts/*")
        address = address.replace("{draft}", desk.url.rpartition("/")[2])
    desk.goto(address)
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
