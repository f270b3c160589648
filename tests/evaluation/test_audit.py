"""The audit passes honest mechanisms and catches dishonest ones."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dither.evaluation.audit import audit, empirical_lower_bound
from dither.mechanisms import GRR, ByteSource, Unary, mechanism
from dither.mechanisms.kernels.stream import RandomStream


@pytest.mark.parametrize("name", ["grr", "sue", "oue", "olh", "subset", "bloom", "hadamard"])
def test_honest_mechanisms_pass_and_the_bound_means_something(name: str) -> None:
    built = mechanism(name, 6, 1.0)
    verdict = audit(built, 1.0, 8_000, RandomStream.from_seed("audit", name))
    assert verdict.passed
    if name != "bloom":  # whose worst event is rare: many bits have to agree at once
        assert verdict.epsilon_empirical_lower > 0.6


def test_thresholds_that_give_away_more_than_asked_fail() -> None:
    generous = mechanism("oue", 6, 1.05)
    assert not audit(generous, 1.0, 500, RandomStream.from_seed(1)).passed


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
    verdict = audit(broken, 1.0, 20_000, RandomStream.from_seed(2))
    assert verdict.epsilon_exact <= 1.0, "its thresholds look fine"
    assert verdict.epsilon_empirical_lower > 1.0
    assert not verdict.passed


@pytest.mark.slow
def test_the_bound_is_a_lower_bound_with_its_confidence() -> None:
    built = GRR.for_epsilon(3, 0.5)
    above = [
        empirical_lower_bound(built, 400, RandomStream.from_seed("bound", i), confidence=0.9) > built.epsilon
        for i in range(200)
    ]
    assert sum(above) <= 30  # at most 10 % of 200, plus four standard errors of 4.2
