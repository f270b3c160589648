"""A scikit-learn estimator over `publish`: fit a table, sample synthetic rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from dither._publish import MAX_PEOPLE, publish
from dither.checks import as_whole, check_whole
from dither.errors import ParameterError
from dither.randomness import generator
from dither.release import Release
from dither.schema import Schema
from dither.schema.native import column_names, to_arrow
from dither.schema.table import decode, encode
from dither.types import NativeTable, Progress

# What an unsuspecting user has to hear at once; all of them, and what to do, are in `release_.warnings`.
SAID = ("replayable-noise", "inferred-domain", "rows-resampled")
RandomState = int | np.random.RandomState | np.random.Generator | None
_SAMPLING = 0x73616D70


class Synthesiser(BaseEstimator):
    """Synthetic rows under local differential privacy, as scikit-learn has its estimators.

    `fit` plays every row of a table as one participant of a campaign (`dither.publish`) and keeps the release in `release_`;
    `sample` draws rows of the same kind (pandas, polars, PyArrow or NumPy) from its model, as many and as often as wanted: that
    costs no privacy. `epsilon` is the guarantee of one participant's whole record; the other arguments are those of `publish`.

    `random_state` is honest about what a seed means: without one, noise comes from the operating system and nobody can draw it
    again; with one, a fit can be repeated, and whoever knows it can take the noise off. `fit` warns of that, and of a domain that
    was inferred from the rows. Targets are not looked at: a column to be predicted is a column of the table like any other.

    Fitted: `release_` (with `query`, `marginal`, `save`), `schema_`, `n_features_in_`, and `feature_names_in_` where columns have
    names. There is no `score`: how good synthetic rows are is measured against rows that were not fitted (`dither.evaluate`).

    >>> import dither
    >>> adult = dither.load_dataset("adult")
    >>> synthesiser = dither.Synthesiser(epsilon=4.0, method="independent", schema=adult.schema).fit(adult.table)
    >>> synthesiser.sample(1000).num_rows
    1000
    """

    release_: Release
    schema_: Schema
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        method: str | None = None,
        schema: Schema | str | Path | None = None,
        parameters: Mapping[str, Any] | None = None,
        population: int | None = None,
        replicates: int = 0,
        unknown: Literal["error", "other"] = "error",
        columns: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        random_state: RandomState = None,
    ) -> None:
        self.epsilon = epsilon
        self.method = method
        self.schema = schema
        self.parameters = parameters
        self.population = population
        self.replicates = replicates
        self.unknown = unknown
        self.columns = columns
        self.drop = drop
        self.keep = keep
        self.random_state = random_state

    def fit(
        self, X: NativeTable, y: object = None, *, progress: Progress | bool | None = None
    ) -> Self:
        """Publish the table `X`: pandas, polars or PyArrow, a NumPy array (its columns are called x0, x1, ...), a file or a name.

        `y` is there for pipelines and is not looked at. `progress` is as for `publish`.
        """
        table, kind = _as_table(X)
        release = publish(
            table,
            epsilon=self.epsilon,
            method=self.method,
            schema=self.schema,
            parameters=self.parameters,
            population=self.population,
            replicates=self.replicates,
            unknown=self.unknown,
            columns=self.columns,
            drop=self.drop,
            keep=self.keep,
            seed=_seed(self.random_state),
            progress=progress,
        )
        for notice in release.warnings:
            if notice.code in SAID:
                warnings.warn(notice.message, stacklevel=2)
        self.release_, self.schema_, self._kind = release, release.schema, kind
        # The columns' types as the synthetic table has them, which are decided by public facts.
        self._layout = encode(release.synthetic, release.schema, keep_rules=False).layout
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        names = (
            list(release.schema.names) if isinstance(table, (str, Path)) else column_names(table)
        )
        self.n_features_in_ = len(names)
        if kind is None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        return self

    def sample(self, n_samples: int = 1, *, random_state: RandomState = None) -> NativeTable:
        """So many synthetic rows, a table of the kind that was fitted.

        Drawn from the finished model, so that a `random_state` here harms nobody. Without one the estimator's own is used: a whole
        number there gives the same rows at each call, none draws anew.
        """
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1, MAX_PEOPLE)
        seed = _seed(self.random_state if random_state is None else random_state)
        codes = self.release_.model.sample(n_samples, generator(seed, _SAMPLING, 0))
        drawn = decode(codes, self.schema_, self._layout, generator(seed, _SAMPLING, 1))
        return drawn if self._kind is None else _as_array(drawn, self._kind)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = False
        tags.non_deterministic = self.random_state is None
        return tags


def _as_table(given: Any) -> tuple[NativeTable, np.dtype[Any] | None]:
    """A table as `publish` takes it, and the type to give an array back in, if it was one."""
    if not (
        isinstance(given, (np.ndarray, list, tuple))
        or hasattr(given, "toarray")
        or hasattr(given, "__array_namespace__")
    ):
        return given, None
    array = check_array(
        given,
        dtype=None,
        ensure_all_finite="allow-nan",
        ensure_min_samples=2,
        estimator="Synthesiser",
    )
    names = [f"x{i}" for i in range(array.shape[1])]
    try:
        columns = [pa.array(array[:, i], from_pandas=True) for i in range(array.shape[1])]
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise ParameterError(
            f"the array's columns are no values of one type each: {reason}", where="X"
        ) from None
    return pa.table(columns, names=names), array.dtype


def _as_array(table: NativeTable, dtype: np.dtype[Any]) -> np.ndarray:
    columns = [column.to_numpy() for column in to_arrow(table).columns]
    return np.stack([np.asarray(column) for column in columns], axis=1).astype(dtype, copy=False)


def _seed(state: RandomState) -> int | None:
    """A seed of a number, or drawn from a generator; None where the operating system is to draw."""
    if state is None:
        return None
    if isinstance(state, np.random.RandomState):
        return int(state.randint(0, 2**31 - 1))
    if isinstance(state, np.random.Generator):
        return int(state.integers(0, 2**31 - 1))
    whole = as_whole(state)
    if whole is None or whole < 0:
        raise ParameterError(
            f"random_state must be a whole number of at least 0, a NumPy generator or None, not {state!r}",
            where="random_state",
            value=state,
        )
    return whole
