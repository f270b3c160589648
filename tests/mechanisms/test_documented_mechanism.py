"""The mechanism that docs/how-to/add-a-mechanism.md builds keeps the contract of every other one."""

from __future__ import annotations

import re
import secrets
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
