from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dither.errors import ParameterError
from dither.fit import norm_sub, projection

raw_estimates = st.lists(st.floats(-2, 2, allow_nan=False), min_size=2, max_size=30).map(np.array)


def slow_norm_sub(raw: np.ndarray) -> np.ndarray:
    """As its authors state it: clip, spread the difference over the positive cells, until nothing is negative."""
    out = raw.copy()
    alive = np.ones(len(raw), bool)
    for _ in range(len(raw) + 1):
        out[~alive] = 0
        out[alive] += (1 - out[alive].sum()) / alive.sum()
        if (out >= 0).all():
            return out
        alive &= out > 0
    raise AssertionError("did not settle")


@given(raw_estimates)
def test_norm_sub_is_the_iteration_its_authors_state(raw: np.ndarray) -> None:
    fast = norm_sub(raw)
    assert (fast >= 0).all()
    assert fast.sum() == pytest.approx(1)
    np.testing.assert_allclose(fast, slow_norm_sub(raw), atol=1e-9)


def test_norm_sub_is_the_nearest_distribution() -> None:
    raw = np.array([0.5, -0.2, 0.4, 0.05, 0.6])
    best = minimize(
        lambda x: ((x - raw) ** 2).sum(),
        np.full(5, 0.2),
        bounds=[(0, 1)] * 5,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
    )
    np.testing.assert_allclose(norm_sub(raw), best.x, atol=1e-5)


@given(raw_estimates)
def test_norm_mul_scales_what_is_above_zero(raw: np.ndarray) -> None:
    found = projection("norm-mul")(raw)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    if (raw > 0).any():
        above = np.maximum(raw, 0.0)
        np.testing.assert_allclose(found * above.sum(), above, atol=1e-12)


def test_keeps_shape_and_names() -> None:
    table = np.array([[0.5, -0.1], [0.3, 0.4]])
    assert norm_sub(table).shape == (2, 2)
    assert projection("norm-sub") is norm_sub
    with pytest.raises(ParameterError, match="norm-sub"):
        projection("magic")
