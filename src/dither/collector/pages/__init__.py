"""The pages of a collector: templates, static files and routes, without formulas.

`add_pages` adds them to an application that already has the HTTP API. The pages that anyone
can see are here: the first page and the participant's. Guarantee: a private campaign leaves
no trace on the first page. The participant's address holds the campaign only; the token is
in the fragment, which browsers do not send.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from dither.collector.campaigns import Live
from dither.collector.collector import Collector
from dither.collector.pages.answers import SECURITY, failed, missing, page, shown_origin
from dither.collector.pages.assets import asset, assets
from dither.collector.pages.campaigns import campaign_routes
from dither.collector.pages.console import Console, add_console
from dither.collector.pages.new_campaign import editor_routes
from dither.collector.pages.outlook import Planner
from dither.collector.pages.progress import spoken_schema, title_of, until
from dither.collector.pages.releases import release_pages
from dither.collector.problems import cause_of
from dither.collector.spec import CampaignSpec
from dither.collector.store import State
from dither.errors import DitherError
from dither.notice import REASON_EPSILON, weak_protection

__all__ = ["add_pages"]

_IMMUTABLE = {"cache-control": "public, max-age=31536000, immutable"}
_ABSENT = ("no-campaign", "not-found")


def add_pages(app: FastAPI, collector: Collector) -> None:
    """Add every page, and answer failed requests of browsers with a page."""
    app.include_router(_static_routes())
    app.include_router(_home_routes(collector))
    app.include_router(_participant_routes(collector))
    app.include_router(release_pages(collector))
    console = Console(collector)
    add_console(app, console)
    planner = Planner()

    def participants_page(campaign: str, spec: CampaignSpec, preview: str) -> Response:
        return _participant_page(collector, campaign, spec, preview)

    app.include_router(editor_routes(console, planner, participants_page))
    app.include_router(campaign_routes(console, planner))
    _answer_browsers(app)


def _static_routes() -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/static/{digest}/{name}")
    async def static(digest: str, name: str) -> Response:
        file = assets().get(name)
        if file is None or file.address != f"/static/{digest}/{name}":
            return missing()
        return Response(file.data, media_type=file.media_type, headers={**SECURITY, **_IMMUTABLE})

    @routes.get("/dither.js")
    async def encoder() -> Response:
        """Serve the encoder at a permanent address, for `sha256sum` and for other sites."""
        return _with_etag("dither.js")

    @routes.get("/dither.d.ts")
    async def types() -> Response:
        """Serve the encoder's types."""
        return _with_etag("dither.d.ts")

    return routes


def _with_etag(name: str) -> Response:
    file = asset(name)
    headers = {**SECURITY, "etag": f'"{file.sha256}"'}
    return Response(file.data, media_type=file.media_type, headers=headers)


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
            return missing() if absent else failed(status or response.status_code)

        app.add_exception_handler(kind, answer)

    for_browsers(DitherError, None)
    for_browsers(HTTPException, None)
    for_browsers(RequestValidationError, None)
    for_browsers(Exception, 500)


def _is_browser(request: Request) -> bool:
    accepts_html = "text/html" in request.headers.get("accept", "")
    return accepts_html and not request.url.path.startswith("/v1/")


_SCRIPTS = ("participate.js", "form.js", "fits.js", "words.js", "pages.js")


def _home_routes(collector: Collector) -> APIRouter:
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
            live[campaign]
            for campaign in collector.publications.public(listed=True)
            if campaign in live
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


def _participant_routes(collector: Collector) -> APIRouter:
    """Return the route of the participant's page, `/c/{campaign}`."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/c/{campaign}")
    async def participate(campaign: str) -> Response:
        return _participant_page(collector, campaign, (await collector.find(campaign)).spec)

    return routes


def _participant_page(
    collector: Collector, campaign: str, spec: CampaignSpec, preview: str = ""
) -> Response:
    """Render the participant's page.

    Args:
        collector: The collector.
        campaign: The campaign's id.
        spec: What is asked.
        preview: Address of the announcement of a preview, which sends nothing; empty
            otherwise.
    """
    return page(
        "participate.html",
        title=spec.title or spec.name or "A survey without a name",
        scripts=("participate.js",),
        campaign=campaign,
        preview=preview,
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
