"""What operators' pages share: the session, forms with a token, and the way to the sign-in.

Guarantee: no page shows anything without a session; no form changes anything without the
session's token and the role of a curator. Changes use the same functions as the HTTP API,
and are in the audit log.
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
FORM_SECONDS = 60.0  # for a whole form, with its file
MAX_FIELDS = 40_000
MAX_FIELD_BYTES = 1 << 20
SECTIONS = (
    ("/console", "Campaigns"),
    ("/console/new", "New campaign"),
    ("/console/keys", "Keys"),
    ("/console/audit", "Audit"),
)


class SignInNeeded(Exception):
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
            raise SignInNeeded(request.url.path)
        return session

    async def form(self, request: Request) -> AsyncIterator[Form]:
        """Yield the form of a curator; a dependency of every change.

        The session is checked before the body is read, its token right after. An uploaded
        file is deleted after the request.
        """
        session = await self.session(request)
        fields = await read_form(request, FORM_SECONDS, max_files=1, max_fields=MAX_FIELDS)
        try:
            csrf = fields.get("csrf", "")
            check_form(request, session, csrf if isinstance(csrf, str) else "")
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
        bar = [(address, name, address == here) for address, name in SECTIONS]
        return page(template, title=title, bar=bar, session=session, **values)


async def read_form(request: Request, seconds: float, max_files: int, max_fields: int) -> FormData:
    """Read a form within the limits of time and size."""
    try:
        async with asyncio.timeout(seconds):
            return await request.form(
                max_files=max_files, max_fields=max_fields, max_part_size=MAX_FIELD_BYTES
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
