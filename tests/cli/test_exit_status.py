"""The exit status is what the command says, also when it ends right after a table was read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.cli import run

READ = (
    "import sys; from dither.schema import read_table; read_table(sys.argv[1]); raise SystemExit(2)"
)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["file", "adult"])
def test_ending_right_after_reading_does_not_abort(source: str, tmp_path: Path) -> None:
    """A reader's threads that call into Python while it ends abort the process (status 134), more often than not."""
    table = pa.table({"a": list(range(50_000)), "b": [str(i % 7) for i in range(50_000)]})
    pq.write_table(table, tmp_path / "t.parquet")
    code = (
        READ
        if source == "file"
        else "import dither.datasets as d; d.load_dataset('adult'); raise SystemExit(2)"
    )
    statuses = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "t.parquet")],
            capture_output=True,
            check=False,
        ).returncode
        for _ in range(12)
    }
    assert statuses == {2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["publish", ".", "--epsilon", "4", "-o", "out"], "cannot tell what . is"),
        (
            ["publish", "t.csv", "--epsilon", "4", "-o", "t.csv/out"],
            "lies below t.csv, which is a file",
        ),
        (
            [
                "histogram",
                "t.csv",
                "--column",
                "a",
                "--epsilon",
                "3",
                "--bins",
                "3",
                "--set",
                "consumers=5",
            ],
            "consumers",
        ),
        (
            ["histogram", "t.csv", "--column", "as_json", "--epsilon", "3", "--bins", "3"],
            "no column 'as_json'",
        ),
        (
            ["publish", "t.csv", "--epsilon", "3", "--no-privacy", "-o", "out"],
            "--no-privacy is for",
        ),
    ],
)
def test_odd_arguments_are_one_line_before_anything_is_made(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a\n" + "1\n2\n" * 20)
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_interrupted_command_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dither.cli.publish.publish_table", interrupted)
    assert run(["publish", "adult", "--epsilon", "1", "-o", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "dither: interrupted; nothing was half-written\n"
    assert not (tmp_path / "out").exists()
