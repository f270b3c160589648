"""Tables against tables: files, frames, schemas, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dither.cli import run
from dither.errors import InputError, ParameterError, TableError
from dither.evaluation import Evaluation, evaluate
from dither.schema import Attribute, Schema


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    real = pa.table({"sex": ["f", "m", "f", "f"], "age": [20, 30, 40, 59]})
    synthetic = pa.table({"age": [21, 39, 41, 42], "sex": ["f", "m", "m", "m"]})
    schema = Schema(
        (
            Attribute("sex", "categorical", values=("f", "m")),
            Attribute("age", "numeric", edges=(20.0, 40.0, 60.0)),
        )
    )
    paths = tmp_path / "real.csv", tmp_path / "synthetic.parquet", tmp_path / "given.json"
    pa_csv.write_csv(real, paths[0])
    pq.write_table(synthetic, paths[1])
    paths[2].write_text(json.dumps(schema.to_json()))
    return paths


def test_files_with_a_schema_are_compared_in_its_bins(files: tuple[Path, Path, Path]) -> None:
    real, synthetic, schema = files
    found = evaluate(real, synthetic, schema, ways=(1, 2))
    assert found.tvd[1] == pytest.approx((0.5 + 0.0) / 2)
    # real: f-low, m-low, f-high, f-high; synthetic: f-low, m-low, m-high, m-high
    assert found.tvd[2] == pytest.approx(0.5)
    assert found.kl[2] > 0
    assert found.mse[2] == pytest.approx((0.25 + 0.25) / 4)


def test_the_document_has_plain_figures(files: tuple[Path, Path, Path]) -> None:
    found = evaluate(*files[:2], schema=files[2], ways=(2, 1))
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert list(data["tvd"]) == ["1", "2"]
    assert all(isinstance(data[name]["1"], float) for name in ("tvd", "kl", "mse"))
    assert data["rows"] == {"real": 4, "synthetic": 4}
    assert data["sets"]["2"]["worst"]["attributes"] == ["sex", "age"]
    assert data["sets"]["1"] == {
        "used": 2,
        "possible": 2,
        "tvd_spread": 0.25,
        "worst": {"attributes": ["sex"], "tvd": 0.5},
    }


def test_without_a_schema_a_label_of_either_table_is_known() -> None:
    real = pd.DataFrame({"x": ["a", "b", "a", "b"], "y": [True, False, True, True]})
    synthetic = pd.DataFrame({"x": ["a", "c", "a", "c"], "y": [True, False, True, True]})
    found = evaluate(real, synthetic)
    assert isinstance(found, Evaluation)
    assert list(found.tvd) == [
        1,
        2,
    ]  # the default leaves out three attributes of a table that has two
    assert found.tvd[1] == pytest.approx(0.25)


def test_frames_of_different_kinds_and_text_types_go_together() -> None:
    real = pd.DataFrame({"x": pd.Categorical(["a", "b", "a"]), "y": [1, 2, 2]})
    assert evaluate(real, pa.table({"y": [2, 1, 2], "x": ["a", "a", "b"]}), ways=(1,)).tvd == {
        1: 0.0
    }


def test_values_outside_the_schema_name_table_and_column(
    files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    outside = tmp_path / "outside.parquet"
    pq.write_table(pa.table({"sex": ["f"], "age": [61]}), outside)
    with pytest.raises(TableError, match=r"synthetic table: column 'age': value 61 lies outside"):
        evaluate(files[0], outside, files[2])


def test_tables_with_different_columns_are_refused() -> None:
    real = pa.table({"x": ["a", "b"], "y": ["a", "b"]})
    with pytest.raises(TableError, match="no column 'y'"):
        evaluate(real, pa.table({"x": ["a", "b"]}))
    with pytest.raises(TableError, match="column 'z'"):
        evaluate(real, pa.table({"x": ["a", "b"], "y": ["a", "b"], "z": ["a", "b"]}))
    with pytest.raises(InputError):
        evaluate(real, pa.table({"x": [1, 2], "y": ["a", "b"]}))


def test_the_same_seed_draws_the_same_sets() -> None:
    first = evaluate(
        "adult",
        pa.Table.from_batches(_adult().to_batches()).slice(0, 500),
        ways=(3,),
        max_sets=5,
        seed=4,
    )
    again = evaluate("adult", _adult().slice(0, 500), ways=(3,), max_sets=5, seed=4)
    other = evaluate("adult", _adult().slice(0, 500), ways=(3,), max_sets=5, seed=5)
    assert first == again
    assert first != other
    with pytest.raises(ParameterError, match="seed"):
        evaluate("adult", "adult", seed=-1)


def _adult() -> pa.Table:
    from dither.datasets import load_dataset

    return load_dataset("adult").table


def test_the_command_prints_one_json_document(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    real, synthetic, schema = map(str, files)
    assert run(["evaluate", real, synthetic, "--schema", schema, "--ways", "1,2", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["tvd"] == {"1": pytest.approx(0.25), "2": pytest.approx(0.5)}
    assert out.count("\n") == 1


def test_the_command_prints_a_table_that_fits_80_columns(
    files: tuple[Path, Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["evaluate", *map(str, files[:2]), "--schema", str(files[2])]) == 0
    out = capsys.readouterr().out
    assert "0.2500" in out
    assert "sex" in out
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("ways", ["0", "x", "3", "1,,2", "", "-1", "1.5", "²"])
def test_the_command_refuses_wrong_ways_in_one_line(
    ways: str, files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", *map(str, files[:2]), "--schema", str(files[2]), f"--ways={ways}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "ways" in captured.err
    assert captured.err.count("\n") == 1
