"""Operators' pages about themselves: keys by name, and what was done with them."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from dither.collector.pages.console import Console, Form, go
from dither.collector.sessions import Session
from dither.errors import DitherError

PAGE = 100  # entries of the audit log


def operator_pages(console: Console) -> APIRouter:
    """Keys and the audit log."""
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
    from dither.collector.pages.progress import title_of

    try:
        return title_of(console.collector.campaigns.get(campaign))
    except DitherError:
        return campaign
