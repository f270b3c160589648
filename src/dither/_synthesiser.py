"""A scikit-learn estimator over `publish`: fit a table, sample synthetic rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import narwhals as nw
import numpy as np
import pyarrow as pa
from sklearn.utils.validation import check_array, check_is_fitted

from dither._publish import publish
from dither.checks import as_whole, check_whole
from dither.errors import DitherWarning, ParameterError
from dither.randomness import generator
from dither.release import Release
from dither.release.call import MAX_PEOPLE
from dither.schema import Schema
from dither.schema.table import column_names, decode, encode, to_arrow
from dither.types import JsonMapping, NativeTable, Progress

if TYPE_CHECKING:

    class BaseEstimator:
        """scikit-learn's base class, which has no type annotations."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def __sklearn_tags__(self) -> Any: ...

else:
    from sklearn.base import BaseEstimator

# Warnings about the guarantee are raised by `fit`; all of them are in `release_.warnings`.
_RAISED = ("replayable-noise", "inferred-domain", "rows-resampled")
RandomState = int | np.random.RandomState | np.random.Generator | None
_SAMPLING = 0x73616D70


class Synthesiser(BaseEstimator):
    """Synthetic rows under local differential privacy, as a scikit-learn estimator.

    `fit` simulates a campaign with one participant for each row (`dither.publish`) and
    keeps the release in `release_`. `sample` draws rows from its model, of the kind that
    was fitted (pandas, polars, PyArrow or NumPy); that costs no privacy. There is no
    `score`: measure synthetic rows against rows that were not fitted (`dither.evaluate`).

    Args:
        epsilon: Guarantee of one participant's whole record.
        random_state: None takes noise from the operating system, which cannot be drawn
            again. With a seed a fit can be repeated, and anyone who knows the seed can
            remove the noise; `fit` warns of that, and of a domain inferred from the rows.
        method, schema, parameters, population, replicates, unknown, columns, drop, keep:
            As for `dither.publish`.

    Attributes:
        release_: The release, with `query`, `marginal` and `save`.
        schema_: The schema of the table.
        n_features_in_: Number of columns.
        feature_names_in_: Names of the columns, where they have names.

    >>> import dither
    >>> adult = dither.load_dataset("adult")
    >>> synthesiser = dither.Synthesiser(epsilon=4.0, method="independent", schema=adult.schema)
    >>> synthesiser.fit(adult.table).sample(1000).num_rows
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
        schema: Schema | JsonMapping | str | Path | None = None,
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
        """Publish a table.

        Args:
            X: A pandas, polars or PyArrow table, a NumPy array (its columns are called x0,
                x1, ...), the path of a file, or the name of a bundled dataset.
            y: A target, one value for each row: it is published as one more column, the last,
                named as the series is, else `target`. `sample` returns it with the others.
            progress: As for `dither.publish`.

        Returns:
            The estimator itself.

        Raises:
            ParameterError: The target has another number of rows, or a column has its name.
        """
        table, kind = _as_table(X)
        features = _feature_names(table)
        if y is not None:
            table, kind = _with_target(table, kind, y)
        options = self.get_params(deep=False)
        seed = _seed(options.pop("random_state"))
        release = publish(table, **options, seed=seed, progress=progress)
        for notice in release.warnings:
            if notice.code in _RAISED:
                warnings.warn(notice.message, DitherWarning, stacklevel=2)
        self.release_ = release
        self.schema_ = release.schema
        self._kind = kind
        # The types of the synthetic table, which only public facts decide.
        self._layout = encode(release.synthetic, release.schema, keep_rules=False).layout
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        names = list(release.schema.names) if features is None else features
        self.n_features_in_ = len(names)
        if kind is None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        return self

    def sample(self, n_samples: int = 1, *, random_state: RandomState = None) -> NativeTable:
        """Draw synthetic rows from the model.

        Args:
            n_samples: Number of rows.
            random_state: Seed of the draw, which has no effect on privacy. None takes the
                estimator's: a whole number there gives the same rows at each call.

        Returns:
            A table of the kind that was fitted.
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
    """A table as `publish` takes it, and the type of the array if it was one."""
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
            f"each column of the array must hold values of one type: {reason}", where="X"
        ) from None
    return pa.table(columns, names=names), array.dtype


def _feature_names(table: NativeTable) -> list[str] | None:
    """The columns of a table in memory; None for a file or a name."""
    return None if isinstance(table, (str, Path)) else column_names(table)


def _with_target(
    table: NativeTable, kind: np.dtype[Any] | None, y: Any
) -> tuple[NativeTable, np.dtype[Any] | None]:
    """The table with a target as its last column, and the type of an array of both."""
    if isinstance(table, (str, Path)):
        raise ParameterError("y needs a table in memory, not a file or a name", where="y")
    name = str(getattr(y, "name", None) or "target")
    values = np.asarray(y)
    frame = nw.from_native(table, eager_only=True)
    if values.shape not in ((len(frame),), (len(frame), 1)):
        raise ParameterError(
            f"y has the shape {values.shape}; it needs one value for each of {len(frame):,} rows",
            where="y",
        )
    if name in frame.columns:
        raise ParameterError(
            f"X has a column {name!r} already; leave y out or rename it", where="y", value=name
        )
    target = nw.new_series(name, values.reshape(-1).tolist(), backend=frame.implementation)
    joined = kind if kind is None else np.result_type(kind, values.dtype)
    return frame.with_columns(target).to_native(), joined


def _as_array(table: NativeTable, dtype: np.dtype[Any]) -> np.ndarray:
    columns = [column.to_numpy() for column in to_arrow(table).columns]
    return np.stack([np.asarray(column) for column in columns], axis=1).astype(dtype, copy=False)


def _seed(state: RandomState) -> int | None:
    """The seed of a random state; None for the operating system's random numbers."""
    if state is None:
        return None
    if isinstance(state, np.random.RandomState):
        return int(state.randint(0, 2**31 - 1))
    if isinstance(state, np.random.Generator):
        return int(state.integers(0, 2**31 - 1))
    whole = as_whole(state)
    if whole is None or whole < 0:
        raise ParameterError(
            "random_state must be a whole number of at least 0, a NumPy generator or None, "
            f"not {state!r}",
            where="random_state",
            value=state,
        )
    return whole
