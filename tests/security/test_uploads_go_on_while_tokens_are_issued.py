"""An operator who issues a great many tokens does not keep participants waiting."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, ServerThread, describe, envelope_of, plan_of, token_of, until

from dither.client import Connection
from dither.collector import Campaigns, SqliteStore, limits
from dither.reports import token_hash

TOKENS = 40_000


@pytest.mark.slow
def test_uploads_are_answered_between_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = SqliteStore(tmp_path / "c.db")
    running = ServerThread(store)
    caller = Caller(running.url, timeout=60.0)
    campaign, other = caller.create(participation="tokens"), caller.create()
    plan = plan_of(caller.announcement(other))
    blocks: list[int] = []  # of how many tokens each transaction was
    crossed: list[int] = []  # how many blocks were written while an upload waited
    original, stop = store.add_tokens, threading.Event()

    def issuing(given: str, hashes: Any) -> None:
        original(given, hashes)
        blocks.append(len(hashes))
        until(
            lambda: running.collector.writer.waiting > 0
        )  # somebody waits by the end of every block

    def uploading() -> None:
        own, i = Caller(running.url, timeout=60.0), 0
        while not stop.is_set():
            before = len(blocks)
            assert own.upload(other, envelope_of(other, plan, [token_of(i)])).status == 201
            if before < len(blocks) <= TOKENS // limits.TOKEN_BLOCK:
                crossed.append(len(blocks) - before)
            i += 1
        own.connection.close()

    monkeypatch.setattr(store, "add_tokens", issuing)
    sender = threading.Thread(target=uploading)
    sender.start()
    monkeypatch.setattr(
        Connection.request, "__defaults__", (None, None)
    )  # an operator reads all of an answer
    issued = json.loads(caller.admin("POST", f"/{campaign}/tokens", {"count": TOKENS}).body)[
        "tokens"
    ]
    stop.set()
    sender.join(60)
    assert len(set(issued)) == TOKENS
    assert blocks == [limits.TOKEN_BLOCK] * (TOKENS // limits.TOKEN_BLOCK)
    assert len(crossed) >= len(blocks) - 1, (
        "uploads were acknowledged while tokens were being issued"
    )
    # One that was under way when the upload began, and one that was queued before it.
    assert max(crossed) <= 2, "no upload waited for more than a block"
    known = envelope_of(
        campaign, plan_of(caller.announcement(campaign)), [bytes.fromhex(t) for t in issued[-900:]]
    )
    assert caller.upload(campaign, known).status == 201, "every one of them is good"
    caller.connection.close()
    running.stop()


def test_blocks_do_not_tell_which_tokens_came_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "c.db")
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(participation="tokens")).stored.id
    stored: list[bytes] = []
    monkeypatch.setattr(store, "add_tokens", lambda campaign, block: stored.extend(block))
    issued = campaigns.issue_tokens(campaign, 5000)
    assert stored == sorted(token_hash(bytes.fromhex(token)) for token in issued)
    store.close()


def test_if_it_fails_midway_nobody_sees_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dither.collector import StoreFull

    store: Any = SqliteStore(tmp_path / "c.db")
    running = ServerThread(store)
    caller = Caller(running.url)
    campaign = caller.create(participation="tokens")
    original, calls = store.add_tokens, []

    def second_fails(given: str, hashes: Any) -> None:
        calls.append(len(hashes))
        if len(calls) == 2:
            raise StoreFull("no room")
        original(given, hashes)

    monkeypatch.setattr(store, "add_tokens", second_fails)
    answer = caller.admin("POST", f"/{campaign}/tokens", {"count": 3 * limits.TOKEN_BLOCK})
    assert answer.status == 507
    assert b"tokens" not in answer.body
    assert len(calls) == 2
    caller.connection.close()
    running.stop()
