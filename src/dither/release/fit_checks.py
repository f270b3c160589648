"""Checks of a fit without the real table: held-out reports, and agreement of the rounds.

**Held-out error.** A held-out question is a copy of a question with separate
participants. Its raw estimate y is unbiased for the truth t and independent of the
model m, so |y - m|^2 minus the variance of y is unbiased for |t - m|^2. The variance is
known from the mechanism: it is L(t) + t(1-t)/n per cell, L linear in t, and (L(y) +
y(1-y)/n)/(1 - 1/n) is an unbiased estimate of it.

A plan with copied questions divides the reports before they are tallied. It needs no
support by the driver, costs no privacy (a participant still answers one question) and
is exact for every mechanism. Counts could be divided afterwards only if a report
supports one cell: counts of bits do not show which bits came in one report.

**Agreement of rounds.** Participants asked on arrival are not assigned to rounds at
random: early and late ones may differ. An attribute asked in several rounds has an
unbiased estimate in each, with a covariance known from the mechanism (noise) and the
number of people (sampling). If all rounds sampled one population, the differences of
their estimates, weighted by the inverse of their covariance, have a chi-square
distribution: Wald's test of homogeneity.

Guarantee: with nearly normal estimates (some dozens of people per round) each
attribute's p-value is uniform if rounds agree, and the probability of naming any
attribute although all agree is at most `LEVEL` (Holm's procedure, under any
dependence). The test does not prove agreement: rounds may differ in attributes that
only one of them asked about, or by less than the noise.

References: Wald, "Tests of statistical hypotheses concerning several parameters",
Trans. AMS 54, 1943; Holm, "A simple sequentially rejective multiple test procedure",
Scand. J. Statistics 6, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import chdtrc

from dither.errors import ParameterError
from dither.fit import AnswerCounts, Model
from dither.fit.pool import noise_variances, read_marginal
from dither.mechanisms import kernels
from dither.methods import MethodRun
from dither.tally import CountTally, RoundTally
from dither.types import Floats, JsonObject

Z95 = 1.959963984540054
TOO_NOISY = "too noisy to mean anything"
INFORMATIVE = "informative"


@dataclass(frozen=True)
class _HeldOutError:
    """An unbiased estimate of a mean squared error, possibly negative, with its standard error.

    `squared` is the mean over attribute sets of the sum over cells of (truth -
    model)^2; `by_set` has that of each set. `verdict` is "too noisy to mean anything"
    if the interval includes zero: then only `high` is informative.
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
        """Bound on the mean total variation distance: half the root of cells times `high`."""
        return min(1.0, 0.5 * math.sqrt(self.cells * max(self.high, 0.0)))

    def sentence(self) -> str:
        """The result in one sentence."""
        if self.verdict == TOO_NOISY:
            return (
                f"The error estimated from {self.n:,} held-out reports is {TOO_NOISY}: its interval "
                "includes zero. The mean total variation distance is at most "
                f"{self.tvd_bound:.3f} with 97.5 % confidence."
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
    """Unbiased estimates of the variances of a marginal's cells, including sampling."""
    n = answer.n
    noise = noise_variances(answer, group, frequencies)
    return np.asarray((noise + frequencies * (1 - frequencies) / n) / (1 - 1 / n))


def heldout_error(model: Model, answers: Sequence[AnswerCounts], ways: int = 2) -> _HeldOutError:
    """Estimate the squared error of a model's marginals from answers not used in its fit.

    Guarantee: unbiased for the mean over the attribute sets that were asked, for
    participants who are a sample of a larger population, for every mechanism. Errors of
    sets read off the same reports are added as if perfectly correlated, which never
    understates the standard error.

    Args:
        model: The fitted model.
        answers: Held-out answers.
        ways: Number of attributes of each marginal.
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
    """One answer's estimate for one set of attributes.

    The weight depends on the plan only, so weighted means stay unbiased.
    """

    question: int
    names: tuple[str, ...]
    squared: float
    error: float
    weight: float


def _shared_covariance(answer: AnswerCounts, variances: Floats) -> float:
    """The common covariance of two cells that yields the known variance of their total."""
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
    """For each answer and each set of attributes in it: squared error and standard error."""
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

    Its variance is 2 sum of squared covariances of y + 4 d' cov d with d = t - m. Off
    the diagonal the covariances are taken as equal; exact for two cells and for even
    frequencies. The noise is taken at the model's frequencies, where it is smooth.
    """
    squares = (raw - fitted) ** 2 - unbiased_variances(answer, group, raw)
    variances = np.maximum(unbiased_variances(answer, group, fitted), 0.0)
    cells, shared = raw.size, _shared_covariance(answer, variances)
    noise = float((variances**2).sum()) + cells * (cells - 1) * shared**2
    signal = max(float(((variances - shared) * squares).sum()), 0.0)
    return float(squares.sum()), math.sqrt(2 * noise + 4 * signal)


def heldout_notes(run: MethodRun, model: Model) -> JsonObject:
    """A release's notes on held-out reports, for one and for two attributes; empty without any.

    If the reports do not suffice for an estimate, the note says so instead of raising
    an error, because the campaign is over.
    """
    if not run.holdout:
        return {}
    answers = run.held_answers()
    found, skipped = {}, []
    for ways, what in ((1, "single attributes"), (2, "two attributes together")):
        if _usable(answers, ways):
            found[str(ways)] = heldout_error(model, answers, ways).to_json()
        elif any(
            len(question.attributes) >= ways
            for held in run.held
            for question in held.plan.questions
        ):
            skipped.append(f"too few held-out answers to estimate the error of {what}")
    return {
        key: value for key, value in (("held_out", found), ("held_out_skipped", skipped)) if value
    }


# Probability of naming any attribute although all rounds agree.
LEVEL = 0.01
# Estimates of fewer people in a round are not close to normal.
MIN_PEOPLE = 30
# Attributes with more values are tested on groups of neighbours.
MAX_GROUPS = 12
# A round's most precise questions about an attribute; more would slow the test down.
MAX_QUESTIONS = 12
# Eigenvalues of the covariance below this share of the largest count as zero.
_RANK = 1e-9


@dataclass(frozen=True)
class RoundsTest:
    """The test of one attribute: its rounds, the statistic, degrees of freedom and p-value."""

    attribute: str
    rounds: tuple[int, ...]
    statistic: float
    degrees: int

    @property
    def p(self) -> float:
        """Probability of estimates at least this different if the rounds agree."""
        return float(chdtrc(self.degrees, self.statistic))


@dataclass(frozen=True)
class _Estimate:
    """The groups' frequencies in one round, and their covariance."""

    frequencies: Floats
    covariance: Floats


def rounds_tests(model: Model, tallies: Sequence[RoundTally]) -> list[RoundsTest]:
    """Test each attribute that two or more rounds asked enough people about.

    Variances are computed at the model's frequencies.
    """
    by_round = {t.plan.round: _answers(t) for t in tallies if isinstance(t, CountTally)}
    found = []
    for name in model.schema.names:
        groups = _groups(model.marginal([name]))
        estimates = {
            n: e
            for n, answers in by_round.items()
            if (e := _estimate(model, answers, name, groups))
        }
        if len(estimates) > 1:
            found.append(RoundsTest(name, tuple(estimates), *_wald(list(estimates.values()))))
    return found


def rounds_that_differ(tests: Sequence[RoundsTest], level: float = LEVEL) -> list[str]:
    """The attributes whose rounds differ, with a family-wise error of `level` (Holm)."""
    ordered = sorted(tests, key=lambda test: test.p)
    named = []
    for i, test in enumerate(ordered):
        if test.p > level / (len(ordered) - i):
            break
        named.append(test.attribute)
    return named


def rounds_notes(model: Model, tallies: Sequence[RoundTally]) -> JsonObject:
    """A release's notes on the tests; empty if no attribute was asked in two rounds."""
    tests = rounds_tests(model, tallies)
    if not tests:
        return {}
    named = rounds_that_differ(tests)
    least = min(tests, key=lambda test: test.p)
    listed = [
        {
            "attribute": t.attribute,
            "rounds": list(t.rounds),
            "statistic": t.statistic,
            "degrees": t.degrees,
            "p": t.p,
        }
        for t in sorted(tests, key=lambda test: test.p)
    ]
    count = f"{len(tests)} attribute{'s' if len(tests) > 1 else ''}"
    sentence = (
        f"No difference between the rounds was detected in the {count} asked in more than one "
        f"(least p-value {least.p:.2g}, {least.attribute}); differences below the noise stay hidden."
    )
    if named:
        sentence = (
            f"The rounds differ about {', '.join(named)}, further than their noise: early and late "
            "participants answered differently."
        )
    return {
        "rounds_agree": {"differ": named, "level": LEVEL, "tests": listed, "sentence": sentence}
    }


def _answers(tally: CountTally) -> list[AnswerCounts]:
    """The questions of a round whose estimates are linear in the counts.

    Different people answer them; but in a split plan each person answers all, so of
    those about one attribute the first counts.
    """
    found: list[AnswerCounts] = []
    seen: set[str] = set()
    for i, question in enumerate(tally.plan.questions):
        if (
            question.grouped
            or question.rounded
            or not question.mechanism.exact_groups
            or tally.n[i] < 2
        ):
            continue
        if not (tally.plan.split and seen & set(question.attributes)):
            found.append(AnswerCounts(question, tally.counts[i], int(tally.n[i])))
            seen |= set(question.attributes)
    return found


def _groups(frequencies: Floats) -> Floats:
    """Indicator rows of groups of values: single values, or neighbours of about equal weight."""
    cells = frequencies.size
    if cells <= MAX_GROUPS:
        return np.eye(cells)
    ends = np.cumsum(frequencies / frequencies.sum())
    group = np.minimum((MAX_GROUPS * (ends - frequencies / 2)).astype(int), MAX_GROUPS - 1)
    whole = (group[None, :] == np.arange(MAX_GROUPS)[:, None]).astype(float)
    return np.asarray(whole[whole.any(axis=1)], dtype=np.float64)


def _estimate(
    model: Model, answers: Sequence[AnswerCounts], name: str, groups: Floats
) -> _Estimate | None:
    """The pooled estimate of one round about an attribute; None if too few people answered."""
    holding = [a for a in answers if name in a.question.attributes]
    holding = sorted(holding, key=lambda a: -a.n / a.question.mechanism.total_variance)[
        :MAX_QUESTIONS
    ]
    if sum(a.n for a in holding) < MIN_PEOPLE:
        return None
    parts = [_read(model, answer, name, groups) for answer in holding]
    weights = np.array([1.0 / np.trace(part.covariance) for part in parts])
    weights /= weights.sum()
    frequencies = sum(w * part.frequencies for w, part in zip(weights, parts, strict=True))
    covariance = sum(w**2 * part.covariance for w, part in zip(weights, parts, strict=True))
    return _Estimate(np.asarray(frequencies), np.asarray(covariance))


def _read(model: Model, answer: AnswerCounts, name: str, groups: Floats) -> _Estimate:
    """One question's estimate of the groups, with the covariance that follows from its cells."""
    question, mechanism = answer.question, answer.question.mechanism
    truth = model.marginal(question.attributes)
    axis = question.attributes.index(name)
    shape = [1] * truth.ndim
    shape[axis] = -1
    flat = truth.ravel()
    weights = [np.broadcast_to(row.reshape(shape), truth.shape).ravel() for row in groups]
    raw = kernels.estimate(mechanism, answer.support, answer.n).frequencies.ravel()

    def noise(weight: Floats) -> float:
        return mechanism.weighted_variance(weight, flat, answer.n)

    alone = [noise(w) for w in weights]
    covariance = np.diag(np.array(alone))
    for i in range(len(weights)):
        for j in range(i):
            shared = (noise(weights[i] + weights[j]) - alone[i] - alone[j]) / 2
            covariance[i, j] = covariance[j, i] = shared
    shares = np.array([float(w @ flat) for w in weights])
    drawn = (np.diag(shares) - np.outer(shares, shares)) / answer.n
    return _Estimate(np.array([float(w @ raw) for w in weights]), covariance + drawn)


def _wald(estimates: Sequence[_Estimate]) -> tuple[float, int]:
    """The statistic of all rounds against the last one, and its degrees of freedom."""
    last = estimates[-1]
    size, others = last.frequencies.size, len(estimates) - 1
    differences = np.concatenate([e.frequencies - last.frequencies for e in estimates[:-1]])
    covariance = np.kron(np.ones((others, others)), last.covariance)
    for i, estimate in enumerate(estimates[:-1]):
        own = slice(i * size, (i + 1) * size)
        covariance[own, own] += estimate.covariance
    variances, directions = np.linalg.eigh(covariance)
    # Estimates that always add up to one have no variance in one direction.
    kept = variances > _RANK * variances[-1]
    along = directions.T[kept] @ differences
    return float((along**2 / variances[kept]).sum()), int(kept.sum())
