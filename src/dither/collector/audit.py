"""What operators did: which key, what, when, about which campaign. Never about participants.

A change is noted in the transaction that makes it, so that there is none without its note and no note of a change that did not
happen. Whoever acts says so with `acting`, and the store's own writes find it there. What nobody pressed for, such as a round that
ends by itself, is noted under the collector's name with its day alone: its minute would tell when the last report came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.layout import audit
from dither.collector.store import ANSWER_SECONDS, WORK_SECONDS

Transaction = Callable[[float], AbstractContextManager[Connection]]
ITSELF = "(collector)"  # no key may be called so
MAX_ENTRIES = 1_000  # of one page
_DETAIL = 300  # signs


@dataclass(frozen=True)
class _Act:
    """What is being done, and by whom."""

    who: str
    what: str


@dataclass(frozen=True)
class AuditEntry:
    """One change. `at` is a time in UTC; a day alone for what the collector did by itself."""

    number: int
    at: str
    who: str
    what: str
    campaign: str | None
    detail: str


_acting: ContextVar[_Act | None] = ContextVar("acting", default=None)


@contextmanager
def acting(who: str, what: str) -> Iterator[None]:
    """Changes of the store inside are noted as this key's act; in this thread, or what is started from it with its context."""
    before = _acting.set(_Act(who, what))
    try:
        yield
    finally:
        _acting.reset(before)


def note(connection: Connection, what: str, campaign: str | None = None, detail: str = "") -> None:
    """Write down a change in the transaction that makes it; `what` is used where nobody said what is being done."""
    now = datetime.now(UTC)
    act = _acting.get()
    at = now.date().isoformat() if act is None else now.strftime("%Y-%m-%dT%H:%M:%SZ")
    act = act or _Act(ITSELF, what)
    values = {
        "at": at,
        "who": act.who,
        "what": act.what,
        "campaign": campaign,
        "detail": detail[:_DETAIL],
    }
    connection.execute(sa.insert(audit).values(values))


class AuditLog:
    """The log of a store; `write` and `read` give transactions of it."""

    def __init__(self, write: Transaction, read: Transaction) -> None:
        self._write, self._read = write, read

    def add(self, what: str, campaign: str | None = None, detail: str = "") -> None:
        """Note what no transaction of its own makes."""
        with self._write(WORK_SECONDS) as connection:
            note(connection, what, campaign, detail)

    def entries(
        self, campaign: str | None = None, before: int | None = None, most: int = 100
    ) -> list[AuditEntry]:
        """The latest entries first, those of one campaign or all; `before` goes on from the last number of a page."""
        c = audit.c
        query = sa.select(c.number, c.at, c.who, c.what, c.campaign, c.detail).order_by(
            c.number.desc()
        )
        if campaign is not None:
            query = query.where(c.campaign == campaign)
        if before is not None:
            query = query.where(c.number < before)
        with self._read(ANSWER_SECONDS) as connection:
            found = connection.execute(query.limit(min(most, MAX_ENTRIES))).all()
        return [AuditEntry(*row) for row in found]
