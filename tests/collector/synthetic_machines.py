"""Two small methods that exist for tests: several rounds that share the people out, and split reports kept as patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.models import Independent
from dither.protocols.machine import Campaign, Measured, check_close, pack_state, unpack_state
from dither.protocols.parameters import build_parameters
from dither.protocols.registry import Method
from dither.reports import Plan, question
from dither.tally import RoundTally


@dataclass(frozen=True)
class Parameters:
    """`rounds`: how many; `split`: everybody answers everything at a share of epsilon, kept as patterns."""

    rounds: int = 3
    split: bool = False


class Synthetic:
    """Asks single attributes in several rounds; the second round on depends on what the first one counted."""

    method = "synthetic"

    def __init__(self, campaign: Campaign, parameters: Parameters) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self._closed: list[RoundTally] = []

    @classmethod
    def start(cls, campaign: Campaign, parameters: Parameters) -> Synthetic:
        return cls(campaign, parameters)

    def plan(self) -> Plan | None:
        number = len(self._closed)
        if number == self.parameters.rounds:
            return None
        schema, share = self.campaign.schema, 1 / self.parameters.rounds
        if self.parameters.split:
            part = self.campaign.epsilon / len(schema) * (1 - 1e-12)
            asked = tuple(question(schema, [n], part, "oue") for n in schema.names)
            return Plan(number, asked, split=True, population=share, tally="patterns")
        asked = tuple(question(schema, [n], self.campaign.epsilon, self._mechanism(number)) for n in schema.names)
        return Plan(number, asked, (0.5, 0.3, 0.2), population=share)

    def _mechanism(self, number: int) -> str:
        return "grr" if number == 0 or self._closed[-1].participants % 2 else "oue"

    def close(self, tally: RoundTally) -> None:
        check_close(self.plan(), tally)
        self._closed.append(tally)

    def model(self) -> Independent:
        schema = self.campaign.schema
        return Independent(schema, tuple(np.full(k, 1 / k) for k in schema.cardinalities))

    def measured(self) -> list[Measured]:
        return []

    def notes(self) -> dict[str, Any]:
        return {"counted": [t.participants for t in self._closed]}

    def state(self) -> bytes:
        return pack_state(self.method, self.campaign, self.parameters, self._closed)

    @classmethod
    def restore(cls, state: bytes) -> Synthetic:
        campaign, parameters, closed = unpack_state(state, cls.method)
        machine = cls.start(campaign, build_parameters(Parameters, parameters, cls.method))
        for tally in closed:
            machine.close(tally)
        return machine


METHOD = Method("synthetic", __name__, "Synthetic", "for tests", "for tests", "none")
