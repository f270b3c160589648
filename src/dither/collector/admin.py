"""The operators' HTTP API: campaigns, their progress, keys and the audit log.

Everything needs a key; changes need a curator's key and are recorded in the audit log. What
queries the store runs in the framework's threads.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Annotated, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dither.collector import limits
from dither.collector.access import Access, Who
from dither.collector.audit import MAX_ENTRIES, AuditEntry, acting
from dither.collector.campaigns import Live
from dither.collector.collector import Collector
from dither.collector.connections import TAKE_OVER, read_body
from dither.collector.keys import KeyRecord
from dither.collector.live import Progress, TakeOver
from dither.collector.problems import DOCUMENTED, Problem
from dither.collector.spec import STRICT, NewCampaign, PlainText, Whole, read
from dither.collector.store import State, Store
from dither.reports import Plan
from dither.tally import CountTally
from dither.types import JsonObject

ZIP = "application/zip"
PARQUET = "application/vnd.apache.parquet"
BYTES = "application/octet-stream"
_EVENTS = "text/event-stream"
_MAX_PAGE = 1 << 18  # reports of one page
_PIECE = 1 << 16  # bytes of a file sent at a time
# Proxies must not buffer events. The connection ends with the stream.
_EVENT_HEADERS = {"x-accel-buffering": "no", "connection": "close"}
_REPORT_COLUMNS = pa.schema(
    [("report_id", pa.binary(32)), ("question", pa.int32()), ("payload", pa.binary())]
)


@dataclass(frozen=True, config=STRICT)
class RoundToClose:
    """The round; with `hold` it takes no more reports and waits for a tally counted elsewhere."""

    round: Whole
    hold: Annotated[bool, Field(strict=True)] = False


@dataclass(frozen=True, config=STRICT)
class FinaliseRequest:
    """Rows of the synthetic table; by default as many as participants, up to 100,000."""

    rows: Whole | None = None


@dataclass(frozen=True, config=STRICT)
class TokensToIssue:
    """The number of tokens."""

    count: Whole


@dataclass(frozen=True)
class IssuedTokens:
    """Tokens in base 16, one per participant."""

    tokens: list[str]


@dataclass(frozen=True)
class Deleted:
    """The id of the deleted campaign."""

    deleted: str


@dataclass(frozen=True)
class Summary:
    """A campaign without its rounds."""

    campaign: str
    name: str
    state: State
    round: int
    method: str
    epsilon: float
    participants: int
    participation: str
    title: str
    purpose: str
    contact: str
    closes: str | None
    closes_at_reports: int | None
    assignment: str
    language: str


@dataclass(frozen=True)
class RoundStatus:
    """A round of a campaign.

    It closes automatically at `wanted` reports, or at the time `closes` (seconds since 1970).
    `expected` is its share of the expected participants, `excess` whether a round of an open
    campaign has far more reports. `held` waits for a tally counted elsewhere; the files of an
    `untidied` round may still show the order of arrival.
    """

    round: int
    state: str
    reports: int
    questions: int
    split: bool
    epsilon: float
    population: float
    wanted: int | None
    expected: int
    excess: bool
    closes: float | None
    held: bool
    untidied: bool


@dataclass(frozen=True)
class Status(Summary):
    """A campaign and its rounds so far, and whether its release is public."""

    rounds: list[RoundStatus]
    published: bool = False


@dataclass(frozen=True)
class TallyStatus:
    """Participants of the open round, and answers to each question where these are counted."""

    round: int
    participants: int
    kind: str
    sha256: str
    answers: list[int] | None = None


@dataclass(frozen=True, config=STRICT)
class NewKey:
    """The name of a key, and its role: `curator` may change things, `reader` may not."""

    name: PlainText
    role: PlainText = "reader"


@dataclass(frozen=True)
class CreatedKey:
    """A key, shown only in this response."""

    name: str
    role: str
    key: str


async def _read_json(request: Request) -> dict[str, object]:
    """Read the body after the key was checked and within limits, unlike the framework."""
    try:
        body = json.loads(await read_body(request) or b"{}")
    except (ValueError, RecursionError):
        raise Problem("bad-request", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Problem("bad-request", "the body must be a JSON object")
    return body


async def _read_archive(request: Request) -> bytes:
    return await read_body(request, limits.TALLY_BYTES)


_RoundNumber = Annotated[str, Path(pattern="^[0-9]{1,6}$")]  # int would accept many spellings
_IdOrNothing = Annotated[str | None, Query(pattern="^([0-9a-f]{2}){0,32}$")]
_ReportPageSize = Annotated[int, Query(ge=1, le=_MAX_PAGE)]
_Body = Annotated[dict[str, object], Depends(_read_json)]
Counted = Annotated[bytes, Depends(_read_archive)]
_EntryNumber = Annotated[int | None, Query(ge=1, lt=2**31)]
CampaignId = Annotated[str | None, Query(pattern="^[0-9a-f]{2,64}$")]
_EntryPageSize = Annotated[int, Query(ge=1, le=MAX_ENTRIES)]


def takes_bytes(media_type: str) -> JsonObject:
    """Describe the body of an endpoint that is a file of this type."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


def _takes(kind: type) -> JsonObject:
    """Describe the body of an endpoint, which reads it as this type in its own thread."""
    schema = TypeAdapter(kind).json_schema()
    required = bool(schema.get("required"))  # an empty body is read as an empty object
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": required, "content": content}}


def sends(media_type: str, description: str) -> dict[int | str, JsonObject]:
    """Describe a response that is a file of this type."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"description": description, "content": content}}


def operator_router(access: Access, prefix: str = "") -> APIRouter:
    """Return an empty router whose routes need a key."""
    needs_key = [Depends(access.authorise)]
    return APIRouter(prefix=prefix, tags=["operator"], dependencies=needs_key, responses=DOCUMENTED)


def operator_routes(collector: Collector, access: Access) -> APIRouter:
    """Return the routes of operators: campaigns, keys, the audit log and progress."""
    routes = APIRouter()
    for part in (_campaign_routes, _key_routes, _progress_routes):
        routes.include_router(part(collector, access))
    return routes


def _campaign_routes(collector: Collector, access: Access) -> APIRouter:
    """Return the routes to create, read, move and export campaigns."""
    routes = operator_router(access, "/v1/admin/campaigns")
    campaigns = collector.campaigns

    @routes.get("")
    async def listed() -> dict[str, list[Summary]]:
        """List all campaigns."""
        if collector.store.shared:
            await collector.refresh_and_wait()
        return {"campaigns": [_summary(campaigns.get(i)) for i in campaigns.ids()]}

    @routes.post("", status_code=201, openapi_extra=_takes(NewCampaign))
    def create(body: _Body, who: Who) -> Status:
        """Create a campaign and open its first round, unless it is a draft."""
        with acting(who.name, "create"):
            return _status(collector, campaigns.create(body))

    @routes.get("/{campaign}")
    def status(campaign: str) -> Status:
        """Read the status of a campaign: state, rounds, and the number of reports of each."""
        return _status(collector, campaigns.current(campaign))

    @routes.delete("/{campaign}")
    def delete(campaign: str, who: Who) -> Deleted:
        """Delete a campaign that takes no reports: its rounds, reports, tokens and release."""
        with acting(who.name, "delete"):
            campaigns.delete(campaign)
        return Deleted(campaign)

    _add_steps(routes, collector)

    @routes.get(
        "/{campaign}/release", response_class=Response, responses=sends(ZIP, "The release's folder")
    )
    def release(campaign: str) -> Response:
        """Download the release of a finalised campaign as a zip file."""
        return Response(campaigns.release(campaign), media_type=ZIP)

    @routes.post(
        "/{campaign}/tokens",
        status_code=201,
        response_model=IssuedTokens,
        openapi_extra=_takes(TokensToIssue),
    )
    def tokens(campaign: str, body: _Body, who: Who) -> Response:
        """Issue participation tokens, shown only in this response."""
        asked = read(TokensToIssue, body)
        with acting(who.name, "issue-tokens"):
            issued = campaigns.issue_tokens(campaign, asked.count)
        return Response(_tokens_json(issued), 201, media_type="application/json")

    _add_counting(routes, collector)
    return routes


def _add_steps(routes: APIRouter, collector: Collector) -> None:
    """Add the transitions of a campaign."""
    campaigns = collector.campaigns

    @routes.post("/{campaign}/open")
    def open_campaign(campaign: str, who: Who) -> Status:
        """Open a draft, or revoke a closing that was interrupted."""
        with acting(who.name, "open"):
            return _status(collector, campaigns.open(campaign))

    @routes.post("/{campaign}/close-round", openapi_extra=_takes(RoundToClose))
    def close_round(campaign: str, body: _Body, who: Who) -> Status:
        """Close a round, take its tally and open the next one. Safe to repeat."""
        asked = read(RoundToClose, body)
        with acting(who.name, "close-round"):
            live = campaigns.close_round(campaign, asked.round, hold=asked.hold)
            return _status(collector, live)

    @routes.post("/{campaign}/rounds/{number}/tally", openapi_extra=takes_bytes(BYTES))
    def close_with(campaign: str, number: _RoundNumber, body: Counted, who: Who) -> Status:
        """Close a round with a tally counted elsewhere, if it counts exactly the stored reports.

        Safe to repeat.
        """
        counted = collector.questions.read_tally(body)
        with acting(who.name, "close-round-with-tally"):
            return _status(collector, campaigns.close_round(campaign, int(number), counted))

    @routes.post("/{campaign}/finalise", openapi_extra=_takes(FinaliseRequest))
    def finalise(campaign: str, body: _Body, who: Who) -> Status:
        """Fit the model and make the release. Safe to repeat."""
        asked = read(FinaliseRequest, body)
        with acting(who.name, "finalise"):
            return _status(collector, campaigns.finalise(campaign, asked.rows))


def _add_counting(routes: APIRouter, collector: Collector) -> None:
    """Add the running tally and the export of reports."""

    @routes.get("/{campaign}/tally", response_model_exclude_none=True)
    def tally(campaign: str) -> TallyStatus:
        """Read the running tally of the open round: the number of answers to each question."""
        running = collector.running_tally(campaign)
        digest = hashlib.sha256(running.to_bytes()).hexdigest()
        answers = [int(n) for n in running.n] if isinstance(running, CountTally) else None
        return TallyStatus(running.plan.round, running.participants, running.kind, digest, answers)

    @routes.get(
        "/{campaign}/rounds/{number}/reports",
        response_class=Response,
        responses=sends(PARQUET, "The round's reports"),
    )
    def reports(
        campaign: str,
        number: _RoundNumber,
        after: _IdOrNothing = None,
        most: _ReportPageSize = _MAX_PAGE,
    ) -> Response:
        """Download the raw reports of a round as a Parquet file in the order of their ids.

        With `after`, one page of at most `most` reports with ids above it.
        """
        plans = collector.campaigns.current(campaign).plans
        if int(number) >= len(plans):
            raise Problem("not-found", f"campaign {campaign} has no round {number}")
        above = None if after is None else bytes.fromhex(after)
        spooled = _spool_reports(collector.store, campaign, plans[int(number)], above, most)
        return FileAnswer(spooled, PARQUET)


def _progress_routes(collector: Collector, access: Access) -> APIRouter:
    """Return the routes to watch a campaign: polling, and server-sent events."""
    routes = operator_router(access, "/v1/campaigns/{campaign}")

    @routes.get("/progress")
    async def progress(campaign: str) -> Progress:
        """Read the number of reports by round and question and of refused ones.

        The figures are at most about a second old.
        """
        await collector.find(campaign)
        return await collector.live.now(campaign)

    @routes.get("/events", response_class=Response, responses=sends(_EVENTS, "Server-sent events"))
    async def events(request: Request, campaign: str) -> Response:
        """Follow the progress as server-sent events, one for each change.

        A stream ends after half an hour, or with the key or session, and can be opened again.
        """
        await collector.find(campaign)
        await collector.live.check_room(campaign)
        credential = access.credential(request)
        return _EventStream(
            lambda take_over: collector.live.follow(campaign, credential, take_over)
        )

    return routes


def _key_routes(collector: Collector, access: Access) -> APIRouter:
    """Return the routes for keys and the audit log."""
    routes = operator_router(access)
    keys = collector.keys

    @routes.get("/v1/admin/keys")
    def listed() -> dict[str, list[KeyRecord]]:
        """List all keys, including revoked ones: name, role, and the days of both events."""
        return {"keys": keys.listed()}

    @routes.post("/v1/admin/keys", status_code=201, openapi_extra=_takes(NewKey))
    def create(body: _Body, who: Who) -> CreatedKey:
        """Create a key; only this response shows it."""
        asked = read(NewKey, body)
        with acting(who.name, "create-key"):
            return CreatedKey(asked.name, asked.role, keys.create(asked.name, asked.role))

    @routes.post("/v1/admin/keys/{name}/revoke")
    def revoke(name: str, who: Who) -> dict[str, list[KeyRecord]]:
        """Revoke a key and end its sessions; the last curator's key cannot be revoked."""
        with acting(who.name, "revoke-key"):
            keys.revoke(name)
        return {"keys": keys.listed()}

    @routes.get("/v1/audit")
    def audit(
        campaign: CampaignId = None, before: _EntryNumber = None, most: _EntryPageSize = 100
    ) -> dict[str, list[AuditEntry]]:
        """Read what operators did, the latest first; `before` is the last number of a page."""
        return {"entries": collector.store.audit.entries(campaign, before, most)}

    return routes


class FileAnswer(StreamingResponse):
    """A response with the content of a file, which is closed afterwards.

    Args:
        file: A file positioned at its end.
        media_type: Its media type.
        more: Further headers.
        done: Called when the file was sent or the client has disconnected.
    """

    def __init__(
        self,
        file: BinaryIO,
        media_type: str,
        more: Mapping[str, str] | None = None,
        done: Callable[[], object] | None = None,
    ) -> None:
        headers = {"content-length": str(file.tell()), **(more or {})}
        file.seek(0)
        super().__init__(
            iter(lambda: file.read(_PIECE), b""), headers=headers, media_type=media_type
        )
        self._file = file
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()
            if self._done is not None:
                self._done()


class _EventStream(Response):
    """A response whose body `follow` writes to the connection directly."""

    media_type = _EVENTS

    def __init__(self, follow: Callable[[TakeOver], None]) -> None:
        super().__init__(headers=_EVENT_HEADERS)
        del self.headers["content-length"]
        self._follow = follow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        self._follow(scope["extensions"][TAKE_OVER])


def _export_reports(
    store: Store,
    campaign: str,
    plan: Plan,
    out: BinaryIO,
    after: bytes | None = None,
    most: int = 0,
) -> int:
    """Write a round's reports as Parquet, with the plan in the file's metadata.

    Args:
        store: Where the reports are.
        campaign: The campaign.
        plan: The round's plan.
        out: The file to write.
        after: If given, write one page with ids above it.
        most: Reports of that page.

    Returns:
        The number of reports written.
    """
    schema = _REPORT_COLUMNS.with_metadata(
        {"dither_campaign": campaign, "dither_plan": json.dumps(plan.to_json())}
    )
    pages = store.reports(campaign, plan.round)
    if after is not None:
        pages = islice(store.reports(campaign, plan.round, most, after), 1)
    written = 0
    with pq.ParquetWriter(out, schema, compression="zstd") as file:
        for rows in pages:
            columns = list(zip(*rows, strict=True))
            arrays = [
                pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
            ]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))
            written += len(rows)
    return written


def _spool_reports(
    store: Store, campaign: str, plan: Plan, after: bytes | None, most: int
) -> BinaryIO:
    """Export to a temporary file without a name, which a crash cannot leave behind."""
    file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        _export_reports(store, campaign, plan, file, after, most)
    except BaseException:
        file.close()
        raise
    return file


def _status(collector: Collector, live: Live) -> Status:
    store, stored = collector.store, live.stored
    untidied = store.untidied(stored.id)
    rounds = []
    for round_, plan in zip(live.rounds, live.plans, strict=True):
        # The reports of a finalised campaign may be deleted; its tallies stay.
        reports = store.count(round_.campaign, round_.number) or live.counted(round_.number)
        rounds.append(
            RoundStatus(
                round=round_.number,
                state=round_.state,
                reports=reports,
                questions=len(plan.questions),
                split=plan.split,
                epsilon=plan.epsilon,
                population=plan.population,
                wanted=live.spec.reports_wanted(plan, round_.start),
                expected=live.spec.expected_reports(plan),
                excess=live.spec.has_excess(plan, reports),
                closes=round_.closes,
                held=round_.held,
                untidied=round_.number in untidied,
            )
        )
    finalised = stored.state is State.FINALISED
    published = finalised and collector.publications.is_public(stored.id)
    return Status(**vars(_summary(live)), rounds=rounds, published=published)


def _summary(live: Live) -> Summary:
    spec, stored = live.spec, live.stored
    return Summary(
        campaign=stored.id,
        name=spec.name,
        state=stored.state,
        round=stored.round,
        method=spec.method,
        epsilon=spec.epsilon,
        participants=spec.participants,
        participation=spec.participation,
        title=spec.title or spec.name or stored.id,
        purpose=spec.purpose,
        contact=spec.contact,
        closes=spec.closes,
        closes_at_reports=spec.closes_at_reports,
        assignment=spec.assignment,
        language=spec.language,
    )


def _tokens_json(tokens: list[str]) -> bytes:
    """Encode in blocks: encoding all at once would hold the interpreter's lock too long."""
    # Hexadecimal digits need no escapes.
    blocks = ('"' + '","'.join(tokens[i : i + 1000]) + '"' for i in range(0, len(tokens), 1000))
    return ('{"tokens":[' + ",".join(blocks) + "]}").encode("ascii")
