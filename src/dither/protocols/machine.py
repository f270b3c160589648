"""The seam that every method meets: a pure state machine over rounds. No I/O, no clock, no participant noise.

From the schema, epsilon and the tallies so far a machine gives the next round's plan or a finished model. A simulator over a
table, the collection server and a cluster job drive the same object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from dither.errors import ReportError, StateError, TooFewAnswers
from dither.models import Model
from dither.protocols.parameters import build_parameters, plain
from dither.reports import Plan
from dither.schema import Schema, schema_from_json
from dither.tally import RoundTally, tally_from_bytes
from dither.tally.archive import pack, unpack
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


# --------------------
# The state of a machine between rounds: what it started from and the tallies it has closed.
#
# A machine is deterministic given these, so restoring starts it anew and closes the same tallies: identical results, and no
# method can forget a part of its state.

M = TypeVar("M")


def pack_state(method: str, campaign: Campaign, parameters: Any, closed: Sequence[RoundTally]) -> bytes:
    """Everything a machine needs to go on elsewhere."""
    meta = {
        "method": method,
        "schema": campaign.schema.to_json(),
        "epsilon": campaign.epsilon,
        "participants": campaign.participants,
        "seed": campaign.seed,
        "parameters": plain(parameters),
        "rounds": len(closed),
    }
    return pack(meta, {str(i): np.frombuffer(t.to_bytes(), np.uint8) for i, t in enumerate(closed)})


def unpack_state(state: bytes, method: str) -> tuple[Campaign, dict[str, Any], list[RoundTally]]:
    """The campaign, the parameters and the closed tallies of a saved state of this method."""
    meta, arrays = unpack(state)
    if meta.get("method") != method:
        raise ReportError(f"a state of method {meta.get('method')!r} cannot be restored as {method!r}")
    campaign = Campaign(schema_from_json(meta["schema"]), meta["epsilon"], meta["participants"], meta["seed"])
    return campaign, meta["parameters"], [tally_from_bytes(arrays[str(i)].tobytes()) for i in range(meta["rounds"])]


def replay(machine: type[M], parameters: type[Any], state: bytes) -> M:
    """A machine as it was when its state was saved: started anew, with the same tallies closed."""
    method: str = machine.method  # type: ignore[attr-defined]
    campaign, given, closed = unpack_state(state, method)
    again = machine.start(campaign, build_parameters(parameters, given, method))  # type: ignore[attr-defined]
    for tally in closed:
        again.close(tally)
    restored: M = again
    return restored


def check_close(open_plan: Plan | None, tally: RoundTally) -> None:
    """A tally can close the round it was made for, and only while that is open."""
    if open_plan is None:
        raise StateError("no round is open: the protocol has finished")
    if tally.plan.to_json() != open_plan.to_json():
        raise StateError(f"this tally is of another plan than the open round {open_plan.round}")
    if tally.participants == 0:
        raise TooFewAnswers(
            f"round {open_plan.round} was closed without a single report; leave it open until reports arrive"
        )
