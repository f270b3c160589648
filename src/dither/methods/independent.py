"""The baseline: one attribute per participant at full epsilon, modelled as independent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dither.checks import check_choice
from dither.fit import Independent, Marginal, answers_of, check_asked, pool, projection
from dither.mechanisms import POOLED_NAMES
from dither.methods.machine import ProtocolMachine
from dither.reports import Plan, Question, question
from dither.tally import CountTally, RoundTally


@dataclass(frozen=True)
class IndependentParameters:
    """`shares`: see `question_shares`; `projection`: how raw estimates become distributions."""

    mechanism: str = "best"
    shares: Literal["least-error", "equal-error", "uniform"] = "least-error"
    projection: Literal["norm-sub", "norm-mul"] = "norm-sub"

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, POOLED_NAMES)


def question_shares(questions: list[Question], rule: str) -> tuple[float, ...]:
    """The share of participants each question gets.

    A marginal of k cells estimated from n reports has an expected L1 error proportional to c/sqrt(n) with
    c^2 = k * (total variance of one report). Equal errors need n proportional to c^2; the least sum of errors c^(2/3).
    """
    if rule == "uniform":
        return (1.0 / len(questions),) * len(questions)
    squares = [q.mechanism.cells * q.mechanism.total_variance for q in questions]
    weights = [c2 if rule == "equal-error" else c2 ** (1 / 3) for c2 in squares]
    total = sum(weights)
    return tuple(w / total for w in weights)


class IndependentProtocol(ProtocolMachine[IndependentParameters]):
    """One round of single-attribute questions."""

    method = "independent"
    parameters_class = IndependentParameters

    @cached_property
    def _round(self) -> Plan:
        schema = self.campaign.schema
        questions = [
            question(schema, [n], self.campaign.epsilon, self.parameters.mechanism)
            for n in schema.names
        ]
        return Plan(0, tuple(questions), question_shares(questions, self.parameters.shares))

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    def _check_answers(self, tally: RoundTally) -> None:
        assert isinstance(tally, CountTally)
        check_asked(self.campaign.schema, answers_of([tally]))

    @cached_property
    def _pooled(self) -> list[Marginal]:
        answers = answers_of(self.counted)
        return [pool(self.campaign.schema, answers, [n]) for n in self.campaign.schema.names]

    def model(self) -> Independent:
        self._finished()
        make = projection(self.parameters.projection)
        return Independent(self.campaign.schema, tuple(make(p.frequencies) for p in self._pooled))

    def measured(self) -> list[Marginal]:
        return self._pooled if self._closed else []
