"""The first page: what this is, and what of it is public. A private campaign leaves no trace on it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from dither.collector.campaigns import Live
from dither.collector.collector import Collector
from dither.collector.pages.answers import page
from dither.collector.pages.assets import asset
from dither.collector.pages.progress import title_of
from dither.collector.pages.wording import until
from dither.collector.store import State


def home_routes(collector: Collector) -> APIRouter:
    """The address `/`."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    def home() -> Response:
        live = {
            campaign: collector.campaigns.get(campaign) for campaign in collector.campaigns.ids()
        }
        open_ones = [
            found
            for found in live.values()
            if found.spec.listed and found.stored.state is State.OPEN
        ]
        released = [
            live[campaign] for campaign in collector.publications.public() if campaign in live
        ]
        return page(
            "home.html",
            title="Dither collector",
            heading="Learn from many, know of none",
            subtitle="A collector of randomised answers.",
            campaigns=[_card(found) for found in open_ones],
            releases=[_card(found) for found in released],
            encoder=asset("dither.js"),
        )

    return routes


def _card(live: Live) -> dict[str, str]:
    """What strangers read of a campaign that its curator made public."""
    spec = live.spec
    about = next((line for line in spec.purpose.splitlines() if line.strip()), "")
    return {
        "id": live.stored.id,
        "title": title_of(live),
        "about": about,
        "closes": until(spec.closes),
    }
