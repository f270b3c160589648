"""Promise 2 in a browser: two pages of one browser never send two draws of one participant.

Chromium shows a page for a moment an older state of localStorage than another page has written, also to the holder of a
Web Lock. The tests freeze what one page sees, which makes the moment as long as they need.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from tests.promises.test_promise_6_pages_say_what_was_sent import (
    SCHEMA,
    Visitor,
    stored,
    with_ticket,
)

from collector_harness import Caller, ServerThread  # isort: skip


pytestmark = pytest.mark.slow

FREEZE = """() => {
  const seen = new Map(Object.entries({ ...localStorage }));
  Storage.prototype.getItem = (key) => seen.get(key) ?? null;
  Storage.prototype.setItem = (key, text) => { seen.set(key, String(text)); };
}"""


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


@pytest.mark.parametrize("participation", ["open", "tokens"])
@pytest.mark.parametrize("frozen", ["before the first look", "after the first look"])
def test_a_page_with_an_old_view_of_the_storage_sends_the_draw_of_the_other(
    running: ServerThread, caller: Caller, context: BrowserContext, participation: str, frozen: str
) -> None:
    campaign, ticket = (
        with_ticket(caller) if participation == "tokens" else (caller.create(schema=SCHEMA), "")
    )
    fast, slow = (Visitor(context.new_page(), running.url, campaign, ticket) for _ in range(2))
    if frozen == "before the first look":
        slow.page.add_init_script(f"({FREEZE})()")
    slow.come()
    slow.fill_in(1)
    if frozen == "after the first look":
        slow.page.evaluate(FREEZE)
    # A ticket is looked up once more before a draw; here both pages look before either report is stored.
    slow.page.route("**/lookup", lambda route: route.fulfill(json={"stored": False}))
    fast.come()
    fast.fill_in(0)
    fast.press()
    expect(fast.page.locator("#state")).to_contain_text("Sent and stored")
    slow.press()
    expect(slow.page.locator("#state")).to_contain_text("Sent and stored")
    assert slow.network.uploads == fast.network.uploads, "one draw, whichever page sends it"
    assert (fast.network.answered, slow.network.answered) == ([201], [200])
    assert len(stored(running, campaign)) == 1
