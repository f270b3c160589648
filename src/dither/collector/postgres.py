"""PostgreSQL: any number of collectors on one database.

Guarantee: a report is stored only in a transaction that holds its round's row while the
round is open, and a closing waits for all of these transactions in every process. Row locks
alone would let a closing wait without end, because new uploads may join the holders of
the row. So both first take an advisory lock of the round, whose queue is fair. Each
round's reports are a partition.

No wait passes a deadline. PostgreSQL's own settings (`statement_timeout`, `lock_timeout`,
`tcp_user_timeout`, keepalives) end most waits and are set below. They cannot end a wait for
a server that accepts packets and does not answer, nor can `psycopg_pool`, which limits only
the wait for a free connection. So each wait in libpq is checked against a deadline of the
client. Without it,
`test_stopped_in_its_tracks_senders_are_put_off_in_time_and_all_goes_on_afterwards` and
`test_the_writer_and_the_store_stop_although_the_database_does_not_answer` in
tests/crash/test_database_hangs.py fail.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.abc import RV, PQGen
from sqlalchemy.engine import Connection

from dither.collector import limits
from dither.collector.layout import UNTIDIED, add_partition, clear_untidied, facts, rounds
from dither.collector.sql_store import SqlStore, store_failure
from dither.collector.store import (
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
from dither.collector.tallies import AnswerCounts, Epochs, SharedTallies
from dither.errors import InputError, StateError
from dither.tally.counting import digest_of_words

_CONNECT_SECONDS = 3  # for each address of the server; psycopg takes whole seconds, at least 2
# The server's own limits are a little shorter than the client's deadline: a statement that
# waits for a lock then fails without the loss of the connection.
_STATEMENT_SHARE = 0.8
_LOCK_SHARE = 0.6
_SERVER_SETTINGS = {
    "statement_timeout": int(1000 * _STATEMENT_SHARE * limits.ANSWER_SECONDS),
    "lock_timeout": int(1000 * _LOCK_SHARE * limits.ANSWER_SECONDS),
    "idle_in_transaction_session_timeout": 60_000,
    # A collector whose machine vanished must not hold locks for hours.
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
}
_CLIENT_SETTINGS: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": int(1000 * limits.ANSWER_SECONDS),
    "connect_timeout": _CONNECT_SECONDS,
}


class _DeadlineExceeded(psycopg.OperationalError):
    """The database did not answer before the deadline; the connection is closed."""


class _Deadline(threading.local):
    """The deadline of a store's operations: one for each thread.

    Args:
        closed: Set when the store is closed, which ends all waits.
    """

    granted = limits.ANSWER_SECONDS  # seconds that the current operation has in all
    _until: float | None = None

    def __init__(self, closed: threading.Event) -> None:
        self._closed = closed

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit all waits inside to `seconds` together; a shorter outer limit stays."""
        outer = self._until, self.granted
        until = time.monotonic() + seconds
        if self._until is None or until < self._until:
            self._until, self.granted = until, seconds
        try:
            yield
        finally:
            self._until, self.granted = outer

    @property
    def at(self) -> float:
        """When waiting ends; outside `within`, the default time from now."""
        return time.monotonic() + limits.ANSWER_SECONDS if self._until is None else self._until

    def check(self, at: float) -> None:
        """Raise `_DeadlineExceeded` if the time is over or the store was closed."""
        if self._closed.is_set():
            raise _DeadlineExceeded("the store was closed while it waited for the database")
        if time.monotonic() > at:
            raise _DeadlineExceeded(f"no answer within {self.granted:g} s")


class _BoundedConnection(psycopg.Connection[Any]):
    """A connection whose waits end at the deadline.

    It is closed then, because the state of the server's side is unknown.
    """

    deadline: _Deadline

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        try:
            return super().wait(_checked(gen, self.deadline), *arguments, **options)
        except _DeadlineExceeded:
            self.close()
            raise


def _checked(steps: PQGen[RV], deadline: _Deadline) -> PQGen[RV]:
    """Run the same steps and check the deadline before each but the first."""
    at = deadline.at
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            deadline.check(at)
            wanted = steps.send(ready)
    except StopIteration as end:
        value: RV = end.value
        return value


def _bounded_engine(address: sa.URL, deadline: _Deadline) -> sa.Engine:
    """Create an engine whose connections keep the deadline and whose errors hide parameters."""
    settings = " ".join(f"-c {name}={value}" for name, value in _SERVER_SETTINGS.items())
    given = address.query.get("options", "")
    given_text = given if isinstance(given, str) else " ".join(given)
    options = f"{settings} {given_text}".strip()
    engine = sa.create_engine(
        address,
        pool_pre_ping=True,
        pool_timeout=limits.ANSWER_SECONDS,
        hide_parameters=True,
        connect_args={**_CLIENT_SETTINGS, "options": options},
    )

    def connect(
        dialect: object, record: object, arguments: list[str], parameters: dict[str, Any]
    ) -> _BoundedConnection:
        deadline.check(deadline.at)
        made = _BoundedConnection.connect(*arguments, **parameters)
        made.deadline = deadline
        return made

    def begin(connection: Connection) -> None:
        driver: Any = connection.connection.dbapi_connection
        if deadline.granted > limits.ANSWER_SECONDS and not driver.autocommit:
            limit = int(1000 * _STATEMENT_SHARE * deadline.granted)
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {limit}")

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "begin", begin)
    return engine


def read_address(text: str) -> sa.URL:
    """Parse a postgresql:// address. Errors repeat only names: it may hold a password."""
    try:
        url = sa.make_url("postgresql:" + text.partition(":")[2]).set(
            drivername="postgresql+psycopg"
        )
        url.get_dialect()().create_connect_args(url)  # parses hosts and ports in the options
    except (sa.exc.ArgumentError, ValueError):
        raise InputError(
            "the store's address cannot be read; write "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE with a number as the port",
            where="store",
        ) from None
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise InputError(
            f"the store's address has port {url.port}; ports end at 65535", where="store"
        )
    if "@" in (url.host or ""):
        raise InputError(
            "the store's address has a second @; write the one in the password as %40",
            where="store",
        )
    options = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    unknown = sorted(set(url.query) - options)
    if unknown:
        raise InputError(
            f"the store's address has an option {unknown[0]!r} that PostgreSQL does not know",
            where="store",
        )
    return url


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
    _one_snapshot: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ"}

    def __init__(self, url: str) -> None:
        self._closed = threading.Event()
        self._deadline = _Deadline(self._closed)
        self._engine = _bounded_engine(read_address(url), self._deadline)
        self._listening: Connection | None = None
        self._groups_without_copy = 0
        self._counts = AnswerCounts(secrets.token_hex(8))
        try:
            # Advisory locks and channels belong to the whole database, the store to one schema.
            with self._read(limits.ANSWER_SECONDS) as connection:
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

    def _others_running(self, connection: Connection) -> bool:
        """Look for sessions that listen, as one of every collector since layout 2 does."""
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND query = %s"
        )
        listening = connection.exec_driver_sql(query, (f"LISTEN {self._channel}",)).scalar_one()
        return int(listening) > 0

    def _round_created(self, connection: Connection, key: int) -> None:
        add_partition(connection, key)
        self._counts.begin(connection, key)

    def _count_change(self, connection: Connection, key: int, change: Mapping[int, int]) -> None:
        if change:
            self._counts.change(connection, key, change)

    def answers(self, campaign: str, number: int, in_turn: InTurn | None = None) -> dict[int, int]:
        kept = self._kept_counts(campaign, number, in_turn)
        return super().answers(campaign, number, in_turn) if kept is None else kept

    def count(self, campaign: str, number: int) -> int:
        kept = self._kept_counts(campaign, number)
        return super().count(campaign, number) if kept is None else sum(kept.values())

    def _kept_counts(
        self, campaign: str, number: int, in_turn: InTurn | None = None
    ) -> dict[int, int] | None:
        """Return the reports by question without reading reports; None if they are not kept."""
        key = self.round_key(campaign, number)
        with self._read(limits.ANSWER_SECONDS) as connection:
            read = partial(self._counts.read, connection, key)
            return read() if in_turn is None else in_turn(read)

    def _drop_reports(self, connection: Connection, key: int) -> None:
        connection.exec_driver_sql(f"DROP TABLE {self._table(key)}")

    def _empty_reports(self, connection: Connection, key: int) -> None:
        connection.exec_driver_sql(f"TRUNCATE {self._table(key)}")
        self._counts.drop(connection, key)

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
        with self._read(limits.TIDY_SECONDS) as connection:
            counted = connection.exec_driver_sql(_DIGEST.format(table=self._table(key))).one()
        return int(counted[0]), digest_of_words([int(word) for word in counted[1:]])

    def _adding(self, connection: Connection, batch: Batch, key: int, epoch: int) -> None:
        self.epochs.adding(connection, batch.campaign, batch.round, key, epoch)

    def _deleting(self, connection: Connection, key: int, epoch: int) -> None:
        self.epochs.deleting(connection, key, epoch)

    # --- other collectors -----------------------------------------------------------------

    def _announce(self, connection: Connection, campaign: str) -> None:
        connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (self._channel, campaign))

    @property
    def _channel(self) -> str:
        return f"dither_{self._schema:d}"

    def await_change(self, seconds: float) -> None:
        with self._guarded(seconds + limits.ANSWER_SECONDS):
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
        with self._guarded(limits.WORK_SECONDS + limits.ANSWER_SECONDS):
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            with self._guarded(limits.WORK_SECONDS + limits.ANSWER_SECONDS):
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
                self._counts.merge(connection, key)
                clear_untidied(connection, [key])
        if keys:
            with self._engine.connect() as plain:
                # Merged rows of counts show in which order questions were answered.
                plain.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(
                    "VACUUM running"
                )

    def _replace_partition(self, connection: Connection, table: str, key: int) -> None:
        copy = f"{table}_{secrets.token_hex(4)}"
        execute = connection.exec_driver_sql
        execute(f"CREATE TABLE {copy} (LIKE reports INCLUDING ALL)")
        execute(f"INSERT INTO {copy} SELECT * FROM {table} ORDER BY report_id")
        # The constraint saves ATTACH PARTITION a scan of every row.
        execute(f"ALTER TABLE {copy} ADD CONSTRAINT of_round CHECK (round_key = {key:d})")
        execute(f"SET LOCAL lock_timeout = {int(1000 * limits.READER_SECONDS)}")
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

    def now(self) -> float:
        with self._read(limits.ANSWER_SECONDS) as connection:
            seconds = connection.exec_driver_sql(
                "SELECT extract(epoch FROM clock_timestamp())::float8"
            ).scalar_one()
        return float(seconds)

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
    deadline = time.monotonic() + limits.WORK_SECONDS
    while not session.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (key,)).scalar():
        if time.monotonic() > deadline:
            raise StateError(
                f"another collector is working on campaign {campaign}; check its status"
            )
        time.sleep(0.05)


def copy_rows(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of any rounds to the table of all reports, as a restored backup has them."""
    driver: Any = connection.connection.dbapi_connection
    with driver.cursor() as cursor, cursor.copy(_COPY.format(table="reports")) as copy:
        copy.set_types(["int4", "bytea", "int4", "bytea"])
        for row in rows:
            copy.write_row((row["round_key"], row["report_id"], row["question"], row["payload"]))


def _copy(connection: Connection, table: str, key: int, rows: Sequence[Row]) -> None:
    driver: Any = connection.connection.dbapi_connection
    with driver.cursor() as cursor, cursor.copy(_COPY.format(table=table)) as copy:
        copy.set_types(["int4", "bytea", "int4", "bytea"])
        for row in rows:
            copy.write_row((key, *row))
