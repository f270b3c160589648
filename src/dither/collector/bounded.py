"""PostgreSQL connections that never wait for ever.

A server that is stopped, or behind a network that swallows packets, neither answers nor ends the connection; the timeouts that the
server keeps itself are then worth nothing. So each operation has a deadline here, on the client's side: when it passes, the
connection is dropped and the operation fails. `close` ends every wait of a store at once.

psycopg asks the step that waits for the socket again every tenth of a second, whether or not anything came; the deadline is looked
at there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.store import ANSWER_SECONDS

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


class Patience:
    """How long the operations of one store may still wait: one deadline for each thread, and an end for all."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._closed = False

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Everything inside waits for the database this long altogether; inside another such block, not longer than that one."""
        outer: tuple[float, float] | None = getattr(self._own, "limit", None)
        if outer is None or time.monotonic() + seconds < outer[0]:
            self._own.limit = (time.monotonic() + seconds, seconds)
        try:
            yield
        finally:
            self._own.limit = outer

    @property
    def granted(self) -> float:
        """The seconds that the operation under way was given as a whole."""
        limit: tuple[float, float] | None = getattr(self._own, "limit", None)
        return ANSWER_SECONDS if limit is None else limit[1]

    @property
    def deadline(self) -> float:
        """When waiting ends; what is done outside any block has the usual time from now on."""
        limit: tuple[float, float] | None = getattr(self._own, "limit", None)
        return time.monotonic() + ANSWER_SECONDS if limit is None else limit[0]

    def check(self, deadline: float) -> None:
        """Raise `Late` if there is nothing left to wait for."""
        if self._closed:
            raise Late("the store was closed while it waited for the database")
        if time.monotonic() > deadline:
            raise Late(f"no answer within {self.granted:g} s")

    def close(self) -> None:
        """End all waits, now and later."""
        self._closed = True


class BoundedConnection(psycopg.Connection[Any]):
    """A connection all of whose waits end at the deadline; it is closed then, for nobody knows what the server still does."""

    patience: Patience

    def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
        try:
            return super().wait(_watched(gen, self.patience), *arguments, **more)
        except Late:
            self.close()
            raise


def _watched(steps: Generator[Any, Any, Any], patience: Patience) -> Generator[Any, Any, Any]:
    """The same steps, with a look at the clock before each but the first."""
    deadline = patience.deadline
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            patience.check(deadline)
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value


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

    def connect(dialect: Any, record: Any, arguments: Any, parameters: Any) -> BoundedConnection:
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
