"""The pages that anyone can see: the first page, and the participant's page.

Guarantee: a private campaign leaves no trace on the first page. The participant's address
holds the campaign only; the token is in the fragment, which browsers do not send.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from dither.collector.campaigns import Live
from dither.collector.collector import Collector
from dither.collector.pages.answers import page, shown_origin
from dither.collector.pages.assets import asset
from dither.collector.pages.progress import title_of
from dither.collector.pages.wording import spoken_schema, until
from dither.collector.store import State
from dither.notice import REASON_EPSILON, weak_protection

_SCRIPTS = ("participate.js", "form.js", "fits.js", "words.js", "pages.js")


def home_routes(collector: Collector) -> APIRouter:
    """Return the route of the first page, `/`."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    def home() -> Response:
        live = {
            campaign: collector.campaigns.get(campaign) for campaign in collector.campaigns.ids()
        }
        listed = [
            each for each in live.values() if each.spec.listed and each.stored.state is State.OPEN
        ]
        released = [
            live[campaign] for campaign in collector.publications.public() if campaign in live
        ]
        return page(
            "home.html",
            title="Dither collector",
            heading="Learn from many, know of none",
            subtitle="A collector of randomised answers.",
            campaigns=[_card(each) for each in listed],
            releases=[_card(each) for each in released],
            encoder=asset("dither.js"),
        )

    return routes


def participant_routes(collector: Collector) -> APIRouter:
    """Return the route of the participant's page, `/c/{campaign}`."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/c/{campaign}")
    async def participate(campaign: str) -> Response:
        spec = (await collector.find(campaign)).spec
        return page(
            "participate.html",
            title=spec.title or spec.name or "A survey without a name",
            scripts=("participate.js",),
            campaign=campaign,
            purpose=_lines(spec.purpose),
            contact=spec.contact,
            closes=until(spec.closes),
            epsilon=spec.epsilon,
            tickets=spec.participation == "tokens",
            weak=weak_protection(spec.epsilon),
            reason=_lines(spec.epsilon_reason),
            reason_expected=spec.epsilon > REASON_EPSILON,
            words=spoken_schema(spec.schema),
            encoder=asset("dither.js"),
            parts=[asset(name) for name in _SCRIPTS],
            origin=shown_origin(collector.public_url),
        )

    return routes


def _card(live: Live) -> dict[str, str]:
    """Return what the first page shows of a public campaign."""
    return {
        "id": live.stored.id,
        "title": title_of(live),
        "about": next(iter(_lines(live.spec.purpose)), ""),
        "closes": until(live.spec.closes),
    }


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
