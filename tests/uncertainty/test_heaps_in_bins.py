"""Means and quantiles of binned numbers hold wherever in their bins the people are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.schema import Schema, numeric

PEOPLE = 40_000


def hours() -> np.ndarray:
    """Numbers heaped at 40, 50 and 60, each the first of a bin of ten."""
    rng = np.random.default_rng(6)
    heaps = rng.choice([20.0, 40.0, 50.0, 60.0], PEOPLE, p=[0.1, 0.6, 0.2, 0.1])
    return np.where(rng.random(PEOPLE) < 0.8, heaps, rng.uniform(0, 100, PEOPLE))


def releases(runs: int, **domain: object) -> list[dither.Release]:
    values = hours()
    table = pa.table({"hours": values, "man": np.arange(PEOPLE) % 2 == 0})
    attribute = numeric("hours", low=0.0, high=100.0, bins=10, **domain)  # type: ignore[arg-type]
    schema = Schema((attribute, dither.Attribute("man", "boolean", values=(False, True))))
    return [
        dither.publish(
            table,
            epsilon=4.0,
            schema=schema,
            method="independent",
            seed=seed,
            rows=10,
            replicates=12,
        )
        for seed in range(runs)
    ]


@pytest.mark.slow
def test_means_and_quantiles_of_heaped_numbers_hold() -> None:
    """With the spread over bins left out, every mean would miss: people are not in the middle."""
    values, means, quantiles = hours(), [], []
    truth = float(values.mean())
    for release in releases(20):
        mean = release.mean("hours")
        assert mean.low is not None
        assert mean.high is not None
        means.append(mean.low <= truth <= mean.high)
        # The distance of the truth is many times the error of the noise.
        assert abs(mean.estimate - truth) > 2.0
        assert mean.high - mean.low < 12.0
        other = release.mean("hours") - release.mean("hours", "hours >= 40")
        assert other.low is not None
        assert other.high is not None
        assert other.low <= truth - values[values >= 40].mean() <= other.high
        for level in (0.05, 0.5, 0.9):
            row = release.quantile("hours", level)
            assert row.low is not None
            assert row.high is not None
            quantiles.append(row.low <= np.quantile(values, level) <= row.high)
    assert np.mean(means) >= 0.9
    assert np.mean(quantiles) >= 0.9


@pytest.mark.slow
def test_atoms_give_heaped_numbers_short_intervals() -> None:
    values = hours()
    for release in releases(3, atoms=(20.0, 40.0, 50.0, 60.0)):
        mean = release.mean("hours")
        assert mean.low is not None
        assert mean.high is not None
        assert mean.low <= values.mean() <= mean.high
        assert mean.high - mean.low < 4.0
        assert (release.quantile("hours", 0.5).low, release.quantile("hours", 0.5).high) == (40, 40)
