"""Whether the rounds of a collection agree: early and late visitors may be different people.

Where whoever arrives is asked in the open round, who answers which round is not drawn by lot. What can be checked is checked: an
attribute asked in several rounds has an unbiased estimate in each, with a covariance known from the mechanism (noise) and the
number of people (who came). If all came from one population, the differences of the rounds' estimates, weighted by the inverse of
their covariance, have a chi-square distribution: Wald's test of homogeneity.

Guarantee: with estimates that are near normal (some dozen people per round) each attribute's p-value is uniform if rounds agree,
and the chance that any attribute is named although all agree is at most `LEVEL` (Holm's procedure, whatever depends on what).
Agreement is not proved by it: rounds may differ in what was asked in one of them alone, or by less than the noise hides.

References: Wald, "Tests of statistical hypotheses concerning several parameters", Trans. AMS 54, 1943; Holm, "A simple
sequentially rejective multiple test procedure", Scand. J. Statistics 6, 1979.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from dither.fit import AnswerCounts, Model
from dither.mechanisms import kernels
from dither.tally import CountTally, RoundTally
from dither.types import Floats, JsonObject

LEVEL = 0.01  # the chance of naming any attribute although all rounds agree
MIN_PEOPLE = 30  # of a round about an attribute: of fewer the estimates are not near normal
MAX_GROUPS = 12  # of an attribute's values; of more, neighbours are taken together
MAX_QUESTIONS = 12  # of a round about an attribute: those that tell most
_RANK = 1e-9  # below this part of the largest, a direction of the covariance has no variance at all


@dataclass(frozen=True)
class RoundsTest:
    """The test of one attribute: the rounds that asked about it, the statistic, its degrees of freedom and the p-value."""

    attribute: str
    rounds: tuple[int, ...]
    statistic: float
    degrees: int

    @property
    def p(self) -> float:
        """The chance of estimates at least so different, if all rounds asked people of one population."""
        return float(chdtrc(self.degrees, self.statistic))


@dataclass(frozen=True)
class _Estimate:
    """The groups' frequencies in one round, and their covariance."""

    frequencies: Floats
    covariance: Floats


def rounds_tests(model: Model, tallies: Sequence[RoundTally]) -> list[RoundsTest]:
    """A test for each attribute that at least two rounds asked enough people about; variances are taken at the model."""
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
    """The attributes of which the rounds differ, by Holm's procedure: all of them together err with at most this chance."""
    ordered = sorted(tests, key=lambda test: test.p)
    named = []
    for i, test in enumerate(ordered):
        if test.p > level / (len(ordered) - i):
            break
        named.append(test.attribute)
    return named


def rounds_notes(model: Model, tallies: Sequence[RoundTally]) -> JsonObject:
    """What a release states of it, if any attribute was asked in two rounds."""
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
    if named:
        said = (
            f"The rounds differ about {', '.join(named)}, further than their noise: early and late participants answered "
            "differently."
        )
    else:
        said = (
            f"No difference between the rounds can be told in the {count} asked in more than one (least p-value "
            f"{least.p:.2g}, {least.attribute}); differences below the noise stay hidden."
        )
    return {"rounds_agree": {"differ": named, "level": LEVEL, "tests": listed, "sentence": said}}


def _answers(tally: CountTally) -> list[AnswerCounts]:
    """The questions of a round whose estimates are linear in the counts.

    Different people answer them; but in a split plan each person answers all, so of those about one attribute the first counts.
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
    """Ones where a value is in a group, a row per group: every value its own, or neighbours of about equal weight."""
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
    """What the questions of one round about an attribute say together; None if too few people answered them."""
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
    """One question's estimate of the groups: linear in its cells, so its covariance follows from that of the cells."""
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
    kept = (
        variances > _RANK * variances[-1]
    )  # estimates that always add up to one do not vary together
    along = directions.T[kept] @ differences
    return float((along**2 / variances[kept]).sum()), int(kept.sum())
