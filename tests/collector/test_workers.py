"""dither serve --workers: one port, several processes; one that is killed is replaced, counters are sums, and all end together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector_harness import Caller, Cluster, envelope_of, plan_of, token_of, until

from dither.cli import run
from dither.client import Unreachable
from dither.collector import Metrics, Outcome


def test_an_sqlite_file_takes_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "serve",
        "--store",
        str(tmp_path / "c.db"),
        "--key-file",
        str(tmp_path / "key"),
        "--workers",
        "2",
    ]
    assert run(given) == 2
    said = capsys.readouterr().err
    assert (
        said
        == "dither: --workers 2 needs a postgresql:// store; an SQLite file takes one process\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_more_connections_than_there_is_room_for_are_refused_before_any_worker_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "serve",
        "--store",
        "postgresql://dither@127.0.0.1:1/none",
        "--key-file",
        str(tmp_path / "key"),
    ]
    assert run([*given, "--port", "0", "--workers", "2", "--connections", "1000000000"]) == 2
    assert "raise it (ulimit -n) or allow fewer connections" in capsys.readouterr().err


def test_what_workers_counted_is_added_up_and_outlives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = []
    for process in (101, 102, 103):
        monkeypatch.setattr(os, "getpid", lambda p=process: p)
        made = Metrics(lambda: 7, tmp_path)
        made.upload(0.004, [Outcome.STORED] * (process - 100) + [Outcome.CONFLICT])
        made.share()
        workers.append(made)
    monkeypatch.setattr(os, "getpid", lambda: 103)
    workers[2].upload(
        0.2, [Outcome.STORED]
    )  # what it has counted since it told the others shows in its own answer

    def shown() -> dict[str, float]:
        lines = (
            line.rsplit(" ", 1)
            for line in workers[2].text().splitlines()
            if not line.startswith("#")
        )
        return {name: float(value) for name, value in lines}

    found = shown()
    assert found['dither_reports_total{outcome="stored"}'] == 7
    assert found['dither_reports_total{outcome="conflict"}'] == 3
    assert (
        found['dither_upload_seconds_bucket{le="0.005"}'],
        found["dither_upload_seconds_count"],
    ) == (3, 4)
    assert found["dither_queue_reports"] == 21
    Metrics.retire(tmp_path, 101)
    found = shown()
    assert found['dither_reports_total{outcome="stored"}'] == 7
    assert found["dither_queue_reports"] == 14, "what waited with one that has ended waits no more"


@pytest.fixture
def serving(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    code = "from dither.cli import main; main()"
    given = [
        "serve",
        "--store",
        cluster.fresh(),
        "--key-file",
        str(tmp_path / "key"),
        "--port",
        "0",
        "--workers",
        "2",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on "), process.communicate()
    yield process, line.removeprefix("listening on ").strip()
    if process.poll() is None:
        process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None and not stream.closed:
            stream.close()
    process.wait()


def workers_of(process: subprocess.Popen[str]) -> set[int]:
    """The processes that it started and that serve; Python's own helper is not one of them."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return {int(c) for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()}


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_all_end_together(
    serving: tuple[subprocess.Popen[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, url = serving
    monkeypatch.setattr("collector_harness.KEY", (tmp_path / "key").read_text().strip())
    campaign = Caller(url).create()
    plan = plan_of(Caller(url).announcement(campaign))
    sent = 0

    def upload() -> bool:
        nonlocal sent
        try:
            answer = Caller(url).upload(campaign, envelope_of(campaign, plan, [token_of(sent)]))
        except Unreachable:
            return False  # it was with the one that was killed
        sent += answer.status == 201
        return answer.status in (200, 201)

    assert all(upload() for _ in range(10))
    first = workers_of(process)
    assert len(first) == 2
    os.kill(min(first), signal.SIGKILL)
    until(lambda: upload() and sent > 15)
    until(lambda: len(workers_of(process) - first) == 1, 60)
    until(lambda: upload() and sent > 20)

    def counted() -> int:
        text = Caller(url).connection.request("GET", "/metrics", None).body.decode()
        found = re.search(r'dither_reports_total\{outcome="stored"\} (\d+)', text)
        return 0 if found is None else int(found[1])

    # What the killed one had counted since it last told the others, half a second before at most, is gone with it.
    until(lambda: sent - 10 <= counted() <= sent)
    assert Caller(url).status(campaign)["rounds"][0]["reports"] >= sent
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert "another one takes its place" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_workers_end_when_the_first_process_is_killed(
    serving: tuple[subprocess.Popen[str], str],
) -> None:
    process, url = serving
    started = workers_of(process)
    process.kill()
    until(lambda: not any(_runs(p) for p in started), 30)
    with pytest.raises(Unreachable):
        Caller(url).connection.request("GET", "/live", None)


def _runs(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False
