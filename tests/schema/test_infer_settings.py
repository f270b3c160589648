"""Tuned constants of the inference: moving one by a third changes the schema of a small table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest

from dither.schema import draft_schema, infer

RNG = np.random.default_rng(1)
SPREAD = RNG.permutation(np.arange(4_000)) + 0.5
DAYS = np.datetime64("2020-01-01") + np.arange(45)


def heaps(count: int, rows: int, spread: int = 4_000) -> np.ndarray:
    """Even numbers, and values that repeat."""
    return np.concatenate([SPREAD[:spread], np.repeat(np.arange(count) * 200.0, rows)])


def whole(low: int, high: int, count: int) -> np.ndarray:
    """Different whole numbers between two ends, in no order."""
    return RNG.permutation(np.linspace(low, high - 1, count).astype(np.int64))


def texts(distinct: int, repeats: int, length: int = 1) -> list[str]:
    return [f"{i:x<{length}}" for i in range(distinct)] * repeats


def crowded(share: float) -> np.ndarray:
    return np.concatenate([RNG.uniform(0, 1, int(share * 1000)), RNG.uniform(1, 16, 1000)])


# Columns of which one changes its attribute when the constant is moved up, another down.
CASES: dict[str, Callable[[], dict[str, object]]] = {
    "max_atoms": lambda: {"x": heaps(20, 400)},
    "atom_share": lambda: {f"x{n}": heaps(1, n) for n in (70, 100)},
    "atom_rows": lambda: {f"x{n}": heaps(1, n, 300) for n in (17, 23)},
    "atom_ratio": lambda: {
        f"x{n}": np.concatenate([np.arange(900.0) % 30, np.full(n - 30, 7.0)]) for n in (105, 135)
    },
    "crowded": lambda: {f"x{share}": crowded(share) for share in (0.7, 1.3)},
    "tail": lambda: {"x": RNG.exponential(1.0, 3_000) ** 3},
    "max_decimals": lambda: {f"x{n}": np.round(SPREAD / 7, n) for n in (3, 5)},
    "max_periods": lambda: {f"x{n}": DAYS[:n] for n in (35, 45)},
    "max_codes": lambda: {f"x{n}": np.arange(200) % n * 3 for n in (12, 18)},
    "kept_categories": lambda: {"x": texts(1_200, 12)},
    "rows_per_category": lambda: {f"x{n}": texts(1_200, n) for n in (8, 12)},
    "key_rows": lambda: {f"x{n}": texts(n, 1) for n in (50, 70)},
    "key_exponent": lambda: {f"x{n}": whole(1, 10_000, n) for n in (400, 480)},
    "key_digits": lambda: {
        f"x{n}": whole(2 * 10 ** (n - 1), 4 * 10 ** (n - 1), 100) for n in (6, 8)
    },
    "max_label": lambda: {f"x{n}": texts(2, 9, n) for n in (800, 1_200)},
}


def schemas(columns: dict[str, object]) -> object:
    """The schema of each column by itself, with the reason if it is not asked."""
    kept = pa.array(["a", "b"])
    found = []
    for name, values in columns.items():
        column = pa.array(values)
        other = kept.take(pa.array(np.arange(len(column)) % 2))
        found.append(draft_schema(pa.table({name: column, "other": other})).file_json())
    return found


@pytest.mark.parametrize("factor", [4 / 3, 2 / 3], ids=["up", "down"])
@pytest.mark.parametrize("name", CASES)
def test_a_moved_constant_is_noticed(
    name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = CASES[name]()
    before, settings = schemas(columns), infer.SETTINGS
    value = getattr(settings, name)
    moved = replace(settings, **{name: type(value)(value * factor)})
    monkeypatch.setattr(infer, "SETTINGS", moved)
    assert schemas(columns) != before


def test_every_constant_has_a_case() -> None:
    assert {field.name for field in fields(infer.SETTINGS)} == set(CASES)
