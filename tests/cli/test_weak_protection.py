"""Above epsilon 4 every command that fixes an epsilon says in one sentence what it means."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dither
from dither.cli import run
from dither.collector import CampaignSpec, make_release
from dither.methods import start
from dither.methods.histogram import Chp, read_consumers
from dither.notice import certainty, shown_certainty, weak_protection
from dither.simulate import simulate

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
        assert float(shown_certainty(epsilon).removesuffix(" %")) >= 100 * certainty(epsilon), (
            "rounded up"
        )
    assert shown_certainty(6.0) == "99.8 %"
    assert weak_protection(4.0) is None
    assert str(weak_protection(6.0)) == SENTENCE
    for barely in (4.0005, math.nextafter(4.0, 5.0)):
        shown = str(weak_protection(barely)).removeprefix("epsilon ").split()[0]
        assert float(shown) >= barely, "the figure itself must say that it is above 4"


@pytest.mark.parametrize(("epsilon", "warned"), [("4", False), ("6", True)])
def test_publish_says_it_and_the_release_keeps_it(
    tmp_path: Path, epsilon: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = [
        "--columns",
        "sex,income",
        "--method",
        "independent",
        "--rows",
        "20",
        "-q",
        "-o",
        str(out),
    ]
    assert run(["publish", "adult", "--epsilon", epsilon, *options]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "weak protection" in line]
    assert len(lines) == int(warned)
    written = [
        w
        for w in json.loads((out / "release.json").read_text())["warnings"]
        if w["code"] == "weak-protection"
    ]
    assert len(written) == int(warned)
    assert ("weak protection" in (out / "report.html").read_text()) == warned
    assert len(
        [w for w in dither.load_release(out).warnings if w.code == "weak-protection"]
    ) == int(warned)
    if warned:
        assert written[0]["message"] in lines[0]
        assert written[0]["advice"]


def test_a_release_without_privacy_has_a_warning_of_its_own(tmp_path: Path) -> None:
    options = ["--columns", "sex,income", "--rows", "20", "-q", "-o", str(tmp_path / "out")]
    assert run(["publish", "adult", "--method", "jtree-nonprivate", "--no-privacy", *options]) == 0
    assert "weak protection" not in (tmp_path / "out" / "release.json").read_text()


@pytest.mark.parametrize("epsilon", [2.0, 6.0])
def test_plan_says_it_with_the_figure(
    tmp_path: Path, epsilon: float, capsys: pytest.CaptureFixture[str]
) -> None:
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


NUMBERS = np.arange(3000.0) % 100
RANGE: dict[str, Any] = {"low": 0, "high": 100}


def number_campaign(method: str, epsilon: float) -> Any:
    """The release that a collector makes of a campaign about one number."""
    schema = Chp.schema_of("pay", read_consumers([10], 0.0, 100.0), 0.0, 100.0)
    machine = start(method, schema, epsilon, 400)
    simulate(machine, np.zeros((400, 1), np.int32), np.random.default_rng(1))
    spec = CampaignSpec(schema=schema, method=method, epsilon=epsilon, participants=400)
    return make_release(machine, 400, spec, None)


RELEASES: dict[str, Callable[[float], Any]] = {
    "histogram": lambda epsilon: dither.histogram(NUMBERS, consumers=[4], epsilon=epsilon, **RANGE),
    "chp": lambda epsilon: dither.histogram(
        NUMBERS, consumers=[4], epsilon=epsilon, method="chp", **RANGE
    ),
    "mean": lambda epsilon: dither.histogram(NUMBERS, epsilon=epsilon, method="mean", **RANGE),
    "several": lambda epsilon: dither.several_values(
        [[3.0, 12.0], [7.5], []] * 100, consumers=[4], epsilon=epsilon, most=2, **RANGE
    ),
    "central": lambda epsilon: dither.central_release(
        "adult", epsilon=epsilon, columns=["sex"], method="laplace"
    ),
    "number campaign": lambda epsilon: number_campaign("chp", epsilon),
}


@pytest.mark.parametrize("kind", RELEASES)
@pytest.mark.parametrize("epsilon", [3.9, 12.0])
def test_every_kind_of_release_says_it_once(kind: str, epsilon: float, tmp_path: Path) -> None:
    release = RELEASES[kind](epsilon)
    expected = int(release.epsilon_achieved > 4)
    assert expected == int(epsilon > 4)
    folder = release.save(tmp_path / "out")
    written = [w["code"] for w in json.loads((folder / "release.json").read_text())["warnings"]]
    loaded = [w.code for w in type(release).load(folder).warnings]
    assert written.count("weak-protection") == loaded.count("weak-protection") == expected
    assert (folder / "report.html").read_text().count("is weak protection") == expected


@pytest.mark.parametrize("epsilon", ["3.9", "12"])
def test_commands_about_one_number_and_of_curators_say_it(
    epsilon: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "pay.csv"
    table.write_text("pay\n" + "\n".join(str(i % 100) for i in range(1000)) + "\n")
    asked = [
        "histogram",
        str(table),
        "--column",
        "pay",
        "--bins",
        "4",
        "--low",
        "0",
        "--high",
        "100",
        "--epsilon",
        epsilon,
    ]
    assert run(asked) == 0
    assert ("is weak protection" in capsys.readouterr().err) == (epsilon == "12")
    asked = ["central", "adult", "--columns", "sex", "--method", "laplace", "--epsilon", epsilon]
    assert run([*asked, "-o", str(tmp_path / "out")]) == 0
    assert ("with and without a person's record" in capsys.readouterr().err) == (epsilon == "12")


def test_publish_and_plan_state_the_certainty_of_any_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--columns", "sex,income", "--method", "independent", "--rows", "20"]
    asked = ["publish", "adult", "--epsilon", "1", *options, "-o", str(tmp_path / "out")]
    assert run(asked) == 0
    sentence = "two records of a person equally likely can become at most 73.2 % certain of one"
    assert sentence in capsys.readouterr().out
    asked = ["plan", "--schema", "adult", "--participants", "900", "--epsilon", "1"]
    assert run([*asked, "--method", "independent"]) == 0
    assert sentence in capsys.readouterr().out
