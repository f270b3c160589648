"""Connections to PostgreSQL through psycopg 3 that never wait past a deadline.

PostgreSQL's own settings (`statement_timeout`, `lock_timeout`, `tcp_user_timeout`,
keepalives) end most waits and are set below. They cannot end a wait for a server that
accepts packets and does not answer, nor can `psycopg_pool`, which limits only the wait for
a free connection. So each wait in libpq is checked against a deadline of the client.
Without it, `test_stopped_in_its_tracks_senders_are_put_off_in_time_and_all_goes_on_afterwards`
and `test_the_writer_and_the_store_stop_although_the_database_does_not_answer` in
tests/crash/test_database_hangs.py fail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.abc import RV, PQGen
from sqlalchemy.engine import Connection

from dither.collector.store import ANSWER_SECONDS
from dither.errors import InputError

CONNECT_SECONDS = 3  # for each address of the server; psycopg takes whole seconds, at least 2
# The server's own limits are a little shorter than the client's deadline: a statement that
# waits for a lock then fails without the loss of the connection.
_STATEMENT_SHARE = 0.8
_LOCK_SHARE = 0.6
_SERVER_SETTINGS = {
    "statement_timeout": int(1000 * _STATEMENT_SHARE * ANSWER_SECONDS),
    "lock_timeout": int(1000 * _LOCK_SHARE * ANSWER_SECONDS),
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
    "tcp_user_timeout": int(1000 * ANSWER_SECONDS),
    "connect_timeout": CONNECT_SECONDS,
}


class DeadlineExceeded(psycopg.OperationalError):
    """The database did not answer before the deadline; the connection is closed."""


class Deadline(threading.local):
    """The deadline of a store's operations: one for each thread.

    Args:
        closed: Set when the store is closed, which ends all waits.
    """

    granted = ANSWER_SECONDS  # seconds that the current operation has in all
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
        return time.monotonic() + ANSWER_SECONDS if self._until is None else self._until

    def check(self, at: float) -> None:
        """Raise `DeadlineExceeded` if the time is over or the store was closed."""
        if self._closed.is_set():
            raise DeadlineExceeded("the store was closed while it waited for the database")
        if time.monotonic() > at:
            raise DeadlineExceeded(f"no answer within {self.granted:g} s")


class _BoundedConnection(psycopg.Connection[Any]):
    """A connection whose waits end at the deadline.

    It is closed then, because the state of the server's side is unknown.
    """

    deadline: Deadline

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        try:
            return super().wait(_checked(gen, self.deadline), *arguments, **options)
        except DeadlineExceeded:
            self.close()
            raise


def _checked(steps: PQGen[RV], deadline: Deadline) -> PQGen[RV]:
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


def bounded_engine(address: sa.URL, deadline: Deadline) -> sa.Engine:
    """Create an engine whose connections keep the deadline and whose errors hide parameters."""
    settings = " ".join(f"-c {name}={value}" for name, value in _SERVER_SETTINGS.items())
    given = address.query.get("options", "")
    given_text = given if isinstance(given, str) else " ".join(given)
    options = f"{settings} {given_text}".strip()
    engine = sa.create_engine(
        address,
        pool_pre_ping=True,
        pool_timeout=ANSWER_SECONDS,
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
        if deadline.granted > ANSWER_SECONDS and not driver.autocommit:
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
