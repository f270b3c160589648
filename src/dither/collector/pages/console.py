"""What all pages of operators share: who is signed in, forms that only they can send, and the way to the sign-in page.

Guarantee: no page shows anything to somebody without a session; no form changes anything without the session's own token and the
role of a curator. Every change goes through the functions that the HTTP API calls, and is in the audit log with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dither.collector.access import Access, check_form
from dither.collector.audit import acting
from dither.collector.collector import Collector
from dither.collector.pages.answers import SECURITY, page
from dither.collector.problems import Problem
from dither.collector.sessions import Session

T = TypeVar("T")
FORM_SECONDS = 60.0  # for a form as a whole, with its file
MAX_FIELDS = 40_000
MAX_FIELD_BYTES = 1 << 20
SECTIONS = (
    ("/console", "Campaigns"),
    ("/console/new", "New campaign"),
    ("/console/keys", "Keys"),
    ("/console/audit", "Audit"),
)


class SignInNeeded(Exception):
    """Nobody is signed in; `wanted` is the page that was asked for."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted


@dataclass(frozen=True)
class Form:
    """A form that a signed-in curator sent from our own page."""

    session: Session
    fields: FormData

    def text(self, name: str, default: str = "") -> str:
        """A field's text, without spaces around it."""
        value = self.fields.get(name, default)
        return value.strip() if isinstance(value, str) else default

    def file(self, name: str) -> UploadFile | None:
        """A file, if one was chosen."""
        value = self.fields.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None


class Console:
    """The collector as operators' pages see it."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.access = Access(collector)

    async def session(self, request: Request) -> Session:
        """Who is signed in; a dependency of every page."""
        found = await self.access.session(request)
        if found is None:
            raise SignInNeeded(request.url.path)
        return found

    async def form(self, request: Request) -> AsyncIterator[Form]:
        """The form that a curator sent, a dependency of what changes something: the session is looked at before the body is read,
        its token right after; a file is gone when the page is made."""
        session = await self.session(request)
        fields = await read_form(request, FORM_SECONDS, max_files=1, max_fields=MAX_FIELDS)
        try:
            csrf = fields.get("csrf", "")
            check_form(request, session, csrf if isinstance(csrf, str) else "")
            yield Form(session, fields)
        finally:
            await fields.close()

    async def change(self, form: Form, what: str, work: Callable[[], T]) -> T:
        """Do something in a thread, noted as this key's act."""

        def noted() -> T:
            with acting(form.session.principal.name, what):
                return work()

        return await run_in_threadpool(noted)

    def page(
        self, template: str, session: Session, here: str, *, title: str, **values: Any
    ) -> HTMLResponse:
        """A page of the console."""
        bar = [(address, name, address == here) for address, name in SECTIONS]
        return page(template, title=title, bar=bar, session=session, **values)


async def read_form(request: Request, seconds: float, max_files: int, max_fields: int) -> FormData:
    """A form that came as a whole within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await request.form(
                max_files=max_files, max_fields=max_fields, max_part_size=MAX_FIELD_BYTES
            )
    except TimeoutError:
        raise Problem("timeout", f"the form took longer than {seconds:g} s") from None
    except (HTTPException, MultiPartException):
        raise Problem("bad-request", "the form cannot be read") from None
    except (
        ClientDisconnect
    ):  # nobody hears this, and it is no defect of ours that the log should show
        raise Problem("bad-request", "the sender went away before the form had come") from None


def go(address: str) -> Response:
    """After a form: load this page, so that reloading it sends nothing again."""
    return RedirectResponse(address, 303, SECURITY)
