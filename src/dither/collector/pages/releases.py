"""Pages of a published release: its report, questions, downloads, and comparison with another.

Guarantee: the same lookup as in the API (`Publications.find`) decides what a reader may
see, and a hidden release has the same page as a missing one. All pages work without
scripts; each question is an address that can be shared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from dither.collector.access import Access
from dither.collector.collector import Collector
from dither.collector.pages.answers import SECURITY, page, shown_origin
from dither.collector.pages.asking import read_form, shown_answer
from dither.collector.problems import Problem
from dither.collector.publications import Publications, Published
from dither.display import Bar, bar_chart
from dither.errors import InputError, ParameterError
from dither.release.query import Answer, AnswerTable
from dither.release.query.answer import shown
from dither.schema import Attribute, Schema, schema_from_json

# Half-width of a 95 % interval in standard errors.
REACH = 1.96


class _Estimate(TypedDict):
    """The distribution of one attribute, as a manifest has it."""

    attribute: str
    labels: list[str]
    frequencies: list[float]
    standard_errors: list[float | None] | None


class _Campaign(TypedDict, total=False):
    """The campaign of a release, as its manifest has it."""

    id: str
    title: str
    name: str
    number: str
    finalised: str


class _Manifest(TypedDict, total=False):
    """What these pages read of `release.json`. Which keys are present depends on the release."""

    campaign: _Campaign | None
    participants: int
    rows: int | None
    schema_fingerprint: str
    estimates: list[_Estimate]
    mean: object
    number: str
    range: tuple[float, float]


@dataclass(frozen=True)
class _Compared:
    """One value in two releases, and the difference (second minus first) with a 95 % interval.

    The releases have different participants, so the variance of a difference is the sum
    of both.
    """

    first: Bar
    second: Bar
    difference: float
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class _ComparedAttribute:
    """One attribute in two releases, and their total variation distance."""

    name: str
    values: Sequence[_Compared]
    distance: float


def compare_manifests(first: _Manifest, second: _Manifest) -> list[_ComparedAttribute]:
    """The attributes of two manifests; an error unless they are of tables of one schema."""
    if not (_can_compare(first) and _can_compare(second)):
        raise ParameterError(
            "one of the two releases is about one number; there is no table in it to compare"
        )
    if first["schema_fingerprint"] != second["schema_fingerprint"]:
        raise ParameterError(
            "the two releases have different schemas, so that their values mean different things"
        )
    return [_attribute(a, b) for a, b in zip(first["estimates"], second["estimates"], strict=True)]


def _attribute(first: _Estimate, second: _Estimate) -> _ComparedAttribute:
    values = []
    for i, label in enumerate(first["labels"]):
        a, b = float(first["frequencies"][i]), float(second["frequencies"][i])
        errors = [_error(side, i) for side in (first, second)]
        both = None if None in errors else math.hypot(*(error or 0.0 for error in errors))
        low, high = (None, None) if both is None else (b - a - REACH * both, b - a + REACH * both)
        values.append(
            _Compared(_bar(label, a, errors[0]), _bar(label, b, errors[1]), b - a, low, high)
        )
    return _ComparedAttribute(
        first["attribute"], values, 0.5 * math.fsum(abs(v.difference) for v in values)
    )


def _error(side: _Estimate, i: int) -> float | None:
    errors = side["standard_errors"]
    return None if errors is None else errors[i]


def _bar(label: str, estimate: float, error: float | None) -> Bar:
    if error is None:
        return Bar(label, estimate)
    return Bar(
        label, estimate, max(0.0, estimate - REACH * error), min(1.0, estimate + REACH * error)
    )


# https://www.ctan.org/pkg/latex-doc-ptr: the ten signs that mean something to LaTeX.
_SIGNS = {sign: "\\" + sign for sign in "{}$&#%_"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}


def _spelt(text: str) -> str:
    """Text as LaTeX reads it, in one line."""
    return "".join(_SIGNS.get(sign, sign) for sign in " ".join(text.split()) if sign.isprintable())


def bibtex(manifest: _Manifest, title: str, about: str, place: str) -> str:
    """A BibTeX entry: title, identification of this release, address, and year if known."""
    campaign = manifest.get("campaign") or {}
    made = str(campaign.get("finalised") or "")[:4]
    fields = {"title": f"{{{_spelt(title)}}}", "year": made, "note": _spelt(about), "url": place}
    lines = "".join(f",\n  {name} = {{{value}}}" for name, value in fields.items() if value)
    return f"@misc{{dither-{str(campaign.get('id', ''))[:12]}{lines}\n}}\n"


# Releases offered for comparison.
MAX_OFFERED = 50


def release_pages(collector: Collector) -> APIRouter:
    """Routes below `/releases/{campaign}`. Those that block run in the framework's threads."""
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
        # Remove empty parameters from the address, so that it can be shared.
        if len(kept) < len(given):
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


def _read_manifest(publications: Publications, release: Published) -> _Manifest:
    manifest: _Manifest = json.loads(publications.manifest(release))
    return manifest


def _title_of(manifest: _Manifest) -> str:
    """The title of a release: its campaign's title or name."""
    campaign = manifest.get("campaign") or {}
    return str(campaign.get("title") or campaign.get("name") or "Release")


def _can_ask(manifest: _Manifest) -> bool:
    """Whether a release answers questions beyond its report; a collected mean does not."""
    return not manifest.get("mean")


def _can_compare(manifest: _Manifest) -> bool:
    """Whether a release has estimates by attribute of a schema."""
    return "estimates" in manifest


def _number_name(manifest: _Manifest) -> str:
    """The name of a release's number; earlier versions stored it elsewhere."""
    earlier = (manifest.get("campaign") or {}).get("number")
    return str(manifest.get("number") or earlier or "number")


def _schema_of(publications: Publications, release: Published, manifest: _Manifest) -> Schema:
    """The schema of a release; earlier versions stored none for a number, only its range."""
    known = json.loads(publications.schema(release))
    if known:
        return schema_from_json(known)
    low, high = manifest["range"]
    return Schema((Attribute(_number_name(manifest), "numeric", edges=(low, high)),))


def _address(campaign: str, below: str, query: list[tuple[str, str]] | None = None) -> str:
    return f"/releases/{campaign}{below}" + (f"?{urlencode(query)}" if query else "")


def _frame(release: Published, manifest: _Manifest, here: str) -> dict[str, Any]:
    """Values of all pages of a release: the bar, its name, and whether it is public."""
    sections = [("", "Report"), ("/download", "Download")]
    if _can_ask(manifest):
        sections.insert(1, ("/ask", "Ask"))
    if _can_compare(manifest):
        sections.append(("/compare", "Compare"))
    return {
        "bar": [
            (_address(release.campaign, below), name, below == here) for below, name in sections
        ],
        "campaign": release.campaign,
        "public": release.public,
        "name": _title_of(manifest),
    }


def _overview(publications: Publications, release: Published) -> Response:
    manifest = _read_manifest(publications, release)
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
    manifest = _read_manifest(publications, release)
    if not _can_ask(manifest):
        return RedirectResponse(_address(release.campaign, ""), 303, SECURITY)
    number = _number_name(manifest) if "range" in manifest else ""
    form = read_form(_schema_of(publications, release, manifest), asked, number)
    answer: Answer | AnswerTable | None = None
    fault, status = "", 200
    if form.asks:
        try:
            answer = publications.ask(release, form.question)
        except InputError as error:
            fault, status = str(error), 422
        except Problem as error:
            if error.cause != "too-many-questions":
                raise
            fault, status = str(error), 429
    frame = _frame(release, manifest, "/ask")
    return page(
        "release_ask.html",
        title=f"Ask: {frame['name']}",
        heading="Ask this release",
        subtitle=frame["name"],
        status=status,
        fault=fault,
        shown_answer=None if answer is None else shown_answer(answer),
        form=form,
        files=_files(release, form.parameters),
        python=form.python,
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


def _download(publications: Publications, release: Published, public_url: str | None) -> Response:
    manifest = _read_manifest(publications, release)
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
    manifest = _read_manifest(publications, release)
    place = "" if public_url is None else f"{public_url}/releases/{release.campaign}"
    about = publications.report(release).citation
    headers = {
        **SECURITY,
        "content-disposition": f'attachment; filename="release-{release.campaign[:8]}.bib"',
    }
    text = bibtex(manifest, _title_of(manifest), about, place)
    return Response(text, media_type="application/x-bibtex; charset=utf-8", headers=headers)


def _compare(publications: Publications, release: Published, other: Published | None) -> Response:
    manifest = _read_manifest(publications, release)
    if not _can_compare(manifest):
        return RedirectResponse(_address(release.campaign, ""), 303, SECURITY)
    frame = _frame(release, manifest, "/compare")
    offered: list[tuple[str, str, _Manifest]] = []
    for campaign in publications.public(listed=True)[: 4 * MAX_OFFERED]:
        if campaign == release.campaign or len(offered) == MAX_OFFERED:
            continue
        try:
            candidate = _read_manifest(publications, publications.find(campaign, False))
        except Problem:
            # The release was withdrawn in the mean time.
            continue
        same = candidate.get("schema_fingerprint") == manifest["schema_fingerprint"]
        if same and _can_compare(candidate):
            offered.append((campaign, _title_of(candidate), candidate))
    compared, second, fault = [], None, ""
    if other is not None:
        second = _read_manifest(publications, other)
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
        offered=[(campaign, title, facts["participants"]) for campaign, title, facts in offered],
        chosen="" if other is None else other.campaign,
        first=manifest,
        second=second,
        second_name="" if second is None else _title_of(second),
        compared=compared,
        fault=fault,
        **frame,
    )


def _card(entry: _ComparedAttribute) -> dict[str, Any]:
    """One attribute: two charts and a table of differences, the largest ones first."""
    ordered = sorted(
        entry.values, key=lambda value: -max(value.first.estimate, value.second.estimate)
    )[:20]
    # In the schema's order.
    kept = [value for value in entry.values if value in ordered]
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
