"""A folder that holds a release is replaced only when the command says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dither.cli import run

ADULT = ["adult", "--epsilon", "2", "--seed"]
COMMANDS = {
    "publish": (
        ["publish", *ADULT],
        ["--columns", "sex,income", "--method", "independent", "--rows", "20", "-q"],
    ),
    "central": (
        ["central", *ADULT],
        ["--columns", "sex", "--method", "laplace", "--replicates", "0", "-q"],
    ),
    "histogram": (["histogram", *ADULT], ["--column", "age", "--bins", "3"]),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_release_is_replaced_only_with_overwrite(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, rest = COMMANDS[command]
    out = tmp_path / "out"

    def make(seed: int, *more: str) -> int:
        return run([*begin, str(seed), *rest, "-o", str(out), *more])

    assert make(1, "--overwrite") == 0, "nothing there to replace"
    (out / "mine.txt").write_text("keep me")
    before = contents(tmp_path)
    capsys.readouterr()
    assert make(2) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert refused.err.count("\n") == 1, "said before any work is done"
    assert f"{out} holds a release" in refused.err
    assert "--overwrite" in refused.err
    assert contents(tmp_path) == before
    assert make(2, "--overwrite") == 0
    assert json.loads((out / "release.json").read_text())["seed"] == 2
    assert (out / "mine.txt").read_text() == "keep me"


@pytest.mark.parametrize("manifest", ["", "{", '{"format": "dither-release-1"}'])
def test_a_damaged_release_is_not_replaced_in_silence_either(
    tmp_path: Path, manifest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, rest = COMMANDS["publish"]
    (tmp_path / "release.json").write_text(manifest)
    assert run([*begin, "1", *rest, "-o", str(tmp_path)]) == 2
    assert "release" in capsys.readouterr().err
    assert contents(tmp_path) == {"release.json": manifest.encode()}
