"""The form for a new campaign: texts, a schema from the form or a file, and the planner.

It works without scripts: every button sends the whole form, which comes back with one card
more or less. With scripts, the planner updates as the operator types.

The planner's figures come from `dither.planner`. `Planner` limits their cost: one forecast
at a time in a process, a cache of the latest, and no answer to a request of a browser that
has sent a newer one.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.responses import Response

from dither.collector.keys import Session
from dither.collector.pages.console import Console, Form, go
from dither.collector.pages.schema_form import (
    KINDS,
    PERIOD_NAMES,
    SchemaForm,
    read_cards,
    show_schema,
)
from dither.collector.questions import Questions
from dither.display import WIDTH, drawing, label, number, path, short_number, text_width
from dither.errors import DitherError, ParameterError, SchemaError
from dither.methods import DEFAULT, METHODS
from dither.notice import REASON_EPSILON
from dither.planner import (
    BASELINE,
    Forecast,
    assumed_dependence,
    forecast,
    predict,
    reference_population,
)
from dither.release.charts import FOOT, HEAD, HEIGHT, Axis
from dither.release.pages import sentence
from dither.schema import Schema, schema_from_json
from dither.schema.infer import LEAK_WARNING
from dither.types import JsonObject

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
_SPAN = (0.1, 0.3, 1.0, 3.0, 10.0)  # around the number of participants that was typed
_KEPT = 32
MAX_CODES = 4_000  # of all attributes together; a forecast of more is too slow for a form
MAX_ATTRIBUTES = 40


@dataclass(frozen=True)
class _Outlook:
    """The forecast next to the form.

    Attributes:
        expected: The forecast for the given numbers.
        curves: For each epsilon, pairs of participants and one-way error.
    """

    expected: Forecast
    curves: tuple[tuple[float, tuple[tuple[int, float], ...]], ...]

    @property
    def enough(self) -> str:
        """The verdict in words."""
        pairs = self.expected.recommendation != BASELINE
        error = self.single
        if error > 0.25:
            return "Not enough, not even for single questions. Ask more people or fewer questions, or allow a larger epsilon."
        if not pairs:
            return "Enough for each question by itself, not for how answers go together."
        return "Enough for each question and for how answers go together."

    @property
    def single(self) -> float:
        """The error to expect of one question's distribution."""
        found = next(m for m in self.expected.methods if m.name == self.expected.recommendation)
        return found.tvd[1]

    @property
    def why(self) -> str:
        """What the recommended method does."""
        return METHODS[self.expected.recommendation].summary


class Planner:
    """Looks ahead, one forecast at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, float], _Outlook] = OrderedDict()
        self._latest: dict[str, int] = {}

    def outlook(
        self, asker: str, schema: Schema, participants: int, epsilon: float
    ) -> _Outlook | None:
        """Return the forecast, or None if the same asker has sent a newer request."""
        key = (schema.fingerprint, participants, epsilon)
        with self._guard:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            mine = self._latest[asker] = self._latest.get(asker, 0) + 1
            while len(self._latest) > 1000:
                self._latest.pop(next(iter(self._latest)))
        if len(schema) > MAX_ATTRIBUTES or sum(schema.cardinalities) > MAX_CODES:
            raise DitherError(
                "this schema is too large to look ahead while you type; use 'dither plan' on the command line"
            )
        with self._turn:
            with self._guard:
                if self._latest.get(asker, mine) != mine:
                    return None
            found = _outlook(schema, participants, epsilon)
        with self._guard:
            self._kept[key] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


def _outlook(schema: Schema, participants: int, epsilon: float) -> _Outlook:
    expected = forecast(schema, participants, epsilon, repeats=1)
    population = reference_population(schema, assumed_dependence(schema))
    people = [max(10, round(participants * times)) for times in _SPAN]
    curves = []
    for each in dict.fromkeys(sorted((*EPSILONS, epsilon))):
        found = [(n, predict(BASELINE, population, n, each)) for n in people]
        points = tuple((n, prediction.tvd[1]) for n, prediction in found if 1 in prediction.tvd)
        if points:
            curves.append((each, points))
    return _Outlook(expected, tuple(curves))


def _outlook_chart(outlook: _Outlook) -> Markup:
    """One line for each epsilon, errors and participants both on a scale of tens; the chosen one stands out."""
    spots = sorted({n for _, points in outlook.curves for n, _ in points})
    errors = [max(error, 1e-6) for _, points in outlook.curves for _, error in points]
    low, high = floor(log10(min(errors))), ceil(log10(max(errors)))
    up = Axis(low, max(high, low + 1), HEIGHT - FOOT, HEAD)
    left = max(text_width(_percent(power)) for power in (low, high)) + 10
    across = Axis(log10(spots[0]), log10(spots[-1]), left, WIDTH - 44)
    lines, grid, words = "", "", label(0, 13, "error of one question")
    for power in range(low, max(high, low + 1) + 1):
        grid += f"M{number(across.start)} {number(up(power))}H{number(across.end)}"
        words += label(across.start - 6, up(power) + 4, _percent(power), "e")
    for epsilon, points in outlook.curves:
        places = [
            f"{number(across(log10(n)))} {number(up(log10(max(error, 1e-6))))}"
            for n, error in points
        ]
        lines += path(
            "reach" if epsilon == outlook.expected.epsilon else "curve", "M" + "L".join(places)
        )
    for n in spots[::2]:
        words += label(across(log10(n)), up.start + 17, short_number(n), "m")
    words += label((across.start + across.end) / 2, up.start + 34, "participants", "m") + _ends(
        outlook, across.end, up
    )
    spoken = (
        f"Expected error of one question's distribution against the number of participants, a line for each epsilon from "
        f"{outlook.curves[0][0]:g} to {outlook.curves[-1][0]:g}. The table below has every figure."
    )
    return drawing(WIDTH, HEIGHT, spoken, f"{path('rule', grid)}{lines}<g>{words}</g>")


def _percent(power: int) -> str:
    return f"{10.0 ** (power + 2):g} %"


def _ends(outlook: _Outlook, x: float, up: Axis) -> str:
    """The epsilon of each line at its end, where there is room between one and the next; the chosen one first."""
    out: str = ""
    taken: list[float] = []
    for epsilon, points in sorted(
        outlook.curves, key=lambda curve: curve[0] != outlook.expected.epsilon
    ):
        y = up(log10(max(points[-1][1], 1e-6))) + 4
        if all(abs(y - other) >= 12 for other in taken):
            out += label(x + 5, y, f"ε {epsilon:g}")
            taken.append(y)
    return out


_WORDS = ("title", "purpose", "epsilon_reason", "contact", "closes")
_PREFIX = "remove-"
# Share of participants held out from the fit to estimate its error, as on the command line.
_HOLDOUT = 0.05


@dataclass(frozen=True)
class _Draft:
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
            "holdout": _HOLDOUT,
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


def _read_draft(form: Form) -> _Draft:
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
    return _Draft(**given, schema=read_cards(form.text))


def _show(
    console: Console, session: Session, draft: _Draft, fault: str = "", note: str = "", **seen: Any
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


async def _look_ahead(planner: Planner, form: Form, draft: _Draft) -> dict[str, Any] | None:
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
        else {"outlook": outlook, "chart": _outlook_chart(outlook), "plan_fault": ""}
    )


def new_campaign_routes(console: Console) -> APIRouter:
    """Return the routes of the form, its file and its planner."""
    routes = APIRouter(include_in_schema=False)
    planner = Planner()
    signed_in, sent = Depends(console.session), Depends(console.form)

    @routes.get("/console/new")
    async def empty(session: Session = signed_in) -> Response:
        return _show(console, session, _Draft())

    @routes.post("/console/new")
    async def act(form: Form = sent) -> Response:
        draft, wanted = _read_draft(form), form.text("do")
        if wanted == "add":
            return _show(console, form.session, _with_schema(draft, draft.schema.with_card()))
        if wanted.startswith(_PREFIX) and wanted.removeprefix(_PREFIX).isdecimal():
            left = draft.schema.without(int(wanted.removeprefix(_PREFIX)[:4]))
            return _show(console, form.session, _with_schema(draft, left))
        if wanted not in ("draft", "open"):
            return _show(
                console, form.session, draft, **(await _look_ahead(planner, form, draft) or {})
            )
        campaigns = console.collector.campaigns
        try:
            draft.check_reason()
            description = draft.description(draft=wanted == "draft")
            made = await console.change(form, "create", lambda: campaigns.create(description))
        except DitherError as error:
            return _show(console, form.session, draft, str(error))
        return go(f"/console/c/{made.stored.id}?said=created")

    @routes.post("/console/new/file")
    async def from_file(form: Form = sent) -> Response:
        chosen = form.file("file")
        if chosen is None:
            return _show(console, form.session, _Draft(), "choose a file first")
        try:
            schema, leaks = await run_in_threadpool(_read_file, console.collector.questions, chosen)
        except DitherError as error:
            return _show(console, form.session, _Draft(), str(error))
        note = (
            f"{sentence(LEAK_WARNING)} Look through every answer below before you go on."
            if leaks
            else ""
        )
        return _show(console, form.session, _Draft(schema=show_schema(schema)), note=note)

    @routes.post("/console/plan")
    async def plan(form: Form = sent) -> Response:
        seen = await _look_ahead(planner, form, _read_draft(form))
        if seen is None:
            return Response(status_code=204)
        return console.page("plan.html", form.session, "", title="Plan", **seen)

    return routes


def _with_schema(draft: _Draft, schema: SchemaForm) -> _Draft:
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
