"""Each participant is asked one attribute at full epsilon; the model takes attributes as independent.

The baseline every other method has to beat: it learns one-way marginals as well as they can be learnt and no dependence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from dither.errors import StateError
from dither.estimate import Pooled, answered, check_asked, pool, projection
from dither.mechanisms import total_variance
from dither.models import Independent
from dither.protocols.machine import Campaign, Measured, check_close, pack_state, replay
from dither.reports import Plan, Question, question
from dither.tally import CountTally, RoundTally


@dataclass(frozen=True)
class Parameters:
    """`shares`: who is asked what, see `question_shares`; `projection`: how raw estimates become distributions."""

    mechanism: Literal["best", "grr", "sue", "oue", "olh", "subset"] = "best"
    shares: Literal["least-error", "equal-error", "uniform"] = "least-error"
    projection: Literal["norm-sub", "norm-mul"] = "norm-sub"


def question_shares(questions: list[Question], rule: str) -> tuple[float, ...]:
    """The share of participants each question gets.

    A marginal of k cells estimated from n reports has an expected L1 error proportional to c/sqrt(n) with
    c^2 = k * (total variance of one report). Equal errors need n proportional to c^2; the least sum of errors c^(2/3).
    """
    if rule == "uniform":
        return (1.0 / len(questions),) * len(questions)
    squares = [q.mechanism.cells * total_variance(q.mechanism.p, q.mechanism.q, q.mechanism.cells) for q in questions]
    weights = [c2 if rule == "equal-error" else c2 ** (1 / 3) for c2 in squares]
    total = sum(weights)
    return tuple(w / total for w in weights)


class IndependentProtocol:
    """One round of single-attribute questions."""

    method = "independent"

    def __init__(self, campaign: Campaign, parameters: Parameters) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self._closed: list[RoundTally] = []

    @classmethod
    def start(cls, campaign: Campaign, parameters: Parameters) -> IndependentProtocol:
        """A campaign before its first round."""
        return cls(campaign, parameters)

    @cached_property
    def _round(self) -> Plan:
        schema = self.campaign.schema
        questions = [question(schema, [n], self.campaign.epsilon, self.parameters.mechanism) for n in schema.names]
        return Plan(0, tuple(questions), question_shares(questions, self.parameters.shares))

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    def close(self, tally: RoundTally) -> None:
        check_close(self.plan(), tally)
        assert isinstance(tally, CountTally)
        check_asked(self.campaign.schema, answered([tally]))
        self._closed.append(tally)

    @cached_property
    def _pooled(self) -> list[Pooled]:
        counted = [t for t in self._closed if isinstance(t, CountTally)]
        answers = answered(counted)
        return [pool(self.campaign.schema, answers, [n]) for n in self.campaign.schema.names]

    def model(self) -> Independent:
        if not self._closed:
            raise StateError("the round is still open: close it before asking for the model")
        make = projection(self.parameters.projection)
        return Independent(self.campaign.schema, tuple(make(p.frequencies) for p in self._pooled))

    def measured(self) -> list[Measured]:
        if not self._closed:
            return []
        return [Measured(p.attributes, p.frequencies, p.standard_errors, p.n) for p in self._pooled]

    def notes(self) -> dict[str, Any]:
        return {}

    def state(self) -> bytes:
        return pack_state(self.method, self.campaign, self.parameters, self._closed)

    @classmethod
    def restore(cls, state: bytes) -> IndependentProtocol:
        return replay(cls, Parameters, state)
