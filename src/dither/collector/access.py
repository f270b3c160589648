"""Who asks: the key that a program sends with each request, or the session of a browser that signed in with one.

Reading needs any key, changing a curator's. A change asked with a session also needs the session's token, in the header
`x-dither-csrf` or in the form, so that no other site can ask for it in the browser's name.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from dither.collector.keys import Keys, Principal, hash_of
from dither.collector.problems import Problem
from dither.collector.sessions import SESSION_SECONDS, Credential, Session, Sessions

_READS = ("GET", "HEAD", "OPTIONS")
_COOKIE = "dither-session"
CSRF_HEADER = "x-dither-csrf"


class _Guarded(Protocol):
    """Whatever has keys and sessions: a collector."""

    keys: Keys
    sessions: Sessions


def _who(request: Request) -> Principal:
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


Who = Annotated[Principal, Depends(_who)]  # behind `authorise`


class Access:
    """Tells who asks."""

    def __init__(self, guarded: _Guarded) -> None:
        self._keys, self._sessions = guarded.keys, guarded.sessions

    async def authorise(self, request: Request) -> None:
        """A dependency of routes: lets those pass who may do what they ask for, and leaves who it is in the request's state."""
        principal = await self.principal(request)
        if principal is None:
            raise Problem("unauthorised", "send Authorization: Bearer with a key of this collector")
        if request.method not in _READS and not principal.may_change:
            raise Problem("forbidden", f"the key {principal.name!r} may only read")
        request.state.principal = principal

    async def principal(self, request: Request) -> Principal | None:
        """Who asks, by key or session; None for strangers. A session counts for changes only with its token in the header."""
        scheme, given = _authorization(request)
        if scheme:
            return await self._keys.identified(given) if scheme == "bearer" else None
        session = await self.session(request)
        if session is None:
            return None
        if request.method not in _READS and not session.allows(
            request.headers.get(CSRF_HEADER, "")
        ):
            raise Problem("forbidden", f"send the session's token in the header {CSRF_HEADER}")
        return session.principal

    async def session(self, request: Request) -> Session | None:
        """The browser's session, if it has one."""
        value = request.cookies.get(cookie_name(request), "")
        return await asyncio.to_thread(self._sessions.find, value) if value else None


def _authorization(request: Request) -> tuple[str, str]:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower(), given.strip()


def credential_of(request: Request) -> Credential:
    """What a request that was let pass showed, as it is looked up again while its answer goes on."""
    scheme, given = _authorization(request)
    if scheme:
        return Credential("key", hash_of(given))
    return Credential("session", hash_of(request.cookies.get(cookie_name(request), "")))


def check_form(request: Request, session: Session, csrf: str) -> None:
    """Refuse a form that another site sent, or that a reader may not send."""
    check_origin(request)
    if not session.allows(csrf):
        raise Problem("forbidden", "the form is of another session; load the page again")
    if not session.principal.may_change:
        raise Problem("forbidden", f"the key {session.principal.name!r} may only read")


def check_origin(request: Request) -> None:
    """Refuse a form that a page of another origin sends; browsers say where a form comes from, other programs need not.

    Our own pages send no referrer, and browsers then write "null" for the origin of their forms; Sec-Fetch-Site tells those apart.
    """
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    elsewhere = origin not in (None, "null") and origin.partition("://")[2] != host
    elsewhere = elsewhere or (origin == "null" and "sec-fetch-site" not in request.headers)
    if elsewhere or request.headers.get("sec-fetch-site", "same-origin") not in (
        "same-origin",
        "none",
    ):
        raise Problem("forbidden", "the form was sent from another site")


def on_loopback(request: Request) -> bool:
    """Whether the browser's address bar names this very machine, where plain HTTP leaves nothing to listen to."""
    host = request.url.hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def cookie_name(request: Request) -> str:
    """Elsewhere than on loopback a name that browsers take from this very host over TLS alone, not from one beside it."""
    return _COOKIE if on_loopback(request) else f"__Host-{_COOKIE}"


def set_cookie(request: Request, response: Response, value: str) -> None:
    """Hand a session to the browser: out of scripts' reach, never sent along from other sites, over TLS alone but on loopback."""
    secure = not on_loopback(request)
    name = cookie_name(request)
    response.set_cookie(
        name, value, SESSION_SECONDS, path="/", secure=secure, httponly=True, samesite="strict"
    )


def clear_cookie(request: Request, response: Response) -> None:
    """Take a session from the browser."""
    secure = not on_loopback(request)
    response.delete_cookie(
        cookie_name(request), path="/", secure=secure, httponly=True, samesite="strict"
    )
