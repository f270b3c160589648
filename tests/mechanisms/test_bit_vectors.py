"""What mechanisms say of reports that are bits, against their own laws."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from dither.errors import ParameterError
from dither.mechanisms import BitMechanism, BloomRappor, device_work, oue, sue

SMALL: list[BitMechanism] = [sue(5, 1.0), oue(5, 1.0), BloomRappor.for_epsilon(5, 1.0, 7, 2)]


def sets_of(mechanism: BitMechanism) -> list[int]:
    return (
        [1 << cell for cell in range(mechanism.cells)]
        if mechanism.filters is None
        else list(mechanism.filters)
    )


@pytest.mark.parametrize("mechanism", SMALL, ids=lambda m: m.name)
def test_filters_distance_and_hashes_are_those_of_the_law(mechanism: BitMechanism) -> None:
    sets = sets_of(mechanism)
    assert {bits.bit_count() for bits in sets} == {mechanism.hashes}
    assert mechanism.distance == max((a ^ b).bit_count() for a, b in combinations(sets, 2))
    for cell, bits in enumerate(sets):
        law = mechanism.probabilities(cell)
        for bit in range(mechanism.counters):
            chance = sum(p for report, p in law.items() if report >> bit & 1)
            assert chance == (mechanism.p if bits >> bit & 1 else mechanism.q)


@pytest.mark.parametrize("mechanism", SMALL, ids=lambda m: m.name)
def test_another_epsilon_leaves_the_bits(mechanism: BitMechanism) -> None:
    other = mechanism.with_epsilon(2.5)
    assert type(other) is type(mechanism)
    assert (other.name, other.filters) == (mechanism.name, mechanism.filters)
    assert 2.4 < other.epsilon <= 2.5


@pytest.mark.parametrize("mechanism", SMALL, ids=lambda m: m.name)
def test_several_reports_cost_their_ratios_product(mechanism: BitMechanism) -> None:
    assert mechanism.epsilon_of(1) == mechanism.epsilon
    for wrong in (0, -1, 2.5, 10**9):
        with pytest.raises(ParameterError, match="reports must be"):
            mechanism.epsilon_of(wrong)
    assert mechanism.epsilon_of(7) == pytest.approx(7 * math.log(mechanism.ratio))


def test_only_filters_are_work_before_a_mechanism_is_built() -> None:
    assert device_work(sue(5, 1.0).to_json()) == (0, 0, 0)
    work = device_work(BloomRappor.for_epsilon(500, 1.0, 64, 4).to_json())
    assert work == (500, 125_000, 500 * 9)
