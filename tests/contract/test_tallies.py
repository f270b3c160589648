"""Tallies: zero, add, merge in any order, save and load, and the same integers as a slow count."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from dither.errors import ParameterError, ReportError
from dither.mechanisms import PackedReports, kernels
from dither.randomness import RandomStream
from dither.reports import Plan, Question, plan_from_json, question
from dither.schema import Attribute, Schema
from dither.tally import CountTally, PatternTally, report_bits, tally_from_bytes, zero

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True)),
        Attribute("c", "ordinal", (1, 2, 3, 4, 5, 6, 7, 8, 9)),
    )
)
SPLIT = tuple(question(SCHEMA, [n], 1.0, "sue") for n in SCHEMA.names)
PLANS = {
    "counts": Plan(
        0,
        tuple(question(SCHEMA, p, 2.0) for p in (("a",), ("a", "b"), ("b", "c"))),
        (0.5, 0.25, 0.25),
    ),
    "counts-split": Plan(0, SPLIT, split=True),
    "patterns": Plan(0, SPLIT, split=True, tally="patterns"),
}


def made_reports(plan: Plan, n: int, seed: int) -> list[tuple[int, PackedReports]]:
    rng = np.random.default_rng(seed)
    stream = RandomStream.from_seed("tally", seed)
    parts = [
        kernels.randomise(q.mechanism, rng.integers(0, q.mechanism.cells, n), stream)
        for q in plan.questions
    ]
    if plan.split:
        return [(-1, PackedReports(np.concatenate([p.rows for p in parts], axis=1)))]
    return list(enumerate(parts))


def tallied(plan: Plan, *sets: list[tuple[int, PackedReports]]):
    tally = zero(plan)
    for reports in sets:
        for i, part in reports:
            tally.add(i, part)
    return tally


@pytest.mark.parametrize("kind", PLANS)
def test_merging_in_any_order_gives_identical_integers(kind: str) -> None:
    plan = PLANS[kind]
    sets = [made_reports(plan, 40 + 7 * s, s) for s in range(3)]
    whole = tallied(plan, *sets).to_bytes()
    for order in permutations(range(3)):
        merged = zero(plan)
        for i in order:
            merged = merged.merge(tallied(plan, sets[i]))
        assert merged.to_bytes() == whole
        nested = tallied(plan, sets[order[0]]).merge(
            tallied(plan, sets[order[1]]).merge(tallied(plan, sets[order[2]]))
        )
        assert nested.to_bytes() == whole


@pytest.mark.parametrize("kind", PLANS)
def test_save_and_load(kind: str) -> None:
    tally = tallied(PLANS[kind], made_reports(PLANS[kind], 30, 1))
    loaded = tally_from_bytes(tally.to_bytes())
    assert loaded.to_bytes() == tally.to_bytes()
    assert loaded.participants == tally.participants == (90 if kind == "counts" else 30)
    with pytest.raises(ReportError):
        tally_from_bytes(tally.to_bytes()[:-1])
    with pytest.raises(ReportError):
        tally_from_bytes(b"something else")


def test_bits_of_split_reports_stand_side_by_side() -> None:
    plan = PLANS["patterns"]
    rows = made_reports(plan, 200, 3)[0][1].rows
    slow = []
    for row in rows:
        slow.append([])
        for i, q in enumerate(plan.questions):
            number = int.from_bytes(
                row[plan.report_offsets[i] : plan.report_offsets[i + 1]].tobytes(), "little"
            )
            slow[-1].extend(number >> b & 1 for b in range(q.mechanism.cells))
    assert report_bits(plan, rows).tolist() == slow
    grr = Plan(0, (question(SCHEMA, ["a"], 1.0, "grr"),), split=True, tally="patterns")
    with pytest.raises(ParameterError, match="grr"):
        report_bits(grr, np.zeros((2, 1), np.uint8))


def test_patterns_are_a_multiset() -> None:
    plan = PLANS["patterns"]
    reports = made_reports(plan, 3_000, 4)[0][1]
    tally = zero(plan)
    tally.add(-1, reports)
    assert isinstance(tally, PatternTally)
    slow: dict[bytes, int] = {}
    for row in reports.rows:
        slow[row.tobytes()] = slow.get(row.tobytes(), 0) + 1
    assert {p.tobytes(): int(c) for p, c in zip(tally.patterns, tally.counts, strict=True)} == slow
    assert [p.tobytes() for p in tally.patterns] == sorted(slow)


def test_what_cannot_be_counted_is_refused() -> None:
    tally = zero(PLANS["counts"])
    assert isinstance(tally, CountTally)
    with pytest.raises(ReportError):
        tally.add(0, PackedReports(np.zeros((3, 9), np.uint8)))
    with pytest.raises(ReportError, match="impossible"):
        tally.add_counts(0, np.array([5, 0, 0]), 4)
    with pytest.raises(ParameterError):
        tally.merge(CountTally(PLANS["counts-split"]))
    with pytest.raises(ParameterError, match="split"):
        PatternTally(PLANS["counts"])
    for unknown in ("gram", ["counts"], None):  # the first was known to earlier versions
        with pytest.raises(ParameterError, match="tally"):
            plan_from_json(PLANS["patterns"].to_json() | {"tally": unknown})


def test_plans_state_what_a_participant_gives_away() -> None:
    for plan in PLANS.values():
        assert plan_from_json(plan.to_json()) == plan
    one = PLANS["counts"]
    assert one.epsilon == max(q.mechanism.epsilon for q in one.questions) <= 2.0
    assert PLANS["patterns"].epsilon == pytest.approx(sum(q.mechanism.epsilon for q in SPLIT))
    with pytest.raises(ParameterError, match="add up"):
        Plan(0, one.questions, (0.5, 0.1, 0.1))
    with pytest.raises(ReportError):
        plan_from_json({"round": 0})
    assert Question(("a", "c"), one.questions[0].mechanism).cell(SCHEMA, [2, 0, 5]) == 2 * 9 + 5
