"""Distances of marginals against slow, obvious references and known values."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from benchmarks.model_error import evaluate_model
from dither.errors import ParameterError
from dither.evaluation import attribute_sets, evaluate_codes
from dither.fit import Independent
from dither.schema import Attribute, Schema


def make_schema(*cardinalities: int) -> Schema:
    return Schema(
        tuple(
            Attribute(f"a{i}", "ordinal", values=tuple(range(k)))
            for i, k in enumerate(cardinalities)
        )
    )


def draw(schema: Schema, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, k, rows) for k in schema.cardinalities], axis=1)


def slow(
    real: np.ndarray, synthetic: np.ndarray, schema: Schema, positions: tuple[int, ...]
) -> tuple[float, float, float]:
    p = Counter(tuple(row) for row in real[:, positions].tolist())
    q = Counter(tuple(row) for row in synthetic[:, positions].tolist())
    floor = 0.5 / len(synthetic)
    raised = sum(floor for cell in p if q[cell] == 0)
    tvd = kl = square = 0.0
    for cell in itertools.product(*(range(schema.cardinalities[i]) for i in positions)):
        a, b = p[cell] / len(real), q[cell] / len(synthetic)
        tvd += abs(a - b) / 2
        square += (a - b) ** 2
        if a:
            kl += a * math.log(a / (max(b, floor) / (1 + raised)))
    return tvd, kl, square / math.prod(schema.cardinalities[i] for i in positions)


@pytest.mark.parametrize("dense_cells", [4_000_000, 0])
def test_matches_the_slow_reference(dense_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither.evaluation.metrics.DENSE_CELLS", dense_cells)
    schema = make_schema(2, 5, 3, 4)
    real, synthetic = draw(schema, 60, 1), draw(schema, 45, 2)
    found = evaluate_codes(real, synthetic, schema, ways=(1, 2, 3, 4))
    for k, summary in found.items():
        sets = list(itertools.combinations(range(4), k))
        reference = np.array([slow(real, synthetic, schema, s) for s in sets])
        assert (summary.tvd, summary.kl, summary.mse) == pytest.approx(
            tuple(reference.mean(axis=0)), rel=1e-12
        )
        assert summary.tvd_spread == pytest.approx(reference[:, 0].std())
        worst = int(reference[:, 0].argmax())
        assert summary.worst == tuple(schema.names[i] for i in sets[worst])
        assert summary.worst_tvd == pytest.approx(reference[worst, 0])
        assert summary.sets == summary.possible_sets == len(sets)


def test_equal_tables_are_at_distance_zero_and_disjoint_ones_at_one() -> None:
    schema = make_schema(3, 4)
    codes = draw(schema, 50, 3)
    same = evaluate_codes(codes, codes[::-1], schema, ways=(1, 2))
    assert all((s.tvd, s.kl, s.mse) == (0.0, 0.0, 0.0) for s in same.values())
    apart = evaluate_codes(np.zeros((7, 2), int), np.ones((5, 2), int), schema, ways=(1, 2))
    assert all(s.tvd == 1.0 and s.kl > 0 for s in apart.values())
    assert apart[1].mse == pytest.approx((2 / 3 + 2 / 4) / 2)


def test_wide_domains_are_counted_sparsely_even_beyond_64_bits() -> None:
    schema = make_schema(*[1000] * 12)  # 10^36 cells
    real, synthetic = draw(schema, 30, 4), draw(schema, 30, 5)
    synthetic[:10] = real[:10]
    found = evaluate_codes(real, synthetic, schema, ways=(12,))[12]
    assert found.tvd == pytest.approx(20 / 30)
    assert found.mse == pytest.approx(40 * (1 / 30) ** 2 / 1e36)


def test_sampled_sets_are_distinct_seeded_and_uniform() -> None:
    first = attribute_sets(50, 3, 100, np.random.default_rng(1))
    assert first == attribute_sets(50, 3, 100, np.random.default_rng(1))
    assert first != attribute_sets(50, 3, 100, np.random.default_rng(2))
    assert len(set(first)) == 100
    assert all(
        len(s) == 3 and list(s) == sorted(set(s)) and s[0] >= 0 and s[-1] < 50 for s in first
    )
    assert attribute_sets(5, 2, 10, np.random.default_rng(1)) == list(
        itertools.combinations(range(5), 2)
    )
    # Each of 10 pairs is in a sample of 4 with probability 0.4: 2,000 samples give 800 +- 22.
    rng = np.random.default_rng(3)
    seen = Counter(s for _ in range(2000) for s in attribute_sets(5, 2, 4, rng))
    assert len(seen) == 10
    assert max(abs(count - 800) for count in seen.values()) < 4.5 * 22


def test_only_max_sets_are_compared() -> None:
    schema = make_schema(*[2] * 10)
    found = evaluate_codes(draw(schema, 20, 1), draw(schema, 20, 2), schema, ways=(3,), max_sets=7)[
        3
    ]
    assert (found.sets, found.possible_sets) == (7, 120)


def test_a_model_is_compared_without_sampling_noise() -> None:
    schema = make_schema(2, 3)
    real = np.array([[0, 0], [0, 1], [1, 2], [1, 2]])
    model = Independent(schema, (np.array([0.5, 0.5]), np.array([0.25, 0.25, 0.5])))
    found = evaluate_model(model, real, ways=(1, 2))
    assert found[1].tvd == 0.0
    assert found[2].tvd == pytest.approx(0.5)


@pytest.mark.parametrize("ways", [(0,), (3,), (1.0,), (True,), ()])
def test_wrong_ways_are_refused(ways: tuple[int, ...]) -> None:
    schema = make_schema(2, 2)
    with pytest.raises(ParameterError, match="ways"):
        evaluate_codes(draw(schema, 5, 1), draw(schema, 5, 1), schema, ways=ways)


@pytest.mark.parametrize(
    "codes", [np.zeros((0, 2), int), np.zeros((3, 1), int), np.full((3, 2), 2), np.full((3, 2), -1)]
)
def test_codes_that_do_not_fit_the_schema_are_refused(codes: np.ndarray) -> None:
    schema = make_schema(2, 2)
    with pytest.raises(ParameterError, match="synthetic codes"):
        evaluate_codes(np.zeros((3, 2), int), codes, schema, ways=(1,))


def test_wrong_max_sets_is_refused() -> None:
    schema = make_schema(2, 2)
    with pytest.raises(ParameterError, match="max_sets"):
        evaluate_codes(draw(schema, 5, 1), draw(schema, 5, 1), schema, max_sets=0)
