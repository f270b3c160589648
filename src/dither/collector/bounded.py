"""Connections to PostgreSQL through psycopg 3 whose every wait ends in time, and the addresses they are made from."""

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


class _BoundedConnection(psycopg.Connection[Any]):
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

    def connect(
        dialect: object, record: object, arguments: list[str], parameters: JsonObject
    ) -> _BoundedConnection:
        patience.check(patience.deadline)
        made = _BoundedConnection.connect(*arguments, **parameters)
        made.patience = patience
        return made

    def begin(connection: Connection) -> None:
        driver: Any = connection.connection.dbapi_connection
        if patience.granted > ANSWER_SECONDS and not driver.autocommit:
            connection.exec_driver_sql(
                f"SET LOCAL statement_timeout = {int(800 * patience.granted)}"
            )

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "begin", begin)
    return engine


def read_address(text: str) -> sa.URL:
    """Where a database is. Refusals repeat nothing of the address but names, for it may hold a password."""
    try:
        url = sa.make_url("postgresql:" + text.partition(":")[2]).set(
            drivername="postgresql+psycopg"
        )
        url.get_dialect()().create_connect_args(url)  # reads hosts and ports among the options
    except (sa.exc.ArgumentError, ValueError):
        raise InputError(
            "the store's address cannot be read; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE with a number as the port",
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
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    unknown = sorted(set(url.query) - known)
    if unknown:
        raise InputError(
            f"the store's address has an option {unknown[0]!r} that PostgreSQL does not know",
            where="store",
        )
    return url
