"""Pages of a published release: explorer, report, downloads, and comparison with others.

Guarantee: the same lookup as in the API (`Publications.find`) decides what a reader may
see, and a hidden release has the same page as a missing one. All pages work without
scripts; each view is an address that can be shared. Only the page of one view that is made for
frames may be shown in a frame.
"""

from __future__ import annotations

import hashlib
import io
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict
from urllib.parse import urlencode

import pyarrow.parquet as pq
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from dither.collector.access import Access
from dither.collector.admin import PARQUET
from dither.collector.collector import Collector
from dither.collector.exploring import MAX_OVERVIEW, MEAN, MEDIAN, SHARE, Explored, View
from dither.collector.pages.answers import (
    POLICY,
    SECURITY,
    language_choices,
    language_of,
    missing,
    page,
    shown_origin,
)
from dither.collector.pages.asking import Form, python_line, read_form, shown_answer
from dither.collector.pages.comparing import MAX_RELEASES, Compared, Series, compare
from dither.collector.pages.explorer import Card, cards, figures_json, figures_table, group_words
from dither.collector.pages.preview import preview
from dither.collector.pages.progress import answers, question_of
from dither.collector.problems import Problem, json_response
from dither.collector.publications import Publications, Published
from dither.collector.releases import CSV, write_spreadsheet
from dither.display import STYLE, stand_alone
from dither.errors import InputError, ParameterError
from dither.languages import LANGUAGES, decimal, language, speaking
from dither.languages import gettext as _
from dither.release.charts import sheet_of_charts
from dither.release.query import Answer, AnswerTable
from dither.schema import Attribute, Schema, schema_from_json


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
    estimates: list[object]
    mean: object
    number: str
    range: tuple[float, float]
    epsilon_achieved: float


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
# Groups of people offered for a difference, of all attributes together.
MAX_OFFERED_GROUPS = 400
# Of the style inside a picture, for its policy.
STYLE_HASH = "sha256-" + b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


def release_pages(collector: Collector) -> APIRouter:
    """Routes below `/releases/{campaign}`. Those that block run in the framework's threads."""
    routes = APIRouter(prefix="/releases/{campaign}", include_in_schema=False)
    access, publications = Access(collector), collector.publications

    async def find(request: Request, campaign: str) -> Published:
        everything = await access.principal(request) is not None
        return await run_in_threadpool(publications.find, campaign, everything)

    async def answer(request: Request, make: Callable[..., Response], *values: object) -> Response:
        """Make a page in a thread, in the reader's language."""
        with speaking(language_of(request)):
            return await run_in_threadpool(make, *values)

    @routes.get("")
    async def explorer(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        kept = _asked(request)
        # Remove empty parameters from the address, so that it can be shared.
        if len(kept) < len(request.query_params.multi_items()):
            return RedirectResponse(_address(campaign, "", kept), 303, SECURITY)
        return await answer(request, _explore, publications, release, kept, collector.public_url)

    @routes.get("/ask")
    async def ask(request: Request, campaign: str) -> Response:
        """Lead addresses of earlier versions to the explorer."""
        await find(request, campaign)
        return RedirectResponse(_address(campaign, "", _asked(request)), 303, SECURITY)

    @routes.get("/view.{form}")
    async def view(request: Request, campaign: str, form: str) -> Response:
        release = await find(request, campaign)
        return await answer(request, _file, publications, release, _asked(request), form)

    @routes.get("/embed")
    async def embed(request: Request, campaign: str) -> Response:
        # A frame of another site has no session, so only public releases are shown.
        release = await run_in_threadpool(publications.find, campaign, False)
        return await answer(request, _embed, publications, release, _asked(request))

    @routes.get("/report")
    async def report(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        return await answer(request, _report, publications, release)

    @routes.get("/download")
    async def download(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        return await answer(request, _download, publications, release, collector.public_url)

    @routes.get("/citation.bib")
    async def cite(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        return await run_in_threadpool(_citation, publications, release, collector.public_url)

    @routes.get("/compare")
    async def compare(request: Request, campaign: str) -> Response:
        release = await find(request, campaign)
        chosen = list(dict.fromkeys(filter(None, request.query_params.getlist("with"))))
        others = [await find(request, other) for other in chosen[:MAX_RELEASES]]
        return await answer(request, _compare, publications, release, others)

    return routes


def _asked(request: Request) -> list[tuple[str, str]]:
    """The parameters of an address that are not empty."""
    return [(name, value) for name, value in request.query_params.multi_items() if value.strip()]


def _read_manifest(publications: Publications, release: Published) -> _Manifest:
    manifest: _Manifest = json.loads(publications.manifest(release))
    return manifest


def _title_of(manifest: _Manifest) -> str:
    """The title of a release: its campaign's title or name."""
    campaign = manifest.get("campaign") or {}
    return str(campaign.get("title") or campaign.get("name") or _("Release"))


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
    sections = [("", _("Explore")), ("/report", _("Report")), ("/download", _("Download"))]
    if _can_compare(manifest):
        sections.insert(1, ("/compare", _("Compare")))
    return {
        "bar": [
            (_address(release.campaign, below), name, below == here) for below, name in sections
        ],
        "campaign": release.campaign,
        "public": release.public,
        "name": _title_of(manifest),
    }


@dataclass(frozen=True)
class _View:
    """A view of a release: what is asked, and the figures or the reason why there are none."""

    manifest: _Manifest
    schema: Schema
    form: Form
    explored: Explored | None = None
    answer: Answer | AnswerTable | None = None
    fault: str = ""
    status: int = 200

    @property
    def cards(self) -> list[Card]:
        """The charts and tables, in the language of the page."""
        if self.explored is None:
            return []
        return cards(self.explored, self.form.view, self.schema, self.form.sort)

    @property
    def hatched(self) -> bool:
        """Whether the view is a heat map that marks cells which cannot be told from a product."""
        view = self.form.view
        return len(view.by) == 2 and view.versus is None and view.figure == SHARE

    @property
    def title(self) -> str:
        """What the figures are, in one line."""
        view = self.form.view
        if self.form.number:
            return question_of(self.schema[self.schema.names[0]])
        questions = [
            question_of(self.schema[name]) for name in view.by if name in self.schema.names
        ]
        if view.figure != SHARE and view.of in self.schema.names:
            words = {MEAN: _("Mean"), MEDIAN: _("Median")}.get(view.figure, _("Quantiles"))
            questions.insert(0, f"{words}: {question_of(self.schema[view.of])}")
        return " / ".join(questions) or _("All questions")


def _view(publications: Publications, release: Published, asked: list[tuple[str, str]]) -> _View:
    manifest = _read_manifest(publications, release)
    schema = _schema_of(publications, release, manifest).in_language(language())
    number = _number_name(manifest) if "range" in manifest else ""
    form = read_form(schema, asked, number)
    try:
        if form.asks_number:
            if manifest.get("mean"):
                raise ParameterError(_("this release has a mean and nothing else"))
            return _View(manifest, schema, form, answer=publications.ask(release, form.question))
        return _View(manifest, schema, form, publications.explore(release, form.view))
    except InputError as error:
        return _View(manifest, schema, form, fault=str(error), status=422)
    except Problem as error:
        if error.cause != "too-many-questions":
            raise
        return _View(manifest, schema, form, fault=str(error), status=429)


def _explore(
    publications: Publications,
    release: Published,
    asked: list[tuple[str, str]],
    public_url: str | None,
) -> Response:
    seen = _view(publications, release, asked)
    form, explored, schema = seen.form, seen.explored, seen.schema
    frame = _frame(release, seen.manifest, "")
    query = urlencode(form.asked)
    charts = seen.cards
    whole = form.view == View()
    return page(
        "release.html",
        title=frame["name"] if whole else f"{seen.title}: {frame['name']}",
        heading=frame["name"],
        scripts=("explorer.js",),
        status=seen.status,
        fault=seen.fault,
        form=form,
        whole=whole and not form.asks_number,
        choices=language_choices(tuple(LANGUAGES)),
        view=f"{others}&" if (others := form.without("language")) else "",
        about=seen.title,
        asks=not seen.manifest.get("mean"),
        cards=charts,
        hatched=seen.hatched,
        explored=explored,
        versus=_groups(schema, form) if not form.number else (),
        groups=[
            f"{question_of(schema[group.attribute])} {group_words(group, schema)}"
            for group in form.view.versus or ()
        ],
        groups_asked=[dict(form.asked).get(name, "") for name in ("first", "second")],
        about_by=[question_of(schema[n]) for n in form.view.by if n in schema.names],
        refused=[(question_of(schema[name]), why) for name, why in explored.refused]
        if explored is not None
        else (),
        questions=[(name, question_of(schema[name])) for name in schema.names],
        numbers=[a.name for a in schema if a.kind in ("numeric", "duration")],
        further=[
            (question_of(attribute), form.without(by=attribute.name))
            for attribute in list(schema)[MAX_OVERVIEW:]
        ],
        shown_answer=None if seen.answer is None else shown_answer(seen.answer),
        files=_files(release, form),
        here=_address(release.campaign, "", list(form.asked)),
        query=query,
        participants=seen.manifest["participants"],
        epsilon=seen.manifest["epsilon_achieved"],
        python=form.python if form.number else form.python + python_line(form.view, schema),
        origin=shown_origin(public_url),
        preview="" if public_url is None else public_url,
        drawn=any(card.chart for card in charts),
        **frame,
    )


def _groups(schema: Schema, form: Form) -> list[tuple[str, list[tuple[str, str]]]]:
    """The groups of people that can be compared: for each attribute its values, the first of many."""
    found, left = [], MAX_OFFERED_GROUPS
    for i, attribute in enumerate(schema):
        words = answers(attribute)[:left]
        left -= len(words)
        found.append((question_of(attribute), [(f"{i}.{c}", word) for c, word in enumerate(words)]))
        if left <= 0:
            break
    return found


def _files(release: Published, form: Form) -> list[tuple[str, str]]:
    """The same figures for programs: a name and an address each."""
    if form.asks_number:
        return [
            (
                name,
                f"/v1/releases/{release.campaign}/query?"
                f"{urlencode([*form.parameters, ('format', name.lower())])}",
            )
            for name in ("CSV", "JSON", "Parquet")
        ]
    query = f"?{urlencode(form.asked)}" if form.asked else ""
    return [
        (name, f"/releases/{release.campaign}/view.{name.lower()}{query}")
        for name in ("CSV", "JSON", "Parquet", "SVG")
    ]


def _file(
    publications: Publications, release: Published, asked: list[tuple[str, str]], form: str
) -> Response:
    """The figures of a view as a file, or its charts as a picture."""
    if form not in ("csv", "json", "parquet", "svg", "png"):
        return missing()
    seen = _view(publications, release, asked)
    if seen.fault:
        cause = "too-many-questions" if seen.status == 429 else "invalid"
        raise Problem(cause, seen.fault)
    if seen.explored is None:
        return missing()
    name = f"release-{release.campaign[:8]}.{form}"
    named = {"content-disposition": f'attachment; filename="{name}"'}
    if form == "svg":
        # Opened as a page, the picture has its own style and nothing else.
        policy = f"default-src 'none'; style-src '{STYLE_HASH}'; frame-ancestors 'none'"
        headers = {**SECURITY, "content-security-policy": policy}
        return Response(_picture(seen), media_type="image/svg+xml", headers=headers)
    if form == "png":
        headers = {**SECURITY, "cross-origin-resource-policy": "cross-origin"}
        return Response(preview(seen.explored), media_type="image/png", headers=headers)
    figures = (seen.explored, seen.form.view, seen.schema)
    if form == "json":
        return json_response(figures_json(*figures))
    out = io.BytesIO()
    if form == "csv":
        write_spreadsheet([figures_table(*figures)], out)
    else:
        pq.write_table(figures_table(*figures), out)
    kind = CSV if form == "csv" else PARQUET
    return Response(out.getvalue(), media_type=kind, headers={**SECURITY, **named})


def _picture(seen: _View) -> str:
    """All charts of a view in one picture, with their titles and the source below."""
    title = _title_of(seen.manifest)
    source = f"{title}, {decimal(seen.manifest['participants'])}"
    charts = [(card.title, card.chart) for card in seen.cards if card.chart]
    if not charts:
        raise ParameterError("there is no figure to draw", where="svg")
    return stand_alone(sheet_of_charts(seen.title, charts, source)).svg


def _embed(
    publications: Publications, release: Published, asked: list[tuple[str, str]]
) -> Response:
    """One view's charts alone, in a page that other sites may show in a frame."""
    seen = _view(publications, release, asked)
    headers = {
        "content-security-policy": POLICY.replace("frame-ancestors 'none'", "frame-ancestors *"),
        "cross-origin-resource-policy": "cross-origin",
    }
    return page(
        "release_embed.html",
        title=f"{seen.title}: {_title_of(seen.manifest)}",
        heading=seen.title,
        status=seen.status,
        headers=headers,
        scripts=("explorer.js",),
        fault=seen.fault,
        cards=[card for card in seen.cards if card.chart],
        hatched=seen.hatched,
        form=seen.form,
        name=_title_of(seen.manifest),
        here=_address(release.campaign, "", list(seen.form.asked)),
        participants=seen.manifest["participants"],
    )


def _report(publications: Publications, release: Published) -> Response:
    manifest = _read_manifest(publications, release)
    body = publications.report(release)
    frame = _frame(release, manifest, "/report")
    return page(
        "release_report.html",
        title=f"{_('Report')}: {frame['name']}",
        heading=frame["name"],
        subtitle=body.subtitle,
        facts=body.facts,
        contents=list(body.contents),
        sections=body.html,
        **frame,
    )


def _download(publications: Publications, release: Published, public_url: str | None) -> Response:
    manifest = _read_manifest(publications, release)
    body = publications.report(release)
    frame = _frame(release, manifest, "/download")
    return page(
        "release_download.html",
        title=f"{_('Download')}: {frame['name']}",
        heading=_("Download"),
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


def _compare(
    publications: Publications, release: Published, others: Sequence[Published]
) -> Response:
    manifest = _read_manifest(publications, release)
    if not _can_compare(manifest):
        return RedirectResponse(_address(release.campaign, ""), 303, SECURITY)
    frame = _frame(release, manifest, "/compare")
    compared: list[Compared] = []
    fault, status = "", 200
    # By date, so that a series reads from left to right.
    series = sorted(
        ((_read_manifest(publications, each), each) for each in (release, *others)),
        key=lambda entry: (
            str((entry[0].get("campaign") or {}).get("finalised") or ""),
            entry[1].campaign,
        ),
    )
    names = _distinct([_title_of(each) for each, _published in series])
    try:
        if others:
            for each, _published in series:
                _check_comparable(manifest, each)
            found = [
                Series(name, publications.explore(published, View()))
                for name, (_each, published) in zip(names, series, strict=True)
            ]
            schema = _schema_of(publications, release, manifest).in_language(language())
            compared = compare(found, schema)
    except InputError as error:
        fault, status = str(error), 422
    except Problem as error:
        if error.cause != "too-many-questions":
            raise
        fault, status = str(error), 429
    return page(
        "release_compare.html",
        title=f"{_('Compare')}: {frame['name']}",
        heading=_("Compare releases"),
        subtitle=frame["name"],
        scripts=("explorer.js",),
        status=status,
        offered=_comparable(publications, release, manifest),
        chosen={other.campaign for other in others},
        series=[
            (name, each["participants"], each["epsilon_achieved"])
            for name, (each, _published) in zip(names, series, strict=True)
        ],
        compared=compared,
        fault=fault,
        **frame,
    )


def _check_comparable(first: _Manifest, second: _Manifest) -> None:
    if not (_can_compare(first) and _can_compare(second)):
        raise ParameterError(
            "one of the releases is about one number; there is no table in it to compare"
        )
    if first["schema_fingerprint"] != second["schema_fingerprint"]:
        raise ParameterError(
            "the releases have different schemas, so that their values mean different things"
        )


def _comparable(
    publications: Publications, release: Published, manifest: _Manifest
) -> list[tuple[str, str, int]]:
    """The public releases of the same schema: id, title and participants."""
    offered: list[tuple[str, str, int]] = []
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
            offered.append((campaign, _title_of(candidate), candidate["participants"]))
    return offered


def _distinct(titles: Sequence[str]) -> list[str]:
    """Titles with numbers where two are the same."""
    return [
        f"{title} ({titles[: i + 1].count(title)})" if titles.count(title) > 1 else title
        for i, title in enumerate(titles)
    ]
