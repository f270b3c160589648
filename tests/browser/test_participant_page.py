"""A participant as people act: on a phone, with a keyboard, in a bad network, coming back, and with a used ticket."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from collector_harness import Caller, ServerThread, asked_tokens, plan_of, seeded_source, token_of
from playwright.sync_api import Browser, Page, Route, expect

from dither.collector.sqlite import SqliteStore
from dither.collector.store import Row
from dither.reports import Envelope, Report, encode
from dither.reports.plan import is_asked, pick
from dither.schema import Schema
from dither.web import add_pages

pytestmark = pytest.mark.slow

PHONE = {"width": 390, "height": 844}
SCHEMA: dict[str, Any] = {
    "attributes": [
        {
            "name": "way",
            "kind": "categorical",
            "values": ["foot", "bicycle", "bus", "car"],
            "question": "How do you get to work?",
            "help": "On most days of last week.",
            "labels": ["On foot", "By bicycle", "By bus", "By car"],
        },
        {"name": "age", "kind": "numeric", "edges": [18, 30, 50, 100], "unit": 1, "question": "How old are you?"},
        {"name": "full", "kind": "boolean", "missing": True, "question": "Do you work full time?"},
        {
            "name": "since",
            "kind": "date",
            "edges": ["2000-01-01", "2015-01-01", "2027-01-01"],
            "question": "Since when?",
        },
        {"name": "canton", "kind": "categorical", "values": [f"Canton {i}" for i in range(12)], "question": "Where?"},
    ]
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(SqliteStore(tmp_path_factory.mktemp("pages") / "c.db"), pages=add_pages)
    yield server
    server.stop()


@pytest.fixture
def caller(running: ServerThread) -> Iterator[Caller]:
    made = Caller(running.url)
    yield made
    made.connection.close()


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """A window that knows nothing of earlier ones, in which nothing may complain and nothing may leave the origin."""
    context = browser.new_context(viewport=PHONE, has_touch=True)  # type: ignore[arg-type]
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    quiet = [text for text in complaints if "Failed to load resource" not in text]
    context.close()
    assert quiet == []


def answer(page: Page) -> None:
    """Fill in whatever is asked."""
    for field in page.locator("#fields > .field").all():
        if field.locator("input[type=radio]").count():
            field.locator("label").first.click()
        elif field.locator("select").count():
            field.locator("select").select_option(index=1)
        elif field.locator("input[type=date]").count():
            field.locator("input").first.fill("2020-02-29")
        else:
            field.locator("input").first.fill("41")


def stored(running: ServerThread, campaign: str) -> list[Row]:
    rounds = running.collector.campaigns.get(campaign).rounds
    return [row for r in rounds for block in running.collector.store.reports(campaign, r.number) for row in block]


def test_answers_once_and_finds_the_receipt_again(running: ServerThread, caller: Caller, phone: Page) -> None:
    title = {"title": "How we get to work", "purpose": "To plan the bus lines.", "contact": "bus@example.org"}
    campaign = caller.create(schema=SCHEMA, **title)
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.get_by_role("heading", name="How we get to work")).to_be_visible()
    expect(phone.get_by_text("To plan the bus lines.")).to_be_visible()
    expect(phone.locator("#asked")).to_contain_text("Of 5 questions one is for you")
    expect(phone.locator("#odds")).to_contain_text("Of 100 people with your answer")
    phone.get_by_role("button", name="Randomise and send").click()
    expect(phone.locator("#fields .fault").first).to_be_visible()  # nothing was filled in, and nothing is sent
    answer(phone)
    phone.get_by_role("button", name="Draw 20 times").click()
    expect(phone.locator("#practised")).to_contain_text("of 20 practice draws fit your answer")
    assert phone.locator("#strip span").count() == 20
    assert stored(running, campaign) == []
    phone.get_by_role("button", name="Randomise and send").click()
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    receipt = phone.locator("#receipt").inner_text()
    rows = stored(running, campaign)
    assert [row.report_id.hex() for row in rows] == [receipt]
    left = re.sub(r"\s", "", phone.locator("#bytes").inner_text())
    assert left.startswith("44545231" + campaign)  # DTR1 and the campaign
    assert left.endswith(rows[0].payload.hex())
    phone.reload()
    expect(phone.locator("#receipt")).to_have_text(receipt)
    expect(phone.get_by_role("button", name="Randomise and send")).to_be_hidden()
    assert len(stored(running, campaign)) == 1


def test_loses_the_network_in_the_middle_of_sending(running: ServerThread, caller: Caller, phone: Page) -> None:
    campaign = caller.create(schema=SCHEMA)
    seen: list[bytes] = []

    def lose_the_answer(route: Route) -> None:
        body = route.request.post_data_buffer
        assert body is not None
        seen.append(body)
        if len(seen) == 1:
            route.fetch()  # it arrives and is stored; the answer is lost on its way back
            route.abort("connectionreset")
        else:
            route.continue_()

    phone.route("**/reports", lose_the_answer)
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.locator("#questions")).to_be_visible()
    answer(phone)
    phone.get_by_role("button", name="Randomise and send").click()
    expect(phone.locator("#state")).to_contain_text("kept here and not yet acknowledged")
    phone.reload()
    expect(phone.locator("#state")).to_contain_text("kept here and not yet acknowledged")
    expect(phone.locator("#questions")).to_be_hidden()
    phone.get_by_role("button", name="Send the same bytes again").click()
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert len(stored(running, campaign)) == 1


def test_a_ticket_counts_once_on_whatever_device(
    running: ServerThread, caller: Caller, browser: Browser, phone: Page
) -> None:
    campaign = caller.create(schema=SCHEMA, participation="tokens")
    (token,) = json.loads(caller.admin("POST", f"/{campaign}/tokens", {"count": 1}).body)["tokens"]
    requests: list[str] = []
    phone.on("request", lambda request: requests.append(request.url))
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.locator("#state")).to_contain_text("An invitation is needed")
    phone.goto(f"{running.url}/c/{campaign}#{token[:-1]}")
    expect(phone.locator("#state")).to_contain_text("damaged")
    phone.goto(f"{running.url}/c/{campaign}#{'0' * 64}")
    expect(phone.locator("#questions")).to_be_visible()
    phone.goto("about:blank")
    phone.goto(f"{running.url}/c/{campaign}#{token}")
    answer(phone)
    phone.get_by_role("button", name="Randomise and send").click()
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    assert all(url.startswith(running.url) and token not in url for url in requests)
    with browser.new_page() as other:
        other.goto(f"{running.url}/c/{campaign}#{token}")
        answer(other)
        other.get_by_role("button", name="Randomise and send").click()
        expect(other.locator("#state")).to_contain_text(re.compile("has been used already|Sent and stored"))
    assert len(stored(running, campaign)) == 1


def test_every_end_of_the_road_has_its_sentence(running: ServerThread, caller: Caller, phone: Page) -> None:
    draft = caller.create(schema=SCHEMA, draft=True)
    phone.goto(f"{running.url}/c/{draft}")
    expect(phone.locator("#state")).to_contain_text("has not begun yet")
    caller.admin("POST", f"/{draft}/open", {})
    phone.route("**/v1/campaigns/*", lambda route: route.abort())
    phone.goto(f"{running.url}/c/{draft}")
    expect(phone.locator("#state")).to_contain_text("cannot be reached")
    phone.unroute("**/v1/campaigns/*")
    phone.evaluate("window.dispatchEvent(new Event('online'))")
    expect(phone.locator("#questions")).to_be_visible()
    caller.admin("POST", f"/{draft}/close-round", {"round": 0, "hold": True})
    phone.goto(f"{running.url}/c/{draft}?again")
    expect(phone.locator("#state")).to_contain_text("has ended")
    phone.goto(f"{running.url}/c/{'0' * 32}")
    expect(phone.get_by_role("heading", name="There is nothing here")).to_be_visible()


def test_keyboard_alone_is_enough(running: ServerThread, caller: Caller, phone: Page) -> None:
    only = {"attributes": SCHEMA["attributes"][:1]}
    campaign = caller.create(schema=only)
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.locator("#questions")).to_be_visible()
    phone.locator("#fields input").first.focus()
    phone.keyboard.press("ArrowDown")
    phone.keyboard.press("Tab")
    expect(phone.locator("#send")).to_be_focused()
    phone.keyboard.press("Enter")
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    assert len(stored(running, campaign)) == 1


def test_without_script_the_page_says_so(running: ServerThread, caller: Caller, browser: Browser) -> None:
    campaign = caller.create(schema=SCHEMA, title="Read me")
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{running.url}/c/{campaign}")
        expect(page.get_by_text("This page needs JavaScript.")).to_be_visible()
        expect(page.get_by_role("heading", name="What is promised")).to_be_visible()


def test_the_page_comes_back_to_life_when_the_ticket_is_asked(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = caller.create(schema=SCHEMA, method="privincr", participants=2000, assignment="token")
    plan = plan_of(caller.announcement(campaign))
    assert plan.population < 1
    later = next(
        t for i in range(1000) if not is_asked(t := token_of(i), bytes.fromhex(campaign), 0.0, plan.population)
    )
    phone.goto(f"{running.url}/c/{campaign}#{later.hex()}")
    expect(phone.locator("#state")).to_contain_text("not asked yet")
    schema = running.collector.campaigns.get(campaign).spec.schema
    for number in range(20):
        announced = caller.announcement(campaign)
        if announced["plan"] is None or is_asked(
            later, bytes.fromhex(campaign), announced["start"], plan_of(announced).population
        ):
            break
        people(caller, campaign, announced, schema, 200, f"p{number}")
        closed = caller.admin("POST", f"/{campaign}/close-round", {"round": announced["plan"]["round"]})
        assert closed.status == 200, closed
    phone.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(phone.locator("#questions")).to_be_visible()
    answer(phone)
    phone.get_by_role("button", name="Randomise and send").click()
    expect(phone.locator("#state")).to_contain_text("Sent and stored")


def people(caller: Caller, campaign: str, announced: dict[str, Any], schema: Schema, count: int, kind: str) -> None:
    """Simulated people who answer the open round."""
    plan, held = plan_of(announced), bytes.fromhex(campaign)
    reports = []
    for token in asked_tokens(campaign, announced["start"], plan, count, kind):
        question = pick(token, held, plan)
        source = seeded_source(token.hex())
        codes = [i % schema.cardinalities[i] for i in range(len(schema))]
        asked = plan.questions if question == -1 else (plan.questions[question],)
        reports.append(
            Report(token, question, b"".join(q.mechanism.randomise(q.cell(schema, codes), source) for q in asked))
        )
    assert caller.upload(campaign, encode(Envelope(held, plan.round, tuple(reports)))).status == 201
