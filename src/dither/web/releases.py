"""The pages of a published release: what it says, questions to it, downloads, and another release beside it.

Guarantee: what a reader may see is decided by the same lookup as in the API (`Publications.find`), and whatever they may not see is
the same page as what is not there. Every page works without script; every question is an address that can be shared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from dither.collector.access import Access
from dither.collector.collector import Collector
from dither.collector.publications import NoRelease, Publications, Published
from dither.collector.questions import TooManyQuestions
from dither.display.bars import Bar, bar_chart
from dither.errors import InputError
from dither.release.compare import ComparedAttribute, compare_manifests
from dither.release.histogram import FORMAT as HISTOGRAM_FORMAT
from dither.release.query import Answer, AnswerTable
from dither.release.query.answer import AnswerRow, interval_heading, shown
from dither.schema import schema_from_json
from dither.types import JsonObject
from dither.web.answers import SECURITY, page
from dither.web.asking import MOST_BY, Form, read_form

MOST_CHARTED = 40  # rows of an answer in its chart
MOST_ROWS = 500  # in its table on the page; the files have all of them
MOST_OFFERED = 50  # releases to compare with
_NO_INTERVAL = ("no-interval", "divisor-unsure", "caution")


@dataclass(frozen=True)
class ShownRow:
    """A row of an answer in words: what it is about, the figure, its interval, and why it cannot be trusted if it cannot."""

    about: tuple[str, ...]
    estimate: str
    interval: str
    remark: str


def release_pages(collector: Collector) -> APIRouter:
    """The addresses below `/releases/{campaign}`. What asks the store or waits for an answer runs in the framework's threads."""
    routes = APIRouter(prefix="/releases/{campaign}", include_in_schema=False)
    access, publications = Access(collector), collector.publications

    async def find(request: Request, campaign: str) -> Published:
        everything = await access.principal(request) is not None
        return await run_in_threadpool(publications.find, campaign, everything)

    @routes.get("")
    async def overview(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        return await run_in_threadpool(_overview, publications, release)

    @routes.get("/ask")
    async def ask(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        given = request.query_params.multi_items()
        kept = [(name, value) for name, value in given if value.strip()]
        if len(kept) < len(given):  # an address to share has only what was asked
            return RedirectResponse(_address(campaign, "/ask", kept), 303, SECURITY)
        return await run_in_threadpool(_ask, publications, release, kept)

    @routes.get("/download")
    async def download(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        return await run_in_threadpool(_download, publications, release, str(request.base_url).rstrip("/"))

    @routes.get("/compare")
    async def compare(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        chosen = request.query_params.get("with", "")
        other = await find(request, chosen) if chosen else None
        return await run_in_threadpool(_compare, publications, release, other)

    return routes


def title_of(manifest: JsonObject) -> str:
    """What a release is called: its campaign's title or name."""
    campaign = manifest.get("campaign") or {}
    return str(campaign.get("title") or campaign.get("name") or "Release")


def about_a_number(manifest: JsonObject) -> bool:
    """Whether a release has histograms or the mean of one number in place of a table."""
    return manifest.get("format") == HISTOGRAM_FORMAT


def _address(campaign: str, below: str, query: list[tuple[str, str]] | None = None) -> str:
    return f"/releases/{campaign}{below}" + (f"?{urlencode(query)}" if query else "")


def _frame(release: Published, manifest: JsonObject, here: str) -> dict[str, Any]:
    """What every page of a release has: the bar above, its name, and whether anybody may see it."""
    sections = [("", "Report"), ("/ask", "Ask"), ("/download", "Download"), ("/compare", "Compare")]
    if about_a_number(manifest):  # forms for such questions and comparisons there are not; programs ask by address
        sections = [("", "Report"), ("/download", "Download")]
    return {
        "bar": [(_address(release.campaign, below), name, below == here) for below, name in sections],
        "campaign": release.campaign,
        "public": release.public,
        "name": title_of(manifest),
    }


def _overview(publications: Publications, release: Published) -> Response:
    manifest = json.loads(publications.manifest(release))
    body = publications.report(release)
    frame = _frame(release, manifest, "")
    return page(
        "release.html",
        title=frame["name"],
        subtitle=body.subtitle,
        facts=body.facts,
        contents=list(body.contents),
        sections=body.html,
        **frame,
    )


def _ask(publications: Publications, release: Published, asked: list[tuple[str, str]]) -> Response:
    manifest = json.loads(publications.manifest(release))
    if about_a_number(manifest):
        return RedirectResponse(_address(release.campaign, ""), 303, SECURITY)
    schema = schema_from_json(json.loads(publications.schema(release)))
    form = read_form(schema, asked)
    answer: Answer | AnswerTable | None = None
    fault, status = "", 200
    if form.asks:
        try:
            answer = publications.ask(release, form.question)
        except InputError as error:
            fault, status = str(error), 422
        except TooManyQuestions as error:
            fault, status = str(error), 429
    question = [("by", name) for name in form.question.by]
    question += [(name, text) for name in ("where", "given") if (text := getattr(form.question, name))]
    files = [
        (form_name.upper() if form_name != "parquet" else "Parquet", _file(release, [*question, ("format", form_name)]))
        for form_name in ("csv", "json", "parquet")
    ]
    frame = _frame(release, manifest, "/ask")
    return page(
        "release_ask.html",
        title=f"Ask: {frame['name']}",
        heading="Ask this release",
        subtitle=frame["name"],
        status=status,
        attributes=[(a.name, a.question) for a in schema],
        form=form,
        places=range(min(MOST_BY, len(schema))),
        fault=fault,
        answer=answer,
        shown_answer=None if answer is None else _shown_answer(answer),
        files=files,
        python=_python(form),
        **frame,
    )


def _file(release: Published, query: list[tuple[str, str]]) -> str:
    return f"/v1/releases/{release.campaign}/query?{urlencode(query)}"


def _python(form: Form) -> str:
    """The lines that give the same answer in Python."""
    question = form.question
    words = [f"{name}={text!r}" for name in ("where", "given") if (text := getattr(question, name))]
    call = f"table({', '.join([repr(list(question.by)), *words])})" if question.by else f"query({', '.join(words)})"
    return f'import dither\n\nrelease = dither.load_release("release")  # folder.zip, unpacked\nrelease.{call}'


def _shown_answer(answer: Answer | AnswerTable) -> dict[str, Any]:
    """An answer for the page: a chart, a table, and why figures cannot be trusted where they cannot."""
    rows = _rows(answer)
    reason = next((str(w) for w in answer.warnings if w.code in _NO_INTERVAL), "")
    known = [row for row in rows if row.estimate == row.estimate]
    charted = known if len(known) <= MOST_CHARTED else sorted(known, key=lambda row: -row.estimate)[:MOST_CHARTED]
    bars = [Bar(" · ".join(map(str, row.values)), row.estimate, row.low, row.high) for row in charted]
    words = f"{answer.asked}: " + ", ".join(f"{bar.label} {bar.estimate:.1%}" for bar in bars[:5])
    listed = rows if len(rows) <= MOST_ROWS else sorted(rows, key=lambda row: -row.estimate)[:MOST_ROWS]
    return {
        "asked": answer.asked,
        "head": list(answer.by) if isinstance(answer, AnswerTable) else ["Whom"],
        "interval": interval_heading(answer.level),
        "chart": bar_chart(bars, words) if bars else Markup(""),
        "rows": _shown_rows(listed, reason),
        "left": len(rows) - len(listed),
        "uncharted": len(known) - len(charted),
        "warnings": answer.warnings,
        "people": None if isinstance(answer, AnswerTable) else answer.people,
    }


def _rows(answer: Answer | AnswerTable) -> list[AnswerRow]:
    if isinstance(answer, AnswerTable):
        return list(answer.rows)
    return [AnswerRow((answer.asked,), answer.estimate, answer.low, answer.high, answer.standard_error)]


def _shown_rows(rows: list[AnswerRow], reason: str) -> list[ShownRow]:
    """Why there is no interval stands in full in the first row without one."""
    out, said = [], reason or "no interval can be had for this figure"
    for row in rows:
        out.append(_row(row, said))
        if row.low is None:
            said = "as above"
    return out


def _row(row: AnswerRow, reason: str) -> ShownRow:
    about = tuple(map(str, row.values))
    estimate = shown(row.estimate, "share")
    if row.low is None or row.high is None:
        return ShownRow(about, estimate, "none", reason)
    interval = f"{shown(row.low, 'share')} to {shown(row.high, 'share')}"
    if row.low <= 0.0:
        return ShownRow(about, estimate, interval, "cannot be told from none")
    return ShownRow(about, estimate, interval, "cannot be told from all" if row.high >= 1.0 else "")


def _download(publications: Publications, release: Published, origin: str) -> Response:
    manifest = json.loads(publications.manifest(release))
    body = publications.report(release)
    frame = _frame(release, manifest, "/download")
    return page(
        "release_download.html",
        title=f"Download: {frame['name']}",
        heading="Download",
        subtitle=frame["name"],
        files=f"/v1/releases/{release.campaign}",
        digest=release.digest,
        rows=manifest.get("rows"),
        citation=body.citation,
        place=f"{origin}/releases/{release.campaign}",
        origin=origin,
        **frame,
    )


def _compare(publications: Publications, release: Published, other: Published | None) -> Response:
    manifest = json.loads(publications.manifest(release))
    if about_a_number(manifest):
        return RedirectResponse(_address(release.campaign, ""), 303, SECURITY)
    frame = _frame(release, manifest, "/compare")
    offered: list[tuple[str, str, JsonObject]] = []
    for campaign in publications.public()[: 4 * MOST_OFFERED]:
        if campaign == release.campaign or len(offered) == MOST_OFFERED:
            continue
        try:
            told = json.loads(publications.manifest(publications.find(campaign, False)))
        except NoRelease:  # taken back this very moment
            continue
        if not about_a_number(told) and told["schema_fingerprint"] == manifest["schema_fingerprint"]:
            offered.append((campaign, title_of(told), told))
    compared, second, fault = [], None, ""
    if other is not None:
        second = json.loads(publications.manifest(other))
        try:
            compared = [_card(entry) for entry in compare_manifests(manifest, second)]
        except InputError as error:
            fault = str(error)
    return page(
        "release_compare.html",
        title=f"Compare: {frame['name']}",
        heading="Two releases side by side",
        subtitle=frame["name"],
        status=422 if fault else 200,
        offered=[(campaign, title, told["participants"]) for campaign, title, told in offered],
        chosen="" if other is None else other.campaign,
        first=manifest,
        second=second,
        second_name="" if second is None else title_of(second),
        compared=compared,
        fault=fault,
        **frame,
    )


def _card(entry: ComparedAttribute) -> dict[str, Any]:
    """One attribute: two charts and a table of differences, the largest ones first."""
    ordered = sorted(entry.values, key=lambda value: -max(value.first.estimate, value.second.estimate))[:20]
    kept = [value for value in entry.values if value in ordered]  # in the schema's order
    charts = [
        bar_chart([getattr(value, side) for value in kept], f"{entry.name}, {side} release")
        for side in ("first", "second")
    ]
    rows = [
        (
            value.first.label,
            shown(value.first.estimate, "share"),
            shown(value.second.estimate, "share"),
            f"{100 * value.difference:+.2f}",
            "no interval"
            if value.low is None or value.high is None
            else f"{100 * value.low:+.2f} to {100 * value.high:+.2f}",
            "differ" if value.differs else "may be equal",
        )
        for value in entry.values[:100]
    ]
    return {
        "name": entry.name,
        "charts": charts,
        "rows": rows,
        "distance": entry.distance,
        "differ": sum(value.differs for value in entry.values),
        "values": len(entry.values),
    }
