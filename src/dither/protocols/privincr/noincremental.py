"""NoIncremental: PrivIncr with one round of pairs instead of T, the baseline of its paper (section 6.1).

Everything else is PrivIncr's, so that the two differ in the rounds alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from dither.estimate import Marginal
from dither.models.junction_tree import JunctionTree
from dither.protocols.machine import Campaign, ProtocolMachine
from dither.protocols.privincr.machine import PrivIncr
from dither.protocols.privincr.plan import PrivIncrParameters
from dither.reports import Plan
from dither.tally import RoundTally


@dataclass(frozen=True)
class NoIncrementalParameters:
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

    def with_one_round(self) -> PrivIncrParameters:
        """The same, as PrivIncr takes them."""
        return PrivIncrParameters(rounds=1, **asdict(self))


class NoIncremental(ProtocolMachine[NoIncrementalParameters]):
    """One round about all pairs, one about cliques."""

    method = "noincremental"
    parameters_class = NoIncrementalParameters

    def __init__(self, campaign: Campaign, parameters: NoIncrementalParameters) -> None:
        super().__init__(campaign, parameters)
        self._machine = PrivIncr(campaign, parameters.with_one_round())

    def plan(self) -> Plan | None:
        return self._machine.plan()

    def _check_answers(self, tally: RoundTally) -> None:
        self._machine.close(tally)

    def model(self) -> JunctionTree:
        return self._machine.model()

    def measured(self) -> list[Marginal]:
        return self._machine.measured()

    def notes(self) -> dict[str, Any]:
        return self._machine.notes()
