"""A request's Host header stands in no public answer: a cache would show one visitor's header to the next."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from collector_harness import Caller, ServerThread, answers_of, plan_of

from dither import cli
from dither.collector import SqliteStore, add_pages
from dither.methods.mean import Mean

HOSTILE = "hostile.example"
PUBLIC = "https://survey.example.org"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerThread, str, str]]:
    """A collector with a listed open campaign and a published release."""
    server = ServerThread(SqliteStore(tmp_path_factory.mktemp("hosts") / "c.db"), pages=add_pages)
    caller = Caller(server.url, 120)
    schema = Mean.schema_of("pay", 0.0, 60.0)
    first, second = (
        caller.create(
            schema=schema.to_json(), participants=50, method="mean", title="Pay", listed=True
        )
        for _ in "ab"
    )
    body = answers_of(second, plan_of(caller.announcement(second)), schema, 50)
    assert caller.upload(second, body).status == 201
    for step, sent in (("close-round", {"round": 0}), ("finalise", {})):
        assert caller.admin("POST", f"/{second}/{step}", sent).status == 200
    server.collector.publications.publish(second)
    caller.connection.close()
    yield server, first, second
    server.stop()


def ask(
    url: str, path: str, host: str, accept: str = "text/html"
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(
            "GET", path, None, {"host": host, "accept": accept, "x-forwarded-host": host}
        )
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def crawl(url: str, starts: list[str], host: str) -> dict[str, tuple[int, str]]:
    """Every address that the first ones lead to, with the status and all that was answered: headers and body."""
    waiting, seen = list(starts), dict[str, tuple[int, str]]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        status, headers, body = ask(url, path, host)
        seen[path] = (status, f"{headers} {body}")
        if "html" in headers.get("content-type", ""):
            found = re.findall(r'(?:href|src|action)="([^"]*)"', body)
            waiting += [unescape(link).partition("#")[0] for link in found if link.startswith("/")]
    return seen


@pytest.mark.parametrize("configured", [None, PUBLIC])
@pytest.mark.slow
def test_no_public_answer_repeats_the_host_header(
    running: tuple[ServerThread, str, str], configured: str | None
) -> None:
    server, campaign, release = running
    server.collector.public_url = configured
    starts = [
        "/",
        "/console",
        "/docs",
        "/openapi.json",
        "/absent",
        "/absent/",
        f"/c/{campaign}",
        f"/c/{campaign}/",
    ]
    starts += [
        f"/releases/{release}{below}"
        for below in ("", "/ask", "/download", "/citation.bib", "/compare")
    ]
    starts += [
        f"/v1/campaigns/{campaign}",
        f"/v1/releases/{release}",
        "/v1/campaigns/absent",
        "/metrics",
        "/ready",
    ]
    pages = crawl(server.url, starts, HOSTILE)
    assert len(pages) > 25
    assert not [path for path, (_, text) in pages.items() if HOSTILE in text]
    assert pages[f"/c/{campaign}"][0] == pages[f"/releases/{release}/download"][0] == 200
    shown = [pages[f"/c/{campaign}"][1], pages[f"/releases/{release}/download"][1]]
    bib = pages[f"/releases/{release}/citation.bib"][1]
    if configured is None:
        assert all("data-origin" in text for text in shown), "the browser fills in its own address"
        assert "url = " not in bib
    else:
        assert f"curl -s {PUBLIC}/scripts" in shown[0]
        assert f"{PUBLIC}/releases/{release}" in shown[1]
        assert f"url = {{{PUBLIC}/releases/{release}}}" in bib


@pytest.mark.parametrize(
    "given",
    [
        "survey.example.org",
        "ftp://x.example",
        "https://",
        "https://x.example/path",
        "https://a@b",
        'https://x"',
        "https://x:y",
    ],
)
def test_a_public_address_that_is_none_is_refused_in_one_line(
    tmp_path: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--store",
        str(tmp_path / "c.db"),
        "--key-file",
        str(tmp_path / "key"),
        "--port",
        "0",
    ]
    assert cli.run(["serve", *options, "--public-url", given]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "--public-url" in lines[0]
    assert "https://survey.example.org" in lines[0]
    assert not list(tmp_path.iterdir())
