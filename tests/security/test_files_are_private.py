"""Files that hold reports, secrets, keys or tokens are their owner's alone, even where the umask gives everybody everything."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from collector_harness import (
    KEY,
    SCHEMA,
    Caller,
    ServerThread,
    envelope_of,
    plan_of,
    token_of,
)

import dither
from dither import cli
from dither.client import Device
from dither.collector import SqliteStore, admin_key
from dither.errors import InputError
from dither.private_files import make_private


@pytest.fixture(autouse=True)
def _everything_to_everybody() -> Iterator[None]:
    earlier = os.umask(0)
    yield
    os.umask(earlier)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ServerThread]:
    (tmp_path / "store").mkdir()
    served = ServerThread(SqliteStore(tmp_path / "store" / "c.db"))
    yield served
    served.stop()


def modes(folder: Path) -> dict[str, int]:
    found = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # it went while we looked
            found[path.name] = stat.S_IMODE(path.stat().st_mode)
    return found


def test_the_collectors_database_and_everything_beside_it(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "c.db")):
        assert modes(tmp_path) == dict.fromkeys(
            ("c.db", "c.db-wal", "c.db-shm", "c.db.lock"), 0o600
        )


def test_a_database_that_was_open_to_others_no_longer_is(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "c.db").close()
    for name in ("c.db", "c.db.lock"):
        (tmp_path / name).chmod(0o666)
    (tmp_path / "c.db-wal").touch(0o666)
    with closing(SqliteStore(tmp_path / "c.db")):
        assert set(modes(tmp_path).values()) == {0o600}


def test_a_devices_file_and_everything_beside_it(tmp_path: Path) -> None:
    device = Device(tmp_path / "device.db")
    assert set(modes(tmp_path).values()) == {0o600}
    assert len(modes(tmp_path)) == 3
    device.close()
    (tmp_path / "device.db").chmod(0o644)
    Device(str(tmp_path / "device.db")).close()
    assert modes(tmp_path) == {"device.db": 0o600}


def test_a_device_in_memory_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Device(":memory:").close()
    Device(Path(":memory:")).close()
    assert modes(tmp_path) == {}


def test_opening_a_device_twice_in_a_process_leaves_the_locks_of_the_first_alone(
    tmp_path: Path,
) -> None:
    first = Device(tmp_path / "device.db")
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
        "try: c.execute('BEGIN IMMEDIATE')\nexcept sqlite3.OperationalError as e: print(e)"
    )
    with first.transaction():
        make_private(tmp_path / "device.db")
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "device.db")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "database is locked\n"
    first.close()


def test_the_admin_key_made_or_found(tmp_path: Path) -> None:
    file = tmp_path / "admin.key"
    key = admin_key(file)
    assert modes(tmp_path) == {"admin.key": 0o600}
    file.chmod(0o644)
    assert admin_key(file) == key
    assert modes(tmp_path) == {"admin.key": 0o600}


def test_a_file_that_cannot_be_made_private_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.db").touch(0o666)

    def not_mine(path: object, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", not_mine)
    with pytest.raises(InputError, match="its owner"):
        SqliteStore(tmp_path / "c.db")


def test_tokens_and_raw_reports_that_an_operator_takes_away(
    running: ServerThread, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    key, schema = own / "key", own / "schema.json"
    make_private(key)
    key.write_text(KEY)
    make_private(schema)
    schema.write_text(json.dumps(SCHEMA.to_json()))
    place = ["--url", running.url, "--key-file", str(key)]
    create = [
        "campaign",
        "create",
        "--schema",
        str(schema),
        "--epsilon",
        "2",
        "--participants",
        "100",
        *place,
    ]
    assert cli.run([*create, "--tokens", "3", "--tokens-file", str(own / "tokens")]) == 0
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    assert caller.upload(campaign, envelope_of(campaign, plan, [token_of(0)])).status == 201
    (own / "reports.parquet").touch(0o666)  # an earlier export, readable by everybody
    assert (
        cli.run(["campaign", "export", campaign, "-o", str(own / "reports.parquet"), *place]) == 0
    )
    assert modes(own) == dict.fromkeys(("key", "schema.json", "tokens", "reports.parquet"), 0o600)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_simulation_s_report_shows_the_truth_and_the_rest_may_be_given_away(
    tmp_path: Path, form: str
) -> None:
    out = tmp_path / "out"
    publish = [
        "publish",
        "adult",
        "--columns",
        "sex,income",
        "--method",
        "independent",
        "--rows",
        "20",
        "-q",
    ]
    publish += ["--epsilon", "2", "--format", form, "-o", str(out)]
    assert cli.run(publish) == 0
    held = modes(out)
    assert "Truth" in (out / "report.html").read_text()
    assert held.pop("report.html") == 0o600
    assert {f"synthetic.{form}", "release.json"} <= set(held)
    assert set(held.values()) == {0o666}, "as the umask says"
    (out / "report.html").chmod(0o644)
    assert cli.run([*publish, "--overwrite"]) == 0
    assert modes(out)["report.html"] == 0o600
    dither.load_release(out).save(tmp_path / "again")  # which knows no truth
    assert modes(tmp_path / "again")["report.html"] == 0o666


def special(folder: Path, kind: str) -> Path:
    """Something that is not a file, with rights for everybody."""
    path = folder / kind
    if kind == "fifo":
        os.mkfifo(path, 0o666)
        return path
    path.mkdir()
    path.chmod(0o1777)
    if kind == "link":
        (folder / "to it").symlink_to(path)
        return folder / "to it"
    return path


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
@pytest.mark.parametrize("given", ["store", "key", "device", "lock", "wal"])
def test_what_is_not_a_file_is_refused_and_left_as_it_is(
    tmp_path: Path, kind: str, given: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    path = special(place, kind)
    if given in ("lock", "wal"):
        path = path.rename(place / {"lock": "c.db.lock", "wal": "c.db-wal"}[given])
    before = modes(place)
    opening = {
        "store": lambda: SqliteStore(path),
        "key": lambda: admin_key(path),
        "device": lambda: Device(path),
    }
    with pytest.raises(InputError, match=r"^[^\n]* is not a file; give another path$") as refused:
        opening.get(given, lambda: SqliteStore(place / "c.db"))()
    assert str(refused.value).split(" is not")[0] in (str(path), str(path.resolve()))
    (place / "c.db").unlink(missing_ok=True)
    assert modes(place) == before, "nothing made beside it, no rights taken"


@pytest.mark.parametrize("option", ["--store", "--key-file"])
def test_the_command_line_says_so_in_one_line(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = special(tmp_path, "folder")
    options = {
        "--store": str(tmp_path / "c.db"),
        "--key-file": str(tmp_path / "key"),
        option: str(path),
    }
    assert (
        cli.run(["serve", "--port", "0", *(part for pair in options.items() for part in pair)]) == 2
    )
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == f"dither: {path} is not a file; give another path"
    )
    assert modes(tmp_path)["folder"] == 0o1777
    assert not [name for name in modes(tmp_path) if name.endswith(".lock")]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stands_for_the_file_it_leads_to(tmp_path: Path, there: bool) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    for name in ("c.db", "device.db", "key"):
        (own / name).symlink_to(other / name)
    if there:
        for name in ("c.db", "device.db"):
            (other / name).touch(0o666)
    with closing(SqliteStore(own / "c.db")), closing(Device(own / "device.db")):
        with pytest.raises(InputError, match="in use by another collector"):
            SqliteStore(other / "c.db")
        admin_key(own / "key")
        assert set(modes(other).values()) == {0o600}
        assert {"c.db-wal", "c.db.lock", "device.db-wal", "key"} <= set(modes(other))
