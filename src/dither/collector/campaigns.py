"""The life of campaigns: explicit states, and one transaction for each change.

    draft --open--> open --close-round--> closing --(tally taken)--> open, the next round
                     ^                     |    \\
                     '---- open, or the ---'     '--(no round left)--> collected --finalise--> finalised
                           protocol refuses

While a round is `closing`, no report is taken, none is refused for good, and the stored
ones do not change. Taking the tally and computing the next plan are pure, so a crash there
loses nothing, and a repeated `close-round` continues. Every operation may be repeated. A
collected campaign becomes a release: the fitted model, a synthetic table, the guarantee and
what was asked.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial

import numpy as np

from dither.checks import check_whole
from dither.client import read_announcement
from dither.collector import limits
from dither.collector.finished import make_release, zip_release
from dither.collector.rounds import OpenRound, announcement, open_round
from dither.collector.spec import CampaignSpec, NewCampaign
from dither.collector.store import (
    Move,
    State,
    Store,
    StoredCampaign,
    StoredRound,
    StoreFull,
    StoreUnavailable,
)
from dither.collector.tallies import rebuild
from dither.errors import DitherError, ParameterError, ReportError, StateError
from dither.methods import MethodRun, restore
from dither.reports import Plan, plan_from_json
from dither.reports import limits as wire_limits
from dither.reports.plan import closing_seconds, token_hash
from dither.tally import RoundTally, check_tally, tally_from_bytes
from dither.tally.archive import decoding, unpack

log = logging.getLogger("dither.collector")
_MAX_TOKENS = 1_000_000  # in one request


class NoCampaign(DitherError):
    """No campaign has this id."""

    def __init__(self, campaign: str) -> None:
        super().__init__(
            f"there is no campaign {campaign[:64]!r}", where="campaign", value=campaign
        )


@dataclass(frozen=True)
class CountedElsewhere:
    """A round's tally counted outside the collector, with number and digest of its reports."""

    tally: RoundTally
    reports: int
    digest: int


def read_counted(data: bytes) -> CountedElsewhere:
    """Read a tally as `dither campaign close-round --tally` sends it.

    Raises:
        ReportError: The bytes are not such a tally.
    """
    meta, arrays = unpack(data)
    with decoding("tally counted elsewhere"):
        tally = tally_from_bytes(arrays["tally"].astype(np.uint8, copy=False).tobytes())
        return CountedElsewhere(tally, int(meta["reports"]), int(meta["digest"], 16))


@dataclass(frozen=True)
class Live:
    """A campaign in memory: a copy of what the store holds."""

    stored: StoredCampaign
    spec: CampaignSpec
    rounds: tuple[StoredRound, ...]
    open_round: OpenRound | None
    public: bytes

    @cached_property
    def plans(self) -> list[Plan]:
        """The plan of each round so far."""
        return [plan_from_json(r.plan) for r in self.rounds]

    def counted(self, number: int) -> int:
        """Return the participants in the tally of a closed round; 0 without a tally."""
        tally = self.rounds[number].tally
        return 0 if tally is None else tally_from_bytes(tally).participants

    def is_over(self, number: int) -> bool:
        """Return whether the round existed and its tally was taken."""
        return number < len(self.rounds) and self.rounds[number].state == "closed"

    def round(self, number: int) -> OpenRound:
        """Return a round so far, open or not, as intake sees it."""
        return open_round(self.stored, self.spec, self.rounds[number], self.plans[number])


class Campaigns:
    """Creates and moves campaigns; their current state is read from memory.

    Args:
        store: Where campaigns are kept.
        compare: Called with each tally taken at a closing, to check a running tally.
        in_turn: Runs a write in the order of all writes.
        clock: Seconds since 1970; the store's time by default.
        took: Called with the seconds that each closing took.
    """

    def __init__(
        self,
        store: Store,
        compare: Callable[[str, RoundTally], None] = lambda campaign, tally: None,
        in_turn: Callable[[Callable[[], None]], None] = lambda write: write(),
        clock: Callable[[], float] | None = None,
        took: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._took = took
        self._store = store
        self._clock = clock or store.now
        self._compare = compare
        self._in_turn = in_turn
        self._live: dict[str, Live] = {}
        self._without_reports: set[str] = set()  # finalised campaigns whose reports are deleted
        self._turns: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        for stored in store.campaigns():
            self._keep(self._load(stored))

    def ids(self) -> list[str]:
        """Return the ids of all campaigns, sorted."""
        return sorted(self._live)

    def get(self, campaign: str) -> Live:
        """Return a campaign from memory.

        Raises:
            NoCampaign: No campaign has this id.
        """
        live = self._live.get(campaign)
        if live is None:
            raise NoCampaign(campaign)
        return live

    def current(self, campaign: str) -> Live:
        """Return a campaign including moves by other collectors."""
        return self.refresh(campaign) if self._store.shared else self.get(campaign)

    def refresh(self, campaign: str) -> Live:
        """Read a campaign from the store again."""
        stored = self._store.campaign(campaign)
        if stored is None:
            self._forget(campaign)
            raise NoCampaign(campaign)
        return self._keep(self._load(stored))

    def refresh_all(self) -> None:
        """Read what other collectors created or moved, and drop what they deleted."""
        ids_before = self.ids()
        positions = self._store.positions()
        for campaign in set(ids_before) - set(positions):
            self._forget(campaign)
        for campaign, position in positions.items():
            live = self._live.get(campaign)
            if live is None or live.stored.moves != position.moves:
                self.refresh(campaign)

    def _forget(self, campaign: str) -> None:
        with self._guard:
            self._live.pop(campaign, None)

    def _keep(self, live: Live) -> Live:
        """Keep a campaign unless another thread has read a later state of it."""
        with self._guard:
            known = self._live.get(live.stored.id)
            if known is None or known.stored.moves <= live.stored.moves:
                self._live[live.stored.id] = live
        return live

    def create(self, description: object) -> Live:
        """Create a campaign under a random id.

        Args:
            description: JSON of a `NewCampaign`.

        Raises:
            ParameterError: The description is not valid.
        """
        try:
            asked = NewCampaign.from_json(description)
            spec, machine, plan = asked.begin()
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            # Numbers beyond a float, deep nesting and the like pass the checks of the schema.
            raise ParameterError(
                f"the campaign cannot be read: {error}", value=description
            ) from None
        if spec.closes is not None and closing_seconds(spec.closes) <= self._clock():
            raise ParameterError(
                f"closes: {spec.closes} is over; name a later day",
                where="closes",
                value=spec.closes,
            )
        campaign = secrets.token_bytes(wire_limits.CAMPAIGN_BYTES).hex()
        state = State.DRAFT if asked.draft else State.OPEN
        closes = None if asked.draft else spec.round_closes(plan, 0.0, self._clock())
        first = StoredRound(campaign, 0, state.value, 0.0, plan.to_json(), closes=closes)
        stored = StoredCampaign(
            campaign, spec.to_json() | {"created": self._today()}, state, 0, machine.state()
        )
        _check_announced(announcement(stored, spec, open_round(stored, spec, first)), 0)
        self._store.create_campaign(stored, first)
        return self.refresh(campaign)

    def open(self, campaign: str) -> Live:
        """Open a draft, or revoke a closing in progress; an open campaign stays as it is."""
        with self._turn(campaign):
            live = self.refresh(campaign)
            stored = live.stored
            if stored.state is State.DRAFT:
                self._open_draft(live)
            elif stored.state is State.CLOSING:
                self._revoke_closing(live)
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
        reason: str = "",
    ) -> Live:
        """Close a round, take its tally and open the next one, if the protocol has one.

        A round that is closed already stays so.

        Args:
            campaign: The campaign.
            number: The round.
            counted: A tally to take instead of counting the stored reports.
            hold: Only stop taking reports, and wait for a tally.
            reason: Why the round closes automatically; empty for an operator's closing. An
                automatic closing leaves a held round alone.
        """
        with self._turn(campaign):
            live = self.refresh(campaign)
            stored = live.stored
            if number < 0 or number > stored.round:
                raise StateError(
                    f"campaign {campaign} is in round {stored.round}; "
                    f"round {number} is not open yet"
                )
            if number < stored.round or stored.state in (State.COLLECTED, State.FINALISED):
                return live
            if stored.state is State.DRAFT:
                raise StateError(f"campaign {campaign} is a draft; open it first")
            if counted is not None and counted.tally.plan.to_json() != live.rounds[number].plan:
                raise StateError(
                    f"the tally is of another plan; round {number} stays {stored.state.value}"
                )
            if reason and live.rounds[number].held:
                return live
            if stored.state is State.OPEN or (hold and not live.rounds[number].held):
                live = self._begin_closing(live, hold, reason)
            if hold:
                return live
            if counted is not None:
                self._check_counted(live, counted)
            begun = time.monotonic()
            self._tidy(live)
            self._take_tally(live, counted)
            seconds = time.monotonic() - begun
            self._took(seconds)
            log.info(
                "round %d of campaign %s is closed; that took %.1f s",
                number,
                campaign,
                seconds,
                extra={"day_only": True},
            )
            return self.refresh(campaign)

    def _begin_closing(self, live: Live, hold: bool, reason: str) -> Live:
        """Stop taking reports in the current round."""
        stored = live.stored
        closing = _step(stored, State.CLOSING, "closing")
        moved = self._store.move(replace(closing, held=hold, reason=reason))
        if moved and reason:
            _log_closing(stored, reason)
        live = self.refresh(stored.id)
        # A full round stops its intake without waiting for its turn: continue from there.
        is_closing = (live.stored.state, live.stored.round) == (State.CLOSING, stored.round)
        if not moved and (hold or not is_closing):
            raise _moved(stored.id)
        return live

    def stop_intake(self, campaign: str, number: int, reason: str) -> None:
        """Take no more reports in a round that is due: the first step of `close_round`.

        It waits for no other operation: an operation in progress closes the round itself, or
        the count of moves decides.
        """
        with self._guard:
            lock = self._turns.setdefault(campaign, threading.Lock())
        if not lock.acquire(blocking=False):
            return
        try:
            stored = self.get(campaign).stored
            if (stored.state, stored.round) == (State.OPEN, number):
                closing = replace(_step(stored, State.CLOSING, "closing"), reason=reason)
                if self._store.move(closing):
                    _log_closing(stored, reason)
                self.refresh(campaign)
        finally:
            lock.release()

    def _check_counted(self, live: Live, counted: CountedElsewhere) -> None:
        """Refuse a tally of other reports than the stored ones; the round stays closing."""
        reports, digest = self._store.digest(live.stored.id, live.stored.round)
        if (reports, digest) != (counted.reports, counted.digest):
            others = " other reports" if reports == counted.reports else ""
            raise StateError(
                f"the tally counts {counted.reports:,} reports, "
                f"round {live.stored.round} holds {reports:,}{others}; "
                "it takes no more now: export and count it again, or open it again"
            )
        check_tally(counted.tally, live.plans[live.stored.round], reports)

    def finalise(self, campaign: str, rows: int | None = None) -> Live:
        """Fit the model and store the release; a finalised campaign keeps the one it has.

        Args:
            campaign: The campaign.
            rows: Rows of the synthetic table; by default as many as participants, up to
                100,000.
        """
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
            made = _step(live.stored, State.FINALISED)
            self._move(replace(made, release=zip_release(release), finalised=self._today()))
            return self.refresh(campaign)

    def delete(self, campaign: str) -> None:
        """Delete a campaign that takes no reports: rounds, reports, tokens and release."""
        with self._turn(campaign):
            live = self.refresh(campaign)
            if live.stored.state is State.OPEN:
                raise StateError(
                    f"campaign {campaign} is open and takes reports; "
                    "hold it first (close-round --hold)"
                )
            try:
                if not self._store.delete(campaign, live.stored.moves):
                    raise _moved(campaign)
            except (StoreFull, StoreUnavailable):
                if self._store.campaign(campaign) is not None:
                    raise
                log.warning(
                    "campaign %s is deleted; its reports may stay in the database's files "
                    "for a while",
                    campaign,
                )
            self._forget(campaign)

    def delete_expired_reports(self) -> list[str]:
        """Delete reports whose days after the release are over; return their campaigns."""
        deleted = []
        for campaign in self.ids():
            live = self.get(campaign)
            days = live.spec.delete_reports_after
            if days is None or live.stored.state is not State.FINALISED:
                continue
            if campaign in self._without_reports:
                continue
            finalised_by = self._today(days)
            if self._store.delete_reports(campaign, finalised_by, self._today()):
                self._without_reports.add(campaign)
                deleted.append(campaign)
        return deleted

    def release(self, campaign: str) -> bytes:
        """Return the release of a finalised campaign, a zip file of its folder."""
        self.current(campaign)
        release = self._store.release(campaign)
        if release is None:
            raise StateError(f"campaign {campaign} has no release yet; finalise it first")
        return release

    def issue_tokens(self, campaign: str, count: int) -> list[str]:
        """Create tokens; the store keeps only their hashes.

        Hashes are stored in blocks, so that uploads continue in between. If that fails
        midway, the hashes stored so far belong to tokens that were never shown: useless, and
        harmless.
        """
        if self.current(campaign).spec.participation != "tokens":
            raise StateError(f"campaign {campaign} is open to everyone; it needs no tokens")
        check_whole("count", count, 1, _MAX_TOKENS)
        tokens = [secrets.token_bytes(wire_limits.TOKEN_BYTES) for _ in range(count)]
        # Sorted as a whole, so that no block shows which tokens were issued together.
        hashes = _in_order([token_hash(t) for t in tokens])
        for start in range(0, count, limits.TOKEN_BLOCK):
            block = hashes[start : start + limits.TOKEN_BLOCK]
            self._in_turn(partial(self._store.add_tokens, campaign, block))
        # In the audit log before any token is shown.
        self._store.audit.add("issue-tokens", campaign, f"{count:,} tokens")
        return [t.hex() for t in tokens]

    def _tidy(self, live: Live) -> None:
        """Remove traces of the order of arrival; without space on the disk, closing continues."""
        try:
            self._store.tidy(live.stored.id, live.stored.round)
        except (StoreFull, StoreUnavailable) as error:
            log.warning(
                "round %d of campaign %s is not tidied, its files may show the order of arrival: "
                "%s",
                live.stored.round,
                live.stored.id,
                error,
            )

    def _take_tally(self, live: Live, counted: CountedElsewhere | None) -> None:
        """Pass the closing round's tally to the protocol; if it refuses, reopen the round."""
        stored, number = live.stored, live.stored.round
        try:
            plan = live.plans[number]
            tally = counted.tally if counted else rebuild(self._store, stored.id, plan)
            self._compare(stored.id, tally)
            machine = restore(stored.machine)
            machine.close(tally)
            opened = self._next_round(live, machine)
        except DitherError:
            self._reopen(stored)
            self.refresh(stored.id)
            raise
        closed = _step(stored, State.COLLECTED, "closed")
        closed = replace(closed, machine=machine.state(), tally=tally.to_bytes())
        if opened is not None:
            closed = replace(closed, to_state=State.OPEN, to_round=number + 1, opened=opened)
        self._move(closed)

    def _next_round(self, live: Live, machine: MethodRun) -> StoredRound | None:
        """Return the round that the protocol asks for next, after all checks."""
        plan = machine.plan()
        if plan is None:
            return None
        stored, spec, number = live.stored, live.spec, live.stored.round
        start = live.rounds[number].start + live.plans[number].population
        spec.check_plan(plan, number + 1, start)
        closes = spec.round_closes(plan, start, self._clock())
        opened = StoredRound(stored.id, number + 1, "open", start, plan.to_json(), closes=closes)
        announced = announcement(stored, spec, open_round(stored, spec, opened))
        _check_announced(announced, number + 1)
        return opened

    def _open_draft(self, live: Live) -> None:
        stored, first = live.stored, live.rounds[0]
        closes = live.spec.round_closes(live.plans[0], first.start, self._clock())
        self._move(replace(_step(stored, State.OPEN, "open"), closes=closes))

    def _revoke_closing(self, live: Live) -> None:
        """Open a closing round again for an operator.

        A round whose time is over would close again at once: it no longer closes at a time.
        """
        current = live.rounds[live.stored.round]
        over = current.closes is not None and self._clock() >= current.closes
        reopened = _step(live.stored, State.OPEN, "open")
        self._move(replace(reopened, open_ended=over and not current.held))

    def _reopen(self, stored: StoredCampaign) -> None:
        self._move(_step(stored, State.OPEN, "open"))

    def _move(self, move: Move) -> None:
        if not self._store.move(move):
            raise _moved(move.campaign)

    @contextmanager
    def _turn(self, campaign: str) -> Iterator[None]:
        """Allow one operation per campaign at a time."""
        self.current(campaign)
        with self._guard:
            lock = self._turns.setdefault(campaign, threading.Lock())
        with lock, self._store.turn(campaign):
            yield

    def _today(self, days_ago: int = 0) -> str:
        seconds = self._clock() - days_ago * 86_400
        return datetime.fromtimestamp(seconds, UTC).date().isoformat()

    def _load(self, stored: StoredCampaign) -> Live:
        described = {key: value for key, value in stored.spec.items() if key != "created"}
        spec = CampaignSpec.from_json(described)
        rounds = tuple(self._store.rounds(stored.id))
        current = None
        if stored.state is State.OPEN:
            current = open_round(stored, spec, rounds[stored.round])
        public = announcement(stored, spec, current, self._store.epoch())
        return Live(stored, spec, rounds, current, public)


def _step(stored: StoredCampaign, to_state: State, round_state: str | None = None) -> Move:
    """Return a transition of the campaign as it is now that stays in its round."""
    at = stored.round
    return Move(stored.id, stored.state, at, to_state, at, round_state, moves=stored.moves)


def _log_closing(stored: StoredCampaign, reason: str) -> None:
    """Log an automatic closing with its day: its time may be that of the last report."""
    log.warning(
        "round %d of campaign %s closes automatically: %s",
        stored.round,
        stored.id,
        reason,
        extra={"day_only": True},
    )


def _moved(campaign: str) -> StateError:
    return StateError(f"campaign {campaign} was moved by another request; check its status")


def _in_order(hashes: list[bytes]) -> list[bytes]:
    """Sort in small steps: sorting all at once would hold the interpreter's lock too long."""
    by_first: list[list[bytes]] = [[] for _ in range(256)]
    for each in hashes:
        by_first[each[0]].append(each)
    return [each for group in by_first for each in sorted(group)]


def _check_announced(announcement: bytes, number: int) -> None:
    """Refuse an announcement that devices would refuse, by the check that they use."""
    if len(announcement) > wire_limits.PLAN_BYTES:
        parts = json.loads(announcement)
        schema, plan = (
            len(json.dumps(parts[key], separators=(",", ":"))) for key in ("schema", "plan")
        )
        raise ParameterError(
            f"round {number} would be announced in {len(announcement):,} bytes: {schema:,} of the "
            f"schema, {plan:,} of a plan of {len(parts['plan']['questions']):,} questions. Devices "
            f"read at most {wire_limits.PLAN_BYTES:,}; use shorter names and values, fewer attributes "
            "or another method",
            where="schema" if schema > plan else "questions",
            value=len(announcement),
        )
    try:
        read_announcement(announcement)
    except ReportError as error:
        raise ParameterError(
            f"no device would answer round {number}: {error}", where=error.where
        ) from None
