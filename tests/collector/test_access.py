"""Keys with roles, sessions, the limit on sign-ins and the audit log: on both databases, over HTTP, and between collectors."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from collector_harness import (
    KEY,
    Caller,
    Cluster,
    ServerThread,
    describe,
    envelope_of,
    plan_of,
    token_of,
)

from dither import cli
from dither.client import Answer
from dither.collector import (
    Collector,
    Keys,
    PostgresStore,
    Principal,
    Problem,
    Sessions,
    Store,
    acting,
    limits,
)
from dither.errors import ParameterError, StateError

Opening = Callable[[], Store]
ITSELF = "(collector)"
CURATOR, READER = Principal("operator", "curator"), Principal("ann", "reader")


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.time = 1_000_020.0

    def __call__(self) -> float:
        return self.time


def opened(open_store: Opening) -> tuple[Store, Keys, Sessions, Clock]:
    store, clock = open_store(), Clock()
    held = Keys(store.keys, shared=False)
    held.adopt(KEY)
    return store, held, Sessions(store.sessions, held, clock), clock


def everything_stored(store: Any) -> str:
    """All that is in the tables about operators, as text."""
    with store._read(5) as connection:
        rows = [
            tuple(row)
            for table in ("keys", "sessions", "sign_ins", "audit")
            for row in connection.execute(sa.text(f"SELECT * FROM {table}"))
        ]
    return repr(rows)


def test_keys_are_told_apart_and_neither_they_nor_cookies_are_kept(open_store: Opening) -> None:
    store, held, signed, _ = opened(open_store)
    made = held.create("ann", "reader")
    cookie, session = signed.sign_in(made)
    assert (held.match(KEY), held.match(made), held.match(made + "x"), held.match("")) == (
        CURATOR,
        READER,
        None,
        None,
    )
    assert signed.find(cookie) == session
    assert session.principal == READER
    text = everything_stored(store)
    assert repr(hashlib.sha256(made.encode()).digest()) in text, (
        "the check below looks at the right tables"
    )
    assert not any(secret in text for secret in (KEY, made, cookie, session.csrf))


def test_a_revoked_key_is_over_with_its_sessions_and_its_name_stays_taken(
    open_store: Opening,
) -> None:
    store, held, signed, _ = opened(open_store)
    made = held.create("ann", "reader")
    cookie, other = signed.sign_in(made)[0], signed.sign_in(KEY)[0]
    held.revoke("ann")
    assert held.match(made) is None
    assert signed.find(cookie) is None
    assert signed.find(other) is not None
    with pytest.raises(Problem, match="not a key"):
        signed.sign_in(made)
    with pytest.raises(StateError, match="another name"):
        held.create("ann", "curator")
    with pytest.raises(ParameterError, match="no key 'ann'"):
        held.revoke("ann")
    assert [(k.name, k.role, k.revoked is None) for k in store.keys.listed()] == [
        ("ann", "reader", False),
        ("operator", "curator", True),
    ]


def test_the_last_curator_stays(open_store: Opening) -> None:
    _, held, _, _ = opened(open_store)
    held.create("ann", "reader")
    with pytest.raises(StateError, match="only curator key"):
        held.revoke("operator")
    held.create("bob", "curator")
    held.revoke("operator")
    with pytest.raises(StateError, match="only curator key"):
        held.revoke("bob")


def test_another_key_file_replaces_the_operator_and_a_revoked_one_does_not_come_back(
    open_store: Opening,
) -> None:
    store, held, signed, _ = opened(open_store)
    cookie = signed.sign_in(KEY)[0]
    held.adopt(KEY)  # as each start does
    assert [e.what for e in store.audit.entries()] == ["sign-in", "create-key"]
    held.adopt("another key for this file")
    assert held.match(KEY) is None
    assert signed.find(cookie) is None
    assert held.match("another key for this file") == CURATOR
    held.create("bob", "curator")
    held.revoke("operator")
    held.adopt("another key for this file")
    assert held.match("another key for this file") is None
    held.adopt("a third key for this file")
    assert held.match("a third key for this file") == CURATOR
    held.adopt("another key for this file")  # by a collector that still has the old file
    assert held.match("another key for this file") is None
    assert held.match("a third key for this file") == CURATOR
    shown = {record.name: record.revoked is None for record in held.listed()}
    assert shown == {"bob": True, "operator": True, "operator (1)": False}


@pytest.mark.parametrize("name", ["", "a b", "é", "-a", "a" * 65, "x\n", "<b>", ITSELF, "a/b"])
def test_names_that_no_list_or_address_could_show_are_refused(tmp_path: Path, name: str) -> None:
    from dither.collector import SqliteStore

    store = SqliteStore(tmp_path / "c.db")
    held = Keys(store.keys, shared=False)
    with pytest.raises(ParameterError, match="cannot name a key"):
        held.create(name, "reader")
    with pytest.raises(ParameterError, match="role"):
        held.create("ann", "owner")
    assert store.keys.listed() == []
    store.close()


def test_sessions_end_by_time_and_sign_out_and_are_bounded(open_store: Opening) -> None:
    _, _, signed, clock = opened(open_store)
    first = signed.sign_in(KEY)[0]
    clock.time += limits.SESSION_SECONDS - 1
    assert signed.find(first) is not None
    clock.time += 1
    assert signed.find(first) is None
    second = signed.sign_in(KEY)[0]
    signed.sign_out(second)
    signed.sign_out(second)
    assert signed.find(second) is None
    cookies = []
    for _ in range(limits.MAX_SESSIONS + 2):
        clock.time += 1
        cookies.append(signed.sign_in(KEY)[0])
    assert [signed.find(c) is not None for c in cookies] == [
        False,
        False,
        *[True] * limits.MAX_SESSIONS,
    ]


def test_a_form_carries_the_token_of_its_own_session(open_store: Opening) -> None:
    _, _, signed, _ = opened(open_store)
    (_, one), (_, two) = signed.sign_in(KEY), signed.sign_in(KEY)
    assert one.allows(one.csrf)
    assert not any(one.allows(token) for token in (two.csrf, "", "é", one.csrf + "0"))


def test_failed_sign_ins_are_bounded_for_all_together_and_good_ones_do_not_count(
    open_store: Opening,
) -> None:
    store, held, signed, clock = opened(open_store)
    elsewhere = Sessions(store.sessions, held, clock)
    for i in range(limits.MAX_FAILURES):
        signed.sign_in(KEY)
        with pytest.raises(Problem, match="not a key"):
            (signed, elsewhere)[i % 2].sign_in(f"wrong {i}")
    for either in (signed, elsewhere, signed):
        with pytest.raises(Problem, match="too many sign-ins"):
            either.sign_in(KEY)
    clock.time += limits.FAILURES_SECONDS
    assert signed.sign_in(KEY)[1].principal == CURATOR
    assert "wrong" not in everything_stored(store)


def test_strangers_cannot_make_the_store_write_for_every_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dither.collector import SqliteStore

    store, clock = SqliteStore(tmp_path / "c.db"), Clock()
    signed = Sessions(store.sessions, Keys(store.keys, shared=False), clock)
    tries = 0
    real = store.sessions.attempt

    def counted(span: int) -> int:
        nonlocal tries
        tries += 1
        return real(span)

    monkeypatch.setattr(store.sessions, "attempt", counted)
    for _ in range(limits.MAX_FAILURES + 50):
        with pytest.raises(Problem, match=r"not a key|too many sign-ins"):
            signed.sign_in("wrong")
    assert tries == limits.MAX_FAILURES + 1
    store.close()


def test_a_change_and_its_note_are_one_transaction(
    open_store: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, held, _, _ = opened(open_store)

    def broken(*given: object, **more: object) -> None:
        raise RuntimeError("the note cannot be written")

    collector = Collector(store)
    with acting("ann", "create"):
        live = collector.campaigns.create(describe(draft=True))
    monkeypatch.setattr("dither.collector.sql_store.note", broken)
    monkeypatch.setattr("dither.collector.keys.note", broken)
    with pytest.raises(RuntimeError):
        collector.campaigns.open(live.stored.id)
    with pytest.raises(RuntimeError):
        held.create("bob", "curator")
    with pytest.raises(RuntimeError):
        collector.campaigns.create(describe())
    assert [c.state.value for c in store.campaigns()] == ["draft"]
    assert [k.name for k in store.keys.listed()] == ["operator"]
    collector.writer.stop(5)


def test_what_nobody_pressed_for_has_the_collectors_name_and_its_day_alone(
    open_store: Opening,
) -> None:
    store = open_store()
    collector = Collector(store)
    collector.campaigns.create(describe())
    with acting("ann", "create"):
        collector.campaigns.create(describe())
    mine, own = store.audit.entries()
    assert (own.who, own.what, len(own.at)) == (ITSELF, "create", len("2026-01-01"))
    assert (mine.who, mine.what, mine.at[-1]) == ("ann", "create", "Z")
    collector.writer.stop(5)


# --- over HTTP --------------------------------------------------------------------------------------------------------


def ask(
    caller: Caller, method: str, path: str, body: Any = None, key: str = KEY, **headers: str
) -> Answer:
    sent = None if body is None else json.dumps(body).encode()
    given = {"authorization": f"Bearer {key}"} if key else {}
    return caller.connection.request(
        method, path, sent, {"content-type": "application/json", **given, **headers}
    )


def reader_of(caller: Caller, name: str = "ann", role: str = "reader") -> str:
    answer = ask(caller, "POST", "/v1/admin/keys", {"name": name, "role": role})
    assert answer.status == 201, answer
    return str(json.loads(answer.body)["key"])


def operators_routes(server: ServerThread) -> list[tuple[str, str]]:
    described = json.loads(Caller(server.url).connection.request("GET", "/openapi.json", None).body)
    return [
        (
            method.upper(),
            path.replace("{campaign}", "0" * 32)
            .replace("{number}", "0")
            .replace("{name}", "nobody"),
        )
        for path, entries in described["paths"].items()
        for method, entry in entries.items()
        if "operator" in entry["tags"]
    ]


def test_every_address_of_operators_wants_a_key_and_a_curators_to_change(
    server: ServerThread, caller: Caller
) -> None:
    reader = reader_of(caller)
    routes = operators_routes(server)
    assert len(routes) > 12
    for method, path in routes:
        for wrong in ("", "wrong", KEY[:-1], KEY + "x"):
            assert ask(caller, method, path, key=wrong, **{"content-length": "0"}).status == 401, (
                method,
                path,
            )
        answer = ask(caller, method, path, None if method == "GET" else {}, key=reader)
        assert (answer.status == 403) == (method != "GET"), (method, path, answer)
    assert json.loads(ask(caller, "POST", "/v1/admin/campaigns", {}, key=reader).body)[
        "type"
    ].endswith("forbidden")


def test_every_change_is_in_the_log_under_its_key(caller: Caller, server: ServerThread) -> None:
    bob = reader_of(caller, "bob", "curator")
    campaign = json.loads(
        ask(caller, "POST", "/v1/admin/campaigns", describe(draft=True), key=bob).body
    )["campaign"]
    base = f"/v1/admin/campaigns/{campaign}"
    assert ask(caller, "POST", f"{base}/open", {}, key=bob).status == 200
    body = envelope_of(
        campaign, plan_of(caller.announcement(campaign)), [token_of(i) for i in range(80)]
    )
    assert caller.upload(campaign, body).status == 201
    assert ask(caller, "POST", f"{base}/close-round", {"round": 0}, key=KEY).status == 200
    assert ask(caller, "POST", f"{base}/finalise", {"rows": 10}, key=bob).status == 200
    assert (
        ask(caller, "POST", f"{base}/finalise", {"rows": 10}, key=bob).status == 200
    )  # which changes nothing
    ask(caller, "POST", f"{base}/close-round", {"round": 9}, key=bob)  # refused
    found = json.loads(ask(caller, "GET", f"/v1/audit?campaign={campaign}").body)["entries"]
    assert [(e["who"], e["what"], e["detail"]) for e in reversed(found)] == [
        ("bob", "create", "draft, round 0"),
        ("bob", "open", "draft, round 0, to open, round 0"),
        ("operator", "close-round", "open, round 0, to closing, round 0"),
        ("operator", "close-round", "closing, round 0, to collected, round 0"),
        ("bob", "finalise", "collected, round 0, to finalised, round 0"),
    ]
    tokens = json.loads(
        ask(caller, "POST", "/v1/admin/campaigns", describe(participation="tokens")).body
    )["campaign"]
    assert ask(caller, "POST", f"/v1/admin/campaigns/{tokens}/tokens", {"count": 3}).status == 201
    assert ask(caller, "POST", "/v1/admin/keys/bob/revoke", {}).status == 200
    latest = json.loads(ask(caller, "GET", "/v1/audit?most=2").body)["entries"]
    assert [(e["what"], e["detail"]) for e in latest] == [
        ("revoke-key", "bob"),
        ("issue-tokens", "3 tokens"),
    ]
    earlier = json.loads(
        ask(caller, "GET", f"/v1/audit?most=1&before={latest[-1]['number']}").body
    )["entries"]
    assert earlier[0]["what"] == "create"
    assert ask(caller, "GET", base, key=bob).status == 401


def test_a_session_reads_and_changes_only_with_its_token(
    server: ServerThread, caller: Caller
) -> None:
    value, session = server.collector.sessions.sign_in(KEY)
    cookie = {"cookie": f"dither-session={value}"}
    path = "/v1/admin/campaigns"
    assert ask(caller, "GET", path, key="", **cookie).status == 200
    assert ask(caller, "GET", path, key="", cookie="dither-session=wrong").status == 401
    assert ask(caller, "GET", path, key="", cookie=f"__Host-dither-session={value}").status == 401
    assert ask(caller, "POST", path, describe(), key="", **cookie).status == 403
    assert (
        ask(
            caller, "POST", path, describe(), key="", **cookie, **{"x-dither-csrf": "0" * 64}
        ).status
        == 403
    )
    assert (
        ask(
            caller, "POST", path, describe(), key="", **cookie, **{"x-dither-csrf": session.csrf}
        ).status
        == 201
    )
    assert ask(caller, "GET", path, key="wrong", **cookie).status == 401, (
        "a wrong key is not made good by a cookie"
    )
    server.collector.sessions.sign_out(value)
    assert ask(caller, "GET", path, key="", **cookie).status == 401


def test_a_key_made_elsewhere_counts_at_once_and_strangers_bring_about_few_looks(
    tmp_path: Path,
) -> None:
    from dither.collector import SqliteStore

    store = SqliteStore(tmp_path / "c.db")
    here, there = Keys(store.keys, shared=True), Keys(store.keys, shared=True)
    looks: list[float] = []
    original = here.refresh
    here.refresh = lambda: (looks.append(time.monotonic()), original())[1]  # type: ignore[method-assign]

    async def visit() -> None:
        here.refresh()
        made = await asyncio.to_thread(there.create, "ann", "reader")
        assert await here.identified(made) == READER
        before, begun = len(looks), time.monotonic()
        for _ in range(5):
            assert set(
                await asyncio.gather(*(here.identified(f"stranger {i}") for i in range(50)))
            ) == {None}
        assert len(looks) - before <= 2 + (time.monotonic() - begun) / limits.UNKNOWN_SECONDS
        assert len(looks) - before >= 5, "each after a look of its own"

    asyncio.run(visit())
    store.close()


@pytest.mark.slow
def test_collectors_of_one_database_share_keys_sessions_and_the_limit(cluster: Cluster) -> None:
    url = cluster.fresh()
    one, two = ServerThread(PostgresStore(url)), ServerThread(PostgresStore(url))
    first, second = Caller(one.url), Caller(two.url)
    made = reader_of(first)
    path = "/v1/admin/campaigns"
    assert ask(second, "GET", path, key=made).status == 200, "known to others at once"
    value, _ = one.collector.sessions.sign_in(made)
    assert ask(second, "GET", path, key="", cookie=f"dither-session={value}").status == 200
    for i in range(limits.MAX_FAILURES):
        with pytest.raises(Problem, match="not a key"):
            (one, two)[i % 2].collector.sessions.sign_in("wrong")
    with pytest.raises(Problem, match="too many sign-ins"):
        two.collector.sessions.sign_in(made)
    assert ask(first, "POST", "/v1/admin/keys/ann/revoke", {}).status == 200
    assert ask(second, "GET", path, key="", cookie=f"dither-session={value}").status == 401, (
        "at once everywhere"
    )
    two.collector.keys._read_at -= 2  # as after KNOWN_SECONDS
    assert ask(second, "GET", path, key=made).status == 401
    for running in (one, two):
        running.stop()


# --- on the command line ----------------------------------------------------------------------------------------------


def test_keys_on_the_command_line(
    server: ServerThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DITHER_URL", server.url)
    Path("dither-admin.key").write_text(KEY)

    def run(*words: str) -> tuple[int, str, str]:
        status = cli.run(list(words))
        return status, *capsys.readouterr()

    assert run("key", "create", "ann", "-o", "ann.key") == (0, "ann.key\n", "")
    assert stat.S_IMODE(Path("ann.key").stat().st_mode) == 0o600
    status, printed, _ = run("key", "create", "bob", "--role", "curator")
    assert status == 0
    assert hashlib.sha256(printed.strip().encode()).digest() in [
        digest for digest, _ in server.collector.keys._active
    ]
    status, listed, _ = run("key", "list")
    assert [line.split()[:2] for line in listed.splitlines()] == [
        ["ann", "reader"],
        ["bob", "curator"],
        ["operator", "curator"],
    ]
    assert run("campaign", "status", "--key-file", "ann.key")[0] == 0
    for words, said in (
        (("key", "create", "carl", "--key-file", "ann.key"), "answered 403"),
        (("key", "create", "ann"), "another name"),
        (("key", "create", "a b"), "cannot name a key"),
        (("key", "create", "dora", "-o", "ann.key"), "name a new file"),
        (("key", "revoke", "nobody"), "no key 'nobody'"),
        (("key", "create", "dora", "--role", "king"), "king"),
    ):
        status, out, complaint = run(*words)
        assert (status, out) == (2, ""), words
        assert said in complaint, complaint
        assert complaint.count("\n") == 1
    assert run("key", "revoke", "ann") == (0, "ann is revoked\n", "")
    assert run("campaign", "status", "--key-file", "ann.key")[0] == 2
    status, log, _ = run("key", "audit", "--most", "2")
    assert [line.split()[1:] for line in log.splitlines()] == [
        ["operator", "revoke-key", "ann"],
        ["operator", "create-key", "bob,", "curator"],
    ]
