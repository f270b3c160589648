"""Requests and answers lost, sent again, sent at once, a torn log, a database that goes away: exactly one row per participant."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from collector_harness import (
    Caller,
    Cluster,
    ServerThread,
    envelope_of,
    plan_of,
    report_of,
    stored_tally,
    token_of,
    until,
)

from dither.client import Unreachable
from dither.collector import (
    Batch,
    PostgresStore,
    Row,
    SqliteStore,
    State,
    StoredCampaign,
    StoredRound,
)
from dither.reports import Envelope, encode, report_id

pytestmark = pytest.mark.slow

REPORTS = 10_000


def test_ten_thousand_reports_sent_one_to_ten_times_with_losses_are_ten_thousand_rows(
    tmp_path: Path,
) -> None:
    running = ServerThread(SqliteStore(tmp_path / "c.db"))
    caller = Caller(running.url)
    campaign = caller.create()
    plan, held = plan_of(caller.announcement(campaign)), bytes.fromhex(campaign)
    reports = [report_of(plan, held, token_of(i)) for i in range(REPORTS)]
    rng = np.random.default_rng(3)
    # Whoever was told nothing sends again: the last copy of each report goes through, all earlier ones may be lost.
    earlier = rng.permutation(np.repeat(np.arange(REPORTS), rng.integers(0, 10, REPORTS)))
    outcomes: Counter[str] = Counter()

    def send(numbers: np.ndarray, fate: str) -> None:
        if fate == "request lost":
            return
        own = Caller(running.url)
        body = encode(Envelope(held, 0, tuple(reports[i] for i in numbers)))
        if fate == "answer lost":
            own.connection._http.request(
                "POST",
                f"/v1/campaigns/{campaign}/reports",
                body,
                {"content-type": "application/vnd.dither.reports"},
            )
            own.connection.close()
            return
        answer = own.upload(campaign, body)
        assert answer.status in (200, 201), answer
        outcomes.update(json.loads(answer.body)["results"])
        own.connection.close()

    fates = ["request lost", "answer lost", "arrives"]
    jobs = [(chunk, str(rng.choice(fates))) for chunk in np.array_split(earlier, 150)]
    jobs += [(chunk, "arrives") for chunk in np.array_split(rng.permutation(REPORTS), 25)]

    def work(worker: int) -> None:
        for numbers, fate in jobs[worker::4]:
            send(numbers, fate)

    threads = [threading.Thread(target=work, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    running.collector.writer.call(lambda: None)
    assert set(outcomes) <= {"stored", "duplicate"}
    assert caller.status(campaign)["rounds"][0]["reports"] == REPORTS
    stored = {
        row.report_id: row.payload
        for page in running.collector.store.reports(campaign, 0)
        for row in page
    }
    assert stored == {report_id(r.token, held, 0): r.payload for r in reports}
    tally = running.collector.running_tally(campaign)
    assert tally.participants == REPORTS
    caller.connection.close()
    running.stop()


def test_sixty_four_senders_of_the_same_ids_at_once(tmp_path: Path) -> None:
    running = ServerThread(SqliteStore(tmp_path / "c.db"))
    caller = Caller(running.url)
    campaign = caller.create(parameters={"mechanism": "olh"})
    plan, held, ids = plan_of(caller.announcement(campaign)), bytes.fromhex(campaign), 12
    answers: list[list[tuple[bytes, int]]] = [[] for _ in range(ids)]
    ready = threading.Barrier(64)

    def send(worker: int) -> None:
        own = Caller(running.url)
        ready.wait()
        for i in range(ids):
            noise = str(worker % 4)  # sixteen senders agree on the bytes, four such groups do not
            answer = own.upload(campaign, envelope_of(campaign, plan, [token_of(i)], noise))
            answers[i].append(
                (report_of(plan, held, token_of(i), noise=noise).payload, answer.status)
            )
        own.connection.close()

    threads = [threading.Thread(target=send, args=(w,)) for w in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    stored = {
        row.report_id: row.payload
        for page in running.collector.store.reports(campaign, 0)
        for row in page
    }
    assert len(stored) == ids
    for i in range(ids):
        kept = stored[report_id(token_of(i), held, 0)]
        counts = Counter((payload == kept, status) for payload, status in answers[i])
        assert counts == {(True, 201): 1, (True, 200): 15, (False, 409): 48}
    caller.connection.close()
    running.stop()


def test_a_log_cut_at_any_offset_opens_with_everything_committed_before_the_cut(
    tmp_path: Path,
) -> None:
    path, wal = tmp_path / "c.db", tmp_path / "c.db-wal"
    store = SqliteStore(path)
    campaign = "cd" * 16
    store.create_campaign(
        StoredCampaign(campaign, {}, State.OPEN, 0, b"m"), StoredRound(campaign, 0, "open", 0.0, {})
    )
    store.tidy(campaign, 0)  # the log starts afresh; what follows is in it alone
    ends = []
    for i in range(40):
        store.add_reports(
            [Batch(campaign, 0, [Row(token_of(10 * i + j), 0, b"xy") for j in range(10)])]
        )
        ends.append(wal.stat().st_size)
    assert ends == sorted(ends)
    assert ends[0] > 0
    rng = np.random.default_rng(4)
    whole_log, whole_file = wal.read_bytes(), path.read_bytes()
    store.close()
    cuts = [
        0,
        ends[0] - 1,
        ends[0],
        ends[-1] - 1,
        ends[-1],
        *map(int, rng.integers(0, ends[-1], 25)),
    ]
    for n, cut in enumerate(cuts):
        folder = tmp_path / str(n)
        folder.mkdir()
        (folder / "c.db").write_bytes(whole_file)
        torn = whole_log[:cut] + (bytes(rng.integers(0, 256, 700, np.uint8)) if n % 2 else b"")
        (folder / "c.db-wal").write_bytes(torn)
        opened = SqliteStore(folder / "c.db")
        found = opened.count(campaign, 0)
        assert found == 10 * sum(end <= cut for end in ends), (
            "whole groups, all that were synced, and nothing else"
        )
        assert opened.add_reports([Batch(campaign, 0, [Row(token_of(10**6), 0, b"new")])])[0][
            0
        ].accepted
        opened.close()
        shutil.rmtree(folder)


def test_a_round_closed_while_uploads_arrive_counts_exactly_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    running = ServerThread(SqliteStore(tmp_path / "c.db"))
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    statuses: Counter[int] = Counter()
    stop = threading.Event()

    def send(worker: int) -> None:
        own, i = Caller(running.url), 0
        while not stop.is_set():
            statuses[
                own.upload(
                    campaign, envelope_of(campaign, plan, [token_of(worker * 10**6 + i)])
                ).status
            ] += 1
            i += 1
        own.connection.close()

    threads = [threading.Thread(target=send, args=(w,)) for w in range(6)]
    for thread in threads:
        thread.start()
    until(lambda: statuses[201] > 150)
    closed = caller.admin("POST", f"/{campaign}/close-round", {"round": 0})
    until(lambda: statuses[409] > 20)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert closed.status == 200
    assert {201, 409} <= set(statuses) <= {201, 409, 503}, (
        "stored, late, or put off while the round was being closed"
    )
    from dither.tally import tally_from_bytes

    stored = running.collector.campaigns.get(campaign).rounds[0].tally
    assert stored is not None
    assert (
        tally_from_bytes(stored).participants
        == statuses[201]
        == running.collector.store.count(campaign, 0)
    )
    caller.connection.close()
    running.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_postgresql_stopped_and_started_again(own_cluster: Cluster) -> None:
    running = ServerThread(PostgresStore(own_cluster.fresh()))
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    assert caller.upload(campaign, envelope_of(campaign, plan, [token_of(0)])).status == 201
    assert running.collector.running_tally(campaign).participants == 1
    own_cluster.stop()
    away = caller.upload(campaign, envelope_of(campaign, plan, [token_of(1)]))
    assert (away.status, away.retry_after) == (503, 5.0)
    assert caller.connection.request("GET", "/ready", None).status == 503
    assert caller.connection.request("GET", "/live", None).status == 200
    assert caller.admin("GET", f"/{campaign}").status == 503
    assert caller.connection.request("GET", f"/v1/campaigns/{campaign}", None).status == 200, (
        "plans are read from memory"
    )
    own_cluster.start()
    until(lambda: caller.connection.request("GET", "/ready", None).status == 200)
    assert (
        caller.upload(campaign, envelope_of(campaign, plan, [token_of(1), token_of(2)])).status
        == 201
    )
    assert caller.upload(campaign, envelope_of(campaign, plan, [token_of(0)])).status == 200
    assert caller.status(campaign)["rounds"][0]["reports"] == 3
    assert (
        running.collector.running_tally(campaign).to_bytes()
        == stored_tally(running.collector, campaign).to_bytes()
    )
    with pytest.raises(Unreachable):
        Caller("http://127.0.0.1:9").connection.request("GET", "/", None)
    caller.connection.close()
    running.stop()
