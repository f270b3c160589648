"""NoIncremental: PrivIncr with one round of pairs instead of T, the baseline of its paper (section 6.1).

Everything else is PrivIncr's, so that the two differ in the rounds alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from dither.models.junction_tree import JunctionTree
from dither.protocols.machine import Campaign, Measured, pack_state, replay
from dither.protocols.privincr import plan as privincr_plan
from dither.protocols.privincr.machine import PrivIncr
from dither.reports import Plan
from dither.tally import RoundTally


@dataclass(frozen=True)
class Parameters:
    """PrivIncr's parameters without the rounds; see there."""

    omega: float = 0.5
    threshold: Literal["calibrated", "paper"] = "calibrated"
    phi: float | None = None
    alpha: float = 0.05
    significance: float = 2.0
    mechanism: Literal["best", "oue", "grr", "sue", "olh", "subset"] = "best"
    shares: Literal["root", "cells", "uniform"] = "root"
    singles: float = 0.3
    fit: Literal["joint", "paper"] = "joint"
    max_clique_cells: int | None = None
    factor_cells: int | None = None

    def __post_init__(self) -> None:
        self.with_one_round()

    def with_one_round(self) -> privincr_plan.Parameters:
        """The same, as PrivIncr takes them."""
        return privincr_plan.Parameters(rounds=1, **{f.name: getattr(self, f.name) for f in fields(self)})


class NoIncremental:
    """One round about all pairs, one about cliques."""

    method = "noincremental"

    def __init__(self, campaign: Campaign, parameters: Parameters) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self._machine = PrivIncr.start(campaign, parameters.with_one_round())
        self._closed: list[RoundTally] = []

    @classmethod
    def start(cls, campaign: Campaign, parameters: Parameters) -> NoIncremental:
        """A campaign before its first round."""
        return cls(campaign, parameters)

    def plan(self) -> Plan | None:
        return self._machine.plan()

    def close(self, tally: RoundTally) -> None:
        self._machine.close(tally)
        self._closed.append(tally)

    def model(self) -> JunctionTree:
        return self._machine.model()

    def measured(self) -> list[Measured]:
        return self._machine.measured()

    def notes(self) -> dict[str, Any]:
        return self._machine.notes()

    def state(self) -> bytes:
        return pack_state(self.method, self.campaign, self.parameters, self._closed)

    @classmethod
    def restore(cls, state: bytes) -> NoIncremental:
        return replay(cls, Parameters, state)
