"""Intervals of a release whose schema has rules: what is determined rests on what determines it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.release import Release
from dither.schema import Attribute, Determines, Schema

TOWNS = ("a", "b", "c", "d")
SCHEMA = Schema(
    (
        Attribute("town", "categorical", TOWNS),
        Attribute("coast", "boolean", (False, True)),
        Attribute("work", "categorical", ("sea", "land", "none")),
        Attribute("old", "boolean", (False, True)),
    ),
    (Determines("town", "coast", (True, True, False, False)),),
)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(5)
    town = rng.choice(4, 20_000, p=[0.4, 0.1, 0.3, 0.2])
    work = np.where(rng.random(20_000) < 0.6, np.where(town < 2, 0, 1), 2)
    old = rng.random(20_000) < np.where(work == 2, 0.6, 0.2)
    names = np.array(TOWNS)[town]
    return pa.table(
        {
            "town": names,
            "coast": town < 2,
            "work": np.array(("sea", "land", "none"))[work],
            "old": old,
        }
    )


@pytest.fixture(scope="module")
def release(table: pa.Table) -> Release:
    return dither.publish(table, epsilon=4.0, schema=SCHEMA, seed=3, replicates=8)


@pytest.mark.parametrize(
    "question",
    [
        "coast",
        "coast and work == 'sea'",
        "coast and town == 'a'",
        "coast and old and work == 'none'",
    ],
)
def test_questions_about_a_determined_attribute_have_intervals_that_hold(
    release: Release, table: pa.Table, question: str
) -> None:
    found = release.query(question)
    frame = table.to_pandas()
    truth = float(frame.eval(question).mean())
    assert found.low is not None
    assert found.high is not None
    assert found.low <= truth <= found.high
    assert 0 < found.high - found.low < 0.1


def test_a_determined_attribute_is_asked_for_through_the_other(release: Release) -> None:
    by_town, by_coast = release.query("town in ['a', 'b']"), release.query("coast")
    assert by_coast.estimate == pytest.approx(by_town.estimate)
    assert by_coast.standard_error == pytest.approx(by_town.standard_error)
    assert release.query("coast and town == 'c'").estimate == pytest.approx(0.0, abs=1e-12)
