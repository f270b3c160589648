"""Codes to cells and back, against NumPy's own numbering."""

import numpy as np
import pytest

from dither.schema import cells_of, codes_of, count_cells

SIZES = (3, 1, 4, 2)


@pytest.fixture
def codes():
    rng = np.random.default_rng(5)
    return np.stack([rng.integers(0, k, 500) for k in SIZES], axis=1).astype(np.int32)


@pytest.mark.parametrize("positions", [None, (), (2,), (3, 0), (0, 1, 2, 3), (2, 3, 0)])
def test_cells_are_numbered_with_the_last_attribute_fastest(codes, positions):
    chosen = range(len(SIZES)) if positions is None else positions
    expected = np.zeros(len(codes), np.int64)
    if len(chosen):
        expected = np.ravel_multi_index(
            tuple(codes[:, i] for i in chosen), tuple(SIZES[i] for i in chosen)
        )
    cells = cells_of(codes, SIZES, positions)
    assert cells.dtype == np.int64
    np.testing.assert_array_equal(cells, expected)


def test_codes_of_cells_are_the_codes_again(codes):
    np.testing.assert_array_equal(codes_of(cells_of(codes, SIZES), SIZES), codes)
    every = np.arange(24)
    np.testing.assert_array_equal(
        codes_of(every, SIZES), np.stack(np.unravel_index(every, SIZES), axis=1)
    )


def test_codes_of_small_types_do_not_overflow():
    codes = np.full((2, 3), 126, np.int8)
    assert cells_of(codes, (127, 127, 127)).tolist() == [127**3 - 1] * 2


def test_counts_have_one_axis_per_column(codes):
    counts = count_cells(codes, SIZES, (2, 0))
    assert counts.shape == (4, 3)
    assert counts.sum() == len(codes)
    assert counts[1, 2] == np.sum((codes[:, 2] == 1) & (codes[:, 0] == 2))
    assert count_cells(codes, SIZES).shape == SIZES
