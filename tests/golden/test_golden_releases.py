"""Release folders of every kind written by version 0.2.0 load and give the answers they gave then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden.make import ANSWERS, FOLDERS, KINDS

import dither
from dither.errors import QuestionError


def _triple(answer: Any) -> list[float | None]:
    return [answer.estimate, answer.low, answer.high]


def answers(folder: Path) -> dict[str, Any]:
    """What a folder answers to a fixed set of questions."""
    release = dither.load_release(folder)
    answers: dict[str, Any] = {"epsilon": release.epsilon}
    if release.kind == "number":
        (name,) = release.schema.names
        answers["mean"] = _triple(release.mean(name))
        assert release.mean() == release.mean(name)
        if release.number.cells is not None:
            answers["range"] = _triple(release.query(f"20 <= {name} < 60"))
            assert _triple(release.number.range(20, 60)) == answers["range"]
            answers["quantile"] = [_triple(release.quantile(name, 0.5))]
        else:
            with pytest.raises(QuestionError, match="mean alone"):
                release.query(f"20 <= {name} < 60")
        answers["consumers"] = [entry.to_json() for entry in release.consumers]
        return answers
    answers["marginal"] = release.marginal(["sex"]).frequencies.tolist()
    if release.kind == "cells":
        answers["query"] = _triple(release.count({"sex": "Female", "income": ">50K"}))
        same = release.count("sex == 'Female' and income == '>50K'")
        assert _close(_triple(same), answers["query"])
        return answers
    answers["query"] = _triple(release.query("income == '>50K'", given="sex == 'Female'"))
    answers["table"] = [_triple(row) for row in release.table(["sex", "income"]).rows]
    answers["mean"] = _triple(release.mean("age"))
    answers["quantile"] = [_triple(row) for row in release.quantile("age", [0.5]).rows]
    assert [_triple(release.quantile("age", 0.5))] == answers["quantile"]
    return answers


NAMES = [f"{kind}-{method}" for kind, methods in KINDS.items() for method in methods]


@pytest.mark.parametrize("name", NAMES)
def test_old_folders_load_and_answer_as_before(name: str) -> None:
    stored = json.loads(ANSWERS.read_text(encoding="utf-8"))[name]
    assert _close(json.loads(json.dumps(answers(FOLDERS / name))), stored)


@pytest.mark.parametrize("name", NAMES)
def test_old_folders_are_written_again_in_one_format(name: str, tmp_path: Path) -> None:
    release = dither.load_release(FOLDERS / name)
    again = release.save(tmp_path / "out")
    manifest = json.loads((again / "release.json").read_text(encoding="utf-8"))
    assert (manifest["format"], manifest["kind"]) == ("dither-release-2", release.kind)
    assert manifest.keys() >= CONTRACT
    assert _close(answers(again), answers(FOLDERS / name))


@pytest.mark.parametrize("name", NAMES)
def test_shares_of_a_partition_add_up_to_one(name: str) -> None:
    """Every kind answers the same questions, or says in one error which ones it can answer."""
    release = dither.load_release(FOLDERS / name)
    attribute = release.schema.names[-1]
    try:
        table = release.table([attribute])
    except QuestionError:
        assert name == "number-mean"
        return
    assert sum(row.estimate for row in table.rows) == pytest.approx(1.0)
    for row in table.rows:
        assert 0.0 <= row.estimate <= 1.0
        assert row.low is None or row.low <= row.estimate <= row.high
    whole = release.query(None)
    assert whole.estimate == pytest.approx(1.0)
    assert release.marginal([attribute]).frequencies.sum() == pytest.approx(1.0)


def test_a_question_of_another_kind_is_one_error() -> None:
    number = dither.load_release(FOLDERS / "number-chp")
    table = dither.load_release(FOLDERS / "table-independent")
    cells = dither.load_release(FOLDERS / "central-laplace")
    for ask in (
        lambda: number.synthetic,
        lambda: number.model,
        lambda: number.query("number < 5", given="number < 9"),
        lambda: table.consumers,
        lambda: table.cells,
        lambda: cells.number.answer(4),
        lambda: cells.with_replicates(5),
    ):
        with pytest.raises(QuestionError):
            ask()


CONTRACT = {
    *("warnings", "method", "parameters", "epsilon_asked", "epsilon_achieved", "participants"),
    *("rounds", "seed", "rows", "seconds", "dither_version"),
}


def _close(found: Any, stored: Any) -> bool:
    """Nested figures that agree to ten digits."""
    if isinstance(stored, dict):
        return set(found) == set(stored) and all(_close(found[key], stored[key]) for key in stored)
    if isinstance(stored, list):
        return len(found) == len(stored) and all(map(_close, found, stored))
    if isinstance(stored, float):
        return bool(found == pytest.approx(stored, rel=1e-10, abs=1e-12))
    return bool(found == stored)
