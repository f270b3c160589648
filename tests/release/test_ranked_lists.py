"""Lists by size: their intervals hold all together, although errors choose what they list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.display import Bar
from dither.release.figures import AttributeFigure, attribute_figure, group_shares, together
from dither.schema import Schema

VALUES, PEOPLE, LISTED = 300, 20_000, 12


@pytest.fixture(scope="module")
def figures() -> tuple[np.ndarray, list[tuple[AttributeFigure, tuple[Bar, ...]]]]:
    """The true shares of a wide column, and for each of some collections the report's figure and its values, with intervals on
    their own."""
    rng = np.random.default_rng(1)
    chances = 1 / np.arange(3, VALUES + 3) ** 0.9
    codes = rng.choice(VALUES, PEOPLE, p=chances / chances.sum())
    names = [f"v{i:03d}" for i in range(VALUES)]
    table = pa.table({"value": [names[code] for code in codes], "b": rng.random(PEOPLE) < 0.3})
    schema = Schema(
        (
            dither.Attribute("value", "categorical", values=tuple(names)),
            dither.Attribute("b", "boolean", values=(False, True)),
        )
    )
    out = []
    for seed in range(20):
        release = dither.publish(
            table,
            epsilon=2.0,
            schema=schema,
            method="independent",
            seed=seed,
            rows=10,
            replicates=20,
        )
        shares = group_shares(release)
        assert shares is not None
        figure = attribute_figure(schema["value"], release.marginal(["value"]), None, shares)
        alone = shares(["value"], [[[i] for i in range(VALUES)]], 0.95)
        assert alone is not None
        bars = [
            Bar(name, *map(float, row))
            for name, *row in zip(names, alone.estimates, alone.low, alone.high, strict=True)
        ]
        largest = sorted(bars, key=lambda bar: -bar.estimate)[:LISTED]
        out.append((figure, tuple(largest)))
    return np.bincount(codes, minlength=VALUES) / PEOPLE, out


def held(bars: tuple[Bar, ...], truth: np.ndarray) -> bool:
    """Whether every interval of a list holds."""
    return all(
        bar.low is not None
        and bar.high is not None
        and bar.low <= truth[int(bar.label[1:])] <= bar.high
        for bar in bars
    )


@pytest.mark.slow
def test_the_largest_of_many_values_hold_together(
    figures: tuple[np.ndarray, list[tuple[AttributeFigure, tuple[Bar, ...]]]],
) -> None:
    """In at least 17 of 20 collections; the intervals of single figures fail in a third."""
    truth, collections = figures
    lists = [held(figure.table[:LISTED], truth) for figure, _ in collections]
    assert np.mean(lists) >= 0.85
    assert np.mean([held(alone, truth) for _, alone in collections]) < 0.75
    assert all(figure.ranked for figure, _ in collections)


def test_levels_of_lists() -> None:
    assert together(1) == 0.95
    assert together(808) ** 808 == pytest.approx(0.95)
