"""The HTTP application: participants' addresses, the operator's behind a key, and what machines ask about health."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

import dither
from dither.collector.admin import admin_routes
from dither.collector.collector import Collector
from dither.collector.edge import Edge
from dither.collector.problems import Problem, failure, json_response, outcome_problem, problem
from dither.collector.store import Outcome
from dither.errors import DitherError
from dither.reports import limits

log = logging.getLogger("dither.collector.app")
REPORTS_TYPE = "application/vnd.dither.reports"
BODY_SECONDS = 30.0
# Newer versions of the framework trace requests, with addresses and user agents, when the environment asks for it.
_NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
_STATUS_CAUSES = {404: "not-found", 405: "method-not-allowed"}
_PROBLEM = {"description": "Problem details", "content": {"application/problem+json": {"schema": {"type": "object"}}}}
_UPLOAD_DOCS: dict[str, Any] = {
    "requestBody": {"required": True, "content": {REPORTS_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
    "responses": {"200": {"description": "All were stored before, with the same bytes"}, "default": _PROBLEM},
}


def make_app(make_collector: Callable[[], Collector], admin_key: str) -> Edge:
    """The application; the collector is opened when the server starts and closed when it stops."""
    collector = make_collector()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        # Not in the requests' pool of threads: a store that hangs may hold all of them.
        await asyncio.to_thread(collector.stop)

    app = FastAPI(
        title="Dither collector",
        version=dither.__version__,
        description="Collects randomised reports. Errors are problem details (RFC 9457).",
        lifespan=lifespan,
        docs_url=None,  # the usual page loads scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,  # a redirect would repeat whatever the request's Host says
        telemetry=_NO_TELEMETRY,
    )
    # Plain and first: the framework's handling of parameters would take longer than all that an upload does here.
    app.router.routes.insert(
        0, Route("/v1/campaigns/{campaign}/reports", _upload_endpoint(collector), methods=["POST"])
    )
    app.include_router(_participant_routes(collector))
    app.include_router(admin_routes(collector, admin_key))
    app.include_router(_health_routes(collector))
    app.add_exception_handler(DitherError, _dither_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _bug)
    return Edge(app, collector.metrics)


async def read_body(request: Request) -> bytes:
    """The whole body, within the limit and in time."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limits.BODY_BYTES:
                    raise Problem("too-large", f"at most {limits.BODY_BYTES:,} bytes are read")
                parts.append(part)
    except TimeoutError:
        raise Problem("timeout", f"the body took longer than {BODY_SECONDS:g} s") from None
    except ClientDisconnect:  # nobody hears this; it is no defect of ours that the log should show
        raise Problem("bad-request", "the sender went away before its body had come") from None
    return b"".join(parts)


def _upload_endpoint(collector: Collector) -> Callable[[Request], Awaitable[Response]]:
    async def upload(request: Request) -> Response:
        """Store an envelope of reports. 201 stored, 200 all stored before with the same bytes, otherwise a problem."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != REPORTS_TYPE:
            raise Problem("wrong-media-type", f"send {REPORTS_TYPE}")
        outcomes = await collector.upload(request.path_params["campaign"], await read_body(request))
        if not all(o.accepted for o in outcomes):
            return outcome_problem(outcomes)
        status = 201 if Outcome.STORED in outcomes else 200
        return json_response({"results": [o.value for o in outcomes]}, status)

    return upload


def _participant_routes(collector: Collector) -> APIRouter:
    routes = APIRouter(prefix="/v1/campaigns", tags=["participants"])

    @routes.get("/{campaign}", response_class=Response, responses={"default": _PROBLEM})
    async def look(campaign: str) -> Response:
        """The campaign in public: schema, epsilon, state, and the open round's plan."""
        return Response(collector.campaigns.get(campaign).public, media_type="application/json")

    @routes.post("/{campaign}/reports", status_code=201, openapi_extra=_UPLOAD_DOCS, name="upload")
    async def upload_documented(campaign: str) -> None:
        """Store an envelope of reports: 201 stored, 200 all stored before with the same bytes, otherwise a problem."""

    return routes


def _health_routes(collector: Collector) -> APIRouter:
    routes = APIRouter(tags=["health"])

    @routes.get("/live", response_class=PlainTextResponse)
    async def live() -> str:
        """The process answers."""
        return "live\n"

    @routes.get("/ready", response_class=PlainTextResponse, responses={"default": _PROBLEM})
    async def ready() -> Response:
        """Reports could be stored now."""
        await collector.check()
        return PlainTextResponse("ready\n")

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Counters in Prometheus' text format."""
        return collector.metrics.text()

    @routes.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs(request: Request) -> str:
        return _docs_page(request.app.openapi())

    return routes


def _docs_page(description: dict[str, Any]) -> str:
    """The addresses on one plain page, without scripts; /openapi.json has the rest."""
    rows = "".join(
        f"<tr><td><code>{method.upper()}</code></td><td><code>{path}</code></td>"
        f"<td>{entry.get('description', '').splitlines()[0] if entry.get('description') else ''}</td></tr>"
        for path, entries in description["paths"].items()
        for method, entry in entries.items()
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{description['info']['title']}</title>"
        "<style>body{font:16px sans-serif;max-width:70em;margin:2em auto}td{padding:.3em 1em .3em 0;vertical-align:top}</style>"
        f"<h1>{description['info']['title']} {description['info']['version']}</h1>"
        "<p>Machine-readable: <a href=/openapi.json>/openapi.json</a>. Errors are problem details (RFC 9457).</p>"
        f"<table>{rows}</table></html>"
    )


async def _dither_error(request: Request, error: Exception) -> Response:
    return failure(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    cause = _STATUS_CAUSES.get(error.status_code, "bad-request" if error.status_code < 500 else "internal")
    return problem(cause, "" if cause in _STATUS_CAUSES.values() else str(error.detail))


async def _bug(request: Request, error: Exception) -> Response:
    log.error("an unexpected failure", exc_info=error)
    return problem("internal")
