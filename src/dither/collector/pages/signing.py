"""Signing in and out: the key becomes a session and is not kept."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from dither.collector.access import check_origin, clear_cookie, cookie_name, set_cookie
from dither.collector.edge import BODY_SECONDS
from dither.collector.pages.answers import page
from dither.collector.pages.console import Console, SignInNeeded, go, read_form
from dither.collector.sessions import SignInRefused, TooManySignIns

_INSIDE = re.compile(r"/console(/[a-z0-9/-]*)?")
_LONGEST_KEY = 1024


def _sign_in_page(wanted: str = "/console", fault: str = "", status: int = 200) -> Response:
    """Where a key is asked for."""
    return page("sign_in.html", title="Sign in", status=status, fault=fault, wanted=_inside(wanted))


def _inside(wanted: str) -> str:
    """A page of the console and nothing else: no other site can be led to."""
    return wanted if _INSIDE.fullmatch(wanted) else "/console"


async def ask_to_sign_in(request: Request, error: Exception) -> Response:
    """For pages that nobody may see who is not signed in."""
    wanted = error.wanted if isinstance(error, SignInNeeded) else "/console"
    return _sign_in_page(wanted if request.method == "GET" else "/console", status=401)


def signing_routes(console: Console) -> APIRouter:
    """Sign in, sign out."""
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
            value, _ = await run_in_threadpool(sessions.sign_in, key[:_LONGEST_KEY])
        except SignInRefused:
            return _sign_in_page(wanted, "This is not a key of this collector.", 403)
        except TooManySignIns as error:
            return _sign_in_page(wanted, f"{str(error).capitalize()}.", 429)
        response = go(_inside(wanted))
        set_cookie(request, response, value)
        return response

    @routes.post("/console/sign-out")
    async def sign_out(request: Request) -> Response:
        session = await console.session(request)
        fields = await read_form(request, BODY_SECONDS, max_files=0, max_fields=10)
        check_origin(request)
        csrf = fields.get("csrf", "")
        if isinstance(csrf, str) and session.allows(csrf):
            await run_in_threadpool(
                sessions.sign_out, request.cookies.get(cookie_name(request), "")
            )
        response = go("/console")
        clear_cookie(request, response)
        return response

    return routes
