"""Two small methods that exist for tests: several rounds that share the people out, and split reports kept as patterns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dither.fit import Independent, Marginal
from dither.methods import Diagnostics, Method, ProtocolMachine
from dither.reports import Plan, question


@dataclass(frozen=True)
class SyntheticParameters:
    """`rounds`: how many; `split`: everybody answers everything at a share of epsilon, kept as patterns."""

    rounds: int = 3
    split: bool = False


class Synthetic(ProtocolMachine[SyntheticParameters]):
    """Asks single attributes in several rounds; the second round on depends on what the first one counted."""

    method = "synthetic"
    parameters_class = SyntheticParameters

    def plan(self) -> Plan | None:
        number = len(self._closed)
        if number == self.parameters.rounds:
            return None
        schema, share = self.campaign.schema, 1 / self.parameters.rounds
        if self.parameters.split:
            part = self.campaign.epsilon / len(schema) * (1 - 1e-12)
            asked = tuple(question(schema, [n], part, "oue") for n in schema.names)
            return Plan(number, asked, split=True, population=share, tally="patterns")
        asked = tuple(
            question(schema, [n], self.campaign.epsilon, self._mechanism(number))
            for n in schema.names
        )
        return Plan(number, asked, (0.5, 0.3, 0.2), population=share)

    def _mechanism(self, number: int) -> str:
        return "grr" if number == 0 or self._closed[-1].participants % 2 else "oue"

    def model(self) -> Independent:
        schema = self.campaign.schema
        return Independent(schema, tuple(np.full(k, 1 / k) for k in schema.cardinalities))

    def measured(self) -> list[Marginal]:
        return []

    def diagnostics(self) -> Diagnostics:
        return Diagnostics.from_json({"counted": [t.participants for t in self._closed]})


METHOD = Method("synthetic", __name__, "Synthetic", "for tests", "for tests", "none")
