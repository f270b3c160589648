"""Operators' pages: sessions, forms with a token, sign-in, keys and the audit log.

Guarantee: no page shows anything without a session; no form changes anything without the
session's token and the role of a curator. Changes use the same functions as the HTTP API,
and are in the audit log. A sign-in exchanges the key for a session; the key is not stored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dither.collector import limits
from dither.collector.access import Access, cookie_name, on_loopback
from dither.collector.audit import acting
from dither.collector.collector import Collector
from dither.collector.keys import Session
from dither.collector.pages.answers import SECURITY, page
from dither.collector.pages.progress import title_of
from dither.collector.problems import Problem
from dither.errors import DitherError

T = TypeVar("T")
_FORM_SECONDS = 60.0  # for a whole form, with its file
_MAX_FIELDS = 40_000
_MAX_FIELD_BYTES = 1 << 20
_SECTIONS = (
    ("/console", "Campaigns"),
    ("/console/new", "New campaign"),
    ("/console/keys", "Keys"),
    ("/console/audit", "Audit"),
)


class _SignInNeeded(Exception):
    """The request has no session; `wanted` is the requested page."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted


@dataclass(frozen=True)
class Form:
    """A form that a signed-in curator sent from our page."""

    session: Session
    fields: FormData

    def text(self, name: str, default: str = "") -> str:
        """Return a field's text, stripped."""
        value = self.fields.get(name, default)
        return value.strip() if isinstance(value, str) else default

    def file(self, name: str) -> UploadFile | None:
        """Return the uploaded file, if one was chosen."""
        value = self.fields.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None


class Console:
    """A collector with its authorisation, for operators' pages."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.access = Access(collector)

    async def session(self, request: Request) -> Session:
        """Return the session; a dependency of every page."""
        session = await self.access.session(request)
        if session is None:
            raise _SignInNeeded(request.url.path)
        return session

    async def form(self, request: Request) -> AsyncIterator[Form]:
        """Yield the form of a curator; a dependency of every change.

        The session is checked before the body is read, its token right after. An uploaded
        file is deleted after the request.
        """
        session = await self.session(request)
        fields = await _read_form(request, _FORM_SECONDS, max_files=1, max_fields=_MAX_FIELDS)
        try:
            csrf = fields.get("csrf", "")
            _check_form(request, session, csrf if isinstance(csrf, str) else "")
            yield Form(session, fields)
        finally:
            await fields.close()

    async def change(self, form: Form, what: str, work: Callable[[], T]) -> T:
        """Run a change in a thread, recorded in the audit log under this key."""

        def recorded() -> T:
            with acting(form.session.principal.name, what):
                return work()

        return await run_in_threadpool(recorded)

    def page(
        self, template: str, session: Session, here: str, *, title: str, **values: Any
    ) -> HTMLResponse:
        """Render a page of the console."""
        bar = [(address, name, address == here) for address, name in _SECTIONS]
        return page(template, title=title, bar=bar, session=session, **values)


def _check_form(request: Request, session: Session, csrf: str) -> None:
    """Refuse a form that comes from another site or from a reader."""
    _check_origin(request)
    if not session.allows(csrf):
        raise Problem("forbidden", "the form belongs to another session; reload the page")
    if not session.principal.may_change:
        raise Problem("forbidden", f"the key {session.principal.name!r} may only read")


def _check_origin(request: Request) -> None:
    """Refuse a form from a page of another origin, as browsers declare it.

    Our pages send no referrer, and browsers then send "null" as the origin of their forms;
    Sec-Fetch-Site distinguishes these from forms of other sites.
    """
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    elsewhere = origin not in (None, "null") and origin.partition("://")[2] != host
    elsewhere = elsewhere or (origin == "null" and "sec-fetch-site" not in request.headers)
    if elsewhere or request.headers.get("sec-fetch-site", "same-origin") not in (
        "same-origin",
        "none",
    ):
        raise Problem("forbidden", "the form was sent from another site")


async def _read_form(request: Request, seconds: float, max_files: int, max_fields: int) -> FormData:
    """Read a form within the limits of time and size."""
    try:
        async with asyncio.timeout(seconds):
            return await request.form(
                max_files=max_files, max_fields=max_fields, max_part_size=_MAX_FIELD_BYTES
            )
    except TimeoutError:
        raise Problem("timeout", f"the form took longer than {seconds:g} s") from None
    except (HTTPException, MultiPartException):
        raise Problem("bad-request", "the form cannot be read") from None
    except ClientDisconnect:  # not a defect, so the log must not show it as one
        raise Problem(
            "bad-request", "the client disconnected before the form was complete"
        ) from None


def go(address: str) -> Response:
    """Redirect after a form, so that reloading the page does not send it again."""
    return RedirectResponse(address, 303, SECURITY)


def _set_cookie(request: Request, response: Response, value: str) -> None:
    """Set the session's cookie: not for scripts, same-site, and over TLS except on loopback."""
    secure = not on_loopback(request)
    name = cookie_name(request)
    response.set_cookie(
        name,
        value,
        limits.SESSION_SECONDS,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def _clear_cookie(request: Request, response: Response) -> None:
    """Remove the session's cookie."""
    secure = not on_loopback(request)
    response.delete_cookie(
        cookie_name(request), path="/", secure=secure, httponly=True, samesite="strict"
    )


_AUDIT_PAGE = 100  # entries
_DRAFT_PATH = re.compile(r"/console/drafts/[0-9a-f]{32}")
_CONSOLE_PATH = re.compile(r"/console(/[a-z0-9/-]*)?")
_MAX_KEY = 1024  # characters


def _sign_in_page(wanted: str = "/console", fault: str = "", status: int = 200) -> Response:
    return page(
        "sign_in.html", title="Sign in", status=status, fault=fault, wanted=_console_path(wanted)
    )


def _console_path(wanted: str) -> str:
    """Return a page of the console, so that a sign-in never leads to another site."""
    return wanted if _CONSOLE_PATH.fullmatch(wanted) else "/console"


async def _ask_to_sign_in(request: Request, error: Exception) -> Response:
    """Answer a request without a session by the sign-in page."""
    wanted = error.wanted if isinstance(error, _SignInNeeded) else "/console"
    # After signing in, the page of a draft sends again what its window still holds.
    returns = request.method == "GET" or _DRAFT_PATH.fullmatch(wanted)
    return _sign_in_page(wanted if returns else "/console", status=401)


def _signing_routes(console: Console) -> APIRouter:
    """Return the routes for signing in and out."""
    routes = APIRouter(include_in_schema=False)
    sessions = console.collector.sessions

    @routes.post("/console/sign-in")
    async def sign_in(request: Request) -> Response:
        _check_origin(request)
        fields = await _read_form(request, limits.BODY_SECONDS, max_files=0, max_fields=10)
        key, wanted = fields.get("key", ""), fields.get("wanted", "")
        assert isinstance(key, str)
        assert isinstance(wanted, str)
        try:
            value, _ = await run_in_threadpool(sessions.sign_in, key[:_MAX_KEY])
        except Problem as error:
            status = {"unauthorised": 403, "too-many-sign-ins": 429}.get(error.cause)
            if status is None:
                raise
            return _sign_in_page(wanted, f"{str(error).capitalize()}.", status)
        response = go(_console_path(wanted))
        _set_cookie(request, response, value)
        return response

    @routes.post("/console/sign-out")
    async def sign_out(request: Request) -> Response:
        session = await console.session(request)
        fields = await _read_form(request, limits.BODY_SECONDS, max_files=0, max_fields=10)
        _check_origin(request)
        csrf = fields.get("csrf", "")
        if isinstance(csrf, str) and session.allows(csrf):
            cookie = request.cookies.get(cookie_name(request), "")
            await run_in_threadpool(sessions.sign_out, cookie)
        response = go("/console")
        _clear_cookie(request, response)
        return response

    return routes


def _key_pages(console: Console) -> APIRouter:
    """Return the routes for keys."""
    routes = APIRouter(include_in_schema=False)
    keys = console.collector.keys
    signed_in, sent = Depends(console.session), Depends(console.form)

    async def show_keys(
        session: Session, fault: str = "", made: tuple[str, str] | None = None
    ) -> Response:
        listed = await run_in_threadpool(keys.listed)
        response = console.page(
            "keys.html", session, "/console/keys", title="Keys", keys=listed, fault=fault, made=made
        )
        response.status_code = 409 if fault else 200
        return response

    @routes.get("/console/keys")
    async def listed(session: Session = signed_in) -> Response:
        return await show_keys(session)

    @routes.post("/console/keys")
    async def create(form: Form = sent) -> Response:
        name, role = form.text("name"), form.text("role")
        try:
            key = await console.change(form, "create-key", lambda: keys.create(name, role))
        except DitherError as error:
            return await show_keys(form.session, str(error))
        return await show_keys(form.session, made=(name, key))

    @routes.get("/console/keys/revoke/{name}")
    async def ask(name: str, session: Session = signed_in) -> Response:
        return console.page(
            "revoke.html", session, "/console/keys", title="Revoke the key?", name=name
        )

    @routes.post("/console/keys/revoke/{name}")
    async def revoke(name: str, form: Form = sent) -> Response:
        try:
            await console.change(form, "revoke-key", lambda: keys.revoke(name))
        except DitherError as error:
            return await show_keys(form.session, str(error))
        return go("/console/keys")

    return routes


def _audit_pages(console: Console) -> APIRouter:
    """Return the route of the audit log."""
    routes = APIRouter(include_in_schema=False)
    store = console.collector.store
    signed_in = Depends(console.session)

    @routes.get("/console/audit")
    async def audit(request: Request, session: Session = signed_in) -> Response:
        given = request.query_params.get("before", "")
        before = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else None
        entries = await run_in_threadpool(store.audit.entries, None, before, _AUDIT_PAGE)
        titles = {
            entry.campaign: _title(console, entry.campaign) for entry in entries if entry.campaign
        }
        older = entries[-1].number if len(entries) == _AUDIT_PAGE else None
        return console.page(
            "audit.html",
            session,
            "/console/audit",
            title="Audit",
            entries=entries,
            titles=titles,
            older=older,
        )

    return routes


def _title(console: Console, campaign: str) -> str:
    try:
        return title_of(console.collector.campaigns.get(campaign))
    except DitherError:
        return campaign


def add_console(app: FastAPI, console: Console) -> None:
    """Add the pages for signing in and out, for keys and for the audit log."""
    for routes in (_signing_routes, _key_pages, _audit_pages):
        app.include_router(routes(console))
    app.add_exception_handler(_SignInNeeded, _ask_to_sign_in)
