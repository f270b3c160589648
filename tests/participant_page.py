"""A participant's page as somebody uses it: start, one question a screen, review, send."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect


def begin(page: Page) -> None:
    """Press the button that leads to the first question."""
    page.locator("#begin").click()


def shown(page: Page) -> Locator:
    """The field of the question on the screen."""
    return page.locator("#fields > .field:visible")


def fill(field: Locator) -> None:
    """Answer a question with its first choice, or with a date or number."""
    if field.locator("input[type=radio]").count():
        field.locator("label", has=field.page.locator("input[type=radio]")).first.click()
    elif field.locator("input[type=date]").count():
        field.locator("input").first.fill("2020-02-29")
    else:
        field.locator("input").first.fill("41")


def follow(page: Page) -> None:
    """Go to the next screen."""
    page.locator("#next").click()


def answer(page: Page, by: Callable[[Locator], None] = fill) -> None:
    """Start, answer every question, and come to the review."""
    expect(page.locator("#begin")).to_be_visible()
    begin(page)
    while page.locator("#next").is_visible():
        by(shown(page))
        follow(page)
    expect(page.locator("#review")).to_be_visible()


def send(page: Page) -> None:
    """Press the button that sends."""
    page.locator("#send").click()


def practise(page: Page) -> None:
    """Try the noise 20 times."""
    if not page.locator("#often").is_visible():
        page.locator("#try > summary").click()
    page.locator("#often").click()
