"""The scikit-learn estimator: scikit-learn's own checks, tables of every kind, and what a seed means."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import dither
from dither import Synthesiser
from dither.errors import InputError
from dither.schema import Attribute, Schema

# Needs a variable that SciPy reads when it is loaded, so that it runs in a process of its own.
ARRAYS = "check_array_api_input"
SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True)),
        Attribute("n", "numeric", edges=(0.0, 10.0, 20.0, 40.0)),
    )
)


def rows(count: int = 3000) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    a = rng.choice(["x", "y", "z"], count, p=[0.6, 0.3, 0.1])
    return {
        "a": a,
        "b": (a == "x") ^ (rng.random(count) < 0.1),
        "n": rng.uniform(0, 40, count).round(1),
    }


def fitted(table: Any, **options: Any) -> Synthesiser:
    return Synthesiser(epsilon=4.0, method="independent", schema=SCHEMA, **options).fit(table)


def named(check: Any) -> str:
    while hasattr(check, "func"):
        check = check.func
    return str(check.__name__)


def checks() -> list[tuple[Synthesiser, Any]]:
    """Scikit-learn's list for this estimator."""
    return list(
        estimator_checks_generator(Synthesiser(epsilon=2.0, method="independent", random_state=0))
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [pytest.param(e, c, id=named(c)) for e, c in checks() if named(c) != ARRAYS],
)
def test_scikit_learns_own_checks(estimator: Synthesiser, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
def test_scikit_learns_check_of_arrays() -> None:
    """It skips itself without the variable, which is an error here."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_synthesiser as here\n"
        "(one,) = [(e, c) for e, c in here.checks() if here.named(c) == here.ARRAYS]; one[1](one[0])"
    )
    command, variables = (
        [sys.executable, "-W", "ignore", "-c", code],
        {**os.environ, "SCIPY_ARRAY_API": "1"},
    )
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_rows_come_back_as_the_table_came(make: Any) -> None:
    table = make(rows())
    drawn = fitted(table).sample(500)
    assert type(drawn) is type(table)
    arrow = (
        drawn
        if isinstance(drawn, pa.Table)
        else pa.table(drawn.to_dict("list") if make is pd.DataFrame else drawn.to_arrow())
    )
    assert arrow.column_names == ["a", "b", "n"]
    assert arrow.num_rows == 500
    assert set(arrow["a"].to_pylist()) <= {"x", "y", "z"}
    if make is not pa.table:
        assert list(drawn.dtypes) == list(table.dtypes)


def test_arrays_come_back_as_arrays() -> None:
    array = np.random.default_rng(0).integers(0, 3, (2000, 4))
    with pytest.warns(UserWarning, match="inferred"):
        model = Synthesiser(epsilon=4.0, method="independent").fit(array)
    assert model.n_features_in_ == 4
    assert not hasattr(model, "feature_names_in_")
    drawn = model.sample(300)
    assert drawn.shape == (300, 4)
    assert drawn.dtype == array.dtype
    assert set(np.unique(drawn)) == {0, 1, 2}
    assert abs((drawn == 1).mean() - (array == 1).mean()) < 5 * np.sqrt(0.25 / 1200) + 0.05


def test_a_name_and_dependence_that_was_learnt() -> None:
    model = Synthesiser(epsilon=8.0, schema=SCHEMA).fit(pa.table(rows(8_000)))
    drawn = model.sample(5000).to_pandas()
    assert (
        (drawn["a"] == "x") == drawn["b"]
    ).mean() > 0.8  # 0.9 of the rows; 0.52 if columns were independent
    assert list(model.feature_names_in_) == ["a", "b", "n"]
    assert model.schema_ == SCHEMA
    assert model.release_.epsilon_achieved <= 8.0
    assert model.release_.marginal(["a"]).frequencies[0] == pytest.approx(0.6, abs=0.05)


def test_parameters_clone_and_pipeline() -> None:
    model = Synthesiser(epsilon=3.0, method="independent", schema=SCHEMA, drop=("n",))
    assert model.get_params()["epsilon"] == 3.0
    again = clone(model).set_params(epsilon=5.0, drop=())
    assert (again.epsilon, model.epsilon) == (5.0, 3.0)
    assert not hasattr(again, "release_")
    pipeline = make_pipeline(FunctionTransformer(), again).fit(pd.DataFrame(rows()))
    assert len(pipeline[-1].sample(7)) == 7


def test_pickles_without_the_truth() -> None:
    model = fitted(pd.DataFrame(rows()))
    assert model.release_.truth is not None
    held = pickle.dumps(model)
    back = pickle.loads(held)
    assert back.release_.truth is None
    assert back.release_.clipped == {}
    assert len(back.sample(12)) == 12
    assert back.release_.model.marginal(["a"]) == pytest.approx(
        model.release_.model.marginal(["a"])
    )
    assert back.release_.query("a == 'x'").estimate == pytest.approx(
        model.release_.query("a == 'x'").estimate, abs=0.05
    )


def test_a_seed_repeats_everything_and_says_what_that_means() -> None:
    table = pd.DataFrame(rows())
    with pytest.warns(UserWarning, match="NOT private against anyone who knows the seed"):
        first, second = fitted(table, random_state=3), fitted(table, random_state=3)
    assert first.sample(50).equals(second.sample(50))
    assert first.sample(50).equals(first.sample(50))
    assert not first.sample(50).equals(first.sample(50, random_state=4))
    assert first.release_.replayable
    for state in (np.random.RandomState(1), np.random.default_rng(1)):
        with pytest.warns(UserWarning, match="NOT private"):
            assert fitted(table, random_state=state).release_.replayable


def test_without_a_seed_nothing_repeats_and_nothing_is_said() -> None:
    table = pd.DataFrame(rows())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = fitted(table), fitted(table)
    assert not first.release_.replayable
    assert not np.array_equal(
        first.release_.model.marginal(["n"]), second.release_.model.marginal(["n"])
    )
    assert not first.sample(50).equals(first.sample(50))
    assert first.sample(50, random_state=1).equals(first.sample(50, random_state=1))


def test_errors_are_one_line() -> None:
    with pytest.raises(NotFittedError):
        Synthesiser().sample(3)
    for wrong in (-1, 1.5, "seven", True):
        with pytest.raises(InputError, match="random_state"):
            fitted(pd.DataFrame(rows()), random_state=wrong)
    with pytest.raises(InputError, match="n_samples"):
        fitted(pd.DataFrame(rows())).sample(0)
    with pytest.raises(InputError, match="epsilon"):
        Synthesiser(epsilon=-1.0, schema=SCHEMA).fit(pd.DataFrame(rows()))
    with pytest.raises(ValueError, match="2D"):
        Synthesiser().fit(np.arange(10))


def test_fits_a_bundled_dataset_by_name() -> None:
    model = dither.Synthesiser(epsilon=4.0, method="independent", columns=["sex", "income"]).fit(
        "adult"
    )
    assert model.sample(9).num_rows == 9
    assert model.n_features_in_ == 2
