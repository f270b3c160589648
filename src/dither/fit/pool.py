"""Marginals read off every question that contains them, averaged with weights inverse to their variance.

Reference: PrivIncr, eq. 6 to 13, with the weights that frequencies need: n/C for C cells summed into one while noise rules
(erratum 6), n where only the choice of who was asked is left. The weights use the variance at the mean frequency 1/cells, not
at the noisy estimate, so the average stays unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dither.errors import ParameterError, TooFewAnswers
from dither.fit.marginal import Marginal
from dither.mechanisms import Mechanism, kernels
from dither.reports import Question
from dither.schema import Schema
from dither.tally import CountTally
from dither.types import Floats, Integers


@dataclass(frozen=True)
class AnswerCounts:
    """A question with its tally: support counts of n reports."""

    question: Question
    support: Integers
    n: int


def answers_of(tallies: Sequence[CountTally]) -> list[AnswerCounts]:
    """All questions of some rounds that anybody answered; those about groups of values are for the fit that asked them."""
    return [
        AnswerCounts(question, tally.counts[i], int(tally.n[i]))
        for tally in tallies
        for i, question in enumerate(tally.plan.questions)
        if tally.n[i] > 0 and not question.grouped
    ]


def read_marginal(
    schema: Schema, answer: AnswerCounts, attributes: Sequence[str]
) -> tuple[Floats, int]:
    """The marginal of some of a question's attributes, and how many cells were summed into each of its cells."""
    question = answer.question
    raw = kernels.estimate(question.mechanism, answer.support, answer.n).frequencies
    table = raw.reshape([schema[a].cardinality for a in question.attributes])
    axes = [question.attributes.index(a) for a in attributes]
    summed = tuple(i for i in range(table.ndim) if i not in axes)
    kept = [i for i in range(table.ndim) if i in axes]
    marginal = table.sum(axis=summed) if summed else table
    return np.transpose(marginal, [kept.index(a) for a in axes]), raw.size // marginal.size


def check_asked(schema: Schema, answers: Sequence[AnswerCounts]) -> None:
    """An error names the attributes that nobody answered about."""
    heard = {name for answer in answers for name in answer.question.attributes}
    silent = [name for name in schema.names if name not in heard]
    if silent:
        raise TooFewAnswers(
            f"nobody answered about {', '.join(silent)}; more participants are needed", value=silent
        )


def pool(schema: Schema, answers: Sequence[AnswerCounts], attributes: Sequence[str]) -> Marginal:
    """The pooled marginal of some attributes over every question that contains them all."""
    wanted = set(attributes)
    holding = [a for a in answers if wanted <= set(a.question.attributes)]
    if not holding:
        raise ParameterError(
            f"nobody was asked about {', '.join(attributes)} together",
            where="attributes",
            value=tuple(attributes),
        )
    cells = schema.cells(attributes)
    weighted = np.zeros([schema[a].cardinality for a in attributes])
    total = 0.0
    parts: list[tuple[AnswerCounts, int, float]] = []
    for answer in holding:
        marginal, group = read_marginal(schema, answer, attributes)
        weight = precision(answer.question.mechanism, cells, answer.n)
        weighted += weight * marginal
        total += weight
        parts.append((answer, group, weight))
    frequencies = weighted / total
    variances = np.zeros_like(frequencies)
    inside, chance = np.clip(frequencies, 0.0, 1.0), 0.0
    for answer, group, weight in parts:
        variances += (weight / total) ** 2 * _group_variances(answer, group, inside)
        chance += (weight / total) ** 2 / answer.n
    return Marginal(
        tuple(attributes),
        frequencies,
        np.sqrt(variances),
        sum(a.n for a in holding),
        effective_n=1 / chance,
    )


def precision(mechanism: Mechanism, cells: int, n: int) -> float:
    """One over the variance, of noise and of who was asked, of a marginal of so many cells read off n answers, all cells being
    equally frequent: the weight of these answers in a pooled marginal."""
    even = 1.0 / cells
    return n / (_variance(mechanism, mechanism.cells // cells, even) + even * (1 - even))


def contrast_noise(
    schema: Schema, answers: Sequence[AnswerCounts], attributes: Sequence[str]
) -> tuple[float, float]:
    """The variance, noise and chance of who was asked, of a contrast of a pooled marginal's cells if all were equally frequent,
    and one over the number of people that counts.

    A contrast has weights that add up to zero and whose squares add up to one. Answers whose cells always add up to the same
    (randomised response, subsets) are negatively correlated, so a contrast varies more than a cell: by c/(c-1) for c cells.
    With other frequencies f the squares of all contrasts orthogonal to some directions have less variance, by the square of
    f's part in them over the people.
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


def _group_variances(answer: AnswerCounts, group: int, frequencies: Floats) -> Floats:
    """The variance at each frequency; it is linear in the frequency for every mechanism."""
    low, high = (_variance(answer.question.mechanism, group, f) for f in (0.0, 1.0))
    return (low + (high - low) * frequencies) / answer.n


@lru_cache(maxsize=4096)
def _variance(mechanism: Mechanism, group: int, frequency: float) -> float:
    """The variance of a group of cells from one report: a plan has many questions and few kinds of them."""
    return mechanism.group_variance(group, frequency, 1)
