"""Takes the screenshots in docs and README from `make demo-web`, in a browser.

python -m tools.screenshots docs/pictures        # or: make pictures
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pyarrow.csv
from playwright.sync_api import Browser, Page, sync_playwright

from dither.cli import run
from tools.demo_web import SEED, Demo, demo, people

SIZE = {"width": 1180, "height": 820}
TICKET = f"{4:064x}"  # which question it draws stays the same


def main() -> None:
    """Take all screenshots."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium found; install it, or run 'make setup' as root")
    with demo() as running, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")  # type: ignore[arg-type]
        for name, show in (
            ("participant", _participant),
            ("console", _console),
            ("planner", _planner),
            ("release", _release),
        ):
            show(page, running)
            page.screenshot(path=folder / f"page-{name}.png")
            print(folder / f"page-{name}.png")
        for each in curator_strip(browser, running, folder):
            print(each)
        browser.close()


def _participant(page: Page, running: Demo) -> None:
    page.goto(f"{running.url}/c/{running.taking}#{TICKET}")
    page.wait_for_selector("#questions:not([hidden])")
    for field in page.locator("#fields > .field").all():
        if field.locator("input[type=radio]").count():
            field.locator("label").nth(1).click()
        else:
            field.locator("input").first.fill("28")
    page.click("#often")
    page.wait_for_selector("#strip:not([hidden])")
    page.evaluate("scrollTo(0, 0)")


def _console(page: Page, running: Demo) -> None:
    page.goto(f"{running.url}/console")
    page.fill("#key", running.key_file.read_text(encoding="ascii").strip())
    page.click("main button[type=submit]")
    page.wait_for_selector("h1:has-text('Campaigns')")
    page.goto(f"{running.url}/console/c/{running.taking}")
    page.wait_for_selector("text=if it ended now", timeout=120_000)


def _planner(page: Page, running: Demo) -> None:
    page.goto(f"{running.url}/console/new")
    page.fill("#title", "How we get to work")
    _questions(page)
    page.fill("#participants", "20000")
    page.fill("#target", "2")
    page.wait_for_selector("#plan .wanted", timeout=120_000)
    page.evaluate(
        "document.activeElement.blur(); document.querySelector('#schema-h').scrollIntoView()"
    )


def _questions(page: Page) -> None:
    page.fill("#a0-name", "way")
    page.fill("#a0-question", "How do you get to work?")
    page.fill(
        "#a0-values",
        "foot | On foot\nbicycle | By bicycle\npublic | By bus, tram or train\ncar | By car\nhome | I work at home",
    )
    page.click("button[value=add-a]")
    page.fill("#a1-name", "minutes")
    page.fill("#a1-question", "How long does it take, in minutes?")
    page.select_option("#a1-kind", "numeric")
    page.fill("#a1-edges", "0, 15, 30, 45, 60, 180")
    page.fill("#a1-unit", "1")


def curator_strip(browser: Browser, running: Demo, folder: Path) -> Iterator[Path]:
    """Take the pictures of a curator's way from an empty draft to a published release.

    Args:
        browser: The browser.
        running: The demonstration, whose collector takes the campaign.
        folder: Where the pictures go.

    Yields:
        Each picture's file, when it is there.
    """
    page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")  # type: ignore[arg-type]
    page.set_default_timeout(240_000)

    def picture(name: str) -> Path:
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=folder / f"console-{name}.png")
        return folder / f"console-{name}.png"

    page.goto(f"{running.url}/console")
    page.fill("#key", running.key_file.read_text(encoding="ascii").strip())
    page.click("main button[type=submit]")
    page.get_by_role("link", name="New campaign").first.click()
    page.fill("#title", "How we get to work")
    page.fill("#purpose", "The town plans its bus lines.\nThe figures are published in spring.")
    _questions(page)
    page.fill("#participants", "3000")
    page.wait_for_selector("#plan .lead")
    page.wait_for_selector("#saving:has-text('Saved')")
    yield picture("1-draft")
    page.get_by_role("button", name="Preview").click()
    page.wait_for_selector("#preview")
    yield picture("2-preview")
    page.get_by_role("link", name="Back").click()
    page.get_by_role("button", name="Open it now").click()
    page.wait_for_selector(".qr svg")
    campaign = page.url.rpartition("/")[2].partition("?")[0]
    yield from _collect(page, running, campaign, picture)
    page.get_by_role("link", name="Make the release").click()
    page.get_by_role("button", name="Make the release").click()
    page.get_by_role("link", name="Publish it").click()
    page.get_by_label("Name it on").check()
    yield picture("4-publish")
    page.get_by_role("button", name="Publish it").click()
    page.wait_for_selector("text=Anybody may read it")
    yield picture("5-published")
    page.close()


def _collect(
    page: Page, running: Demo, campaign: str, picture: Callable[[str], Path]
) -> Iterator[Path]:
    """Answer with simulated people and close rounds until all are in."""
    with tempfile.TemporaryDirectory(prefix="dither-strip-") as scratch:
        table = Path(scratch) / "people.csv"
        answers = people(3_000, SEED).select(["way", "minutes"])
        pyarrow.csv.write_csv(answers, table)
        call = ["submit", str(table), "--campaign", campaign, "--url", running.url]
        for number in range(10):
            page.goto(f"{running.url}/console/c/{campaign}")
            if page.locator("#live .state").first.inner_text() != "open":
                return
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
                status = run([*call, "--seed", str(SEED)])
            if status:
                raise SystemExit(f"the answers could not be sent: {said.getvalue()}")
            page.goto(f"{running.url}/console/c/{campaign}")
            if number == 0:
                page.wait_for_selector("text=if it ended now")
                page.wait_for_timeout(12_000)
                page.reload()
                page.wait_for_selector(".arrivals svg")
                yield picture("3-campaign")
            page.get_by_role("link", name="Close the round").click()
            page.get_by_role("button", name="Close it").click()
            page.wait_for_selector(".done")


def _release(page: Page, running: Demo) -> None:
    page.goto(f"{running.url}/releases/{running.published}/ask?by=way&given=age+%3C+45")
    page.wait_for_selector("main svg")


if __name__ == "__main__":
    main()
