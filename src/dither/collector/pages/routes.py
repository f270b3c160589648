"""The pages put together: given to an application that has the HTTP API already, above which they stand."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from dither.collector.collector import Collector
from dither.collector.pages.answers import SECURITY, failed, missing
from dither.collector.pages.assets import asset, assets
from dither.collector.pages.campaigns import campaign_routes
from dither.collector.pages.console import Console, SignInNeeded
from dither.collector.pages.home import home_routes
from dither.collector.pages.new_campaign import new_campaign_routes
from dither.collector.pages.operators import operator_pages
from dither.collector.pages.participate import participant_routes
from dither.collector.pages.releases import release_pages
from dither.collector.pages.signing import ask_to_sign_in, signing_routes
from dither.collector.problems import cause_of
from dither.errors import DitherError

_FOR_EVER = {"cache-control": "public, max-age=31536000, immutable"}
_ABSENT = ("no-campaign", "not-found")


def add_pages(app: FastAPI, collector: Collector) -> None:
    """Add every page, and answer a browser's requests that fail with a page instead of problem details."""
    app.include_router(_static_routes())
    app.include_router(home_routes(collector))
    app.include_router(participant_routes(collector))
    app.include_router(release_pages(collector))
    console = Console(collector)
    for routes in (signing_routes, new_campaign_routes, campaign_routes, operator_pages):
        app.include_router(routes(console))
    app.add_exception_handler(SignInNeeded, ask_to_sign_in)
    _answer_browsers(app)


def _static_routes() -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/static/{digest}/{name}")
    async def static(digest: str, name: str) -> Response:
        found = assets().get(name)
        if found is None or found.address != f"/static/{digest}/{name}":
            return missing()
        return Response(found.data, media_type=found.media_type, headers={**SECURITY, **_FOR_EVER})

    @routes.get("/dither.js")
    async def encoder() -> Response:
        """The encoder at an address that stays, for `sha256sum` and for pages of one's own."""
        return _as_it_is("dither.js")

    @routes.get("/dither.d.ts")
    async def types() -> Response:
        """Its types."""
        return _as_it_is("dither.d.ts")

    return routes


def _as_it_is(name: str) -> Response:
    found = asset(name)
    return Response(
        found.data, media_type=found.media_type, headers={**SECURITY, "etag": f'"{found.sha256}"'}
    )


def _answer_browsers(app: FastAPI) -> None:
    """Whoever asks for a page reads a page that tells nothing; machines go on reading problem details."""

    def for_browsers(kind: type[Exception], told: int | None) -> None:
        machine = app.exception_handlers[kind]

        async def answer(request: Request, error: Exception) -> Response:
            said = machine(request, error)
            response = said if isinstance(said, Response) else await said
            if not _reads_pages(request):
                return response
            absent = cause_of(error) in _ABSENT or response.status_code in (404, 405, 422)
            return missing() if absent else failed(told or response.status_code)

        app.add_exception_handler(kind, answer)

    for_browsers(DitherError, None)
    for_browsers(HTTPException, None)
    for_browsers(RequestValidationError, None)
    for_browsers(Exception, 500)


def _reads_pages(request: Request) -> bool:
    return not request.url.path.startswith("/v1/") and "text/html" in request.headers.get(
        "accept", ""
    )
