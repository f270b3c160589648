"""The interface to storage: campaigns, rounds, tokens and reports.

SQLite and PostgreSQL implement it and pass one contract suite
(`dither.lab.testing.StoreContract`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from dither.errors import DitherError
from dither.reports import Plan
from dither.tally import RoundTally

if TYPE_CHECKING:
    from dither.collector.audit import AuditLog
    from dither.collector.drafts import DraftTable
    from dither.collector.keys import KeyTable, SessionTable
    from dither.collector.publications import PublicationTable

T = TypeVar("T")
PlanOf = Callable[[str, int], Plan]  # of a campaign and the number of a round


class StoreUnavailable(DitherError):
    """The database cannot be reached or failed; it is unknown what was written. Try again later."""


class StoreBusy(StoreUnavailable):
    """The database rolled back a transaction in favour of another one; an immediate retry may work."""


class StoreFull(DitherError):
    """The disk under the database is full; what was being written is not stored."""


class StoreUntidy(StoreUnavailable):
    """Traces of the order of arrival could not be removed: another session reads the database."""


class StoreFailure(Exception):
    """The database refused a statement unexpectedly. The message never contains stored values."""


class State(StrEnum):
    """The state of a campaign. `campaigns.py` draws the transitions."""

    DRAFT = "draft"
    OPEN = "open"
    CLOSING = "closing"
    COLLECTED = "collected"
    FINALISED = "finalised"


class Outcome(StrEnum):
    """The result for one uploaded report."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    ANSWERED = "answered"  # in an earlier round: each participant reports once in all rounds
    ROUND_CLOSED = "round-closed"
    ROUND_CLOSING = "round-closing"  # the round may open again, so the sender should retry
    UNKNOWN_TOKEN = "unknown-token"
    NOT_THIS_ROUND = "not-this-round"
    WRONG_QUESTION = "wrong-question"
    MALFORMED = "malformed"

    @property
    def accepted(self) -> bool:
        """Whether the report is in the store, now or from an earlier upload."""
        return self in (Outcome.STORED, Outcome.DUPLICATE)


class Deletion(StrEnum):
    """The result of deleting one report by its receipt."""

    DELETED = "deleted"
    ABSENT = "absent"
    ROUND_CLOSED = "round-closed"
    ROUND_CLOSING = "round-closing"


class Row(NamedTuple):
    """A report as it is stored."""

    report_id: bytes
    question: int
    payload: bytes


@dataclass(frozen=True)
class Batch:
    """Reports of one round to be stored together.

    Attributes:
        token_hashes: One per row where tokens are issued, otherwise None.
        once: A report's id is the same in every round, and a report that an earlier round
            holds is refused.
    """

    campaign: str
    round: int
    rows: Sequence[Row]
    token_hashes: Sequence[bytes] | None = None
    once: bool = False


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign: its specification, its state, and the saved state of its protocol.

    `moves` counts the transitions so far.
    """

    id: str
    spec: dict[str, object]
    state: State
    round: int
    machine: bytes
    moves: int = 0


@dataclass(frozen=True)
class StoredRound:
    """A round: its plan, the share of places before it, and, once closed, its tally.

    Attributes:
        state: "draft", "open", "closing" or "closed".
        closes: Time at which it closes automatically, in seconds since 1970, rounded to
            whole hours or minutes.
        held: A closing round that waits for a tally counted outside the collector.
    """

    campaign: str
    number: int
    state: str
    start: float
    plan: dict[str, object]
    tally: bytes | None = None
    closes: float | None = None
    held: bool = False


@dataclass(frozen=True)
class Move:
    """One transition of a campaign, applied atomically and only from the expected state.

    Attributes:
        round_state: New state of round `from_round`.
        tally: Tally of round `from_round`.
        moves: Number of transitions when this one was decided; the move is refused if the
            campaign was moved since. Without this check, a tally taken before a closing was
            revoked could end a later closing.
        held: Round `from_round` waits for a tally counted outside the collector.
        closes: Time at which round `from_round` closes automatically, if known from now on.
        open_ended: Round `from_round` no longer closes at a time.
        reason: Why the collector makes an automatic transition, for the audit log.
        finalised: The day on which the campaign is finalised.
    """

    campaign: str
    from_state: State
    from_round: int
    to_state: State
    to_round: int
    round_state: str | None = None
    machine: bytes | None = None
    tally: bytes | None = None
    opened: StoredRound | None = None
    release: bytes | None = None
    moves: int | None = None
    held: bool = False
    closes: float | None = None
    open_ended: bool = False
    reason: str = ""
    finalised: str | None = None

    @property
    def description(self) -> str:
        """The transition in words, for the audit log."""
        before = f"{self.from_state.value}, round {self.from_round}"
        after = f"{self.to_state.value}, round {self.to_round}"
        return f"{before}, to {after}" + (f": {self.reason}" if self.reason else "")


class Position(NamedTuple):
    """The state and round of a campaign, and the number of transitions so far."""

    state: State
    round: int
    moves: int


class InTurn(Protocol):
    """Runs a function in the writing thread, between two commits, and returns its result."""

    def __call__(self, function: Callable[[], T]) -> T: ...


class RunningTally(Protocol):
    """Tallies of open rounds, kept up to date while reports are stored.

    Every tally equals the stored reports to the integer. `committed` and `forget` are
    called in the writing thread, the others in any other thread.
    """

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Add the new reports of a batch that was just committed."""

    def forget(self, campaign: str, number: int) -> None:
        """Drop the kept tally of a round, because a commit has an unknown outcome."""

    def publish(self) -> None:
        """Share this process's counts with the other collectors of the store, if they wait."""

    def read(self, campaign: str, plan: Plan) -> RoundTally:
        """Return the tally of everything committed in a round so far."""

    def close(self, campaign: str, plan: Plan) -> RoundTally | None:
        """Return the kept tally of a round that takes no more reports, if any, and drop it."""


class Store(Protocol):
    """What a collector needs from a database.

    Every method commits before it returns; none leaves a partial change. No method waits
    without a limit: methods that serve senders return within `ANSWER_SECONDS`, the others
    within the other limits of `dither.collector.limits`.

    Attributes:
        shared: Other collectors may use the store at the same time.
    """

    shared: bool
    keys: KeyTable
    sessions: SessionTable
    audit: AuditLog
    publications: PublicationTable
    drafts: DraftTable

    def running_tally(self, plan_of: PlanOf, in_turn: InTurn) -> RunningTally:
        """Return the running tallies of one collector, in the way that suits this store.

        Args:
            plan_of: Finds the plan of a campaign's round.
            in_turn: Runs a function in the collector's writing thread.
        """

    def now(self) -> float:
        """Return the database's time in seconds since 1970; it decides all dates."""

    def positions(self) -> dict[str, Position]:
        """Return the position of every campaign."""

    def await_change(self, seconds: float) -> None:
        """Wait until a campaign was created or moved, or `seconds`.

        Returns at once if a change may have been missed.
        """

    def turn(self, campaign: str) -> AbstractContextManager[None]:
        """Keep other collectors from moving the campaign, as a courtesy; `Move.moves` decides."""

    def create_campaign(self, campaign: StoredCampaign, first: StoredRound) -> None:
        """Store a new campaign and its first round."""

    def campaign(self, campaign: str) -> StoredCampaign | None:
        """Return a campaign, or None if it does not exist."""

    def campaigns(self) -> list[StoredCampaign]:
        """Return all campaigns, ordered by id."""

    def rounds(self, campaign: str) -> list[StoredRound]:
        """Return all rounds so far, in order."""

    def move(self, move: Move) -> bool:
        """Apply a transition; return False, without a change, if the campaign is elsewhere."""

    def delete(self, campaign: str, moves: int) -> bool:
        """Delete a campaign that takes no reports, if it was not moved since.

        Rounds, reports, tokens and release go; the files hold none of its reports afterwards.

        Raises:
            StoreUnavailable, StoreFull: The files could not be rewritten now.
        """

    def delete_reports(self, campaign: str, finalised_by: str, today: str) -> bool:
        """Delete reports and token hashes of a campaign that was finalised by a day.

        Tallies and release stay. The files hold none of its reports afterwards.

        Args:
            campaign: The campaign.
            finalised_by: The latest day of finalising, in ISO format.
            today: The day to record.

        Returns:
            Whether the reports are deleted, now or before.
        """

    def release(self, campaign: str) -> bytes | None:
        """Return the release of a finalised campaign."""

    def add_tokens(self, campaign: str, hashes: Sequence[bytes]) -> None:
        """Store the hashes of issued tokens."""

    def add_reports(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        """Store reports of open rounds in one transaction, durably; one outcome per report."""

    def reports(
        self, campaign: str, number: int, block: int = 1 << 16, after: bytes = b""
    ) -> Iterator[list[Row]]:
        """Yield blocks of a round's reports with ids above `after`, in order."""

    def stored_among(self, campaign: str, ids: Sequence[bytes]) -> set[bytes]:
        """Return the ids that a committed report of the campaign has, in any round."""

    def delete_report(self, campaign: str, report_id: bytes) -> tuple[Deletion, int]:
        """Delete one report of an open round.

        Returns:
            The result, and the number of the report's round (-1 if it is absent).
        """

    def epoch(self) -> str:
        """Return the name of the restore that made this store, or an empty text."""

    def begin_epoch(self) -> None:
        """Record that the store was restored outside Dither, as by PostgreSQL's archive."""

    def count(self, campaign: str, number: int) -> int:
        """Return the number of reports of a round."""

    def answers(self, campaign: str, number: int, in_turn: InTurn | None = None) -> dict[int, int]:
        """Return the number of reports by question; -1 means reports that answer all of them.

        Args:
            campaign: The campaign.
            number: The round.
            in_turn: Fixes the moment of the count: all reports committed before the function
                passed to it runs are counted, and none that this process commits later.
        """

    def digest(self, campaign: str, number: int) -> tuple[int, int]:
        """Return the number of reports and their digest as `dither.tally.counting` defines it."""

    def settle(self, campaign: str, number: int) -> None:
        """Wait for transactions that add to a round, such as one that timed out in its commit."""

    def tidy(self, campaign: str, number: int) -> None:
        """Remove traces of the order of arrival from the files of closed rounds.

        A round that could not be rewritten stays in `untidied` and is tried again at the next
        call and when the store is opened.
        """

    def untidied(self, campaign: str) -> set[int]:
        """Return the closed rounds whose files may still show the order of arrival."""

    def check(self) -> None:
        """Raise `StoreUnavailable` or `StoreFull` unless the store can take reports now."""

    def close(self) -> None:
        """Close the store at once; operations in other threads fail."""
