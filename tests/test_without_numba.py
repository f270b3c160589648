"""Releases can be read and asked where Numba and cryptography are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dither

HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import dither
"""


def _run(code: str, *names: str) -> str:
    """What a program prints where these packages are not installed."""
    done = subprocess.run(
        [sys.executable, "-c", f"NAMES = {names!r}\n{HIDDEN}{code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = dither.publish(
        "adult",
        epsilon=4.0,
        method="independent",
        columns=["age", "sex"],
        rows=20,
        replicates=5,
        seed=1,
    )
    return release.save(tmp_path_factory.mktemp("without") / "out")


@pytest.mark.slow
def test_a_saved_release_is_asked_without_numba(folder: Path) -> None:
    asked = f"""
release = dither.load_release({str(folder)!r})
answer = release.query("sex == 'Female'")
print(repr(answer.estimate), repr(answer.low), repr(release.mean("age").estimate))
print(repr(release.quantile("age", 0.5).estimate), len(release.report()) > 1000)
"""
    release = dither.load_release(folder)
    answer = release.query("sex == 'Female'")
    expected = f"{answer.estimate!r} {answer.low!r} {release.mean('age').estimate!r}\n"
    expected += f"{release.quantile('age', 0.5).estimate!r} True\n"
    assert _run(asked, "numba", "llvmlite", "cryptography") == expected


@pytest.mark.slow
def test_what_needs_numba_says_so() -> None:
    asked = """
calls = [
    lambda: dither.mechanism("oue", cells=4, epsilon=1.0).randomise_all([0, 1]),
    lambda: dither.publish("adult", epsilon=4.0, method="independent", columns=["sex"]),
]
for call in calls:
    try:
        call()
    except dither.DitherError as error:
        print(error)
"""
    first, second = _run(asked, "numba", "llvmlite").splitlines()
    assert first.startswith("this needs Numba, which is not installed")
    assert second == "drawing noise needs llvmlite, which is not installed"


def test_loading_a_release_does_not_import_numba(folder: Path) -> None:
    code = f"""
import sys
import dither
dither.load_release({str(folder)!r}).query("sex == 'Female'")
print([name for name in ("numba", "cryptography") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "[]\n"
