"""The mechanism that docs/how-to/add-a-mechanism.md builds keeps the contract of every other one."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contract.test_mechanisms import contributions, worst_ratio

from dither.errors import PrivacyError
from dither.mechanisms import kernels, log_up
from dither.randomness import RandomStream

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "add-a-mechanism.md"


def test_the_documented_mechanism_works() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert code is not None
    built: dict[str, Any] = {"__name__": "documented"}
    exec(compile(code[1], str(PAGE), "exec", dont_inherit=True), built)
    ring = built["Ring"](6, 5_000, 4_000, 16)
    assert ring.epsilon == log_up(worst_ratio([ring.law(value) for value in range(6)]))
    _, chances, added = contributions(ring)
    assert chances.T @ added == pytest.approx(np.eye(6), abs=1e-9)
    truth = np.array([500, 100, 50, 200, 100, 50]) * 100
    people = np.repeat(np.arange(6), truth)
    found = kernels.estimate(
        ring,
        kernels.support(ring, kernels.randomise(ring, people, RandomStream.from_seed(1))),
        len(people),
    )
    assert (np.abs(found.frequencies - truth / truth.sum()) < 4.5 * found.standard_errors).all()
    assert built["Ring"].from_json(ring.to_json()) == ring
    ring.check_report(ring.randomise(2, secrets.token_bytes))
    with pytest.raises(PrivacyError):
        built["Ring"](6, 5_000, 6_000, 16)


@pytest.mark.slow
def test_the_page_as_printed_is_a_package_that_passes_the_contract(tmp_path: Path) -> None:
    """The files are written as the page shows them, and its entry point is installed."""
    text = PAGE.read_text(encoding="utf-8")
    code, test = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    points = re.search(r'\[project\.entry-points\."dither\.mechanisms"\]\nring = "(.*?)"', text)
    assert points is not None
    (tmp_path / "ring_mechanism.py").write_text(code, encoding="utf-8")
    (tmp_path / "test_ring.py").write_text(test, encoding="utf-8")
    info = tmp_path / "ring_mechanism-0.1.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: ring-mechanism\nVersion: 0.1\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entry = f"[dither.mechanisms]\nring = {points[1]}\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    passed = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ring.py")
    assert "12 passed" in passed
    built = "import dither; print(dither.mechanism('ring', cells=8, epsilon=1.0).epsilon)"
    assert 0.99 < float(run("-c", built)) <= 1.0
