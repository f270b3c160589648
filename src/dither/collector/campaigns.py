"""The life of campaigns: explicit states, each change one transaction, so that a restart at any point finds a whole state.

    draft --open--> open --close-round--> closing --(tally taken)--> open, the next round
                     ^                     |    \\
                     '---- open, or the ---'     '--(no round left)--> collected --finalise--> finalised
                           protocol refuses

While a round is `closing` no report is taken, none is refused for good, and the stored ones do not change: taking the tally and
computing the next plan are pure, so a crash there loses nothing, and `close-round` again goes on. Every operation may be repeated
safely.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dither.collector.spec import CampaignSpec, OpenRound, begin, check_announced, check_plan, spec_from_json
from dither.collector.store import Move, State, Store, StoreAway, StoredCampaign, StoredRound, StoreFull
from dither.collector.tallies import rebuild
from dither.errors import DitherError, ParameterError, StateError
from dither.protocols import restore
from dither.reports import Plan, limits, plan_from_json
from dither.reports.assignment import token_hash
from dither.tally import RoundTally, tally_from_bytes

log = logging.getLogger("dither.collector")
MOST_TOKENS = 1_000_000  # in one request
TOKEN_BLOCK = 2_000  # in one transaction; uploads wait for one block at most


class NoCampaign(DitherError):
    """There is no campaign of this id."""


@dataclass(frozen=True)
class Live:
    """A campaign as the collector holds it in memory: always a copy of what the store says."""

    stored: StoredCampaign
    spec: CampaignSpec
    rounds: tuple[StoredRound, ...]
    open_round: OpenRound | None
    public: bytes


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
    ) -> None:
        self._store = store
        self._compare = compare
        self._in_turn = in_turn
        self._live: dict[str, Live] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        for stored in store.campaigns():
            self._live[stored.id] = self._load(stored)

    def ids(self) -> list[str]:
        """The ids of all campaigns, sorted."""
        return sorted(self._live)

    def get(self, campaign: str) -> Live:
        """A campaign; an error if there is none of this id."""
        try:
            return self._live[campaign]
        except KeyError:
            raise NoCampaign(f"there is no campaign {campaign[:64]!r}", where="campaign", value=campaign) from None

    def refresh(self, campaign: str) -> Live:
        """Read a campaign anew from the store."""
        stored = self._store.campaign(campaign)
        if stored is None:
            raise NoCampaign(f"there is no campaign {campaign[:64]!r}", where="campaign", value=campaign)
        self._live[campaign] = self._load(stored)
        return self._live[campaign]

    def create(self, description: object, *, opened: bool = True) -> Live:
        """A new campaign under a fresh random id, its first round open or still a draft."""
        try:
            spec, machine, plan = begin(spec_from_json(description))
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            # The schema's own checks speak of values; numbers beyond a float and the like end up here.
            raise ParameterError(f"the campaign cannot be read: {error}", value=description) from None
        campaign = secrets.token_bytes(limits.CAMPAIGN_BYTES).hex()
        state = State.OPEN if opened else State.DRAFT
        first = StoredRound(campaign, 0, state.value, 0.0, plan.to_json())
        stored = StoredCampaign(campaign, spec.to_json(), state, 0, machine.state())
        check_announced(_public(stored, spec, _open_round(stored, spec, plan, 0.0)), 0)
        self._store.create_campaign(stored, first)
        return self.refresh(campaign)

    def open(self, campaign: str) -> Live:
        """Open a draft, or take back a closing that has not happened yet; nothing to do if it is open."""
        with self._turn(campaign):
            live = self.refresh(campaign)
            if live.stored.state in (State.DRAFT, State.CLOSING):
                self._move(live, State.OPEN, live.stored.round, round_state="open")
            elif live.stored.state is not State.OPEN:
                raise StateError(f"campaign {campaign} is {live.stored.state.value}; it cannot be opened again")
            return self.refresh(campaign)

    def close_round(self, campaign: str, number: int) -> Live:
        """Close a round, take its tally and open the next one, if the protocol has one. A round that is closed stays so."""
        with self._turn(campaign):
            live = self.refresh(campaign)
            stored = live.stored
            if number < 0 or number > stored.round:
                raise StateError(f"campaign {campaign} is in round {stored.round}; round {number} is not open yet")
            if number < stored.round or stored.state in (State.COLLECTED, State.FINALISED):
                return live
            if stored.state is State.DRAFT:
                raise StateError(f"campaign {campaign} is a draft; open it first")
            if stored.state is State.OPEN:
                self._move(live, State.CLOSING, number, round_state="closing")
                live = self.refresh(campaign)
            self._tidy(live)
            self._take_tally(live)
            return self.refresh(campaign)

    def finalise(self, campaign: str, rows: int | None = None) -> Live:
        """Fit the model, make the release and keep it; a finalised campaign keeps the release it has."""
        from dither.collector.finalise import make_release, zip_release

        with self._turn(campaign):
            live = self.refresh(campaign)
            if live.stored.state is State.FINALISED:
                return live
            if live.stored.state is not State.COLLECTED:
                raise StateError(
                    f"campaign {campaign} is {live.stored.state.value} in round {live.stored.round}; close its rounds first"
                )
            if self._store.untidied(campaign):
                self._tidy(live)
            plans = [plan_from_json(r.plan) for r in live.rounds]
            tallies = [tally_from_bytes(r.tally) for r in live.rounds if r.tally is not None]
            release = make_release(restore(live.stored.machine), plans, tallies, live.spec, rows)
            self._move(live, State.FINALISED, live.stored.round, release=zip_release(release))
            return self.refresh(campaign)

    def release(self, campaign: str) -> bytes:
        """The release of a finalised campaign, a zip file of its folder."""
        self.get(campaign)
        found = self._store.release(campaign)
        if found is None:
            raise StateError(f"campaign {campaign} has no release yet; finalise it first")
        return found

    def issue_tokens(self, campaign: str, count: int) -> list[str]:
        """Fresh tokens, shown this once: the store keeps their hashes.

        They are stored in blocks, between which uploads go on. Should that fail midway, the hashes stored so far belong to
        tokens that nobody has seen: useless, and harmless.
        """
        if self.get(campaign).spec.participation != "tokens":
            raise StateError(f"campaign {campaign} is open to everybody; it needs no tokens")
        if not 1 <= count <= MOST_TOKENS:
            raise ParameterError(f"count must lie in 1..{MOST_TOKENS:,}", where="count", value=count)
        tokens = [secrets.token_bytes(limits.TOKEN_BYTES) for _ in range(count)]
        # In order as a whole, so that no block tells which tokens came together.
        hashes = _in_order([token_hash(t) for t in tokens])
        for start in range(0, count, TOKEN_BLOCK):
            block = hashes[start : start + TOKEN_BLOCK]
            self._in_turn(lambda block=block: self._store.add_tokens(campaign, block))  # type: ignore[misc]
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

    def _take_tally(self, live: Live) -> None:
        """Give the closing round's tally to the protocol; if that refuses, the round opens again."""
        campaign, number, spec = live.stored.id, live.stored.round, live.spec
        try:
            tally = rebuild(self._store, campaign, plan_from_json(live.rounds[number].plan))
            self._compare(campaign, tally)
            machine = restore(live.stored.machine)
            machine.close(tally)
            plan = machine.plan()
            begins = live.rounds[number].start + plan_from_json(live.rounds[number].plan).population
            if plan is not None:
                check_plan(plan, spec, number + 1, begins)
                check_announced(_public(live.stored, spec, _open_round(live.stored, spec, plan, begins)), number + 1)
        except DitherError:
            self._move(live, State.OPEN, number, round_state="open")
            self.refresh(campaign)
            raise
        opened = None if plan is None else StoredRound(campaign, number + 1, "open", begins, plan.to_json())
        self._move(
            live,
            State.COLLECTED if plan is None else State.OPEN,
            number if plan is None else number + 1,
            round_state="closed",
            machine=machine.state(),
            tally=tally.to_bytes(),
            opened=opened,
        )

    def _move(self, live: Live, state: State, number: int, **more: Any) -> None:
        stored = live.stored
        if not self._store.move(Move(stored.id, stored.state, stored.round, state, number, **more)):
            raise StateError(f"campaign {stored.id} was moved by somebody else meanwhile; look at its status")

    def _turn(self, campaign: str) -> threading.Lock:
        """One operation a campaign at a time."""
        self.get(campaign)
        with self._guard:
            return self._turns.setdefault(campaign, threading.Lock())

    def _load(self, stored: StoredCampaign) -> Live:
        spec = spec_from_json(stored.spec)
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
    plan: Plan | None = None if now is None else now.plan
    document = {
        "format": "dither-campaign-1",
        "campaign": stored.id,
        "name": spec.name,
        "state": stored.state.value,
        "epsilon": spec.epsilon,
        "participation": spec.participation,
        "schema": spec.schema.to_json(),
        "schema_fingerprint": spec.schema.fingerprint,
        "start": 0.0 if now is None else now.start,
        "plan": None if plan is None else plan.to_json(),
    }
    return json.dumps(document, separators=(",", ":")).encode()
