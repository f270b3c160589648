"""Sessions of operators' browsers: signed in with a key, which is not kept; ended by sign-out, by time, or with the key.

They are rows of the store, hashed, so that every collector of it knows them and a sign-out or a revoked key ends them everywhere
at once; a signed cookie would live on until it expires. The cookie's value is 256 random bits. The token that every form carries
against forged requests is an HMAC of it, so that nothing more is stored (OWASP, "Cross-Site Request Forgery Prevention").

Failed sign-ins are counted in the store, in one number for all: `MAX_FAILURES` in `SPAN_SECONDS`, however many collectors there
are. Nothing is asked but a key, so there is no user whose existence an answer could tell.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import sqlalchemy as sa

from dither.collector.audit import Transaction, acting, note
from dither.collector.keys import Keys, Principal, hash_of
from dither.collector.layout import keys, sessions, sign_ins
from dither.collector.store import ANSWER_SECONDS
from dither.errors import DitherError

SESSION_SECONDS = 8 * 3600
MAX_SESSIONS = 50  # of one key; signing in once more ends the one that expires first
MAX_FAILURES = 20  # in one span, of all who try
SPAN_SECONDS = 60
_ATTEMPT = (
    "INSERT INTO sign_ins (span, failures) VALUES (:span, 1) "
    "ON CONFLICT (span) DO UPDATE SET failures = sign_ins.failures + 1 RETURNING failures"
)


class SignInRefused(DitherError):
    """The key is not one of this collector's; which part of it is wrong, nobody hears."""

    def __init__(self) -> None:
        super().__init__("this is not a key of this collector")


class TooManySignIns(DitherError):
    """Too many tries failed of late; even the right key has to wait."""

    def __init__(self) -> None:
        super().__init__(
            f"too many sign-ins failed; try again in {SPAN_SECONDS} seconds, or use the command line"
        )


class Credential(NamedTuple):
    """What somebody showed who asks for an answer that goes on: the hash of a key, or of a session's cookie."""

    kind: Literal["key", "session"]
    digest: bytes


@dataclass(frozen=True)
class Session:
    """A browser that is signed in, and the token that its forms must carry."""

    principal: Principal
    csrf: str

    def allows(self, csrf: str) -> bool:
        """Whether a form carries this session's token."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode("utf-8", "replace"))


class SessionTable:
    """The sessions in a store, and how many sign-ins failed."""

    def __init__(self, write: Transaction, read: Transaction) -> None:
        self._write, self._read = write, read

    def attempt(self, span: int) -> int:
        """Count a try as failed until it has succeeded; gives how many there are, those under way on other collectors with them."""
        with self._write(ANSWER_SECONDS) as connection:
            connection.execute(sa.delete(sign_ins).where(sign_ins.c.span < span))
            return connection.execute(sa.text(_ATTEMPT), {"span": span}).scalar_one()

    def add(self, digest: bytes, key_hash: bytes, span: int, now: int) -> None:
        """A session of a key, whose try did not fail after all."""
        c = sessions.c
        with self._write(ANSWER_SECONDS) as connection:
            connection.execute(sa.delete(sessions).where(c.expires <= now))
            mine = (
                sa.select(c.hash)
                .where(c.key_hash == key_hash)
                .order_by(c.expires.desc())
                .offset(MAX_SESSIONS - 1)
            )
            older = connection.scalars(mine.limit(1000)).all()
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
        """Whose session it is, if it has not expired and its key was not revoked."""
        query = (
            sa.select(keys.c.name, keys.c.role)
            .join(sessions, sessions.c.key_hash == keys.c.hash)
            .where(sessions.c.hash == digest, sessions.c.expires > now, keys.c.revoked.is_(None))
        )
        with self._read(ANSWER_SECONDS) as connection:
            found = connection.execute(query).one_or_none()
        return None if found is None else Principal(found.name, found.role)

    def living(self, digests: list[bytes], now: int) -> set[bytes]:
        """Which of these sessions have not expired, with keys that were not revoked."""
        query = (
            sa.select(sessions.c.hash)
            .join(keys, sessions.c.key_hash == keys.c.hash)
            .where(sessions.c.hash.in_(digests), sessions.c.expires > now, keys.c.revoked.is_(None))
        )
        with self._read(ANSWER_SECONDS) as connection:
            return {bytes(found) for found in connection.scalars(query)}

    def end(self, digest: bytes) -> None:
        """Sign out; nothing to do if there is no such session."""
        with self._write(ANSWER_SECONDS) as connection:
            if connection.execute(sa.delete(sessions).where(sessions.c.hash == digest)).rowcount:
                note(connection, "sign-out")


class Sessions:
    """Signs browsers in and out. Every method asks the store and is called in a thread that may wait for it."""

    def __init__(
        self, table: SessionTable, known: Keys, now: Callable[[], float] = time.time
    ) -> None:
        self._table, self._keys, self._now = table, known, now
        self._refused_span = -1  # the span in which this process knows that nobody else may try

    def sign_in(self, key: str) -> tuple[str, Session]:
        """A new session: the cookie's value, shown this once, and what goes with it."""
        now = int(self._now())
        span = now // SPAN_SECONDS
        if self._refused_span == span:  # strangers cannot make the store write for every try
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
        """The session of a cookie, if it still is one."""
        principal = self._table.holder(hash_of(value), int(self._now())) if value else None
        return None if principal is None else Session(principal, _csrf(value))

    def living(self, shown: set[Credential]) -> set[Credential]:
        """Which of these keys and sessions still open something; at most two looks at the store, however many they are."""
        found = {Credential("key", digest) for digest in self._keys.digests()} & shown
        asked = [each.digest for each in shown if each.kind == "session"]
        if asked:
            found |= {
                Credential("session", digest)
                for digest in self._table.living(asked, int(self._now()))
            }
        return found

    def sign_out(self, value: str) -> None:
        """End a session here and on every collector of the store."""
        found = self.find(value)
        if found is not None:
            with acting(found.principal.name, "sign-out"):
                self._table.end(hash_of(value))


def _csrf(value: str) -> str:
    return hmac.digest(value.encode(), b"dither form", "sha256").hex()
