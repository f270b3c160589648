"""Rules in schema files, rows that break them, and synthetic numbers that keep them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dither
from dither.errors import SchemaError, TableError
from dither.schema import (
    Attribute,
    Column,
    Determines,
    Impossible,
    Layout,
    Order,
    Schema,
    Sum,
    broken,
    decode,
    encode,
    numeric,
    plain_layout,
    schema_from_json,
)

RNG = np.random.default_rng
ATTRIBUTES = (
    Attribute("degree", "categorical", ("none", "school", "college")),
    Attribute("years", "numeric", edges=(0.0, 8.0, 20.0), unit=1.0),
    Attribute("start", "date", edges=(19000.0, 19100.0, 19200.0)),
    Attribute("end", "date", edges=(19000.0, 19050.0, 19200.0), missing=True),
    Attribute("rent", "numeric", edges=(0.0, 10.0, 25.0, 50.0), atoms=(0.0,), unit=0.01),
    Attribute("food", "numeric", edges=(0.0, 10.0, 50.0), unit=0.01),
    Attribute("spent", "numeric", edges=(0.0, 15.0, 40.0, 100.0), unit=0.01),
)
RULES = [
    {"determines": "years", "by": "degree", "map": {"none": 5, "school": 12, "college": 16}},
    {"order": ["start", "end"]},
    {"sum": ["rent", "food"], "is": "spent"},
    {"impossible": {"degree": ["none"], "rent": [30.0]}},
]


def schema(*rules: object) -> Schema:
    return schema_from_json(
        {
            "format": "dither-schema-1",
            "attributes": [a.to_json() for a in ATTRIBUTES],
            "rules": list(rules),
        }
    )


def test_rules_are_read_and_written() -> None:
    made = schema(*RULES)
    assert made.rules == (
        Determines("degree", "years", (5, 12, 16)),
        Order("start", "end"),
        Sum(("rent", "food"), "spent"),
        Impossible((("degree", ("none",)), ("rent", (30.0,)))),
    )
    again = schema_from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert again.fingerprint == made.fingerprint
    assert Schema(ATTRIBUTES).fingerprint != made.fingerprint
    assert "rules" not in Schema(ATTRIBUTES).to_json(), (
        "a schema without rules has the fingerprint it always had"
    )


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ({}, "is not one of"),
        ({"order": ["start"]}, "two attributes"),
        ({"order": ["start", "start"]}, "different"),
        ({"order": ["start", "moon"]}, "'moon'"),
        ({"order": ["degree", "years"]}, "must both be numbers"),
        ({"order": ["start", "rent"]}, "must both be numbers"),
        ({"sum": ["rent", "degree"], "is": "spent"}, "cannot be added"),
        ({"sum": ["rent"], "is": "rent"}, "different"),
        ({"impossible": {"degree": ["phd"], "rent": [0]}}, "'phd'"),
        ({"impossible": {"degree": [], "rent": [0]}}, "not empty"),
        ({"impossible": {"degree": ["none"]}}, "two to"),
        (
            {"determines": "years", "by": "degree", "map": {"none": 5, "school": 12}},
            "lacks 'college'",
        ),
        (
            {
                "determines": "years",
                "by": "degree",
                "map": {"none": 5, "school": 12, "college": 99},
            },
            "99",
        ),
        ({"determines": "years", "by": "degree", "outcomes": [1, 2]}, "3 outcomes"),
        ({"determines": "degree", "by": "end"}, "can be missing"),
        ("order", "is not one of"),
    ],
)
def test_wrong_rules_are_named(rule: object, part: str) -> None:
    with pytest.raises(SchemaError) as caught:
        schema({"order": ["start", "end"]}, rule)
    assert "rule 2" in str(caught.value)
    assert part in str(caught.value)


def test_rules_that_contradict_each_other_are_errors() -> None:
    with pytest.raises(SchemaError, match="two rules"):
        schema({"determines": "years", "by": "degree"}, {"determines": "years", "by": "rent"})
    with pytest.raises(SchemaError, match="by itself"):
        schema({"determines": "years", "by": "degree"}, {"determines": "degree", "by": "years"})


def rows() -> pd.DataFrame:
    days = np.datetime64("1970-01-01") + np.array([19000, 19120, 19199])
    return pd.DataFrame(
        {
            "degree": ["none", "school", "college"],
            "years": [5, 12, 16],
            "start": days.astype("datetime64[s]"),
            "end": np.array([days[1], np.datetime64("NaT"), days[2]], dtype="datetime64[s]"),
            "rent": [0.0, 12.5, 30.0],
            "food": [3.25, 10.0, 50.0],
            "spent": [3.25, 22.5, 80.0],
        }
    )


def test_a_row_that_breaks_a_rule_is_named() -> None:
    made = schema(*RULES)
    encode(rows(), made)
    for column, value, part in [
        ("years", [5, 3, 16], "years"),
        ("rent", [30.0, 12.5, 30.0], "rent"),
        ("spent", [3.25, 0.5, 80.0], "spent"),
        ("start", rows()["start"].to_numpy()[[2, 1, 2]], None),
    ]:
        wrong = rows().assign(**{column: value})
        if column == "start":
            wrong["end"] = rows()["start"].to_numpy()[[0, 0, 0]]
        with pytest.raises(TableError, match=r"break a rule.*row") as caught:
            encode(wrong, made)
        assert part is None or part in str(caught.value)


@pytest.mark.parametrize("seed", range(6))
def test_no_synthetic_row_breaks_a_rule(seed: int) -> None:
    """Codes that the rules allow become values that keep them, in their cells."""
    made = schema(*RULES)
    rng = RNG(seed)
    codes = np.stack([rng.integers(0, a.cardinality, 4000) for a in made], axis=1).astype(np.int32)
    codes[:, 1] = np.array([0, 1, 1])[codes[:, 0]]
    from dither.schema import broken

    codes = codes[~broken(made, codes)]
    assert len(codes) > 500
    table = decode(codes, made, plain_layout(made), rng).to_pandas()
    assert (table["years"] == table["degree"].map({"none": 5, "school": 12, "college": 16})).all()
    both = table["end"].notna()
    assert (table["start"][both] <= table["end"][both]).all()
    np.testing.assert_allclose(table["rent"] + table["food"], table["spent"], atol=1e-9)
    np.testing.assert_allclose(table["spent"], table["spent"].round(2), atol=1e-9)
    found = encode(table, made).codes
    assert (found == codes).all(axis=1).mean() > 0.99, (
        "rows stay in their cells, but for the few that had to be replaced"
    )


def test_without_the_rule_rows_do_break_it() -> None:
    plain = Schema(ATTRIBUTES)
    codes = np.stack([RNG(0).integers(0, a.cardinality, 500) for a in plain], axis=1)
    table = decode(codes, plain, plain_layout(plain), RNG(1)).to_pandas()
    assert (table["start"] > table["end"]).any()


def test_chains_of_strict_orders() -> None:
    parts = tuple(numeric(name, low=0, high=8, bins=3, unit=1.0) for name in "abc")
    chain = Schema(parts, (Order("a", "b", True), Order("b", "c", True)))
    codes = np.zeros((300, 3), np.int32)  # all in the first bin, [0, 2.67): only 0 < 1 < 2 fits
    table = decode(codes, chain, plain_layout(chain), RNG(0)).to_pandas()
    assert (table["a"] < table["b"]).all()
    assert (table["b"] < table["c"]).all()


def test_the_method_uses_the_rules_end_to_end(tmp_path) -> None:
    rng = RNG(0)
    n = 6000
    degree = rng.choice(["none", "school", "college"], n, p=[0.2, 0.5, 0.3])
    frame = pd.DataFrame({"degree": degree, "sex": rng.choice(["f", "m"], n)})
    frame["years"] = frame["degree"].map({"none": 5, "school": 12, "college": 16})
    frame["child"] = np.where(frame["sex"] == "f", rng.choice(["yes", "no"], n), "no")
    attributes = (
        ATTRIBUTES[0],
        Attribute("sex", "categorical", ("f", "m")),
        Attribute("years", "ordinal", (5, 12, 16)),
        Attribute("child", "categorical", ("yes", "no")),
    )
    known = Schema(
        attributes,
        (Determines("degree", "years"), Impossible((("sex", ("m",)), ("child", ("yes",))))),
    )
    release = dither.publish(frame, epsilon=3.0, schema=known, seed=2)
    made = release.synthetic
    assert (made["years"] == made["degree"].map({"none": 5, "school": 12, "college": 16})).all(), (
        "the map was learnt"
    )
    assert not ((made["sex"] == "m") & (made["child"] == "yes")).any()
    assert release.notes["not_asked"] == ["years"]
    assert release.model.marginal(["sex", "child"])[1, 0] == 0
    asked = {name for plan in release.asked for name in plan.sizes}
    assert asked
    loaded = dither.load_release(release.save(tmp_path / "out"))
    np.testing.assert_array_equal(
        loaded.model.marginal(["years", "sex"]), release.model.marginal(["years", "sex"])
    )
    (interval,) = dither.bootstrap(loaded, [["years", "child"]], replicates=5)
    assert interval.frequencies.shape == (3, 2)
    assert np.isfinite(interval.standard_errors).all()
    held = dither.publish(frame, epsilon=3.0, schema=known, seed=2, holdout=0.1)
    assert held.model.marginal(["sex", "child"])[1, 0] == 0


def _pair(held: pa.DataType, rules: list[object], names: str = "ab", **more: object) -> pa.Table:
    """Many synthetic rows of numbers in bins without a unit, in columns of a type, for all codes that the rules allow."""
    tops = dict(zip("abc", (50, 50, 100), strict=True))
    made = schema_from_json(
        {
            "attributes": [
                {"name": n, "kind": "numeric", "min": 0, "max": tops[n], "bins": 8, **more}
                for n in names
            ],
            "rules": rules,
        }
    )
    codes = RNG(0).integers(0, 8, (40_000, len(names))).astype(np.int32)
    codes = np.asfortranarray(codes[~broken(made, codes)][:3000])
    layout = Layout("pyarrow", tuple(Column(n, held, held) for n in names))
    table = decode(codes, made, layout, RNG(1))
    encode(table, made)  # every number lies in the domain, too
    return table


def _column(table: pa.Table, name: str) -> np.ndarray:
    return np.array([float(v) for v in table.column(name).to_pylist()])


@pytest.mark.parametrize(
    "held", [pa.int32(), pa.int64(), pa.decimal128(6, 1), pa.decimal128(6, 0), pa.float64()]
)
def test_sums_hold_in_columns_that_count_in_steps_of_their_own(held: pa.DataType) -> None:
    table = _pair(held, [{"sum": ["a", "b"], "is": "c"}], "abc")
    off = _column(table, "a") + _column(table, "b") - _column(table, "c")
    assert np.abs(off).max() < 1e-9 * 101


@pytest.mark.parametrize("held", [pa.int32(), pa.decimal128(6, 0), pa.float32(), pa.float16()])
@pytest.mark.parametrize("unit", [None, 0.5])
def test_strict_orders_hold_in_columns_that_count_in_steps_of_their_own(
    held: pa.DataType, unit: float | None
) -> None:
    table = _pair(
        held, [{"order": ["a", "b"], "strict": True}], **({} if unit is None else {"unit": unit})
    )
    assert (_column(table, "a") < _column(table, "b")).all()


def test_instants_in_a_column_of_days_keep_a_strict_order() -> None:
    made = schema_from_json(
        {
            "attributes": [
                {
                    "name": n,
                    "kind": "datetime",
                    "min": "2020-01-01",
                    "max": "2020-03-31",
                    "by": "month",
                }
                for n in "ab"
            ],
            "rules": [{"order": ["a", "b"], "strict": True}],
        }
    )
    codes = np.asfortranarray(np.zeros((2000, 2), dtype=np.int32))
    layout = Layout("pyarrow", tuple(Column(n, pa.date32(), pa.date32()) for n in "ab"))
    table = decode(codes, made, layout, RNG(0))
    assert all(a < b for a, b in zip(*(table.column(n).to_pylist() for n in "ab"), strict=True))


def test_a_number_that_is_learnt_to_be_determined_is_one_number() -> None:
    made = schema({"determines": "years", "by": "degree"})
    codes = np.zeros((600, 7), dtype=np.int32, order="F")
    codes[:, 0] = np.arange(600) % 3
    codes[:, 1] = np.array([0, 1, 1])[codes[:, 0]]
    codes[:, 6] = 0
    table = decode(codes, made, plain_layout(made), RNG(0))
    assert (
        len(
            set(
                zip(
                    table.column("degree").to_pylist(),
                    table.column("years").to_pylist(),
                    strict=True,
                )
            )
        )
        == 3
    )


def test_what_a_map_determines_stays_where_an_order_binds_it_too() -> None:
    made = schema_from_json(
        {
            "attributes": [
                {"name": "g", "kind": "categorical", "values": ["x", "y"]},
                {"name": "a", "kind": "numeric", "edges": [0, 50, 100]},
                {"name": "b", "kind": "numeric", "edges": [0, 50, 100]},
            ],
            "rules": [
                {"determines": "a", "by": "g", "map": {"x": 20, "y": 70}},
                {"order": ["a", "b"]},
            ],
        }
    )
    codes = np.zeros((1000, 3), dtype=np.int32, order="F")
    codes[500:] = 1
    table = decode(codes, made, plain_layout(made), RNG(0)).to_pandas()
    assert set(zip(table["g"], table["a"], strict=True)) == {("x", 20.0), ("y", 70.0)}
    assert (table["a"] <= table["b"]).all()


def test_a_table_that_contradicts_a_determination_to_be_learnt_is_refused() -> None:
    made = schema_from_json(
        {
            "attributes": [
                {
                    "name": "city",
                    "kind": "categorical",
                    "values": ["Graz", "Linz"],
                    "missing": True,
                },
                {"name": "state", "kind": "categorical", "values": ["St", "Up"], "missing": True},
            ],
            "rules": [{"determines": "state", "by": "city"}],
        }
    )
    fine = pd.DataFrame(
        {"city": ["Linz", "Graz", "Linz", None] * 9, "state": ["Up", "St", "Up", None] * 9}
    )
    encode(fine, made)
    wrong = pd.concat([fine, pd.DataFrame({"city": ["Linz"], "state": ["St"]})], ignore_index=True)
    with pytest.raises(
        TableError,
        match=r"^1 rows break a rule of the schema, first row 37 \(city = Linz, state = St\)",
    ):
        encode(wrong, made)
    assert dither.evaluate(fine, wrong, made).broken == (0.0, 1 / 37)
