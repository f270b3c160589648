"""What every page keeps to, whoever looks: headers, hashes of files, and pages that tell nothing."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import zipfile
from pathlib import Path

import pytest
from collector_harness import Caller, ServerThread
from web_harness import Visitor

STATIC = Path(__file__).parents[2] / "src" / "dither" / "collector" / "pages" / "static"


@pytest.fixture
def visitor(running: ServerThread) -> Visitor:
    return Visitor(running.url)


def test_every_page_forbids_what_it_does_not_need(visitor: Visitor) -> None:
    for path in ("/", "/nothing-here", "/c/" + "0" * 32):
        answer = visitor.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r'style="|<style|<script>|\son[a-z]+="|javascript:', answer.text)


def test_files_are_kept_under_their_hash_and_under_no_other(visitor: Visitor) -> None:
    page = visitor.get("/").text
    addresses = re.findall(r'"(/static/[^"]+)"', page)
    assert len(addresses) >= 3
    for address in addresses:
        answer = visitor.get(address)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
        name = address.split("/")[3]
        if name != "dither.css":  # several files
            assert answer.body == (STATIC / name).read_bytes()
        other = address.replace(address.split("/")[2], "0" * 16)
        assert visitor.get(other).status == 404
    for path in ("/static/../pages.py", "/static/%2e%2e/pages.py", "/static/x/..%2fpages.py"):
        assert visitor.get(path).status == 404


def test_the_encoder_is_the_one_of_the_repository_and_its_hash_is_told(visitor: Visitor) -> None:
    for name in ("dither.d.ts", "dither.js"):
        source = (Path(__file__).parents[2] / "js" / name).read_bytes()
        assert visitor.get(f"/{name}").body == source
    assert hashlib.sha256(source).hexdigest() in visitor.get("/").text


def test_browsers_read_pages_and_machines_problem_details(visitor: Visitor) -> None:
    page = visitor.get("/nothing")
    assert page.status == 404
    assert page.headers["content-type"].startswith("text/html")
    for path in ("/nothing", "/v1/campaigns/" + "0" * 32):
        problem = visitor.get(path, accept="*/*")
        assert problem.status == 404
        assert json.loads(problem.body)["type"].startswith("urn:dither:problem:")
    assert (
        json.loads(visitor.get("/v1/nothing").body)["status"] == 404
    )  # the API speaks one language


def test_a_failure_tells_a_browser_nothing(
    visitor: Visitor, running: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(campaign: str) -> None:
        raise ZeroDivisionError("the password is swordfish")

    monkeypatch.setattr(running.collector.campaigns, "get", fail)
    answer = visitor.get("/c/" + "0" * 32)
    assert answer.status == 500
    assert "swordfish" not in answer.text
    assert "ZeroDivision" not in answer.text
    assert "could not do this now" in answer.text


def test_a_wheel_has_every_file_that_a_page_needs(tmp_path: Path) -> None:
    """Built by the back end itself, without a network."""
    from hatchling.builders.wheel import WheelBuilder

    built = next(
        WheelBuilder(str(Path(__file__).parents[2])).build(
            directory=str(tmp_path), versions=["standard"]
        )
    )
    with zipfile.ZipFile(built) as wheel:
        names = set(wheel.namelist())
    package = Path(__file__).parents[2] / "src" / "dither"
    for folder in ("collector/pages/templates", "collector/pages/static", "release/templates"):
        for path in (package / folder).rglob("*"):
            if path.is_file():
                assert f"dither/{path.relative_to(package)}" in names
    assert {
        "dither/collector/pages/static/encoder/dither.js",
        "dither/collector/pages/static/encoder/dither.d.ts",
    } <= names


def test_the_container_is_built_from_everything_that_the_wheel_needs() -> None:
    root = Path(__file__).parents[2]
    forced = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    copied = (root / "deploy" / "Containerfile").read_text()
    assert forced["force-include"]
    for source in forced["force-include"]:
        assert f" {source} " in copied


def test_the_first_page_says_nothing_of_a_private_campaign(
    visitor: Visitor, running: ServerThread
) -> None:
    before = visitor.get("/").body
    caller = Caller(running.url)
    caller.create(name="A secret survey")
    caller.connection.close()
    assert visitor.get("/").body == before
