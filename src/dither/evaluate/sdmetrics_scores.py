"""The scores of SDMetrics' quality report, computed by that library itself, for those who know them.

Column Shapes and Column Pair Trends are means of scores between 0 and 1, where 1 is best; the overall score is their mean. The
library needs to be told what each column is. That follows from the schema: `numeric` attributes are numerical, compared as
numbers (KSComplement, CorrelationSimilarity); `categorical`, `ordinal` and `boolean` ones are compared value by value
(TVComplement, ContingencySimilarity, which are one minus the total variation distance of one and of two attributes).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from dither.errors import ParameterError
from dither.evaluate.tables import CommonTables
from dither.schema import Schema
from dither.types import Codes

SDTYPES = {"numeric": "numerical", "boolean": "boolean", "categorical": "categorical", "ordinal": "categorical"}


@dataclass(frozen=True)
class Score:
    """One column's or one pair's score and the metric it is of; None where the library could not compute it."""

    columns: tuple[str, ...]
    metric: str
    score: float | None


@dataclass(frozen=True)
class SDMetricsScores:
    """What SDMetrics' QualityReport says; `sdtypes` is how each column was treated."""

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

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "overall": self.overall,
            "column_shapes": self.column_shapes,
            "column_pair_trends": self.column_pair_trends,
            "columns": {
                s.columns[0]: {"sdtype": self.sdtypes[s.columns[0]], "metric": s.metric, "score": s.score}
                for s in self.columns
            },
            "pairs": [{"columns": list(s.columns), "metric": s.metric, "score": s.score} for s in self.pairs],
            "unscored": self.unscored,
            "sdmetrics_version": self.version,
        }


def require_sdmetrics() -> None:
    """An error in one line when the library is not installed."""
    if find_spec("sdmetrics") is None:
        raise ParameterError(
            "--sdmetrics needs the library SDMetrics, which is not installed; run: pip install sdmetrics",
            where="--sdmetrics",
        )


def sdmetrics_metadata(schema: Schema) -> dict[str, Any]:
    """A schema as the metadata that SDMetrics and SDV read."""
    return {"columns": {attribute.name: {"sdtype": SDTYPES[attribute.kind]} for attribute in schema}}


def sdmetrics_scores(tables: CommonTables) -> SDMetricsScores:
    """The quality report of two tables; all rows count, so that the same tables always give the same scores."""
    require_sdmetrics()
    metadata = sdmetrics_metadata(tables.schema)
    real = sdmetrics_frame(tables.real, tables.real_codes, tables.schema)
    synthetic = sdmetrics_frame(tables.synthetic, tables.synthetic_codes, tables.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be scored is counted instead
        report: Any = import_module("sdmetrics.reports.single_table").QualityReport()
        report.num_rows_subsample = None  # above 50,000 rows it would draw some without a seed
        report.generate(real, synthetic, metadata, verbose=False)
    shown = dict(zip(*(report.get_properties()[name] for name in ("Property", "Score")), strict=True))
    return SDMetricsScores(
        overall=float(report.get_score()),
        column_shapes=float(shown["Column Shapes"]),
        column_pair_trends=_number(shown["Column Pair Trends"]),
        sdtypes={name: column["sdtype"] for name, column in metadata["columns"].items()},
        columns=_scores(report.get_details("Column Shapes"), ("Column",)),
        pairs=_scores(report.get_details("Column Pair Trends"), ("Column 1", "Column 2")),
        version=str(report.get_info()["sdmetrics_version"]),
    )


def sdmetrics_frame(table: Any, codes: Codes, schema: Schema) -> Any:
    """A table as SDMetrics takes it: a pandas frame with numbers as such and all else as labels; missing values are None.

    Labels come from the codes, so that both tables write the same value alike whatever files they were read from.
    """
    import pandas as pd
    import pyarrow as pa

    from dither.schema.native import to_arrow

    arrow = to_arrow(table)
    columns: dict[str, Any] = {}
    for i, attribute in enumerate(schema):
        if attribute.kind == "numeric":
            columns[attribute.name] = arrow.column(attribute.name).cast(pa.float64()).to_numpy()
        else:
            labels = np.array([*attribute.labels[: attribute.answers], None], dtype=object)
            columns[attribute.name] = pd.Series(labels[codes[:, i]], dtype=object)
    return pd.DataFrame(columns)


def _scores(details: Any, names: tuple[str, ...]) -> tuple[Score, ...]:
    rows = zip(*(details[name] for name in (*names, "Metric", "Score")), strict=True)
    return tuple(Score(tuple(str(c) for c in columns), str(metric), _number(score)) for *columns, metric, score in rows)


def _number(score: Any) -> float | None:
    value = float(score)
    return value if math.isfinite(value) else None
