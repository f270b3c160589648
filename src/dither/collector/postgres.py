"""PostgreSQL through psycopg 3: read committed, a round's row locked against closing while reports of it are stored."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.abc import RV, PQGen
from sqlalchemy.engine import Connection

from dither.collector.sql_store import SqlStore, store_failure, until_unread
from dither.collector.store import ANSWER_SECONDS, Row, StoreAway, StoreBusy, StoreFull
from dither.errors import InputError
from dither.types import JsonObject

CONNECT_SECONDS = 3  # for each address of the server; psycopg takes whole seconds, at least 2
# What the server keeps itself, a little less than the deadline, so that a lock held by somebody costs no connection.
_STATEMENT_MS = int(800 * ANSWER_SECONDS)
_LOCK_MS = int(600 * ANSWER_SECONDS)
_SERVER_SETTINGS = {
    "statement_timeout": _STATEMENT_MS,
    "lock_timeout": _LOCK_MS,
    "idle_in_transaction_session_timeout": 60_000,
    # A collector that vanished without a word must not keep the database from the next one for hours.
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
}
_CLIENT_SETTINGS = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": int(1000 * ANSWER_SECONDS),
}


class Late(psycopg.OperationalError):
    """The database did not answer before the deadline; the connection is gone."""


class Patience(threading.local):
    """How long the operations of one store may still wait: one deadline for each thread, and an end for all."""

    granted = ANSWER_SECONDS  # what the operation under way was given as a whole
    _until: float | None = None

    def __init__(self, closed: threading.Event) -> None:
        self._closed = closed  # the same in all threads

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Everything inside waits for the database this long altogether; inside another such block, not longer than that one."""
        outer = self._until, self.granted
        if self._until is None or time.monotonic() + seconds < self._until:
            self._until, self.granted = time.monotonic() + seconds, seconds
        try:
            yield
        finally:
            self._until, self.granted = outer

    @property
    def deadline(self) -> float:
        """When waiting ends; what is done outside any block has the usual time from now on."""
        return time.monotonic() + ANSWER_SECONDS if self._until is None else self._until

    def check(self, deadline: float) -> None:
        """Raise `Late` if there is nothing left to wait for."""
        if self._closed.is_set():
            raise Late("the store was closed while it waited for the database")
        if time.monotonic() > deadline:
            raise Late(f"no answer within {self.granted:g} s")


class BoundedConnection(psycopg.Connection[Any]):
    """A connection all of whose waits end at the deadline; it is closed then, for nobody knows what the server still does."""

    patience: Patience

    def wait(self, gen: PQGen[RV], *arguments: Any, **more: Any) -> RV:
        try:
            return super().wait(_watched(gen, self.patience), *arguments, **more)
        except Late:
            self.close()
            raise


def _watched(steps: PQGen[RV], patience: Patience) -> PQGen[RV]:
    """The same steps, with a look at the clock before each but the first."""
    deadline = patience.deadline
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            patience.check(deadline)
            wanted = steps.send(ready)
    except StopIteration as end:
        value: RV = end.value
        return value


def bounded_engine(address: sa.URL, patience: Patience) -> sa.Engine:
    """An engine whose connections are bounded, and whose errors never show what was stored."""
    settings = " ".join(f"-c {name}={value}" for name, value in _SERVER_SETTINGS.items())
    given = address.query.get("options", "")
    options = f"{settings} {given if isinstance(given, str) else ' '.join(given)}".strip()
    engine = sa.create_engine(
        address,
        pool_pre_ping=True,
        pool_timeout=ANSWER_SECONDS,
        hide_parameters=True,
        connect_args={**_CLIENT_SETTINGS, "connect_timeout": CONNECT_SECONDS, "options": options},
    )

    def connect(dialect: object, record: object, arguments: list[str], parameters: JsonObject) -> BoundedConnection:
        patience.check(patience.deadline)
        made = BoundedConnection.connect(*arguments, **parameters)
        made.patience = patience
        return made

    def begin(connection: Connection) -> None:
        driver: Any = connection.connection.dbapi_connection
        if patience.granted > ANSWER_SECONDS and not driver.autocommit:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(800 * patience.granted)}")

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "begin", begin)
    return engine


_LOCK = 0x646974686572  # "dither": one collector per database
_INSERT = (
    "INSERT INTO reports (round_key, report_id, question, payload) "
    "SELECT %s, * FROM unnest(%s::bytea[], %s::int[], %s::bytea[]) ON CONFLICT DO NOTHING RETURNING report_id"
)
# Stores nothing, and fails where no report could be stored: on a standby, in a database set to read only, without the rights, and
# while somebody keeps the table locked.
_COULD_WRITE = (
    "INSERT INTO reports (round_key, report_id, question, payload) SELECT 0, ''::bytea, 0, ''::bytea WHERE false"
)
# Whoever began to look at the database before the old rows were deleted may still read them, so VACUUM leaves them. Sessions of
# other roles show this to members of pg_read_all_stats only.
_OLD_READERS = """
SELECT count(*) FROM (
    SELECT backend_xmin AS oldest FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()
    UNION ALL SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL SELECT xmin FROM pg_replication_slots
    UNION ALL SELECT backend_xmin FROM pg_stat_replication
) AS held WHERE oldest IS NOT NULL AND age(oldest) >= age(%s::text::xid)
"""
# By itself VACUUM leaves the index alone where few pages of a large table hold dead rows, and passes over pages that somebody
# looks at just then; the index would go on to say where each report used to stand. FREEZE makes it wait for such pages.
_VACUUM = "VACUUM (FREEZE, INDEX_CLEANUP ON) reports"
# Refusals that are the state of the database, not of what was sent; psycopg calls most others of this kind OperationalError itself.
_AWAY = ("25006", "25P03", "42501", "XX")  # read only, idle too long, without the rights, broken


class PostgresStore(SqlStore):
    """The store in a database given as postgresql://...; an error if another collector still uses it when the patience ends."""

    _driver_error = psycopg.Error
    _keep_state = "FOR SHARE"
    _await_adding = "FOR UPDATE"

    def __init__(self, url: str, patience: float = 10.0) -> None:
        self._closed = threading.Event()
        self._patience = Patience(self._closed)
        self._engine = bounded_engine(read_address(url), self._patience)
        self._claim = Claim(self._engine, self._guarded)
        try:
            self._claim.take(patience)
            super().__init__(self._engine)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Waits for the database end at once."""
        self._closed.set()
        self._claim.drop()
        self._engine.dispose()

    def _within(self, seconds: float) -> AbstractContextManager[None]:
        return self._patience.within(seconds)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            # After the connection was made: should the database restart from here on, the transaction fails.
            self._claim.hold()
            # The guarantee rests on the log reaching the disk before the commit returns, whatever the server's default.
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO on")
            yield connection

    def _insert_new(self, connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
        """One statement; rows come sorted, so that two writers never wait for each other in a circle."""
        columns = (list(column) for column in zip(*rows, strict=True))
        return {row[0] for row in connection.exec_driver_sql(_INSERT, (key, *columns))}

    def _rewrite(self, keys: Sequence[int]) -> None:
        """Heap order and transaction numbers show who came together: write the rounds anew in the order of ids."""
        for key in keys:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(
                    "CREATE TEMPORARY TABLE in_order ON COMMIT DROP AS SELECT * FROM reports WHERE round_key = %s",
                    (key,),
                )
                connection.exec_driver_sql("DELETE FROM reports WHERE round_key = %s", (key,))
                connection.exec_driver_sql("INSERT INTO reports SELECT * FROM in_order ORDER BY report_id")
                last = connection.exec_driver_sql("SELECT mod(txid_current(), 4294967296)::text").scalar()
        with self._engine.connect() as plain:
            connection = plain.execution_options(isolation_level="AUTOCOMMIT")
            try:
                until_unread(lambda: not connection.exec_driver_sql(_OLD_READERS, (last,)).scalar())
                connection.exec_driver_sql(f"SET statement_timeout = {int(1000 * self._patience.granted)}")
                connection.exec_driver_sql(_VACUUM)
            finally:
                connection.invalidate()  # its settings are not for others
        self._tidied(keys)

    def _look(self) -> None:
        with self._engine.connect() as connection:
            self._claim.hold()
            connection.exec_driver_sql(_COULD_WRITE)

    def _translated(self, cause: BaseException | None, statement: str | None) -> Exception:
        """StoreFull (the disk), StoreAway (no answer, connection, read only, resources), StoreBusy (deadlock), or StoreFailure: the
        server's messages repeat the values it was given."""
        if not isinstance(cause, psycopg.Error):
            return store_failure(cause, "no code", statement)
        state = cause.sqlstate or ""
        if isinstance(cause, psycopg.errors.DiskFull):
            return StoreFull("the database's disk is full")
        if isinstance(cause, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)):
            return StoreBusy("the database undid the transaction in favour of another")
        if isinstance(cause, (psycopg.OperationalError, psycopg.InterfaceError)) or state.startswith(_AWAY):
            said = cause.diag.message_primary or str(cause)
            return StoreAway(f"the database is away: {' '.join(said.split())[:200]}")
        return store_failure(cause, state or "no code", statement)


def read_address(text: str) -> sa.URL:
    """Where a database is. Refusals repeat nothing of the address but names, for it may hold a password."""
    try:
        url = sa.make_url("postgresql:" + text.partition(":")[2]).set(drivername="postgresql+psycopg")
        url.get_dialect()().create_connect_args(url)  # reads hosts and ports among the options
    except (sa.exc.ArgumentError, ValueError):
        raise InputError(
            "the store's address cannot be read; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE with a number as the port",
            where="store",
        ) from None
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise InputError(f"the store's address has port {url.port}; ports end at 65535", where="store")
    if "@" in (url.host or ""):
        raise InputError("the store's address has a second @; write the one in the password as %40", where="store")
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    unknown = sorted(set(url.query) - known)
    if unknown:
        raise InputError(
            f"the store's address has an option {unknown[0]!r} that PostgreSQL does not know", where="store"
        )
    return url


class Claim:
    """A session lock that keeps other collectors away. It ends with its session, so after a restart it is taken anew."""

    def __init__(self, engine: sa.Engine, guarded: Callable[[float], AbstractContextManager[None]]) -> None:
        self._engine = engine
        self._guarded = guarded
        self._turn = threading.Lock()
        self._session: Connection | None = None

    def take(self, patience: float) -> None:
        """Take the lock; a killed collector's session may take a moment to go."""
        deadline = time.monotonic() + patience
        with self._guarded(patience + ANSWER_SECONDS):
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            try:
                while not session.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).scalar():
                    if time.monotonic() > deadline:
                        raise InputError("the database is in use by another collector", where="store")
                    time.sleep(0.1)
            except BaseException:
                session.close()
                raise
            self._session = session

    def hold(self) -> None:
        """Make sure that the lock is held; StoreAway if another collector has it by now."""
        if not self._turn.acquire(timeout=ANSWER_SECONDS):
            raise StoreAway("the database is away: no answer to the question whether it is in use")
        try:
            if self._session is not None and not _ended(self._session):
                return
            self.drop()
            self.take(patience=1.0)
        except InputError as error:
            raise StoreAway(str(error)) from None
        finally:
            self._turn.release()

    def drop(self) -> None:
        """End the session, and with it the lock."""
        if self._session is not None and not self._session.closed:
            self._session.invalidate()
            self._session.close()


def _ended(session: Connection) -> bool:
    """Whether the server has ended an idle session, without asking it: nothing but its end makes one readable."""
    if session.closed:
        return True
    driver: Any = session.connection.dbapi_connection
    with selectors.DefaultSelector() as selector:
        selector.register(driver.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))
