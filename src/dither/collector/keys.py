"""Keys of a collector's operators, and the sessions of their browsers.

A key has a name, a role and a hash; the key itself is shown only once.

A `curator` may do everything, a `reader` may only read. The key in the file of `dither
serve` is the curator key `operator`: the holder of that file controls the collector. A new
key in it replaces the previous one, and a revoked key stays revoked.

Generated keys have 256 random bits, so one round of SHA-256 is enough to store them. Every
request is compared with all hashes, in constant time.

A session is opened with a key and ended by sign-out, by time or by revocation. Sessions are
hashed rows of the store, so that every collector knows them and a sign-out or a revoked key
ends them everywhere at once; a signed cookie would be valid until it expires. The cookie's
value is 256 random bits. The token against forged requests in every form is an HMAC of it,
so that nothing more is stored (OWASP, "Cross-Site Request Forgery Prevention").

Failed sign-ins of all users are counted in one number in the store: `MAX_FAILURES` in
`FAILURES_SECONDS` for all collectors together. A sign-in asks only for a key, so no answer can
reveal whether a user exists.
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
from typing import Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector import limits
from dither.collector.audit import acting, note
from dither.collector.layout import Transaction, keys, sessions, sign_ins
from dither.collector.problems import Problem
from dither.errors import ParameterError, StateError

Role = Literal["curator", "reader"]
_ROLES: dict[str, Role] = {"curator": "curator", "reader": "reader"}
OPERATOR = "operator"  # the name of the key in the file of `dither serve`
_MAX_KEYS = 1_000  # each request is compared with all that are not revoked
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._@-]{0,62}[A-Za-z0-9])?")
_ADD = (
    "INSERT INTO keys (name, role, hash, created) VALUES (:name, :role, :hash, :created) "
    "ON CONFLICT DO NOTHING"
)
log = logging.getLogger("dither.collector")


@dataclass(frozen=True)
class Principal:
    """The holder of a key: its name and role."""

    name: str
    role: Role

    @property
    def may_change(self) -> bool:
        return self.role == "curator"


@dataclass(frozen=True)
class KeyRecord:
    """A key in a list; `created` and `revoked` are days."""

    name: str
    role: Role
    created: str
    revoked: str | None


def hash_of(secret: str) -> bytes:
    """Return the stored hash of a key or of a session's cookie."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _retired_key_name(connection: Connection) -> str:
    """Return a new name for a revoked operator key; it is not valid for other keys."""
    before = (
        sa.select(sa.func.count()).select_from(keys).where(keys.c.name.startswith(f"{OPERATOR} ("))
    )
    return f"{OPERATOR} ({1 + (connection.scalar(before) or 0)})"


class KeyTable:
    """The keys in a store; every change is in the audit log."""

    def __init__(self, write: Transaction, read: Transaction) -> None:
        self._write, self._read = write, read

    def add(self, name: str, role: Role, digest: bytes) -> None:
        """Add a key; a name is never reused, so that it is unique in the audit log."""
        with self._write(limits.WORK_SECONDS) as connection:
            if (connection.scalar(sa.select(sa.func.count()).select_from(keys)) or 0) >= _MAX_KEYS:
                raise StateError(f"the store has {_MAX_KEYS:,} keys, the maximum")
            values = {"name": name, "role": role, "hash": digest, "created": _today()}
            if connection.execute(sa.text(_ADD), values).rowcount != 1:
                raise StateError(f"the name {name!r} is or was in use; choose another name")
            note(connection, "create-key", detail=f"{name}, {role}")

    def revoke(self, name: str) -> None:
        """Revoke a key and end its sessions; the last curator's key is refused."""
        c = keys.c
        with self._write(limits.WORK_SECONDS) as connection:
            active = connection.execute(
                sa.select(c.name, c.role, c.hash).where(c.revoked.is_(None)).with_for_update()
            )
            by_name = {row.name: row for row in active}
            if name not in by_name:
                raise ParameterError(
                    f"there is no key {name!r} that is not revoked", where="name", value=name
                )
            curators = [row.name for row in by_name.values() if row.role == "curator"]
            if curators == [name]:
                raise StateError(f"{name!r} is the only curator key; create another one first")
            connection.execute(sa.update(keys).where(c.name == name).values(revoked=_today()))
            connection.execute(sa.delete(sessions).where(sessions.c.key_hash == by_name[name].hash))
            note(connection, "revoke-key", detail=name)

    def adopt(self, digest: bytes) -> str | None:
        """Make this the key `operator`; return its name, or None if it was revoked."""
        c = keys.c
        with self._write(limits.WORK_SECONDS) as connection:
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
            if former.hash == digest:  # another worker with the same key was first
                return OPERATOR if former.revoked is None else None
            connection.execute(sa.delete(sessions).where(sessions.c.key_hash == former.hash))
            if former.revoked is None:
                connection.execute(sa.update(keys).where(c.name == OPERATOR).values(values))
            else:  # its hash stays, so that a collector with the old file cannot restore it
                connection.execute(
                    sa.update(keys)
                    .where(c.name == OPERATOR)
                    .values(name=_retired_key_name(connection))
                )
                connection.execute(sa.insert(keys).values(values))
            note(connection, "replace-key", detail=OPERATOR)
            return OPERATOR

    def active(self) -> list[tuple[bytes, Principal]]:
        """Return hash and holder of every key that is not revoked."""
        c = keys.c
        query = sa.select(c.hash, c.name, c.role).where(c.revoked.is_(None))
        with self._read(limits.ANSWER_SECONDS) as connection:
            selected = connection.execute(query).all()
        return [(bytes(row.hash), Principal(row.name, row.role)) for row in selected]

    def listed(self) -> list[KeyRecord]:
        """Return all keys, including revoked ones, by name."""
        c = keys.c
        query = sa.select(c.name, c.role, c.created, c.revoked).order_by(c.name)
        with self._read(limits.ANSWER_SECONDS) as connection:
            return [KeyRecord(*row) for row in connection.execute(query)]


class Keys:
    """Finds the holder of a key, from memory.

    If it does not share its store, a collector reads the keys only after its own changes. With a
    shared store it reads them again after `KNOWN_SECONDS`, so that a key revoked by another
    collector ends within that time.
    """

    def __init__(
        self, table: KeyTable, shared: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table, self._shared, self._clock = table, shared, clock
        self._guard = threading.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        self._active: list[tuple[bytes, Principal]] = []
        self._read_at = -limits.KNOWN_SECONDS
        self.refresh()

    def refresh(self) -> None:
        """Read the keys from the store."""
        with self._guard:
            begun = self._clock()
            self._active = self._table.active()
            self._read_at = begun

    def adopt(self, key: str) -> None:
        """Make the key of this collector's file the operator's key."""
        if self._table.adopt(hash_of(key)) is None:
            log.warning("the key of this collector was revoked; start it with a new key file")
        self.refresh()

    def create(self, name: str, role: str) -> str:
        """Create a key and return it; it cannot be shown again.

        Raises:
            ParameterError: The name or the role is not valid.
            StateError: The name is or was in use.
        """
        valid_role = _ROLES.get(role)
        if valid_role is None:
            raise ParameterError(
                f"a key's role is 'curator' or 'reader', not {role[:20]!r}",
                where="role",
                value=role,
            )
        if not _NAME.fullmatch(name):
            raise ParameterError(
                f"{name[:64]!r} cannot name a key; use letters and digits, with . _ @ - between "
                "them, at most 64 characters",
                where="name",
                value=name,
            )
        made = secrets.token_urlsafe(32)
        self._table.add(name, valid_role, hash_of(made))
        self.refresh()
        return made

    def revoke(self, name: str) -> None:
        """Revoke a key: here at once, on other collectors within `KNOWN_SECONDS`.

        Its sessions end everywhere at once.
        """
        self._table.revoke(name)
        self.refresh()

    def listed(self) -> list[KeyRecord]:
        """Return all keys, including revoked ones, by name."""
        return self._table.listed()

    def match(self, key: str) -> Principal | None:
        """Return the key's holder as of the last read.

        All hashes are compared, so that the duration does not depend on the match.
        """
        digest = hash_of(key)
        holder = None
        for stored, principal in self._active:
            if hmac.compare_digest(stored, digest):
                holder = principal
        return holder

    def digests(self) -> set[bytes]:
        """Return the hashes of all keys that are not revoked; may wait for the store."""
        if self._shared and self._clock() - self._read_at >= limits.KNOWN_SECONDS:
            self.refresh()
        return {digest for digest, _ in self._active}

    def _outdated(self, holder: Principal | None, asked: float) -> bool:
        """Return whether others may have created or revoked the key since the last read."""
        since = asked if holder is None else self._clock() - limits.KNOWN_SECONDS
        return self._shared and self._read_at < since

    def identify(self, key: str) -> Principal | None:
        """Return the key's holder; may wait for the store."""
        holder = self.match(key)
        if self._outdated(holder, self._clock()):
            self.refresh()
            holder = self.match(key)
        return holder

    async def identified(self, key: str) -> Principal | None:
        """Return the key's holder, in the event loop.

        One read of the store runs at a time, and reads for unknown keys keep an interval of
        `UNKNOWN_SECONDS` for any number of requests. An unknown key is refused after a read
        that began later than the request, so that a key created by another collector works
        at once.
        """
        asked = self._clock()
        holder = self.match(key)
        while self._outdated(holder, asked):
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.create_task(
                    self._refresh_later(0.0 if holder else limits.UNKNOWN_SECONDS)
                )
            await asyncio.shield(self._refreshing)
            holder = self.match(key)
            if holder is not None:
                break
        return holder

    async def _refresh_later(self, interval: float) -> None:
        await asyncio.sleep(max(0.0, self._read_at + interval - self._clock()))
        await asyncio.to_thread(self.refresh)


_ATTEMPT = (
    "INSERT INTO sign_ins (span, failures) VALUES (:span, 1) "
    "ON CONFLICT (span) DO UPDATE SET failures = sign_ins.failures + 1 RETURNING failures"
)


class Credential(NamedTuple):
    """What a long-running request was authorised by: the hash of a key or of a cookie."""

    kind: Literal["key", "session"]
    digest: bytes


@dataclass(frozen=True)
class Session:
    """A signed-in browser, and the token that its forms must carry."""

    principal: Principal
    csrf: str

    def allows(self, csrf: str) -> bool:
        """Return whether a form carries this session's token."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode("utf-8", "replace"))


class SessionTable:
    """The sessions in a store, and the number of failed sign-ins."""

    def __init__(self, write: Transaction, read: Transaction) -> None:
        self._write, self._read = write, read

    def attempt(self, span: int) -> int:
        """Count an attempt, as failed until it succeeds; return the number on all collectors."""
        with self._write(limits.ANSWER_SECONDS) as connection:
            connection.execute(sa.delete(sign_ins).where(sign_ins.c.span < span))
            return int(connection.execute(sa.text(_ATTEMPT), {"span": span}).scalar_one())

    def add(self, digest: bytes, key_hash: bytes, span: int, now: int) -> None:
        """Add a session of a key; its attempt no longer counts as failed."""
        c = sessions.c
        with self._write(limits.ANSWER_SECONDS) as connection:
            connection.execute(sa.delete(sessions).where(c.expires <= now))
            of_key = (
                sa.select(c.hash)
                .where(c.key_hash == key_hash)
                .order_by(c.expires.desc())
                .offset(limits.MAX_SESSIONS - 1)
            )
            older = connection.scalars(of_key.limit(1000)).all()
            connection.execute(sa.delete(sessions).where(c.hash.in_(older)))
            values = {"hash": digest, "key_hash": key_hash, "expires": now + limits.SESSION_SECONDS}
            connection.execute(sa.insert(sessions).values(values))
            fewer = (
                sa.update(sign_ins)
                .where(sign_ins.c.span == span)
                .values(failures=sign_ins.c.failures - 1)
            )
            connection.execute(fewer)
            note(connection, "sign-in")

    def holder(self, digest: bytes, now: int) -> Principal | None:
        """Return the session's holder, if it has not expired and its key is not revoked."""
        query = (
            sa.select(keys.c.name, keys.c.role)
            .join(sessions, sessions.c.key_hash == keys.c.hash)
            .where(sessions.c.hash == digest, sessions.c.expires > now, keys.c.revoked.is_(None))
        )
        with self._read(limits.ANSWER_SECONDS) as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else Principal(row.name, row.role)

    def valid(self, digests: list[bytes], now: int) -> set[bytes]:
        """Return the sessions that have not expired and whose keys are not revoked."""
        query = (
            sa.select(sessions.c.hash)
            .join(keys, sessions.c.key_hash == keys.c.hash)
            .where(sessions.c.hash.in_(digests), sessions.c.expires > now, keys.c.revoked.is_(None))
        )
        with self._read(limits.ANSWER_SECONDS) as connection:
            return {bytes(digest) for digest in connection.scalars(query)}

    def end(self, digest: bytes) -> None:
        """Sign out; does nothing if the session does not exist."""
        with self._write(limits.ANSWER_SECONDS) as connection:
            if connection.execute(sa.delete(sessions).where(sessions.c.hash == digest)).rowcount:
                note(connection, "sign-out")


class Sessions:
    """Signs browsers in and out. Every method queries the store and is called in a thread."""

    def __init__(
        self, table: SessionTable, keys: Keys, now: Callable[[], float] = time.time
    ) -> None:
        self._table, self._keys, self._now = table, keys, now
        self._refused_span = -1  # the span in which this process refuses all attempts

    def sign_in(self, key: str) -> tuple[str, Session]:
        """Open a session; return the cookie's value and the session.

        Raises:
            Problem: The key is not valid ("unauthorised", without details), or too many
                attempts failed in this span ("too-many-sign-ins"); a valid key waits, too.
        """
        now = int(self._now())
        span = now // limits.FAILURES_SECONDS
        if self._refused_span == span:  # without a write to the store for every attempt
            raise _too_many_sign_ins()
        if self._table.attempt(span) > limits.MAX_FAILURES:
            self._refused_span = span
            raise _too_many_sign_ins()
        principal = self._keys.identify(key.strip())
        if principal is None:
            raise Problem("unauthorised", "this is not a key of this collector")
        value = secrets.token_urlsafe(32)
        with acting(principal.name, "sign-in"):
            self._table.add(hash_of(value), hash_of(key.strip()), span, now)
        return value, Session(principal, _csrf(value))

    def find(self, value: str) -> Session | None:
        """Return the session of a cookie, if it is valid."""
        principal = self._table.holder(hash_of(value), int(self._now())) if value else None
        return None if principal is None else Session(principal, _csrf(value))

    def valid(self, credentials: set[Credential]) -> set[Credential]:
        """Return the keys and sessions that are still valid, with at most two queries."""
        valid = {Credential("key", digest) for digest in self._keys.digests()} & credentials
        sessions = [each.digest for each in credentials if each.kind == "session"]
        if sessions:
            still_valid = self._table.valid(sessions, int(self._now()))
            valid |= {Credential("session", digest) for digest in still_valid}
        return valid

    def sign_out(self, value: str) -> None:
        """End a session on every collector of the store."""
        session = self.find(value)
        if session is not None:
            with acting(session.principal.name, "sign-out"):
                self._table.end(hash_of(value))


def _csrf(value: str) -> str:
    return hmac.digest(value.encode(), b"dither form", "sha256").hex()


def _too_many_sign_ins() -> Problem:
    return Problem(
        "too-many-sign-ins",
        f"too many sign-ins failed; try again in {limits.FAILURES_SECONDS} seconds, "
        "or use the command line",
    )
