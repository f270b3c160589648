"""The HTTP application: participants' API, operators' API, health checks and metrics."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import request_response

import dither
from dither.collector.access import Access
from dither.collector.admin import BYTES, operator_routes, takes_bytes
from dither.collector.collector import Collector
from dither.collector.connections import Edge, read_body
from dither.collector.problems import (
    DOCUMENTED,
    Problem,
    cause_of,
    failure,
    json_response,
    outcome_problem,
    problem,
    retries,
)
from dither.collector.releases import release_routes
from dither.collector.rounds import PublicCampaign
from dither.collector.store import Deletion, Outcome
from dither.errors import DitherError
from dither.release.pages import render_page
from dither.reports import limits as wire_limits
from dither.types import JsonObject

log = logging.getLogger("dither.collector.app")
REPORTS_TYPE = "application/vnd.dither.reports"
# Adds pages to the application. A function of a module, because workers receive it pickled.
Pages = Callable[[FastAPI, Collector], None]
# Newer versions of the framework can trace requests, with addresses and user agents, if the
# environment asks for it.
_NO_TELEMETRY: Any = dict.fromkeys(
    ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
)
# Counted for campaigns that exist; uploads to unknown campaigns leave no trace.
_REFUSALS = (
    "bad-envelope",
    "wrong-campaign",
    "round-closed",
    "round-not-open",
    "round-closing",
    "overloaded",
)
_STATUS_CAUSES = {404: "not-found", 405: "method-not-allowed"}


@dataclass(frozen=True)
class UploadResults:
    """The outcome of each report, in the order of the envelope."""

    results: list[Literal[Outcome.STORED, Outcome.DUPLICATE]]


@dataclass(frozen=True)
class LookupResult:
    """Whether a report with the given id is stored."""

    stored: bool


@dataclass(frozen=True)
class DeletionResult:
    """Whether a report with the given id was deleted; false if none was stored."""

    deleted: bool


_REPEATED: dict[int | str, JsonObject] = {
    200: {"model": UploadResults, "description": "All were stored before, with the same bytes"}
}


def make_app(collector: Collector, admin_key: str, pages: Pages | None = None) -> Edge:
    """Build the application; it stops the collector when the server stops.

    Args:
        collector: The collector to serve.
        admin_key: The operator's key.
        pages: Adds pages for people.
    """
    retries.forget()
    collector.keys.adopt(admin_key)
    access = Access(collector)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        # Not in the framework's thread pool: a store that hangs may hold all its threads.
        await asyncio.to_thread(collector.stop)

    app = FastAPI(
        title="Dither collector",
        version=dither.__version__,
        description="Collects randomised reports. Errors are problem details (RFC 9457).",
        lifespan=lifespan,
        docs_url=None,  # the default page loads scripts from another site
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,  # a redirect would repeat the request's Host header
        telemetry=_NO_TELEMETRY,
    )
    # The most frequent requests match first.
    app.router.routes[:0] = [
        _upload_route(collector),
        _lookup_route(collector),
        _deletion_route(collector),
    ]
    app.include_router(_public_routes(collector))
    app.include_router(operator_routes(collector, access))
    app.include_router(release_routes(collector, access))
    app.add_exception_handler(DitherError, _dither_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _no_such_address)
    app.add_exception_handler(Exception, _bug)
    if pages is not None:
        pages(app, collector)
    return Edge(app, collector.metrics, collector.origins)


class _PlainRoute(APIRoute):
    """A route whose endpoint receives the request and the path parameters unparsed.

    The framework's handling of parameters would take longer than the rest of an upload.
    """

    def __init__(
        self, path: str, endpoint: Callable[..., Awaitable[Response]], **described: Any
    ) -> None:
        super().__init__(path, endpoint, **described)

        async def handle(request: Request) -> Response:
            return await endpoint(request, **request.path_params)

        self.app = request_response(handle)


def _upload_route(collector: Collector) -> APIRoute:
    async def upload(request: Request, campaign: str) -> Response:
        """Store an envelope of reports.

        201 if reports were stored, 200 if all were stored before with the same bytes,
        otherwise a problem.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip() != REPORTS_TYPE:
            raise Problem("wrong-media-type", f"send {REPORTS_TYPE}")
        body = await read_body(request)
        try:
            outcomes = await collector.upload(campaign, body)
        except DitherError as error:
            cause = cause_of(error)
            if cause in _REFUSALS:
                collector.live.refused(campaign, cause)
            raise
        if not all(o.accepted for o in outcomes):
            for outcome in outcomes:
                if not outcome.accepted:
                    collector.live.refused(campaign, outcome.value)
            return outcome_problem(outcomes)
        status = 201 if Outcome.STORED in outcomes else 200
        return json_response({"results": [o.value for o in outcomes]}, status)

    return _PlainRoute(
        "/v1/campaigns/{campaign}/reports",
        upload,
        methods=["POST"],
        status_code=201,
        tags=["participants"],
        response_model=UploadResults,
        responses=DOCUMENTED | _REPEATED,
        openapi_extra=takes_bytes(REPORTS_TYPE),
    )


def _lookup_route(collector: Collector) -> APIRoute:
    async def lookup(request: Request, campaign: str) -> Response:
        """Return whether a report with this id is stored; devices with a ticket ask first.

        The body is the report's id, 32 bytes, of any media type. The id is a hash of the
        ticket, so only holders of the ticket or of its receipt can ask about it. Ids that were
        never issued, not yet used, or belong to another campaign get the same answer. The id
        is sent in the body because proxies log addresses.
        """
        report_id = await _read_report_id(request)
        return json_response({"stored": await collector.is_stored(campaign, report_id)}, 200)

    return _PlainRoute(
        "/v1/campaigns/{campaign}/lookup",
        lookup,
        methods=["POST"],
        tags=["participants"],
        response_model=LookupResult,
        responses=DOCUMENTED,
        openapi_extra=takes_bytes(BYTES),
    )


def _deletion_route(collector: Collector) -> APIRoute:
    async def delete(request: Request, campaign: str) -> Response:
        """Delete a report by its receipt while its round is open. Safe to repeat.

        The body is the report's id, 32 bytes, of any media type: it is a hash of the token, so
        only the participant and the operator know it. `deleted` is false if no report has this
        id. 409 `round-closed` once the round's tally was taken: the report is part of it.
        """
        result = await collector.delete_report(campaign, await _read_report_id(request))
        if result in (Deletion.ROUND_CLOSED, Deletion.ROUND_CLOSING):
            raise Problem(result.value, "the report's round takes no changes")
        return json_response({"deleted": result is Deletion.DELETED}, 200)

    return _PlainRoute(
        "/v1/campaigns/{campaign}/delete",
        delete,
        methods=["POST"],
        tags=["participants"],
        response_model=DeletionResult,
        responses=DOCUMENTED,
        openapi_extra=takes_bytes(BYTES),
    )


async def _read_report_id(request: Request) -> bytes:
    report_id = await read_body(request, wire_limits.REPORT_ID_BYTES)
    if len(report_id) != wire_limits.REPORT_ID_BYTES:
        raise Problem(
            "bad-request", f"the body must be a report's id, {wire_limits.REPORT_ID_BYTES} bytes"
        )
    return report_id


def _public_routes(collector: Collector) -> APIRouter:
    routes = APIRouter()

    @routes.get(
        "/v1/campaigns/{campaign}",
        tags=["participants"],
        response_model=PublicCampaign,
        responses=DOCUMENTED,
    )
    async def look(campaign: str) -> Response:
        """Read a campaign: schema, epsilon, state, and the open round's plan."""
        return Response((await collector.find(campaign)).public, media_type="application/json")

    @routes.get("/live", tags=["health"], response_class=PlainTextResponse)
    async def live() -> str:
        """Check that the process answers."""
        return "live\n"

    @routes.get("/ready", tags=["health"], response_class=PlainTextResponse, responses=DOCUMENTED)
    async def ready() -> str:
        """Check that reports could be stored now."""
        await collector.check()
        return "ready\n"

    @routes.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Read the metrics in Prometheus' text format."""
        await collector.measure()
        return Response(collector.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @routes.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        body = _docs_page(request.app.openapi())
        return HTMLResponse(body, headers={"content-security-policy": _style_alone(body)})

    return routes


def _docs_page(description: JsonObject) -> str:
    """Render all endpoints on one page without scripts; /openapi.json has the details."""
    addresses: dict[str, list[tuple[str, str, str]]] = {}
    for path, entries in description["paths"].items():
        for method, entry in entries.items():
            what = entry["description"].splitlines()[0]
            addresses.setdefault(entry["tags"][0], []).append((path, method.upper(), what))
    info = description["info"]
    return render_page(
        "addresses.html",
        title=info["title"],
        version=info["version"],
        subtitle=info["description"],
        addresses=addresses,
    )


def _style_alone(page: str) -> str:
    """Return a security policy that allows only the style sheet inside the page."""
    sheet = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


async def _dither_error(request: Request, error: Exception) -> Response:
    return failure(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    cause = _STATUS_CAUSES.get(
        error.status_code, "bad-request" if error.status_code < 500 else "internal"
    )
    return problem(cause, "" if cause in _STATUS_CAUSES.values() else str(error.detail))


async def _no_such_address(request: Request, error: Exception) -> Response:
    """Answer a path parameter that is not valid; the framework reads nothing else."""
    return problem("not-found")


async def _bug(request: Request, error: Exception) -> Response:
    log.error("unexpected error", exc_info=error)
    return problem("internal")
