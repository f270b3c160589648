"""The seam to storage: campaigns, rounds, tokens and reports. SQLite and PostgreSQL meet it and pass one contract suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dither.errors import DitherError

if TYPE_CHECKING:
    from dither.collector.audit import AuditLog
    from dither.collector.keys import KeyTable
    from dither.collector.publications import PublicationTable
    from dither.collector.sessions import SessionTable

ANSWER_SECONDS = (
    5.0  # what a sender's reports and a look at readiness wait for the database at most
)
WORK_SECONDS = 60.0  # what an operator's single step may take: a move, a count, a page of reports, a lot of tokens
TIDY_SECONDS = 900.0  # writing a round anew
LAYOUT_SECONDS = 3600.0  # carrying a store of an earlier layout forward


class StoreAway(DitherError):
    """The database cannot be reached or failed; nothing is known about what was being written. Try again later."""


class StoreBusy(StoreAway):
    """The database undid a transaction in favour of another one; the same again may work at once."""


class StoreFull(DitherError):
    """The disk under the database is full; what was being written is not stored."""


class StoreUntidy(StoreAway):
    """Traces of the order of arrival could not be removed now, because somebody else reads the database."""


class StoreFailure(Exception):
    """The database refused a statement in a way nobody foresaw. It says what failed and where, never what was stored."""


class State(StrEnum):
    """The life of a campaign. `campaigns.py` draws the transitions."""

    DRAFT = "draft"
    OPEN = "open"
    CLOSING = "closing"
    COLLECTED = "collected"
    FINALISED = "finalised"


class Outcome(StrEnum):
    """What became of one report."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    ANSWERED = "answered"  # in an earlier round: one report of each participant in all
    ROUND_CLOSED = "round-closed"
    ROUND_CLOSING = "round-closing"  # it may open again, so nothing is decided about the report
    UNKNOWN_TOKEN = "unknown-token"
    NOT_THIS_ROUND = "not-this-round"
    WRONG_QUESTION = "wrong-question"
    MALFORMED = "malformed"

    @property
    def accepted(self) -> bool:
        """Whether the report is in the store, now or from an earlier try."""
        return self in (Outcome.STORED, Outcome.DUPLICATE)


class Row(NamedTuple):
    """A report as it is stored."""

    report_id: bytes
    question: int
    payload: bytes


@dataclass(frozen=True)
class Batch:
    """Reports of one round to be stored together; `token_hashes` where tokens are issued, one per row.

    With `once` a report's id is the same in every round, and none is stored that an earlier round has.
    """

    campaign: str
    round: int
    rows: Sequence[Row]
    token_hashes: Sequence[bytes] | None = None
    once: bool = False


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign: what it was created from, where it stands, and its protocol's saved state."""

    id: str
    spec: dict[str, object]
    state: State
    round: int
    machine: bytes
    moves: int = 0  # how often it was moved


@dataclass(frozen=True)
class StoredRound:
    """A round: its plan, the share of places before it, and, once closed, its tally.

    `closes` is when it closes by itself (seconds since 1970, in whole hours or minutes); `held`, while it is closing,
    that it waits for a tally counted elsewhere.
    """

    campaign: str
    number: int
    state: str  # "draft", "open", "closing" or "closed"
    start: float
    plan: dict[str, object]
    tally: bytes | None = None
    closes: float | None = None
    held: bool = False


@dataclass(frozen=True)
class Move:
    """One transition of a campaign, applied as a whole or not at all, and only from the state it expects.

    With `moves` it is also refused if anybody moved the campaign since: a tally taken before a closing was taken back must not
    end the closing that came after.
    """

    campaign: str
    from_state: State
    from_round: int
    to_state: State
    to_round: int
    round_state: str | None = None  # the new state of round `from_round`
    machine: bytes | None = None
    tally: bytes | None = None  # of round `from_round`
    opened: StoredRound | None = None
    release: bytes | None = None
    moves: int | None = None  # how often the campaign had been moved when this one was decided
    held: bool = False  # round `from_round` waits for a tally counted elsewhere
    closes: float | None = (
        None  # when round `from_round` closes by itself, if that is known from now on
    )

    @property
    def said(self) -> str:
        """The transition in words, for the audit log."""
        return f"{self.from_state.value}, round {self.from_round}, to {self.to_state.value}, round {self.to_round}"


class Position(NamedTuple):
    """Where a campaign stands, and how often it was moved to get there."""

    state: State
    round: int
    moves: int


class Part(NamedTuple):
    """What one collector has counted of a round in one epoch; None while that is not known, empty if nobody will ever know."""

    epoch: int
    worker: str  # empty: everything up to the end of this epoch, whoever stored it
    tally: bytes | None


class Store(Protocol):
    """Whatever keeps a collection. Every method commits before it returns; none keeps a half-done change.

    None waits for the database for ever: what serves senders comes back within `ANSWER_SECONDS`, the rest within the times above.
    """

    shared: bool  # whether other collectors may use it at the same time
    keys: KeyTable
    sessions: SessionTable
    audit: AuditLog
    publications: PublicationTable

    def positions(self) -> dict[str, Position]:
        """Where every campaign stands."""

    def await_change(self, seconds: float) -> None:
        """Wait until somebody has moved or made a campaign, or this long; at once if that may have been missed."""

    def turn(self, campaign: str) -> AbstractContextManager[None]:
        """Keeps other collectors from moving the campaign meanwhile, as far as the database can; `Move.moves` is what decides."""

    def create_campaign(self, campaign: StoredCampaign, first: StoredRound) -> None: ...
    def campaign(self, campaign: str) -> StoredCampaign | None: ...
    def campaigns(self) -> list[StoredCampaign]: ...
    def rounds(self, campaign: str) -> list[StoredRound]:
        """All rounds so far, in order."""

    def move(self, move: Move) -> bool:
        """Apply a transition; False, and no change, if the campaign is not where the move expects it."""

    def delete(self, campaign: str, moves: int) -> bool:
        """Delete a campaign that takes no reports, with its rounds, reports, tokens and release, if nobody has moved it since.

        Then its files hold none of its reports any more, unless `StoreAway` or `StoreFull` says that this could not be done.
        """

    def release(self, campaign: str) -> bytes | None: ...
    def add_tokens(self, campaign: str, hashes: Sequence[bytes]) -> None: ...
    def add_reports(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        """Store reports of open rounds in one transaction; one outcome per report. On return they are on disk."""

    def reports(
        self, campaign: str, number: int, block: int = 1 << 16, after: bytes = b""
    ) -> Iterator[list[Row]]:
        """The stored reports of a round in the order of their ids, from the first id above `after` on, some at a time."""

    def stored_among(self, campaign: str, ids: Sequence[bytes]) -> set[bytes]:
        """Return the ids that a committed report of the campaign has, in whichever round."""

    def count(self, campaign: str, number: int) -> int: ...
    def answers(self, campaign: str, number: int) -> dict[int, int]:
        """How many reports of a round answer each question; -1 stands for reports that answer all of them."""

    def digest(self, campaign: str, number: int) -> tuple[int, int]:
        """How many reports a round has, and their digest as `dither.tally.counting` defines it."""

    def settle(self, campaign: str, number: int) -> None:
        """Wait until no transaction that adds to a round is under way, such as one that was given up in its commit."""

    def tidy(self, campaign: str, number: int) -> None:
        """Remove what the order of arrival may have left in the files of a closed round, and of those left over from before.

        A round that could not be done, for whatever reason, stays in `untidied`, is tried again at the next call and when the store
        is opened.
        """

    def untidied(self, campaign: str) -> set[int]:
        """The closed rounds of which the files may still tell the order of arrival."""

    def check(self) -> None:
        """Raise `StoreAway` or `StoreFull` unless the store could take reports now."""

    def close(self) -> None:
        """Close it, without waiting for a database that does not answer; operations under way in other threads fail."""
