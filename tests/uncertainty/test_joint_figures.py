"""Intervals of figures that the reports determine only in part.

Attributes that a method took as independent after its first round, places inside a bin, and the
upper end of a number: the interval must cover what the reports cannot tell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.release import Bootstrap
from dither.schema import Attribute, Schema

PAIR = Schema(
    (
        Attribute("a", "categorical", values=("a0", "a1", "a2", "a3")),
        Attribute("b", "categorical", values=("b0", "b1", "b2")),
        Attribute("c", "categorical", values=("c0", "c1", "c2")),
    )
)
PEOPLE = 6_000


def covered(seeds: range) -> tuple[float, float]:
    """The share of cells of a x b inside their intervals, and the largest total of a table."""
    held, totals = [], []
    for seed in seeds:
        rng = np.random.default_rng([seed, 34])
        a = rng.choice(4, PEOPLE, p=[0.4, 0.3, 0.2, 0.1])
        b = np.where(rng.random(PEOPLE) < 0.3, a % 3, rng.choice(3, PEOPLE, p=[0.5, 0.3, 0.2]))
        codes = {"a": a, "b": b, "c": rng.integers(0, 3, PEOPLE)}
        table = pa.table({name: [f"{name}{i}" for i in code] for name, code in codes.items()})
        release = dither.publish(table, epsilon=1.0, schema=PAIR, rows=10, seed=seed, replicates=5)
        if not release.fallbacks:
            continue
        truth = np.bincount(3 * a + b, minlength=12) / PEOPLE
        answer = release.table(["a", "b"])
        assert answer.warnings[0].code == "caution"
        assert "modelled as independent" in answer.warnings[0].message
        for share, row in zip(truth, answer.rows, strict=True):
            assert row.low is not None
            assert row.high is not None
            held.append(row.low <= share <= row.high)
        totals.append(sum(row.estimate for row in answer.rows))
    assert len(totals) > len(seeds) / 2
    return float(np.mean(held)), max(totals)


@pytest.mark.slow
def test_intervals_after_a_fallback_cover_dependence_that_the_model_left_out() -> None:
    share, total = covered(range(12))
    assert share >= 0.95
    assert total == pytest.approx(1.0)


@pytest.mark.slow
def test_the_errors_of_the_model_alone_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Bootstrap, names: Any, groups: Any, rows: Any) -> Any:
        return np.zeros((len(rows), len(rows)))

    monkeypatch.setattr(Bootstrap, "_unlearnt", nothing)
    share, _ = covered(range(12))
    assert share < 0.8


def test_a_margin_of_a_pair_has_the_interval_of_the_single_attribute() -> None:
    """Sums over the other attribute do not depend on how the two are tied."""
    rng = np.random.default_rng(5)
    table = pa.table({a.name: rng.choice(a.values, PEOPLE).tolist() for a in PAIR})
    release = dither.publish(table, epsilon=1.0, schema=PAIR, rows=10, seed=5, replicates=10)
    assert release.replicates is not None
    assert release.replicates.reports is not None
    assert release.replicates.reports.tell(["a", "b"])
    alone = release.query("a == 'a1'")
    beside = release.query("a == 'a1' and b in ['b0', 'b1', 'b2'] or a == 'a1' and b == 'b0'")
    assert beside.estimate == pytest.approx(alone.estimate)
    assert beside.standard_error == pytest.approx(alone.standard_error)


NUMBER = Schema(
    (
        Attribute("x", "numeric", edges=(0.0, 25.0, 50.0, 75.0, 100.0)),
        Attribute("y", "categorical", values=("a", "b")),
    )
)


def at_the_top(kind: str, seed: int) -> dither.Release:
    """A quarter of the people exactly at the upper end of the range."""
    values = np.repeat([0.5, 30.25, 60.5, 100.0], 500)
    if kind == "table":
        table = pa.table({"x": values, "y": ["a", "b"] * 1000})
        return dither.publish(table, epsilon=4.0, schema=NUMBER, rows=10, seed=seed, replicates=5)
    return dither.histogram(
        values, consumers=[8], epsilon=4.0, low=0, high=100, method=kind, seed=seed, attribute="x"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "chp", "ranges"])
def test_people_at_the_upper_end_are_inside_the_interval(kind: str) -> None:
    held = []
    for seed in range(3):
        release = at_the_top(kind, seed)
        for where, truth in (("x >= 100", 0.25), ("x < 100", 0.75), ("not x < 100", 0.25)):
            answer = release.query(where)
            assert answer.low is not None
            assert answer.high is not None
            held.append(answer.low - 0.02 <= truth <= answer.high + 0.02)
        for where, share in (("x <= 100", 1.0), ("x > 100", 0.0)):
            answer = release.query(where)
            assert (answer.estimate, answer.low, answer.high) == pytest.approx((share,) * 3)
    assert all(held)


HEAVY = Schema(
    (
        Attribute("gain", "numeric", edges=(0.0, 1000.0, 5000.0, 99_999.0)),
        Attribute("y", "categorical", values=("a", "b")),
    )
)


def test_a_part_of_a_bin_has_the_whole_bin_as_its_interval() -> None:
    """Nearly everybody has exactly zero, which the reports about bins cannot tell."""
    rng = np.random.default_rng(1)
    gain = np.where(rng.random(4_000) < 0.96, 0, rng.integers(1, 99_999, 4_000))
    table = pa.table({"gain": gain, "y": rng.choice(["a", "b"], 4_000).tolist()})
    release = dither.publish(table, epsilon=4.0, schema=HEAVY, rows=10, seed=1, replicates=5)
    both = "gain == 0 and y == 'a'"
    for where, given, truth in (
        ("gain == 0", None, np.mean(gain == 0)),
        (both, None, 0.48),
        ("gain == 0", "y == 'a'", 0.96),
        ("y == 'a'", "gain == 0", 0.5),
        ("gain > 0", None, np.mean(gain > 0)),
    ):
        answer = release.query(where, given)
        assert answer.low is not None
        assert answer.high is not None
        assert answer.low - 0.03 <= truth <= answer.high + 0.03, (where, given)
        assert answer.high - answer.low > 0.4
        assert "inside-a-bin" in [warning.code for warning in answer.warnings]
    row = release.table(["y"], where="gain == 0").rows[0]
    single = release.query(both)
    assert (row.estimate, row.low, row.high) == pytest.approx(
        (single.estimate, single.low, single.high)
    )
    difference = release.query("gain > 0") - release.query("gain == 0")
    assert difference.low is not None
    assert difference.high is not None
    assert difference.low <= 0.04 - 0.96 <= difference.high


def test_an_edge_of_a_bin_keeps_its_short_interval() -> None:
    release = at_the_top("table", 1)
    answer = release.query("x >= 75")
    assert answer.low is not None
    assert answer.high is not None
    assert answer.high - answer.low < 0.15
    assert not [warning for warning in answer.warnings if warning.code == "inside-a-bin"]
