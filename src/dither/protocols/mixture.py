"""The house method: a mixture of products fitted to all noisy pair marginals at once.

Each participant is asked one pair (or a larger set where that tells more, or one single attribute) at full epsilon with the best
mechanism for its cells. All raw estimates together, weighted by inverse variance, determine one joint model; the fit stops
where its estimated risk is least. See docs/explanation/mixture.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dither.errors import ParameterError, StateError
from dither.estimate import answered, pool
from dither.estimate.mixture_fit import FitOptions, FittedMixture, fit_mixture
from dither.estimate.pair_targets import pair_targets
from dither.models.mixture import Mixture
from dither.protocols.machine import Campaign, Measured
from dither.protocols.mixture_plan import planned_sets
from dither.protocols.parameters import build_parameters
from dither.protocols.state import check_close, pack_state, unpack_state
from dither.reports import Plan, question
from dither.tally import CountTally, RoundTally


@dataclass(frozen=True)
class Parameters:
    """All automatic unless set: `components` a start, `total` over all starts, `singles` the share asked one attribute."""

    components: int | None = None
    total: int = 600
    singles: float | None = None

    def __post_init__(self) -> None:
        if self.components is not None and not 1 <= self.components <= 2000:
            raise ParameterError(f"components={self.components}: must lie in 1..2000", where="components")
        if not 2 <= self.total <= 20_000:
            raise ParameterError(f"total={self.total}: must lie in 2..20000", where="total")
        if self.singles is not None and not 0 <= self.singles < 1:
            raise ParameterError(f"singles={self.singles}: must lie in [0, 1)", where="singles")


class MixtureProtocol:
    """One round of pair, set and single questions."""

    method = "mixture"

    def __init__(self, campaign: Campaign, parameters: Parameters) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self._closed: list[CountTally] = []

    @classmethod
    def start(cls, campaign: Campaign, parameters: Parameters) -> MixtureProtocol:
        """A campaign before its first round."""
        return cls(campaign, parameters)

    @cached_property
    def _round(self) -> Plan:
        schema, epsilon = self.campaign.schema, self.campaign.epsilon
        sets = planned_sets(schema.cardinalities, self.campaign.participants, epsilon, self.parameters.singles)
        questions = tuple(question(schema, [schema.names[i] for i in members], epsilon) for members, _ in sets)
        total = sum(share for _, share in sets)
        return Plan(0, questions, tuple(share / total for _, share in sets))

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    def close(self, tally: RoundTally) -> None:
        check_close(self.plan(), tally)
        assert isinstance(tally, CountTally)
        pair_targets(self.campaign.schema, answered([tally]))  # an error here names the attributes nobody answered about
        self._closed.append(tally)

    @cached_property
    def _fitted(self) -> FittedMixture:
        targets = pair_targets(self.campaign.schema, answered(self._closed))
        options = FitOptions(components=self.parameters.components, total=self.parameters.total)
        return fit_mixture(targets, np.random.default_rng([self.campaign.seed, 0x6D6978]), options)

    def model(self) -> Mixture:
        if self.plan() is not None:
            raise StateError("the round is still open: close it before asking for the model")
        fitted, stops = self._fitted, np.cumsum(self.campaign.schema.cardinalities)
        tables = np.split(fitted.components, stops[:-1], axis=1)
        return Mixture(self.campaign.schema, fitted.weights, tuple(t / t.sum(axis=1, keepdims=True) for t in tables))

    def measured(self) -> list[Measured]:
        if not self._closed:
            return []
        schema, answers = self.campaign.schema, answered(self._closed)
        return [
            Measured(p.attributes, p.frequencies, p.standard_errors, p.n)
            for p in (pool(schema, answers, [name]) for name in schema.names)
        ]

    def notes(self) -> dict[str, Any]:
        if self.plan() is not None:
            return {}
        notes: dict[str, Any] = {"fit": self._fitted.diagnostics}
        if not any(len(q.attributes) > 1 for t in self._closed for q in t.plan.questions):
            notes["fallbacks"] = [
                "pairs would be noise at this epsilon and number of participants, so single attributes were asked "
                "and the model takes them as independent"
            ]
        return notes

    def state(self) -> bytes:
        return pack_state(self.method, self.campaign, self.parameters, self._closed)

    @classmethod
    def restore(cls, state: bytes) -> MixtureProtocol:
        campaign, parameters, closed = unpack_state(state, cls.method)
        machine = cls.start(campaign, build_parameters(Parameters, parameters, cls.method))
        for tally in closed:
            machine.close(tally)
        return machine
