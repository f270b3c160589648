"""Sessions of operators' browsers: opened with a key, ended by sign-out, by time or by revocation.

Sessions are hashed rows of the store, so that every collector knows them and a sign-out or
a revoked key ends them everywhere at once; a signed cookie would be valid until it expires.
The cookie's value is 256 random bits. The token against forged requests in every form is an
HMAC of it, so that nothing more is stored (OWASP, "Cross-Site Request Forgery Prevention").

Failed sign-ins of all users are counted in one number in the store: `MAX_FAILURES` in
`SPAN_SECONDS` for all collectors together. A sign-in asks only for a key, so no answer can
reveal whether a user exists.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import sqlalchemy as sa

from dither.collector.audit import acting, note
from dither.collector.keys import Keys, Principal, hash_of
from dither.collector.layout import Transaction, keys, sessions, sign_ins
from dither.collector.store import ANSWER_SECONDS
from dither.errors import DitherError

SESSION_SECONDS = 8 * 3600
MAX_SESSIONS = 50  # of one key; one more sign-in ends the session that expires first
MAX_FAILURES = 20  # in one span, of all users
SPAN_SECONDS = 60
_ATTEMPT = (
    "INSERT INTO sign_ins (span, failures) VALUES (:span, 1) "
    "ON CONFLICT (span) DO UPDATE SET failures = sign_ins.failures + 1 RETURNING failures"
)


class SignInRefused(DitherError):
    """The key is not valid; the message gives no details."""

    def __init__(self) -> None:
        super().__init__("this is not a key of this collector")


class TooManySignIns(DitherError):
    """Too many sign-ins failed recently; a valid key has to wait, too."""

    def __init__(self) -> None:
        super().__init__(
            f"too many sign-ins failed; try again in {SPAN_SECONDS} seconds, "
            "or use the command line"
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
        with self._write(ANSWER_SECONDS) as connection:
            connection.execute(sa.delete(sign_ins).where(sign_ins.c.span < span))
            return int(connection.execute(sa.text(_ATTEMPT), {"span": span}).scalar_one())

    def add(self, digest: bytes, key_hash: bytes, span: int, now: int) -> None:
        """Add a session of a key; its attempt no longer counts as failed."""
        c = sessions.c
        with self._write(ANSWER_SECONDS) as connection:
            connection.execute(sa.delete(sessions).where(c.expires <= now))
            of_key = (
                sa.select(c.hash)
                .where(c.key_hash == key_hash)
                .order_by(c.expires.desc())
                .offset(MAX_SESSIONS - 1)
            )
            older = connection.scalars(of_key.limit(1000)).all()
            connection.execute(sa.delete(sessions).where(c.hash.in_(older)))
            values = {"hash": digest, "key_hash": key_hash, "expires": now + SESSION_SECONDS}
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
        with self._read(ANSWER_SECONDS) as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else Principal(row.name, row.role)

    def valid(self, digests: list[bytes], now: int) -> set[bytes]:
        """Return the sessions that have not expired and whose keys are not revoked."""
        query = (
            sa.select(sessions.c.hash)
            .join(keys, sessions.c.key_hash == keys.c.hash)
            .where(sessions.c.hash.in_(digests), sessions.c.expires > now, keys.c.revoked.is_(None))
        )
        with self._read(ANSWER_SECONDS) as connection:
            return {bytes(digest) for digest in connection.scalars(query)}

    def end(self, digest: bytes) -> None:
        """Sign out; does nothing if the session does not exist."""
        with self._write(ANSWER_SECONDS) as connection:
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
            SignInRefused: The key is not valid.
            TooManySignIns: Too many attempts failed in this span.
        """
        now = int(self._now())
        span = now // SPAN_SECONDS
        if self._refused_span == span:  # without a write to the store for every attempt
            raise TooManySignIns
        if self._table.attempt(span) > MAX_FAILURES:
            self._refused_span = span
            raise TooManySignIns
        principal = self._keys.identify(key.strip())
        if principal is None:
            raise SignInRefused
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
