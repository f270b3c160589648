"""The addresses at which operators watch a campaign: server-sent events, and the same to be asked for now and then."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dither.collector.access import Access, credential_of
from dither.collector.admin import sends
from dither.collector.collector import Collector
from dither.collector.connections import TAKE_OVER
from dither.collector.live import Progress, TakeOver
from dither.collector.problems import DOCUMENTED

EVENTS = "text/event-stream"
# A proxy that keeps events until there are many would spoil them; nothing can be asked on a connection that is taken over.
_HEADERS = {"x-accel-buffering": "no", "connection": "close"}


class _EventStream(Response):
    """An answer whose head is sent as any other, and whose rest `follow` writes to the connection itself."""

    media_type = EVENTS

    def __init__(self, follow: Callable[[TakeOver], None]) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._follow = follow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        self._follow(scope["extensions"][TAKE_OVER])


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
        """Reports by round, those of the present one by question, and what was refused, at most about a second old."""
        await collector.find(campaign)
        return await collector.live.now(campaign)

    @routes.get("/events", response_class=Response, responses=sends(EVENTS, "Server-sent events"))
    async def events(request: Request, campaign: str) -> Response:
        """The same as events, whenever it changes; a stream ends after half an hour, or with the key, and is asked for anew."""
        await collector.find(campaign)
        await collector.live.check_room(campaign)
        who = credential_of(request)
        return _EventStream(lambda take_over: collector.live.follow(campaign, who, take_over))

    return routes
