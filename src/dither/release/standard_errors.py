"""Standard errors of a release's marginals, from what was measured and asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dither.fit import Marginal
from dither.fit.pool import answers_of, pool
from dither.mechanisms import Mechanism
from dither.methods import fitted_tallies
from dither.tally import CountTally
from dither.types import Floats

if TYPE_CHECKING:
    from dither.release.release import Release


def measured_errors(
    measured: Sequence[Marginal], attributes: Sequence[str], participants: int
) -> Floats | None:
    """The standard errors of exactly these attributes for all participants, axes in this order; None if not measured.

    A measurement's own standard error is that of the devices' noise. Where only n of N participants were asked, who
    they are adds f(1-f) (1/n - 1/N) to the variance (sampling without replacement), n being the effective sample size. Of
    several measurements of the same attributes the one with the most answers counts.
    """
    found = [m for m in measured if sorted(m.attributes) == sorted(attributes)]
    if not found:
        return None
    best = max(found, key=lambda m: m.n)
    f = np.clip(best.frequencies, 0.0, 1.0)
    # Answers that weigh less than others leave some of the choice also where everybody was asked.
    chance = max(0.0, 1 / best.sample_size - 1 / max(participants, 1)) if participants else 0.0
    errors = np.sqrt(best.variances + f * (1 - f) * chance)
    return np.transpose(errors, [best.attributes.index(name) for name in attributes])


Errors = Callable[[Sequence[str]], Floats | None]


def pair_errors(release: Release) -> Errors:
    """A function from two attributes to the standard errors of their cells, None where no answer tells of both.

    In this order: the pair as the method measured it; every answer about a set that holds both, pooled; whole records of which
    each attribute was randomised on its own. They are those of the reports about the pair alone: the noise that devices added
    and the choice of who was asked. What a model gains by pooling other answers, or loses by its own shape, is not in them:
    `dither.bootstrap` has it.
    """
    tallies = [] if release.state is None else fitted_tallies(release.state)
    answers = answers_of([tally for tally in tallies if isinstance(tally, CountTally)])
    asked = [set(answer.question.attributes) for answer in answers]
    whole = [tally for tally in tallies if not isinstance(tally, CountTally)]

    def errors(names: Sequence[str]) -> Floats | None:
        measured = measured_errors(release.measured, names, release.people)
        if measured is not None:
            return measured
        if any(set(names) <= together for together in asked):
            return measured_errors([pool(release.schema, answers, names)], names, release.people)
        for tally in whole:
            alone = {
                q.attributes[0]: q.mechanism for q in tally.plan.questions if len(q.attributes) == 1
            }
            if set(names) <= set(alone) and tally.participants:
                first, second = (alone[name] for name in names)
                return split_errors(
                    first, second, release.model.marginal(names), tally.participants
                )
        return None

    return errors


def split_errors(first: Mechanism, second: Mechanism, joint: Floats, n: int) -> Floats:
    """Standard errors of the products of two attributes' unbiased estimates, averaged over n people who report both.

    With u and w the single estimates of one person's cells a and b, independent given the record, the variance of the mean of u w
    is (E[u^2 w^2] - f_ab) / n, and E[u^2] is 1 plus the variance for people whose value is a, the variance alone for others.
    An EM fit is at least as precise for many people.
    """
    hit, miss = 1 + first.variance(1.0, 1), first.variance(0.0, 1)
    hit_, miss_ = 1 + second.variance(1.0, 1), second.variance(0.0, 1)
    rows, columns = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    squares = joint * hit * hit_ + (rows - joint) * hit * miss_ + (columns - joint) * miss * hit_
    squares = squares + (1 - rows - columns + joint) * miss * miss_
    return np.asarray(np.sqrt(np.maximum(squares - joint, 0.0) / n))
