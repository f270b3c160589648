"""One number for many consumers from the shell: create without a schema file, submit, close, finalise."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from collector_harness import KEY
from collector_harness import run_dither as run

from dither.release import Release

NUMBER = (
    "--histogram",
    "pay",
    "--low",
    "0",
    "--high",
    "250000",
    "--epsilon",
    "2",
    "--participants",
    "300",
)
PAY = [500.0 * i for i in range(300)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a table and the admin key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dither-admin.key").write_text(KEY + "\n")
    pa_csv.write_csv(pa.table({"pay": [*PAY[:-1], 1e7]}), tmp_path / "people.csv")
    return tmp_path


def collect(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    campaign = run(capsys, "campaign", "create", *NUMBER, *more).strip()
    assert "300 stored" in run(capsys, "submit", "people.csv", "--campaign", campaign)
    run(capsys, "campaign", "close-round", campaign, "--round", "0")
    return campaign


def test_consumers_of_a_file_and_of_options_get_a_page_and_files_each(
    capsys: pytest.CaptureFixture[str], url: str, folder: Path
) -> None:
    listed = [
        {"name": "Tax office <b>", "edges": [0, 30000, 80000, 250000]},
        {"name": "union", "bins": 2, "epsilon": 1},
    ]
    (folder / "consumers.json").write_text(json.dumps(listed))
    campaign = collect(
        capsys, "--bins", "3,5", "--consumers", "consumers.json", "--title", "What people earn"
    )
    told = run(capsys, "campaign", "finalise", campaign, "-o", "out", "--rows", "10")
    assert "consumers/Tax-office-b.html" in told
    assert "synthetic" not in told
    release = Release.load(folder / "out")
    assert [c.name for c in release.consumers] == ["3 bins", "5 bins", "Tax office <b>", "union"]
    assert release.epsilon_achieved <= 1.0, "the smallest that anybody asked for"
    assert release.campaign is not None
    assert (release.call.title, release.number.attribute, release.number.clip) == (
        "What people earn",
        "pay",
        True,
    )
    page = (folder / "out" / "consumers" / "Tax-office-b.html").read_text()
    assert "Tax office &lt;b&gt;" in page
    assert "What people earn" in (folder / "out" / "report.html").read_text()
    assert "simulated" not in page
    assert not re.search(r"<script|https?://|src=", page)
    refused = run(capsys, "campaign", "finalise", campaign, "-o", "out", status=2)
    assert "--overwrite" in refused
    again = run(capsys, "campaign", "finalise", campaign, "-o", "out", "--overwrite")
    assert "consumers" in again, "an earlier folder of the same kind is replaced"
    # The same consumers are asked for once more, from the release alone.
    other = run(capsys, "campaign", "create", *NUMBER, "--consumers", "out/release.json", "--json")
    assert json.loads(other)["method"] == "chp"


def test_a_mean_from_the_shell(capsys: pytest.CaptureFixture[str], url: str, folder: Path) -> None:
    campaign = collect(capsys, "--method", "mean")
    assert "mean" in run(capsys, "campaign", "finalise", campaign, "-o", "out")
    manifest = json.loads((folder / "out" / "release.json").read_text())
    assert set(manifest["mean"]) == {"estimate", "low", "high", "standard_error", "people"}
    assert abs(manifest["mean"]["estimate"] - 75_000) < 5 * manifest["mean"]["standard_error"]
    assert not (folder / "out" / "consumers").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--bins", "3"), "--low and --high"),
        (("--low", "5", "--high", "5", "--bins", "3"), "low"),
        (("--low", "0", "--high", "9"), "at least one consumer"),
        (("--low", "0", "--high", "9", "--bins", "3,x"), "--bins 3,x: 'x'"),
        (("--low", "0", "--high", "9", "--edges", "0,ten"), "--edges 0,ten"),
        (("--low", "0", "--high", "9", "--edges", "0,12"), "outside"),
        (("--low", "0", "--high", "9", "--bins", "99999999"), "bins"),
        (("--low", "0", "--high", "9", "--bins", "3", "--method", "mixture"), "--method mixture"),
        (("--low", "0", "--high", "9", "--bins", "3", "--method", "mean"), "has no consumers"),
        (
            ("--low", "0", "--high", "9", "--bins", "3", "--schema", "s.json"),
            "--schema, or --histogram",
        ),
        (("--low", "0", "--high", "9", "--consumers", "none.json"), "cannot read none.json"),
        (("--low", "nan", "--high", "9", "--bins", "3"), "low"),
    ],
)
def test_what_is_wrong_with_a_number_is_said_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str], folder: Path, options: tuple[str, ...], said: str
) -> None:
    given = (
        "campaign",
        "create",
        "--histogram",
        "pay",
        "--epsilon",
        "2",
        "--participants",
        "300",
        *options,
    )
    shown = run(capsys, *given, status=2)
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("5", "must hold a list"),
        ('{"name": "x"}', "must hold a list"),
        ("[]", "at least one consumer"),
        ('[{"name": "x"}]', "one of bins, width and edges"),
        ('[{"name": "x", "bins": 3, "secret": 1}]', "secret"),
        ('[{"name": 5, "bins": 3}]', "name must be text"),
        ('[{"name": "x", "edges": "0,1"}]', "edges"),
        ('[{"name": "x", "edges": [0, 1], "epsilon": -1}]', "epsilon"),
        ('[{"name": "x", "bins": 1e9}]', "bins"),
        ('["3"]', "bins"),
        ("x" * (1 << 20) + "xx", "1 MiB"),
    ],
)
def test_a_file_of_consumers_is_read_with_suspicion(
    capsys: pytest.CaptureFixture[str], folder: Path, content: str, said: str
) -> None:
    (folder / "consumers.json").write_text(content)
    shown = run(capsys, "campaign", "create", *NUMBER, "--consumers", "consumers.json", status=2)
    assert said in shown
    assert shown.count("\n") == 1


def test_options_of_a_number_do_not_go_with_a_schema(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    schema: dict[str, Any] = {"a": {"kind": "boolean"}}
    (folder / "s.json").write_text(json.dumps(schema))
    given = (
        "campaign",
        "create",
        "--schema",
        "s.json",
        "--epsilon",
        "2",
        "--participants",
        "300",
        "--bins",
        "3",
    )
    assert "--bins is for --histogram" in run(capsys, *given, status=2)
