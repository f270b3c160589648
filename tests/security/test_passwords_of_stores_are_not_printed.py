"""A store's address may hold a password: whatever is wrong with it is said without repeating it."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_harness import free_port

from dither import cli


@pytest.mark.parametrize(
    ("address", "said", "status"),
    [
        ("postgresql+psycopg://u:SECRET@127.0.0.1/db", "postgresql+psycopg://", 2),
        ("mysql://u:SECRET@127.0.0.1/db", "mysql://", 2),
        ("postgresql:u:SECRET@127.0.0.1", "cannot be read", 2),
        ("postgresql://u:SECRET@127.0.0.1:abc/db", "port", 2),
        ("postgresql://u:SECRET@127.0.0.1:70000/db", "70000", 2),
        ("postgresql://u:SECRET@127.0.0.1/db?port=abc", "port", 2),
        ("postgresql://u:SECRET@127.0.0.1/db?colour=SECRET", "'colour'", 2),
        ("postgresql://u:SECRET@127.0.0.1/db?autocommit=1", "'autocommit'", 2),
        ("postgresql://u:my@SECRET@127.0.0.1/db", "%40", 2),
        ("postgresql://u:SECRET@127.0.0.1:{port}/db", "unavailable", 1),
        ("postgres://u@127.0.0.1:{port}/db?password=SECRET", "unavailable", 1),
    ],
)
def test_one_line_without_the_password(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    said: str,
    status: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    store = address.replace("{port}", str(free_port()))
    assert cli.run(["serve", "--port", "0", "--store", store]) == status
    shown = capsys.readouterr()
    first, message = shown.err.splitlines()
    assert first == "dither: admin key in dither-admin.key"
    assert said in message
    assert "SECRET" not in shown.err + shown.out
