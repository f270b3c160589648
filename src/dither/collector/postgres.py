"""PostgreSQL through psycopg 3: read committed, a round's row locked against closing while reports of it are stored."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.sql_store import Dialect, SqlStore
from dither.collector.store import Row, StoreAway, StoreBusy, StoreFull
from dither.errors import InputError

_LOCK = 0x646974686572  # "dither": one collector a database
_INSERT = (
    "INSERT INTO reports (round_key, report_id, question, payload) "
    "SELECT %s, * FROM unnest(%s::bytea[], %s::int[], %s::bytea[]) ON CONFLICT DO NOTHING RETURNING report_id"
)


def open_postgres(url: str, patience: float = 10.0) -> SqlStore:
    """The store in a database given as postgresql://...; an error if another collector uses it."""
    address = sa.make_url(url)
    if address.get_backend_name() != "postgresql":
        raise InputError(f"{address.render_as_string()} is not a PostgreSQL address", where="store")
    address = address.set(drivername="postgresql+psycopg")
    engine = sa.create_engine(address, pool_pre_ping=True, connect_args={"connect_timeout": 5})
    try:
        claim = Claim(engine, patience)
    except BaseException:
        engine.dispose()
        raise

    @contextmanager
    def writing() -> Iterator[Connection]:
        with engine.begin() as connection:
            # After the connection was made: should the database restart from here on, the transaction fails.
            claim.hold()
            # The guarantee rests on the log reaching the disk before the commit returns, whatever the server's default.
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO on")
            yield connection

    def tidy(key: int) -> None:
        # Heap order and transaction numbers show who came together: write the round anew in the order of ids.
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TEMPORARY TABLE in_order ON COMMIT DROP AS SELECT * FROM reports WHERE round_key = %s", (key,)
            )
            connection.exec_driver_sql("DELETE FROM reports WHERE round_key = %s", (key,))
            connection.exec_driver_sql("INSERT INTO reports SELECT * FROM in_order ORDER BY report_id")
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM reports")

    def check() -> None:
        with engine.connect() as connection:
            claim.hold()
            connection.exec_driver_sql("SELECT 1 FROM facts")

    def close() -> None:
        claim.drop()
        engine.dispose()

    try:
        return SqlStore(Dialect(engine, writing, insert_new, guarded, "FOR SHARE", tidy, check, close))
    except BaseException:
        close()
        raise


def insert_new(connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
    """One statement; rows come sorted, so that two writers never wait for each other in a circle."""
    ids, questions, payloads = (list(column) for column in zip(*rows, strict=True))
    return {bytes(r[0]) for r in connection.exec_driver_sql(_INSERT, (key, ids, questions, payloads))}


@contextmanager
def guarded() -> Iterator[None]:
    """The driver's failures as StoreFull (the disk) and StoreAway (connection, shutdown, deadlock, resources)."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        cause: Any = error.orig
        if isinstance(cause, psycopg.errors.DiskFull):
            raise StoreFull("the database's disk is full") from error
        if isinstance(cause, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)):
            raise StoreBusy("the database undid the transaction in favour of another") from error
        if isinstance(cause, (psycopg.OperationalError, psycopg.InterfaceError)):
            raise StoreAway(f"the database is away: {' '.join(str(cause).split())[:200]}") from error
        raise


class Claim:
    """A session lock that keeps other collectors away. It ends with its session, so after a restart it is taken anew."""

    def __init__(self, engine: sa.Engine, patience: float) -> None:
        self._engine = engine
        self._turn = threading.Lock()
        self._session = self._take(patience)

    def hold(self) -> None:
        """Make sure that the lock is held; StoreAway if another collector has it by now."""
        with self._turn:
            if not _ended(self._session):
                return
            self.drop()
            try:
                self._session = self._take(patience=1.0)
            except InputError as error:
                raise StoreAway(str(error)) from None

    def drop(self) -> None:
        """End the session, and with it the lock."""
        if not self._session.closed:
            self._session.invalidate()
            self._session.close()

    def _take(self, patience: float) -> Connection:
        """A killed collector's session may take a moment to go."""
        deadline = time.monotonic() + patience
        with guarded():
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            try:
                while not session.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).scalar():
                    if time.monotonic() > deadline:
                        raise InputError("the database is in use by another collector", where="store")
                    time.sleep(0.1)
            except BaseException:
                session.close()
                raise
            return session


def _ended(session: Connection) -> bool:
    """Whether the server has ended an idle session, without asking it: nothing but its end makes one readable."""
    if session.closed:
        return True
    driver: Any = session.connection.dbapi_connection
    with selectors.DefaultSelector() as selector:
        selector.register(driver.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))
