"""Operators' pages about themselves: sign-in, keys and the audit log.

A sign-in exchanges the key for a session; the key is not stored.
"""

from __future__ import annotations

import re

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from dither.collector.access import check_origin, clear_cookie, cookie_name, set_cookie
from dither.collector.edge import BODY_SECONDS
from dither.collector.pages.answers import page
from dither.collector.pages.console import Console, Form, SignInNeeded, go, read_form
from dither.collector.pages.progress import title_of
from dither.collector.sessions import Session, SignInRefused, TooManySignIns
from dither.errors import DitherError

PAGE = 100  # entries of the audit log
_CONSOLE_PATH = re.compile(r"/console(/[a-z0-9/-]*)?")
_MAX_KEY = 1024  # characters


def _sign_in_page(wanted: str = "/console", fault: str = "", status: int = 200) -> Response:
    return page(
        "sign_in.html", title="Sign in", status=status, fault=fault, wanted=_console_path(wanted)
    )


def _console_path(wanted: str) -> str:
    """Return a page of the console, so that a sign-in never leads to another site."""
    return wanted if _CONSOLE_PATH.fullmatch(wanted) else "/console"


async def ask_to_sign_in(request: Request, error: Exception) -> Response:
    """Answer a request without a session by the sign-in page."""
    wanted = error.wanted if isinstance(error, SignInNeeded) else "/console"
    return _sign_in_page(wanted if request.method == "GET" else "/console", status=401)


def signing_routes(console: Console) -> APIRouter:
    """Return the routes for signing in and out."""
    routes = APIRouter(include_in_schema=False)
    sessions = console.collector.sessions

    @routes.post("/console/sign-in")
    async def sign_in(request: Request) -> Response:
        check_origin(request)
        fields = await read_form(request, BODY_SECONDS, max_files=0, max_fields=10)
        key, wanted = fields.get("key", ""), fields.get("wanted", "")
        assert isinstance(key, str)
        assert isinstance(wanted, str)
        try:
            value, _ = await run_in_threadpool(sessions.sign_in, key[:_MAX_KEY])
        except SignInRefused:
            return _sign_in_page(wanted, "This is not a key of this collector.", 403)
        except TooManySignIns as error:
            return _sign_in_page(wanted, f"{str(error).capitalize()}.", 429)
        response = go(_console_path(wanted))
        set_cookie(request, response, value)
        return response

    @routes.post("/console/sign-out")
    async def sign_out(request: Request) -> Response:
        session = await console.session(request)
        fields = await read_form(request, BODY_SECONDS, max_files=0, max_fields=10)
        check_origin(request)
        csrf = fields.get("csrf", "")
        if isinstance(csrf, str) and session.allows(csrf):
            cookie = request.cookies.get(cookie_name(request), "")
            await run_in_threadpool(sessions.sign_out, cookie)
        response = go("/console")
        clear_cookie(request, response)
        return response

    return routes


def operator_pages(console: Console) -> APIRouter:
    """Return the routes for keys and the audit log."""
    routes = APIRouter(include_in_schema=False)
    keys, store = console.collector.keys, console.collector.store
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

    @routes.get("/console/audit")
    async def audit(request: Request, session: Session = signed_in) -> Response:
        given = request.query_params.get("before", "")
        before = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else None
        entries = await run_in_threadpool(store.audit.entries, None, before, PAGE)
        titles = {
            entry.campaign: _title(console, entry.campaign) for entry in entries if entry.campaign
        }
        older = entries[-1].number if len(entries) == PAGE else None
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
