"""The life of campaigns: explicit states, each change one transaction, so that a restart at any point finds a whole state.

    draft --open--> open --close-round--> closing --(tally taken)--> open, the next round
                     ^                     |    \\
                     '---- open, or the ---'     '--(no round left)--> collected --finalise--> finalised
                           protocol refuses

While a round is `closing` no report is taken, none is refused for good, and the stored ones do not change: taking the tally and
computing the next plan are pure, so a crash there loses nothing, and `close-round` again goes on. Every operation may be repeated
safely. A collected campaign becomes a release: the fitted model, a synthetic table, the guarantee and what was asked.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Literal

from dither.checks import check_whole
from dither.collector.finished import make_release, zip_release
from dither.collector.spec import CampaignSpec, NewCampaign, Participation, begin, check_announced, check_plan, read
from dither.collector.store import Move, State, Store, StoreAway, StoredCampaign, StoredRound, StoreFull
from dither.collector.tallies import rebuild
from dither.errors import DitherError, ParameterError, StateError
from dither.protocols import restore
from dither.reports import Plan, limits, plan_from_json
from dither.reports.plan import token_hash
from dither.tally import RoundTally, check_tally, tally_from_bytes
from dither.types import JsonObject

log = logging.getLogger("dither.collector")
MOST_TOKENS = 1_000_000  # in one request
TOKEN_BLOCK = 2_000  # in one transaction; uploads wait for one block at most


class NoCampaign(DitherError):
    """There is no campaign of this id."""

    def __init__(self, campaign: str) -> None:
        super().__init__(f"there is no campaign {campaign[:64]!r}", where="campaign", value=campaign)


@dataclass(frozen=True)
class CountedElsewhere:
    """A round's tally that was not counted here, and which reports it counts."""

    tally: RoundTally
    reports: int
    digest: int


@dataclass(frozen=True)
class OpenRound:
    """What intake needs to know of the round that takes reports now."""

    campaign: str
    campaign_bytes: bytes
    plan: Plan
    start: float
    participation: Participation


@dataclass(frozen=True)
class PublicCampaign:
    """A campaign as participants read it: who asks and why, the public domain of a record (`schema`), the share of places before
    the open round (`start`), and what that round asks (`plan`), null while none is open. `consumers` get histograms of the number
    that is asked for, each its own bins; null for other methods."""

    format: Literal["dither-campaign-1"]
    campaign: str
    name: str
    title: str
    purpose: str
    contact: str
    closes: str | None
    closes_at_reports: int | None
    state: State
    epsilon: float
    participation: Participation
    schema: JsonObject
    schema_fingerprint: str
    start: float
    plan: JsonObject | None
    consumers: list[JsonObject] | None


@dataclass(frozen=True)
class Live:
    """A campaign as the collector holds it in memory: always a copy of what the store says."""

    stored: StoredCampaign
    spec: CampaignSpec
    rounds: tuple[StoredRound, ...]
    open_round: OpenRound | None
    public: bytes

    @cached_property
    def plans(self) -> list[Plan]:
        """What each round so far asks."""
        return [plan_from_json(r.plan) for r in self.rounds]


class Campaigns:
    """Creates campaigns and moves them along; reads of the current state are from memory.

    `compare` is told each tally taken at a closing, so that a running one can be checked against it; `in_turn` runs a write
    between those of others, first come, first served.
    """

    def __init__(
        self,
        store: Store,
        compare: Callable[[str, RoundTally], None] = lambda campaign, tally: None,
        in_turn: Callable[[Callable[[], None]], None] = lambda write: write(),
        today: Callable[[], str] = lambda: datetime.now(UTC).date().isoformat(),
    ) -> None:
        self._store = store
        self._today = today
        self._compare = compare
        self._in_turn = in_turn
        self._live: dict[str, Live] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        for stored in store.campaigns():
            self._keep(self._load(stored))

    def ids(self) -> list[str]:
        """The ids of all campaigns, sorted."""
        return sorted(self._live)

    def get(self, campaign: str) -> Live:
        """A campaign; an error if there is none of this id."""
        found = self._live.get(campaign)
        if found is None:
            raise NoCampaign(campaign)
        return found

    def current(self, campaign: str) -> Live:
        """A campaign as it stands now, whichever collector moved it last."""
        return self.refresh(campaign) if self._store.shared else self.get(campaign)

    def refresh(self, campaign: str) -> Live:
        """Read a campaign anew from the store."""
        stored = self._store.campaign(campaign)
        if stored is None:
            raise NoCampaign(campaign)
        return self._keep(self._load(stored))

    def look(self) -> None:
        """Read anew whatever another collector has made or moved since."""
        for campaign, position in self._store.positions().items():
            known = self._live.get(campaign)
            if known is None or known.stored.moves != position.moves:
                self.refresh(campaign)

    def _keep(self, live: Live) -> Live:
        """Two threads may have read one campaign; the later state stays."""
        with self._guard:
            known = self._live.get(live.stored.id)
            if known is None or known.stored.moves <= live.stored.moves:
                self._live[live.stored.id] = live
        return live

    def create(self, description: object) -> Live:
        """A new campaign under a fresh random id, from a description of a `NewCampaign`."""
        try:
            asked = read(NewCampaign, description)
            spec, machine, plan = begin(asked)
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            # The schema's own checks speak of values; numbers beyond a float and the like end up here.
            raise ParameterError(f"the campaign cannot be read: {error}", value=description) from None
        campaign = secrets.token_bytes(limits.CAMPAIGN_BYTES).hex()
        state = State.DRAFT if asked.draft else State.OPEN
        first = StoredRound(campaign, 0, state.value, 0.0, plan.to_json())
        stored = StoredCampaign(campaign, spec.to_json() | {"created": self._today()}, state, 0, machine.state())
        check_announced(_public(stored, spec, _open_round(stored, spec, plan, 0.0)), 0)
        self._store.create_campaign(stored, first)
        return self.refresh(campaign)

    def open(self, campaign: str) -> Live:
        """Open a draft, or take back a closing that has not happened yet; nothing to do if it is open."""
        with self._turn(campaign):
            stored = self.refresh(campaign).stored
            if stored.state in (State.DRAFT, State.CLOSING):
                self._reopen(stored)
            elif stored.state is not State.OPEN:
                raise StateError(f"campaign {campaign} is {stored.state.value}; it cannot be opened again")
            return self.refresh(campaign)

    def close_round(
        self, campaign: str, number: int, counted: CountedElsewhere | None = None, hold: bool = False
    ) -> Live:
        """Close a round, take its tally and open the next one, if the protocol has one. A round that is closed stays so.

        With `hold` it takes no more reports and waits for a tally; with `counted` that tally is taken instead of counting here.
        """
        with self._turn(campaign):
            live = self.refresh(campaign)
            stored = live.stored
            if number < 0 or number > stored.round:
                raise StateError(f"campaign {campaign} is in round {stored.round}; round {number} is not open yet")
            if number < stored.round or stored.state in (State.COLLECTED, State.FINALISED):
                return live
            if stored.state is State.DRAFT:
                raise StateError(f"campaign {campaign} is a draft; open it first")
            if counted is not None and counted.tally.plan.to_json() != live.rounds[number].plan:
                raise StateError(f"the tally is of another plan; round {number} stays {stored.state.value}")
            if stored.state is State.OPEN:
                closing = Move(campaign, State.OPEN, number, State.CLOSING, number, round_state="closing")
                self._move(replace(closing, moves=stored.moves))
                live = self.refresh(campaign)
            if hold:
                return live
            if counted is not None:
                self._check_counted(live, counted)
            self._tidy(live)
            self._take_tally(live, counted)
            return self.refresh(campaign)

    def _check_counted(self, live: Live, counted: CountedElsewhere) -> None:
        """Refuse a tally of other reports than those stored; the round stays as it is, closing, for another try."""
        reports, digest = self._store.digest(live.stored.id, live.stored.round)
        if (reports, digest) != (counted.reports, counted.digest):
            raise StateError(
                f"the tally counts {counted.reports:,} reports, round {live.stored.round} holds {reports:,}"
                + (", others" if reports == counted.reports else "")
                + "; it takes no more now: export and count it again, or open it again"
            )
        check_tally(counted.tally, live.plans[live.stored.round], reports)

    def finalise(self, campaign: str, rows: int | None = None) -> Live:
        """Fit the model, make the release and keep it; a finalised campaign keeps the release it has."""
        with self._turn(campaign):
            live = self.refresh(campaign)
            state, last = live.stored.state, live.stored.round
            if state is State.FINALISED:
                return live
            if state is not State.COLLECTED:
                raise StateError(f"campaign {campaign} is {state.value} in round {last}; close its rounds first")
            if self._store.untidied(campaign):
                self._tidy(live)
            people = sum(tally_from_bytes(r.tally).participants for r in live.rounds if r.tally is not None)
            days = str(live.stored.spec.get("created", "")), self._today()
            release = make_release(restore(live.stored.machine), people, live.spec, rows, campaign, days)
            made = Move(campaign, state, last, State.FINALISED, last, release=zip_release(release))
            self._move(replace(made, moves=live.stored.moves))
            return self.refresh(campaign)

    def release(self, campaign: str) -> bytes:
        """The release of a finalised campaign, a zip file of its folder."""
        self.current(campaign)
        found = self._store.release(campaign)
        if found is None:
            raise StateError(f"campaign {campaign} has no release yet; finalise it first")
        return found

    def issue_tokens(self, campaign: str, count: int) -> list[str]:
        """Fresh tokens, shown this once: the store keeps their hashes.

        They are stored in blocks, between which uploads go on. Should that fail midway, the hashes stored so far belong to
        tokens that nobody has seen: useless, and harmless.
        """
        if self.current(campaign).spec.participation != "tokens":
            raise StateError(f"campaign {campaign} is open to everybody; it needs no tokens")
        check_whole("count", count, 1, MOST_TOKENS)
        tokens = [secrets.token_bytes(limits.TOKEN_BYTES) for _ in range(count)]
        # In order as a whole, so that no block tells which tokens came together.
        hashes = _in_order([token_hash(t) for t in tokens])
        for start in range(0, count, TOKEN_BLOCK):
            self._in_turn(partial(self._store.add_tokens, campaign, hashes[start : start + TOKEN_BLOCK]))
        return [t.hex() for t in tokens]

    def _tidy(self, live: Live) -> None:
        """Wipe traces of the order of arrival; that needs room on the disk, without which closing still goes on."""
        try:
            self._store.tidy(live.stored.id, live.stored.round)
        except (StoreFull, StoreAway) as error:
            log.warning(
                "round %d of campaign %s is not tidied, its files may show the order of arrival: %s",
                live.stored.round,
                live.stored.id,
                error,
            )

    def _take_tally(self, live: Live, counted: CountedElsewhere | None) -> None:
        """Give the closing round's tally to the protocol; if that refuses, the round opens again."""
        campaign, number, spec = live.stored.id, live.stored.round, live.spec
        try:
            tally = counted.tally if counted else rebuild(self._store, campaign, live.plans[number])
            self._compare(campaign, tally)
            machine = restore(live.stored.machine)
            machine.close(tally)
            plan = machine.plan()
            begins = live.rounds[number].start + live.plans[number].population
            if plan is not None:
                check_plan(plan, spec, number + 1, begins)
                check_announced(_public(live.stored, spec, _open_round(live.stored, spec, plan, begins)), number + 1)
        except DitherError:
            self._reopen(live.stored)
            self.refresh(campaign)
            raise
        closed = Move(
            *(campaign, live.stored.state, number, State.COLLECTED, number),
            round_state="closed",
            machine=machine.state(),
            tally=tally.to_bytes(),
            moves=live.stored.moves,
        )
        if plan is not None:
            opened = StoredRound(campaign, number + 1, "open", begins, plan.to_json())
            closed = replace(closed, to_state=State.OPEN, to_round=number + 1, opened=opened)
        self._move(closed)

    def _reopen(self, stored: StoredCampaign) -> None:
        opened = Move(stored.id, stored.state, stored.round, State.OPEN, stored.round, round_state="open")
        self._move(replace(opened, moves=stored.moves))

    def _move(self, move: Move) -> None:
        if not self._store.move(move):
            raise StateError(f"campaign {move.campaign} was moved by somebody else meanwhile; look at its status")

    @contextmanager
    def _turn(self, campaign: str) -> Iterator[None]:
        """One operation per campaign at a time."""
        self.current(campaign)
        with self._guard:
            mine = self._turns.setdefault(campaign, threading.Lock())
        with mine, self._store.turn(campaign):
            yield

    def _load(self, stored: StoredCampaign) -> Live:
        spec = read(CampaignSpec, {key: value for key, value in stored.spec.items() if key != "created"})
        rounds = tuple(self._store.rounds(stored.id))
        now: OpenRound | None = None
        if stored.state is State.OPEN:
            current = rounds[stored.round]
            now = _open_round(stored, spec, plan_from_json(current.plan), current.start)
        return Live(stored, spec, rounds, now, _public(stored, spec, now))


def _in_order(hashes: list[bytes]) -> list[bytes]:
    """Sorted in small steps: one sort of them all would stop every other thread meanwhile."""
    by_first: list[list[bytes]] = [[] for _ in range(256)]
    for found in hashes:
        by_first[found[0]].append(found)
    return [found for some in by_first for found in sorted(some)]


def _open_round(stored: StoredCampaign, spec: CampaignSpec, plan: Plan, start: float) -> OpenRound:
    return OpenRound(stored.id, bytes.fromhex(stored.id), plan, start, spec.participation)


def _public(stored: StoredCampaign, spec: CampaignSpec, now: OpenRound | None) -> bytes:
    """What a participant reads: who asks, what, at which epsilon, and the open round's plan."""
    document = PublicCampaign(
        format="dither-campaign-1",
        campaign=stored.id,
        name=spec.name,
        title=spec.title or spec.name or stored.id,
        purpose=spec.purpose,
        contact=spec.contact,
        closes=spec.closes,
        closes_at_reports=spec.closes_at_reports,
        state=stored.state,
        epsilon=spec.epsilon,
        participation=spec.participation,
        schema=spec.schema.to_json(),
        schema_fingerprint=spec.schema.fingerprint,
        start=0.0 if now is None else now.start,
        plan=None if now is None else now.plan.to_json(),
        consumers=spec.consumers,  # type: ignore[arg-type]  # as `begin` spelt them out
    )
    return json.dumps(vars(document), separators=(",", ":")).encode()
