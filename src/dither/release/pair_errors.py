"""Standard errors of two attributes taken together, from what was asked: the intervals of a release that knows no truth.

They are those of the reports about the pair alone, as the single attributes' are: the noise that devices added and the choice of
who was asked. What a model gains by pooling other answers, or loses by its own shape, is not in them; `dither.bootstrap` has that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dither.estimate.pool import answered, pool
from dither.mechanisms import Mechanism
from dither.protocols.machine import Measured
from dither.protocols.state import unpack_state
from dither.release.marginal import measured_errors
from dither.release.release import Release
from dither.tally import CountTally, RoundTally
from dither.tally.archive import unpack
from dither.types import Floats

Errors = Callable[[Sequence[str]], Floats | None]


def pair_errors(release: Release) -> Errors:
    """A function from two attributes to the standard errors of their cells, None where no answer tells of both.

    In this order: the pair as the method measured it; every answer about a set that holds both, pooled; whole records of which
    each attribute was randomised on its own.
    """
    tallies = _tallies(release)
    answers = answered([tally for tally in tallies if isinstance(tally, CountTally)])
    asked = [set(answer.question.attributes) for answer in answers]
    whole = [tally for tally in tallies if not isinstance(tally, CountTally)]

    def errors(names: Sequence[str]) -> Floats | None:
        measured = measured_errors(release.measured, names, release.participants)
        if measured is not None:
            return measured
        if any(set(names) <= together for together in asked):
            pooled = pool(release.schema, answers, names)
            held = Measured(pooled.attributes, pooled.frequencies, pooled.standard_errors, pooled.n)
            return measured_errors([held], names, release.participants)
        for tally in whole:
            alone = {q.attributes[0]: q.mechanism for q in tally.plan.questions if len(q.attributes) == 1}
            if set(names) <= set(alone) and tally.participants:
                first, second = (alone[name] for name in names)
                return split_errors(first, second, release.model.marginal(names), tally.participants)
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


def _tallies(release: Release) -> list[RoundTally]:
    """The closed rounds of the finished protocol that a release carries, without what was held out of the fit."""
    state = release.state
    if state is None:
        return []
    meta, arrays = unpack(state)
    if "holdout" in meta:
        state = arrays["machine"].tobytes()
    return unpack_state(state, release.method)[2]
