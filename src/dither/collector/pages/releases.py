"""The pages of a published release: what it says, questions to it, downloads, and another release beside it.

Guarantee: what a reader may see is decided by the same lookup as in the API (`Publications.find`), and whatever they may not see is
the same page as what is not there. Every page works without script; every question is an address that can be shared.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from dither.collector.access import Access
from dither.collector.answering import FIGURES, Question
from dither.collector.collector import Collector
from dither.collector.pages.answers import SECURITY, page, shown_origin
from dither.collector.pages.asking import MAX_BY, Form, read_form
from dither.collector.pages.number_asking import read_number_form
from dither.collector.pages.shown_answers import shown_answer
from dither.collector.publications import NoRelease, Publications, Published
from dither.collector.questions import TooManyQuestions
from dither.display import bar_chart
from dither.errors import InputError
from dither.release.compare import ComparedAttribute, compare_manifests
from dither.release.query import Answer, AnswerTable
from dither.release.query.answer import shown
from dither.schema import schema_from_json
from dither.types import JsonObject

# https://www.ctan.org/pkg/latex-doc-ptr: the ten signs that mean something to LaTeX.
_SIGNS = {sign: "\\" + sign for sign in "{}$&#%_"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}


def spelt(text: str) -> str:
    """Text as LaTeX reads it, in one line."""
    return "".join(_SIGNS.get(sign, sign) for sign in " ".join(text.split()) if sign.isprintable())


def bibtex(manifest: JsonObject, title: str, about: str, place: str) -> str:
    """An entry: the title, what tells this release from others, where it is, and the year of its making, if that is known."""
    campaign = manifest.get("campaign") or {}
    made = str(campaign.get("finalised") or "")[:4]
    fields = {"title": f"{{{spelt(title)}}}", "year": made, "note": spelt(about), "url": place}
    lines = "".join(f",\n  {name} = {{{value}}}" for name, value in fields.items() if value)
    return f"@misc{{dither-{str(campaign.get('id', ''))[:12]}{lines}\n}}\n"


MAX_OFFERED = 50  # releases to compare with


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
        return await run_in_threadpool(_download, publications, release, collector.public_url)

    @routes.get("/citation.bib")
    async def cite(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        return await run_in_threadpool(_citation, publications, release, collector.public_url)

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
    return "consumers" in manifest


def number_name(manifest: JsonObject) -> str:
    """The name of the number that a release is about; earlier versions wrote it elsewhere."""
    earlier = (manifest.get("campaign") or {}).get("number")
    return str(manifest.get("number") or earlier or "number")


def _address(campaign: str, below: str, query: list[tuple[str, str]] | None = None) -> str:
    return f"/releases/{campaign}{below}" + (f"?{urlencode(query)}" if query else "")


def _frame(release: Published, manifest: JsonObject, here: str) -> dict[str, Any]:
    """What every page of a release has: the bar above, its name, and whether anybody may see it."""
    sections = [("", "Report"), ("/ask", "Ask"), ("/download", "Download"), ("/compare", "Compare")]
    if about_a_number(
        manifest
    ):  # of a mean there is nothing more to ask, and numbers are not compared
        sections = [
            s
            for s in sections
            if s[0] != "/compare" and (s[0] != "/ask" or not manifest.get("mean"))
        ]
    return {
        "bar": [
            (_address(release.campaign, below), name, below == here) for below, name in sections
        ],
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
        return _ask_number(publications, release, manifest, asked)
    schema = schema_from_json(json.loads(publications.schema(release)))
    form = read_form(schema, asked)
    question = [("by", name) for name in form.question.by]
    question += [
        (name, text) for name in ("where", "given") if (text := getattr(form.question, name))
    ]
    return _asking_page(
        "release_ask.html",
        (publications, release, manifest),
        form.question if form.asks else None,
        attributes=[(a.name, a.question) for a in schema],
        form=form,
        places=range(min(MAX_BY, len(schema))),
        files=_files(release, question),
        python=_python(form),
    )


def _ask_number(
    publications: Publications,
    release: Published,
    manifest: JsonObject,
    asked: list[tuple[str, str]],
) -> Response:
    if manifest.get("mean"):
        return RedirectResponse(_address(release.campaign, ""), 303, SECURITY)
    number = number_name(manifest)
    form = read_number_form(asked, manifest["range"], number)
    return _asking_page(
        "release_ask_number.html",
        (publications, release, manifest),
        form.question if form.asks else None,
        form=form,
        figures=FIGURES,
        number=number,
        files=_files(release, form.parameters),
        python=form.python,
    )


def _asking_page(
    template: str,
    of: tuple[Publications, Published, JsonObject],
    question: Question | None,
    **more: Any,
) -> Response:
    """The form and, if something is asked, its answer or why there is none."""
    publications, release, manifest = of
    answer: Answer | AnswerTable | None = None
    fault, status = "", 200
    if question is not None:
        try:
            answer = publications.ask(release, question)
        except InputError as error:
            fault, status = str(error), 422
        except TooManyQuestions as error:
            fault, status = str(error), 429
    frame = _frame(release, manifest, "/ask")
    return page(
        template,
        title=f"Ask: {frame['name']}",
        heading="Ask this release",
        subtitle=frame["name"],
        status=status,
        fault=fault,
        shown_answer=None if answer is None else shown_answer(answer),
        **more,
        **frame,
    )


def _files(release: Published, question: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same answer for programs: a name and an address each."""
    return [
        (
            name,
            f"/v1/releases/{release.campaign}/query?{urlencode([*question, ('format', name.lower())])}",
        )
        for name in ("CSV", "JSON", "Parquet")
    ]


def _python(form: Form) -> str:
    """The lines that give the same answer in Python."""
    question = form.question
    words = [f"{name}={text!r}" for name in ("where", "given") if (text := getattr(question, name))]
    call = (
        f"table({', '.join([repr(list(question.by)), *words])})"
        if question.by
        else f"query({', '.join(words)})"
    )
    return f'import dither\n\nrelease = dither.load_release("release")  # folder.zip, unpacked\nrelease.{call}'


def _download(publications: Publications, release: Published, public_url: str | None) -> Response:
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
        rows=manifest.get("rows") or None,
        mean=bool(manifest.get("mean")),
        citation=body.citation,
        origin=shown_origin(public_url),
        **frame,
    )


def _citation(publications: Publications, release: Published, public_url: str | None) -> Response:
    manifest = json.loads(publications.manifest(release))
    place = "" if public_url is None else f"{public_url}/releases/{release.campaign}"
    about = publications.report(release).citation
    headers = {
        **SECURITY,
        "content-disposition": f'attachment; filename="release-{release.campaign[:8]}.bib"',
    }
    text = bibtex(manifest, title_of(manifest), about, place)
    return Response(text, media_type="application/x-bibtex; charset=utf-8", headers=headers)


def _compare(publications: Publications, release: Published, other: Published | None) -> Response:
    manifest = json.loads(publications.manifest(release))
    if about_a_number(manifest):
        return RedirectResponse(_address(release.campaign, ""), 303, SECURITY)
    frame = _frame(release, manifest, "/compare")
    offered: list[tuple[str, str, JsonObject]] = []
    for campaign in publications.public()[: 4 * MAX_OFFERED]:
        if campaign == release.campaign or len(offered) == MAX_OFFERED:
            continue
        try:
            told = json.loads(publications.manifest(publications.find(campaign, False)))
        except NoRelease:  # taken back this very moment
            continue
        if (
            not about_a_number(told)
            and told["schema_fingerprint"] == manifest["schema_fingerprint"]
        ):
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
    ordered = sorted(
        entry.values, key=lambda value: -max(value.first.estimate, value.second.estimate)
    )[:20]
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
