"""How exact a round's answers are by now, and will be when as many have come as were planned for.

The figure is the mean standard error of one cell, by the mechanisms' own variance at a frequency of one in so many cells: noise
only, before any model. It falls with the square root of the answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from dither.mechanisms import Mechanism
from dither.reports import Plan


def standard_error(plan: Plan, answers: Sequence[float]) -> float | None:
    """The mean over the questions, given how many answered each; None while one that gets a share has no answer."""
    found = []
    for question, share, count in zip(
        plan.questions, plan.shares or (1.0,) * len(plan.questions), answers, strict=True
    ):
        mechanism = question.mechanism
        if share == 0 or not isinstance(mechanism, Mechanism):
            continue
        if count < 1:
            return None
        found.append(math.sqrt(mechanism.variance(1 / mechanism.cells, 1) / count))
    return fmean(found) if found else None


def planned_answers(plan: Plan, participants: int) -> list[float]:
    """How many answers each question gets if as many take part as the campaign was planned for."""
    round_people = participants * plan.population
    return (
        [round_people * share for share in plan.shares]
        if plan.shares
        else [round_people] * len(plan.questions)
    )
