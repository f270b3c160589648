"""A number has the same cells wherever it is asked: in a table with other attributes, by itself, on a device and in a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.client import code_of
from dither.errors import SchemaError
from dither.methods import start
from dither.methods.histogram import Chp, Consumer, Partition, gather, read_consumers, union
from dither.schema import Attribute, Schema, encode, numeric

LOW, HIGH, N = 0.0, 250_000.0, 6000
CONSUMERS = read_consumers(
    [3, 5, {"name": "tax", "edges": [0, 30_000, 80_000, 250_000]}], LOW, HIGH
)
PAY = Chp.schema_of("pay", CONSUMERS, LOW, HIGH)["pay"]
RNG = np.random.default_rng(3)
VALUES = np.round(RNG.lognormal(10.8, 0.6, N), 2)
SEX = np.where(RNG.random(N) < 0.4 + 0.4 * (VALUES > 50_000), "m", "f")


def test_a_device_a_table_and_a_histogram_put_a_number_into_the_same_cell() -> None:
    clipped = replace(PAY, clip=True)
    edge_cases = np.array(
        [
            *PAY.edges,
            *np.nextafter(PAY.edges, LOW),
            *np.nextafter(PAY.edges, HIGH),
            -5.0,
            1e9,
            *VALUES[:500],
        ]
    )
    table = encode(pa.table({"pay": edge_cases}), Schema((clipped,))).codes[:, 0]
    assert [code_of(clipped, value) for value in edge_cases.tolist()] == table.tolist()
    inside = (edge_cases >= LOW) & (edge_cases <= HIGH)
    group = gather(edge_cases[inside], Partition(PAY.edges), reports=True)
    assert group.codes is not None
    assert group.codes.tolist() == table[inside].tolist()
    assert code_of(PAY, 1e9) is None, (
        "without the policy a number beyond the range is none of the domain"
    )
    assert code_of(clipped, 1e9) == clipped.cardinality - 1
    assert code_of(clipped, float("nan")) is None
    assert code_of(clipped, "5") is None


def test_a_joint_release_gives_every_consumer_its_bins_within_their_errors() -> None:
    """Atoms and bins of one attribute of several: sums of the model's cells are the consumers' bins."""
    schema = Schema((replace(PAY, clip=True), Attribute("sex", "categorical", ("f", "m"))))
    release = dither.publish(
        pa.table({"pay": VALUES, "sex": SEX}), epsilon=4.0, schema=schema, seed=5, rows=10
    )
    found = np.asarray(release.model.marginal(["pay"]))
    errors = next(m for m in release.measured if m.attributes == ("pay",)).standard_errors
    numbers = np.clip(VALUES, LOW, HIGH)
    for consumer in CONSUMERS:
        spans = Partition(PAY.edges).spans(consumer)
        truth = np.histogram(numbers, consumer.edges)[0] / N
        for (start_, stop), share in zip(spans, truth, strict=True):
            reach = 5 * float(np.sqrt((errors[start_:stop] ** 2).sum())) + 0.01
            assert abs(found[start_:stop].sum() - share) < reach
    assert np.abs(found[::-1] - np.histogram(numbers, PAY.edges)[0] / N).max() > 0.1, (
        "cells in another order would be seen"
    )
    answer = release.query("30000 <= pay < 80000")
    assert abs(answer.estimate - np.mean((VALUES >= 30_000) & (VALUES < 80_000))) < 0.06


def test_atoms_are_cells_of_their_own_in_joint_methods_and_refused_where_only_bins_are_asked() -> (
    None
):
    with_atoms = numeric("pay", low=0, high=100, bins=4, atoms=(0, 50), clip=True)
    codes = (
        encode(pa.table({"pay": [0.0, 0.5, 50.0, 50.5, 1e6]}), Schema((with_atoms,)))
        .codes[:, 0]
        .tolist()
    )
    assert codes == [code_of(with_atoms, value) for value in (0, 0.5, 50, 50.5, 1e6)]
    assert len(set(codes)) == 5
    assert start("independent", Schema((with_atoms,)), 1.0, 100).plan() is not None
    with pytest.raises(SchemaError, match="numeric attribute without"):
        start("chp", Schema((with_atoms,)), 1.0, 100, {"consumers": "2"})
    assert union([Consumer("all", (0.0, 100.0))], 0, 100).cells == 1
