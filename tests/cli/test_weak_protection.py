"""Above epsilon 4 every command that fixes an epsilon says in one sentence what it means."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import dither
from dither.cli import run
from dither.notice import certainty, shown_certainty, weak_protection

SENTENCE = (
    "epsilon 6 is weak protection: someone who considers two records equally likely "
    "can become up to 99.8 % certain of one of them"
)


def test_certainty_is_the_posterior_of_two_equally_likely_records() -> None:
    assert certainty(0.0) == 0.5
    for epsilon in (0.1, 1.0, math.log(3), 4.0, 8.0):
        factor = math.exp(epsilon)
        assert certainty(epsilon) == pytest.approx(factor / (1 + factor), rel=1e-12)
    assert certainty(math.log(3)) == pytest.approx(0.75)
    assert certainty(2000.0) == 1.0
    for epsilon in (0.5, 4.0, 6.0, 9.0):
        assert float(shown_certainty(epsilon).removesuffix(" %")) >= 100 * certainty(epsilon), "rounded up"
    assert shown_certainty(6.0) == "99.8 %"
    assert weak_protection(4.0) is None
    assert str(weak_protection(6.0)) == SENTENCE


@pytest.mark.parametrize(("epsilon", "warned"), [("4", False), ("6", True)])
def test_publish_says_it_and_the_release_keeps_it(
    tmp_path: Path, epsilon: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--columns", "sex,income", "--method", "independent", "--rows", "20", "-q", "-o", str(out)]
    assert run(["publish", "adult", "--epsilon", epsilon, *options]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "weak protection" in line]
    assert len(lines) == int(warned)
    written = [w for w in json.loads((out / "release.json").read_text())["warnings"] if w["code"] == "weak-protection"]
    assert len(written) == int(warned)
    assert ("weak protection" in (out / "report.html").read_text()) == warned
    assert len([w for w in dither.load_release(out).warnings if w.code == "weak-protection"]) == int(warned)
    if warned:
        assert written[0]["message"] in lines[0]
        assert written[0]["advice"]


def test_a_release_without_privacy_has_a_warning_of_its_own(tmp_path: Path) -> None:
    options = ["--columns", "sex,income", "--rows", "20", "-q", "-o", str(tmp_path / "out")]
    assert run(["publish", "adult", "--method", "jtree-nonprivate", "--no-privacy", *options]) == 0
    assert "weak protection" not in (tmp_path / "out" / "release.json").read_text()


@pytest.mark.parametrize("epsilon", [2.0, 6.0])
def test_plan_says_it_with_the_figure(tmp_path: Path, epsilon: float, capsys: pytest.CaptureFixture[str]) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"a": {"kind": "boolean"}, "b": {"kind": "boolean"}}))
    asked = ["plan", "--schema", str(schema), "--participants", "2000", "--epsilon", str(epsilon)]
    asked += ["--method", "independent"]
    assert run([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["certainty"] == certainty(epsilon)
    assert (SENTENCE in told["warnings"]) == (epsilon > 4)
    assert run(asked) == 0
    assert (SENTENCE in capsys.readouterr().out) == (epsilon > 4)
