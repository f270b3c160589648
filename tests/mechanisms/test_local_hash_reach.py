"""Hash values of two cells are independent as far as local hashing reaches, and no farther."""

from __future__ import annotations

import numpy as np
import pytest

from dither.mechanisms import LocalHash

BINS = 16


def chi_square(first: int, second: int, draws: int = 40_000) -> float:
    """How far the upper four bits of two cells' hash values are from independent and uniform, over random hash functions."""
    a, b = np.random.default_rng(first + second).integers(0, 2**32, (2, draws), dtype=np.uint64)
    upper = [((a * np.uint64(x) + b) % np.uint64(2**32)) >> np.uint64(28) for x in (first, second)]
    counts = np.bincount(
        (upper[0] * np.uint64(BINS) + upper[1]).astype(np.int64), minlength=BINS**2
    )
    expected = draws / BINS**2
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    "pair",
    [(0, 1), (0, 2**16), (5, 5 + 2**16), (3 * 2**15, 0), (2**17 - 1, 0), (2**17 - 1, 2**16 - 1)],
)
def test_pairs_of_cells_are_independent(pair: tuple[int, int]) -> None:
    assert max(pair) < LocalHash.max_cells
    # 255 degrees of freedom: mean 255, standard deviation 22.6; six of them above.
    assert chi_square(*pair) < 255 + 6 * 22.6


def exact_pair_law(difference: int, bits: int, kept: int) -> np.ndarray:
    """The joint law of two hash values for every a and b of a small word: the same construction with `bits` for 32."""
    size = 2**bits
    a, b = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    first, second = b >> (bits - kept), ((a * difference + b) % size) >> (bits - kept)
    return np.bincount((first * 2**kept + second).ravel(), minlength=4**kept)


def test_the_reach_is_exact_in_a_small_word() -> None:
    """With words of 8 bits and hash values of 4, cells below 2^5 are independent; a difference of 2^5 is not."""
    bits, kept = 8, 4
    reach = 2 ** (bits - kept + 1)
    for difference in range(1, reach):
        assert len(set(exact_pair_law(difference, bits, kept).tolist())) == 1
    assert len(set(exact_pair_law(reach, bits, kept).tolist())) > 1
    assert LocalHash.max_cells == 2 ** (32 - 16 + 1)
