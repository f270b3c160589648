"""The method `mean`: the mean of one number per participant.

Every device rounds its number at random and without bias to one of several levels, evenly
spaced over the public range, and reports the level with noise. With two levels and randomised
response this is Duchi's mechanism; with many levels and a sliding window of outputs the
piecewise one (PM). The hybrid (HM) assigns participants to one of the two by a coin independent
of the number, here the participation token.

References: Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018; Wang et al.,
"Collecting and analyzing multidimensional data with local differential privacy", ICDE 2019 (PM, algorithm 2; HM, eq. 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np

from dither.checks import check_choice, check_whole
from dither.errors import ParameterError, SchemaError, TooFewAnswers
from dither.fit import Marginal, normal_interval
from dither.mechanisms import GRIDS, GRR, HYBRID_FROM, Mechanism, Piecewise, SquareWave
from dither.methods.machine import Campaign, ProtocolMachine
from dither.reports import Plan, Question
from dither.schema import Attribute, Schema
from dither.tally import CountTally, RoundTally
from dither.types import Floats, JsonObject

LEVELS = (
    257  # rounding to them adds at most 4 millionths of the squared range to a report's variance
)


@dataclass(frozen=True)
class _MeanParameters:
    """`mechanism`: duchi, piecewise or hybrid; `levels`: to how many the piecewise part rounds."""

    mechanism: str = "hybrid"
    levels: int = LEVELS

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, GRIDS)
        check_whole("levels", self.levels, 2, SquareWave.max_cells)


@dataclass(frozen=True)
class MeanAnswer:
    """An unbiased mean with the empirical standard error, of noise and spread of the numbers.

    It is not clipped to the range, which would bias it.
    """

    estimate: float
    standard_error: float
    people: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A two-sided interval."""
        low, high = normal_interval(
            np.array([self.estimate]), np.array([self.standard_error]), level
        )
        return float(low[0]), float(high[0])

    def to_json(self) -> JsonObject:
        """Plain JSON values, with the 95 % interval."""
        low, high = self.interval()
        return {
            "estimate": self.estimate,
            "low": low,
            "high": high,
            "standard_error": self.standard_error,
            "people": self.people,
        }


def mean_answer_from_json(data: JsonObject) -> MeanAnswer:
    """The inverse; an error unless the figures are numbers of their kind."""
    estimate, error = float(data["estimate"]), float(data["standard_error"])
    if not math.isfinite(estimate) or not math.isfinite(error) or error < 0:
        raise ValueError(f"a mean of {estimate} with the standard error {error}")
    return MeanAnswer(estimate, error, check_whole("people", data["people"], 1))


def wave_of(levels: int, epsilon: float) -> SquareWave:
    """The piecewise mechanism's window over levels, as a mechanism of cells."""
    fine = Piecewise.for_epsilon(epsilon, levels)
    return SquareWave(levels, fine.width, fine.base, fine.threshold_bits)


def output_places(mechanism: Mechanism) -> Floats:
    """The unbiased position of each output in the range, where 0 to 1 is the range."""
    if isinstance(mechanism, SquareWave):
        intercept, slope = mechanism.window.line
        reach = slope * (mechanism.cells - 1)
        return np.array(
            [float((output - intercept) / reach) for output in range(mechanism.counters)]
        )
    assert isinstance(mechanism, GRR)
    assert mechanism.cells == 2  # then the other level is the only other answer
    return np.array([float((side - mechanism.q) / (mechanism.p - mechanism.q)) for side in (0, 1)])


class Mean(ProtocolMachine[_MeanParameters]):
    """One round about one number; `answer` returns its mean."""

    method = "mean"
    parameters_class = _MeanParameters

    def __init__(self, campaign: Campaign, parameters: _MeanParameters) -> None:
        super().__init__(campaign, parameters)
        attribute = campaign.schema.attributes[0]
        if (
            len(campaign.schema) != 1
            or attribute.kind not in ("numeric", "duration")
            or attribute.missing
        ):
            raise SchemaError(
                "method 'mean' asks for one number that is never missing; give a schema of one such attribute",
                where=attribute.name,
            )
        self.low, self.high = float(attribute.edges[0]), float(attribute.edges[-1])

    @classmethod
    def schema_of(cls, name: str, low: float, high: float) -> Schema:
        """The schema for the mean of a number in [low, high]; numbers outside are clipped."""
        return Schema(
            (Attribute(name, "numeric", edges=(low, low + (high - low) / 2, high), clip=True),)
        )

    @cached_property
    def _round(self) -> Plan:
        names, epsilon, wanted = (
            self.campaign.schema.names,
            self.campaign.epsilon,
            self.parameters.mechanism,
        )
        fine = 1 - math.exp(-epsilon / 2) if epsilon > HYBRID_FROM else 0.0
        share = {"duchi": 0.0, "piecewise": 1.0, "hybrid": fine}[wanted]
        questions, shares = [], []
        if share > 0:
            questions.append(
                Question(names, wave_of(self.parameters.levels, epsilon), rounded=True)
            )
            shares.append(share)
        if share < 1:
            questions.append(Question(names, GRR.for_epsilon(2, epsilon), rounded=True))
            shares.append(1 - share)
        return Plan(0, tuple(questions), tuple(shares))

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    @property
    def epsilon(self) -> float:
        """What a participant spends."""
        return self._round.epsilon

    @property
    def bits(self) -> int:
        """What a participant sends at most."""
        return max(question.mechanism.report_bits for question in self._round.questions)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What the parts are called in the literature."""
        return tuple(
            "piecewise" if isinstance(question.mechanism, SquareWave) else "duchi"
            for question in self._round.questions
        )

    def _check_answers(self, tally: RoundTally) -> None:
        assert isinstance(tally, CountTally)
        if int(tally.n.max()) < 2:
            raise TooFewAnswers(
                "a mean with a standard error needs at least two answers to one question"
            )

    def answer(self) -> MeanAnswer:
        """The unbiased mean over all reports.

        A question with fewer than two answers is left out; the number of answers does not
        depend on the participants' numbers.
        """
        self._finished()
        (tally,) = self.counted
        place = square = total = 0.0
        for counts, question, n in zip(
            tally.counts, self._round.questions, tally.n.tolist(), strict=True
        ):
            if n < 2:
                continue
            says = output_places(question.mechanism)
            own = float(counts @ says) / n
            place, total = place + n * own, total + n
            square += n * float(counts @ (says - own) ** 2) / (n - 1)
        span = self.high - self.low
        return MeanAnswer(
            self.low + span * place / total, span * math.sqrt(square) / total, int(total)
        )

    def measured(self) -> list[Marginal]:
        return []  # a mean says nothing of how frequent any answer is

    def model(self) -> NoReturn:
        self._finished()
        raise ParameterError(
            "method 'mean' learns a mean, no distribution; choose another method for one"
        )
