"""Releases of values that no schema lists: questions, folder, report, and awkward texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dither
from dither._discover import found_values
from dither.errors import ParameterError, QuestionError, TableError

DRINKS = ["tea"] * 6_000 + ["coffee"] * 3_000 + [""] * 1_000
TRUTH = {"tea": 0.6, "coffee": 0.3}


@pytest.fixture(scope="module")
def release() -> dither.Release:
    return dither.discover(DRINKS, epsilon=4.0, max_bytes=8, seed=1, attribute="drink")


def test_shares_have_intervals_that_hold_the_truth(release: dither.Release) -> None:
    found = found_values(release)
    assert [entry["value"] for entry in found["values"]] == ["tea", "coffee"]
    for entry in found["values"]:
        assert entry["low"] <= TRUTH[entry["value"]] <= entry["high"]
    assert found["missing"]["low"] <= 0.1 <= found["missing"]["high"]
    assert found["other"]["low"] == pytest.approx(0, abs=0.01)


def test_all_questions_agree(release: dither.Release) -> None:
    share = release.query("drink == 'tea'").estimate
    assert share == pytest.approx(release.table("drink").rows[0].estimate)
    assert share == pytest.approx(release.marginal("drink").frequencies[0])
    assert release.query("drink in ['tea', 'coffee']").estimate > share
    assert release.query("drink == None").estimate == pytest.approx(0.1, abs=0.03)


def test_the_envelope_counts_all_rounds(release: dither.Release) -> None:
    assert release.method == "discover"
    assert release.participants == len(DRINKS)
    assert release.epsilon_achieved <= 4.0
    assert release.rounds == len(release.asked) > 2
    assert [entry.round for entry in release.asked] == list(range(release.rounds))
    assert sum(entry.population for entry in release.asked) == pytest.approx(1)
    assert release.notes["false_discovery_rate"] == 0.05
    assert 0 < release.notes["findable_share"] < 0.2


def test_without_a_seed_readers_are_protected_in_every_round() -> None:
    release = dither.discover(DRINKS, epsilon=2.0, max_bytes=8)
    assert release.central is not None
    assert release.central.known.people < 3_000
    assert release.central.known.epsilon <= 2.0


def test_a_saved_release_answers_alike(release: dither.Release, tmp_path: Path) -> None:
    again = dither.load_release(release.save(tmp_path / "out"))
    assert again.table("drink").rows == release.table("drink").rows
    assert found_values(again) == found_values(release)
    assert again.guarantee == release.guarantee
    assert "coffee" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_other_releases_have_no_values_found() -> None:
    release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex"], rows=10)
    with pytest.raises(QuestionError, match="not of discover"):
        found_values(release)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([f"{i:08d}" for i in range(4_000)], []),
        (["same"] * 4_000, ["same"]),
        (["", None] * 2_000, []),
        (["much longer than 8 bytes"] * 4_000, []),
        (["👍🏽"] * 4_000, ["👍🏽"]),
        (["שלום"] * 4_000, ["שלום"]),
        (["a\tb", "a\u202eb"] * 4_000, ["a\tb", "a\u202eb"]),
        (["other", "(other)"] * 4_000, ["(other)", "other"]),
        (["None", "nan"] * 4_000, ["None", "nan"]),
        (["colour", "color"] * 4_000, ["color", "colour"]),
        (["a", "b", "a", None, "c"], []),
    ],
    ids=[
        *("all-different", "one-for-all", "empty", "long", "emoji", "right-to-left", "control"),
        *("named-other", "words-for-missing", "nearly-the-same", "five-people"),
    ],
)
def test_awkward_texts(texts: list[str | None], found: list[str], tmp_path: Path) -> None:
    release = dither.discover(texts, epsilon=4.0, max_bytes=8, seed=2, replicates=0)
    assert sorted(release.schema["value"].values[:-1]) == found
    codes = [warning.code for warning in release.warnings]
    assert ("nothing-found" in codes) == (not found)
    again = dither.load_release(release.save(tmp_path / "out"))
    assert again.schema["value"].values == release.schema["value"].values


def test_a_value_called_missing_is_not_a_missing_answer() -> None:
    texts = ["(missing)"] * 6_000 + [None] * 2_000
    release = dither.discover(texts, epsilon=4.0, max_bytes=10, seed=2, replicates=0)
    assert release.schema["value"].values[0] == "(missing)"
    shares = release.marginal("value").frequencies
    assert shares[0] == pytest.approx(0.75, abs=0.05)
    assert shares[-1] == pytest.approx(0.25, abs=0.05)
    assert release.query({"value": None}).estimate == pytest.approx(0.25, abs=0.05)


def test_control_characters_are_escaped_where_they_are_shown() -> None:
    release = dither.discover(["a\u202eb\u200f"] * 4_000, epsilon=4.0, seed=2, replicates=0)
    assert release.schema["value"].values[0] == "a\u202eb\u200f"
    assert not {"\u202e", "\u200f"} & set(release.report())


def test_a_population_is_drawn_from_the_rows() -> None:
    release = dither.discover(["tea", "milk"], epsilon=4.0, population=8_000, seed=1)
    assert release.participants == 8_000
    assert set(release.schema["value"].values[:-1]) == {"tea", "milk"}


def test_a_seed_repeats_the_release(release: dither.Release) -> None:
    again = dither.discover(DRINKS, epsilon=4.0, max_bytes=8, seed=1, attribute="drink")
    assert again.table("drink").rows == release.table("drink").rows


@pytest.mark.parametrize("kind", ["pandas", "pandas-nullable", "polars", "pyarrow", "numpy"])
def test_columns_of_all_libraries_are_read_alike(kind: str) -> None:
    texts = ["tea", "tea", "milk", None] * 2_000
    made = {
        "pandas": lambda: pd.Series(texts, name="drink"),
        "pandas-nullable": lambda: pd.Series(texts, name="drink", dtype="string"),
        "polars": lambda: pl.Series("drink", texts),
        "pyarrow": lambda: pa.chunked_array([texts]),
        "numpy": lambda: np.array(texts, dtype=object),
    }[kind]()
    release = dither.discover(made, epsilon=4.0, max_bytes=4, seed=1, replicates=0)
    (name,) = release.schema.names
    assert release.schema[name].values[:-1] == ("tea", "milk")
    assert release.marginal(name).frequencies[-1] == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("values", [[], "tea", [1, 2], [["tea"], ["milk"]]])
def test_values_that_are_no_texts_are_refused(values: object) -> None:
    with pytest.raises(TableError):
        dither.discover(values, epsilon=1.0)


def test_options_out_of_range_are_named() -> None:
    with pytest.raises(ParameterError, match="population"):
        dither.discover(["tea"], epsilon=1.0, population=0)


@pytest.mark.slow
def test_intervals_hold_the_shares_of_the_law() -> None:
    # Against the law that people are drawn from, as for any release of a table.
    law = np.arange(1, 301) ** -1.3
    law /= law.sum()
    names = [f"{i * 7919 % 100_000:05d}" for i in range(300)]
    held = values = too_narrow = 0
    for seed in range(20):
        people = np.random.default_rng([seed, 5]).choice(300, 30_000, p=law)
        texts = [names[i] for i in people]
        release = dither.discover(texts, epsilon=4.0, max_bytes=5, alphabet="0123456789", seed=seed)
        for row in release.table("value").rows[:-2]:
            share = law[names.index(str(row.values[0]))] if row.values[0] in names else 0.0
            assert row.low is not None
            assert row.high is not None
            held += row.low <= share <= row.high
            too_narrow += abs(row.estimate - share) <= (row.high - row.low) / 4
            values += 1
    # 95 % of 200 values or more, with four standard deviations.
    assert values > 150
    assert 0.89 < held / values < 0.995
    # Intervals of half the width are noticed.
    assert too_narrow / values < 0.89
