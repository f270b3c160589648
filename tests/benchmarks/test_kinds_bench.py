"""The kinds of generated tables, and the benchmark on them at its smallest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import kinds
from dither.evaluation import marginal
from dither.fit import Independent
from dither.lab.harness import execute


@pytest.mark.parametrize("kind", [*kinds.KINDS, *kinds.HELD_OUT])
def test_equal_seeds_give_equal_tables_within_their_schema(kind: str) -> None:
    schema, codes = kinds.table(kind, 300, 5)
    again = kinds.table(kind, 300, 5)[1]
    other = kinds.table(kind, 300, 6)[1]
    assert codes.shape == (300, len(schema))
    assert codes.min() >= 0
    assert (codes.max(axis=0) < np.array(schema.cardinalities)).all()
    assert np.array_equal(codes, again)
    assert not np.array_equal(codes, other)


def test_errors_are_distances_from_the_records() -> None:
    schema, codes = kinds.table("copies", 4000, 1)
    one = [marginal(codes, schema.cardinalities, (i,)) for i in range(len(schema))]
    product = Independent(schema, one)
    assert kinds.errors(product, schema, codes, 1) == pytest.approx(0.0, abs=1e-12)
    # A pair that is a copy is far from the product, and there are four such pairs.
    assert kinds.errors(product, schema, codes, 2) > 4 * 0.5 / 28


def test_each_kind_and_size_has_two_epsilons() -> None:
    points = list(kinds.bench("full").studies[0].points())
    assert len(points) == 2 * len(kinds.KINDS) * len(kinds.PEOPLE)
    first = {p["epsilon"] for p in points if (p["kind"], p["participants"]) == ("strong", 20_000)}
    then = {p["epsilon"] for p in points if (p["kind"], p["participants"]) == ("strong", 100_000)}
    assert (first, then) == ({1.0, 4.0}, {2.0, 8.0})


@pytest.mark.slow
def test_the_smallest_size(tmp_path: Path) -> None:
    outcome = execute(kinds.bench("smoke"), tmp_path)
    assert not outcome.notes
    assert {row["study"] for row in outcome.summary} == {
        "ratios",
        "held_out",
        "ranges",
        "copies",
        "growth",
    }
    for kind, epsilon in (("star", 8.0), ("xor", 4.0)):
        found = {
            name: outcome.mean("ratios", name, kind=kind, epsilon=epsilon)
            for name in ("mixture_tvd_2", "best_other_tvd_2", "independent_tvd_2", "ratio")
        }
        assert found["ratio"] == pytest.approx(found["mixture_tvd_2"] / found["best_other_tvd_2"])
        assert found["best_other_tvd_2"] <= found["independent_tvd_2"]
    # A star at epsilon 8 is learnt; triples of an exclusive or have no dependent pair.
    star = outcome.mean("ratios", "mixture_tvd_2", kind="star", epsilon=8.0)
    assert star < 0.5 * outcome.mean("ratios", "independent_tvd_2", kind="star", epsilon=8.0)
    assert outcome.mean("copies", "true_pairs") > 0.9
    assert 0 < outcome.mean("ranges", "mixture_range_error", shape=kinds.NORMAL) < 0.2
    assert outcome.mean("held_out", "ratio", kind="Ising", epsilon=8.0) > 0
    assert outcome.mean("growth", "fit_cpu_s", attributes=12) > 0
