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

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial

from dither.checks import check_whole
from dither.collector.announced import OpenRound, a_round, public
from dither.collector.finished import make_release, zip_release
from dither.collector.schedule import round_closes
from dither.collector.spec import (
    CampaignSpec,
    NewCampaign,
    begin,
    check_announced,
    check_plan,
    read,
)
from dither.collector.store import (
    Move,
    State,
    Store,
    StoreAway,
    StoredCampaign,
    StoredRound,
    StoreFull,
)
from dither.collector.tallies import rebuild
from dither.errors import DitherError, ParameterError, StateError
from dither.methods import restore
from dither.reports import Plan, limits, plan_from_json
from dither.reports.plan import closing_seconds, token_hash
from dither.tally import RoundTally, check_tally, tally_from_bytes

log = logging.getLogger("dither.collector")
MAX_TOKENS = 1_000_000  # in one request
TOKEN_BLOCK = 2_000  # in one transaction; uploads wait for one block at most


class NoCampaign(DitherError):
    """There is no campaign of this id."""

    def __init__(self, campaign: str) -> None:
        super().__init__(
            f"there is no campaign {campaign[:64]!r}", where="campaign", value=campaign
        )


@dataclass(frozen=True)
class CountedElsewhere:
    """A round's tally that was not counted here, and which reports it counts."""

    tally: RoundTally
    reports: int
    digest: int


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

    def is_over(self, number: int) -> bool:
        """Whether there was a round of this number, and its tally is taken."""
        return number < len(self.rounds) and self.rounds[number].state == "closed"

    def round(self, number: int) -> OpenRound:
        """A round so far, open or not, as intake sees it."""
        return a_round(self.stored, self.spec, self.rounds[number], self.plans[number])


class Campaigns:
    """Creates campaigns and moves them along; reads of the current state are from memory.

    `compare` is told each tally taken at a closing, so that a running one can be checked against it; `in_turn` runs a write
    between those of others, first come, first served; `clock` tells the seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        compare: Callable[[str, RoundTally], None] = lambda campaign, tally: None,
        in_turn: Callable[[Callable[[], None]], None] = lambda write: write(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._clock = clock
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
            self._forget(campaign)
            raise NoCampaign(campaign)
        return self._keep(self._load(stored))

    def look(self) -> None:
        """Read anew whatever another collector has made or moved since, and forget what it has deleted."""
        known_before = self.ids()
        positions = self._store.positions()
        for campaign in set(known_before) - set(positions):
            self._forget(campaign)
        for campaign, position in positions.items():
            known = self._live.get(campaign)
            if known is None or known.stored.moves != position.moves:
                self.refresh(campaign)

    def _forget(self, campaign: str) -> None:
        with self._guard:
            self._live.pop(campaign, None)

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
            raise ParameterError(
                f"the campaign cannot be read: {error}", value=description
            ) from None
        if spec.closes is not None and closing_seconds(spec.closes) <= self._clock():
            raise ParameterError(
                f"closes: {spec.closes} is over; name a later day",
                where="closes",
                value=spec.closes,
            )
        campaign = secrets.token_bytes(limits.CAMPAIGN_BYTES).hex()
        state = State.DRAFT if asked.draft else State.OPEN
        ends = None if asked.draft else round_closes(spec, plan, 0.0, self._clock())
        first = StoredRound(campaign, 0, state.value, 0.0, plan.to_json(), closes=ends)
        stored = StoredCampaign(
            campaign, spec.to_json() | {"created": self._today()}, state, 0, machine.state()
        )
        check_announced(public(stored, spec, a_round(stored, spec, first)), 0)
        self._store.create_campaign(stored, first)
        return self.refresh(campaign)

    def open(self, campaign: str) -> Live:
        """Open a draft, or take back a closing that has not happened yet; nothing to do if it is open."""
        with self._turn(campaign):
            live = self.refresh(campaign)
            stored = live.stored
            if stored.state is State.DRAFT:
                self._open_draft(live)
            elif stored.state is State.CLOSING:
                self._reopen(stored)
            elif stored.state is not State.OPEN:
                raise StateError(
                    f"campaign {campaign} is {stored.state.value}; it cannot be opened again"
                )
            return self.refresh(campaign)

    def close_round(
        self,
        campaign: str,
        number: int,
        counted: CountedElsewhere | None = None,
        hold: bool = False,
        scheduled: bool = False,
    ) -> Live:
        """Close a round, take its tally and open the next one, if the protocol has one. A round that is closed stays so.

        With `hold` it takes no more reports and waits for a tally; with `counted` that tally is taken instead of counting here.
        A `scheduled` closing, which nobody asked for just now, leaves a round alone that somebody holds.
        """
        with self._turn(campaign):
            live = self.refresh(campaign)
            stored = live.stored
            if number < 0 or number > stored.round:
                raise StateError(
                    f"campaign {campaign} is in round {stored.round}; round {number} is not open yet"
                )
            if number < stored.round or stored.state in (State.COLLECTED, State.FINALISED):
                return live
            if stored.state is State.DRAFT:
                raise StateError(f"campaign {campaign} is a draft; open it first")
            if counted is not None and counted.tally.plan.to_json() != live.rounds[number].plan:
                raise StateError(
                    f"the tally is of another plan; round {number} stays {stored.state.value}"
                )
            if scheduled and live.rounds[number].held:
                return live
            if stored.state is State.OPEN or (hold and not live.rounds[number].held):
                closing = Move(
                    campaign,
                    stored.state,
                    number,
                    State.CLOSING,
                    number,
                    round_state="closing",
                    held=hold,
                )
                closed_now = self._store.move(replace(closing, moves=stored.moves))
                live = self.refresh(campaign)
                # A round that has its share stops intake by itself, out of turn: then we go on from there.
                if not closed_now and (
                    hold or (live.stored.state, live.stored.round) != (State.CLOSING, number)
                ):
                    raise _moved(campaign)
            if hold:
                return live
            if counted is not None:
                self._check_counted(live, counted)
            self._tidy(live)
            self._take_tally(live, counted)
            return self.refresh(campaign)

    def stop_intake(self, campaign: str, number: int) -> None:
        """Take no more reports in a round that has its share: the first step of `close_round`, without the rest. It waits for no
        other operation: whoever is at work on the campaign closes the round, or the count of moves decides."""
        with self._guard:
            mine = self._turns.setdefault(campaign, threading.Lock())
        if not mine.acquire(blocking=False):
            return
        try:
            stored = self.get(campaign).stored
            if (stored.state, stored.round) == (State.OPEN, number):
                closing = Move(
                    campaign, State.OPEN, number, State.CLOSING, number, round_state="closing"
                )
                self._store.move(replace(closing, moves=stored.moves))
                self.refresh(campaign)
        finally:
            mine.release()

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
                raise StateError(
                    f"campaign {campaign} is {state.value} in round {last}; close its rounds first"
                )
            if self._store.untidied(campaign):
                self._tidy(live)
            people = sum(
                tally_from_bytes(r.tally).participants for r in live.rounds if r.tally is not None
            )
            days = str(live.stored.spec.get("created", "")), self._today()
            release = make_release(
                restore(live.stored.machine), people, live.spec, rows, campaign, days
            )
            made = Move(campaign, state, last, State.FINALISED, last, release=zip_release(release))
            self._move(replace(made, moves=live.stored.moves))
            return self.refresh(campaign)

    def delete(self, campaign: str) -> None:
        """Delete a campaign for good: rounds, reports, tokens and release. One that takes reports has to be stopped before."""
        with self._turn(campaign):
            live = self.refresh(campaign)
            if live.stored.state is State.OPEN:
                raise StateError(
                    f"campaign {campaign} is open and takes reports; hold it first (close-round --hold)"
                )
            try:
                if not self._store.delete(campaign, live.stored.moves):
                    raise _moved(campaign)
            except (StoreFull, StoreAway):
                if self._store.campaign(campaign) is not None:
                    raise
                log.warning(
                    "campaign %s is deleted; what it held may stay in the database's files for a while",
                    campaign,
                )
            self._forget(campaign)

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
        check_whole("count", count, 1, MAX_TOKENS)
        tokens = [secrets.token_bytes(limits.TOKEN_BYTES) for _ in range(count)]
        # In order as a whole, so that no block tells which tokens came together.
        hashes = _in_order([token_hash(t) for t in tokens])
        for start in range(0, count, TOKEN_BLOCK):
            self._in_turn(
                partial(self._store.add_tokens, campaign, hashes[start : start + TOKEN_BLOCK])
            )
        self._store.audit.add(
            "issue-tokens", campaign, f"{count:,} tokens"
        )  # before anybody sees one
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
            opened = None
            if plan is not None:
                begins = live.rounds[number].start + live.plans[number].population
                check_plan(plan, spec, number + 1, begins)
                ends = round_closes(spec, plan, begins, self._clock())
                opened = StoredRound(
                    campaign, number + 1, "open", begins, plan.to_json(), closes=ends
                )
                check_announced(
                    public(live.stored, spec, a_round(live.stored, spec, opened)), number + 1
                )
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
        if opened is not None:
            closed = replace(closed, to_state=State.OPEN, to_round=number + 1, opened=opened)
        self._move(closed)

    def _open_draft(self, live: Live) -> None:
        stored, first = live.stored, live.rounds[0]
        ends = round_closes(live.spec, live.plans[0], first.start, self._clock())
        opened = Move(stored.id, State.DRAFT, 0, State.OPEN, 0, round_state="open", closes=ends)
        self._move(replace(opened, moves=stored.moves))

    def _reopen(self, stored: StoredCampaign) -> None:
        opened = Move(
            stored.id, stored.state, stored.round, State.OPEN, stored.round, round_state="open"
        )
        self._move(replace(opened, moves=stored.moves))

    def _move(self, move: Move) -> None:
        if not self._store.move(move):
            raise _moved(move.campaign)

    @contextmanager
    def _turn(self, campaign: str) -> Iterator[None]:
        """One operation per campaign at a time."""
        self.current(campaign)
        with self._guard:
            mine = self._turns.setdefault(campaign, threading.Lock())
        with mine, self._store.turn(campaign):
            yield

    def _today(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).date().isoformat()

    def _load(self, stored: StoredCampaign) -> Live:
        spec = read(
            CampaignSpec, {key: value for key, value in stored.spec.items() if key != "created"}
        )
        rounds = tuple(self._store.rounds(stored.id))
        now = a_round(stored, spec, rounds[stored.round]) if stored.state is State.OPEN else None
        return Live(stored, spec, rounds, now, public(stored, spec, now))


def _moved(campaign: str) -> StateError:
    return StateError(
        f"campaign {campaign} was moved by somebody else meanwhile; look at its status"
    )


def _in_order(hashes: list[bytes]) -> list[bytes]:
    """Sorted in small steps: one sort of them all would stop every other thread meanwhile."""
    by_first: list[list[bytes]] = [[] for _ in range(256)]
    for found in hashes:
        by_first[found[0]].append(found)
    return [found for some in by_first for found in sorted(some)]
