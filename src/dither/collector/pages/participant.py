"""The participant's page, its parts for other sites, and the scripts by which it can be checked.

Guarantee: the protection that the page names is the one that the open round has, computed from
the plan's integers; the page's script compares it with what it is about to send. The address
holds the campaign only; the token is in the fragment, which browsers do not send.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from dither import languages
from dither.collector.campaigns import Live
from dither.collector.collector import Collector
from dither.collector.pages.answers import (
    SECURITY,
    TEMPLATES,
    language_choices,
    language_of,
    missing,
    origin_for_operators,
    page,
    served,
    shown_origin,
)
from dither.collector.pages.assets import SCRIPTS, asset, scripts_hash, scripts_listing
from dither.collector.pages.progress import spoken_schema
from dither.collector.spec import CampaignSpec
from dither.languages import gettext as _
from dither.languages import speaking
from dither.notice import REASON_EPSILON, shown_certainty
from dither.release.pages import render_fragment
from dither.release.words import likelihood_factor
from dither.reports.plan import closing_seconds


@dataclass(frozen=True)
class Strength:
    """How strong a protection is: a level for style sheets, a word, and a sentence."""

    level: str
    word: str
    sentence: str


_CHECKED = {"cache-control": "no-cache"}
_LEVELS = ((1.0, "strong"), (2.0, "good"), (4.0, "moderate"))


def strength(epsilon: float) -> Strength:
    """Return how strong the protection of one participant's whole record is.

    Example:
        >>> strength(1.0).level, strength(4.1).level
        ('strong', 'weak')
    """
    words = {
        "strong": (
            _("Strong protection."),
            _("From what you send, nobody can be sure of your answer."),
        ),
        "good": (
            _("Good protection."),
            _("From what you send, nobody can be sure of your answer, but a guess gets better."),
        ),
        "moderate": (
            _("Moderate protection."),
            _("From what you send, somebody could guess your answer, but not be certain."),
        ),
        "weak": (
            _("Weak protection:"),
            _("from what you send, somebody could be almost certain of your answer."),
        ),
    }
    level = next((name for most, name in _LEVELS if epsilon <= most), "weak")
    return Strength(level, *words[level])


def participant_routes(collector: Collector) -> APIRouter:
    """Return the routes of participants' pages and of the scripts they run."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/c/{campaign}")
    async def participate(request: Request, campaign: str) -> Response:
        live = await collector.find(campaign)

        def render() -> Response:
            with speaking(language_of(request, live.spec.languages)):
                return page(
                    "participate.html",
                    title=title_in_language(live),
                    scripts=("participate.js",),
                    choices=language_choices(live.spec.languages),
                    **_values(collector, campaign, live.spec, _epsilon(live)),
                )

        return await run_in_threadpool(render)

    @routes.get("/c/{campaign}/survey")
    async def part(request: Request, campaign: str) -> Response:
        """The survey without a page around it, for the element of dither-survey.js."""
        live = await collector.find(campaign)
        base = origin_for_operators(request, collector.public_url)

        def render() -> Response:
            with speaking(language_of(request, live.spec.languages)):
                values = _values(collector, campaign, live.spec, _epsilon(live), base)
                values["heading_inside"] = title_in_language(live)
                body = render_fragment("survey.html", folder=TEMPLATES, **values)
            return HTMLResponse(body, headers={**SECURITY, "vary": "accept-language, origin"})

        return await run_in_threadpool(render)

    @routes.get("/scripts")
    async def listing() -> Response:
        """List the scripts as `sha256sum` does."""
        return PlainTextResponse(scripts_listing(), headers=SECURITY)

    @routes.get("/scripts/{name}")
    async def script(request: Request, name: str) -> Response:
        """Serve a script at a permanent address, to be checked or loaded by other sites."""
        if name not in (*SCRIPTS, "dither-survey.js", "dither.css"):
            return missing()
        return served(request, asset(name), _CHECKED)

    return routes


def title_in_language(live: Live) -> str:
    """The title that participants read, in the current language."""
    spoken = live.spec.text("title", languages.language(), live.spec.language)
    return spoken or live.spec.name or _("A survey without a name")


def preview_page(collector: Collector, campaign: str, spec: CampaignSpec, preview: str) -> Response:
    """The participant's page of a campaign or a draft, from which nothing can be sent.

    Args:
        collector: The collector.
        campaign: The campaign's id.
        spec: What is asked.
        preview: Address of the announcement, which only operators can read.
    """
    with speaking(spec.language):
        return page(
            "participate.html",
            title=spec.text("title", spec.language, spec.language) or _("A survey without a name"),
            scripts=("participate.js",),
            **_values(collector, campaign, spec, spec.epsilon, preview=preview),
        )


def _epsilon(live: Live) -> float:
    """What the open round spends, else what the campaign may spend."""
    return live.spec.epsilon if live.open_round is None else live.open_round.plan.epsilon


def _values(
    collector: Collector,
    campaign: str,
    spec: CampaignSpec,
    epsilon: float,
    base: str = "",
    preview: str = "",
) -> dict[str, Any]:
    """Return what the survey's template shows, in the current language."""
    spoken = (languages.language(), spec.language)
    origin = Markup.escape(base) if base else shown_origin(collector.public_url)
    return {
        "campaign": campaign,
        "base": base,
        "origin": origin,
        "heading_inside": "",
        "preview": preview,
        "purpose": lines(spec.text("purpose", *spoken)),
        "contact": spec.contact,
        "consumers": _consumers(spec),
        "closes": shown_closing(spec.closes),
        "epsilon": epsilon,
        "strength": strength(epsilon),
        "certainty": _certainty(epsilon),
        "factor": _factor(epsilon),
        "tickets": spec.participation == "tokens",
        "reason": lines(spec.text("epsilon_reason", *spoken)),
        "reason_expected": epsilon > REASON_EPSILON,
        "published": collector.publications.is_public(campaign),
        "words": spoken_schema(spec.schema),
        "messages": languages.script_messages(languages.language()),
        "parts": [asset(name) for name in SCRIPTS],
        "scripts_hash": scripts_hash(),
        "language": languages.language(),
        "direction": languages.direction(),
    }


def _certainty(epsilon: float) -> str:
    """`shown_certainty`, as the current language writes percentages."""
    number = shown_certainty(epsilon).split()[0]
    return languages.percent(float(number) / 100, len(number.partition(".")[2]))


def _factor(epsilon: float) -> str:
    """`likelihood_factor`, as the current language writes numbers."""
    text = likelihood_factor(epsilon)
    if text.startswith("e"):
        return text
    return languages.decimal(float(text.replace(",", "")), len(text.partition(".")[2]))


def shown_closing(closes: str | None) -> str:
    """When a campaign closes automatically, as a day or to the minute; empty if never."""
    if not closes:
        return ""
    if "T" in closes:
        return languages.minute(closing_seconds(closes))
    return languages.day(datetime.fromisoformat(closes + "T00:00:00+00:00").timestamp())


def _consumers(spec: CampaignSpec) -> list[dict[str, object]]:
    """Who gets the histogram of a number: each name, and into how many ranges it is cut."""
    return [
        {"name": entry["name"], "ranges": len(entry["edges"]) - 1}
        for entry in spec.consumers or []
        if isinstance(entry, dict)
    ]


def lines(text: str) -> list[str]:
    """The paragraphs of a text."""
    return [line for line in text.splitlines() if line.strip()]
