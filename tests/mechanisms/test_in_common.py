"""What every input gives every report at least, against the laws written out for all inputs."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from dither.mechanisms import BloomRappor, Mechanism, SetStrategy, SquareWave, mechanism


def least_in_common(asked: Mechanism) -> Fraction:
    """The least share that any input's probability of a report has of two inputs' probabilities, added up."""
    laws = [asked.law(value) for value in range(asked.cells)]
    return min(
        own[report] / (a[report] + b[report])
        for own in laws
        for a, b in itertools.combinations(laws, 2)
        for report in own
    )


def named(asked: Mechanism) -> str:
    return f"{asked.name}-{asked.cells}-{asked.epsilon:.1f}"


EXACT = [
    *(mechanism("grr", cells, epsilon) for cells in (2, 3, 5) for epsilon in (0.3, 4.0)),
    *(mechanism(name, 3, epsilon) for name in ("sue", "oue") for epsilon in (0.3, 4.0)),
]
BOUNDED = [
    mechanism("oue", 2, 1.0),
    *(mechanism("subset", cells, epsilon) for cells in (3, 5) for epsilon in (0.3, 1.0)),
    *(mechanism("hadamard", cells, 2.0) for cells in (2, 3, 6)),
    *(mechanism("olh", cells, 1.0) for cells in (2, 4)),
    *(SquareWave.for_epsilon(cells, epsilon) for cells in (2, 10) for epsilon in (0.1, 4.0)),
    BloomRappor.for_epsilon(4, 2.0, 6, 2),
    SetStrategy.for_epsilon(3, [1, 2, 4, 3], [0.1, 0.1, 0.1, 0.1], 1.0),
]


@pytest.mark.parametrize("asked", EXACT, ids=named)
def test_exact(asked: Mechanism) -> None:
    assert asked.in_common == least_in_common(asked)


@pytest.mark.parametrize("asked", BOUNDED, ids=named)
def test_never_above(asked: Mechanism) -> None:
    assert 0 < asked.in_common <= least_in_common(asked)
