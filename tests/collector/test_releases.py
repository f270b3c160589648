"""A published release over HTTP: who may read it, what may be asked, and that nobody's question is in the way of a report."""

from __future__ import annotations

import csv
import hashlib
import http.client
import io
import json
import signal
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from collector_harness import KEY, Caller, ServerThread, answers_of, describe, plan_of

from dither import cli
from dither.collector import Problem, Question, Questions, Releases, SqliteStore, limits
from dither.errors import ParameterError
from dither.release import load_release
from dither.schema import schema_from_json

pytestmark = pytest.mark.slow
NOWHERE = "0" * 32
EVIL = "=cmd|' /C calc'!A0"
SCHEMA = {
    "colour": {"kind": "categorical", "values": ["red", EVIL, "<script>"]},
    "member": {"kind": "boolean", "missing": True},
    "score": {"kind": "numeric", "edges": [0.0, 1.0, 5.0, 9.0]},
}


class Reply(NamedTuple):
    """What a server answered, headers and all."""

    status: int
    headers: dict[str, str]
    body: bytes


class Site:
    """A collector with a published release, one that is finalised, and an open campaign."""

    def __init__(self, folder: Path) -> None:
        self.server = ServerThread(SqliteStore(folder / "collector.db"))
        self.connection = http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=120)
        self.published = self.finalised("open data")
        self.private = self.finalised("kept back")
        self.open = self.created("still open")
        assert (
            self.ask("POST", f"/v1/admin/campaigns/{self.published}/publish-release", KEY).status
            == 200
        )

    def send(self, method: str, path: str, sent: bytes | None, headers: dict[str, str]) -> Reply:
        self.connection.request(method, path, sent, headers)
        found = self.connection.getresponse()
        return Reply(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())

    def ask(self, method: str, path: str, key: str = "", body: Any = None) -> Reply:
        sent = json.dumps(body or {}).encode() if method == "POST" else None
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {key}"} if key else {}
        )
        return self.send(method, path, sent, headers)

    def get(self, path: str, key: str = "", **query: Any) -> Reply:
        return self.ask("GET", path + (f"?{urlencode(query, doseq=True)}" if query else ""), key)

    def created(self, name: str) -> str:
        answer = self.ask("POST", "/v1/admin/campaigns", KEY, describe(name=name, schema=SCHEMA))
        assert answer.status == 201, answer
        return str(json.loads(answer.body)["campaign"])

    def finalised(self, name: str) -> str:
        campaign = self.created(name)
        plan = plan_of(json.loads(self.get(f"/v1/campaigns/{campaign}").body))
        body = answers_of(campaign, plan, schema_from_json(SCHEMA), 300)
        headers = {"content-type": "application/vnd.dither.reports"}
        assert self.send("POST", f"/v1/campaigns/{campaign}/reports", body, headers).status == 201
        assert (
            self.ask(
                "POST", f"/v1/admin/campaigns/{campaign}/close-round", KEY, {"round": 0}
            ).status
            == 200
        )
        assert (
            self.ask("POST", f"/v1/admin/campaigns/{campaign}/finalise", KEY, {"rows": 50}).status
            == 200
        )
        return campaign


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.connection.close()
    made.server.stop()


BELOW = (
    "",
    "/query?where=member",
    "/synthetic.parquet",
    "/synthetic.csv",
    "/folder.zip",
    "/query?where=(((&by=x",
)


@pytest.mark.parametrize("below", BELOW)
def test_what_is_not_public_looks_like_what_is_not_there(site: Site, below: str) -> None:
    answers = [
        site.get(f"/v1/releases/{campaign}{below}")
        for campaign in (site.private, site.open, NOWHERE, "no-id-at-all", "%00", "x" * 300)
    ]
    assert {a.status for a in answers} == {404}
    assert len({a.body for a in answers}) == 1
    assert len({tuple(sorted(a.headers.items())) for a in answers}) == 1
    assert site.published not in answers[0].body.decode()


def test_and_is_looked_for_in_the_same_way(site: Site) -> None:
    """The same statements, so the same time; a key leads further, which shows that the statements are seen at all."""
    store: Any = site.server.collector.store
    seen: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if statement.startswith("SELECT"):
            seen.append(statement)

    def statements(campaign: str, key: str = "") -> list[str]:
        seen.clear()
        site.get(f"/v1/releases/{campaign}", key)
        return list(seen)

    sa.event.listen(store._engine, "before_cursor_execute", note)
    try:
        found = [
            statements(campaign) for campaign in (site.private, site.open, NOWHERE, "no-id-at-all")
        ]
        further = statements(site.open, KEY)
    finally:
        sa.event.remove(store._engine, "before_cursor_execute", note)
    assert len(found[0]) == 1
    assert found == [found[0]] * 4
    assert len(further) > 1


def test_a_key_reads_everything_and_a_wrong_one_is_told_so(site: Site) -> None:
    reader = json.loads(
        site.ask("POST", "/v1/admin/keys", KEY, {"name": "ann", "role": "reader"}).body
    )["key"]
    for key in (KEY, reader):
        assert json.loads(site.get(f"/v1/releases/{site.private}", key).body)["published"] is False
        assert site.get(f"/v1/releases/{site.open}", key).status == 404
    for campaign in (site.published, site.private, NOWHERE):
        assert site.get(f"/v1/releases/{campaign}", "wrong").status == 401
    assert (
        site.ask("POST", f"/v1/admin/campaigns/{site.private}/publish-release", reader).status
        == 403
    )
    said = json.loads(site.get(f"/v1/releases/{site.private}/query", KEY, where="member").body)
    assert said["low"] is None
    assert "published" in said["warnings"][0]["message"]


def test_answers_are_those_of_the_folder(site: Site, tmp_path: Path) -> None:
    base = f"/v1/releases/{site.published}"
    archive = site.get(f"{base}/folder.zip").body
    zipfile.ZipFile(io.BytesIO(archive)).extractall(tmp_path / "release")
    release = load_release(tmp_path / "release")
    manifest = json.loads(site.get(base).body)
    assert manifest["sha256"] == hashlib.sha256(archive).hexdigest()
    assert (manifest["participants"], manifest["replicates"], manifest["published"]) == (
        300,
        20,
        True,
    )
    assert set(manifest["schema"]) >= {"attributes"}
    asked = {"where": "score < 5 and not member", "given": "colour != 'red'"}
    answer = json.loads(site.get(f"{base}/query", **asked).body)
    assert answer == release.query(asked["where"], asked["given"]).to_json()
    answer = json.loads(site.get(f"{base}/query", where="member").body)
    assert answer["low"] < answer["high"]
    table = release.table(["member", "colour"], where="score < 5").to_json()
    for by in ("member,colour", ["member", "colour"]):
        assert json.loads(site.get(f"{base}/query", by=by, where="score < 5").body) == table
    found = pq.read_table(io.BytesIO(site.get(f"{base}/query", by="colour", format="parquet").body))
    assert found.column("colour").to_pylist() == ["red", EVIL, "<script>"]


def test_no_spreadsheet_takes_a_label_for_a_formula(site: Site) -> None:
    base = f"/v1/releases/{site.published}"
    for path, query in (
        (f"{base}/query", {"by": "colour", "format": "csv"}),
        (f"{base}/synthetic.csv", {}),
    ):
        answer = site.get(path, **query)
        assert answer.headers["content-disposition"].startswith("attachment")
        rows = list(csv.reader(io.StringIO(answer.body.decode())))
        cells = {cell for row in rows for cell in row}
        assert "'" + EVIL in cells
        assert not [cell for cell in cells if cell[:1] in tuple("=@\t\r") or cell[:2] == "+="]
    assert pq.read_table(io.BytesIO(site.get(f"{base}/synthetic.parquet").body)).num_rows == 50


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "no question"),
        ({"where": "colur == 'red'"}, "colour"),
        ({"where": "colour == 'rad'"}, "red"),
        ({"where": "__import__('os')"}, ""),
        ({"where": "(" * 3000}, ""),
        ({"where": "not " * 900 + "member"}, ""),
        ({"by": "colour,colour"}, "each once"),
        ({"by": "nothing"}, "no attribute"),
        ({"where": "member", "format": "exe"}, "none of json"),
    ],
)
def test_a_question_that_cannot_be_answered_says_what_to_mend(
    site: Site, query: dict[str, str], said: str
) -> None:
    answer = site.get(f"/v1/releases/{site.published}/query", **query)
    assert answer.status == 422, answer
    assert said in json.loads(answer.body)["detail"]


def test_publishing_and_taking_it_back(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k").write_text(KEY)
    options = ["--url", site.server.url, "--key-file", str(tmp_path / "k")]
    assert cli.run(["campaign", "unpublish-release", site.published, *options]) == 0
    assert site.get(f"/v1/releases/{site.published}").status == 404
    assert site.server.collector.publications.public() == []
    assert cli.run(["campaign", "publish-release", site.published, *options]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1] == f"{site.server.url}/releases/{site.published}"
    )
    assert site.get(f"/v1/releases/{site.published}").status == 200
    assert (
        json.loads(site.get(f"/v1/admin/campaigns/{site.published}", KEY).body)["published"] is True
    )
    assert cli.run(["campaign", "publish-release", site.open, *options]) == 2
    assert "finalise it first" in capsys.readouterr().err
    entries = site.server.collector.store.audit.entries(site.published, most=3)
    assert [e.what for e in entries] == ["publish-release", "unpublish-release", "publish-release"]


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(site: Site) -> tuple[Questions, str, bytes]:
    held = site.server.collector.publications
    found = held.find(site.published, False)
    return site.server.collector.questions, found.digest, held.archive(found)


def test_a_question_that_takes_too_long_ends_and_the_next_one_is_answered(
    site: Site, asked: tuple[Questions, str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, digest, data = asked
    one.answer(digest, Question("member"), lambda: data)
    one._workers["answers"]._process.send_signal(signal.SIGSTOP)  # as if it were at work for ever
    monkeypatch.setattr(limits, "QUESTION_SECONDS", 0.2)
    with pytest.raises(ParameterError, match="longer than"):
        one.answer(digest, Question("member"), lambda: data)
    monkeypatch.undo()
    assert site.get(f"/v1/releases/{site.published}/query", where="member").status == 200


def test_so_many_wait_and_the_others_hear_it_at_once(asked: tuple[Questions, str, bytes]) -> None:
    one, digest, data = asked
    refused: list[Problem] = []
    with one._asking.turn:  # as if somebody asked something long

        def ask() -> None:
            try:
                one.answer(digest, Question("member"), lambda: data)
            except Problem as error:
                refused.append(error)

        threads = [threading.Thread(target=ask) for _ in range(limits.MAX_WAITING + 4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 20
        while len(refused) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert [error.cause for error in refused] == ["too-many-questions"] * 3


def test_releases_are_forgotten_before_they_take_too_much(
    asked: tuple[Questions, str, bytes],
) -> None:
    _, _, data = asked
    held = Releases(most=1)
    held.add("a", data)
    held.add("b", data)
    assert len(held) == 1
    assert held.get("a") is None
    kept = held.get("b")
    assert kept is not None
    assert len(kept.release.synthetic) == 0, "rows are not kept"


def test_the_limit_of_memory_holds(asked: tuple[Questions, str, bytes]) -> None:
    _, digest, data = asked
    small = Questions(memory=1 << 20)
    with pytest.raises(RuntimeError, match="while a release was read") as failed:
        small.answer(digest, Question("member"), lambda: data)
    assert "/" not in str(failed.value), "no path is told"
    small.stop()


def test_the_kernel_ends_the_bounded_process_first(asked: tuple[Questions, str, bytes]) -> None:
    one, digest, data = asked
    one.answer(digest, Question("member"), lambda: data)
    process = one._workers["answers"]._process.pid
    assert Path(f"/proc/{process}/oom_score_adj").read_text().strip() == "1000"


def test_a_session_reads_as_its_key_does(site: Site) -> None:
    value, _ = site.server.collector.sessions.sign_in(KEY)
    path = f"/v1/releases/{site.private}"
    answer = site.send("GET", path, None, {"cookie": f"dither-session={value}"})
    assert answer.status == 200
    assert hashlib.sha256(value.encode()).digest() not in answer.body


def test_uploads_go_on_while_a_question_is_answered(
    site: Site, asked: tuple[Questions, str, bytes]
) -> None:
    caller = Caller(site.server.url)
    plan = plan_of(caller.announcement(site.open))
    with asked[0]._asking.turn:
        body = answers_of(site.open, plan, schema_from_json(SCHEMA), 1)
        assert caller.upload(site.open, body).status in (200, 201)
