"""The addresses at which operators watch a campaign: server-sent events, and the same to be asked for now and then."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.responses import Response, StreamingResponse

from dither.collector.access import Access
from dither.collector.admin import sends
from dither.collector.collector import Collector
from dither.collector.live import Progress
from dither.collector.problems import DOCUMENTED

EVENTS = "text/event-stream"


def watching_routes(collector: Collector, access: Access) -> APIRouter:
    """For whoever has a key or a session, curator or reader."""
    routes = APIRouter(
        prefix="/v1/campaigns/{campaign}",
        tags=["operator"],
        dependencies=[Depends(access.authorise)],
        responses=DOCUMENTED,
    )

    @routes.get("/progress")
    async def progress(campaign: str) -> Progress:
        """Reports of the present round by question and what was refused, at most about a second old."""
        await collector.find(campaign)
        return await collector.live.now(campaign)

    @routes.get("/events", response_class=StreamingResponse, responses=sends(EVENTS, "Server-sent events"))
    async def events(campaign: str) -> Response:
        """The same as events, whenever it changes; a stream ends after five minutes and is asked for anew."""
        await collector.find(campaign)
        unbuffered = {"x-accel-buffering": "no"}  # a proxy that keeps events until there are many would spoil them
        return StreamingResponse(await collector.live.follow(campaign), media_type=EVENTS, headers=unbuffered)

    return routes
