"""dither discover."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dither
from dither.cli import run as command


@pytest.fixture
def drinks(tmp_path: Path) -> Path:
    path = tmp_path / "drinks.csv"
    rows = ["tea"] * 6_000 + ["coffee"] * 3_000 + ["other"] * 1_000
    path.write_text("drink\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def run(*arguments: object) -> int:
    return command([str(argument) for argument in arguments])


def test_values_are_printed_as_json(drinks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--column", "drink", "--epsilon", 4, "--top", 5, "--max-bytes", 8, "--seed", 1)
    assert run("discover", drinks, *options, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [entry["value"] for entry in printed["values"]] == ["tea", "coffee", "other"]
    assert all({"value", "estimate", "low", "high"} == set(entry) for entry in printed["values"])
    assert printed["epsilon_achieved"] <= 4
    assert printed["participants"] == 10_000
    assert printed["notes"]["false_discovery_rate"] == 0.05
    assert {"other", "missing", "rounds", "warnings"} <= set(printed)


def test_a_folder_is_written_and_can_be_asked(
    drinks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ("discover", drinks, "--column", "drink", "--epsilon", 4, "--seed", 1, "-o", out)
    assert run(*options) == 0
    assert "tea" in capsys.readouterr().out
    assert 0.5 < dither.load_release(out).query("drink == 'tea'").estimate < 0.7
    assert run(*options) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run(*options, "--overwrite") == 0


def test_a_column_of_numbers_is_read_as_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "codes.csv"
    path.write_text("code\n" + "1234\n" * 4_000, encoding="utf-8")
    options = ("--column", "code", "--epsilon", 4, "--max-bytes", 4, "--seed", 1, "--json")
    assert run("discover", path, *options) == 0
    assert json.loads(capsys.readouterr().out)["values"][0]["value"] == "1234"


def test_an_unknown_column_is_one_clear_line(
    drinks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("discover", drinks, "--column", "food", "--epsilon", 1) == 2
    message = capsys.readouterr().err.strip()
    assert "no column 'food'" in message
    assert "\n" not in message
