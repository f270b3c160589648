"""The command line of a collection, end to end: serve, create, submit, close, finalise, export."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from collector_harness import KEY, SCHEMA
from collector_harness import run_dither as run

from dither import cli
from dither.client import Connection
from dither.collector import SqliteStore, listen
from dither.errors import InputError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a schema, a table and the admin key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    (tmp_path / "dither-admin.key").write_text(KEY + "\n")
    rows = [
        {
            "colour": ("red", "green", "blue")[i % 3],
            "member": [True, False, None][i % 3],
            "score": i % 9,
        }
        for i in range(300)
    ]
    pa_csv.write_csv(pa.Table.from_pylist(rows), tmp_path / "people.csv")
    return tmp_path


def create(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    if "--method" not in more:
        more = (*more, "--method", "independent")
    given = ("--schema", "schema.json", "--epsilon", "2", "--participants", "300", *more)
    return run(capsys, "campaign", "create", *given).strip()


def test_create_warns_of_weak_protection_and_announces_the_reason(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    given = ["--schema", "schema.json", "--participants", "300", "--method", "independent"]
    for epsilon, reason in (("4", ""), ("5", ""), ("9", "Only forty people work here.")):
        more = ["--epsilon-reason", reason] if reason else []
        assert cli.run(["campaign", "create", *given, "--epsilon", epsilon, *more]) == 0
        shown = capsys.readouterr()
        assert ("is weak protection" in shown.err) == (epsilon != "4")
        campaign = shown.out.strip()
        assert len(campaign) == 32, "standard output has the id alone"
        with closing(Connection(url)) as connection:
            announced = json.loads(
                connection.request("GET", f"/v1/campaigns/{campaign}", None).body
            )
        assert announced["epsilon_reason"] == reason


def test_a_campaign_from_the_shell(
    capsys: pytest.CaptureFixture[str], url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = create(capsys, "--name", "try", "--set", "mechanism=grr", "--method", "independent")
    assert "300 stored" in run(
        capsys, "submit", "people.csv", "--campaign", campaign, "--seed", "4"
    )
    assert "300 duplicate" in run(
        capsys, "submit", "people.csv", "--campaign", campaign, "--seed", "4", "--batch", "77"
    )
    assert "300 reports" in run(capsys, "campaign", "status", campaign)
    assert campaign in run(capsys, "campaign", "status")
    monkeypatch.setattr(
        Connection.request, "__defaults__", (None, 1000)
    )  # what a device reads at most; an operator reads all
    run(capsys, "campaign", "export", campaign, "-o", "reports.parquet")
    assert pq.read_table(folder / "reports.parquet").num_rows == 300
    assert "collected" in run(capsys, "campaign", "close-round", campaign)
    few = run(capsys, "campaign", "finalise", campaign, "-o", "out", "--replicates", "2", status=2)
    assert "replicates" in few, "said before anything is finalised"
    told = run(
        capsys, "campaign", "finalise", campaign, "-o", "out", "--rows", "40", "--replicates", "5"
    )
    assert "300 participants" in told
    assert pq.read_table(folder / "out" / "synthetic.parquet").num_rows == 40
    manifest = json.loads((folder / "out" / "release.json").read_text())
    assert (manifest["simulated"], manifest["participants"], manifest["epsilon_asked"]) == (
        False,
        300,
        2.0,
    )
    assert manifest["replicates"] == 5
    assert (folder / "out" / "replicates.bin").is_file()
    central = manifest["central"]
    assert central["people"] < central["question_hidden"]["people"] == 300
    assert (
        0
        < central["question_hidden"]["epsilon"]
        <= central["epsilon"]
        <= manifest["epsilon_achieved"]
    )
    assert central["sentence"] in told
    assert central["sentence"].startswith("A reader who sees only the release")


def test_all_rounds_of_a_method_in_one_go(capsys: pytest.CaptureFixture[str], url: str) -> None:
    campaign = create(capsys, "--method", "synthetic")
    out = run(capsys, "submit", "people.csv", "--campaign", campaign, "--all-rounds")
    assert [line.split(":")[0] for line in out.splitlines()] == ["round 0", "round 1", "round 2"]
    status = json.loads(run(capsys, "campaign", "status", campaign, "--json"))
    assert status["state"] == "collected"
    assert sum(r["reports"] for r in status["rounds"]) == 300, "everybody is asked in one round"


def test_refused_reports_are_said(
    capsys: pytest.CaptureFixture[str], url: str, folder: Path
) -> None:
    campaign = create(capsys, "--tokens", "300", "--tokens-file", "tokens.txt")
    strangers = [hashlib.sha256(bytes([i])).hexdigest() for i in range(10)]
    known = (folder / "tokens.txt").read_text().split()
    (folder / "mixed.txt").write_text("\n".join(known[:290] + strangers))
    given = ("submit", "people.csv", "--campaign", campaign, "--tokens", "mixed.txt")
    assert cli.run(list(given)) == 0
    shown = capsys.readouterr()
    assert "290 stored, 10 unknown-token" in shown.out
    assert "10 of 300 reports of round 0 were refused: 10 unknown-token" in shown.err
    (folder / "strangers.txt").write_text("\n".join(strangers * 30))
    refused = run(capsys, *given[:-1], "strangers.txt", "--all-rounds", status=1).splitlines()[-1]
    assert "refused all 300 reports" in refused
    assert json.loads(run(capsys, "campaign", "status", campaign, "--json"))["state"] == "open", (
        "nothing was closed"
    )


def test_a_seeded_simulation_says_that_it_can_be_replayed(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    campaign = create(capsys)
    assert cli.run(["submit", "people.csv", "--campaign", campaign, "--seed", "4"]) == 0
    assert "anyone who knows the seed can remove the noise" in capsys.readouterr().err
    assert cli.run(["submit", "people.csv", "--campaign", create(capsys)]) == 0
    assert "replayed" not in capsys.readouterr().err


def test_tokens_are_written_for_their_owner_only(
    capsys: pytest.CaptureFixture[str], url: str, folder: Path
) -> None:
    campaign = create(capsys, "--tokens", "300", "--tokens-file", "tokens.txt")
    assert (folder / "tokens.txt").stat().st_mode & 0o777 == 0o600
    refused = run(capsys, "submit", "people.csv", "--campaign", campaign, status=1).splitlines()[-1]
    assert "refused all 300 reports of round 0: 300 unknown-token" in refused
    assert "--tokens" in refused
    assert "300 stored" in run(
        capsys, "submit", "people.csv", "--campaign", campaign, "--tokens", "tokens.txt"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("campaign", "status", "ff" * 16), "404"),
        (("campaign", "status", "--key-file", "nowhere"), "nowhere"),
        (("campaign", "status", "--key-file", "people.csv"), "people.csv"),
        (("campaign", "status", "ä/../ \n?"), "404"),
        (("submit", "people.csv", "--campaign", "ä"), "is not the id of a campaign"),
        (("campaign", "finalise", "ff" * 16, "-o", "schema.json"), "is a file"),
        (("submit", "people.csv", "--campaign", "ff" * 16), "404"),
        (
            ("submit", "people.csv", "--campaign", "ff" * 16, "--url", "ftp://x"),
            "not a collector's address",
        ),
        (
            (
                "campaign",
                "create",
                "--schema",
                "people.csv",
                "--epsilon",
                "1",
                "--participants",
                "9",
            ),
            "people.csv",
        ),
        (
            (
                "campaign",
                "create",
                "--schema",
                "schema.json",
                "--epsilon",
                "-1",
                "--participants",
                "9",
            ),
            "epsilon",
        ),
        (
            (
                "campaign",
                "create",
                "--schema",
                "schema.json",
                "--epsilon",
                "1",
                "--participants",
                "9",
                "--tokens",
                "5",
            ),
            "together",
        ),
        (
            (
                *[
                    "campaign",
                    "create",
                    "--schema",
                    "schema.json",
                    "--epsilon",
                    "1",
                    "--participants",
                    "9",
                    "--tokens",
                    "5",
                ],
                "--tokens-file",
                "no/t",
            ),
            "no/t",
        ),
        (("serve", "--port", "0", "--store", "mysql://x"), "mysql"),
        (("serve", "--port", "0", "--store", "no/where.db"), "no"),
        (("serve", "--port", "0", "--connections", "100000000"), "open files"),
        (("serve", "--port", "70000"), "65535"),
        (("serve", "--host", "192.0.2.1"), "192.0.2.1:8700"),
        (("serve", "--host", "x" * 70), "xx:8700"),
    ],
)
def test_mistakes_are_said_in_one_line(
    capsys: pytest.CaptureFixture[str], url: str, arguments: tuple[str, ...], said: str
) -> None:
    message = run(capsys, *arguments, status=2).splitlines()[-1]
    assert said in message
    assert "Traceback" not in message


def test_a_collector_that_is_not_there_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert "does not answer" in run(
        capsys, "campaign", "status", "--url", "http://127.0.0.1:9", status=1
    )


def serving(port: int) -> subprocess.Popen[str]:
    """`dither serve` in a process of its own."""
    code = "from dither import cli; cli.main()"
    arguments = ["serve", "--store", "new.db", "--key-file", "new.key", "--port", str(port)]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_serve_makes_a_private_key_and_stops_when_told(
    folder: Path, number: signal.Signals
) -> None:
    with serving(port=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on http://127.0.0.1:")
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors.splitlines() == ["dither: admin key in new.key"]
    assert (folder / "new.key").stat().st_mode & 0o777 == 0o600
    assert len((folder / "new.key").read_text().strip()) >= 40


@pytest.mark.slow
def test_serve_on_a_port_in_use_says_so_in_one_line_and_makes_nothing(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(port) as process:
            said, errors = process.communicate(timeout=90)
    assert (process.returncode, said) == (2, "")
    (line,) = errors.splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "another port" in line
    assert not (folder / "new.db").exists()
    assert not (folder / "new.key").exists()


def test_a_port_for_the_privileged_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(bound: socket.socket, address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    class Unprivileged(socket.socket):
        bind = refuse  # type: ignore[assignment]

    monkeypatch.setattr(socket, "socket", Unprivileged)
    with pytest.raises(InputError, match=r"127\.0\.0\.1:80: ports below 1024 .* another port"):
        listen("127.0.0.1", 80)


def test_a_host_with_two_families_is_served_on_both() -> None:
    sockets = listen("localhost", 0)
    families = {s.family for s in sockets}
    for one in sockets:
        with socket.create_connection(one.getsockname()[:2], timeout=5):
            pass
        one.close()
    assert socket.AF_INET in families


def test_a_store_is_checked_backed_up_and_restored(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, backup, restored = (tmp_path / name for name in ("c.db", "b.db", "r.db"))
    SqliteStore(store).close()
    assert cli.run(["store", "backup", "--store", str(store), "-o", str(backup)]) == 0
    assert cli.run(["store", "restore", str(backup), "--store", str(restored)]) == 0
    assert cli.run(["store", "check", "--store", str(restored), "--json"]) == 0
    found = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert found == {"layout": 5, "campaigns": 0, "reports": 0, "problems": []}
    assert cli.run(["store", "restore", str(backup), "--store", str(restored)]) == 2
    assert cli.run(["store", "check", "--store", str(tmp_path / "absent.db")]) == 2
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "exists; name a new file" in errors[0]
