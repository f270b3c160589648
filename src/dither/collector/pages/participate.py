"""The participant's page: who asks, why and until when, what is promised, and the form that a script makes and randomises.

Guarantee: the address holds the campaign alone; the participant's token stands in the fragment, which no server and no log sees.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from dither.collector.collector import Collector
from dither.collector.pages.answers import page, shown_origin
from dither.collector.pages.assets import asset
from dither.collector.pages.wording import spoken_schema, until
from dither.notice import REASON_EPSILON, weak_protection

_PARTS = ("participate.js", "form.js", "fits.js", "words.js", "pages.js")


def participant_routes(collector: Collector) -> APIRouter:
    """The address `/c/{campaign}`."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/c/{campaign}")
    async def participate(campaign: str) -> Response:
        spec = (await collector.find(campaign)).spec
        title = spec.title or spec.name or "A survey without a name"
        return page(
            "participate.html",
            title=title,
            scripts=("participate.js",),
            campaign=campaign,
            purpose=[line for line in spec.purpose.splitlines() if line.strip()],
            contact=spec.contact,
            closes=until(spec.closes),
            epsilon=spec.epsilon,
            tickets=spec.participation == "tokens",
            weak=weak_protection(spec.epsilon),
            reason=[line for line in spec.epsilon_reason.splitlines() if line.strip()],
            reason_expected=spec.epsilon > REASON_EPSILON,
            words=spoken_schema(spec.schema),
            encoder=asset("dither.js"),
            parts=[asset(name) for name in _PARTS],
            origin=shown_origin(collector.public_url),
        )

    return routes
