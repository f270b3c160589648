"""PostgreSQL read only, locked by somebody, or stopped in its tracks: senders hear 503 in time; it goes on without a restart."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from collector_harness import (
    Caller,
    Cluster,
    ServerProcess,
    ServerThread,
    envelope_of,
    free_port,
    plan_of,
    stored_tally,
    token_of,
    until,
)
from test_kills import check, load

from dither.collector import (
    Batch,
    PostgresStore,
    Row,
    SqliteStore,
    State,
    StoredCampaign,
    StoredRound,
    StoreUnavailable,
    Writer,
    WriteResult,
    limits,
)

pytestmark = pytest.mark.slow

C = "ab" * 16
# A second for each of: the wait for a thread on a busy machine, the rest of a new connection's least time, the answer.
IN_TIME = limits.ANSWER_SECONDS + 3


@pytest.fixture(scope="module")
def one_cluster() -> Iterator[Cluster]:
    running = Cluster()
    yield running
    running.remove()


@pytest.fixture
def own_cluster(one_cluster: Cluster) -> Iterator[Cluster]:
    """A PostgreSQL that the test may stop in its tracks."""
    yield one_cluster
    one_cluster.resume()


def ready(caller: Caller) -> int:
    return caller.connection.request("GET", "/ready", None).status


@contextmanager
def in_time(seconds: float = IN_TIME) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


@contextmanager
def read_only(cluster: Cluster) -> Iterator[None]:
    with psycopg.connect(cluster.superuser(), autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")


def test_a_database_set_to_read_only_is_away_until_it_takes_reports_again(
    own_cluster: Cluster,
) -> None:
    running = ServerThread(PostgresStore(own_cluster.fresh()))
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    first, second = (envelope_of(campaign, plan, [token_of(i)]) for i in range(2))
    assert caller.upload(campaign, first).status == 201
    assert ready(caller) == 200
    with read_only(own_cluster):
        until(lambda: ready(caller) == 503)
        until(lambda: caller.upload(campaign, second).status == 503)
        assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 503
    until(lambda: ready(caller) == 200)
    assert caller.upload(campaign, second).status == 201
    assert caller.upload(campaign, first).status == 200
    assert caller.status(campaign)["rounds"][0]["reports"] == 2
    running.stop()


def test_without_the_right_to_insert_it_is_not_ready(own_cluster: Cluster) -> None:
    url = own_cluster.fresh()
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(own_cluster.superuser(), autocommit=True) as owner:
        owner.execute("CREATE ROLE guest LOGIN; GRANT CONNECT ON DATABASE dither TO guest")
        owner.execute(f"GRANT ALL ON SCHEMA {schema} TO guest")
        with closing(PostgresStore(url.replace("dither@", "guest@"))) as store:
            store.check()
            owner.execute(f"REVOKE INSERT ON {schema}.reports FROM guest")
            with pytest.raises(StoreUnavailable):
                store.check()
            owner.execute(f"GRANT INSERT ON {schema}.reports TO guest")
            store.check()


def test_a_table_locked_by_somebody_puts_senders_off_in_time(own_cluster: Cluster) -> None:
    url = own_cluster.fresh()
    running = ServerThread(PostgresStore(url))
    caller = Caller(running.url)
    campaign = caller.create()
    body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(0)])
    with psycopg.connect(url) as somebody:
        somebody.execute("LOCK TABLE reports IN EXCLUSIVE MODE")
        with in_time():
            assert caller.upload(campaign, body).status == 503
        with in_time():
            assert ready(caller) == 503
    assert ready(caller) == 200
    assert caller.upload(campaign, body).status == 201
    running.stop()


def test_an_sqlite_file_locked_by_somebody_puts_senders_off_in_time(tmp_path: Path) -> None:
    running = ServerThread(SqliteStore(tmp_path / "c.db"))
    caller = Caller(running.url)
    campaign = caller.create()
    body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(0)])
    with closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        with in_time():
            assert caller.upload(campaign, body).status == 503
        with in_time():
            assert ready(caller) == 503
    assert ready(caller) == 200
    assert caller.upload(campaign, body).status == 201
    running.stop()


@pytest.mark.parametrize("what", ["renamed", "deleted", "replaced"])
def test_an_sqlite_file_taken_away_under_the_collector_is_noticed(
    tmp_path: Path, what: str
) -> None:
    """What would be written then, nobody would find again."""
    path, aside = tmp_path / "c.db", tmp_path / "aside.db"
    running = ServerThread(SqliteStore(path))
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    bodies = [envelope_of(campaign, plan, [token_of(i)]) for i in range(2)]
    assert caller.upload(campaign, bodies[0]).status == 201
    path.rename(aside)
    if what == "deleted":
        aside.unlink()
    elif what == "replaced":
        shutil.copy(aside, path)
    assert ready(caller) == 503
    assert caller.upload(campaign, bodies[1]).status == 503
    if what != "deleted":
        aside.rename(path)
        assert ready(caller) == 200
        assert caller.upload(campaign, bodies[1]).status == 201
    running.stop()


def test_looking_at_readiness_while_reports_come_in_disturbs_nobody(tmp_path: Path) -> None:
    running = ServerThread(SqliteStore(tmp_path / "c.db"))
    caller, prober = Caller(running.url), Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    found: list[int] = []
    done = threading.Event()

    def probe() -> None:
        while not done.is_set():
            found.append(ready(prober))

    probing = threading.Thread(target=probe)
    probing.start()
    for i in range(100):
        assert caller.upload(campaign, envelope_of(campaign, plan, [token_of(i)])).status == 201
    done.set()
    probing.join(30)
    assert set(found) == {200}
    running.stop()


def test_stopped_in_its_tracks_senders_are_put_off_in_time_and_all_goes_on_afterwards(
    own_cluster: Cluster,
) -> None:
    running = ServerThread(PostgresStore(own_cluster.fresh()))
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    first, second = (envelope_of(campaign, plan, [token_of(i)]) for i in range(2))
    assert caller.upload(campaign, first).status == 201
    assert running.collector.running_tally(campaign).participants == 1
    own_cluster.pause()
    statuses: list[int] = []

    def send() -> None:
        own = Caller(running.url)
        statuses.append(own.upload(campaign, second).status)
        own.connection.close()

    senders = [threading.Thread(target=send) for _ in range(6)]
    with in_time():
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    assert statuses == [503] * 6, "whoever comes while others wait does not wait anew"
    with in_time():
        assert caller.upload(campaign, second).status == 503, "nor with a new connection"
    with in_time():
        assert ready(caller) == 503
    assert caller.connection.request("GET", "/live", None).status == 200
    own_cluster.resume()
    until(lambda: ready(caller) == 200)
    assert caller.upload(campaign, second).status in (200, 201)
    assert caller.upload(campaign, first).status == 200
    assert caller.status(campaign)["rounds"][0]["reports"] == 2
    collector = running.collector
    assert (
        collector.running_tally(campaign).to_bytes() == stored_tally(collector, campaign).to_bytes()
    )
    running.stop()


def test_stopped_and_continued_under_load_nothing_is_lost_or_counted_twice(
    own_cluster: Cluster,
) -> None:
    address = own_cluster.fresh()
    with ServerProcess(address) as server:
        senders = load(server)
        caller = Caller(server.url)
        try:
            for _ in range(2):
                taken = len(senders.acknowledged)
                until(lambda n=taken: len(senders.acknowledged) > n + 4)
                assert caller.admin("GET", f"/{senders.campaign}/tally").status == 200
                own_cluster.pause()
                put_off = senders.put_off
                until(lambda n=put_off: senders.put_off > n)
                own_cluster.resume()
            taken = len(senders.acknowledged)
            until(lambda: len(senders.acknowledged) > taken + 4)
        finally:
            own_cluster.resume()
            senders.stop()
        running = caller.admin("GET", f"/{senders.campaign}/tally").body.decode()
        caller.connection.close()
        status, _ = server.terminate(timeout=10)
    assert status == 0
    assert check(address, senders) in running


def test_a_stop_asked_for_while_the_database_is_stopped_takes_less_than_ten_seconds(
    own_cluster: Cluster,
) -> None:
    address, port = own_cluster.fresh(), free_port()
    with ServerProcess(address, port=port) as server:
        senders = load(server)
        until(lambda: len(senders.acknowledged) > 5)
        own_cluster.pause()
        status, errors = server.terminate(timeout=10)
        own_cluster.resume()
    assert "Traceback" not in errors
    assert status == 0
    taken = len(senders.acknowledged)
    with ServerProcess(address, port=port):
        until(lambda: len(senders.acknowledged) > taken)
        senders.stop()
    check(address, senders)


def held(store: Any) -> Batch:
    """A campaign with an open round, and a batch of 8 MiB, more than a socket takes at once, for it."""
    store.create_campaign(
        StoredCampaign(C, {}, State.OPEN, 0, b""), StoredRound(C, 0, "open", 0.0, {})
    )
    return Batch(C, 0, [Row(token_of(i), 0, bytes(16_384)) for i in range(512)])


def test_the_writer_and_the_store_stop_although_the_database_does_not_answer(
    own_cluster: Cluster,
) -> None:
    url = own_cluster.fresh()
    store = PostgresStore(url)
    batch = held(store)
    results: list[WriteResult] = []
    writer = Writer(store, results.extend)
    own_cluster.pause()
    writer.submit(batch, "being written")
    until(lambda: writer.waiting == 0)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            writer.call(lambda: store.count(C, 0))
        except StoreUnavailable as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    writer.submit(batch, "waiting")
    until(lambda: len(writer._jobs) == 2)
    with in_time(4):
        assert writer.stop(timeout=0.5) is False
        asking.join()
        assert len(failures) == 1
        assert [r.waiter for r in results] == ["waiting"]
        store.close()
        until(lambda: not writer._thread.is_alive())
    assert [r.waiter for r in results] == ["waiting", "being written"]
    assert all(isinstance(r.error, StoreUnavailable) for r in results)
    own_cluster.resume()
    with closing(PostgresStore(url)) as again:
        assert again.count(C, 0) in (0, len(batch.rows)), (
            "all of the group that was given up, or nothing"
        )


@pytest.mark.parametrize("operation", ["count", "check", "campaigns", "add_reports", "tidy"])
def test_closing_ends_whatever_waits_for_the_database(own_cluster: Cluster, operation: str) -> None:
    store = PostgresStore(own_cluster.fresh())
    batch = held(store)
    work = {
        "count": lambda: store.count(C, 0),
        "check": store.check,
        "campaigns": store.campaigns,
        "add_reports": lambda: store.add_reports([batch]),
        "tidy": lambda: store.tidy(C, 0),
    }[operation]
    own_cluster.pause()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except StoreUnavailable as error:
            failures.append(error)

    waiting = threading.Thread(target=run)
    waiting.start()
    until(lambda: store._engine.pool.checkedout() > 0)  # type: ignore[attr-defined]
    with in_time(4):
        store.close()
        waiting.join()
    assert len(failures) == 1
    own_cluster.resume()


def test_a_commit_that_was_given_up_is_waited_for_before_a_tally_is_built(
    own_cluster: Cluster,
) -> None:
    url = own_cluster.fresh()
    with closing(PostgresStore(url)) as store, psycopg.connect(url) as straggler:
        held(store)
        straggler.execute(
            "SELECT state FROM rounds FOR SHARE"
        )  # what a transaction that adds reports holds
        with in_time(), pytest.raises(StoreUnavailable):
            store.settle(C, 0)
        straggler.commit()
        store.settle(C, 0)
