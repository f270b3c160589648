"""The first page: what this is, and what of it is public. A private campaign leaves no trace on it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from dither.collector.collector import Collector
from dither.web.answers import page
from dither.web.assets import asset


def home_routes(collector: Collector) -> APIRouter:
    """The address `/`."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    def home() -> Response:
        return page(
            "home.html",
            title="Dither collector",
            heading="Learn from many, know of none",
            subtitle="A collector of randomised answers.",
            campaigns=(),
            releases=(),
            encoder=asset("dither.js"),
        )

    return routes
