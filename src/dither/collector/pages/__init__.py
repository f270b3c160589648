"""The pages of a collector: templates, static files and routes, without formulas.

`add_pages` adds them to an application that already has the HTTP API. The pages that anyone
can see are in three places: the first page here, the participant's in `participant`, the
reader's in `releases`. Guarantee: a private campaign leaves no trace on the first page.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from dither.collector.campaigns import Live
from dither.collector.collector import Collector
from dither.collector.pages.answers import (
    failed,
    language_choices,
    language_of,
    missing,
    page,
    served,
)
from dither.collector.pages.assets import asset, assets
from dither.collector.pages.campaigns import campaign_routes
from dither.collector.pages.console import Console, add_console
from dither.collector.pages.new_campaign import editor_routes
from dither.collector.pages.outlook import Planner
from dither.collector.pages.participant import (
    lines,
    participant_routes,
    preview_page,
    shown_closing,
    title_in_language,
)
from dither.collector.pages.releases import release_pages
from dither.collector.problems import cause_of
from dither.collector.spec import CampaignSpec
from dither.collector.store import State
from dither.errors import DitherError
from dither.languages import LANGUAGES, language, speaking
from dither.languages import gettext as _

__all__ = ["add_pages"]

_IMMUTABLE = {"cache-control": "public, max-age=31536000, immutable"}
_ABSENT = ("no-campaign", "not-found")


def add_pages(app: FastAPI, collector: Collector) -> None:
    """Add every page, and answer failed requests of browsers with a page."""
    app.include_router(_static_routes())
    app.include_router(_home_routes(collector))
    app.include_router(participant_routes(collector))
    app.include_router(release_pages(collector))
    console = Console(collector)
    add_console(app, console)
    planner = Planner()

    def participants_page(campaign: str, spec: CampaignSpec, preview: str) -> Response:
        return preview_page(collector, campaign, spec, preview)

    app.include_router(editor_routes(console, planner, participants_page))
    app.include_router(campaign_routes(console, planner))
    _answer_browsers(app)


def _static_routes() -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/static/{digest}/{name}")
    async def static(request: Request, digest: str, name: str) -> Response:
        file = assets().get(name)
        if file is None or file.address != f"/static/{digest}/{name}":
            return missing()
        return served(request, file, _IMMUTABLE)

    @routes.get("/dither.js")
    async def encoder(request: Request) -> Response:
        """Serve the encoder at a permanent address, for `sha256sum` and for other sites."""
        return served(request, asset("dither.js"), {})

    @routes.get("/dither.d.ts")
    async def types(request: Request) -> Response:
        """Serve the encoder's types."""
        return served(request, asset("dither.d.ts"), {})

    return routes


def _answer_browsers(app: FastAPI) -> None:
    """Answer browsers' failed requests with a page; programs still get problem details."""

    def for_browsers(kind: type[Exception], status: int | None) -> None:
        answer_program = app.exception_handlers[kind]

        async def answer(request: Request, error: Exception) -> Response:
            answered = answer_program(request, error)
            response = answered if isinstance(answered, Response) else await answered
            if not _is_browser(request):
                return response
            absent = cause_of(error) in _ABSENT or response.status_code in (404, 405, 422)
            with speaking(language_of(request)):
                return missing() if absent else failed(status or response.status_code)

        app.add_exception_handler(kind, answer)

    for_browsers(DitherError, None)
    for_browsers(HTTPException, None)
    for_browsers(RequestValidationError, None)
    for_browsers(Exception, 500)


def _is_browser(request: Request) -> bool:
    accepts_html = "text/html" in request.headers.get("accept", "")
    return accepts_html and not request.url.path.startswith("/v1/")


def _home_routes(collector: Collector) -> APIRouter:
    """Return the route of the first page, `/`."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    def home(request: Request) -> Response:
        live = {
            campaign: collector.campaigns.get(campaign) for campaign in collector.campaigns.ids()
        }
        listed = [
            each for each in live.values() if each.spec.listed and each.stored.state is State.OPEN
        ]
        released = [
            live[campaign]
            for campaign in collector.publications.public(listed=True)
            if campaign in live
        ]
        with speaking(language_of(request)):
            return page(
                "home.html",
                title=_("Dither collector"),
                heading=_("Learn from many, know of none"),
                subtitle=_("A collector of randomised answers."),
                choices=language_choices(tuple(LANGUAGES)),
                campaigns=[_card(each) for each in listed],
                releases=[_card(each) for each in released],
                encoder=asset("dither.js"),
            )

    return routes


def _card(live: Live) -> dict[str, str]:
    """Return what the first page shows of a public campaign, in the current language."""
    return {
        "id": live.stored.id,
        "title": title_in_language(live),
        "about": next(iter(lines(live.spec.text("purpose", language(), live.spec.language))), ""),
        "closes": shown_closing(live.spec.closes),
    }
