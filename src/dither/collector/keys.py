"""The keys of a collector's operators: a name, a role, and a hash. The key itself is shown once and kept nowhere.

A `curator` may do everything, a `reader` may only look. The key in the file of `dither serve` is the curator key `operator`: who
holds that file holds the collector. Another key in it replaces the one before, and a key that was revoked stays so.

Keys that are made here have 256 random bits, so that one round of SHA-256 hides them: there is nothing to guess them from. Hashes
are compared in constant time, all of them at each request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.audit import Transaction, note
from dither.collector.layout import keys, sessions
from dither.collector.store import ANSWER_SECONDS, WORK_SECONDS
from dither.errors import ParameterError, StateError

Role = Literal["curator", "reader"]
_ROLES: dict[str, Role] = {"curator": "curator", "reader": "reader"}
OPERATOR = "operator"  # the name of the key in the file of `dither serve`
MAX_KEYS = 1_000  # each request is compared with all that are not revoked
KNOWN_SECONDS = (
    1.0  # after which a key is looked up again where other collectors may have revoked it
)
UNKNOWN_SECONDS = (
    0.1  # between two looks for keys that nobody knows, where others may have made them
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._@-]{0,62}[A-Za-z0-9])?")
_ADD = "INSERT INTO keys (name, role, hash, created) VALUES (:name, :role, :hash, :created) ON CONFLICT DO NOTHING"
log = logging.getLogger("dither.collector")


@dataclass(frozen=True)
class Principal:
    """Who asks: the name of a key and what it may do."""

    name: str
    role: Role

    @property
    def may_change(self) -> bool:
        return self.role == "curator"


@dataclass(frozen=True)
class KeyRecord:
    """A key as it is listed; `created` and `revoked` are days."""

    name: str
    role: Role
    created: str
    revoked: str | None


def hash_of(secret: str) -> bytes:
    """What is kept of a key, or of a session's cookie."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _laid_off(connection: Connection) -> str:
    """A name for an operator's key that was revoked; no other key may be called so."""
    before = (
        sa.select(sa.func.count()).select_from(keys).where(keys.c.name.startswith(f"{OPERATOR} ("))
    )
    return f"{OPERATOR} ({1 + (connection.scalar(before) or 0)})"


class KeyTable:
    """The keys in a store; every change is in the audit log."""

    def __init__(self, write: Transaction, read: Transaction) -> None:
        self._write, self._read = write, read

    def add(self, name: str, role: Role, digest: bytes) -> None:
        """A new key; a name once used stays taken, so that the audit log means one key by it."""
        with self._write(WORK_SECONDS) as connection:
            if (connection.scalar(sa.select(sa.func.count()).select_from(keys)) or 0) >= MAX_KEYS:
                raise StateError(f"the store has {MAX_KEYS:,} keys, which is the most")
            values = {"name": name, "role": role, "hash": digest, "created": _today()}
            if connection.execute(sa.text(_ADD), values).rowcount != 1:
                raise StateError(f"there is, or was, a key {name!r}; choose another name")
            note(connection, "create-key", detail=f"{name}, {role}")

    def revoke(self, name: str) -> None:
        """End a key and its sessions; the last curator's is refused."""
        c = keys.c
        with self._write(WORK_SECONDS) as connection:
            active = connection.execute(
                sa.select(c.name, c.role, c.hash).where(c.revoked.is_(None)).with_for_update()
            )
            found = {row.name: row for row in active}
            if name not in found:
                raise ParameterError(
                    f"there is no key {name!r} that is not revoked", where="name", value=name
                )
            if (
                found[name].role == "curator"
                and sum(row.role == "curator" for row in found.values()) == 1
            ):
                raise StateError(f"{name!r} is the only curator key; create another one first")
            connection.execute(sa.update(keys).where(c.name == name).values(revoked=_today()))
            connection.execute(sa.delete(sessions).where(sessions.c.key_hash == found[name].hash))
            note(connection, "revoke-key", detail=name)

    def adopt(self, digest: bytes) -> str | None:
        """Make this the key `operator`; None if it was revoked, otherwise the name it goes by."""
        c = keys.c
        with self._write(WORK_SECONDS) as connection:
            known = connection.execute(
                sa.select(c.name, c.revoked).where(c.hash == digest)
            ).one_or_none()
            if known is not None:
                return known.name if known.revoked is None else None
            values = {"name": OPERATOR, "role": "curator", "hash": digest, "created": _today()}
            if connection.execute(sa.text(_ADD), values).rowcount == 1:
                note(connection, "create-key", detail=f"{OPERATOR}, curator")
                return OPERATOR
            former = connection.execute(
                sa.select(c.hash, c.revoked).where(c.name == OPERATOR).with_for_update()
            ).one()
            if former.hash == digest:  # another worker of the same key came first
                return OPERATOR if former.revoked is None else None
            connection.execute(sa.delete(sessions).where(sessions.c.key_hash == former.hash))
            if former.revoked is None:
                connection.execute(sa.update(keys).where(c.name == OPERATOR).values(values))
            else:  # its hash stays, lest a collector that still has the old file bring it back
                connection.execute(
                    sa.update(keys).where(c.name == OPERATOR).values(name=_laid_off(connection))
                )
                connection.execute(sa.insert(keys).values(values))
            note(connection, "replace-key", detail=OPERATOR)
            return OPERATOR

    def active(self) -> list[tuple[bytes, Principal]]:
        """Hash and holder of every key that is not revoked."""
        c = keys.c
        with self._read(ANSWER_SECONDS) as connection:
            found = connection.execute(
                sa.select(c.hash, c.name, c.role).where(c.revoked.is_(None))
            ).all()
        return [(bytes(row.hash), Principal(row.name, row.role)) for row in found]

    def listed(self) -> list[KeyRecord]:
        """All keys that ever were, by name."""
        c = keys.c
        with self._read(ANSWER_SECONDS) as connection:
            found = connection.execute(
                sa.select(c.name, c.role, c.created, c.revoked).order_by(c.name)
            ).all()
        return [KeyRecord(*row) for row in found]


class Keys:
    """Who a key belongs to, from memory. A collector that has its store to itself looks there only after its own changes; one that
    shares it looks again after `KNOWN_SECONDS`, so that a key revoked elsewhere ends within them."""

    def __init__(
        self, table: KeyTable, shared: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table, self._shared, self._clock = table, shared, clock
        self._guard = threading.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._active: list[tuple[bytes, Principal]] = []
        self._read_at = -KNOWN_SECONDS
        self.look()

    def look(self) -> None:
        """Read the keys anew."""
        with self._guard:
            begun = self._clock()
            self._active = self._table.active()
            self._read_at = begun

    def adopt(self, key: str) -> None:
        """Take the key of this collector's own file as that of the operator."""
        if self._table.adopt(hash_of(key)) is None:
            log.warning(
                "the key of this collector was revoked; start it with another key file for a new one"
            )
        self.look()

    def create(self, name: str, role: str) -> str:
        """A new key, shown this once."""
        known = _ROLES.get(role)
        if known is None:
            raise ParameterError(
                f"a key's role is 'curator' or 'reader', not {role[:20]!r}",
                where="role",
                value=role,
            )
        if not _NAME.fullmatch(name):
            raise ParameterError(
                f"{name[:64]!r} cannot name a key; use letters, digits and . _ @ - between them, at most 64 signs",
                where="name",
                value=name,
            )
        made = secrets.token_urlsafe(32)
        self._table.add(name, known, hash_of(made))
        self.look()
        return made

    def revoke(self, name: str) -> None:
        """End a key: here at once, on other collectors within `KNOWN_SECONDS`; its sessions everywhere at once."""
        self._table.revoke(name)
        self.look()

    def listed(self) -> list[KeyRecord]:
        """All keys that ever were, by name."""
        return self._table.listed()

    def match(self, key: str) -> Principal | None:
        """Whose key it is by what was read last. Every hash is compared, so that time tells nothing about any of them."""
        digest, found = hash_of(key), None
        for held, principal in self._active:
            if hmac.compare_digest(held, digest):
                found = principal
        return found

    def digests(self) -> set[bytes]:
        """The hashes of all keys that are not revoked; in a thread that may wait for the store."""
        if self._shared and self._clock() - self._read_at >= KNOWN_SECONDS:
            self.look()
        return {digest for digest, _ in self._active}

    def _outdated(self, found: Principal | None, asked: float) -> bool:
        """Whether others may have made the key before it was asked for, or revoked it since the last look."""
        since = asked if found is None else self._clock() - KNOWN_SECONDS
        return self._shared and self._read_at < since

    def identify(self, key: str) -> Principal | None:
        """Whose key it is; in a thread that may wait for the store."""
        found = self.match(key)
        if self._outdated(found, self._clock()):
            self.look()
            found = self.match(key)
        return found

    async def identified(self, key: str) -> Principal | None:
        """The same in the event loop: one look at the store at a time, `UNKNOWN_SECONDS` apart however many strangers knock. A key
        that nobody knows is told so after a look that began later than the request, so that one made elsewhere counts at once."""
        asked, found = self._clock(), self.match(key)
        while self._outdated(found, asked):
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(
                    self._look_soon(0.0 if found else UNKNOWN_SECONDS)
                )
            await asyncio.shield(self._looking)
            found = self.match(key)
            if found is not None:
                break
        return found

    async def _look_soon(self, apart: float) -> None:
        await asyncio.sleep(max(0.0, self._read_at + apart - self._clock()))
        await asyncio.to_thread(self.look)
