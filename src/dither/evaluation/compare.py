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
from dither.evaluation.metrics import ColumnDistances, WaySummary, column_distances, evaluate_codes
from dither.progress import followed
from dither.schema import Schema
from dither.schema.columns import line_numbers
from dither.schema.infer import infer_schema
from dither.schema.rule_tables import broken
from dither.schema.table import encode, to_arrow
from dither.types import Codes, JsonMapping, JsonObject, NativeTable, Progress

if TYPE_CHECKING:
    import pandas as pd

_DEFAULT_WAYS = (1, 2, 3)


@dataclass(frozen=True)
class _CommonTables:
    """A real and a synthetic table under one schema, as tables and as codes."""

    real: NativeTable
    synthetic: NativeTable
    real_codes: Codes
    synthetic_codes: Codes
    schema: Schema


def _common_tables(
    real: NativeTable | str | Path,
    synthetic: NativeTable | str | Path,
    schema: Schema | JsonMapping | str | Path | None,
) -> _CommonTables:
    """Both tables under one schema.

    Without a schema it is that of the real table (`named_schema`), else inferred from both tables
    together, so that a label of only one table is valid. A value outside a given domain is an
    error that names its table.
    """
    first, domain, notes = open_table(real, schema)
    if schema is None and any(note.code == INFERRED for note in notes):
        # The labels of one table must not affect how the other's file is read.
        second = read_named(synthetic) if isinstance(synthetic, (str, Path)) else synthetic
        domain = infer_schema(_stack(first, second))
    else:
        second, _, _ = open_table(synthetic, domain)
    return _CommonTables(
        first, second, _codes(first, domain, "real"), _codes(second, domain, "synthetic"), domain
    )


def _stack(first: NativeTable, second: NativeTable) -> pa.Table:
    """The rows of both tables with the columns of the first, in the plainest common types."""
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
    """The table with dictionary-encoded columns decoded, so that tables can be concatenated."""
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
    """Distances between two tables, by the number of attributes taken together.

    Attributes:
        tvd: The mean total variation distance over sets of attributes, in [0, 1].
        kl: The mean Kullback-Leibler divergence, in nats.
        mse: The mean squared difference of a cell.
        ways: The spread and the worst set, by number of attributes.
        columns: Numbers and times compared on their own scale, independent of bins.
        broken: The shares of real and of synthetic rows that violate a rule; None without rules.
        sdmetrics: The scores of SDMetrics, if requested.
    """

    ways: dict[int, WaySummary]
    rows_real: int
    rows_synthetic: int
    columns: tuple[ColumnDistances, ...] = ()
    broken: tuple[float, float] | None = None
    sdmetrics: SDMetricsScores | None = None

    @property
    def tvd(self) -> dict[int, float]:
        """Mean total variation distance for each number of attributes."""
        return {k: summary.tvd for k, summary in self.ways.items()}

    @property
    def kl(self) -> dict[int, float]:
        """Mean Kullback-Leibler divergence for each number of attributes."""
        return {k: summary.kl for k, summary in self.ways.items()}

    @property
    def mse(self) -> dict[int, float]:
        """Mean squared error of a cell for each number of attributes."""
        return {k: summary.mse for k, summary in self.ways.items()}

    def to_json(self) -> JsonObject:
        """Plain values, with the number of attributes as text keys."""
        sets = {
            str(k): {
                "used": summary.sets,
                "possible": summary.possible_sets,
                "tvd_spread": summary.tvd_spread,
                "worst": {"attributes": list(summary.worst), "tvd": summary.worst_tvd},
            }
            for k, summary in self.ways.items()
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
    schema: Schema | JsonMapping | str | Path | None = None,
    ways: Sequence[int] = _DEFAULT_WAYS,
    max_sets: int = 100,
    seed: int = 0,
    sdmetrics: bool = False,
    progress: Progress | bool | None = None,
) -> Evaluation:
    """Compare a synthetic table with the real one on k-way marginals.

    Args:
        real: A pandas, polars or PyArrow table, a CSV or Parquet file, or a bundled dataset.
        synthetic: Likewise.
        schema: The schema; by default that of the real table, else inferred.
        ways: The numbers of attributes taken together; 1, 2 and 3 by default. Numbers are
            compared in the schema's bins, and in `columns` on their own scale.
        max_sets: The largest number of sets of attributes; of more a sample is drawn.
        seed: The seed of that sample.
        sdmetrics: Whether to compute the quality report of SDMetrics, if installed.
        progress: As for `publish`.

    Returns:
        Total variation distances by number of attributes (`tvd`), of each set, and distances
        of single columns.

    >>> import dither
    >>> dither.evaluate("adult", "adult", ways=[1]).tvd
    {1: 0.0}
    """
    check_whole("seed", seed)
    if sdmetrics:
        _require_sdmetrics()
    tables = _common_tables(real, synthetic, schema)
    first, second, domain = tables.real_codes, tables.synthetic_codes, tables.schema
    asked = tuple(ways)
    # The default does not apply to tables with fewer attributes.
    if asked == _DEFAULT_WAYS:
        asked = _DEFAULT_WAYS[: len(domain)]
    with followed(progress) as show:
        distances = evaluate_codes(
            first, second, domain, asked, max_sets, np.random.default_rng(seed), show
        )
    scales = column_distances(tables.real, tables.synthetic, domain)
    wrong = (
        (float(broken(domain, first).mean()), float(broken(domain, second).mean()))
        if domain.rules
        else None
    )
    scores = _sdmetrics_scores(tables) if sdmetrics else None
    return Evaluation(distances, len(first), len(second), scales, wrong, scores)


# The scores of SDMetrics' quality report, computed by that library itself.

_SDTYPES = {
    "numeric": "numerical",
    "date": "numerical",
    "datetime": "numerical",
    "duration": "numerical",
    "boolean": "boolean",
}


@dataclass(frozen=True)
class Score:
    """The score of one column or pair, and its metric; None if it could not be computed."""

    columns: tuple[str, ...]
    metric: str
    score: float | None


@dataclass(frozen=True)
class SDMetricsScores:
    """The scores of SDMetrics' QualityReport; `sdtypes` is the treatment of each column.

    Column Shapes and Column Pair Trends are means of scores between 0 and 1 (best); the overall
    score is their mean.
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
        """The number of columns and pairs without a score, such as correlations with a constant."""
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
    """A schema as the metadata of SDMetrics and SDV.

    `numeric` attributes and times are numerical (KSComplement, CorrelationSimilarity);
    `categorical`, `ordinal` and `boolean` ones are compared value by value (TVComplement,
    ContingencySimilarity, one minus the total variation distance of one and of two attributes).
    """
    return {
        "columns": {
            attribute.name: {"sdtype": _SDTYPES.get(attribute.kind, "categorical")}
            for attribute in schema
        }
    }


def _sdmetrics_scores(tables: _CommonTables) -> SDMetricsScores:
    """The quality report of two tables over all rows, so that scores are deterministic."""
    _require_sdmetrics()
    metadata = sdmetrics_metadata(tables.schema)
    real = _frame(tables.real, tables.real_codes, tables.schema)
    synthetic = _frame(tables.synthetic, tables.synthetic_codes, tables.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be scored is counted instead
        report: Any = import_module("sdmetrics.reports.single_table").QualityReport()
        # Above 50,000 rows SDMetrics would sample without a seed.
        report.num_rows_subsample = None
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


def _frame(table: NativeTable, codes: Codes, schema: Schema) -> pd.DataFrame:
    """A pandas frame for SDMetrics: numbers as numbers, other values as labels, missing as None.

    Labels come from the codes, so both tables write equal values equally.
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
