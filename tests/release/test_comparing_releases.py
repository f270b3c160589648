"""Two releases side by side: a difference has the error of both, and only of one schema."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dither.collector.pages.releases import REACH, compare_manifests
from dither.errors import ParameterError


def manifest(
    frequencies: list[float], errors: list[float | None] | None, fingerprint: str = "a"
) -> dict[str, Any]:
    estimate = {
        "attribute": "x",
        "labels": ["p", "q"],
        "frequencies": frequencies,
        "standard_errors": errors,
    }
    return {"schema_fingerprint": fingerprint, "estimates": [estimate]}


def test_figures_differences_and_their_intervals() -> None:
    (found,) = compare_manifests(
        manifest([0.3, 0.7], [0.03, 0.01]), manifest([0.5, 0.5], [0.04, 0.01])
    )
    first, second = found.values
    assert first.difference == pytest.approx(0.2)
    assert first.low == pytest.approx(0.2 - REACH * 0.05)
    assert first.high == pytest.approx(0.2 + REACH * 0.05)
    assert (first.first.low, first.second.high) == pytest.approx(
        (0.3 - REACH * 0.03, 0.5 + REACH * 0.04)
    )
    assert first.differs
    assert second.differs
    assert found.distance == pytest.approx(0.2)


def test_without_an_error_there_is_no_verdict() -> None:
    for errors in (None, [None, 0.1]):
        (found,) = compare_manifests(
            manifest([0.3, 0.7], errors), manifest([0.9, 0.1], [0.001, 0.001])
        )
        assert found.values[0].low is None
        assert not found.values[0].differs


def test_other_schemas_are_refused() -> None:
    with pytest.raises(ParameterError, match="different schemas"):
        compare_manifests(manifest([0.3, 0.7], None), manifest([0.3, 0.7], None, "b"))
    table = manifest([0.3, 0.7], None)
    earlier = {"format": "dither-histogram-1"}
    number = {"schema_fingerprint": table["schema_fingerprint"], "consumers": []}
    for pair in ((table, earlier), (earlier, table), (table, number), (number, table)):
        with pytest.raises(ParameterError, match="about one number"):
            compare_manifests(*pair)


def test_equal_populations_look_different_in_one_of_twenty() -> None:
    """And would in far more, were the errors of one release forgotten."""
    draw, error, trials = np.random.default_rng(11), 0.02, 4000
    both = draw.normal(0.4, error, (trials, 2))
    seen = alone = 0
    for a, b in both:
        pair = [manifest([v, 1 - v], [error, error]) for v in (float(a), float(b))]
        seen += compare_manifests(*pair)[0].values[0].differs
        alone += abs(a - b) > REACH * error
    spread = 5 * math.sqrt(0.05 * 0.95 / trials)
    assert abs(seen / trials - 0.05) < spread
    assert not abs(alone / trials - 0.05) < spread
