"""A device with a ticket can ask whether its report is stored, and nobody learns anything else from that."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, ServerThread, asked_tokens, envelope_of, plan_of, token_of

from dither.client import Answer
from dither.collector import (
    Batch,
    Collector,
    Outcome,
    QueueFull,
    SqliteStore,
    Store,
    StoreUnavailable,
    limits,
)
from dither.reports import report_id

Opening = Callable[[], Store]
PLAIN = {"epsilon": 1.0, "participants": 100, "method": "independent", "assignment": "token"}


@pytest.fixture
def running(open_store: Opening) -> Iterator[ServerThread]:
    made = ServerThread(open_store())
    yield made
    made.stop()


@pytest.fixture
def asking(running: ServerThread) -> Caller:
    return Caller(running.url)


def lookup(caller: Caller, campaign: str, body: bytes) -> Answer:
    return caller.connection.request("POST", f"/v1/campaigns/{campaign}/lookup", body)


def issue(caller: Caller, campaign: str, count: int) -> list[bytes]:
    issued = caller.admin("POST", f"/{campaign}/tokens", {"count": count})
    return [bytes.fromhex(token) for token in json.loads(issued.body)["tokens"]]


def test_a_report_is_stored_from_its_commit_on_and_in_its_own_campaign_only(asking: Caller) -> None:
    campaign, other = asking.create(participation="tokens"), asking.create(participation="tokens")
    used, unused, *others = issue(asking, campaign, 40)
    plan = plan_of(asking.announcement(campaign))
    own = report_id(used, bytes.fromhex(campaign), 0)
    before = lookup(asking, campaign, own)
    assert (before.status, before.body, before.content_type) == (
        200,
        b'{"stored":false}',
        "application/json",
    )
    assert asking.upload(campaign, envelope_of(campaign, plan, [used])).status == 201
    assert lookup(asking, campaign, own).body == b'{"stored":true}'
    strangers = (
        report_id(unused, bytes.fromhex(campaign), 0),  # issued and not used
        report_id(token_of(7), bytes.fromhex(campaign), 0),  # never issued
        report_id(used, bytes.fromhex(campaign), 1),  # of a round that is not there
        report_id(used, bytes.fromhex(campaign), None),
        used,  # the ticket itself, whose report's id is another
        own[:-1] + bytes([own[-1] ^ 1]),
        bytes(32),
    )
    for unknown in strangers:
        assert lookup(asking, campaign, unknown) == before
    assert lookup(asking, other, own) == before
    assert asking.upload(campaign, envelope_of(campaign, plan, others)).status == 201
    assert asking.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert lookup(asking, campaign, own).body == b'{"stored":true}', (
        "also once no more reports are taken"
    )


def test_by_arrival_one_id_is_found_in_every_later_round(asking: Caller) -> None:
    campaign = asking.create(method="synthetic", assignment="arrival")
    own = [token_of(i, "arrived") for i in range(40)]
    ids = [report_id(token, bytes.fromhex(campaign), None) for token in own]
    assert (
        asking.upload(
            campaign, envelope_of(campaign, plan_of(asking.announcement(campaign)), own)
        ).status
        == 201
    )
    assert asking.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert asking.announcement(campaign)["plan"]["round"] == 1
    assert lookup(asking, campaign, ids[3]).body == b'{"stored":true}'
    late = report_id(token_of(1, "late"), bytes.fromhex(campaign), None)
    assert lookup(asking, campaign, late).body == b'{"stored":false}'


def test_what_waits_to_be_written_is_not_said_to_be_stored(
    running: ServerThread, asking: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = asking.create()
    announced = asking.announcement(campaign)
    plan = plan_of(announced)
    (token,) = asked_tokens(campaign, 0.0, plan, 1)
    own = report_id(token, bytes.fromhex(campaign), 0)
    begun, go_on = threading.Event(), threading.Event()
    store: Any = running.collector.store
    write = store.add_reports

    def slowly(batches: Sequence[Batch]) -> list[list[Outcome]]:
        begun.set()
        assert go_on.wait(20)
        return list(write(batches))

    monkeypatch.setattr(store, "add_reports", slowly)
    statuses: list[int] = []
    sender = threading.Thread(
        target=lambda: statuses.append(
            Caller(running.url).upload(campaign, envelope_of(campaign, plan, [token])).status
        )
    )
    sender.start()
    try:
        assert begun.wait(20)
        assert lookup(asking, campaign, own).body == b'{"stored":false}'
    finally:
        go_on.set()
        sender.join(20)
    assert statuses == [201]
    assert lookup(asking, campaign, own).body == b'{"stored":true}'


@pytest.mark.parametrize(
    ("body", "status"), [(b"", 400), (b"\0" * 31, 400), (b"\0" * 33, 413), (b"\0" * 4096, 413)]
)
def test_anything_but_an_id_is_refused(caller: Caller, body: bytes, status: int) -> None:
    assert lookup(caller, caller.create(), body).status == status


def test_an_unknown_campaign_is_said_to_be_so(caller: Caller) -> None:
    answer = lookup(caller, "0" * 32, bytes(32))
    assert (answer.status, json.loads(answer.body)["type"]) == (
        404,
        "urn:dither:problem:no-campaign",
    )


def test_a_flood_takes_one_query_at_a_time_and_is_turned_away_at_its_limit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "c.db")
    collector = Collector(store)
    try:
        campaign = collector.campaigns.create(
            {"schema": {"a": {"kind": "boolean"}}, **PLAIN}
        ).stored.id
        asked: list[int] = []
        busy = threading.Lock()
        look = store.stored_among

        def watched(one: str, ids: Sequence[bytes]) -> set[bytes]:
            assert busy.acquire(blocking=False), "two queries at once"
            asked.append(len(ids))
            try:
                return look(one, ids)
            finally:
                busy.release()

        store.stored_among = watched  # type: ignore[method-assign]

        async def flood() -> list[bool | BaseException]:
            wanted = (
                collector.is_stored(campaign, token_of(i)) for i in range(limits.MAX_LOOKUPS + 7)
            )
            return await asyncio.gather(*wanted, return_exceptions=True)

        answers = asyncio.run(flood())
        assert answers[: limits.MAX_LOOKUPS] == [False] * limits.MAX_LOOKUPS
        assert [type(answer) for answer in answers[limits.MAX_LOOKUPS :]] == [QueueFull] * 7
        assert sum(asked) == limits.MAX_LOOKUPS
        assert len(asked) == 2, "devices that ask at once share a query"
    finally:
        collector.stop()


def test_a_store_that_fails_is_said_to_be_away(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "c.db")
    collector = Collector(store)
    try:
        campaign = collector.campaigns.create(
            {"schema": {"a": {"kind": "boolean"}}, **PLAIN}
        ).stored.id

        def gone(one: str, ids: Sequence[bytes]) -> set[bytes]:
            raise StoreUnavailable("no connection")

        working, store.stored_among = store.stored_among, gone  # type: ignore[method-assign]
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                asyncio.run(collector.is_stored(campaign, bytes(32)))
        store.stored_among = working  # type: ignore[method-assign]
        assert asyncio.run(collector.is_stored(campaign, bytes(32))) is False
    finally:
        collector.stop()
