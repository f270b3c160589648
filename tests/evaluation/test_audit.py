"""The audit passes honest mechanisms with a bound near their epsilon, and rejects mutants that give away more."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dither.errors import ParameterError
from dither.evaluation import LOCAL_NAMES, audit, audited_mechanism, log_ratio_limit
from dither.mechanisms import (
    GRR,
    MEANS,
    MECHANISMS,
    THRESHOLD_BITS,
    BloomRappor,
    ByteSource,
    Duchi,
    Hybrid,
    LocalHash,
    MultiMean,
    OutputMechanism,
    Piecewise,
    Randomiser,
    SetStrategy,
    SquareWave,
    SubsetSelection,
    Unary,
    Window,
    mechanism,
)
from dither.randomness import RandomStream

NAMES = tuple(name for name in LOCAL_NAMES if name != "best")
# Their reports take a device longest; mechanisms of the same families stay in the fast lane.
SLOW = ("bloom", "strategy", "hybrid", "several-means", "duchi-vector")
BY_SPEED = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES]


def seeded(*seed: int | str) -> RandomStream:
    return RandomStream.from_seed("audit", *seed)


def test_every_mechanism_of_the_registry_can_be_audited() -> None:
    assert set(MECHANISMS) | set(MEANS) == set(NAMES)
    with pytest.raises(ParameterError, match="square-wave"):
        audited_mechanism("magic", 1.0)


@pytest.mark.parametrize("name", BY_SPEED)
def test_honest_mechanisms_pass_with_a_bound_of_eight_tenths_or_more(name: str) -> None:
    built = audited_mechanism(name, 1.0)
    verdict = audit(built, 1.0, None, seeded(name))
    assert verdict.passed
    assert verdict.epsilon_exact == built.epsilon
    assert verdict.epsilon_empirical_lower > 0.8 * built.epsilon


def stronger(stated: Any, epsilon: float) -> Any:
    """The same mechanism with the thresholds of another epsilon: its reports look the same."""
    if isinstance(stated, SubsetSelection):
        return SubsetSelection.for_epsilon(stated.cells, epsilon, stated.size)
    if isinstance(stated, LocalHash):
        return LocalHash.for_epsilon(stated.cells, epsilon, stated.buckets)
    if isinstance(stated, BloomRappor):
        return stated.with_epsilon(epsilon)
    if isinstance(stated, SetStrategy):
        return halves(epsilon)
    if isinstance(stated, (SquareWave, Piecewise)):
        levels = stated.cells if isinstance(stated, SquareWave) else stated.levels
        return replace(stated, base=Window.for_epsilon(levels, stated.width, epsilon).base)
    if isinstance(stated, Hybrid):
        base = Window.for_epsilon(stated.levels, stated.width, epsilon).base
        return replace(stated, base=base, step=Duchi.for_epsilon(epsilon, stated.levels).step)
    if isinstance(stated, MultiMean):
        return replace(stated, grid=stronger(stated.grid, epsilon))
    return audited_mechanism(stated.name, epsilon)


def halves(epsilon: float) -> SetStrategy:
    """Every cell in one of two sets."""
    weight = (1 - 1e-6) / (math.exp(epsilon) + 1)
    return SetStrategy.for_epsilon(4, [0b0011, 0b1100], [weight, weight], epsilon)


def drawing_as(stated: Randomiser, real: Any) -> Randomiser:
    """A mechanism that states one law and draws by another."""

    class Mutant(type(stated)):  # type: ignore[misc]
        def randomise(self, value: Any, source: ByteSource) -> bytes:
            return bytes(real.randomise(value, source))

    made = object.__new__(Mutant)
    made.__dict__.update(stated.__dict__)
    return made


@pytest.mark.parametrize("name", BY_SPEED)
def test_a_mutant_with_three_tenths_more_epsilon_is_rejected(name: str) -> None:
    stated = halves(1.0) if name == "strategy" else audited_mechanism(name, 1.0)
    real = stronger(stated, 1.3)
    assert real.epsilon == pytest.approx(1.3, rel=1e-3)
    assert real.report_bytes == stated.report_bytes
    verdict = audit(
        drawing_as(stated, real),
        1.0,
        40_000 if name in ("grr", "bloom") else 20_000,
        seeded("mutant", name),
    )
    assert verdict.epsilon_exact is not None
    assert verdict.epsilon_exact <= 1.0, "its thresholds look fine"
    assert 1.0 < verdict.epsilon_empirical_lower < 1.3
    assert not verdict.passed


def test_thresholds_that_give_away_more_than_asked_fail() -> None:
    generous = mechanism("oue", 6, 1.05)
    assert not audit(generous, 1.0, 500, seeded(1)).passed


class UnderstatesEpsilon(GRR):
    """The thresholds are what they are, the figure is not."""

    epsilon = 0.9  # type: ignore[assignment]


def test_a_stated_epsilon_below_the_law_s_fails() -> None:
    verdict = audit(UnderstatesEpsilon(5, GRR.for_epsilon(5, 1.0).other), 1.0, 500, seeded(1))
    assert verdict.epsilon_stated == 0.9
    assert verdict.epsilon_exact == pytest.approx(1.0)
    assert not verdict.passed


@dataclass(frozen=True)
class NeverClearsABit(Unary):
    """A known defect elsewhere: the true bit is always set, so a report without it excludes the value."""

    def randomise(self, value: int, source: ByteSource) -> bytes:
        honest = int.from_bytes(super().randomise(value, source), "little")
        return (honest | 1 << value).to_bytes(self.report_bytes, "little")


def test_a_client_that_breaks_its_stated_epsilon_is_caught() -> None:
    stated = mechanism("sue", 6, 1.0)
    assert isinstance(stated, Unary)
    broken = NeverClearsABit("sue", 6, stated.true_set, stated.other_set)
    verdict = audit(broken, 1.0, 20_000, seeded(2))
    assert verdict.epsilon_exact is not None
    assert verdict.epsilon_exact <= 1.0, "its thresholds look fine"
    assert verdict.epsilon_empirical_lower > 1.0
    assert not verdict.passed


def test_a_report_that_one_value_never_gives_fails() -> None:
    class Reveals(GRR):
        def probabilities(self, value: int) -> Any:
            return {
                cell: chance
                for cell, chance in super().probabilities(value).items()
                if value or cell
            }

    verdict = audit(Reveals(3, GRR.for_epsilon(3, 1.0).other), 1.0, 500, seeded(3))
    assert verdict.epsilon_exact is None
    assert verdict.problem is not None
    assert not verdict.passed


def test_the_bound_of_two_probabilities_is_wrong_no_more_often_than_stated() -> None:
    """Exactly, over all outcomes of two binomials: the chance that the bound lies above the truth."""
    trials, first, second, error = 60, 0.7, 0.3, 0.1
    outcomes = np.arange(trials + 1)
    chance = np.outer(binom.pmf(outcomes, trials, first), binom.pmf(outcomes, trials, second))
    truth = math.log(first / second)
    wrong = np.array(
        [[log_ratio_limit(a, b, trials, error) > truth for b in outcomes] for a in outcomes]
    )
    assert chance[wrong].sum() <= error
    careless = np.array(
        [[log_ratio_limit(a, b, trials, 8 * error) > truth for b in outcomes] for a in outcomes]
    )
    assert chance[careless].sum() > error  # the check notices limits that are too narrow


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grr", "bloom", "several-means"])
def test_the_bound_is_a_lower_bound_with_its_confidence(name: str) -> None:
    built: Randomiser = GRR.for_epsilon(3, 0.5)
    if name == "bloom":
        built = BloomRappor.for_epsilon(3, 0.5, 12, 3)
    if name == "several-means":
        built = MultiMean.for_epsilon(3, 0.5, "duchi", asked=3)
    above = [
        audit(built, 0.5, 400, seeded(name, i), confidence=0.9).epsilon_empirical_lower
        > built.epsilon
        for i in range(200)
    ]
    assert sum(above) <= 30  # at most 10 % of 200, plus two and a half standard errors of 4.2


@dataclass(frozen=True)
class Ring(OutputMechanism):
    """The mechanism of docs/how-to/add-a-mechanism.md."""

    cells: int
    near: int
    far: int
    threshold_bits: int = THRESHOLD_BITS
    name = "ring"

    @property
    def own(self) -> int:
        return 2**self.threshold_bits - 2 * self.near - (self.cells - 3) * self.far

    @property
    def counters(self) -> int:
        return self.cells

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.own, self.far)

    def column(self, cell: int) -> list[int]:
        draws = {0: self.own, 1: self.near, self.cells - 1: self.near}
        return [draws.get((output - cell) % self.cells, self.far) for output in range(self.cells)]


class UnderstatedRing(Ring):
    """Its ratio looks at neighbouring cells only."""

    @property
    def ratio(self) -> Fraction:
        return max(Fraction(self.own, self.near), Fraction(self.near, self.far))


def ring(kind: type[Ring], cells: int, step: float) -> Ring:
    """A ring whose probabilities fall by e^step from the own cell to a neighbour, and again to the others."""
    factor = math.exp(step) * (1 - 1e-6)
    far = math.floor(2**THRESHOLD_BITS / (factor**2 + 2 * factor + cells - 3))
    return kind(cells, int(far * factor), far)


@pytest.mark.parametrize("cells", [16, 25, 64, 150])
def test_inputs_far_from_the_ends_are_compared_at_any_size(cells: int) -> None:
    """Cells 0 and the last one are neighbours on the ring: they show half of its epsilon."""
    verdict = audit(ring(UnderstatedRing, cells, 1.0), 1.0, 5_000, seeded("ring", cells))
    assert verdict.epsilon_exact == pytest.approx(2.0, abs=1e-4)
    assert verdict.law == "all inputs"
    assert verdict.epsilon_stated <= 1.0
    assert not verdict.passed
    if cells <= 64:
        assert verdict.epsilon_empirical_lower > 1.0, "the attack takes the pair that attains it"
    honest = ring(Ring, cells, 0.49)
    assert honest.epsilon <= 1.0
    assert audit(honest, 1.0, 5_000, seeded("honest ring", cells)).passed


def test_an_output_that_one_cell_never_gives_fails_at_any_size() -> None:
    class Reveals(Ring):
        def column(self, cell: int) -> list[int]:
            draws = super().column(cell)
            if cell == 7:
                draws[7], draws[20] = draws[7] + draws[20], 0
            return draws

    verdict = audit(ring(Reveals, 40, 0.5), 1.0, 500, seeded(4))
    assert verdict.problem is not None
    assert not verdict.passed


def test_a_single_input_with_another_law_is_found() -> None:
    class OneOdd(GRR):
        def probabilities(self, value: int) -> Any:
            if value != 2:
                return super().probabilities(value)
            return GRR.for_epsilon(self.cells, 1.5).probabilities(value)

    verdict = audit(OneOdd(6, GRR.for_epsilon(6, 1.0).other), 1.0, 500, seeded(5))
    assert verdict.epsilon_exact is not None
    assert verdict.epsilon_exact > 1.2
    assert verdict.epsilon_stated <= 1.0
    assert not verdict.passed


@pytest.mark.parametrize(
    ("name", "cells", "law"),
    [
        ("grr", 16, "all inputs"),
        ("grr", 400, "two inputs"),
        ("sue", 8, "all inputs"),
        ("sue", 16, "stated"),
        ("subset", 60, "stated"),
        ("square-wave", 64, "all inputs"),
        ("duchi-vector", 16, "all inputs"),
    ],
)
def test_an_audit_says_how_much_of_the_law_it_compared(name: str, cells: int, law: str) -> None:
    verdict = audit(audited_mechanism(name, 1.0, cells), 1.0, 200, seeded(6))
    assert verdict.law == law
    assert verdict.to_json()["law"] == law
    assert verdict.passed
