"""Marginals pooled over all questions that contain them, by inverse variance.

Reference: PrivIncr, eq. 6 to 13, with the weights that frequencies need: n/C for C cells summed
into one if noise dominates (erratum 6), n if sampling dominates. The weights use the variance
at the mean frequency 1/cells, not at the noisy estimate, so the average stays unbiased.
`weights="paper"` has the printed weights 1/(C n), for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from dither.errors import ParameterError, TooFewAnswers
from dither.fit.marginal import Marginal
from dither.mechanisms import Mechanism, kernels
from dither.reports import Question
from dither.schema import Schema
from dither.tally import CountTally
from dither.types import Floats, Integers

PoolWeights = Literal["variance", "paper"]


@dataclass(frozen=True)
class AnswerCounts:
    """A question with its tally: support counts of n reports."""

    question: Question
    support: Integers
    n: int


def answers_of(tallies: Sequence[CountTally]) -> list[AnswerCounts]:
    """All answered questions of some rounds, except questions about groups of values."""
    return [
        AnswerCounts(question, tally.counts[i], int(tally.n[i]))
        for tally in tallies
        for i, question in enumerate(tally.plan.questions)
        if tally.n[i] > 0 and not question.grouped
    ]


def read_marginal(
    schema: Schema, answer: AnswerCounts, attributes: Sequence[str]
) -> tuple[Floats, int]:
    """The marginal of some of a question's attributes, and the number of cells summed per cell."""
    question = answer.question
    raw = kernels.estimate(question.mechanism, answer.support, answer.n).frequencies
    table = raw.reshape([schema[a].cardinality for a in question.attributes])
    axes = [question.attributes.index(a) for a in attributes]
    summed = tuple(i for i in range(table.ndim) if i not in axes)
    kept = [i for i in range(table.ndim) if i in axes]
    marginal = table.sum(axis=summed) if summed else table
    return np.transpose(marginal, [kept.index(a) for a in axes]), raw.size // marginal.size


@dataclass(frozen=True)
class WeightedAnswer:
    """One question's estimate of a marginal, and its weight in the average over questions.

    Attributes:
        answer: The question and its counts.
        marginal: The raw estimate.
        group: How many of the question's cells are summed into one.
        weight: See `precision`; weights of several questions do not add up to one.
    """

    answer: AnswerCounts
    marginal: Floats
    group: int
    weight: float


def weigh_answers(
    schema: Schema,
    answers: Sequence[AnswerCounts],
    attributes: Sequence[str],
    *,
    poisson: bool = False,
) -> list[WeightedAnswer]:
    """The estimates of some attributes' marginal by every question that contains them all.

    Args:
        schema: The attributes.
        answers: All questions with their counts.
        attributes: Those of the marginal.
        poisson: See `precision`.
    """
    wanted, cells = set(attributes), schema.cells(attributes)
    found = []
    for answer in answers:
        if wanted <= set(answer.question.attributes):
            marginal, group = read_marginal(schema, answer, attributes)
            weight = precision(answer.question.mechanism, cells, answer.n, poisson=poisson)
            found.append(WeightedAnswer(answer, marginal, group, weight))
    return found


def check_asked(schema: Schema, answers: Sequence[AnswerCounts]) -> None:
    """Raise `TooFewAnswers` with the attributes that have no answers."""
    heard = {name for answer in answers for name in answer.question.attributes}
    silent = [name for name in schema.names if name not in heard]
    if silent:
        raise TooFewAnswers(
            f"nobody answered about {', '.join(silent)}; more participants are needed", value=silent
        )


def pool(
    schema: Schema,
    answers: Sequence[AnswerCounts],
    attributes: Sequence[str],
    weights: PoolWeights = "variance",
) -> Marginal:
    """The pooled marginal of some attributes over every question that contains them all.

    Args:
        schema: The attributes.
        answers: All questions with their counts.
        attributes: Those of the marginal.
        weights: "variance" weighs by `precision`, "paper" by PrivIncr's eq. 6 to 13, 1/(C n) for
            C summed cells (erratum 6).
    """
    parts = weigh_answers(schema, answers, attributes)
    if weights == "paper":
        parts = [replace(part, weight=1 / (part.group * part.answer.n)) for part in parts]
    if not parts:
        raise ParameterError(
            f"nobody was asked about {', '.join(attributes)} together",
            where="attributes",
            value=tuple(attributes),
        )
    weighted = np.zeros([schema[a].cardinality for a in attributes])
    total = 0.0
    for part in parts:
        weighted += part.weight * part.marginal
        total += part.weight
    frequencies = weighted / total
    variances = np.zeros_like(frequencies)
    inside, chance = np.clip(frequencies, 0.0, 1.0), 0.0
    for part in parts:
        variances += (part.weight / total) ** 2 * noise_variances(part.answer, part.group, inside)
        chance += (part.weight / total) ** 2 / part.answer.n
    return Marginal(
        tuple(attributes),
        frequencies,
        np.sqrt(variances),
        sum(part.answer.n for part in parts),
        effective_n=1 / chance,
    )


def precision(mechanism: Mechanism, cells: int, n: int, *, poisson: bool = False) -> float:
    """The weight of n answers in a pooled marginal.

    One over the variance, of noise and sampling, of a marginal with equally frequent cells of
    frequency f. Sampling has f(1-f)/n; with `poisson` it has f/n, as for independent counts.
    """
    even = 1.0 / cells
    sampling = even if poisson else even * (1 - even)
    return n / (_variance(mechanism, mechanism.cells // cells, even) + sampling)


def contrast_noise(
    schema: Schema, answers: Sequence[AnswerCounts], attributes: Sequence[str]
) -> tuple[float, float]:
    """The variance, of noise and sampling, of a contrast of a pooled marginal's cells.

    The cells are equally frequent. The second value is one over the effective number of
    answers. A contrast has weights with sum zero and sum of squares one. Answers whose cells
    have a constant sum (randomised response, subsets) are negatively correlated, so a contrast
    has c/(c-1) times the variance of a cell, for c cells. With other frequencies f the squares
    of all contrasts orthogonal to some directions have less variance, by the square of f's part
    in them over the effective number.
    """
    wanted, cells = set(attributes), schema.cells(attributes)
    noise = people = total = 0.0
    for answer in answers:
        if wanted <= set(answer.question.attributes):
            mechanism, group = answer.question.mechanism, answer.question.mechanism.cells // cells
            own = _variance(mechanism, group, 1.0 / cells)
            weight = precision(mechanism, cells, answer.n)
            whole = _variance(mechanism, mechanism.cells, 1.0)
            noise += (
                weight**2
                / answer.n
                * (cells * own + (1 - 1.0 / cells) - whole / cells)
                / (cells - 1)
            )
            people += weight**2 / answer.n
            total += weight
    return noise / total**2, people / total**2


def noise_variances(answer: AnswerCounts, group: int, frequencies: Floats) -> Floats:
    """The mechanism's variance of a marginal's cells, without that of sampling.

    Args:
        answer: The question and its counts.
        group: How many of the question's cells are summed into one.
        frequencies: Of the marginal's cells; the variance is linear in them.
    """
    low, high = (_variance(answer.question.mechanism, group, f) for f in (0.0, 1.0))
    return (low + (high - low) * frequencies) / answer.n


@lru_cache(maxsize=4096)
def _variance(mechanism: Mechanism, group: int, frequency: float) -> float:
    """The variance of a group of cells from one report, cached as plans repeat mechanisms."""
    return mechanism.group_variance(group, frequency, 1)
