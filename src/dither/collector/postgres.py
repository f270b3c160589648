"""PostgreSQL: any number of collectors on one database.

Guarantee: a report is stored only in a transaction that holds its round's row while the
round is open, and a closing waits for all of these transactions in every process. Row locks
alone would let a closing wait without end, because new uploads may join those that hold
the row. So both first take an advisory lock of the round, whose queue is fair. Each
round's reports are a partition.
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
from dither.collector.bounded import Deadline, bounded_engine, read_address
from dither.collector.layout import UNTIDIED, add_partition, clear_untidied, facts, rounds
from dither.collector.shared_tallies import Epochs, SharedTallies
from dither.collector.sql_store import SqlStore, store_failure
from dither.collector.store import (
    ANSWER_SECONDS,
    TIDY_SECONDS,
    WORK_SECONDS,
    Batch,
    InTurn,
    PlanOf,
    Row,
    RunningTally,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    StoreUntidy,
)
from dither.errors import StateError
from dither.tally.counting import digest_of_words

# The advisory lock for creating or changing tables; the keys of rounds are positive.
_LAYOUT_LOCK = -1
_MIN_COPY_ROWS = 32  # fewer rows do not pay for COPY's round trips
# A COPY that meets a repeated report fails as a whole. After one, this many groups are
# inserted row by row: repeats come in bursts, from clients that retry.
_GROUPS_WITHOUT_COPY = 100
_INSERT = (
    "INSERT INTO {table} (round_key, report_id, question, payload) "
    "SELECT %s, * FROM unnest(%s::bytea[], %s::int[], %s::bytea[]) "
    "ON CONFLICT DO NOTHING RETURNING report_id"
)
_COPY = "COPY {table} (round_key, report_id, question, payload) FROM STDIN (FORMAT BINARY)"
_WORDS = ", ".join(
    f"coalesce(sum(('x' || encode(substr(hash, {1 + 8 * i}, 8), 'hex'))::bit(64)::bigint), 0)"
    for i in range(4)
)
_DIGEST = (
    f"SELECT count(*), {_WORDS} FROM "
    "(SELECT sha256(report_id || int4send(question) || payload) AS hash FROM {table}) AS hashes"
)
# Inserts nothing, and fails where no report could be stored: on a standby, in a read-only
# database, without privileges, and while the table is locked.
_CHECK_WRITABLE = (
    "INSERT INTO reports (round_key, report_id, question, payload) "
    "SELECT 0, ''::bytea, 0, ''::bytea WHERE false"
)
# SQLSTATEs of the database's condition that psycopg does not class as OperationalError:
# read only, idle too long in a transaction, no privilege, internal error.
_UNAVAILABLE = ("25006", "25P03", "42501", "XX")


class PostgresStore(SqlStore):
    """The store in a database given as postgresql://...; other collectors may share it."""

    shared = True
    _driver_error = psycopg.Error

    def __init__(self, url: str) -> None:
        self._closed = threading.Event()
        self._deadline = Deadline(self._closed)
        self._engine = bounded_engine(read_address(url), self._deadline)
        self._listening: Connection | None = None
        self._groups_without_copy = 0
        try:
            # Advisory locks and channels belong to the whole database, the store to one schema.
            with self._read(ANSWER_SECONDS) as connection:
                oid = connection.exec_driver_sql(
                    "SELECT current_schema()::regnamespace::oid::bigint"
                ).scalar()
            self._schema = int(oid or 0) & 0x7FFFFFFF
            lock = ", LATERAL pg_advisory_xact_lock{}({:d}, rounds.key) AS gate"
            self._keep_state = (lock.format("_shared", self._schema), "FOR SHARE OF rounds")
            self._await_adding = (lock.format("", self._schema), "FOR UPDATE OF rounds")
            super().__init__(self._engine)
            self.epochs = Epochs(
                self._write, self._read, self._round_locked, self._announce, self._table
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the store; waits for the database end at once."""
        self._closed.set()
        self._stop_listening()
        self._engine.dispose()

    def running_tally(self, plan_of: PlanOf, in_turn: InTurn) -> RunningTally:
        """Add up what each collector counted of the reports that it stored."""
        return SharedTallies(self.epochs, self.round_key, self.turn, plan_of, in_turn)

    def _within(self, seconds: float) -> AbstractContextManager[None]:
        return self._deadline.within(seconds)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            # Durability must not depend on the server's default.
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO on")
            yield connection

    def _table(self, key: int) -> str:
        return f"reports_{key:d}"

    def _lock_layout(self, connection: Connection) -> None:
        lock = (self._schema, _LAYOUT_LOCK)
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, %s)", lock)

    def _round_created(self, connection: Connection, key: int) -> None:
        add_partition(connection, key)

    def _drop_reports(self, connection: Connection, key: int) -> None:
        connection.exec_driver_sql(f"DROP TABLE {self._table(key)}")

    def _insert_new(self, connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
        """Insert by COPY, which takes a third of the time of INSERT, if no row is a repeat.

        The rows are sorted, so that two writers cannot deadlock.
        """
        table = self._table(key)
        if len(rows) >= _MIN_COPY_ROWS and self._groups_without_copy == 0:
            connection.exec_driver_sql("SAVEPOINT fresh")
            try:
                _copy(connection, table, key, rows)
            except psycopg.errors.UniqueViolation:
                connection.exec_driver_sql("ROLLBACK TO SAVEPOINT fresh")
                self._groups_without_copy = _GROUPS_WITHOUT_COPY
            else:
                connection.exec_driver_sql("RELEASE SAVEPOINT fresh")
                return {row.report_id for row in rows}
        self._groups_without_copy = max(0, self._groups_without_copy - 1)
        columns = (list(column) for column in zip(*rows, strict=True))
        inserted = connection.exec_driver_sql(_INSERT.format(table=table), (key, *columns))
        return {row[0] for row in inserted}

    def digest(self, campaign: str, number: int) -> tuple[int, int]:
        """Compute the digest in the database; no report leaves it."""
        key = self.round_key(campaign, number)
        with self._read(TIDY_SECONDS) as connection:
            counted = connection.exec_driver_sql(_DIGEST.format(table=self._table(key))).one()
        return int(counted[0]), digest_of_words([int(word) for word in counted[1:]])

    def _adding(self, connection: Connection, batch: Batch, key: int, epoch: int) -> None:
        self.epochs.adding(connection, batch.campaign, batch.round, key, epoch)

    # --- other collectors -----------------------------------------------------------------

    def _announce(self, connection: Connection, campaign: str) -> None:
        connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (self._channel, campaign))

    @property
    def _channel(self) -> str:
        return f"dither_{self._schema:d}"

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
        session, self._listening = self._listening, None
        if session is not None and not session.closed:
            session.invalidate()
            session.close()

    @contextmanager
    def turn(self, campaign: str) -> Iterator[None]:
        """Hold an advisory lock in a separate session.

        A restart of the database ends it early; then `Move.moves` alone decides.
        """
        digest = hashlib.sha256(f"{self._schema} {campaign}".encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        with self._guarded(WORK_SECONDS + ANSWER_SECONDS):
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            with self._guarded(WORK_SECONDS + ANSWER_SECONDS):
                _lock_session(session, key, campaign)
            yield
        finally:
            session.invalidate()  # ends the session, and with it the lock
            session.close()

    # --- tidying --------------------------------------------------------------------------

    def _rewrite(self, keys: Sequence[int]) -> None:
        """Replace each round's partition by a copy in the order of ids.

        Heap order and transaction numbers show which reports came together; the old
        partition's file goes.
        """
        for key in keys:
            with self._writing() as connection:
                table = self._table(key)
                # Blocks writers, not readers.
                connection.exec_driver_sql(f"LOCK TABLE {table} IN SHARE MODE")
                marked = sa.select(rounds.c.state).join(facts, facts.c.name == f"{UNTIDIED}{key}")
                if connection.scalar(marked.where(rounds.c.key == key)) in (None, "open"):
                    continue  # another collector has done it, or the round takes reports again
                self._replace_partition(connection, table, key)
                clear_untidied(connection, [key])

    def _replace_partition(self, connection: Connection, table: str, key: int) -> None:
        copy = f"{table}_{secrets.token_hex(4)}"
        execute = connection.exec_driver_sql
        execute(f"CREATE TABLE {copy} (LIKE reports INCLUDING ALL)")
        execute(f"INSERT INTO {copy} SELECT * FROM {table} ORDER BY report_id")
        # The constraint saves ATTACH PARTITION a scan of every row.
        execute(f"ALTER TABLE {copy} ADD CONSTRAINT of_round CHECK (round_key = {key:d})")
        execute(f"SET LOCAL lock_timeout = {int(1000 * sql_store.READER_SECONDS)}")
        try:
            execute(f"DROP TABLE {table}")
        except sa.exc.OperationalError as error:
            if isinstance(error.orig, psycopg.errors.LockNotAvailable):
                raise StoreUntidy(
                    "another session reads the database and may still see the order of arrival"
                ) from None
            raise
        execute(f"ALTER TABLE {copy} RENAME TO {table}")
        execute(f"ALTER TABLE reports ATTACH PARTITION {table} FOR VALUES IN ({key:d})")
        execute(f"ALTER TABLE {table} DROP CONSTRAINT of_round")

    def _check_writable(self) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql(_CHECK_WRITABLE)

    def _translated(self, cause: BaseException | None, statement: str | None) -> Exception:
        """Translate by SQLSTATE; the server's messages may repeat values and are not shown."""
        if not isinstance(cause, psycopg.Error):
            return store_failure(cause, "no code", statement)
        state = cause.sqlstate or ""
        if isinstance(cause, psycopg.errors.DiskFull):
            return StoreFull("the database's disk is full")
        if isinstance(
            cause, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
        ):
            return StoreBusy("the database rolled back the transaction in favour of another")
        operational = isinstance(cause, (psycopg.OperationalError, psycopg.InterfaceError))
        if operational or state.startswith(_UNAVAILABLE):
            message = cause.diag.message_primary or str(cause)
            return StoreUnavailable(
                f"the database is unavailable: {' '.join(message.split())[:200]}"
            )
        return store_failure(cause, state or "no code", statement)


def _lock_session(session: Connection, key: int, campaign: str) -> None:
    deadline = time.monotonic() + WORK_SECONDS
    while not session.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (key,)).scalar():
        if time.monotonic() > deadline:
            raise StateError(
                f"another collector is working on campaign {campaign}; check its status"
            )
        time.sleep(0.05)


def _copy(connection: Connection, table: str, key: int, rows: Sequence[Row]) -> None:
    driver: Any = connection.connection.dbapi_connection
    with driver.cursor() as cursor, cursor.copy(_COPY.format(table=table)) as copy:
        copy.set_types(["int4", "bytea", "int4", "bytea"])
        for row in rows:
            copy.write_row((key, *row))
