"""Drafts of campaigns: what curators typed into the console's form, before anyone is asked.

A draft is the text of the form's fields. Creating and deleting one is in the audit log;
saving it again, which the form does every few seconds, is not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import sqlalchemy as sa

from dither.collector import limits
from dither.collector.audit import note
from dither.collector.layout import Transaction, drafts
from dither.errors import StateError

MAX_DRAFTS = 500
MAX_DRAFT_BYTES = 1 << 20


@dataclass(frozen=True)
class Draft:
    """A draft. `version` counts how often it was saved; `changed` is the day (UTC)."""

    id: str
    title: str
    changed: str
    version: int
    fields: dict[str, str]


class DraftTable:
    """The drafts in a store."""

    def __init__(self, write: Transaction, read: Transaction) -> None:
        self._write, self._read = write, read

    def all(self) -> list[Draft]:
        """Return all drafts without their fields, the one changed last first."""
        c = drafts.c
        query = sa.select(c.id, c.title, c.changed, c.version).order_by(c.changed.desc(), c.title)
        with self._read(limits.ANSWER_SECONDS) as connection:
            return [Draft(*row, {}) for row in connection.execute(query).all()]

    def find(self, draft: str) -> Draft | None:
        """Return a draft, or None if it does not exist."""
        with self._read(limits.ANSWER_SECONDS) as connection:
            row = connection.execute(sa.select(drafts).where(drafts.c.id == draft)).one_or_none()
        if row is None:
            return None
        return Draft(row.id, row.title, row.changed, row.version, json.loads(row.fields))

    def save(self, draft: Draft) -> bool:
        """Store a draft whose `version` is one more than the stored one; 1 creates it.

        Returns:
            False, without a change, if the stored version is another one: somebody else
            saved or deleted the draft meanwhile.

        Raises:
            StateError: The draft is too large, or there are too many.
        """
        fields = json.dumps(draft.fields, ensure_ascii=False)
        if len(fields.encode()) > MAX_DRAFT_BYTES:
            raise StateError(f"a draft has at most {MAX_DRAFT_BYTES:,} bytes; shorten its texts")
        c = drafts.c
        values = {**vars(draft), "fields": fields}
        with self._write(limits.WORK_SECONDS) as connection:
            if draft.version > 1:
                of_version = (c.id == draft.id, c.version == draft.version - 1)
                update = sa.update(drafts).where(*of_version).values(values)
                return connection.execute(update).rowcount == 1
            if connection.scalar(sa.select(c.id).where(c.id == draft.id)) is not None:
                return False
            if (
                connection.scalar(sa.select(sa.func.count()).select_from(drafts)) or 0
            ) >= MAX_DRAFTS:
                raise StateError(f"there are {MAX_DRAFTS} drafts; delete one first")
            connection.execute(sa.insert(drafts).values(values))
            note(connection, "create-draft", None, draft.title)
            return True

    def delete(self, draft: str) -> bool:
        """Delete a draft; False if it does not exist."""
        c = drafts.c
        with self._write(limits.WORK_SECONDS) as connection:
            title = connection.scalar(sa.select(c.title).where(c.id == draft))
            if title is None:
                return False
            connection.execute(sa.delete(drafts).where(c.id == draft))
            note(connection, "delete-draft", None, title)
            return True
