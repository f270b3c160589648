"""The form for a campaign: a draft that is saved while it is typed, its preview and its planner.

It works without scripts: every button sends the whole form, which is saved and comes back.
With scripts, cards are changed in the page and the draft is saved every few seconds.

A draft is saved over the version from which it was read. If somebody else saved or deleted
it meanwhile, what was typed continues as a copy under another address.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.responses import JSONResponse, Response

from dither.collector.drafts import Draft
from dither.collector.keys import Session
from dither.collector.pages.answers import SECURITY, missing
from dither.collector.pages.campaign_form import (
    FIGURES,
    CampaignForm,
    change_cards,
    fields_of,
    is_field,
)
from dither.collector.pages.console import Console, Form, go
from dither.collector.pages.outlook import Outlook, Planner
from dither.collector.pages.schema_form import (
    BLANK_CARD,
    KINDS,
    PERIOD_NAMES,
    plain_numbers,
    show_schema,
)
from dither.collector.questions import Questions
from dither.collector.rounds import announcement, open_round
from dither.collector.spec import CampaignSpec, NewCampaign
from dither.collector.store import State, StoredCampaign, StoredRound
from dither.errors import DitherError
from dither.languages import LANGUAGES
from dither.methods import DEFAULT, METHODS
from dither.release.pages import sentence
from dither.schema import Schema, schema_from_json
from dither.schema.infer import LEAK_WARNING

_ID = re.compile("[0-9a-f]{32}")
_CARDS = re.compile(r"(add|up|down|copy|remove)-([ac])(\d{0,3})", re.ASCII)
# A page that shows participants a campaign: the campaign's id, its specification, and the
# address of the announcement where it is not the campaign's own.
ParticipantPage = Callable[[str, CampaignSpec, str], Response]


class Editor:
    """Drafts, and the page on which one is edited."""

    def __init__(self, console: Console, planner: Planner) -> None:
        self.console, self.planner = console, planner
        self.store = console.collector.store

    def show(
        self, session: Session, draft: Draft, fault: str = "", note: str = "", **seen: Any
    ) -> Response:
        """Render the form; every field as it was typed."""
        fields = draft.fields
        form = CampaignForm.read(lambda name: fields.get(name, ""))
        response = self.console.page(
            "new_campaign.html",
            session,
            "/console/new",
            title=form.title or "New campaign",
            scripts=("editor.js",),
            draft=draft,
            form=form,
            kinds=KINDS,
            periods=PERIOD_NAMES,
            figures=FIGURES,
            languages=LANGUAGES,
            methods=METHODS,
            default_method=DEFAULT,
            blank_card=BLANK_CARD,
            fault=fault,
            note=note,
            **{"outlook": None, "plan_fault": "", **seen},
        )
        response.status_code = 422 if fault else 200
        return response

    def save(self, draft: Draft, copied: bool = False) -> Draft:
        """Store the next version of a draft, or a copy if another version is stored."""
        today = datetime.fromtimestamp(self.store.now(), UTC).date().isoformat()
        title = draft.fields.get("title", "").strip() or "Without a title"
        changed = replace(draft, title=title[:200], changed=today, version=draft.version + 1)
        if self.store.drafts.save(changed):
            return changed
        assert not copied, "a random id is taken"
        return self.save(_fresh(draft.fields), copied=True)

    def find(self, draft: str) -> Draft:
        """Return a draft; an empty one of that id if it is not stored."""
        found = self.store.drafts.find(draft)
        return found or Draft(draft, "", "", 0, {})

    async def look_ahead(self, form: Form, fields: dict[str, str]) -> dict[str, Any] | None:
        """Return the planner's content, or None if the same browser has sent a newer request."""

        def look() -> Outlook | None:
            draft = CampaignForm.read(lambda name: fields.get(name, "").strip())
            asker = form.session.csrf
            return self.planner.outlook(asker, draft.spec(), draft.wanted, draft.solve_for)

        try:
            outlook = await run_in_threadpool(look)
        except DitherError as error:
            return {"outlook": None, "plan_fault": str(error)}
        return None if outlook is None else {"outlook": outlook, "plan_fault": ""}

    async def open(self, form: Form, draft: Draft, wanted: str) -> Response:
        """Create the campaign of a draft, which is deleted; or say what is missing."""
        campaigns = self.console.collector.campaigns
        asked = CampaignForm.read(lambda name: draft.fields.get(name, "").strip())

        def create() -> str:
            asked.check_terms()
            made = campaigns.create(asked.description(draft=wanted == "draft"))
            if draft.version:
                self.store.drafts.delete(draft.id)
            return made.stored.id

        try:
            campaign = await self.console.change(form, "create", create)
        except DitherError as error:
            kept = await self.console.change(form, "create-draft", lambda: self.save(draft))
            return self.show(form.session, kept, str(error))
        return go(f"/console/c/{campaign}?said=created")


def _fresh(fields: dict[str, str]) -> Draft:
    return Draft(secrets.token_hex(16), "", "", 0, fields)


def _typed(form: Form) -> dict[str, str]:
    """Return the fields of a form as they were typed; browsers send lines ended by CR LF."""
    return {
        name: value.replace("\r\n", "\n")
        for name, value in form.fields.items()
        if isinstance(value, str) and value and is_field(name)
    }


def editor_routes(console: Console, planner: Planner, shown: ParticipantPage) -> APIRouter:
    """Return the routes of the form: drafts, their files, previews and the planner."""
    routes = APIRouter(include_in_schema=False)
    editor = Editor(console, planner)
    signed_in, sent = Depends(console.session), Depends(console.form)

    @routes.get("/console/new")
    async def empty(session: Session = signed_in) -> Response:
        return editor.show(session, _fresh({}))

    @routes.get("/console/drafts/{draft}")
    async def edit(draft: str, session: Session = signed_in) -> Response:
        if not _ID.fullmatch(draft):
            return missing()
        return editor.show(session, await run_in_threadpool(editor.find, draft))

    @routes.post("/console/new")
    async def act_on_new(request: Request, form: Form = sent) -> Response:
        return await act(request, secrets.token_hex(16), form)

    @routes.post("/console/drafts/{draft}")
    async def act(request: Request, draft: str, form: Form = sent) -> Response:
        if not _ID.fullmatch(draft):
            return missing()
        version = form.text("version")
        number = int(version) if version.isascii() and version.isdigit() else 0
        typed = Draft(draft, "", "", min(number, 2**31), _typed(form))
        return await _act(editor, request, form, typed, form.text("do"))

    @routes.post("/console/plan")
    async def plan(form: Form = sent) -> Response:
        seen = await editor.look_ahead(form, _typed(form))
        if seen is None:
            return Response(status_code=204)
        return console.page("plan.html", form.session, "", title="Plan", **seen)

    _add_files(routes, editor)
    _add_copies(routes, editor)
    _add_previews(routes, editor, shown)
    return routes


async def _act(editor: Editor, request: Request, form: Form, draft: Draft, do: str) -> Response:
    """Save a draft, then do what the button says."""
    if do in ("draft", "open"):
        return await editor.open(form, draft, do)
    cards = _CARDS.fullmatch(do)
    if cards is not None:
        changed = change_cards(draft.fields, cards[1], cards[2], int(cards[3] or 0))
        draft = replace(draft, fields=changed)
    as_json = "application/json" in request.headers.get("accept", "")
    try:
        kept = await editor.console.change(form, "create-draft", lambda: editor.save(draft))
    except DitherError as error:
        if as_json:
            return JSONResponse({"fault": sentence(str(error))}, 409, SECURITY)
        return editor.show(form.session, draft, str(error))
    if as_json:
        saved = {"draft": kept.id, "version": kept.version, "copied": kept.id != draft.id}
        return JSONResponse(saved, 200, SECURITY)
    if do == "look":
        return editor.show(form.session, kept, **(await editor.look_ahead(form, kept.fields) or {}))
    where = {"preview": f"/console/drafts/{kept.id}/preview", "leave": "/console"}
    return go(where.get(do, f"/console/drafts/{kept.id}"))


def _add_files(routes: APIRouter, editor: Editor) -> None:
    """Add the reading of a schema or a table into a draft."""
    console = editor.console
    sent = Depends(console.form)

    @routes.post("/console/new/file")
    async def from_file(form: Form = sent) -> Response:
        known = form.text("draft")
        draft = _fresh({})
        if _ID.fullmatch(known):
            draft = await run_in_threadpool(editor.find, known)
        chosen = form.file("file")
        if chosen is None:
            return editor.show(form.session, draft, "choose a file first")
        try:
            schema, leaks = await run_in_threadpool(_read_file, console.collector.questions, chosen)
        except DitherError as error:
            return editor.show(form.session, draft, str(error))
        kept = {name: text for name, text in draft.fields.items() if not name.startswith("a")}
        read = replace(draft, fields={**kept, **show_schema(schema).fields(), "about": "table"})
        saved = await console.change(form, "create-draft", lambda: editor.save(read))
        note = (
            f"{sentence(LEAK_WARNING)} Look through every answer below before you go on."
            if leaks
            else ""
        )
        return editor.show(form.session, saved, note=note)


def _add_copies(routes: APIRouter, editor: Editor) -> None:
    """Add the duplication of drafts and campaigns, and the deletion of drafts."""
    console = editor.console
    signed_in, sent = Depends(console.session), Depends(console.form)

    def copy_of(fields: dict[str, str]) -> Draft:
        title = f"Copy of {fields.get('title') or 'a campaign'}"[:200]
        return editor.save(_fresh({**fields, "title": title}))

    @routes.post("/console/drafts/{draft}/copy")
    async def copy(draft: str, form: Form = sent) -> Response:
        found = await run_in_threadpool(editor.find, draft)
        made = await console.change(form, "create-draft", lambda: copy_of(found.fields))
        return go(f"/console/drafts/{made.id}")

    @routes.post("/console/c/{campaign}/copy")
    async def copy_campaign(campaign: str, form: Form = sent) -> Response:
        fields = fields_of((await console.collector.find(campaign)).spec)
        made = await console.change(form, "create-draft", lambda: copy_of(fields))
        return go(f"/console/drafts/{made.id}")

    @routes.get("/console/drafts/{draft}/delete")
    async def ask(draft: str, session: Session = signed_in) -> Response:
        found = await run_in_threadpool(editor.find, draft)
        if not found.version or not session.principal.may_change:
            return missing()
        return console.page(
            "delete_draft.html", session, "/console", title="Delete the draft?", draft=found
        )

    @routes.post("/console/drafts/{draft}/delete")
    async def delete(draft: str, form: Form = sent) -> Response:
        await console.change(form, "delete-draft", lambda: editor.store.drafts.delete(draft))
        return go("/console")


def _add_previews(routes: APIRouter, editor: Editor, shown: ParticipantPage) -> None:
    """Add previews: the participant's page with an announcement that only operators can read.

    Guarantee: nothing can be sent. The page's script sends nothing in a preview, and the
    collector knows no open round under the id, so it refuses every report.
    """
    console = editor.console
    signed_in = Depends(console.session)

    def of_draft(draft: str) -> NewCampaign:
        fields = editor.find(draft).fields
        return CampaignForm.read(lambda name: fields.get(name, "").strip()).spec()

    @routes.get("/console/drafts/{draft}/preview")
    async def preview(draft: str, session: Session = signed_in) -> Response:
        if not _ID.fullmatch(draft):
            return missing()
        try:
            spec = await run_in_threadpool(of_draft, draft)
            await run_in_threadpool(_announced, draft, spec)
        except DitherError as error:
            found = await run_in_threadpool(editor.find, draft)
            return editor.show(session, found, f"there is nothing to preview yet: {error}")
        return shown(draft, spec, f"/console/drafts/{draft}/announcement")

    @routes.get("/console/drafts/{draft}/announcement")
    async def announced(draft: str, session: Session = signed_in) -> Response:
        if not _ID.fullmatch(draft):
            return missing()
        spec = await run_in_threadpool(of_draft, draft)
        data = await run_in_threadpool(_announced, draft, spec)
        return Response(data, media_type="application/json", headers=SECURITY)

    @routes.get("/console/c/{campaign}/preview")
    async def preview_campaign(campaign: str, session: Session = signed_in) -> Response:
        spec = (await console.collector.find(campaign)).spec
        return shown(campaign, spec, f"/console/c/{campaign}/announcement")

    @routes.get("/console/c/{campaign}/announcement")
    async def announced_campaign(campaign: str, session: Session = signed_in) -> Response:
        spec = (await console.collector.find(campaign)).spec
        data = await run_in_threadpool(_announced, campaign, spec)
        return Response(data, media_type="application/json", headers=SECURITY)


def _announced(campaign: str, spec: CampaignSpec) -> bytes:
    """Return what participants would read if the campaign were open to all, at its first round."""
    asked, _, plan = replace(spec, participation="open", assignment="arrival").begin()
    stored = StoredCampaign(campaign, asked.to_json(), State.OPEN, 0, b"")
    first = StoredRound(campaign, 0, "open", 0.0, plan.to_json())
    return announcement(stored, asked, open_round(stored, asked, first, plan))


def _read_file(questions: Questions, chosen: UploadFile) -> tuple[Schema, bool]:
    """Return the schema of a file, or a draft from a table; and whether it came from data."""
    name = Path(chosen.filename or "file").name
    suffix = Path(name).suffix.lower()
    with tempfile.TemporaryDirectory(prefix="dither-upload-") as scratch:
        place = Path(scratch) / f"file{suffix if suffix.isascii() and suffix[1:].isalnum() else ''}"
        with place.open("wb") as out:
            while block := chosen.file.read(1 << 20):
                out.write(block)
        drafted = questions.draft_schema(str(place), name)
    schema = schema_from_json(json.loads(drafted.json))
    return (plain_numbers(schema) if drafted.from_data else schema), drafted.from_data
