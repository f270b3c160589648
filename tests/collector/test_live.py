"""Watching a campaign: the counts are those of the store, one look serves all, and a stream ends with the server."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from collector_harness import KEY, Caller, ServerThread, envelope_of, plan_of, token_of, until

from dither.collector import (
    Credential,
    LiveProgress,
    Store,
    StoreFailure,
    StoreUnavailable,
    limits,
    live,
)


class Stream:
    """Server-sent events as a browser hears them."""

    def __init__(self, url: str, campaign: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
        given = headers or {"authorization": f"Bearer {KEY}"}
        self._connection.request("GET", f"/v1/campaigns/{campaign}/events", headers=given)
        self.answer = self._connection.getresponse()

    def next(self) -> tuple[str, dict[str, Any]]:
        """The kind and the data of the next event."""
        kind = "message"
        while line := self.answer.readline().decode():
            if line.startswith("event: "):
                kind = line[7:].strip()
            if line.startswith("data: "):
                return kind, json.loads(line[6:])
        return "end", {}

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def send(caller: Caller, campaign: str, first: int, count: int) -> int:
    plan = plan_of(caller.announcement(campaign))
    return caller.upload(
        campaign, envelope_of(campaign, plan, [token_of(i) for i in range(first, first + count)])
    ).status


def progress(caller: Caller, campaign: str, key: str = KEY) -> tuple[int, dict[str, Any]]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    answer = caller.connection.request("GET", f"/v1/campaigns/{campaign}/progress", None, headers)
    return answer.status, json.loads(answer.body)


def test_events_tell_of_reports_by_question_refusals_and_states(
    server: ServerThread, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.05)
    campaign = caller.create()
    stream = Stream(server.url, campaign)
    assert stream.answer.getheader("content-type", "").startswith("text/event-stream")
    kind, first = stream.next()
    assert (kind, first["state"], first["round"], first["reports"], first["refused"]) == (
        "message",
        "open",
        0,
        0,
        {},
    )
    assert send(caller, campaign, 0, 40) == 201
    told = stream.next()[1]
    assert told["reports"] == sum(told["answers"].values()) == 40
    stored = server.collector.store.reports(campaign, 0)
    questions = [row.question for page in stored for row in page]
    assert {int(q): n for q, n in told["answers"].items()} == {
        q: questions.count(q) for q in set(questions)
    }
    plan = plan_of(caller.announcement(campaign))
    again = caller.upload(
        campaign, envelope_of(campaign, plan, [token_of(i) for i in range(40)], noise="other")
    )
    conflicts = json.loads(again.body)["results"].count("conflict")
    assert conflicts > 0
    assert caller.upload(campaign, b"nonsense").status == 400
    refused = {"bad-envelope": 1, "conflict": conflicts}
    until(lambda: stream.next()[1]["refused"] == refused)
    assert (
        caller.admin("POST", f"/{campaign}/close-round", {"round": 0, "hold": True}).status == 200
    )
    kind, told = stream.next()
    assert (kind, told["state"]) == ("state", "closing")
    stream.close()
    assert progress(caller, campaign)[1]["refused"] == refused


def test_strangers_hear_nothing_and_leave_nothing(server: ServerThread, caller: Caller) -> None:
    campaign = caller.create()
    assert progress(caller, campaign, "")[0] == progress(caller, "0" * 32, "")[0] == 401
    assert progress(caller, campaign, "wrong")[0] == 401
    refused = Stream(server.url, campaign, authorization="Bearer wrong")
    assert refused.answer.status == 401
    refused.close()
    assert progress(caller, "0" * 32)[0] == 404
    assert caller.upload("0" * 32, b"nonsense").status == 404
    assert server.collector.live._refused == {}
    value, _ = server.collector.sessions.sign_in(KEY)
    stream = Stream(server.url, campaign, cookie=f"dither-session={value}")
    assert stream.next()[1]["campaign"] == campaign
    stream.close()


def test_one_look_serves_all_who_watch_and_ends_with_them(
    server: ServerThread, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.3)
    campaign = caller.create()
    looks = 0
    real = server.collector.store.answers

    def counted(*arguments: Any) -> dict[int, int]:
        nonlocal looks
        looks += 1
        return real(*arguments)

    monkeypatch.setattr(server.collector.store, "answers", counted)
    begun = time.monotonic()
    streams = [Stream(server.url, campaign) for _ in range(30)]
    assert {json.dumps(stream.next()) for stream in streams}.__len__() == 1
    assert server.collector.live.watchers == 30
    assert send(caller, campaign, 0, 10) == 201
    assert {stream.next()[1]["reports"] for stream in streams} == {10}
    assert looks <= 3 + (time.monotonic() - begun) / 0.3
    for stream in streams:
        stream.close()
    until(lambda: server.collector.live.watchers == 0)
    settled = looks
    time.sleep(0.7)
    assert looks <= settled + 1


def test_a_stream_ends_with_the_server_at_once(server: ServerThread, caller: Caller) -> None:
    stream = Stream(server.url, caller.create())
    stream.next()
    caller.connection.close()
    begun = time.monotonic()
    server.stop()
    assert time.monotonic() - begun < 4, "it is not waited for until the grace is over"
    assert stream.next()[0] == "end"
    stream.close()


class Slow:
    """A store whose looks take long, or fail."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.away, self.looks = seconds, False, 0

    def answers(self, campaign: str, number: int, *_: object) -> dict[int, int]:
        self.looks += 1
        time.sleep(self.seconds)
        if self.away:
            raise StoreUnavailable("gone")
        return {0: self.looks}


class OneCampaign:
    """Campaigns of which there is one, open in round 0."""

    class stored:
        round = 0

        class state:
            value = "open"

    def get(self, campaign: str) -> Any:
        return self


class Connected:
    """A connection that somebody has taken over, who may read slowly."""

    def __init__(self) -> None:
        self.heard, self.closed, self.unread, self.left = b"", False, 0, lambda: None

    def take_over(self, left: Callable[[], None]) -> Any:
        self.left = left
        return self

    def write(self, data: bytes) -> None:
        self.heard += data

    def close(self) -> None:
        self.closed = True
        self.left()

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.unread


ANYBODY = Credential("key", b"")


def everybody(shown: set[Credential]) -> set[Credential]:
    return shown


def progress_over(store: Any, valid: live.ValidCredentials = everybody) -> LiveProgress:
    return LiveProgress(OneCampaign(), store, valid)  # type: ignore[arg-type]


def test_the_more_watch_and_the_longer_it_takes_the_seldomer_it_is_looked() -> None:
    watched = live._Watched()
    watching: Any = progress_over(Slow(0))
    assert watching._pause(watched) == limits.PROGRESS_SECONDS
    some = {live._Watcher(ANYBODY, 0.0) for _ in range(1000)}
    watching._watched["x"] = live._Watched(watchers=some)
    assert 1000 / watching._pause(watched) <= limits.EVENTS_PER_SECOND
    watched.count_seconds = 2.0
    assert watching._pause(watched) == 2.0 / limits.COUNT_SHARE


def test_many_who_ask_at_once_share_a_look_and_a_store_that_comes_back_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.02)
    store = Slow(0.05)

    async def scene() -> None:
        watching = progress_over(store)
        found = await asyncio.gather(*(watching.now("c") for _ in range(50)))
        assert (store.looks, {p.reports for p in found}) == (1, {1})
        monkeypatch.setattr(limits, "COUNT_SHARE", 10.0)
        connected = Connected()
        watching.follow("c", ANYBODY, connected.take_over)
        assert b"retry: " in connected.heard
        store.away = True
        await asyncio.sleep(0.2)
        heard = connected.heard.count(b"data: ")
        store.away = False
        await asyncio.sleep(0.2)
        assert connected.heard.count(b"data: ") > heard >= 1
        watching.end()
        assert connected.closed
        assert connected.heard.endswith(b"0\r\n\r\n"), "it ends, and says so"
        assert watching.watchers == 0
        late = Connected()
        watching.follow("c", ANYBODY, late.take_over)
        assert late.closed
        assert not watching.watchers

    asyncio.run(scene())


def test_who_reads_slowly_hears_the_latest_when_they_have_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(limits, "COUNT_SHARE", 10.0)
    monkeypatch.setattr(limits, "KEEPALIVE_SECONDS", 0.0)

    async def scene() -> None:
        watching = progress_over(Slow(0))
        await watching.now("c")
        slow, quick = Connected(), Connected()
        for connected in (slow, quick):
            watching.follow("c", ANYBODY, connected.take_over)
        before, slow.unread = len(slow.heard), 1
        await asyncio.sleep(0.2)
        assert len(slow.heard) == before, "nothing piles up behind what was not read"
        assert quick.heard.count(b"data: ") > 3
        slow.unread = 0
        await asyncio.sleep(0.1)
        assert slow.heard.count(b"data: ") >= 2
        gone = Connected()
        gone.take_over = lambda left: None  # type: ignore[assignment,method-assign,misc]
        watching.follow("c", ANYBODY, gone.take_over)
        assert watching.watchers == 2
        assert not gone.heard
        watching.end()

    asyncio.run(scene())


def test_a_thousand_who_watch_hear_of_a_closing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.02)
    monkeypatch.setattr(limits, "EVENTS_PER_SECOND", 1)  # counts come after a thousand seconds

    async def scene() -> None:
        campaigns, store = OneCampaign(), Slow(0)
        watching = LiveProgress(campaigns, store, everybody)  # type: ignore[arg-type]
        await watching.now("c")
        everyone = [Connected() for _ in range(1000)]
        for connected in everyone:
            watching.follow("c", ANYBODY, connected.take_over)
        await asyncio.sleep(0.1)
        looks = store.looks
        assert looks <= 2

        class closing:
            round = 0

            class state:
                value = "closing"

        campaigns.stored = closing  # type: ignore[assignment,misc]
        store.seconds = 0.3  # counting takes long, and nobody waits for it to hear of the state
        await asyncio.sleep(0.15)
        assert all(
            b'event: state\ndata: {"campaign":"c","state":"closing"' in c.heard for c in everyone
        )
        await asyncio.sleep(0.4)
        assert store.looks == looks + 1, "and what was stored last is counted"
        watching.end()

    asyncio.run(scene())


@pytest.mark.parametrize(
    "failure", [StoreUnavailable("gone"), StoreFailure("a statement that nobody foresaw")]
)
def test_a_key_is_looked_at_once_for_all_its_streams_and_a_store_that_fails_ends_none(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(limits, "KEY_CHECK_SECONDS", 0.02)
    asked: list[set[Credential]] = []
    revoked = Credential("key", b"revoked")

    def valid(shown: set[Credential]) -> set[Credential]:
        asked.append(shown)
        if len(asked) == 1:
            raise failure
        return shown - {revoked}

    async def scene() -> None:
        watching = progress_over(Slow(0), valid)
        await watching.now("c")
        kept, ended = [Connected() for _ in range(20)], [Connected() for _ in range(20)]
        for connected, credential in [
            *((c, ANYBODY) for c in kept),
            *((c, revoked) for c in ended),
        ]:
            watching.follow("c", credential, connected.take_over)
        while not asked:
            await asyncio.sleep(0.005)
        assert watching.watchers == 40
        await asyncio.sleep(0.1)
        assert all(c.closed for c in ended)
        assert not any(c.closed for c in kept)
        assert all(len(shown) <= 2 for shown in asked)
        watching.end()

    asyncio.run(scene())


def test_a_stream_ends_with_its_key_with_its_session_and_with_its_campaign(
    server: ServerThread, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEY_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.05)
    campaign, keys, sessions = caller.create(), server.collector.keys, server.collector.sessions
    key = keys.create("colleague", "reader")
    value, _ = sessions.sign_in(key)
    other, _ = sessions.sign_in(KEY)
    by_key = Stream(server.url, campaign, authorization=f"Bearer {key}")
    by_session = Stream(server.url, campaign, cookie=f"dither-session={value}")
    signed_out = Stream(server.url, campaign, cookie=f"dither-session={other}")
    stays = Stream(server.url, campaign)
    for stream in (by_key, by_session, signed_out, stays):
        assert stream.next()[1]["campaign"] == campaign
    keys.revoke("colleague")
    sessions.sign_out(other)
    for stream in (by_key, by_session, signed_out):
        assert stream.next()[0] == "end"
        stream.close()
    until(lambda: server.collector.live.watchers == 1)
    server.collector.campaigns._forget(campaign)  # as when another collector has deleted it
    assert stays.next()[0] == "end"
    stays.close()


def test_who_watches_holds_no_task_and_has_nothing_more_to_ask(
    server: ServerThread, caller: Caller
) -> None:
    campaign = caller.create()
    streams = [Stream(server.url, campaign) for _ in range(5)]
    for stream in streams:
        assert stream.answer.getheader("connection") == "close"
        stream.next()
    until(lambda: not server.server.server_state.tasks)
    raw = streams[0]._connection.sock
    if raw is None:  # the answer holds it, as it is to be closed
        raw = streams[0].answer.fp.raw._sock  # type: ignore[attr-defined]
    raw.sendall(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
    until(lambda: server.collector.live.watchers == 4)
    for stream in streams:
        stream.close()
    until(lambda: server.collector.live.watchers == 0)


def test_what_is_asked_behind_a_stream_ends_it(server: ServerThread, caller: Caller) -> None:
    """One packet with several requests, as somebody sends who wants to leave work behind."""
    campaign, (host, port) = caller.create(), urlsplit(server.url).netloc.split(":")
    head = f"GET /v1/campaigns/{campaign}/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as asking:
        asking.sendall(head.encode() + 3 * b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
        heard = b""
        while b"data: " not in heard:
            heard += asking.recv(1 << 16)
        assert b"live\n" not in heard
        assert server.collector.live.watchers == 1
        asking.sendall(b"GET")
        until(lambda: server.collector.live.watchers == 0)
    until(lambda: not server.server.server_state.tasks)


def test_a_slow_count_is_not_repeated_for_each_look(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.05)
    monkeypatch.setattr(limits, "COUNT_SHARE", 1e-9)  # as if a count took very long
    store = open_store()
    counts: list[int] = []
    real = store.answers

    def counted(*arguments: Any) -> dict[int, int]:
        counts.append(1)
        return real(*arguments)

    store.answers = counted  # type: ignore[method-assign]
    running = ServerThread(store)
    caller = Caller(running.url)
    campaign = caller.create()
    assert send(caller, campaign, 0, 10) == 201
    assert progress(caller, campaign)[1]["reports"] == 10
    assert send(caller, campaign, 10, 5) == 201
    assert send(caller, campaign, 10, 5) == 200, "these count for nothing"
    until(lambda: progress(caller, campaign)[1]["reports"] == 15)
    shown = progress(caller, campaign)[1]["answers"]
    assert shown == {str(key): count for key, count in sorted(real(campaign, 0).items())}
    assert len(counts) == 1
    running.collector.live.forget(campaign, 0)  # after a commit with an unknown outcome
    until(lambda: progress(caller, campaign)[1]["reports"] == 15 and len(counts) == 2)
    caller.connection.close()
    running.stop()


def test_reports_stored_during_a_count_are_counted_once(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROGRESS_SECONDS", 0.05)
    monkeypatch.setattr(limits, "COUNT_SHARE", 1e-9)
    store = open_store()
    running = ServerThread(store)
    caller = Caller(running.url)
    campaign = caller.create()
    assert send(caller, campaign, 0, 10) == 201
    real = store.answers

    def slow(campaign: str, number: int, in_turn: Any) -> dict[int, int]:
        def meanwhile(fix: Callable[[], Any]) -> Any:
            fixed = in_turn(fix)
            other = Caller(running.url)
            assert send(other, campaign, 10, 7) == 201
            other.connection.close()
            return fixed

        return real(campaign, number, meanwhile)

    store.answers = slow  # type: ignore[method-assign]
    assert progress(caller, campaign)[1]["reports"] == 17
    caller.connection.close()
    running.stop()
