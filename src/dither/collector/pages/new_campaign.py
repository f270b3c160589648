"""The form for a new campaign: texts, a schema from the form or a file, and the planner.

It works without scripts: every button sends the whole form, which comes back with one card
more or less. With scripts, the planner updates as the operator types.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.responses import Response

from dither.collector.pages.console import Console, Form, go
from dither.collector.pages.planning import Planner, outlook_chart
from dither.collector.pages.schema_form import (
    KINDS,
    PERIOD_NAMES,
    SchemaForm,
    read_cards,
    show_schema,
)
from dither.collector.questions import Questions
from dither.collector.sessions import Session
from dither.errors import DitherError, ParameterError, SchemaError
from dither.methods import DEFAULT, METHODS
from dither.notice import REASON_EPSILON
from dither.release.pages import sentence
from dither.schema import Schema, schema_from_json
from dither.schema.infer import LEAK_WARNING
from dither.types import JsonObject

_WORDS = ("title", "purpose", "epsilon_reason", "contact", "closes")
_PREFIX = "remove-"
# Share of participants held out from the fit to estimate its error, as on the command line.
HOLDOUT = 0.05


@dataclass(frozen=True)
class Draft:
    """The form as it was sent: all fields as text, and the cards of the schema."""

    title: str = ""
    purpose: str = ""
    epsilon_reason: str = ""
    contact: str = ""
    closes: str = ""
    closes_at_reports: str = ""
    epsilon: str = "2"
    participants: str = "10000"
    method: str = ""
    participation: str = "open"
    assignment: str = "arrival"
    listed: str = ""
    schema: SchemaForm = field(default_factory=SchemaForm)

    def description(self, draft: bool) -> JsonObject:
        """Return the request of the HTTP API that creates the campaign."""
        out: JsonObject = {
            "schema": self.schema.schema().to_json(),
            "epsilon": self.number("epsilon"),
            "participants": self.whole("participants"),
            "method": self.method or DEFAULT,
            "participation": self.participation,
            "assignment": self.assignment,
            "holdout": HOLDOUT,
            "listed": self.listed == "yes",
            "draft": draft,
        }
        out |= {name: text for name in _WORDS if (text := getattr(self, name))}
        if self.closes_at_reports:
            out["closes_at_reports"] = self.whole("closes_at_reports")
        return out

    def check_reason(self) -> None:
        """Require a reason for participants if epsilon is above 8."""
        if self.number("epsilon") > REASON_EPSILON and not self.epsilon_reason.strip():
            raise ParameterError(
                f"an epsilon above {REASON_EPSILON:g} needs a reason that participants read",
                where="epsilon_reason",
            )

    def number(self, name: str) -> float:
        """Return a field as a number."""
        try:
            return float(getattr(self, name))
        except ValueError:
            raise SchemaError(
                f"{name}: {getattr(self, name)!r} is not a number", where=name
            ) from None

    def whole(self, name: str) -> int:
        """Return a field as a positive whole number."""
        number = self.number(name)
        if not number.is_integer() or not 0 < number < 2**53:
            raise SchemaError(
                f"{name}: {getattr(self, name)!r} is not a whole number above 0", where=name
            )
        return int(number)


def _read_draft(form: Form) -> Draft:
    """Read the fields of the form."""
    names = (
        *_WORDS,
        "closes_at_reports",
        "epsilon",
        "participants",
        "method",
        "participation",
        "assignment",
        "listed",
    )
    given = {name: form.text(name) for name in names if form.text(name)}
    return Draft(**given, schema=read_cards(form.text))


def new_campaign_routes(console: Console) -> APIRouter:
    """Return the routes of the form, its file and its planner."""
    routes = APIRouter(include_in_schema=False)
    planner = Planner()
    signed_in, sent = Depends(console.session), Depends(console.form)

    def show(
        session: Session, draft: Draft, fault: str = "", note: str = "", **seen: Any
    ) -> Response:
        response = console.page(
            "new_campaign.html",
            session,
            "/console/new",
            title="New campaign",
            draft=draft,
            kinds=KINDS,
            periods=PERIOD_NAMES,
            methods=METHODS,
            default_method=DEFAULT,
            fault=fault,
            note=note,
            **{"outlook": None, "chart": None, "plan_fault": "", **seen},
        )
        response.status_code = 422 if fault else 200
        return response

    @routes.get("/console/new")
    async def empty(session: Session = signed_in) -> Response:
        return show(session, Draft())

    @routes.post("/console/new")
    async def act(form: Form = sent) -> Response:
        draft, wanted = _read_draft(form), form.text("do")
        if wanted == "add":
            return show(form.session, _with_schema(draft, draft.schema.with_card()))
        if wanted.startswith(_PREFIX) and wanted.removeprefix(_PREFIX).isdecimal():
            left = draft.schema.without(int(wanted.removeprefix(_PREFIX)[:4]))
            return show(form.session, _with_schema(draft, left))
        if wanted not in ("draft", "open"):
            return show(form.session, draft, **(await look_ahead(form, draft) or {}))
        campaigns = console.collector.campaigns
        try:
            draft.check_reason()
            description = draft.description(draft=wanted == "draft")
            made = await console.change(form, "create", lambda: campaigns.create(description))
        except DitherError as error:
            return show(form.session, draft, str(error))
        return go(f"/console/c/{made.stored.id}?said=created")

    @routes.post("/console/new/file")
    async def from_file(form: Form = sent) -> Response:
        chosen = form.file("file")
        if chosen is None:
            return show(form.session, Draft(), "choose a file first")
        try:
            schema, leaks = await run_in_threadpool(_read_file, console.collector.questions, chosen)
        except DitherError as error:
            return show(form.session, Draft(), str(error))
        note = (
            f"{sentence(LEAK_WARNING)} Look through every answer below before you go on."
            if leaks
            else ""
        )
        return show(form.session, Draft(schema=show_schema(schema)), note=note)

    async def look_ahead(form: Form, draft: Draft) -> dict[str, Any] | None:
        """Return the planner's content, or None if the same browser has sent a newer request."""
        try:
            schema, people, epsilon = (
                draft.schema.schema(),
                draft.whole("participants"),
                draft.number("epsilon"),
            )
            outlook = await run_in_threadpool(
                planner.outlook, form.session.csrf, schema, people, epsilon
            )
        except DitherError as error:
            return {"outlook": None, "chart": None, "plan_fault": str(error)}
        return (
            None
            if outlook is None
            else {"outlook": outlook, "chart": outlook_chart(outlook), "plan_fault": ""}
        )

    @routes.post("/console/plan")
    async def plan(form: Form = sent) -> Response:
        seen = await look_ahead(form, _read_draft(form))
        if seen is None:
            return Response(status_code=204)
        return console.page("plan.html", form.session, "", title="Plan", **seen)

    return routes


def _with_schema(draft: Draft, schema: SchemaForm) -> Draft:
    return replace(draft, schema=schema)


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
    return schema_from_json(json.loads(drafted.json)), drafted.from_data
