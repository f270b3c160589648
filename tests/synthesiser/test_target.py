"""A target given to `fit` is published with the features, or refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dither
from dither.errors import ParameterError

ROWS = 400


def _features() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame({"a": rng.choice(["x", "y"], ROWS), "b": rng.integers(0, 3, ROWS)})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_a_target_is_a_column_like_any_other(kind: str) -> None:
    X, y = _features(), np.arange(ROWS) % 2
    given = {
        "pandas": (X, pd.Series(y, name="bought")),
        "polars": (pl.from_pandas(X), pl.Series("bought", y)),
        "array": (X[["b"]].to_numpy(), y),
    }[kind]
    model = dither.Synthesiser(epsilon=8.0, method="independent", random_state=1).fit(*given)
    drawn = model.sample(200)
    if kind == "array":
        assert drawn.shape == (200, 2)
        assert set(drawn[:, 1]) == {0, 1}
        assert model.n_features_in_ == 1
        assert model.release_.schema.names == ("x0", "target")
    else:
        assert type(drawn) is type(given[0])
        assert list(drawn.columns) == ["a", "b", "bought"]
        assert 0.3 < float(drawn["bought"].mean()) < 0.7
        assert list(model.feature_names_in_) == ["a", "b"]


def test_a_target_that_does_not_fit_is_refused() -> None:
    X = _features()
    model = dither.Synthesiser(epsilon=8.0, method="independent")
    with pytest.raises(ParameterError, match="one value for each of 400 rows"):
        model.fit(X, np.zeros(3))
    with pytest.raises(ParameterError, match="already"):
        model.fit(X, pd.Series(np.zeros(ROWS), name="a"))
    with pytest.raises(ParameterError, match="table in memory"):
        model.fit("adult", np.zeros(3))
