"""Numbers on their own scale: distances against SciPy's, and what bins hide is seen."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dither
from dither.schema import Attribute, Order, Schema


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    first, second = np.round(rng.normal(0, 1, 300), 1), np.round(rng.normal(0.3, 2, 170), 1)
    schema = Schema((Attribute("x", "numeric", edges=(-20.0, 0.0, 20.0)),))
    real, synthetic = pd.DataFrame({"x": first}), pd.DataFrame({"x": second})
    (column,) = dither.evaluate(real, synthetic, schema).columns
    assert column.ks == pytest.approx(stats.ks_2samp(first, second).statistic, abs=1e-12)
    assert column.wasserstein == pytest.approx(stats.wasserstein_distance(first, second), abs=1e-12)
    (same,) = dither.evaluate(real, real, schema).columns
    assert same.ks == same.wasserstein == 0.0


def test_bins_that_hide_a_spike_are_found_out():
    """The same bins, so that marginals agree exactly; four in five real values are 0, and no synthetic one is."""
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"x": np.where(rng.random(4000) < 0.8, 0.0, rng.uniform(0, 100, 4000))})
    flat = pd.DataFrame({"x": rng.uniform(0.001, 100, 4000)})
    schema = Schema((Attribute("x", "numeric", edges=(0.0, 100.0, 200.0)),))
    found = dither.evaluate(real, flat, schema)
    assert found.tvd[1] == 0.0
    (column,) = found.columns
    assert column.ks > 0.75
    assert column.top == 0.0
    assert column.real.top_share == pytest.approx(0.8, abs=0.03)
    assert column.synthetic.top_share == 0.0
    assert column.real.repeats > 0.79
    assert column.real.quantiles[3] == 0.0
    assert found.to_json()["columns"]["x"]["synthetic"]["quantiles"]["0.5"] == pytest.approx(
        50, abs=4
    )


def test_times_and_missing_values_have_a_scale_too():
    days = pd.date_range("2024-01-01", periods=60)
    real = pd.DataFrame({"day": days, "n": [1.5, None, 2.5] * 20})
    schema = dither.infer_schema(real)
    found = {column.name: column for column in dither.evaluate(real, real, schema).columns}
    assert found["day"].ks == 0.0
    assert found["day"].real.quantiles == found["day"].synthetic.quantiles
    assert "n" not in found  # two different numbers are codes, not a scale
    gaps = Schema(
        (*schema.attributes[:1], Attribute("n", "numeric", edges=(0.0, 2.0, 3.0), missing=True))
    )
    (_, numbers) = dither.evaluate(real, real, gaps).columns
    assert numbers.real.missing == pytest.approx(1 / 3)


def test_rows_that_break_a_rule_are_counted_not_refused():
    schema = Schema(
        (Attribute("a", "ordinal", (1, 2, 3)), Attribute("b", "ordinal", (1, 2, 3))),
        (Order("a", "b"),),
    )
    real, made = (
        pd.DataFrame({"a": [1, 1, 2, 3], "b": [1, 2, 3, 3]}),
        pd.DataFrame({"a": [1, 3, 2, 3], "b": [1, 2, 3, 1]}),
    )
    found = dither.evaluate(real, made, schema)
    assert found.broken == (0.0, 0.5)
    assert found.to_json()["broken_rules"] == {"real": 0.0, "synthetic": 0.5}
    assert dither.evaluate(real, made, Schema(schema.attributes)).broken is None
