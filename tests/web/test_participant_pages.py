"""What a participant's page promises without a script: protection, consumers, languages, scripts."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, ServerThread, plan_of

from dither.cli import run
from dither.collector import SqliteStore, add_pages
from dither.collector.pages.participant import strength

YES_NO: dict[str, Any] = {
    "attributes": [{"name": "hiv", "kind": "boolean", "question": "Are you HIV positive?"}]
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(SqliteStore(tmp_path_factory.mktemp("pages") / "c.db"), pages=add_pages)
    yield server
    server.stop()


@pytest.fixture
def caller(running: ServerThread) -> Iterator[Caller]:
    made = Caller(running.url)
    yield made
    made.connection.close()


def text_of(page: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


@pytest.mark.parametrize(
    ("epsilon", "level"),
    [(0.1, "strong"), (1.0, "strong"), (1.01, "good"), (2.0, "good"), (4.0, "moderate"),
     (4.01, "weak"), (16.0, "weak")],
)  # fmt: skip
def test_the_strength_has_a_word_for_each_epsilon(epsilon: float, level: str) -> None:
    assert strength(epsilon).level == level


def test_a_weak_campaign_does_not_look_calm(caller: Caller) -> None:
    campaign = caller.create(schema=YES_NO, epsilon=16.0, epsilon_reason="A drill.")
    page = caller.connection.request("GET", f"/c/{campaign}", None).body
    assert b'class="strength weak"' in page
    text = text_of(page)
    assert "somebody could be almost certain of your answer" in text
    assert "A drill." in text
    assert "nobody can" not in text.lower()


def test_consumers_of_a_number_are_named_and_the_epsilon_is_the_one_used(caller: Caller) -> None:
    schema = {"attributes": [{"name": "pay", "kind": "numeric", "edges": [*range(0, 101, 10)]}]}
    consumers = [
        {"name": "Treasury", "bins": 2, "epsilon": 1.0},
        {"name": "Union <b>", "bins": 5, "epsilon": 0.5},
    ]
    campaign = caller.create(schema=schema, method="chp", epsilon=2.0, consumers=consumers)
    page = caller.connection.request("GET", f"/c/{campaign}", None).body.decode()
    used = plan_of(caller.announcement(campaign)).epsilon
    assert f'data-epsilon="{used}"' in page
    assert used < 2.0
    assert "Treasury" in page
    assert "Union &lt;b&gt;" in page
    assert "each of 5 ranges" in page


def test_the_page_speaks_the_language_that_is_asked_for(caller: Caller) -> None:
    schema = {
        "attributes": [
            {
                "name": "hiv",
                "kind": "boolean",
                "question": {"de": "Frage?", "ar": "سؤال؟"},
            }
        ]
    }
    title = {"de": "Umfrage", "ar": "استطلاع"}
    campaign = caller.create(schema=schema, title=title, language="de", closes="2097-03-31")
    for query, header, expected in (
        ("", "", ('lang="de" dir="ltr"', "Umfrage", "Beginnen", "31. März 2097", "Frage?")),
        ("", "ar, de;q=0.5", ('lang="ar" dir="rtl"', "استطلاع", "ابدأ", json.dumps("سؤال؟"))),
        ("?language=ar", "de", ('lang="ar" dir="rtl"', "استطلاع")),
        ("?language=fr", "fr", ('lang="de" dir="ltr"', "Umfrage")),
    ):
        headers = {"accept-language": header} if header else {}
        answer = caller.connection.request("GET", f"/c/{campaign}{query}", None, headers)
        for words in expected:
            assert words in answer.body.decode("utf-8"), (query, header, words)


def test_scripts_are_listed_as_they_are_served_and_as_installed(
    running: ServerThread, caller: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    listing = caller.connection.request("GET", "/scripts", None).body
    for line in listing.decode().splitlines():
        digest, name = line.split("  ")
        script = caller.connection.request("GET", f"/scripts/{name}", None).body
        assert hashlib.sha256(script).hexdigest() == digest
    short = hashlib.sha256(listing).hexdigest()[:32]
    page = caller.connection.request("GET", f"/c/{caller.create(schema=YES_NO)}", None).body
    assert f'data-scripts="{short}"'.encode() in page
    loaded = set(re.findall(r'src="/static/[0-9a-f]+/([\w.]+)"', page.decode()))
    assert loaded <= {line.split("  ")[1] for line in listing.decode().splitlines()}
    assert run(["scripts", "--hash"]) == 0
    assert capsys.readouterr().out == short + "\n"
    assert run(["scripts"]) == 0
    assert capsys.readouterr().out.encode() == listing
    assert caller.connection.request("GET", "/scripts/../answers.py", None).status == 404


def test_a_participant_loads_less_than_60_kilobytes(running: ServerThread, caller: Caller) -> None:
    listing = caller.connection.request("GET", "/scripts", None).body.decode().split()[1::2]
    total = 0
    for name in (*listing, "dither.css"):
        plain = caller.connection.request("GET", f"/scripts/{name}", None).body
        header = {"accept-encoding": "gzip"}
        packed = caller.connection.request("GET", f"/scripts/{name}", None, header).body
        assert gzip.decompress(packed) == plain
        total += len(packed)
    assert total < 60_000


def test_the_project_has_little_script_beside_the_encoder() -> None:
    folder = Path(__file__).parents[2] / "src" / "dither" / "collector" / "pages" / "static"
    lines = [line for path in folder.glob("*.js") for line in path.read_text().splitlines()]
    assert len(lines) <= 890
