"""The operator's addresses: everything behind one key, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dither.collector.campaigns import Live
from dither.collector.collector import Collector
from dither.collector.problems import Problem, json_response
from dither.errors import ParameterError
from dither.reports import plan_from_json
from dither.tally import CountTally, RoundTally

_PIECE = 1 << 16  # bytes of a file sent at a time
_JSON_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}
_PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Problem details",
        "content": {"application/problem+json": {"schema": {"type": "object"}}},
    }
}


def admin_routes(collector: Collector, admin_key: str) -> APIRouter:
    """Create, look at, open, close, finalise and export campaigns."""
    behind_key = [Depends(_authorise(admin_key))]
    routes = APIRouter(prefix="/v1/admin/campaigns", tags=["operator"], dependencies=behind_key)
    campaigns = collector.campaigns

    @routes.get("", responses=_PROBLEM)
    async def listed() -> Response:
        """All campaigns."""
        found = [campaigns.get(i) for i in campaigns.ids()]
        return json_response({"campaigns": [_summary(live) for live in found]})

    @routes.post("", status_code=201, responses=_PROBLEM, openapi_extra=_JSON_BODY)
    async def create(request: Request) -> Response:
        """Create a campaign: schema, epsilon, participants; name, method, parameters, seed, participation, draft."""
        body = await _read_json(request)
        draft = body.pop("draft", False)
        if not isinstance(draft, bool):
            raise ParameterError("draft must be true or false", where="draft", value=draft)
        live = await run_in_threadpool(lambda: campaigns.create(body, opened=not draft))
        return json_response(await _status(live), 201)

    @routes.get("/{campaign}", responses=_PROBLEM)
    async def status(campaign: str) -> Response:
        """Where a campaign stands: state, rounds, and how many reports each has."""
        return json_response(await _status(campaigns.get(campaign)))

    @routes.post("/{campaign}/open", responses=_PROBLEM)
    async def open_campaign(campaign: str) -> Response:
        """Open a draft, or take back a closing that was interrupted."""
        return json_response(await _status(await run_in_threadpool(campaigns.open, campaign)))

    @routes.post("/{campaign}/close-round", responses=_PROBLEM, openapi_extra=_JSON_BODY)
    async def close_round(campaign: str, request: Request) -> Response:
        """Close the round named in {"round": N}, take its tally and open the next one. Safe to repeat."""
        number = _whole(await _read_json(request), "round")
        return json_response(await _status(await run_in_threadpool(campaigns.close_round, campaign, number)))

    @routes.post("/{campaign}/finalise", responses=_PROBLEM, openapi_extra=_JSON_BODY)
    async def finalise(campaign: str, request: Request) -> Response:
        """Fit the model and make the release; {"rows": N} sets the synthetic table's size. Safe to repeat."""
        body = await _read_json(request)
        rows = None if body.get("rows") is None else _whole(body, "rows")
        return json_response(await _status(await run_in_threadpool(campaigns.finalise, campaign, rows)))

    @routes.get("/{campaign}/release", response_class=Response, responses=_PROBLEM)
    async def release(campaign: str) -> Response:
        """The release of a finalised campaign, a zip file."""
        return Response(await run_in_threadpool(campaigns.release, campaign), media_type="application/zip")

    @routes.post("/{campaign}/tokens", status_code=201, responses=_PROBLEM, openapi_extra=_JSON_BODY)
    async def tokens(campaign: str, request: Request) -> Response:
        """Issue {"count": N} participation tokens, shown this once."""
        count = _whole(await _read_json(request), "count")
        body = await run_in_threadpool(lambda: _tokens_json(campaigns.issue_tokens(campaign, count)))
        return Response(body, 201, media_type="application/json")

    @routes.get("/{campaign}/tally", responses=_PROBLEM)
    async def tally(campaign: str) -> Response:
        """The running tally of the open round: how many answered each question."""
        return json_response(_tally_json(await run_in_threadpool(collector.running_tally, campaign)))

    @routes.get("/{campaign}/rounds/{number}/reports", response_class=Response, responses=_PROBLEM)
    async def reports(campaign: str, number: str) -> Response:
        """The raw reports of a round, a Parquet file in the order of their ids."""
        from dither.collector.finalise import spool_reports

        rounds = campaigns.get(campaign).rounds
        if not number.isascii() or not number.isdigit() or len(number) > 6 or int(number) >= len(rounds):
            raise Problem("not-found", f"campaign {campaign} has no round {number[:20]!r}")
        plan = plan_from_json(rounds[int(number)].plan)
        file = await run_in_threadpool(spool_reports, collector.store, campaign, plan)
        return _Sent(file, "application/vnd.apache.parquet")

    async def _status(live: Live) -> dict[str, Any]:
        counts = [await run_in_threadpool(collector.store.count, r.campaign, r.number) for r in live.rounds]
        untidied = await run_in_threadpool(collector.store.untidied, live.stored.id)
        rounds = []
        for stored, count in zip(live.rounds, counts, strict=True):
            plan = plan_from_json(stored.plan)
            rounds.append(
                {
                    "round": stored.number,
                    "state": stored.state,
                    "reports": count,
                    "questions": len(plan.questions),
                    "split": plan.split,
                    "epsilon": plan.epsilon,
                    "population": plan.population,
                    "untidied": stored.number in untidied,
                }
            )
        return {**_summary(live), "rounds": rounds}

    return routes


class _Sent(StreamingResponse):
    """What was written to a file, from its beginning; the file is closed when it has been sent or nobody reads it any more."""

    def __init__(self, file: BinaryIO, media_type: str) -> None:
        length = file.tell()
        file.seek(0)
        super().__init__(
            iter(lambda: file.read(_PIECE), b""), headers={"content-length": str(length)}, media_type=media_type
        )
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def _authorise(admin_key: str) -> Callable[[Request], Awaitable[None]]:
    """Lets a request pass that carries the key; digests are compared, so that time tells neither content nor length."""
    digest = hashlib.sha256(admin_key.encode()).digest()

    async def authorised(request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(hashlib.sha256(given.strip().encode("utf-8", "replace")).digest(), digest)
        if scheme.lower() != "bearer" or not matches:
            raise Problem("unauthorised", "send Authorization: Bearer with the admin key")

    return authorised


def _summary(live: Live) -> dict[str, Any]:
    spec = live.spec
    return {
        "campaign": live.stored.id,
        "name": spec.name,
        "state": live.stored.state.value,
        "round": live.stored.round,
        "method": spec.method,
        "epsilon": spec.epsilon,
        "participants": spec.participants,
        "participation": spec.participation,
    }


def _tokens_json(tokens: list[str]) -> bytes:
    """Some at a time: encoding hundreds of thousands in one go would stop every other thread meanwhile. Hex needs no escapes."""
    blocks = ('"' + '","'.join(tokens[i : i + 1000]) + '"' for i in range(0, len(tokens), 1000))
    return ('{"tokens":[' + ",".join(blocks) + "]}").encode("ascii")


def _tally_json(tally: RoundTally) -> dict[str, Any]:
    out: dict[str, Any] = {"round": tally.plan.round, "participants": tally.participants, "kind": tally.kind}
    if isinstance(tally, CountTally):
        out["answers"] = [int(n) for n in tally.n]
    out["sha256"] = hashlib.sha256(tally.to_bytes()).hexdigest()
    return out


async def _read_json(request: Request) -> dict[str, Any]:
    from dither.collector.app import read_body

    try:
        body = json.loads(await read_body(request) or b"{}")
    except (ValueError, RecursionError):
        raise Problem("bad-request", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Problem("bad-request", "the body must be a JSON object")
    return body


def _whole(body: dict[str, Any], key: str) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ParameterError(f"{key} must be a whole number of at least 0", where=key)
    return value
