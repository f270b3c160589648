"""LoPub's table 7 to the digit, and EM as printed against its definition."""

from __future__ import annotations

import random

import numpy as np
import pytest

import dither
from benchmarks.lopub_printed import PHI, PRINTED, table_as_printed, tenth
from benchmarks.tables import Table
from dither.schema import Attribute, Schema


@pytest.fixture(scope="module")
def adult() -> Table:
    """Adult as the authors coded it: every number in sixteen bins of equal width between its least and its largest value."""
    bundled = dither.load_dataset("adult")
    columns, attributes = [], []
    for attribute in bundled.schema:
        values = bundled.table[attribute.name]
        if attribute.kind == "numeric":
            numbers = values.to_numpy().astype(float)
            low, high = numbers.min(), numbers.max()
            codes, k = np.minimum((numbers - low) / (high - low) * 16, 15).astype(np.int32), 16
        else:
            labels, codes = np.unique(np.array(values.to_pylist(), dtype=str), return_inverse=True)
            k = len(labels)
        columns.append(codes)
        attributes.append(Attribute(attribute.name, "categorical", tuple(map(str, range(k)))))
    rows = np.asfortranarray(np.column_stack(columns).astype(np.int32))
    return Table("Adult", Schema(tuple(attributes)), rows, rows)


@pytest.mark.parametrize("column", range(5))
def test_table_7_is_reproduced_to_the_digit(adult: Table, column: int) -> None:
    assert table_as_printed(adult, PHI["Adult"][column]) == PRINTED["Adult"][column]


def test_another_sample_or_the_whole_table_gives_other_figures(adult: Table) -> None:
    order = np.random.default_rng(0).permutation(len(adult.codes))
    other = Table("Adult", adult.schema, adult.codes[order], adult.codes)
    found = [table_as_printed(other, phi) for phi in PHI["Adult"]]
    assert found != list(PRINTED["Adult"])


def test_a_tenth_is_drawn_without_repeats_and_in_the_generators_order() -> None:
    chosen = tenth(1_000)
    assert len(chosen) == len(set(chosen)) == 100
    generator = random.Random(10)  # noqa: S311  as above
    assert chosen[0] == int(generator.random() * 1_000)
