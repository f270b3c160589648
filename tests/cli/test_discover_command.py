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


@pytest.mark.parametrize("participants", [10_000, 1_000_000])
def test_a_plan_says_which_share_can_be_found(
    participants: int, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--plan", "--participants", participants, "--epsilon", 4, "--max-bytes", 8)
    assert run("discover", *options) == 0
    assert "a value must be held by about" in capsys.readouterr().out
    assert run("discover", *options, "--json") == 0
    share = json.loads(capsys.readouterr().out)["findable_share"]
    # Ten thousand people find values of some per cent, a million of some in a thousand.
    low, high = {10_000: (0.01, 0.2), 1_000_000: (0.001, 0.02)}[participants]
    assert low < share < high


def test_a_plan_of_too_few_people_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("discover", "--plan", "--participants", 5, "--epsilon", 1) == 0
    assert "no value can be found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--plan", "--epsilon", 1), "--participants"),
        (("adult", "--plan", "--participants", 9, "--epsilon", 1), "leave TABLE out"),
        (("--epsilon", 1), "TABLE is missing"),
        (("adult", "--epsilon", 1), "--column is missing"),
    ],
)
def test_options_that_do_not_fit_are_named(
    options: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("discover", *options) == 2
    assert message in capsys.readouterr().err


def test_values_found_become_a_schema_for_a_campaign(
    drinks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, written = tmp_path / "out", tmp_path / "drinks.schema.json"
    options = ("--column", "drink", "--epsilon", 4, "--seed", 1, "--max-bytes", 8, "-o", out)
    assert run("discover", drinks, *options) == 0
    assert run("schema", "from-release", out, "--epsilon", 2, "-o", written) == 0
    assert "epsilon 6" in capsys.readouterr().err
    schema = dither.load_schema(written)
    assert schema["drink"].values == ("tea", "coffee", "other", "(other)")
    again = dither.publish(drinks, epsilon=2.0, method="independent", schema=schema, seed=1)
    assert again.query("drink == 'tea'").estimate == pytest.approx(0.6, abs=0.05)


def test_other_releases_give_no_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex"], rows=10)
    release.save(tmp_path / "out")
    assert run("schema", "from-release", tmp_path / "out") == 2
    assert "not of discover" in capsys.readouterr().err
