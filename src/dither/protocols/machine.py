"""The seam that every method meets: a pure state machine over rounds. No I/O, no clock, no participant noise.

From the schema, epsilon and the tallies so far a machine gives the next round's plan or a finished model. A simulator over a
table, the collection server and a cluster job drive the same object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from dither.models import Model
from dither.reports import Plan
from dither.schema import Schema
from dither.tally import RoundTally
from dither.types import Floats


@dataclass(frozen=True)
class Campaign:
    """What every method starts from: public facts, and a seed for its own (not the participants') choices."""

    schema: Schema
    epsilon: float
    participants: int
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """A marginal as it was measured: raw, unbiased frequencies with standard errors, one axis an attribute."""

    attributes: tuple[str, ...]
    frequencies: Floats
    standard_errors: Floats
    n: int


@runtime_checkable
class ProtocolMachine(Protocol):
    """A method in the middle of a campaign."""

    @property
    def method(self) -> str:
        """The name under which the registry knows it."""

    @property
    def campaign(self) -> Campaign: ...

    def plan(self) -> Plan | None:
        """The open round, the same at each call; None when finished."""

    def close(self, tally: RoundTally) -> None:
        """Take in the open round's tally and go on to the next round; an error when none is open or the plan differs."""

    def model(self) -> Model:
        """The finished model; an error while a round is open."""

    def measured(self) -> Sequence[Measured]:
        """What has been measured so far, pooled: at least every one-way marginal that was."""

    def notes(self) -> dict[str, Any]:
        """Facts about the run that a release states: fallbacks used, pairs kept, components chosen."""

    def state(self) -> bytes:
        """Everything needed to go on elsewhere with identical results."""

    @classmethod
    def restore(cls, state: bytes) -> Self: ...
