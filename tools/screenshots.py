"""Takes the screenshots in docs and README from `make demo-web`, in a browser.

python -m tools.screenshots docs/pictures        # or: make pictures
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pyarrow.csv
from playwright.sync_api import Browser, Page, sync_playwright

from dither.cli import run
from tools.demo_web import SEED, Demo, demo, people

SIZE = {"width": 1180, "height": 820}
PHONE = {"width": 390, "height": 844}
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
        _strip(browser, _participant_story(browser, running), folder / "story-participant.png")
        print(reader_strip(browser, running, folder))
        for each in curator_strip(browser, running, folder):
            print(each)
        browser.close()


# The frames of a film strip: each as wide as a small window, side by side in one picture.
FRAME = {"width": 620, "height": 760}


def reader_strip(browser: Browser, running: Demo, folder: Path) -> Path:
    """Take the steps of a reader from the front page to an embedded heat map, in one picture."""
    page = browser.new_page(viewport=FRAME, color_scheme="light", reduced_motion="reduce")  # type: ignore[arg-type]
    release, view = f"{running.url}/releases/{running.published}", "by=way&by=satisfied&within=1"
    frames = []

    def take() -> None:
        frames.append(page.screenshot())

    page.goto(running.url)
    page.locator(f'a[href="/releases/{running.published}"]').scroll_into_view_if_needed()
    take()
    page.goto(release)
    take()
    page.goto(f"{release}?{view}")
    page.locator("#answer .mark").nth(3).focus()
    page.evaluate("document.querySelector('#answer').scrollIntoView()")
    take()
    article = (
        "<!doctype html><html lang=en><title>News</title><body style='font: 18px/1.5 Georgia, serif; margin: 40px'>"
        "<h1>People on foot are the most content</h1><p>The town has asked how people get to work.</p>"
        f"<iframe src='{release}/embed?{view}' title='Heat map' width='100%' height='460'></iframe>"
    )
    with tempfile.TemporaryDirectory() as news, _other_site(Path(news), article) as address:
        page.goto(address)
        page.frames[1].wait_for_selector("svg")
        take()
    page.close()
    return _side_by_side(browser, frames, folder / "strip-reader.png")


@contextmanager
def _other_site(folder: Path, article: str) -> Iterator[str]:
    """Serve an article from another origin."""
    (folder / "index.html").write_text(article, encoding="utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _side_by_side(browser: Browser, frames: list[bytes], path: Path) -> Path:
    """Frames in a row, each with its number."""
    width = (FRAME["width"] // 2 + 12) * len(frames) + 12
    page = browser.new_page(viewport={"width": width, "height": FRAME["height"] // 2 + 44})
    images = "".join(
        f"<figure><img alt='' src='data:image/png;base64,{base64.b64encode(frame).decode()}'>"
        f"<figcaption>{i + 1}</figcaption></figure>"
        for i, frame in enumerate(frames)
    )
    page.set_content(
        "<style>body{margin:12px;display:flex;gap:12px;background:#fff;font:600 14px system-ui}figure{margin:0}"
        f"img{{width:{FRAME['width'] // 2}px;border:1px solid #d9dfe5;border-radius:6px;box-sizing:border-box}}</style>"
        f"{images}"
    )
    page.screenshot(path=path)
    page.close()
    return path


def _participant(page: Page, running: Demo) -> None:
    page.goto(f"{running.url}/c/{running.taking}#{TICKET}")
    _answer(page)
    page.click("#try > summary")
    page.click("#often")
    page.wait_for_selector("#strip:not([hidden])")
    page.evaluate("scrollTo(0, 0)")


def _answer(page: Page) -> None:
    """Start and answer every question, up to the review."""
    page.click("#begin")
    while page.is_visible("#next"):
        field = page.locator("#fields > .field:visible")
        if field.locator("input[type=radio]").count():
            field.locator("label").nth(1).click()
        else:
            field.locator("input").first.fill("28")
        page.click("#next")


def _participant_story(browser: Browser, running: Demo) -> list[bytes]:
    """A participant on a phone, in German: the first screen, a question, the review, the receipt."""
    phone = browser.new_context(viewport=PHONE, locale="de-DE", reduced_motion="reduce")  # type: ignore[arg-type]
    page, shots = phone.new_page(), []
    page.goto(f"{running.url}/c/{running.german}")
    page.wait_for_selector("#begin:visible")
    shots.append(page.screenshot())
    page.click("#begin")
    page.locator("#fields > .field:visible label").nth(1).click()
    shots.append(page.screenshot())
    page.click("#back")
    _answer(page)
    page.evaluate("scrollTo(0, 0)")
    shots.append(page.screenshot())
    page.click("#send")
    page.wait_for_selector("#receipt")
    page.evaluate("scrollTo(0, 0)")
    shots.append(page.screenshot())
    phone.close()
    return shots


def _strip(browser: Browser, shots: list[bytes], file: Path) -> None:
    """Put pictures side by side into one."""
    pictures = "".join(
        f'<img src="data:image/png;base64,{base64.b64encode(shot).decode()}">' for shot in shots
    )
    style = "body{margin:0;display:inline-flex;gap:16px;padding:16px;background:#cfd6dd}img{width:300px}"
    page = browser.new_page()
    page.set_content(f"<style>{style}</style><body>{pictures}")
    page.locator("body").screenshot(path=file)
    page.close()
    print(file)


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
    page.wait_for_selector("text=Everyone can read it")
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
    page.goto(f"{running.url}/releases/{running.published}?by=way&by=satisfied&g2below=45")
    page.wait_for_selector("main svg")


if __name__ == "__main__":
    main()
