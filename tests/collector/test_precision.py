"""How exact a round is by now: the spread that estimates really have, and what a plan leads one to expect."""

from __future__ import annotations

import numpy as np
import pytest

from dither.collector.pages.progress import planned_answers, standard_error
from dither.mechanisms import kernels, mechanism
from dither.reports import Plan, Question

CELLS, PEOPLE, DRAWS = 8, 4000, 400


def plan(name: str) -> Plan:
    asked = tuple(Question((attribute,), mechanism(name, CELLS, 1.0)) for attribute in ("a", "b"))
    return Plan(0, asked, (0.25, 0.75), population=0.5)


@pytest.mark.parametrize("name", ["grr", "oue", "hadamard"])
def test_it_is_the_spread_that_estimates_have(name: str) -> None:
    rng = np.random.default_rng(3)
    asked = plan(name)
    own = asked.questions[0].mechanism
    truth = np.full(CELLS, PEOPLE // CELLS)
    drawn = [
        kernels.estimate(own, kernels.simulate(own, truth, rng), PEOPLE).frequencies
        for _ in range(DRAWS)
    ]
    spread = float(np.sqrt(np.mean(np.var(drawn, axis=0, ddof=1))))
    told = standard_error(asked, [PEOPLE, PEOPLE])
    assert told is not None
    # The variance of DRAWS x CELLS estimates is known to 1/sqrt(DRAWS x CELLS / 2) of itself, the spread to half of that.
    tolerance = 4 * 0.5 / np.sqrt(DRAWS * CELLS / 2)
    assert abs(spread / told - 1) < tolerance
    assert abs(spread / standard_error(asked, [PEOPLE / 1.2] * 2) - 1) > tolerance  # type: ignore[operator]


def test_answers_that_are_planned_follow_population_and_shares() -> None:
    assert planned_answers(plan("oue"), 1000) == [125.0, 375.0]
    split = Plan(0, plan("oue").questions, split=True)
    assert planned_answers(split, 1000) == [1000.0, 1000.0]


def test_nothing_is_told_before_every_question_has_an_answer() -> None:
    asked = plan("oue")
    assert standard_error(asked, [10, 0]) is None
    few, many = standard_error(asked, [100, 100]), standard_error(asked, [400, 400])
    assert few is not None
    assert many is not None
    assert few / many == pytest.approx(2.0)
