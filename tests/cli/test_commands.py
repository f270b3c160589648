"""The command line as a user meets it: exit status, one clear line, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dither.central import CENTRAL
from dither.cli import VERBS, run
from dither.datasets import generate_network
from dither.mechanisms import MEANS as REGISTERED_MEANS
from dither.mechanisms import MECHANISMS, NAMES
from dither.methods import HISTOGRAMS, MEANS, METHODS


@pytest.fixture
def table(tmp_path: Path) -> Path:
    network = generate_network([3, 4, 2], seed=1)
    pq.write_table(network.table(400, np.random.default_rng(0)), tmp_path / "people.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(network.schema.to_json()))
    return tmp_path / "people.parquet"


def test_publish_then_evaluate(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    status = run(
        [
            "publish",
            str(table),
            "--epsilon",
            "4",
            "--schema",
            str(tmp_path / "schema.json"),
            "--method",
            "independent",
            "--population",
            "3000",
            "--rows",
            "500",
            "--seed",
            "3",
            "--set",
            "shares=uniform",
            "-o",
            str(out),
        ]
    )
    assert status == 0
    assert "report.html" in capsys.readouterr().out
    manifest = json.loads((out / "release.json").read_text())
    assert manifest["participants"] == 3000
    assert manifest["rows"] == 500
    assert manifest["parameters"]["shares"] == "uniform"
    assert manifest["seed"] == 3
    assert pq.read_table(out / "synthetic.parquet").num_rows == 500
    status = run(
        [
            "evaluate",
            str(table),
            str(out / "synthetic.parquet"),
            "--schema",
            str(tmp_path / "schema.json"),
            "--json",
        ]
    )
    assert status == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["tvd"]) == {"1", "2", "3"}
    assert all(0 <= v <= 1 for v in printed["tvd"].values())


@pytest.mark.parametrize("holdout", [[], ["--holdout", "0.2"]])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_publishes_a_whole_release(
    method: str, holdout: list[str], table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = [
        "publish",
        str(table),
        "--epsilon",
        "3",
        "--schema",
        str(tmp_path / "schema.json"),
        "--method",
        method,
    ]
    assert run([*asked, *holdout, "--population", "2000", "--seed", "1", "-o", str(out)]) == 0
    manifest = json.loads((out / "release.json").read_text())
    assert manifest["method"] == method
    assert manifest["epsilon_achieved"] <= 3
    assert pq.read_table(out / "synthetic.parquet").num_rows == 2000
    assert (out / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["publish", "TABLE", "-o", "OUT"], "--epsilon"),
        (["publish", "TABLE", "--epsilon", "x", "-o", "OUT"], "--epsilon"),
        (["publish", "TABLE", "--epsilon", "0", "-o", "OUT"], "epsilon"),
        (["publish", "missing.csv", "--epsilon", "1", "-o", "OUT"], "missing.csv"),
        (["publish", "TABLE", "--epsilon", "1", "--method", "magic", "-o", "OUT"], "magic"),
        (["publish", "TABLE", "--epsilon", "1", "--set", "oops", "-o", "OUT"], "KEY=VALUE"),
        (["publish", "TABLE", "--epsilon", "1", "--set", "oops=1", "-o", "OUT"], "oops"),
        (["publish", "TABLE", "--epsilon", "1", "--rows", "-5", "-o", "OUT"], "rows"),
        (["publish", "TABLE", "--epsilon", "1", "--replicates", "2", "-o", "OUT"], "replicates"),
        (
            [
                "publish",
                "TABLE",
                "--epsilon",
                "1",
                "--method",
                "lopub",
                "--replicates",
                "5",
                "-o",
                "OUT",
            ],
            "lopub",
        ),
        (["publish", "TABLE", "--epsilon", "1", "--schema", "none.json", "-o", "OUT"], "none.json"),
        (["publish", "TABLE", "--epsilon", "1", "-o", "FOREIGN"], "not an earlier release"),
        (["evaluate", "TABLE", "missing.parquet"], "missing.parquet"),
        (["audit", "--mechanism", "magic", "--cells", "4", "--epsilon", "1"], "magic"),
        (["audit", "--mechanism", "central:magic", "--epsilon", "1"], "magic"),
        (["audit", "--mechanism", "oue", "--epsilon", "0"], "epsilon"),
        (
            ["audit", "--mechanism", "several-means", "--attributes", "0", "--epsilon", "1"],
            "attributes",
        ),
        (["audit", "--mechanism", "central:laplace", "--cells", "2", "--epsilon", "1"], "cells"),
        (
            ["audit", "--mechanism", "central:laplace", "--neighbours", "near", "--epsilon", "1"],
            "neighbours",
        ),
        (["audit", "--mechanism", "oue", "--cells", "1", "--epsilon", "1"], "cells"),
        (
            ["audit", "--mechanism", "oue", "--cells", "4", "--epsilon", "1", "--trials", "3"],
            "trials",
        ),
        (["schema", "infer", "missing.csv"], "missing.csv"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_bad_input_is_one_line_with_status_2(
    arguments: list[str],
    words: str,
    table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "precious.txt").write_text("keep")
    places = {
        "TABLE": str(table),
        "OUT": str(tmp_path / "out"),
        "FOREIGN": str(tmp_path / "foreign"),
    }
    assert run([places.get(a, a) for a in arguments]) == 2
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if not line.startswith("dither: warning")]
    assert len(lines) == 1
    assert words in lines[0]
    assert "Traceback" not in printed.err
    assert not (tmp_path / "out").exists()
    assert [p.name for p in (tmp_path / "foreign").iterdir()] == ["precious.txt"]
    assert not [p for p in tmp_path.iterdir() if ".tmp" in p.name]


def test_audit_prints_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            [
                "audit",
                "--mechanism",
                "grr",
                "--cells",
                "5",
                "--epsilon",
                "1.5",
                "--trials",
                "4000",
                "--json",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["epsilon_asked"] == 1.5
    assert printed["passed"] is True
    assert printed["epsilon_empirical_lower"] <= printed["epsilon_exact"] <= 1.5


@pytest.mark.parametrize(
    "name", ["square-wave", "strategy", "duchi", "several-means", "central:laplace"]
)
def test_audit_takes_every_kind_of_mechanism(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            [
                "audit",
                "--mechanism",
                name,
                "--cells",
                "8",
                "--epsilon",
                "1",
                "--trials",
                "500",
                "--json",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["mechanism"] == name
    assert (
        0
        < printed["epsilon_empirical_lower"]
        <= printed["epsilon_exact"]
        <= printed["epsilon_asked"]
        == 1.0
    )


@pytest.mark.slow
def test_audit_of_all_covers_the_registry_and_the_central_methods(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["audit", "--mechanism", "all", "--cells", "8", "--epsilon", "1", "--trials", "200"]
    assert run([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    central = {f"central:{name}" for name in CENTRAL}
    assert {entry["mechanism"] for entry in printed["audits"]} == {
        *MECHANISMS,
        *REGISTERED_MEANS,
    } | central
    assert printed["passed"]
    assert run(arguments) == 0
    assert capsys.readouterr().out.count("passed") == len(printed["audits"])


def test_methods_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["methods"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in METHODS | HISTOGRAMS | MEANS)
    assert run(["methods", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in listed if m["command"] == "publish"] == list(METHODS)
    assert [m["name"] for m in listed if m["command"] == "histogram"] == list(HISTOGRAMS | MEANS)


@pytest.mark.parametrize("verb", ["audit", "histogram"])
def test_help_names_every_mechanism(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run([verb, "--help"]) == 0
    assert ", ".join(NAMES) in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_the_list_of_commands_loads_none_of_them() -> None:
    heavy = ("numpy", "pyarrow", "fastapi")
    code = f"import sys; from dither.cli import run; run(['--help']); print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert all(verb in shown for verb in VERBS)
    assert shown.splitlines()[-1] == "[]"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import dither

    assert run(["--version"]) == 0
    assert dither.__version__ in capsys.readouterr().out


def test_arguments_are_named_as_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["publish", "adult", "--epsilon", "1", "--method", "jtree-nonprivate", "-o", "nowhere"])
        == 2
    )
    told = capsys.readouterr().err
    assert "--no-privacy" in told
    assert "no_privacy" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rows", "99999999999999999999"], "rows must be a whole number from 1 to 1,000,000,000"),
        (
            ["--population", "99999999999999"],
            "population must be a whole number from 1 to 1,000,000,000",
        ),
        (["--no-privacy"], "is for the method jtree-nonprivate only"),
    ],
)
def test_what_no_release_can_have(
    words: list[str], said: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epsilon = [] if "--no-privacy" in words else ["--epsilon", "1"]
    assert run(["publish", str(table), *epsilon, *words, "-o", str(tmp_path / "out")]) == 2
    found = capsys.readouterr().err
    assert said in found
    assert found.count("\n") == 1
    assert not (tmp_path / "out").exists()
