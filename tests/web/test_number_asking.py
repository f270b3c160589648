"""Questions about one number in a browser: the form asks what programs ask, and what it cannot ask ends in a sentence."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import pytest
from collector_harness import Caller, ServerThread, answers_of, plan_of
from web_harness import Visitor

from dither.collector import SqliteStore, add_pages
from dither.collector.pages.asking import read_form
from dither.collector.problems import Problem
from dither.collector.publications import Publications
from dither.methods.mean import Mean
from dither.schema import schema_from_json

SCHEMA = {
    "attributes": [{"name": "pay", "kind": "numeric", "edges": [0, 10, 20, 40, 60], "clip": True}]
}


@pytest.mark.parametrize(
    ("asked", "parameters", "python"),
    [
        ([], [], ""),
        (
            [("w0from", "10"), ("w0below", "20")],
            [("where", "pay >= 10 and pay < 20")],
            "release.query(where='pay >= 10 and pay < 20')",
        ),
        ([("w0from", " 10 ")], [("where", "pay >= 10")], "release.query(where='pay >= 10')"),
        ([("w0below", "20"), ("w0below", "30")], [("where", "pay < 20")], "where='pay < 20'"),
        ([("where", "pay < 5"), ("given", "x"), ("by", "pay")], [("where", "pay < 5")], "pay < 5"),
        (
            [("quantiles", "0.1,0.5")],
            [("quantiles", "0.1,0.5")],
            "release.quantile('pay', [0.1,0.5])",
        ),
        ([("bins", "9")], [("bins", "9")], "release.number.answer(9)"),
        ([("bins", "0,9")], [("bins", "0,9")], "release.number.answer([0,9])"),
        ([("figure", "mean"), ("by", "x")], [("figure", "mean")], "release.mean()"),
    ],
)
def test_what_is_typed_is_what_is_asked(
    asked: list[tuple[str, str]], parameters: list[tuple[str, str]], python: str
) -> None:
    form = read_form(schema_from_json(SCHEMA), asked, "pay")
    assert form.parameters == parameters
    assert form.asks == bool(parameters)
    assert python in form.python


@dataclass(frozen=True)
class Numbers:
    """Two published releases: one that keeps its cells, and a mean."""

    visitor: Visitor
    cells: str
    mean: str


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Numbers]:
    server = ServerThread(SqliteStore(tmp_path_factory.mktemp("numbers") / "c.db"), pages=add_pages)
    caller = Caller(server.url, 120)
    made = []
    for schema, more in (
        (SCHEMA, {"method": "chp", "consumers": [{"name": "all", "edges": [0, 10, 20, 40, 60]}]}),
        (Mean.schema_of("pay", 0.0, 60.0).to_json(), {"method": "mean"}),
    ):
        campaign = caller.create(schema=schema, participants=300, title="<b>Pay", **more)
        body = answers_of(
            campaign, plan_of(caller.announcement(campaign)), schema_from_json(schema), 300, "n"
        )
        assert caller.upload(campaign, body).status == 201
        for step, sent in (("close-round", {"round": 0}), ("finalise", {})):
            said = caller.admin("POST", f"/{campaign}/{step}", sent)
            assert said.status == 200, said
        server.collector.publications.publish(campaign)
        made.append(campaign)
    caller.connection.close()
    yield Numbers(Visitor(server.url), *made)
    server.stop()


@pytest.mark.slow
def test_the_page_gives_the_figures_that_programs_get(numbers: Numbers) -> None:
    below = f"/releases/{numbers.cells}"
    assert 'id="choose"' in numbers.visitor.get(below).text
    assert numbers.visitor.get(f"{below}/ask?bins=3").headers["location"] == f"{below}?bins=3"
    for query in (
        "w0from=5&w0below=25",
        "quantiles=0.25,0.5",
        "bins=12",
        "bins=0,20,60",
        "figure=mean",
    ):
        seen = numbers.visitor.get(f"{below}?{query}")
        assert seen.status == 200, query
        file = re.search(r'href="([^"]+format=json)"', seen.text)
        assert file, query
        answer = json.loads(numbers.visitor.get(file[1].replace("&amp;", "&")).body)
        for row in answer.get("rows", [answer]):
            assert row["low"] <= row["estimate"] <= row["high"], query
            share = query.startswith(("w0", "bins"))
            # A figure has as many digits as its interval allows.
            unit, scale = (" %", 100) if share else ("", 1)
            shown = [f">{scale * row['estimate']:,.{d}f}{unit}<" for d in range(5)]
            assert any(text in seen.text for text in shown), shown
        assert dict(parse_qsl(urlsplit(file[1]).query))


@pytest.mark.slow
def test_what_cannot_be_answered_is_said_in_its_place(numbers: Numbers) -> None:
    below = f"/releases/{numbers.cells}"
    for query, said in (
        ("bins=ten", "write numbers with commas"),
        ("w0from=5&bins=3", "at a time"),
        ("figure=<script>", "must be one of mean, variance"),
        ("w0from=nan", "nan"),
        ("quantiles=2", "quantile"),
    ):
        seen = numbers.visitor.get(f"{below}?{query}".replace("<", "%3C").replace(">", "%3E"))
        assert seen.status == 422, query
        assert said in seen.text.lower(), query
        assert "<script>" not in seen.text.lower()


@pytest.mark.slow
def test_a_mean_has_nothing_more_to_ask(numbers: Numbers) -> None:
    below = f"/releases/{numbers.mean}"
    seen = numbers.visitor.get(below)
    assert 'id="choose"' not in seen.text
    assert "The mean lies between" in seen.text
    assert numbers.visitor.get(f"{below}?bins=3").status == 422
    told = numbers.visitor.get(f"{below}/download").text
    assert "release.mean()" in told
    assert "release.answer" not in told
    assert "figure=mean" in told


@pytest.mark.slow
def test_a_busy_collector_says_so_on_every_view(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Problem("too-many-questions", "8 questions wait already; try again in a moment")

    monkeypatch.setattr(Publications, "explore", refuse)
    below = f"/releases/{numbers.cells}"
    for address in (below, f"{below}/embed", f"{below}/view.csv", f"{below}/view.svg"):
        seen = numbers.visitor.get(address)
        assert seen.status == 429, address
    assert "try again in a moment" in numbers.visitor.get(below).text
    for form in ("exe", "csv/../x", ""):
        assert numbers.visitor.get(f"{below}/view.{form}").status == 404


@pytest.mark.slow
def test_only_one_view_may_be_framed_and_pictures_have_a_style_of_their_own(
    numbers: Numbers,
) -> None:
    below = f"/releases/{numbers.cells}"
    policies = {
        part: numbers.visitor.get(f"{below}{part}").headers["content-security-policy"]
        for part in ("", "/report", "/download", "/embed", "/view.svg", "/view.csv")
    }
    assert {
        part for part, policy in policies.items() if "frame-ancestors 'none'" not in policy
    } == {"/embed"}
    assert not any("unsafe" in policy for policy in policies.values())
    assert "style-src 'sha256-" in policies["/view.svg"]
    picture = numbers.visitor.get(f"{below}/view.svg").text
    style = re.search(r"<style>(.*?)</style>", picture, re.DOTALL)
    assert style is not None
    digest = b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policies["/view.svg"]
