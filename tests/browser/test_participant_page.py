"""A participant as people act: on a phone, with a keyboard, in a bad network, coming back, and with a used ticket."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, ServerThread, asked_tokens, plan_of, seeded_source, token_of
from playwright.sync_api import Browser, Page, Request, Route, expect
from tests.participant_page import answer, begin, follow, practise, send, shown

from dither.collector import Row, SqliteStore, add_pages
from dither.collector.backup import back_up, restore_store
from dither.mechanisms import PureMechanism
from dither.methods.mean import Mean
from dither.reports import Envelope, Plan, Report, encode, is_asked, pick
from dither.schema import Schema

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
        {
            "name": "age",
            "kind": "numeric",
            "edges": [18, 30, 50, 100],
            "unit": 1,
            "question": "How old are you?",
        },
        {"name": "full", "kind": "boolean", "missing": True, "question": "Do you work full time?"},
        {
            "name": "since",
            "kind": "date",
            "edges": ["2000-01-01", "2015-01-01", "2027-01-01"],
            "question": "Since when?",
        },
        {
            "name": "canton",
            "kind": "categorical",
            "values": [f"Canton {i}" for i in range(12)],
            "question": "Where?",
        },
    ]
}


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """A window that knows nothing of earlier ones, in which nothing may complain and nothing may leave the origin."""
    context = browser.new_context(viewport=PHONE, has_touch=True)  # type: ignore[arg-type]
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    quiet = [text for text in complaints if "Failed to load resource" not in text]
    context.close()
    assert quiet == []


def stored(running: ServerThread, campaign: str) -> list[Row]:
    rounds = running.collector.campaigns.get(campaign).rounds
    return [
        row
        for r in rounds
        for block in running.collector.store.reports(campaign, r.number)
        for row in block
    ]


def test_answers_once_and_finds_the_receipt_again(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    title = {
        "title": "How we get to work",
        "purpose": "To plan the bus lines.",
        "contact": "bus@example.org",
    }
    campaign = caller.create(schema=SCHEMA, **title)
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.get_by_role("heading", name="How we get to work")).to_be_visible()
    expect(phone.get_by_text("To plan the bus lines.")).to_be_visible()
    begin(phone)
    expect(phone.locator("#asked")).to_contain_text("4 questions are for other people")
    expect(phone.locator("#step")).to_have_text("Question 1 of 1")
    follow(phone)
    expect(shown(phone).locator(".fault")).to_be_visible()  # nothing was filled in
    phone.go_back()
    answer(phone)
    expect(phone.locator("#odds")).to_contain_text("of 100 people like you would send something")
    practise(phone)
    expect(phone.locator("#practised")).to_contain_text("of 20 tries point to your answer")
    assert phone.locator("#strip span").count() == 20
    assert stored(running, campaign) == []
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    receipt = phone.locator("#receipt").inner_text()
    rows = stored(running, campaign)
    assert [row.report_id.hex() for row in rows] == [receipt]
    left = re.sub(r"\s", "", phone.locator("#bytes").text_content() or "")
    assert left.startswith("44545231" + campaign)  # DTR1 and the campaign
    assert left.endswith(rows[0].payload.hex())
    phone.reload()
    expect(phone.locator("#receipt")).to_have_text(receipt)
    expect(phone.locator("#send")).to_be_hidden()
    assert len(stored(running, campaign)) == 1


def test_loses_the_network_in_the_middle_of_sending(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
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
    answer(phone)
    send(phone)
    expect(phone.locator("#state")).to_contain_text("kept here and not yet acknowledged")
    phone.reload()
    expect(phone.locator("#state")).to_contain_text("kept here and not yet acknowledged")
    expect(phone.locator("#begin")).to_be_hidden()
    phone.get_by_role("button", name="Send the same bytes again").click()
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    expect(phone.locator("#said")).not_to_be_empty()
    expect(phone.locator("#said")).not_to_contain_text("0 questions")
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert len(stored(running, campaign)) == 1


def test_a_restored_collector_gets_the_same_bytes_again(tmp_path: Path, phone: Page) -> None:
    """The drill of docs/how-to/when-things-go-wrong.md, for a page."""
    before = ServerThread(SqliteStore(tmp_path / "before.db"), pages=add_pages)
    caller = Caller(before.url)
    campaign = caller.create(schema=SCHEMA)
    back_up(str(tmp_path / "before.db"), tmp_path / "backup.db")
    sent: list[bytes | None] = []
    phone.on(
        "request",
        lambda r: sent.append(r.post_data_buffer) if r.url.endswith("/reports") else None,
    )
    phone.goto(f"{before.url}/c/{campaign}")
    answer(phone)
    send(phone)
    receipt = phone.locator("#receipt").inner_text()
    phone.reload()
    expect(phone.locator("#receipt")).to_have_text(receipt)
    assert len(sent) == 1
    rows = stored(before, campaign)
    caller.connection.close()
    before.stop()
    restore_store(tmp_path / "backup.db", str(tmp_path / "after.db"))
    after = ServerThread(SqliteStore(tmp_path / "after.db"), pages=add_pages)
    assert stored(after, campaign) == []

    def at_the_same_address(route: Route) -> None:
        request = route.request
        url = after.url + request.url.removeprefix(before.url)
        route.fulfill(response=route.fetch(url=url))

    phone.route(f"{before.url}/**", at_the_same_address)
    for _ in range(2):
        phone.reload()
        expect(phone.locator("#receipt")).to_have_text(receipt)
        assert len(sent) == 2, "once after the restore"
    assert sent[1] == sent[0]
    assert stored(after, campaign) == rows
    after.stop()


def typed(page: Page) -> str:
    return str(
        page.evaluate(
            "[...document.querySelectorAll('#fields :is(input, select)')].map((i) => [i.checked, i.value]).join()"
        )
    )


def test_what_is_typed_stays_whatever_the_network_does(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = caller.create(schema=SCHEMA, draft=True)
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.locator("#state")).to_contain_text("has not begun yet")
    caller.admin("POST", f"/{campaign}/open", {})
    look_again = (
        "document.dispatchEvent(new Event('visibilitychange')), dispatchEvent(new Event('online'))"
    )
    phone.evaluate(look_again)
    expect(phone.locator("#begin")).to_be_visible()
    empty = typed(phone)
    answer(phone)
    filled = typed(phone)
    assert filled != empty
    looked: list[str] = []
    phone.on("request", lambda request: looked.append(request.url))
    phone.evaluate(look_again)  # somebody looks something up in another window
    phone.route("**/v1/campaigns/*", lambda route: route.abort())
    send(phone)
    expect(phone.locator("#state")).to_contain_text("None of your answers was sent on this visit")
    phone.unroute("**/v1/campaigns/*")
    phone.evaluate(look_again)
    phone.evaluate(
        "new Promise((done) => { setTimeout(done, 300); })"
    )  # longer than the collector takes to answer
    assert len(looked) == 1, "what was typed is sent, and nothing else is asked for"
    assert typed(phone) == filled
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")


def test_what_is_damaged_is_said_to_be(running: ServerThread, caller: Caller, phone: Page) -> None:
    campaign = caller.create(schema=SCHEMA, participation="tokens")
    for fragment in ("%zz", "%", "0" * 63 + "g"):
        phone.goto("about:blank")
        phone.goto(f"{running.url}/c/{campaign}#{fragment}")
        expect(phone.locator("#state")).to_contain_text("The invitation in this link is damaged")
    for kept in ("{", "5", '{"format": 2, "campaigns": {}}', '{"format": 1}'):
        phone.evaluate("(text) => localStorage.setItem('dither:device', text)", kept)
        phone.goto("about:blank")
        phone.goto(f"{running.url}/c/{campaign}#{'0' * 64}")
        expect(phone.locator("#state")).to_contain_text(re.compile("is damaged|did not work"))
        expect(phone.locator("#begin")).to_be_hidden()


def test_a_second_invitation_in_one_browser_is_told_what_is_the_matter(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = caller.create(schema=SCHEMA, participation="tokens")
    first, second = json.loads(caller.admin("POST", f"/{campaign}/tokens", {"count": 2}).body)[
        "tokens"
    ]
    phone.goto(f"{running.url}/c/{campaign}#{first}")
    answer(phone)
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    phone.goto("about:blank")
    phone.goto(f"{running.url}/c/{campaign}#{second}")
    expect(phone.locator("#state")).to_contain_text("has taken part with another invitation")
    expect(phone.locator("#begin")).to_be_hidden()
    assert len(stored(running, campaign)) == 1


def test_words_of_any_length_and_direction_fit_a_phone(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    long = "Donaudampfschifffahrtsgesellschaft" * 4
    entry = {"name": "a", "kind": "categorical", "values": ["x", "y"], "labels": [long, "نعم"]}
    for question, direction in ((long, "ltr"), ("كيف تذهب إلى العمل؟", "rtl")):
        schema = {"attributes": [{**entry, "question": question, "help": long}]}
        campaign = caller.create(schema=schema, title=long, purpose=long * 3, contact=long)
        phone.goto(f"{running.url}/c/{campaign}")
        narrow = "document.documentElement.scrollWidth - innerWidth"
        assert phone.evaluate(narrow) <= 0
        begin(phone)
        style = "getComputedStyle(document.querySelector('#fields > .field')).direction"
        assert phone.evaluate(style) == direction
        assert phone.evaluate(narrow) <= 0
        phone.go_back()
        answer(phone)
        practise(phone)
        assert phone.evaluate(narrow) <= 0


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
    expect(phone.locator("#begin")).to_be_visible()
    phone.goto("about:blank")
    phone.goto(f"{running.url}/c/{campaign}#{token}")
    answer(phone)
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    assert all(url.startswith(running.url) and token not in url for url in requests)
    with browser.new_page() as other:
        other.goto(f"{running.url}/c/{campaign}#{token}")
        expect(other.locator("#state")).to_contain_text("has been used already")
        expect(other.locator("#questions")).to_be_hidden()
    assert len(stored(running, campaign)) == 1


def test_every_end_of_the_road_has_its_sentence(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    draft = caller.create(schema=SCHEMA, draft=True)
    phone.goto(f"{running.url}/c/{draft}")
    expect(phone.locator("#state")).to_contain_text("has not begun yet")
    caller.admin("POST", f"/{draft}/open", {})
    phone.route("**/v1/campaigns/*", lambda route: route.abort())
    phone.goto(f"{running.url}/c/{draft}")
    expect(phone.locator("#state")).to_contain_text("cannot be reached")
    phone.unroute("**/v1/campaigns/*")
    phone.evaluate("window.dispatchEvent(new Event('online'))")
    expect(phone.locator("#begin")).to_be_visible()
    caller.admin("POST", f"/{draft}/close-round", {"round": 0, "hold": True})
    phone.goto(f"{running.url}/c/{draft}?again")
    expect(phone.locator("#state")).to_contain_text("is being prepared at this moment")
    caller.admin("POST", f"/{draft}/open", {})
    expect(phone.locator("#begin")).to_be_visible(timeout=10_000)  # it looks again by itself
    people(
        caller,
        draft,
        caller.announcement(draft),
        running.collector.campaigns.get(draft).spec.schema,
        200,
        "ended",
    )
    assert caller.admin("POST", f"/{draft}/close-round", {"round": 0}).status == 200
    phone.goto(f"{running.url}/c/{draft}?over")
    expect(phone.locator("#state")).to_contain_text("has ended")
    phone.goto(f"{running.url}/c/{'0' * 32}")
    expect(phone.get_by_role("heading", name="There is nothing here")).to_be_visible()


def in_two_rounds(caller: Caller) -> str:
    """The first round asks about one attribute of each, the second about pairs; whoever comes is asked in the open one."""
    return caller.create(schema=SCHEMA, method="privincr", participants=2000, assignment="arrival")


def end_round(running: ServerThread, caller: Caller, campaign: str) -> None:
    announced = caller.announcement(campaign)
    people(
        caller,
        campaign,
        announced,
        running.collector.campaigns.get(campaign).spec.schema,
        200,
        campaign,
    )
    assert (
        caller.admin(
            "POST", f"/{campaign}/close-round", {"round": announced["plan"]["round"]}
        ).status
        == 200
    )


def test_nothing_is_drawn_for_a_question_that_was_never_read(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    """A round may end while somebody fills in the form; the next one asks something else."""
    campaign = in_two_rounds(caller)
    earlier = caller.connection.request("GET", f"/v1/campaigns/{campaign}", None).body
    end_round(running, caller, campaign)
    plans = plan_of(json.loads(earlier)), plan_of(caller.announcement(campaign))

    def asked(token: bytes, plan: Plan) -> set[str]:
        return set(plan.questions[pick(token, bytes.fromhex(campaign), plan)].attributes)

    token = next(
        t for i in range(1000) if not asked(t := token_of(i), plans[1]) <= asked(t, plans[0])
    )
    phone.route(
        f"**/v1/campaigns/{campaign}",
        lambda route: route.fulfill(body=earlier, content_type="application/json"),
        times=1,
    )
    phone.goto(f"{running.url}/c/{campaign}#{token.hex()}")
    expect(phone.locator("#fields > .field")).to_have_count(len(asked(token, plans[0])))
    answer(phone)
    before = len(stored(running, campaign))
    send(phone)
    expect(phone.locator("#state")).to_contain_text(
        "What is asked has changed since this page showed it"
    )
    expect(phone.locator("#fields > .field")).to_have_count(len(asked(token, plans[1])))
    assert len(stored(running, campaign)) == before
    answer(phone)
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    assert len(stored(running, campaign)) == before + 1


def test_an_answer_that_comes_too_late_is_said_to_be_and_not_asked_for_again(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = in_two_rounds(caller)

    def slowly(route: Route) -> None:
        end_round(running, caller, campaign)
        route.continue_()

    phone.route("**/reports", slowly)
    phone.goto(f"{running.url}/c/{campaign}")
    answer(phone)
    send(phone)
    for _ in range(2):
        expect(phone.locator("#state")).to_contain_text("came too late and is not counted")
        expect(phone.locator("#begin")).to_be_hidden()
        phone.reload()


def test_an_answer_that_waits_is_sent_again_when_the_network_is_back(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = caller.create(schema=SCHEMA)
    phone.route("**/reports", lambda route: route.abort())
    phone.goto(f"{running.url}/c/{campaign}")
    answer(phone)
    send(phone)
    expect(phone.locator("#state")).to_contain_text("kept here and not yet acknowledged")
    phone.route("**/v1/campaigns/*", lambda route: route.abort())
    phone.get_by_role("button", name="Send the same bytes again").click()
    expect(phone.locator("#resend")).to_be_enabled()
    expect(phone.locator("#state")).to_contain_text(
        "kept here and not yet acknowledged"
    )  # not: "nothing has left"
    phone.unroute("**/v1/campaigns/*")
    phone.unroute("**/reports")
    phone.evaluate("window.dispatchEvent(new Event('online'))")
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    assert len(stored(running, campaign)) == 1


def test_keyboard_alone_is_enough(running: ServerThread, caller: Caller, phone: Page) -> None:
    only = {"attributes": SCHEMA["attributes"][:1]}
    campaign = caller.create(schema=only)
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.locator("#begin")).to_be_visible()
    phone.locator("#begin").focus()
    phone.keyboard.press("Enter")
    expect(shown(phone).locator("input").first).to_be_focused()
    phone.keyboard.press("ArrowDown")
    phone.keyboard.press("Enter")
    expect(phone.locator("#review")).to_be_focused()
    while not phone.evaluate("document.activeElement.id === 'send'"):
        phone.keyboard.press("Tab")
    phone.keyboard.press("Enter")
    expect(phone.locator("#state")).to_be_focused()
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    assert len(stored(running, campaign)) == 1


def test_without_script_the_page_says_so(
    running: ServerThread, caller: Caller, browser: Browser
) -> None:
    campaign = caller.create(schema=SCHEMA, title="Read me")
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{running.url}/c/{campaign}")
        expect(page.get_by_text("This page needs JavaScript.")).to_be_visible()
        expect(page.locator("#strength")).to_be_visible()
        expect(page.locator("#begin")).to_be_hidden()


def test_the_page_comes_back_to_life_when_the_ticket_is_asked(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = caller.create(
        schema=SCHEMA, method="privincr", participants=2000, assignment="token"
    )
    plan = plan_of(caller.announcement(campaign))
    assert plan.population < 1
    later = next(
        t
        for i in range(1000)
        if not is_asked(t := token_of(i), bytes.fromhex(campaign), 0.0, plan.population)
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
        closed = caller.admin(
            "POST", f"/{campaign}/close-round", {"round": announced["plan"]["round"]}
        )
        assert closed.status == 200, closed
    phone.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    answer(phone)
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")


def people(
    caller: Caller, campaign: str, announced: dict[str, Any], schema: Schema, count: int, kind: str
) -> None:
    """Simulated people who answer the open round."""
    plan, held = plan_of(announced), bytes.fromhex(campaign)
    reports = []
    for token in asked_tokens(campaign, announced["start"], plan, count, kind):
        question = pick(token, held, plan)
        source = seeded_source(token.hex())
        codes = [i % schema.cardinalities[i] for i in range(len(schema))]
        asked = plan.questions if question == -1 else (plan.questions[question],)
        reports.append(
            Report(
                token,
                question,
                b"".join(q.mechanism.randomise(q.cell(schema, codes), source) for q in asked),
            )
        )
    assert caller.upload(campaign, encode(Envelope(held, plan.round, tuple(reports)))).status == 201


def bytes_of_report(page: Page) -> list[bytes]:
    """The payloads of the reports that a page sends from now on."""
    sent: list[bytes] = []

    def note(request: Request) -> None:
        if request.url.endswith("/reports"):
            assert request.post_data_buffer is not None
            sent.append(request.post_data_buffer[64:])

    page.on("request", note)
    return sent


def said(page: Page) -> str:
    """What the page says was sent, without the marks around quoted words."""
    return re.sub("[\u2068\u2069]", "", page.locator("#said").inner_text())


@pytest.mark.parametrize(
    ("parameters", "rounding"),
    [
        ({"mechanism": "duchi"}, "rounded at random to 0 or 1,000; the nearer one is more likely"),
        (
            {"mechanism": "piecewise", "levels": 9},
            "rounded at random to one of 9 evenly spaced numbers from 0 to 1,000, 125 apart",
        ),
    ],
)
def test_a_number_for_a_mean_is_described_by_its_levels(
    running: ServerThread, caller: Caller, phone: Page, parameters: dict[str, Any], rounding: str
) -> None:
    schema = Mean.schema_of("pay", 0.0, 1000.0).to_json()
    campaign = caller.create(schema=schema, method="mean", parameters=parameters)
    sent = bytes_of_report(phone)
    phone.goto(f"{running.url}/c/{campaign}")
    begin(phone)
    expect(phone.locator("#fields")).to_contain_text(rounding)
    phone.locator("#fields input").fill("490")
    expect(phone.locator("#fields")).to_contain_text(rounding)
    expect(phone.locator("#fields")).not_to_contain_text("Counted as")
    phone.locator("#fields input").fill("1200")
    expect(phone.locator("#fields")).to_contain_text("Counted as: 1,000.")
    expect(phone.locator("#fields")).to_contain_text(rounding)
    assert "Nothing finer" not in phone.locator("main").inner_text()
    follow(phone)
    expect(phone.locator("#odds")).to_be_hidden()  # a rounded number has no one report that fits it
    expect(phone.locator("#try")).to_be_hidden()
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    (payload,) = sent
    if parameters["mechanism"] == "duchi":
        level = ["0", "1,000"][int.from_bytes(payload, "little")]
        assert said(phone) == f"It points to “{level}”."
    else:
        assert said(phone) == f"{len(payload)} byte of noise about 9 possible answers."


def test_the_report_of_a_rounded_number_is_named_by_its_level(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    """A plan may round to several levels and report the level itself; a level is not the bin of the same number."""
    campaign = caller.create(schema=Mean.schema_of("pay", 0.0, 1000.0).to_json(), method="mean")
    announced = caller.announcement(campaign)
    grr = {"name": "grr", "cells": 5, "other": 2**29, "threshold_bits": 32}
    announced["plan"]["questions"] = [{"attributes": ["pay"], "mechanism": grr, "rounded": True}]
    announced["plan"]["shares"] = [1.0]
    phone.route(f"**/v1/campaigns/{campaign}", lambda route: route.fulfill(json=announced))
    stored_here = {"results": ["stored"]}
    phone.route("**/reports", lambda route: route.fulfill(status=201, json=stored_here))
    sent = bytes_of_report(phone)
    phone.goto(f"{running.url}/c/{campaign}")
    begin(phone)
    expect(phone.locator("#fields")).to_contain_text(
        "one of 5 evenly spaced numbers from 0 to 1,000, 250 apart"
    )
    phone.locator("#fields input").fill("490")
    follow(phone)
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    level = ["0", "250", "500", "750", "1,000"][sent[0][0]]
    assert said(phone) == f"It points to “{level}”."


def test_a_collector_that_never_answers_is_given_up(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = caller.create(schema=SCHEMA)
    phone.add_init_script(
        "const timeout = AbortSignal.timeout.bind(AbortSignal); window.limits = [];"
        "AbortSignal.timeout = (ms) => { window.limits.push(ms); return timeout(ms / 100); };"
    )
    phone.route("**/v1/campaigns/*", lambda route: None)  # the request stays open
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.locator("#state")).to_contain_text("The collector cannot be reached")
    assert phone.evaluate("window.limits") == [30_000]
    phone.unroute("**/v1/campaigns/*")
    phone.evaluate("window.dispatchEvent(new Event('online'))")
    expect(phone.locator("#begin")).to_be_visible()


def test_an_announcement_without_end_is_not_read_to_its_end(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = caller.create(schema=SCHEMA)
    phone.add_init_script(
        """window.taken = 0;
        const chunk = new Uint8Array(1 << 20).fill(32);
        const pull = (to) => { if (window.taken++ < 64) to.enqueue(chunk); else to.close(); };
        window.fetch = async () => new Response(new ReadableStream({ pull }));"""
    )
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.locator("#state")).to_contain_text("What the collector asks cannot be read")
    assert phone.evaluate("window.taken") <= 12  # MiB; 8 are read


def test_a_redirect_is_not_followed_to_other_questions(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign, other = caller.create(schema=SCHEMA), caller.create(schema=SCHEMA)
    elsewhere = f"{running.url}/v1/campaigns/{other}"
    phone.route(
        f"**/v1/campaigns/{campaign}",
        lambda route: route.fulfill(status=302, headers={"location": elsewhere}),
    )
    looked: list[str] = []
    phone.on("request", lambda request: looked.append(request.url))
    phone.goto(f"{running.url}/c/{campaign}")
    expect(phone.locator("#state")).to_contain_text("The collector cannot be reached")
    expect(phone.locator("#begin")).to_be_hidden()
    assert elsewhere not in looked
    phone.unroute(f"**/v1/campaigns/{campaign}")
    body = json.dumps(caller.announcement(other))
    phone.route(
        f"**/v1/campaigns/{campaign}",
        lambda route: route.fulfill(body=body, content_type="application/json"),
    )
    phone.reload()
    expect(phone.locator("#state")).to_contain_text("What the collector asks cannot be read")


@pytest.mark.parametrize(
    ("typed_text", "means"), [("us", "US"), ("LEAD", " lead"), ("no such", None)]
)
def test_a_long_list_is_searched_and_never_refuses(
    running: ServerThread, caller: Caller, phone: Page, typed_text: str, means: str | None
) -> None:
    values = [*(f"v{i}" for i in range(300)), "US", " lead"]
    schema = {"attributes": [{"name": "job", "kind": "categorical", "values": values}]}
    campaign = caller.create(schema=schema, epsilon=8.0)
    phone.add_init_script(
        "crypto.getRandomValues = (array) => array.fill(0)"
    )  # draws of zeros report the truth
    sent = bytes_of_report(phone)
    phone.goto(f"{running.url}/c/{campaign}")
    begin(phone)
    radios = shown(phone).locator("input[type=radio]")
    expect(radios).to_have_count(61)  # of 302, and "None of these"
    expect(shown(phone)).to_contain_text("There are more")
    phone.get_by_role("searchbox").fill(typed_text)
    expect(radios).to_have_count(2 if means else 1)
    radios.first.check()
    expect(shown(phone).get_by_text("Please send all the same")).to_have_count(0 if means else 1)
    follow(phone)
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    plan, token = (
        plan_of(caller.announcement(campaign)),
        phone.evaluate(f"localStorage['dither:token:{campaign}']"),
    )
    mechanism = plan.questions[pick(bytes.fromhex(token), bytes.fromhex(campaign), plan)].mechanism
    assert isinstance(mechanism, PureMechanism)
    assert mechanism.supports(
        sent[0], values.index(means) if means else 0
    )  # a uniform draw of zeros is the first


def test_a_plan_that_changes_after_it_was_shown_is_shown_again(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    """The same attribute by another mechanism: odds and words would be about something else than what is sent."""
    campaign = caller.create(schema={"attributes": SCHEMA["attributes"][:1]})
    now = caller.announcement(campaign)
    earlier = json.loads(json.dumps(now))
    before = {
        "name": "oue",
        "cells": 4,
        "true_set": 2**31,
        "other_set": 2**30,
        "threshold_bits": 32,
    }
    assert now["plan"]["questions"][0]["mechanism"]["name"] != "oue"
    earlier["plan"]["questions"][0]["mechanism"] = before
    phone.route(f"**/v1/campaigns/{campaign}", lambda route: route.fulfill(json=earlier), times=1)
    sent = bytes_of_report(phone)
    phone.goto(f"{running.url}/c/{campaign}")
    answer(phone)
    expect(phone.locator("#odds")).to_contain_text("50 of 100 people like you")
    practise(phone)
    expect(phone.locator("#practised")).to_contain_text("of 20 tries")
    send(phone)
    expect(phone.locator("#state")).to_contain_text(
        "What is asked has changed since this page showed it"
    )
    expect(phone.locator("#state")).to_contain_text("None of your answers was sent on this visit")
    assert sent == []
    assert stored(running, campaign) == []
    expect(phone.locator("#begin")).to_be_visible()
    expect(phone.locator("#practised")).to_be_empty()  # draws by the plan of before
    answer(phone)
    expect(phone.locator("#odds")).not_to_contain_text("50 of 100 people like you")
    send(phone)
    expect(phone.locator("#state")).to_contain_text("Sent and stored")
    assert len(sent) == 1


def test_practice_with_an_answer_outside_what_is_asked(
    running: ServerThread, caller: Caller, phone: Page
) -> None:
    campaign = caller.create(schema={"attributes": SCHEMA["attributes"][1:2]})
    phone.goto(f"{running.url}/c/{campaign}")
    begin(phone)
    phone.locator("#fields input").fill("17")
    follow(phone)
    practise(phone)
    expect(phone.locator("#practised")).to_contain_text("outside what is asked, so no try")
    expect(phone.locator("#strip")).to_be_hidden()
    phone.locator("#back").click()
    phone.locator("#fields input").fill("18")
    follow(phone)
    practise(phone)
    expect(phone.locator("#practised")).to_contain_text("of 20 tries point to your answer")
