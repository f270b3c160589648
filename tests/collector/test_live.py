"""Watching a campaign: the counts are those of the store, one look serves all, and a stream ends with the server."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from collector_harness import KEY, Caller, ServerThread, envelope_of, plan_of, token_of, until

from dither.collector import live
from dither.collector.live import LiveProgress
from dither.collector.store import StoreAway


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
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.05)
    campaign = caller.create()
    stream = Stream(server.url, campaign)
    assert stream.answer.getheader("content-type", "").startswith("text/event-stream")
    kind, first = stream.next()
    assert (kind, first["state"], first["round"], first["reports"], first["refused"]) == ("message", "open", 0, 0, {})
    assert send(caller, campaign, 0, 40) == 201
    told = stream.next()[1]
    assert told["reports"] == sum(told["answers"].values()) == 40
    stored = server.collector.store.reports(campaign, 0)
    questions = [row.question for page in stored for row in page]
    assert {int(q): n for q, n in told["answers"].items()} == {q: questions.count(q) for q in set(questions)}
    plan = plan_of(caller.announcement(campaign))
    again = caller.upload(campaign, envelope_of(campaign, plan, [token_of(i) for i in range(40)], noise="other"))
    conflicts = json.loads(again.body)["results"].count("conflict")
    assert conflicts > 0
    assert caller.upload(campaign, b"nonsense").status == 400
    refused = {"bad-envelope": 1, "conflict": conflicts}
    until(lambda: stream.next()[1]["refused"] == refused)
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0, "hold": True}).status == 200
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
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.3)
    campaign = caller.create()
    looks = 0
    real = server.collector.store.answers

    def counted(campaign: str, number: int) -> dict[int, int]:
        nonlocal looks
        looks += 1
        return real(campaign, number)

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

    def answers(self, campaign: str, number: int) -> dict[int, int]:
        self.looks += 1
        time.sleep(self.seconds)
        if self.away:
            raise StoreAway("gone")
        return {0: self.looks}


class OneCampaign:
    """Campaigns of which there is one, open in round 0."""

    class stored:
        round = 0

        class state:
            value = "open"

    def get(self, campaign: str) -> Any:
        return self


def test_the_more_watch_and_the_longer_it_takes_the_seldomer_it_is_looked() -> None:
    watched = live._Watched()
    watching: Any = LiveProgress(OneCampaign(), Slow(0))  # type: ignore[arg-type]
    assert watching._pause(watched) == live.EVERY_SECONDS
    watching._watched["x"] = live._Watched(watchers=1000)
    assert 1000 * live.PER_WATCHER / watching._pause(watched) <= live.SHARE + 1e-9
    watched.took = 2.0
    assert watching._pause(watched) == 2.0 / live.LOOK_SHARE


def test_many_who_ask_at_once_share_a_look_and_a_store_that_comes_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.02)
    store = Slow(0.05)

    async def scene() -> None:
        watching = LiveProgress(OneCampaign(), store)  # type: ignore[arg-type]
        found = await asyncio.gather(*(watching.now("c") for _ in range(50)))
        assert (store.looks, {p.reports for p in found}) == (1, {1})
        monkeypatch.setattr(live, "LOOK_SHARE", 10.0)
        events = await watching.follow("c")
        assert (await anext(events)).startswith(b"retry")
        await anext(events)
        store.away = True
        await asyncio.sleep(0.2)
        store.away = False
        assert b"data: " in await anext(events)
        watching.end()
        assert len([event async for event in events]) < 3, "it ends"

    asyncio.run(scene())
