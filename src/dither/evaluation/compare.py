"""Compare a synthetic table with a real one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dither.checks import check_whole
from dither.datasets import open_table, read_named
from dither.datasets.bundled import INFERRED
from dither.errors import ParameterError, TableError
from dither.evaluation.metrics import WaySummary, evaluate_codes
from dither.evaluation.own_scale import OwnScale, own_scales
from dither.progress import followed
from dither.schema import Schema
from dither.schema.columns import line_numbers
from dither.schema.infer import infer_schema
from dither.schema.native import to_arrow
from dither.schema.rule_tables import broken
from dither.schema.table import encode
from dither.types import Codes, JsonObject, NativeTable, Progress

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_WAYS = (1, 2, 3)


@dataclass(frozen=True)
class _CommonTables:
    """A real and a synthetic table under one schema: as they were read, and in its codes."""

    real: NativeTable
    synthetic: NativeTable
    real_codes: Codes
    synthetic_codes: Codes
    schema: Schema


def common_tables(
    real: NativeTable | str | Path,
    synthetic: NativeTable | str | Path,
    schema: Schema | str | Path | None,
) -> _CommonTables:
    """Both tables and the schema used.

    Without a schema: that of the real table if it is bundled or has one beside it, else inferred from both tables
    together, so that a label which only one of them has is no error. A value outside a given domain names its table.
    """
    first, domain, notes = open_table(real, schema)
    if schema is None and any(note.code == INFERRED for note in notes):
        # Read as it stands, like the first: the labels of one table must not decide how the other's file is read.
        second = read_named(synthetic) if isinstance(synthetic, (str, Path)) else synthetic
        domain = infer_schema(_stack(first, second))
    else:
        second, _, _ = open_table(synthetic, domain)
    return _CommonTables(
        first, second, _codes(first, domain, "real"), _codes(second, domain, "synthetic"), domain
    )


def _stack(first: NativeTable, second: NativeTable) -> pa.Table:
    """Both tables' rows under the first one's columns, in the plainest types that hold both."""
    upper, lower = to_arrow(first), to_arrow(second)
    for name in upper.column_names:
        if name not in lower.column_names:
            raise TableError(
                f"the synthetic table has no column {name!r}, which the real one has", where=name
            )
    for name in lower.column_names:
        if name not in upper.column_names:
            raise TableError(
                f"the synthetic table has a column {name!r}, which the real one lacks", where=name
            )
    try:
        tables = [_plain(upper), _plain(lower.select(upper.column_names))]
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())[:200]
        raise TableError(
            f"the two tables' columns have types that do not go together: {reason}"
        ) from None


def _plain(table: pa.Table) -> pa.Table:
    """The same table with dictionary-encoded labels as the labels themselves, which always go together."""
    columns = []
    for column in table.columns:
        kind = column.type
        columns.append(column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column)
    return pa.table(columns, names=table.column_names)


def _codes(table: NativeTable, schema: Schema, which: str) -> Codes:
    try:
        return encode(table, schema, keep_rules=False).codes
    except TableError as error:
        raise TableError(f"{which} table: {error}", where=error.where, value=error.value) from None


@dataclass(frozen=True)
class Evaluation:
    """Distances between two tables by the number of attributes taken together, each a mean over sets of attributes.

    `tvd` is the total variation distance in [0, 1], `kl` the Kullback-Leibler divergence in nats, `mse` the mean
    squared difference of a cell; `ways` has the spread and the worst set beside them. `columns` compares numbers and times on
    their own scale, which bins cannot flatter; `broken` is the share of real and of synthetic rows that break a rule of the schema,
    None if it has none. `sdmetrics` has that library's scores if they were asked for.
    """

    ways: dict[int, WaySummary]
    rows_real: int
    rows_synthetic: int
    columns: tuple[OwnScale, ...] = ()
    broken: tuple[float, float] | None = None
    sdmetrics: SDMetricsScores | None = None

    @property
    def tvd(self) -> dict[int, float]:
        """Mean total variation distance for each number of attributes."""
        return {k: found.tvd for k, found in self.ways.items()}

    @property
    def kl(self) -> dict[int, float]:
        """Mean Kullback-Leibler divergence for each number of attributes."""
        return {k: found.kl for k, found in self.ways.items()}

    @property
    def mse(self) -> dict[int, float]:
        """Mean squared error of a cell for each number of attributes."""
        return {k: found.mse for k, found in self.ways.items()}

    def to_json(self) -> JsonObject:
        """Plain values, with the number of attributes as text keys."""
        sets = {
            str(k): {
                "used": found.sets,
                "possible": found.possible_sets,
                "tvd_spread": found.tvd_spread,
                "worst": {"attributes": list(found.worst), "tvd": found.worst_tvd},
            }
            for k, found in self.ways.items()
        }
        return {
            "tvd": {str(k): value for k, value in self.tvd.items()},
            "kl": {str(k): value for k, value in self.kl.items()},
            "mse": {str(k): value for k, value in self.mse.items()},
            "sets": sets,
            "rows": {"real": self.rows_real, "synthetic": self.rows_synthetic},
            "columns": {column.name: column.to_json() for column in self.columns},
            **(
                {}
                if self.broken is None
                else {"broken_rules": dict(zip(("real", "synthetic"), self.broken, strict=True))}
            ),
            **({} if self.sdmetrics is None else {"sdmetrics": self.sdmetrics.to_json()}),
        }


def evaluate(
    real: NativeTable | str | Path,
    synthetic: NativeTable | str | Path,
    schema: Schema | str | Path | None = None,
    ways: Sequence[int] = DEFAULT_WAYS,
    max_sets: int = 100,
    seed: int = 0,
    sdmetrics: bool = False,
    progress: Progress | bool | None = None,
) -> Evaluation:
    """How far a synthetic table is from a real one, on marginals of 1, 2 and 3 attributes unless `ways` says otherwise.

    Tables are pandas, polars or PyArrow, CSV or Parquet files, or bundled datasets' names. In marginals numbers are compared in
    the schema's bins, and beside them on their own scale. With more than `max_sets` sets of attributes that many are drawn; the
    same seed draws the same ones. With `sdmetrics` the scores of SDMetrics' quality report stand beside, if that library is
    installed. `progress` is as for `publish`.

    >>> import dither
    >>> dither.evaluate("adult", "adult", ways=[1]).tvd
    {1: 0.0}
    """
    check_whole("seed", seed)
    if sdmetrics:
        _require_sdmetrics()
    tables = common_tables(real, synthetic, schema)
    first, second, domain = tables.real_codes, tables.synthetic_codes, tables.schema
    asked = tuple(ways)
    if asked == DEFAULT_WAYS:  # nobody asked for three attributes of a table that has two
        asked = DEFAULT_WAYS[: len(domain)]
    with followed(progress) as show:
        found = evaluate_codes(
            first, second, domain, asked, max_sets, np.random.default_rng(seed), show
        )
    scales = own_scales(tables.real, tables.synthetic, domain)
    wrong = (
        (float(broken(domain, first).mean()), float(broken(domain, second).mean()))
        if domain.rules
        else None
    )
    scores = _sdmetrics_scores(tables) if sdmetrics else None
    return Evaluation(found, len(first), len(second), scales, wrong, scores)


# The scores of SDMetrics' quality report, computed by that library itself.

SDTYPES = {
    "numeric": "numerical",
    "date": "numerical",
    "datetime": "numerical",
    "duration": "numerical",
    "boolean": "boolean",
}


@dataclass(frozen=True)
class Score:
    """One column's or one pair's score and the metric it is of; None where the library could not compute it."""

    columns: tuple[str, ...]
    metric: str
    score: float | None


@dataclass(frozen=True)
class SDMetricsScores:
    """What SDMetrics' QualityReport says; `sdtypes` is how each column was treated.

    Column Shapes and Column Pair Trends are means of scores between 0 and 1, where 1 is best; the overall score is their mean.
    """

    overall: float
    column_shapes: float
    column_pair_trends: float | None
    sdtypes: dict[str, str]
    columns: tuple[Score, ...]
    pairs: tuple[Score, ...]
    version: str

    @property
    def unscored(self) -> int:
        """How many columns and pairs the library could not score, such as correlations with a constant."""
        return sum(score.score is None for score in (*self.columns, *self.pairs))

    def to_json(self) -> JsonObject:
        """Plain values."""
        return {
            "overall": self.overall,
            "column_shapes": self.column_shapes,
            "column_pair_trends": self.column_pair_trends,
            "columns": {
                s.columns[0]: {
                    "sdtype": self.sdtypes[s.columns[0]],
                    "metric": s.metric,
                    "score": s.score,
                }
                for s in self.columns
            },
            "pairs": [
                {"columns": list(s.columns), "metric": s.metric, "score": s.score}
                for s in self.pairs
            ],
            "unscored": self.unscored,
            "sdmetrics_version": self.version,
        }


def _require_sdmetrics() -> None:
    """An error in one line when the library is not installed."""
    if find_spec("sdmetrics") is None:
        raise ParameterError(
            "these scores need the library SDMetrics, which is not installed; run: pip install sdmetrics",
            where="sdmetrics",
        )


def sdmetrics_metadata(schema: Schema) -> JsonObject:
    """A schema as the metadata that SDMetrics and SDV read: what each column is.

    `numeric` attributes and times are numerical, compared as numbers (KSComplement, CorrelationSimilarity); `categorical`,
    `ordinal` and `boolean` ones are compared value by value (TVComplement, ContingencySimilarity, which are one minus the total
    variation distance of one and of two attributes).
    """
    return {
        "columns": {
            attribute.name: {"sdtype": SDTYPES.get(attribute.kind, "categorical")}
            for attribute in schema
        }
    }


def _sdmetrics_scores(tables: _CommonTables) -> SDMetricsScores:
    """The quality report of two tables; all rows count, so that the same tables always give the same scores."""
    _require_sdmetrics()
    metadata = sdmetrics_metadata(tables.schema)
    real = sdmetrics_frame(tables.real, tables.real_codes, tables.schema)
    synthetic = sdmetrics_frame(tables.synthetic, tables.synthetic_codes, tables.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be scored is counted instead
        report: Any = import_module("sdmetrics.reports.single_table").QualityReport()
        report.num_rows_subsample = None  # above 50,000 rows it would draw some without a seed
        report.generate(real, synthetic, metadata, verbose=False)
    shown = dict(
        zip(*(report.get_properties()[name] for name in ("Property", "Score")), strict=True)
    )
    return SDMetricsScores(
        overall=float(report.get_score()),
        column_shapes=float(shown["Column Shapes"]),
        column_pair_trends=_number(shown["Column Pair Trends"]),
        sdtypes={name: column["sdtype"] for name, column in metadata["columns"].items()},
        columns=_scores(report.get_details("Column Shapes"), ("Column",)),
        pairs=_scores(report.get_details("Column Pair Trends"), ("Column 1", "Column 2")),
        version=str(report.get_info()["sdmetrics_version"]),
    )


def sdmetrics_frame(table: NativeTable, codes: Codes, schema: Schema) -> pd.DataFrame:
    """A table as SDMetrics takes it: a pandas frame with numbers as such and all else as labels; missing values are None.

    Labels come from the codes, so that both tables write the same value alike whatever files they were read from.
    """
    import pandas as pd

    arrow = to_arrow(table)
    columns: dict[str, object] = {}
    for i, attribute in enumerate(schema):
        if attribute.on_line:
            columns[attribute.name] = line_numbers(attribute, arrow.column(attribute.name))
        else:
            labels = np.array([*attribute.labels[: attribute.answers], None], dtype=object)
            columns[attribute.name] = pd.Series(labels[codes[:, i]], dtype=object)
    return pd.DataFrame(columns)


def _scores(details: pd.DataFrame, names: tuple[str, ...]) -> tuple[Score, ...]:
    rows = zip(*(details[name] for name in (*names, "Metric", "Score")), strict=True)
    return tuple(
        Score(tuple(str(c) for c in columns), str(metric), _number(score))
        for *columns, metric, score in rows
    )


def _number(score: float) -> float | None:
    return float(score) if math.isfinite(score) else None
