"""Authorisation: by the key that a program sends with each request, or by a browser's session.

Reading needs any key, changing needs a curator's. A change with a session also needs the
session's token, in the header `x-dither-csrf` or in the form, so that another site cannot
make the browser send it.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request

from dither.collector.keys import Credential, Keys, Principal, Session, Sessions, hash_of
from dither.collector.problems import Problem

_READS = ("GET", "HEAD", "OPTIONS")
_COOKIE = "dither-session"
_CSRF_HEADER = "x-dither-csrf"


class _Guarded(Protocol):
    """Has keys and sessions, as a collector does."""

    keys: Keys
    sessions: Sessions


def _who(request: Request) -> Principal:
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


Who = Annotated[Principal, Depends(_who)]  # behind `authorise`


class Access:
    """Finds the holder of a request's key or session."""

    def __init__(self, guarded: _Guarded) -> None:
        self._keys, self._sessions = guarded.keys, guarded.sessions

    async def authorise(self, request: Request) -> None:
        """Refuse unauthorised requests; put the principal into the request's state.

        This is a dependency of routes.
        """
        principal = await self.principal(request)
        if principal is None:
            raise Problem("unauthorised", "send Authorization: Bearer with a key of this collector")
        if request.method not in _READS and not principal.may_change:
            raise Problem("forbidden", f"the key {principal.name!r} may only read")
        request.state.principal = principal

    async def principal(self, request: Request) -> Principal | None:
        """Return the holder of the request's key or session, or None.

        A session authorises changes only with its token in the header.
        """
        scheme, given = _authorization(request)
        if scheme:
            return await self._keys.identified(given) if scheme == "bearer" else None
        session = await self.session(request)
        if session is None:
            return None
        if request.method not in _READS and not session.allows(
            request.headers.get(_CSRF_HEADER, "")
        ):
            raise Problem("forbidden", f"send the session's token in the header {_CSRF_HEADER}")
        return session.principal

    async def session(self, request: Request) -> Session | None:
        """Return the browser's session, if it has a valid one."""
        value = request.cookies.get(cookie_name(request), "")
        return await asyncio.to_thread(self._sessions.find, value) if value else None

    @staticmethod
    def credential(request: Request) -> Credential:
        """Return what authorised a request, to check it again during a long response."""
        scheme, given = _authorization(request)
        if scheme:
            return Credential("key", hash_of(given))
        return Credential("session", hash_of(request.cookies.get(cookie_name(request), "")))


def _authorization(request: Request) -> tuple[str, str]:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower(), given.strip()


def on_loopback(request: Request) -> bool:
    """Return whether the request's host is this machine, where plain HTTP is safe."""
    host = request.url.hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def cookie_name(request: Request) -> str:
    """Return the cookie's name; except on loopback, one that browsers accept over TLS only."""
    return _COOKIE if on_loopback(request) else f"__Host-{_COOKIE}"
