"""The audit log: which key did what, when, to which campaign. Never about participants.

An entry is written in the transaction of the change, so both exist or neither. `acting`
names the operator, and the store's writes read it. An automatic change, such as a round
that closes by itself, is recorded under the collector's name with its day only: the minute
would reveal when the last report came.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector import limits
from dither.collector.layout import Transaction, audit

ITSELF = "(collector)"  # not a valid name of a key
MAX_ENTRIES = 1_000  # of one page
_MAX_DETAIL = 300  # characters


@dataclass(frozen=True)
class _Act:
    """The operation in progress and its operator."""

    who: str
    what: str


@dataclass(frozen=True)
class AuditEntry:
    """One change. `at` is a time in UTC; only a day for automatic changes."""

    number: int
    at: str
    who: str
    what: str
    campaign: str | None
    detail: str


_acting: ContextVar[_Act | None] = ContextVar("acting", default=None)


@contextmanager
def acting(who: str, what: str) -> Iterator[None]:
    """Record changes of the store inside as this key's, in this context."""
    before = _acting.set(_Act(who, what))
    try:
        yield
    finally:
        _acting.reset(before)


def note(connection: Connection, what: str, campaign: str | None = None, detail: str = "") -> None:
    """Record a change in its own transaction; `what` is used outside `acting`."""
    now = datetime.now(UTC)
    act = _acting.get()
    at = now.date().isoformat() if act is None else now.strftime("%Y-%m-%dT%H:%M:%SZ")
    act = act or _Act(ITSELF, what)
    values = {
        "at": at,
        "who": act.who,
        "what": act.what,
        "campaign": campaign,
        "detail": detail[:_MAX_DETAIL],
    }
    connection.execute(sa.insert(audit).values(values))


class AuditLog:
    """The audit log of a store."""

    def __init__(self, write: Transaction, read: Transaction) -> None:
        self._write, self._read = write, read

    def add(self, what: str, campaign: str | None = None, detail: str = "") -> None:
        """Record an event in a separate transaction."""
        with self._write(limits.WORK_SECONDS) as connection:
            note(connection, what, campaign, detail)

    def entries(
        self, campaign: str | None = None, before: int | None = None, most: int = 100
    ) -> list[AuditEntry]:
        """Return entries, the latest first.

        Args:
            campaign: Only entries of this campaign.
            before: Only entries with smaller numbers, to continue after a page.
            most: Entries of a page.
        """
        c = audit.c
        query = sa.select(c.number, c.at, c.who, c.what, c.campaign, c.detail).order_by(
            c.number.desc()
        )
        if campaign is not None:
            query = query.where(c.campaign == campaign)
        if before is not None:
            query = query.where(c.number < before)
        with self._read(limits.ANSWER_SECONDS) as connection:
            selected = connection.execute(query.limit(min(most, MAX_ENTRIES))).all()
        return [AuditEntry(*row) for row in selected]
