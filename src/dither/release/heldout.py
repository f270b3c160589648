"""How good a model is, without the real table: reports that the fit never saw.

A held-out question is a copy of a question with its own few participants. Its raw estimate y is unbiased for the truth t
and independent of the model m, so |y - m|^2 minus the variance of y is unbiased for |t - m|^2. The variance is known from the
mechanism: it is L(t) + t(1-t)/n per cell, L linear in t, and (L(y) + y(1-y)/n)/(1 - 1/n) estimates it without bias.

Reports are divided before they are tallied, which is why a plan with copied questions does it: it needs nothing of the driver,
costs no privacy (a participant still answers one question) and is exact for every mechanism. Counts that are already made could
be divided afterwards only where a report supports one cell: from the counts of bits alone nobody can tell which bits came in one
report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dither.errors import ParameterError
from dither.fit import AnswerCounts, Model
from dither.fit.pool import read_marginal
from dither.methods import ProtocolMachine
from dither.methods.holdout import HoldOut
from dither.types import Floats, JsonObject

Z95 = 1.959963984540054
TOO_NOISY = "too noisy to mean anything"
INFORMATIVE = "informative"


@dataclass(frozen=True)
class _HeldOutError:
    """An unbiased estimate of a mean squared error with its standard error; it may come out negative.

    `squared` is the mean over attribute sets of the sum over cells of (truth - model)^2; `by_set` has each set's own. `verdict`
    is "too noisy to mean anything" when the interval includes zero: then only `high` says something.
    """

    squared: float
    standard_error: float
    cells: float
    by_set: Mapping[tuple[str, ...], tuple[float, float]]
    n: int

    @property
    def low(self) -> float:
        return self.squared - Z95 * self.standard_error

    @property
    def high(self) -> float:
        return self.squared + Z95 * self.standard_error

    @property
    def verdict(self) -> str:
        return INFORMATIVE if self.low > 0 else TOO_NOISY

    @property
    def tvd_bound(self) -> float:
        """What the upper end says of the mean total variation distance: at most half the root of cells times squares."""
        return min(1.0, 0.5 * math.sqrt(self.cells * max(self.high, 0.0)))

    def sentence(self) -> str:
        """The finding in words."""
        if self.verdict == TOO_NOISY:
            return (
                f"The error estimated from {self.n:,} held-out reports is {TOO_NOISY}: it cannot be told from zero. The mean "
                f"total variation distance is at most {self.tvd_bound:.3f} with 97.5 % confidence."
            )
        return (
            f"By {self.n:,} held-out reports the mean squared error of a distribution is {self.squared:.2e} "
            f"(95 % interval {self.low:.2e} to {self.high:.2e}), which bounds the mean total variation distance by "
            f"{self.tvd_bound:.3f}."
        )

    def to_json(self) -> JsonObject:
        return {
            "squared_error": self.squared,
            "standard_error": self.standard_error,
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
            "tvd_at_most": self.tvd_bound,
            "reports": self.n,
            "sentence": self.sentence(),
        }


def unbiased_variances(answer: AnswerCounts, group: int, frequencies: Floats) -> Floats:
    """An unbiased estimate of the variance of each cell of a marginal read off an answer, sampling of people included."""
    mechanism, n = answer.question.mechanism, answer.n
    low, high = mechanism.group_variance(group, 0.0, n), mechanism.group_variance(group, 1.0, n)
    linear = low + (high - low) * frequencies
    return np.asarray((linear + frequencies * (1 - frequencies) / n) / (1 - 1 / n))


def heldout_error(model: Model, answers: Sequence[AnswerCounts], ways: int = 2) -> _HeldOutError:
    """The squared error of a model's marginals of `ways` attributes, from answers that it was not fitted to.

    Guarantee: unbiased for the mean over the attribute sets that were asked, for people who are a sample of a larger population,
    whatever the mechanism. The standard error adds those of sets read off the same reports as if they moved together, which
    never understates it.
    """
    found = _by_question(model, answers, ways)
    sets: dict[tuple[str, ...], list[_Part]] = {}
    for part in found:
        sets.setdefault(part.names, []).append(part)
    total = {names: sum(part.weight for part in parts) for names, parts in sets.items()}
    by_set = {
        names: (
            sum(part.weight * part.squared for part in parts) / total[names],
            math.sqrt(sum((part.weight * part.error) ** 2 for part in parts)) / total[names],
        )
        for names, parts in sets.items()
    }
    together: dict[int, float] = {}
    for part in found:
        together[part.question] = (
            together.get(part.question, 0.0) + part.weight * part.error / total[part.names]
        )
    return _HeldOutError(
        float(np.mean([squared for squared, _ in by_set.values()])),
        math.sqrt(sum(error**2 for error in together.values())) / len(by_set),
        float(np.mean([model.schema.cells(names) for names in by_set])),
        by_set,
        sum(answer.n for answer in _usable(answers, ways)),
    )


@dataclass(frozen=True)
class _Part:
    """What one answer says of one set of attributes; the weight depends on the plan only, so weighted means stay unbiased."""

    question: int
    names: tuple[str, ...]
    squared: float
    error: float
    weight: float


def _shared_covariance(answer: AnswerCounts, variances: Floats) -> float:
    """The covariance of two cells, if equal for all, that gives the sum of all cells its known variance."""
    mechanism, cells = answer.question.mechanism, variances.size
    total = mechanism.group_variance(mechanism.cells, 1.0, answer.n)
    return (total - float(variances.sum())) / (cells * (cells - 1))


def _usable(answers: Sequence[AnswerCounts], ways: int) -> list[AnswerCounts]:
    return [
        a
        for a in answers
        if len(a.question.attributes) >= ways and a.n > 1 and a.question.mechanism.exact_groups
    ]


def _demand_usable(answers: Sequence[AnswerCounts], ways: int) -> list[AnswerCounts]:
    usable = _usable(answers, ways)
    if not usable:
        raise ParameterError(
            f"no held-out report is about {ways} attributes together", where="ways", value=ways
        )
    return usable


def _by_question(model: Model, answers: Sequence[AnswerCounts], ways: int) -> list[_Part]:
    """For each answer and each set of attributes in it the squared error with its standard error."""
    schema = model.schema
    found = []
    for number, answer in enumerate(_demand_usable(answers, ways)):
        for names in combinations(sorted(answer.question.attributes, key=schema.index), ways):
            raw, group = read_marginal(schema, answer, names)
            squared, error = _squared_error(answer, group, raw, model.marginal(names))
            noise = answer.question.mechanism.group_variance(group, 1.0 / raw.size, answer.n)
            found.append(_Part(number, names, squared, error, 1.0 / noise**2))
    return found


def _squared_error(
    answer: AnswerCounts, group: int, raw: Floats, fitted: Floats
) -> tuple[float, float]:
    """Sum over cells of (y - m)^2 - var(y), and its standard error.

    Its variance is 2 sum of squared covariances of y + 4 d' cov d with d = t - m. Off the diagonal the covariances are taken as
    equal; exact for two cells and for even frequencies. The noise is taken at the model's frequencies, where it is smooth.
    """
    squares = (raw - fitted) ** 2 - unbiased_variances(answer, group, raw)
    variances = np.maximum(unbiased_variances(answer, group, fitted), 0.0)
    cells, shared = raw.size, _shared_covariance(answer, variances)
    noise = float((variances**2).sum()) + cells * (cells - 1) * shared**2
    signal = max(float(((variances - shared) * squares).sum()), 0.0)
    return float(squares.sum()), math.sqrt(2 * noise + 4 * signal)


def heldout_notes(machine: ProtocolMachine[Any], model: Model) -> JsonObject:
    """What a release states of the reports that were held out of its fit, if any were: for one and for two attributes.

    Where they do not suffice for an estimate it says so instead: the campaign is over, and nobody can be asked again.
    """
    if not isinstance(machine, HoldOut):
        return {}
    answers = machine.answers()
    found, skipped = {}, []
    for ways, what in ((1, "single attributes"), (2, "two attributes together")):
        if _usable(answers, ways):
            found[str(ways)] = heldout_error(model, answers, ways).to_json()
        elif any(
            len(question.attributes) >= ways
            for held in machine.held
            for question in held.plan.questions
        ):
            skipped.append(f"too few held-out answers to estimate the error of {what}")
    return {
        key: value for key, value in (("held_out", found), ("held_out_skipped", skipped)) if value
    }
