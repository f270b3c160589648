"""Other libraries behind the worker that runs by their own Python; stand-ins with their interfaces take the libraries' place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.lab.comparison import PEERS, Drawn, Task, find_peer, measure, peer_worker
from dither.schema import Attribute, Schema

SIZES = (2, 3)
SCHEMA = Schema(
    (Attribute("a", "boolean", (False, True)), Attribute("b", "categorical", ("x", "y", "z")))
)
DPMM = """
import sys
import numpy as np


class MSTGM:
    def __init__(self, epsilon, delta, n_jobs):
        assert (epsilon, delta, n_jobs) == (1.0, 1e-9, 1)
        assert "dither" not in sys.modules

    def set_domain(self, domain):
        self.domain = domain

    def set_random_state(self, state):
        self.state = state

    def fit(self, frame):
        assert list(frame.columns) == list(self.domain)
        self.frame = frame
        self.held = np.ones(64 << 17)  # 64 MB
        WHILE_FITTING

    def generate(self, n_records):
        drawn = self.frame.iloc[self.state.randint(0, len(self.frame), n_records)]
        return drawn[list(self.domain)[::-1]].assign(another=1) ADDED
"""
SNSYNTH = """
import numpy as np


class MSTSynthesizer:
    def __init__(self, epsilon, delta):
        assert (epsilon, delta) == (1.0, 1e-9)

    def fit(self, frame, categorical_columns):
        assert categorical_columns == list(frame.columns)
        self.frame = frame

    def sample(self, rows):
        return self.frame.iloc[np.random.randint(0, len(self.frame), rows)]
"""


def install(place: Path, environment: str, modules: dict[str, str]) -> Path:
    """What an environment of a peer is for us: a Python that finds the library, and this one need not."""
    for name, text in modules.items():
        path = place / "site" / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, path.parent.parent):
            if folder != place / "site" and folder != place:
                (folder / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    python = place / f"venv-{environment}" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={place / "site"} exec {sys.executable} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    return python


def codes(rows: int = 500) -> np.ndarray:
    rng = np.random.default_rng(3)
    first = rng.integers(0, 2, rows)
    return np.stack([first, first + rng.integers(0, 2, rows)], axis=1).astype(np.int32)


def task() -> Task:
    return Task(SCHEMA, codes(), codes()[:0], None)


def stand_in(while_fitting: str = "pass", added: str = "") -> str:
    return DPMM.replace("WHILE_FITTING", while_fitting).replace("ADDED", added)


def test_a_library_runs_by_its_own_python_and_is_charged_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DITHER_PEERS", str(tmp_path))
    assert not PEERS["dpmm-mst"].installed
    install(tmp_path, "dpmm", {"dpmm.models.mst": stand_in()})
    found = measure(task(), "dpmm-mst", 1.0, 0)
    assert found["trust"] == "central"
    # As many rows drawn from the rows themselves: at most sqrt(k/n)/2 off in the mean, and hardly ever twice that.
    assert found["tvd_2"] < np.sqrt(6 / 500)
    assert 0.1 < found["cpu_seconds"] < 60  # it has loaded pandas, which this process need not do
    assert 64 <= found["peak_megabytes"] < 2000
    assert not PEERS["smartnoise-mst"].installed
    install(tmp_path, "smartnoise", {"snsynth.mst": SNSYNTH})
    assert measure(task(), "smartnoise-mst", 1.0, 0)["tvd_2"] < np.sqrt(6 / 500)


@pytest.mark.parametrize(
    ("while_fitting", "added", "words"),
    [
        ("raise ValueError('no such luck')", "", "ValueError: no such luck"),
        ("import no_such_part", "", "No module named 'no_such_part'"),
        ("pass", "+ 2", "did not return 500 rows"),
        ("pass", ".head(7)", "did not return 500 rows"),
    ],
)
def test_what_a_library_does_wrong_is_said_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, while_fitting: str, added: str, words: str
) -> None:
    monkeypatch.setenv("DITHER_PEERS", str(tmp_path))
    install(tmp_path, "dpmm", {"dpmm.models.mst": stand_in(while_fitting, added)})
    with pytest.raises(ParameterError, match=words):
        measure(task(), "dpmm-mst", 1.0, 0)


def test_a_worker_ends_when_nobody_waits_any_more(tmp_path: Path) -> None:
    """Given up for want of time, a comparison leaves no process behind."""
    python = install(
        tmp_path,
        "dpmm",
        {"dpmm.models.mst": stand_in("import time; open(FILE, 'w'); time.sleep(600)")},
    )
    begun = tmp_path / "begun"
    module = tmp_path / "site" / "dpmm" / "models" / "mst.py"
    module.write_text(f"FILE = {str(begun)!r}\n{module.read_text()}", encoding="utf-8")
    np.save(tmp_path / "codes.npy", codes())
    asked = {"domain": {"a": 2, "b": 3}, "epsilon": 1.0, "delta": 1e-9, "seed": 0, "rows": 5}
    (tmp_path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    child = subprocess.Popen(
        [str(python), peer_worker.__file__, "dpmm", "MST", str(tmp_path)], stdin=subprocess.PIPE
    )
    try:
        while not begun.exists():
            assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(60) == 1
    finally:
        child.kill()
        child.wait()


def test_without_the_folder_only_what_is_installed_here_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DITHER_PEERS", raising=False)
    with pytest.raises(ParameterError, match="dpmm-mst needs the library dpmm"):
        find_peer("dpmm-mst")
    monkeypatch.setattr("dither.lab.comparison.peers._has", lambda module: True)
    peer = find_peer("dpmm-mst")
    assert peer is not None
    drawn = peer.fit(codes(), {"a": 2, "b": 3}, 1.0, 0)
    assert isinstance(drawn, Drawn)
