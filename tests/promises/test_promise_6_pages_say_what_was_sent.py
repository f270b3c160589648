"""What a page says was or was not sent is what the network saw.

A participant's page is brought to each of its ends in a real browser. What it says is compared with every request that the
browser made on that visit: their addresses, bodies and answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Response, Route, expect
from tests.participant_page import answer, send

from collector_harness import Caller, ServerThread, answers_of, plan_of, token_of  # isort: skip

from dither.reports import is_asked, report_id

pytestmark = pytest.mark.slow

WAYS = ["foot", "bicycle", "bus", "car"]
SCHEMA: dict[str, Any] = {
    "attributes": [
        {"name": name, "kind": "categorical", "values": WAYS, "question": f"How do you get {name}?"}
        for name in ("there", "back")
    ]
}
NOT_SENT = "None of your answers was sent on this visit"
UNKNOWN = "may or may not have arrived"
STORED = "Sent and stored"
REFUSED = "Your randomised answer was sent, but"


@dataclass
class Network:
    """What the browser sent since the page was last loaded, and what came back."""

    uploads: list[bytes] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)  # statuses of uploads that were answered
    lookups: list[bytes] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def request(self, request: Request) -> None:
        body = request.post_data_buffer
        if request.is_navigation_request():
            self.__init__()  # type: ignore[misc]
        if request.url.endswith("/reports"):
            assert body is not None
            self.uploads.append(body)
        elif request.url.endswith("/lookup"):
            assert body is not None
            self.lookups.append(body)
        else:
            assert (request.method, body) == ("GET", None), "nothing else carries a body"
            self.others.append(request.url)

    def response(self, response: Response) -> None:
        if response.request.url.endswith("/reports"):
            self.answered.append(response.status)


class Visitor:
    """Somebody with a browser of their own and, perhaps, a ticket."""

    def __init__(self, page: Page, url: str, campaign: str, ticket: str = "") -> None:
        self.page, self.campaign, self.ticket = page, campaign, ticket
        self.address = f"{url}/c/{campaign}" + (f"#{ticket}" if ticket else "")
        self.network = Network()
        page.on("request", self.network.request)
        page.on("response", self.network.response)

    def come(self) -> None:
        self.page.goto("about:blank")
        self.page.goto(self.address)

    def fill_in(self, choice: int = 0) -> None:
        def choose(field: Locator) -> None:
            radios = field.locator("label", has=self.page.locator("input[type=radio]"))
            radios.nth(choice).click()

        answer(self.page, choose)

    def press(self) -> None:
        send(self.page)

    def answer(self) -> None:
        self.come()
        self.fill_in()
        self.press()

    def says(self, sentence: str) -> None:
        """The page ends with this sentence, and all that it says about sending is what the network saw."""
        state = self.page.locator("#state")
        expect(state).to_contain_text(sentence)
        text = state.inner_text()
        claims = [claim for claim in (NOT_SENT, UNKNOWN, STORED, REFUSED) if claim in text]
        assert len(claims) <= 1, text
        assert not re.search(r"[Nn]othing (was|is|has been) sent|[Nn]othing has left", text), (
            "a claim in other words"
        )
        if claims in ([], [NOT_SENT]):
            assert self.network.uploads == []
            expect(self.page.locator("#left")).to_be_hidden()
        elif claims == [UNKNOWN]:
            assert self.network.uploads
        elif claims == [STORED]:
            assert {*self.network.answered} <= {200, 201}
        else:
            assert all(400 <= status < 500 for status in self.network.answered)
        assert len(set(self.network.uploads)) <= 1, "one draw"
        if self.network.uploads:
            shown = re.sub(r"\s", "", self.page.locator("#bytes").text_content() or "")
            assert shown == self.network.uploads[0].hex()
        if self.ticket:
            own = report_id(bytes.fromhex(self.ticket), bytes.fromhex(self.campaign), 0)
            assert set(self.network.lookups) <= {own}, (
                "a lookup tells the report's id and nothing else"
            )
        assert not any(self.ticket in url for url in self.network.others if self.ticket)


Visiting = Callable[..., Visitor]


@pytest.fixture
def visitor(browser: Browser, running: ServerThread) -> Iterator[Visiting]:
    contexts = []

    def made(campaign: str, ticket: str = "") -> Visitor:
        context = browser.new_context()
        contexts.append(context)
        return Visitor(context.new_page(), running.url, campaign, ticket)

    yield made
    for context in contexts:
        context.close()


def with_ticket(caller: Caller) -> tuple[str, str]:
    """A campaign for invited people, and the ticket of one of them."""
    campaign = caller.create(schema=SCHEMA, participation="tokens")
    issued = caller.admin("POST", f"/{campaign}/tokens", {"count": 1})
    return campaign, json.loads(issued.body)["tokens"][0]


def stored(running: ServerThread, campaign: str) -> list[bytes]:
    store = running.collector.store
    return [row.payload for page in store.reports(campaign, 0) for row in page]


def end_round(running: ServerThread, caller: Caller, campaign: str, kind: str = "others") -> None:
    plan = plan_of(caller.announcement(campaign))
    schema = running.collector.campaigns.get(campaign).spec.schema
    assert caller.upload(campaign, answers_of(campaign, plan, schema, 100, kind)).status == 201
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200


def test_sent_and_stored(running: ServerThread, caller: Caller, visitor: Visiting) -> None:
    campaign, ticket = with_ticket(caller)
    one = visitor(campaign, ticket)
    one.answer()
    one.says(STORED)
    assert one.network.answered == [201]
    assert [one.network.uploads[0].endswith(payload) for payload in stored(running, campaign)] == [
        True
    ]
    one.come()
    one.says(STORED)
    assert one.network.uploads == [], "a second visit sends nothing and says what the first one did"


def test_a_token_drawn_by_the_page_itself_is_not_looked_up(
    caller: Caller, visitor: Visiting
) -> None:
    one = visitor(caller.create(schema=SCHEMA))
    one.answer()
    one.says(STORED)
    assert (one.network.lookups, one.network.answered) == ([], [201])


def test_a_ticket_used_on_another_device(
    running: ServerThread, caller: Caller, visitor: Visiting
) -> None:
    campaign, ticket = with_ticket(caller)
    first, second, third = (visitor(campaign, ticket) for _ in range(3))
    second.come()
    second.fill_in()
    first.answer()
    first.says(STORED)
    third.come()
    third.says("This invitation has been used already")
    third.says(NOT_SENT)
    expect(third.page.locator("#begin")).to_be_hidden()
    second.press()  # the form was there before the first one's answer
    second.says("This invitation has been used already")
    second.says(NOT_SENT)
    assert second.network.uploads == third.network.uploads == []
    assert len(stored(running, campaign)) == 1
    second.come()
    second.says(NOT_SENT)


def test_two_devices_at_the_same_instant(
    running: ServerThread, caller: Caller, visitor: Visiting
) -> None:
    campaign, ticket = with_ticket(caller)
    first, second = visitor(campaign, ticket), visitor(campaign, ticket)
    for one in (first, second):  # a draw of zeros is the truth, so that two choices are two reports
        one.page.add_init_script("crypto.getRandomValues = (array) => array.fill(0)")
    second.come()
    second.fill_in(choice=3)

    def meanwhile(route: Route) -> None:
        """The other device's answer is stored after this one heard that none is."""
        answer = route.fetch()
        first.answer()
        first.says(STORED)
        route.fulfill(response=answer)

    second.page.route("**/lookup", meanwhile)
    second.press()
    second.says(REFUSED)
    second.says("up to twice as much about you as this page promises")
    assert second.network.answered == [409]
    assert second.network.uploads[0] != first.network.uploads[0], "two draws: what the page says"
    assert len(stored(running, campaign)) == 1
    second.page.unroute("**/lookup")
    second.come()
    second.says(REFUSED)
    assert second.network.uploads == [], "an earlier visit sent it"


def test_no_network_before_anything_is_drawn(
    running: ServerThread, caller: Caller, visitor: Visiting
) -> None:
    campaign, ticket = with_ticket(caller)
    one = visitor(campaign, ticket)
    for address in ("**/v1/campaigns/*", "**/lookup"):
        one.page.route(address, lambda route: route.abort())
        one.come()
        one.says("The collector cannot be reached")
        one.says(NOT_SENT)
        one.page.unroute(address)
    one.come()
    one.fill_in()
    for address in ("**/v1/campaigns/*", "**/lookup"):
        one.page.route(address, lambda route: route.abort())
        one.press()
        one.says("press the button again")
        one.says(NOT_SENT)
        one.page.unroute(address)
    one.press()
    one.says(STORED)


def test_a_collector_that_cannot_tell_gets_nothing(caller: Caller, visitor: Visiting) -> None:
    """One of an earlier version: it has no such address."""
    one = visitor(*with_ticket(caller))
    problem = {
        "type": "urn:dither:problem:not-found",
        "title": "There is nothing here",
        "status": 404,
    }
    one.page.route("**/lookup", lambda route: route.fulfill(status=404, body=json.dumps(problem)))
    one.come()
    one.says("The collector cannot be reached")
    one.says(NOT_SENT)


@pytest.mark.parametrize("arrives", [False, True])
def test_the_connection_breaks_while_sending(
    running: ServerThread, caller: Caller, visitor: Visiting, arrives: bool
) -> None:
    campaign, ticket = with_ticket(caller)
    one = visitor(campaign, ticket)

    def lose(route: Route) -> None:
        if arrives:
            route.fetch()
        route.abort("connectionreset")

    one.page.route("**/reports", lose)
    one.answer()
    one.says(UNKNOWN)
    assert len(stored(running, campaign)) == arrives
    one.page.unroute("**/reports")
    one.page.get_by_role("button", name="Send the same bytes again").click()
    one.says(STORED)
    assert len(stored(running, campaign)) == 1


def test_a_storage_that_fails_after_sending(caller: Caller, visitor: Visiting) -> None:
    """What happens after the answer has left must not be told as if it had not."""
    one = visitor(*with_ticket(caller))

    def fill_the_storage(route: Route) -> None:
        one.page.evaluate(
            "void (Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); })"
        )
        route.continue_()

    one.page.route("**/reports", fill_the_storage)
    one.answer()
    one.says(UNKNOWN)
    assert one.network.answered == [201]


def test_refused_by_the_collector(running: ServerThread, caller: Caller, visitor: Visiting) -> None:
    campaign = caller.create(schema=SCHEMA, participation="tokens")
    unknown = visitor(campaign, "0" * 64)
    unknown.answer()
    unknown.says("the collector does not know this invitation")
    unknown.says(REFUSED)
    late = visitor(caller.create(schema=SCHEMA))

    def slowly(route: Route) -> None:
        end_round(running, caller, late.campaign)
        route.continue_()

    late.page.route("**/reports", slowly)
    late.answer()
    late.says("came too late and is not counted")
    late.says(REFUSED)
    strange = visitor(caller.create(schema=SCHEMA))
    problem = {"type": "urn:dither:problem:not-this-round", "title": "no"}
    strange.page.route(
        "**/reports",
        lambda route: route.fulfill(
            status=403, content_type="application/problem+json", body=json.dumps(problem)
        ),
    )
    strange.answer()
    strange.says("the collector did not take it")
    strange.says(REFUSED)


def test_refused_by_the_device(caller: Caller, visitor: Visiting) -> None:
    one = visitor(caller.create(schema=SCHEMA))
    one.come()
    books = {"format": 1, "latest": 0, "campaigns": {}, "capTotal": 0.1}
    one.page.evaluate("(books) => localStorage.setItem('dither:device', books)", json.dumps(books))
    one.answer()
    one.says("as much as it was allowed to")
    one.says(NOT_SENT)
    one.page.evaluate("localStorage.setItem('dither:device', '{')")
    one.come()
    one.says("is damaged")
    one.says(NOT_SENT)


def test_not_asked_not_begun_and_closed(
    running: ServerThread, caller: Caller, visitor: Visiting
) -> None:
    draft = visitor(caller.create(schema=SCHEMA, draft=True))
    draft.come()
    draft.says("This has not begun yet")
    asked = caller.create(schema=SCHEMA, method="privincr", participants=2000, assignment="token")
    plan = plan_of(caller.announcement(asked))
    ticket = next(
        t
        for i in range(1000)
        if not is_asked(t := token_of(i), bytes.fromhex(asked), 0.0, plan.population)
    )
    later = visitor(asked, ticket.hex())
    later.come()
    later.says("You are not asked yet")
    closed = visitor(caller.create(schema=SCHEMA))
    closed.come()
    closed.fill_in()
    end_round(running, caller, closed.campaign)
    closed.press()
    closed.says("This has ended")
    closed.come()
    closed.says("This has ended")
    uninvited = visitor(caller.create(schema=SCHEMA, participation="tokens"))
    uninvited.come()
    uninvited.says("An invitation is needed")
    for one in (draft, later, closed, uninvited):
        assert (one.network.uploads, one.network.lookups) == ([], [])
