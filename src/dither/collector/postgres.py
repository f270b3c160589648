"""PostgreSQL: any number of collectors on one database, a round's row locked against closing while reports of it are stored.

Guarantee: a report is stored only in a transaction that holds its round's row while the round is open, and a closing waits for all
of them, whichever process they are in. Locks on that row alone would let a closing wait for ever, for those who add may join others
who add; so both pass a gate first, an advisory lock of the round, whose queue is fair. Each round's reports are a partition.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector import sql_store
from dither.collector.bounded import Patience, bounded_engine, read_address
from dither.collector.epochs import Epochs
from dither.collector.layout import UNTIDIED, add_partition, facts, forget_untidied, rounds
from dither.collector.sql_store import SqlStore, store_failure
from dither.collector.store import (
    ANSWER_SECONDS,
    TIDY_SECONDS,
    WORK_SECONDS,
    Batch,
    Row,
    StoreAway,
    StoreBusy,
    StoreFull,
    StoreUntidy,
)
from dither.errors import StateError
from dither.tally.counting import digest_of_words

_LAYOUT = -1  # the advisory lock of whoever makes or changes tables; those of rounds are positive
_COPY_LEAST = 32  # rows from which COPY is worth its round trips
_COPY_PAUSE = (
    100  # groups that are inserted one by one after COPY met a repeat, which costs the whole of it
)
_INSERT = (
    "INSERT INTO {table} (round_key, report_id, question, payload) "
    "SELECT %s, * FROM unnest(%s::bytea[], %s::int[], %s::bytea[]) ON CONFLICT DO NOTHING RETURNING report_id"
)
_COPY = "COPY {table} (round_key, report_id, question, payload) FROM STDIN (FORMAT BINARY)"
_WORDS = ", ".join(
    f"coalesce(sum(('x' || encode(substr(hash, {1 + 8 * i}, 8), 'hex'))::bit(64)::bigint), 0)"
    for i in range(4)
)
_DIGEST = (
    f"SELECT count(*), {_WORDS} "
    "FROM (SELECT sha256(report_id || int4send(question) || payload) AS hash FROM {table}) AS hashes"
)
# Stores nothing, and fails where no report could be stored: on a standby, in a database set to read only, without the rights, and
# while somebody keeps the table locked.
_COULD_WRITE = "INSERT INTO reports (round_key, report_id, question, payload) SELECT 0, ''::bytea, 0, ''::bytea WHERE false"
# Refusals that are the state of the database, not of what was sent; psycopg calls most others of this kind OperationalError itself.
_AWAY = ("25006", "25P03", "42501", "XX")  # read only, idle too long, without the rights, broken


class PostgresStore(SqlStore):
    """The store in a database given as postgresql://...; other collectors may use it at the same time."""

    shared = True
    _driver_error = psycopg.Error

    def __init__(self, url: str) -> None:
        self._closed = threading.Event()
        self._patience = Patience(self._closed)
        self._engine = bounded_engine(read_address(url), self._patience)
        self._listening: Connection | None = None
        self._copies_to_skip = 0
        try:
            # Advisory locks and channels are the whole database's; this store is in one schema of it.
            with self._read(ANSWER_SECONDS) as connection:
                found = connection.exec_driver_sql(
                    "SELECT current_schema()::regnamespace::oid::bigint"
                ).scalar()
            self._space = int(found or 0) & 0x7FFFFFFF
            gate = ", LATERAL pg_advisory_xact_lock{}({:d}, rounds.key) AS gate"
            self._keep_state = (gate.format("_shared", self._space), "FOR SHARE OF rounds")
            self._await_adding = (gate.format("", self._space), "FOR UPDATE OF rounds")
            super().__init__(self._engine)
            self.epochs = Epochs(self._write, self._read, self._round_alone, self._announce)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Waits for the database end at once."""
        self._closed.set()
        self._stop_listening()
        self._engine.dispose()

    def _within(self, seconds: float) -> AbstractContextManager[None]:
        return self._patience.within(seconds)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            # The guarantee rests on the log reaching the disk before the commit returns, whatever the server's default.
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO on")
            yield connection

    def _table(self, key: int) -> str:
        return f"reports_{key:d}"

    def _alone(self, connection: Connection) -> None:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, %s)", (self._space, _LAYOUT))

    def _round_made(self, connection: Connection, key: int) -> None:
        add_partition(connection, key)

    def _drop_reports(self, connection: Connection, key: int) -> None:
        connection.exec_driver_sql(f"DROP TABLE {self._table(key)}")

    def _insert_new(self, connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
        """Rows come sorted, so that two writers never wait for each other in a circle. COPY takes a third of the time of an INSERT,
        but none of its rows if one of them is there; the ids of those that are have to be told, too."""
        table = self._table(key)
        if len(rows) >= _COPY_LEAST and self._copies_to_skip == 0:
            connection.exec_driver_sql("SAVEPOINT fresh")
            try:
                _copy(connection, table, key, rows)
            except psycopg.errors.UniqueViolation:
                connection.exec_driver_sql("ROLLBACK TO SAVEPOINT fresh")
                self._copies_to_skip = _COPY_PAUSE
            else:
                connection.exec_driver_sql("RELEASE SAVEPOINT fresh")
                return {row.report_id for row in rows}
        self._copies_to_skip = max(0, self._copies_to_skip - 1)
        columns = (list(column) for column in zip(*rows, strict=True))
        return {
            row[0]
            for row in connection.exec_driver_sql(_INSERT.format(table=table), (key, *columns))
        }

    def digest(self, campaign: str, number: int) -> tuple[int, int]:
        """Taken where the reports are: none of them leaves the database."""
        key = self.round_key(campaign, number)
        with self._read(TIDY_SECONDS) as connection:
            found = connection.exec_driver_sql(_DIGEST.format(table=self._table(key))).one()
        return int(found[0]), digest_of_words([int(word) for word in found[1:]])

    def _adding(self, connection: Connection, batch: Batch, key: int, epoch: int) -> None:
        self.epochs.adding(connection, batch.campaign, batch.round, key, epoch)

    def seen_whole(
        self, campaign: str, number: int
    ) -> AbstractContextManager[tuple[int, int, Iterator[list[Row]]]]:
        """A round's key, the epoch that has just ended, and all reports stored until then."""
        return self.epochs.everything(campaign, number, self._table)

    # --- other collectors -----------------------------------------------------------------------------------------

    def _announce(self, connection: Connection, campaign: str) -> None:
        connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (self._channel, campaign))

    @property
    def _channel(self) -> str:
        return f"dither_{self._space:d}"

    def await_change(self, seconds: float) -> None:
        with self._guarded(seconds + ANSWER_SECONDS):
            if self._listening is None:
                self._listening = self._engine.connect().execution_options(
                    isolation_level="AUTOCOMMIT"
                )
                self._listening.exec_driver_sql(f"LISTEN {self._channel}")
                return
            try:
                driver: Any = self._listening.connection.dbapi_connection
                for _ in driver.notifies(timeout=seconds, stop_after=1):
                    return
            except BaseException:
                self._stop_listening()
                raise

    def _stop_listening(self) -> None:
        held, self._listening = self._listening, None
        if held is not None and not held.closed:
            held.invalidate()
            held.close()

    @contextmanager
    def turn(self, campaign: str) -> Iterator[None]:
        """A session's advisory lock, which a restart of the database ends early; then the count of moves decides alone."""
        digest = hashlib.sha256(f"{self._space} {campaign}".encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        with self._guarded(WORK_SECONDS + ANSWER_SECONDS):
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            with self._guarded(WORK_SECONDS + ANSWER_SECONDS):
                deadline = time.monotonic() + WORK_SECONDS
                while not session.exec_driver_sql(
                    "SELECT pg_try_advisory_lock(%s)", (key,)
                ).scalar():
                    if time.monotonic() > deadline:
                        raise StateError(
                            f"another collector is at work on campaign {campaign}; look at its status"
                        )
                    time.sleep(0.05)
            yield
        finally:
            session.invalidate()  # ends the session, and with it the lock
            session.close()

    # --- tidying --------------------------------------------------------------------------------------------------

    def _rewrite(self, keys: Sequence[int]) -> None:
        """Heap order and transaction numbers show who came together: write each round anew in the order of ids, as a table that
        takes the place of its partition, whose file goes."""
        for key in keys:
            with self._writing() as connection:
                table = self._table(key)
                # Whoever adds waits or has ended; who only reads goes on.
                connection.exec_driver_sql(f"LOCK TABLE {table} IN SHARE MODE")
                marked = sa.select(rounds.c.state).join(facts, facts.c.name == f"{UNTIDIED}{key}")
                if connection.scalar(marked.where(rounds.c.key == key)) in (None, "open"):
                    continue  # another collector has done it meanwhile, or the round takes reports again
                anew = f"{table}_{secrets.token_hex(4)}"
                for statement in (
                    f"CREATE TABLE {anew} (LIKE reports INCLUDING ALL)",
                    f"INSERT INTO {anew} SELECT * FROM {table} ORDER BY report_id",
                    f"ALTER TABLE {anew} ADD CONSTRAINT of_round CHECK (round_key = {key:d})",  # saves a look at every row
                    f"SET LOCAL lock_timeout = {int(1000 * sql_store.READER_SECONDS)}",
                ):
                    connection.exec_driver_sql(statement)
                try:
                    connection.exec_driver_sql(f"DROP TABLE {table}")
                except sa.exc.OperationalError as error:
                    if isinstance(error.orig, psycopg.errors.LockNotAvailable):
                        raise StoreUntidy(
                            "somebody else reads the database and may still see the reports as they came"
                        ) from None
                    raise
                for statement in (
                    f"ALTER TABLE {anew} RENAME TO {table}",
                    f"ALTER TABLE reports ATTACH PARTITION {table} FOR VALUES IN ({key:d})",
                    f"ALTER TABLE {table} DROP CONSTRAINT of_round",
                ):
                    connection.exec_driver_sql(statement)
                forget_untidied(connection, [key])

    def _look(self) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql(_COULD_WRITE)

    def _translated(self, cause: BaseException | None, statement: str | None) -> Exception:
        """StoreFull (the disk), StoreAway (no answer, connection, read only, resources), StoreBusy (deadlock), or StoreFailure: the
        server's messages repeat the values it was given."""
        if not isinstance(cause, psycopg.Error):
            return store_failure(cause, "no code", statement)
        state = cause.sqlstate or ""
        if isinstance(cause, psycopg.errors.DiskFull):
            return StoreFull("the database's disk is full")
        if isinstance(
            cause, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
        ):
            return StoreBusy("the database undid the transaction in favour of another")
        if isinstance(
            cause, (psycopg.OperationalError, psycopg.InterfaceError)
        ) or state.startswith(_AWAY):
            said = cause.diag.message_primary or str(cause)
            return StoreAway(f"the database is away: {' '.join(said.split())[:200]}")
        return store_failure(cause, state or "no code", statement)


def _copy(connection: Connection, table: str, key: int, rows: Sequence[Row]) -> None:
    driver: Any = connection.connection.dbapi_connection
    with driver.cursor() as cursor, cursor.copy(_COPY.format(table=table)) as copy:
        copy.set_types(["int4", "bytea", "int4", "bytea"])
        for row in rows:
            copy.write_row((key, *row))
