"""Promise 1 on the participant's page: outward behaviour never depends on the record.

A collector chooses the domain that it announces. For each kind of control one person gives an answer inside it and
another one gives an answer outside it, by the same steps. Both are told before they send whether their answer is
outside, and what the browser then sends is equal: the requests, their order and their lengths.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect
from tests.participant_page import begin, follow, send

from collector_harness import Caller, ServerThread  # isort: skip


pytestmark = pytest.mark.slow

Fill = Callable[[Page, str], None]
INSTEAD = "Please send all the same"
LABELS = ["foot", "bicycle", "bus", "car"]


def write(page: Page, answer: str) -> None:
    page.locator("#fields input").first.fill(answer)


def tick(page: Page, answer: str) -> None:
    page.get_by_label(answer, exact=True).check()


def find(page: Page, answer: str) -> None:
    page.get_by_role("searchbox").fill(answer)
    page.locator("#fields input[type=radio]").first.check()


@dataclass(frozen=True)
class Case:
    """An attribute, how it is answered, and one answer of either sort."""

    name: str
    attribute: dict[str, Any]
    fill: Fill
    inside: str
    outside: str
    method: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("range", {"kind": "numeric", "edges": [18, 30, 50, 100], "unit": 1}, write, "41", "17"),
    Case(
        "missing", {"kind": "numeric", "edges": [0, 5, 9], "missing": True}, write, "4.5", "-1e30"
    ),
    Case(
        "atoms",
        {"kind": "numeric", "edges": [128, 129], "atoms": [1, 3, 5, 7, 9, 37]},
        write,
        "37",
        "38",
    ),
    Case("duration", {"kind": "duration", "edges": [0, 60, 3600]}, write, "59.5", "3601"),
    Case(
        "date",
        {"kind": "date", "edges": ["2000-01-01", "2015-01-01", "2027-01-01"]},
        write,
        "2020-02-29",
        "1999-12-31",
    ),
    Case(
        "datetime",
        {
            "kind": "datetime",
            "edges": ["2020-01-01T00:00:00", "2020-06-01T00:00:00", "2021-01-01T00:00:00"],
        },
        write,
        "2020-02-29T08:30",
        "2021-02-01T08:30",
    ),
    Case("radios", {"kind": "categorical", "values": LABELS}, tick, "bus", "None of these"),
    Case(
        "radios with missing",
        {"kind": "ordinal", "values": LABELS, "missing": True},
        tick,
        "car",
        "None of these",
    ),
    Case("boolean", {"kind": "boolean"}, tick, "Yes", "None of these"),
    Case(
        "many radios",
        {"kind": "categorical", "values": [f"v{i}" for i in range(40)]},
        tick,
        "v7",
        "None of these",
    ),
    Case(
        "list", {"kind": "categorical", "values": [f"v{i}" for i in range(301)]}, find, "v7", "w7"
    ),
    Case(
        "rounded",
        {"kind": "numeric", "edges": [0, 500, 1000]},
        write,
        "490",
        "1001",
        # one question for all: of the hybrid's two the ticket picks one, and their reports differ in length
        {"method": "mean", "parameters": {"mechanism": "piecewise"}},
    ),
]


def visit(
    browser: Browser, address: str, fill: Callable[[Page], None]
) -> tuple[list[tuple[str, str, int]], bool]:
    """One visit: what the browser sent after the button was pressed, and whether the page said "outside" before."""
    sent: list[tuple[str, str, int]] = []

    def note(request: Request) -> None:
        sent.append((request.method, request.url, len(request.post_data_buffer or b"")))

    with browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        begin(page)
        fill(page)
        outside = INSTEAD in page.locator("#fields").inner_text()
        page.on("request", note)
        follow(page)
        send(page)
        expect(page.locator("#state")).to_contain_text("Sent and stored")
    return sent, outside


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_requests_inside_and_outside_the_domain(
    running: ServerThread,
    caller: Caller,
    browser: Browser,
    case: Case,
) -> None:
    schema = {"attributes": [{"name": "x", **case.attribute}]}
    campaign = caller.create(schema=schema, participation="tokens", **case.method)
    issued = caller.admin("POST", f"/{campaign}/tokens", {"count": 2})
    seen = []
    for ticket, answer in zip(
        json.loads(issued.body)["tokens"], (case.inside, case.outside), strict=True
    ):
        seen.append(
            visit(
                browser,
                f"{running.url}/c/{campaign}#{ticket}",
                lambda page, a=answer: case.fill(page, a),
            )
        )
    (inside, no_note), (outside, note) = seen
    assert not no_note
    assert note, "the page says before sending that the answer is outside"
    assert inside == outside
    assert [url.rsplit("/", 1)[-1] for _, url, _ in inside] == [campaign, "lookup", "reports"]


def test_none_of_these_in_a_long_list(
    running: ServerThread, caller: Caller, browser: Browser
) -> None:
    schema = {
        "attributes": [
            {"name": "x", "kind": "categorical", "values": [f"v{i}" for i in range(301)]}
        ]
    }
    address = f"{running.url}/c/{caller.create(schema=schema)}"
    inside, no_note = visit(browser, address, lambda page: find(page, "v300"))
    outside, note = visit(browser, address, lambda page: tick(page, "None of these"))
    assert (no_note, note) == (False, True)
    assert inside == outside


def test_several_campaigns_read_nothing_from_who_is_silent(
    running: ServerThread,
    caller: Caller,
    browser: Browser,
) -> None:
    """The attack of decision 16: each campaign leaves out the ages that lack one bit. Two bits stand for all seven."""
    read = {1: 0, 2: 0}
    for bit in range(2):
        atoms = [age for age in range(128) if age >> bit & 1]
        schema = {
            "attributes": [{"name": "age", "kind": "numeric", "edges": [128, 129], "atoms": atoms}]
        }
        address = (
            f"{running.url}/c/{caller.create(schema=schema, epsilon=0.01, participants=100_000)}"
        )
        for age in read:
            sent, _ = visit(browser, address, lambda page, a=age: write(page, str(a)))
            read[age] |= any(url.endswith("/reports") for _, url, _ in sent) << bit
    assert set(read.values()) == {3}


@pytest.mark.parametrize(
    "attribute",
    [
        {"kind": "numeric", "edges": [18, 30, 100]},
        {"kind": "date", "edges": ["2000-01-01", "2015-01-01", "2027-01-01"]},
        {"kind": "categorical", "values": LABELS},
        {"kind": "categorical", "values": [f"v{i}" for i in range(301)]},
    ],
    ids=["number", "date", "radios", "list"],
)
def test_an_empty_field_is_refused_and_sends_nothing(
    running: ServerThread,
    caller: Caller,
    browser: Browser,
    attribute: dict[str, Any],
) -> None:
    campaign = caller.create(schema={"attributes": [{"name": "x", **attribute}]})
    sent: list[str] = []
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{running.url}/c/{campaign}")
        begin(page)
        limits = page.locator("#fields :is([min], [max], [pattern], [required], [maxlength])")
        expect(limits).to_have_count(0)  # no browser or its pickers rule out a value by the domain
        page.on("request", lambda request: sent.append(request.url))
        follow(page)
        expect(page.locator("#fields .fault")).to_be_visible()
    assert sent == []
