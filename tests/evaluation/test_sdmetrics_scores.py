"""SDMetrics' scores: the library's own numbers, on the columns that the schema says."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from scipy.stats import ks_2samp

from dither.cli import run
from dither.errors import ParameterError
from dither.evaluation import SDMetricsScores, evaluate, sdmetrics_metadata
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("colour", "categorical", values=("red", "green", "blue"), missing=True),
        Attribute("grade", "ordinal", values=(1, 2, 3)),
        Attribute("member", "boolean", values=(False, True)),
        Attribute("income", "numeric", edges=(0.0, 10.0, 50.0, 100.0)),
        Attribute("height", "numeric", edges=(0.0, 100.0, 200.0)),
    )
)


def table(seed: int, rows: int = 400, red: float = 0.5) -> pa.Table:
    rng = np.random.default_rng(seed)
    income = rng.uniform(0, 100, rows)
    colours = np.array(["red", "green", "blue", None], dtype=object)
    return pa.table(
        {
            "colour": pa.array(
                colours[rng.choice(4, rows, p=[red, 0.3, 0.6 - red, 0.1])], pa.string()
            ),
            "grade": rng.integers(1, 4, rows),
            "member": rng.random(rows) < red,
            "income": income,
            "height": np.clip(100 + income / 2 + rng.normal(0, 20, rows), 0, 199),
        }
    )


@pytest.fixture
def library() -> Any:
    """SDMetrics, or the test is skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("sdmetrics.reports.single_table")


def scores(real: Any, synthetic: Any, schema: Schema = SCHEMA) -> SDMetricsScores:
    found = evaluate(real, synthetic, schema, ways=(1,), sdmetrics=True).sdmetrics
    assert found is not None
    return found


def test_a_schema_says_what_each_column_is() -> None:
    kinds = {"colour": "categorical", "grade": "categorical", "member": "boolean"}
    kinds |= {"income": "numerical", "height": "numerical"}
    assert sdmetrics_metadata(SCHEMA) == {
        "columns": {name: {"sdtype": kind} for name, kind in kinds.items()}
    }


def test_a_file_and_a_table_of_the_same_rows_are_alike(library: Any, tmp_path: Path) -> None:
    given = table(1, 30)
    pa_csv.write_csv(given, tmp_path / "t.csv")
    found = scores(tmp_path / "t.csv", given)
    assert [score.score for score in (*found.columns, *found.pairs)] == pytest.approx([1.0] * 15)


def test_without_the_library_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sdmetrics", None)
    with pytest.raises(ParameterError, match="pip install sdmetrics"):
        evaluate("adult", "adult", sdmetrics=True)
    assert run(["evaluate", "adult", "adult", "--sdmetrics"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "SDMetrics" in shown.err


def test_nobody_needs_the_library_who_does_not_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sdmetrics", None)
    found = evaluate(table(1), table(2), SCHEMA, ways=(1,))
    assert found.sdmetrics is None
    assert "sdmetrics" not in found.to_json()


def test_they_are_the_library_s_own_numbers(library: Any) -> None:
    """The same as when a user of pandas calls the library with the metadata."""
    real, synthetic = table(1), table(2, 300, 0.3)
    report = library.QualityReport()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report.generate(
            real.to_pandas(), synthetic.to_pandas(), sdmetrics_metadata(SCHEMA), verbose=False
        )
    found = scores(real, synthetic)
    assert found.overall == pytest.approx(report.get_score(), rel=1e-12)
    shapes, trends = report.get_properties()["Score"]
    assert (found.column_shapes, found.column_pair_trends) == pytest.approx(
        (shapes, trends), rel=1e-12
    )
    assert found.overall == pytest.approx((shapes + trends) / 2)
    assert [score.columns[0] for score in found.columns] == list(SCHEMA.names)
    assert len(found.pairs) == 10
    assert found.unscored == 0


def test_labels_score_one_minus_the_total_variation_distance(library: Any) -> None:
    """So that whoever knows one figure can read the other; numbers are compared by their distribution functions."""
    few = Schema(SCHEMA.attributes[1:3])
    real, synthetic = table(1).select(few.names), table(2, 300, 0.3).select(few.names)
    found = evaluate(real, synthetic, few, ways=(1, 2), sdmetrics=True)
    assert found.sdmetrics is not None
    assert found.sdmetrics.column_shapes == pytest.approx(1 - found.tvd[1], abs=1e-9)
    assert found.sdmetrics.column_pair_trends == pytest.approx(1 - found.tvd[2], abs=1e-9)
    real, synthetic = table(1), table(2, 300, 0.3)
    by_name = {score.columns[0]: score for score in scores(real, synthetic).columns}
    distance = ks_2samp(real["height"].to_numpy(), synthetic["height"].to_numpy()).statistic
    assert by_name["height"].metric == "KSComplement"
    assert by_name["height"].score == pytest.approx(1 - distance)
    pairs = {score.columns: score for score in scores(real, synthetic).pairs}
    r = [
        np.corrcoef(t["income"].to_numpy(), t["height"].to_numpy())[0, 1] for t in (real, synthetic)
    ]
    assert pairs["income", "height"].metric == "CorrelationSimilarity"
    assert pairs["income", "height"].score == pytest.approx(1 - abs(r[0] - r[1]) / 2)


def test_what_cannot_be_scored_is_counted_not_hidden(library: Any) -> None:
    real, synthetic = table(1), table(2, 300, 0.3)
    flat = synthetic.set_column(3, "income", pa.array(np.full(300, 5.0)))
    found = scores(real, flat)
    assert found.unscored == 1  # its correlation with the other number
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["unscored"] == 1
    assert {
        "columns": ["income", "height"],
        "metric": "CorrelationSimilarity",
        "score": None,
    } in data["pairs"]


def test_the_command_prints_them(
    library: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in ("real.parquet", "synthetic.parquet", "schema.json")]
    pq.write_table(table(1), paths[0])
    pq.write_table(table(2, 300, 0.3), paths[1])
    Path(paths[2]).write_text(json.dumps(SCHEMA.to_json()))
    command = ["evaluate", paths[0], paths[1], "--schema", paths[2], "--ways", "1", "--sdmetrics"]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "Column Pair Trends" in shown
    assert "numerical: income, height" in shown
    assert "categorical: colour, grade, member" in shown
    assert run([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert 0.5 < data["sdmetrics"]["overall"] < 1
    assert data["sdmetrics"]["columns"]["grade"]["sdtype"] == "categorical"
    assert data["tvd"]["1"] > 0


def test_equal_tables_score_one_and_worse_ones_less(library: Any) -> None:
    assert scores(table(1), table(1)).overall == pytest.approx(1.0)
    near, far = (
        scores(table(1), table(2, red=0.45)).overall,
        scores(table(1), table(2, red=0.1)).overall,
    )
    assert far < near < 1
