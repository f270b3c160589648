"""Release folders of every kind written by version 0.2.0 load and give the answers they gave then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden.make import ANSWERS, FOLDERS, KINDS

import dither


def _triple(answer: Any) -> list[float | None]:
    return [answer.estimate, answer.low, answer.high]


def answers(kind: str, folder: Path) -> dict[str, Any]:
    """What a folder answers to a fixed set of questions."""
    if kind == "table":
        release = dither.load_release(folder)
        return {
            "epsilon": release.epsilon_achieved,
            "query": _triple(release.query("income == '>50K'", given="sex == 'Female'")),
            "table": [_triple(row) for row in release.table(["sex", "income"]).rows],
            "mean": _triple(release.mean("age")),
            "quantile": [_triple(row) for row in release.quantile("age", [0.5]).rows],
            "marginal": release.marginal(["sex"]).frequencies.tolist(),
        }
    if kind == "number":
        number = dither.HistogramRelease.load(folder)
        found: dict[str, Any] = {"epsilon": number.epsilon_achieved, "mean": _triple(number.mean())}
        if number.cells is not None:
            found["range"] = _triple(number.range(20, 60))
            found["quantile"] = [_triple(row) for row in number.quantile([0.5]).rows]
        found["consumers"] = [entry.to_json() for entry in number.consumers]
        return found
    central = dither.CentralRelease.load(folder)
    count = central.count({"sex": "Female", "income": ">50K"})
    return {
        "epsilon": central.epsilon_achieved,
        "query": [count.estimate, count.low, count.high],
        "marginal": central.marginal(["sex"]).frequencies.tolist(),
    }


@pytest.mark.parametrize(
    ("kind", "method"), [(k, m) for k, methods in KINDS.items() for m in methods]
)
def test_old_folders_load_and_answer_as_before(kind: str, method: str) -> None:
    stored = json.loads(ANSWERS.read_text(encoding="utf-8"))[f"{kind}-{method}"]
    found = answers(kind, FOLDERS / f"{kind}-{method}")
    assert _close(json.loads(json.dumps(found)), stored)


def _close(found: Any, stored: Any) -> bool:
    """Nested figures that agree to ten digits."""
    if isinstance(stored, dict):
        return set(found) == set(stored) and all(_close(found[key], stored[key]) for key in stored)
    if isinstance(stored, list):
        return len(found) == len(stored) and all(map(_close, found, stored))
    if isinstance(stored, float):
        return bool(found == pytest.approx(stored, rel=1e-10, abs=1e-12))
    return bool(found == stored)
