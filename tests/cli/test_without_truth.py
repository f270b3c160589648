"""`publish --without-truth`: a report that may be shared, and the demonstration uses it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dither.cli import run

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ["--columns", "sex,income", "--method", "independent", "--rows", "20"]


def test_the_report_has_no_truth_and_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["publish", "adult", "--epsilon", "4", *OPTIONS, "-o", str(tmp_path / "out")]
    assert run([*asked, "--without-truth"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert str(tmp_path / "out" / "report.html") in printed.out
    manifest = json.loads((tmp_path / "out" / "release.json").read_text(encoding="utf-8"))
    assert manifest["warnings"] == []
    assert manifest["private"] is True
    hidden = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert run([*asked, "--overwrite"]) == 0
    assert "shows the truth" in capsys.readouterr().err
    shown = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert shown.count("truth") > hidden.count("truth")
    assert "as confidential as the table" not in hidden


def test_the_demonstration_is_private() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.search(r"^\t\$\(BIN\)/dither (publish adult .*)$", makefile, re.MULTILINE)
    assert command is not None
    words = command[1].split()
    assert "--without-truth" in words
    assert not {"--seed", "--population"} & set(words)
