"""Reports of many people at once carry the stated noise whatever the width of a draw, or are refused.

Once a width other than 16 and 32 bits was drawn with 16: below thresholds over 2^24 every such draw meant the truth.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dither.errors import ParameterError
from dither.mechanisms import (
    DRAW_WIDTHS,
    GRR,
    BloomRappor,
    Duchi,
    Hadamard,
    LocalHash,
    Piecewise,
    SetStrategy,
    SquareWave,
    SubsetSelection,
    kernels,
    oue,
    sue,
)
from dither.mechanisms.kernels import uniform_draws
from dither.randomness import RandomStream

PEOPLE = 40_000


def builds(bits: int) -> list[Any]:
    return [
        GRR.for_epsilon(4, 1.0, bits),
        sue(4, 1.0, bits),
        oue(4, 1.0, bits),
        SubsetSelection.for_epsilon(4, 0.5, 2, bits),
        BloomRappor.for_epsilon(4, 3.0, 6, 2, threshold_bits=bits),
        Hadamard.for_epsilon(6, 2, 1.0, bits),
        SquareWave.for_epsilon(4, 1.0, bits),
        *([SetStrategy.for_epsilon(4, [3, 5], [0.1, 0.1], 1.0, bits)] if bits > 8 else []),
    ]


def misfit(built: Any, value: int, seed: int) -> float:
    """Pearson's statistic of a batch's reports against the law, over its 1 - 1e-6 quantile."""
    rows = kernels.randomise(
        built, np.full(PEOPLE, value), RandomStream.from_seed("width", seed)
    ).rows
    found, law = Counter(bytes(row) for row in rows), built.law(value)
    assert set(found) <= set(law)
    expected = {report: float(chance) * PEOPLE for report, chance in law.items()}
    statistic = sum((found[report] - mean) ** 2 / mean for report, mean in expected.items())
    return statistic / float(chi2.ppf(1 - 1e-6, len(law) - 1))


@pytest.mark.parametrize("bits", DRAW_WIDTHS)
def test_a_batch_follows_the_exact_law(bits: int) -> None:
    for built in builds(bits):
        assert misfit(built, 2, bits) < 1, built


@pytest.mark.parametrize("bits", DRAW_WIDTHS)
def test_a_batch_whose_draws_are_too_short_would_be_noticed(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault itself: draws of eight bits less than the thresholds assume."""

    def too_short(stream: RandomStream, count: int, width: int) -> Any:
        return uniform_draws(stream, count, width) >> 8

    monkeypatch.setattr("dither.mechanisms.kernels.outputs.uniform_draws", too_short)
    assert misfit(GRR.for_epsilon(4, 1.0, bits), 2, bits) > 1


@pytest.mark.parametrize("bits", DRAW_WIDTHS)
def test_a_batch_is_what_devices_send_draw_for_draw(bits: int) -> None:
    people = np.arange(400) % 4
    for built in (GRR.for_epsilon(4, 1.0, bits), SquareWave.for_epsilon(4, 1.0, bits)):
        rows = kernels.randomise(built, people, RandomStream.from_seed(bits)).rows
        source = RandomStream.from_seed(bits)
        assert [bytes(row) for row in rows] == [built.randomise(int(p), source) for p in people]
    for grid in (Duchi.for_epsilon(1.0, 5, bits), Piecewise.for_epsilon(1.0, 9, bits)):
        values = np.linspace(-1, 1, 300)
        rows = kernels.randomise(grid, values[:, None], RandomStream.from_seed(bits)).rows
        source = RandomStream.from_seed(bits)
        assert [bytes(row) for row in rows] == [grid.randomise([float(v)], source) for v in values]


@pytest.mark.parametrize("bits", DRAW_WIDTHS)
def test_hashed_answers_are_true_as_often_as_stated(bits: int) -> None:
    built = LocalHash.for_epsilon(9, 1.0, threshold_bits=bits)
    rows = kernels.randomise(built, np.full(PEOPLE, 5), RandomStream.from_seed("hash", bits)).rows
    true = sum(
        built.bucket(
            int.from_bytes(row[:4].tobytes(), "little"),
            int.from_bytes(row[4:8].tobytes(), "little"),
            5,
        )
        == row[8]
        for row in rows
    )
    p = float(built.p)
    assert abs(true / PEOPLE - p) < 5 * np.sqrt(p * (1 - p) / PEOPLE)


@pytest.mark.parametrize("bits", DRAW_WIDTHS)
def test_draws_reach_every_number_of_their_width(bits: int) -> None:
    draws = uniform_draws(RandomStream.from_seed("draws", bits), 200_000, bits)
    assert draws.min() >= 0
    assert draws.max() < 2**bits
    # The top and the bottom byte are uniform: 256 counts with a multinomial's spread.
    for byte in (draws >> (bits - 8), draws & 255):
        counts = np.bincount(byte, minlength=256)
        assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < chi2.ppf(1 - 1e-6, 255)


@pytest.mark.parametrize("bits", [0, 4, 12, 31, 56, 64])
def test_other_widths_are_refused(bits: int) -> None:
    with pytest.raises(ParameterError, match="bits"):
        uniform_draws(RandomStream.from_seed(0), 3, bits)
