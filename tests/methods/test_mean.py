"""The method mean: the mechanisms of the literature in terms of levels, exact laws, unbiased, with errors that hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dither.errors import ParameterError, SchemaError, TooFewAnswers
from dither.mechanisms import GRR, Duchi, Piecewise, SquareWave
from dither.methods import MethodRun, restore, start
from dither.methods.mean import Mean, mean_answer_from_json, output_places, wave_of
from dither.reports import LEVEL_BITS, level_of
from dither.schema import Attribute, Schema
from dither.simulate import drive, number_people, simulate
from dither.tally import CountTally

LOW, HIGH, N = -20.0, 80.0, 4000
VALUES = np.linspace(-1, 1, N) ** 3 * 50 + 30  # from low to high, many in the middle
SCHEMA = Mean.schema_of("pay", LOW, HIGH)


def collected(epsilon: float, mechanism: str, seed: int, path: str = "counts") -> Mean:
    machine = start("mean", SCHEMA, epsilon, N, {"mechanism": mechanism}).machine
    assert isinstance(machine, Mean)
    rng = np.random.default_rng(seed)
    drive(machine, number_people(VALUES, LOW, HIGH, rng), rng, path=path)  # type: ignore[arg-type]
    return machine


@pytest.mark.parametrize("path", ["counts", "reports"])
@pytest.mark.parametrize("mechanism", ["duchi", "piecewise", "hybrid"])
def test_the_mean_is_unbiased_and_its_error_is_the_one_it_shows(mechanism: str, path: str) -> None:
    runs = 60
    answers = [collected(1.0, mechanism, seed, path).answer() for seed in range(runs)]
    scores = np.array([(a.estimate - VALUES.mean()) / a.standard_error for a in answers])
    assert abs(scores.mean()) < 5 / math.sqrt(runs)
    # The stated error has the spread of the numbers in it, which a collection from all of them does not: a little too large.
    spread = VALUES.var() / N
    expected = 1 - spread / np.mean([a.standard_error**2 for a in answers])
    assert abs(scores.var() - expected) < 5 * math.sqrt(2 / runs)
    wrong = np.array([(a.estimate - VALUES.mean() * 1.1 - 2) / a.standard_error for a in answers])
    assert abs(wrong.mean()) > 5 / math.sqrt(runs), "a mean that is off would be seen"


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0, 6.0])
def test_levels_and_cells_are_the_mechanisms_of_the_literature(epsilon: float) -> None:
    """Rounding to two levels and randomised response is Duchi's line; the wave over levels is the piecewise mechanism."""
    duchi, two = Duchi.for_epsilon(epsilon), GRR.for_epsilon(2, epsilon)
    for level in (0, 1000, duchi.levels - 1):
        share = level / (duchi.levels - 1)
        upper = share * float(two.p) + (1 - share) * float(two.q)
        assert math.isclose(upper, float(duchi.probabilities(level)[1]), abs_tol=1e-4)
    assert math.isclose(two.epsilon, epsilon, rel_tol=1e-6)
    piecewise, wave = Piecewise.for_epsilon(epsilon, 257), wave_of(257, epsilon)
    assert wave.epsilon == piecewise.epsilon <= epsilon
    for level in (0, 100, 256):
        assert list(wave.probabilities(level).values()) == piecewise.probabilities(level)
    places = output_places(wave)
    numbers = np.array([float(piecewise.value_of(output)) for output in range(wave.counters)])
    np.testing.assert_allclose(places, (numbers + 1) / 2, atol=1e-12)
    for level in (0, 100, 256):
        law = np.array([float(x) for x in wave.probabilities(level).values()])
        assert math.isclose(float(law @ places), level / 256, abs_tol=1e-9), (
            "unbiased at every level"
        )


def test_the_hybrid_asks_by_the_share_of_the_literature_and_one_mechanism_where_that_is_best() -> (
    None
):
    plan = start("mean", SCHEMA, 2.0, N).plan()
    assert plan is not None
    assert plan.shares == (1 - math.exp(-1), math.exp(-1))
    assert [type(q.mechanism) for q in plan.questions] == [SquareWave, GRR]
    assert all(q.rounded for q in plan.questions)
    small = start("mean", SCHEMA, 0.5, N).plan()
    assert small is not None
    assert [type(q.mechanism) for q in small.questions] == [GRR]


def test_rounding_is_unbiased_to_the_last_draw() -> None:
    attribute = SCHEMA.attributes[0]
    for number in (LOW, HIGH, 0.1, 33.3, -19.999):
        place = (number - LOW) / (HIGH - LOW) * 8
        below = level_of(attribute, number, 9, 2**LEVEL_BITS - 1)
        assert below is not None
        # The draws that lead up are those below the fraction: their share is the fraction, to one draw.
        share = place - below
        if 0 < share < 1:
            assert level_of(attribute, number, 9, int(share * 2**LEVEL_BITS) - 1) == below + 1
            assert level_of(attribute, number, 9, int(share * 2**LEVEL_BITS) + 1) == below
    assert level_of(attribute, 1e9, 9, 5) == 8, "beyond the range, clipped"
    assert level_of(attribute, -(10**400), 9, 5) == 0
    assert level_of(Attribute("pay", "numeric", edges=attribute.edges), 1e9, 9, 5) is None
    assert level_of(attribute, math.nan, 9, 5) is None


def test_a_machine_goes_on_where_it_stopped_and_its_answer_can_be_read_back() -> None:
    machine = collected(2.0, "hybrid", 1)
    again = restore(MethodRun(machine).state()).machine
    assert isinstance(again, Mean)
    assert again.answer() == machine.answer() == mean_answer_from_json(machine.answer().to_json())
    with pytest.raises(ValueError, match="mean of"):
        mean_answer_from_json(machine.answer().to_json() | {"standard_error": -1.0})
    with pytest.raises(ParameterError, match="no distribution"):
        machine.model()


def test_a_question_that_hardly_anybody_was_asked_is_left_out() -> None:
    machine = start("mean", SCHEMA, 2.0, N).machine
    assert isinstance(machine, Mean)
    plan = machine.plan()
    assert plan is not None
    tally = CountTally(plan)
    tally.add_counts(1, np.array([0, 1]), 1)
    with pytest.raises(TooFewAnswers):
        machine.close(tally)
    tally.add_counts(0, np.bincount([100, 120, 130], minlength=len(tally.counts[0])), 3)
    machine.close(tally)
    assert machine.answer().people == 3


def test_only_one_number_can_be_asked_for_and_tables_of_codes_are_refused() -> None:
    wrong = (
        Schema((Attribute("a", "boolean", (False, True)),)),
        Schema((Attribute("a", "numeric", edges=(0.0, 1.0, 2.0), missing=True),)),
        Schema((*SCHEMA.attributes, Attribute("b", "boolean", (False, True)))),
    )
    for schema in wrong:
        with pytest.raises(SchemaError, match="one number"):
            start("mean", schema, 1.0, 100)
    with pytest.raises(ParameterError, match="asks for numbers"):
        simulate(
            start("mean", SCHEMA, 1.0, 4), np.zeros((4, 1), np.int32), np.random.default_rng(1)
        )
    with pytest.raises(ParameterError, match="between"):
        number_people(np.array([1.0, 99.0]), LOW, HIGH, np.random.default_rng(1))
