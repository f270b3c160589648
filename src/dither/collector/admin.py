"""The operators' addresses of campaigns: everything behind a key, changes behind a curator's and in the audit log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, BinaryIO

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dither.collector.access import Access, Who
from dither.collector.audit import acting
from dither.collector.campaigns import Live
from dither.collector.collector import Collector
from dither.collector.downloads import spool_reports
from dither.collector.edge import TALLY_BYTES, read_body
from dither.collector.problems import DOCUMENTED, Problem
from dither.collector.schedule import expected_reports, has_excess, reports_wanted
from dither.collector.spec import STRICT, NewCampaign, Whole, read
from dither.collector.store import State
from dither.tally import CountTally
from dither.types import JsonObject

ZIP, PARQUET, ARCHIVE = (
    "application/zip",
    "application/vnd.apache.parquet",
    "application/octet-stream",
)
MAX_PAGE = 1 << 18  # reports of one page
_PIECE = 1 << 16  # bytes of a file sent at a time


@dataclass(frozen=True, config=STRICT)
class RoundToClose:
    """Which round; with `hold` it takes no more reports and waits for a tally that was counted elsewhere."""

    round: Whole
    hold: Annotated[bool, Field(strict=True)] = False


@dataclass(frozen=True, config=STRICT)
class FinaliseRequest:
    """How many rows the synthetic table gets; as many as participants, up to 100,000, unless said otherwise."""

    rows: Whole | None = None


@dataclass(frozen=True, config=STRICT)
class TokensToIssue:
    """How many tokens."""

    count: Whole


@dataclass(frozen=True)
class IssuedTokens:
    """Tokens in base 16, one per participant."""

    tokens: list[str]


@dataclass(frozen=True)
class Deleted:
    """Which campaign is there no more."""

    deleted: str


@dataclass(frozen=True)
class Summary:
    """A campaign in short."""

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


@dataclass(frozen=True)
class RoundStatus:
    """A round of a campaign.

    It closes by itself at `wanted` reports, or at the time `closes` (seconds since 1970). `expected`
    is its share of the expected participants, `excess` whether a round of an open campaign has far
    more reports. `held` waits for a tally counted elsewhere; the files of an `untidied` round may
    still show the order of arrival.
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
    """A campaign and its rounds so far, and whether anybody may read its release."""

    rounds: list[RoundStatus]
    published: bool = False


@dataclass(frozen=True)
class TallyStatus:
    """How many took part in the open round; how many answered each question, where that is what is counted."""

    round: int
    participants: int
    kind: str
    sha256: str
    answers: list[int] | None = None


async def _read_json(request: Request) -> dict[str, object]:
    """The body, read after the key was seen and within the limits, which the framework's own reading of bodies would not do."""
    try:
        body = json.loads(await read_body(request) or b"{}")
    except (ValueError, RecursionError):
        raise Problem("bad-request", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Problem("bad-request", "the body must be a JSON object")
    return body


async def _read_archive(request: Request) -> bytes:
    return await read_body(request, TALLY_BYTES)


RoundNumber = Annotated[str, Path(pattern="^[0-9]{1,6}$")]  # one way to write each; int takes many
IdOrNothing = Annotated[str | None, Query(pattern="^([0-9a-f]{2}){0,32}$")]
PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Body = Annotated[dict[str, object], Depends(_read_json)]
Counted = Annotated[bytes, Depends(_read_archive)]
_TAKES_TALLY: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {ARCHIVE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def takes(kind: type) -> JsonObject:
    """Describes the body of an address; each endpoint reads it as this kind itself, in its own thread."""
    schema = TypeAdapter(kind).json_schema()
    needed = bool(schema.get("required"))  # an empty body is read as an empty object
    return {
        "requestBody": {"required": needed, "content": {"application/json": {"schema": schema}}}
    }


def sends(media_type: str, description: str) -> dict[int | str, JsonObject]:
    """Describes an answer that is a file of this type."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"description": description, "content": content}}


def admin_routes(collector: Collector, access: Access) -> APIRouter:
    """Create, look at, open, close, finalise and export campaigns. What asks the store runs in the framework's threads."""
    routes = APIRouter(
        prefix="/v1/admin/campaigns",
        tags=["operator"],
        dependencies=[Depends(access.authorise)],
        responses=DOCUMENTED,
    )
    campaigns = collector.campaigns

    def status_of(live: Live) -> Status:
        untidied = collector.store.untidied(live.stored.id)
        counts = [collector.store.count(stored.campaign, stored.number) for stored in live.rounds]
        rounds = [
            RoundStatus(
                round=stored.number,
                state=stored.state,
                reports=reports,
                questions=len(plan.questions),
                split=plan.split,
                epsilon=plan.epsilon,
                population=plan.population,
                wanted=reports_wanted(live.spec, plan, stored.start),
                expected=expected_reports(live.spec, plan),
                excess=has_excess(live.spec, plan, reports),
                closes=stored.closes,
                held=stored.held,
                untidied=stored.number in untidied,
            )
            for stored, plan, reports in zip(live.rounds, live.plans, counts, strict=True)
        ]
        published = live.stored.state is State.FINALISED and collector.publications.is_public(
            live.stored.id
        )
        return Status(**vars(_summary(live)), rounds=rounds, published=published)

    @routes.get("")
    async def listed() -> dict[str, list[Summary]]:
        """All campaigns."""
        if collector.store.shared:
            await collector.look_again()
        return {"campaigns": [_summary(campaigns.get(i)) for i in campaigns.ids()]}

    @routes.post("", status_code=201, openapi_extra=takes(NewCampaign))
    def create(body: Body, who: Who) -> Status:
        """Create a campaign and open its first round, unless it is a draft."""
        with acting(who.name, "create"):
            return status_of(campaigns.create(body))

    @routes.get("/{campaign}")
    def status(campaign: str) -> Status:
        """Where a campaign stands: state, rounds, and how many reports each has."""
        return status_of(campaigns.current(campaign))

    @routes.delete("/{campaign}")
    def delete(campaign: str, who: Who) -> Deleted:
        """Delete a campaign that takes no reports, for good: its rounds, reports, tokens and release."""
        with acting(who.name, "delete"):
            campaigns.delete(campaign)
        return Deleted(campaign)

    @routes.post("/{campaign}/open")
    def open_campaign(campaign: str, who: Who) -> Status:
        """Open a draft, or take back a closing that was interrupted."""
        with acting(who.name, "open"):
            return status_of(campaigns.open(campaign))

    @routes.post("/{campaign}/close-round", openapi_extra=takes(RoundToClose))
    def close_round(campaign: str, body: Body, who: Who) -> Status:
        """Close a round, take its tally and open the next one. Safe to repeat."""
        asked = read(RoundToClose, body)
        with acting(who.name, "close-round"):
            return status_of(campaigns.close_round(campaign, asked.round, hold=asked.hold))

    @routes.post("/{campaign}/rounds/{number}/tally", openapi_extra=_TAKES_TALLY)
    def close_with(campaign: str, number: RoundNumber, body: Counted, who: Who) -> Status:
        """Close a round with a tally counted elsewhere, if it counts exactly the reports stored. Safe to repeat."""
        counted = collector.questions.read_tally(body)
        with acting(who.name, "close-round-with-tally"):
            return status_of(campaigns.close_round(campaign, int(number), counted))

    @routes.post("/{campaign}/finalise", openapi_extra=takes(FinaliseRequest))
    def finalise(campaign: str, body: Body, who: Who) -> Status:
        """Fit the model and make the release. Safe to repeat."""
        asked = read(FinaliseRequest, body)
        with acting(who.name, "finalise"):
            return status_of(campaigns.finalise(campaign, asked.rows))

    @routes.get(
        "/{campaign}/release", response_class=Response, responses=sends(ZIP, "The release's folder")
    )
    def release(campaign: str) -> Response:
        """The release of a finalised campaign, a zip file."""
        return Response(campaigns.release(campaign), media_type=ZIP)

    @routes.post(
        "/{campaign}/tokens",
        status_code=201,
        response_model=IssuedTokens,
        openapi_extra=takes(TokensToIssue),
    )
    def tokens(campaign: str, body: Body, who: Who) -> Response:
        """Issue participation tokens, shown this once."""
        asked = read(TokensToIssue, body)
        with acting(who.name, "issue-tokens"):
            issued = campaigns.issue_tokens(campaign, asked.count)
        return Response(_tokens_json(issued), 201, media_type="application/json")

    _add_counting(routes, collector)
    return routes


def _add_counting(routes: APIRouter, collector: Collector) -> None:
    """What was sent so far: the running tally, and the reports themselves."""

    @routes.get("/{campaign}/tally", response_model_exclude_none=True)
    def tally(campaign: str) -> TallyStatus:
        """The running tally of the open round: how many answered each question."""
        found = collector.running_tally(campaign)
        digest = hashlib.sha256(found.to_bytes()).hexdigest()
        answers = [int(n) for n in found.n] if isinstance(found, CountTally) else None
        return TallyStatus(found.plan.round, found.participants, found.kind, digest, answers)

    @routes.get(
        "/{campaign}/rounds/{number}/reports",
        response_class=Response,
        responses=sends(PARQUET, "The round's reports"),
    )
    def reports(
        campaign: str, number: RoundNumber, after: IdOrNothing = None, most: PageSize = MAX_PAGE
    ) -> Response:
        """The raw reports of a round, a Parquet file in the order of their ids; with `after`, one page of ids above this one."""
        plans = collector.campaigns.current(campaign).plans
        if int(number) >= len(plans):
            raise Problem("not-found", f"campaign {campaign} has no round {number}")
        above = None if after is None else bytes.fromhex(after)
        return FileAnswer(
            spool_reports(collector.store, campaign, plans[int(number)], above, most), PARQUET
        )


class FileAnswer(StreamingResponse):
    """What was written to a file, from its beginning.

    When it has been sent, or its reader is gone, the file is closed and `done` is called.
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


def _summary(live: Live) -> Summary:
    spec, stored = live.spec, live.stored
    return Summary(
        *(stored.id, spec.name, stored.state, stored.round),
        *(spec.method, spec.epsilon, spec.participants, spec.participation),
        title=spec.title or spec.name or stored.id,
        purpose=spec.purpose,
        contact=spec.contact,
        closes=spec.closes,
        closes_at_reports=spec.closes_at_reports,
        assignment=spec.assignment,
    )


def _tokens_json(tokens: list[str]) -> bytes:
    """Some at a time: encoding hundreds of thousands in one go would stop every other thread meanwhile. Hex needs no escapes."""
    blocks = ('"' + '","'.join(tokens[i : i + 1000]) + '"' for i in range(0, len(tokens), 1000))
    return ('{"tokens":[' + ",".join(blocks) + "]}").encode("ascii")
