"""The documentation site: built once, then read as a visitor's browser reads it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tools.api_reference import RETURNED

import dither

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_the_site_is_built_whole_and_asks_nobody_else(tmp_path: Path, window: Any) -> None:
    """One test, so that the site is built once however the suite is shared out."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "tools.site", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    _every_page_is_there(site)
    _the_reference_names_everything_public(
        (site / "reference" / "python.html").read_text(encoding="utf-8")
    )
    _notebooks_were_run(site)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        _nothing_is_fetched_elsewhere(window, f"http://127.0.0.1:{server.server_port}/")
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _every_page_is_there(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [path.relative_to(docs).with_suffix(".html").as_posix() for path in docs.rglob("*.md")]
    pages = ["index.html" if page == "README.html" else page for page in pages]
    pages += [
        "results.html",
        "changelog.html",
        "contributing.html",
        "security.html",
        "decisions/index.html",
    ]
    assert [page for page in pages if not (site / page).is_file()] == []
    indexed = json.dumps(json.loads((site / "search.json").read_text(encoding="utf-8")))
    assert "Errata in the papers" in indexed
    assert "with_replicates" in indexed


def _the_reference_names_everything_public(reference: str) -> None:
    names = [f"dither.{name}" for name in dither.__all__ if name != "__version__"]
    names += [f"{home}.{name}" for name, home in RETURNED.items()]
    assert [name for name in names if f'id="{name}"' not in reference] == []
    assert (
        "&gt;&gt;&gt;" in reference
    )  # examples stand in a fence, not in a quotation of a quotation
    assert "<blockquote>" not in reference


def _notebooks_were_run(site: Path) -> None:
    release = (site / "tutorial" / "in-a-notebook.html").read_text(encoding="utf-8")
    assert release.count('class="output"') >= 8
    assert "data:image/svg+xml;base64" in release
    assert "women with more than 50K: 11.36%" in release  # of the bundled table itself: no noise
    assert "tax office" in (site / "tutorial" / "many-consumers.html").read_text(encoding="utf-8")


def _nothing_is_fetched_elsewhere(window: Any, base: str) -> None:
    shade = ""
    # A visitor's choice of colours is kept there; the theme may write it after a page was judged.
    window.page.add_init_script("localStorage.clear()")
    for scheme, width in (("light", 1280), ("dark", 390)):
        for page in ("index.html", "tutorial/in-a-notebook.html", "reference/python.html"):
            window.visit(base + page, width, scheme)
            assert window.complaints == []
            assert [
                url for url in window.requests if not url.startswith((base, "data:", "blob:"))
            ] == []
            assert window.page.evaluate("document.documentElement.scrollWidth") <= width
        # The dark page is dark, once its script has run.
        window.page.wait_for_function(
            "other => getComputedStyle(document.body).backgroundColor !== other", arg=shade
        )
        shade = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    window.visit(base + "index.html", 1280)
    window.page.keyboard.press("Control+k")
    window.page.keyboard.type("compressed sensing")
    window.page.get_by_text("Central release", exact=False).last.wait_for(
        state="visible", timeout=60_000
    )
    assert [url for url in window.requests if not url.startswith((base, "data:", "blob:"))] == []
