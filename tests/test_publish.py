"""The whole road from Python: kinds of tables, reproducibility, the guarantee in the release."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dither
from dither.datasets import generate_network
from dither.errors import InputError, ParameterError, SchemaError, TableError


@pytest.fixture(scope="module")
def network():
    return generate_network([3, 4, 2], seed=1)


def test_a_newcomer_guesses_it(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "age": np.tile([30, 41, 52, 63], 500),
            "member": np.tile([True, False], 1000),
            "town": ["a", "b"] * 1000,
        }
    )
    release = dither.publish(frame, epsilon=4.0, method="independent", seed=7)
    assert isinstance(release.synthetic, pd.DataFrame)
    assert list(release.synthetic.columns) == ["age", "member", "town"]
    assert release.synthetic.dtypes.equals(frame.dtypes)
    assert len(release.synthetic) == 2000
    marginal = release.marginal(["age"])
    assert marginal.frequencies.sum() == pytest.approx(1)
    release.save(tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "release.json").read_text())
    assert manifest["epsilon_achieved"] <= manifest["epsilon_asked"] == 4.0
    for key in (
        "method",
        "parameters",
        "participants",
        "rounds",
        "seed",
        "rows",
        "seconds",
        "dither_version",
    ):
        assert key in manifest
    assert any("leak" in w.message for w in release.warnings), (
        "the domain was inferred from private data"
    )


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars"])
def test_the_same_kind_comes_back(kind: str, network) -> None:
    table = network.table(500, np.random.default_rng(0))
    given = {"pyarrow": table, "pandas": table.to_pandas(), "polars": pl.from_arrow(table)}[kind]
    release = dither.publish(
        given, epsilon=2.0, schema=network.schema, rows=40, seed=1, method="independent"
    )
    assert type(release.synthetic) is type(given)
    assert release.rows == 40
    assert "inferred-domain" not in {w.code for w in release.warnings}


def test_same_seed_same_release_other_seed_another(network) -> None:
    table = network.table(2_000, np.random.default_rng(0))
    runs = [
        dither.publish(table, epsilon=1.0, schema=network.schema, seed=s, method="independent")
        for s in (5, 5, 6)
    ]
    assert runs[0].synthetic.equals(runs[1].synthetic)
    assert not runs[0].synthetic.equals(runs[2].synthetic)
    fresh, again = (
        dither.publish(table, epsilon=1.0, schema=network.schema, method="independent")
        for _ in range(2)
    )
    assert fresh.seed is again.seed is None
    assert not fresh.synthetic.equals(again.synthetic)
    assert any(
        (a.frequencies != b.frequencies).any()
        for a, b in zip(fresh.measured, again.measured, strict=True)
    )


def test_estimates_are_right_within_their_error_bars(network) -> None:
    """Standardised errors of the one-way estimates over many collections: mean 0, mean square 1 with sampling added."""
    table = network.table(20_000, np.random.default_rng(0))
    squares = []
    for seed in range(30):
        release = dither.publish(
            table, epsilon=1.0, schema=network.schema, seed=seed, rows=1, method="independent"
        )
        for measured in release.measured:
            truth = release.truth.marginal(measured.attributes)
            sampling = (
                truth * (1 - truth) * (1 / measured.n - 1 / 20_000)
            )  # only a part of the participants was asked
            squares.append(
                (measured.frequencies - truth) ** 2 / (measured.standard_errors**2 + sampling)
            )
    mean = np.concatenate(squares).mean()
    # 270 squares of standard normals, cells of one marginal dependent: at least 100 independent ones.
    assert abs(mean - 1) < 5 * np.sqrt(2 / 100)


def test_population_resamples(network) -> None:
    table = network.table(100, np.random.default_rng(0))
    release = dither.publish(
        table, epsilon=1.0, schema=network.schema, population=5_000, seed=1, method="independent"
    )
    assert release.participants == release.rows == 5_000


def test_reports_path_gives_the_same_figures_up_to_noise(network) -> None:
    table = network.table(30_000, np.random.default_rng(0))
    runs = [
        dither.publish(
            table, epsilon=4.0, schema=network.schema, seed=1, path=p, rows=1, method="independent"
        )
        for p in ("counts", "reports")
    ]
    name = network.schema.names[0]
    a, b = (next(m for m in r.measured if m.attributes == (name,)) for r in runs)
    spread = np.sqrt(a.standard_errors**2 + b.standard_errors**2 + 2 * 0.25 / min(a.n, b.n))
    assert np.abs((a.frequencies - b.frequencies) / spread).max() < 4.5


def test_missing_answers_come_back_at_the_right_rate() -> None:
    schema = dither.Schema(
        (
            dither.Attribute("x", "ordinal", (1, 2, 3), missing=True),
            dither.Attribute("y", "categorical", ("u", "v")),
        )
    )
    table = pa.table({"x": [1, None, 2, 3, None] * 4_000, "y": ["u", "v", "u", "v", "u"] * 4_000})
    release = dither.publish(table, epsilon=6.0, schema=schema, seed=2, method="independent")
    rate = release.synthetic.column("x").null_count / 20_000
    assert rate == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": -1.0}, InputError, "epsilon"),
        ({"epsilon": float("nan")}, InputError, "epsilon"),
        ({"method": "guess"}, ParameterError, "guess"),
        ({"rows": 0}, ParameterError, "rows"),
        ({"population": -3}, ParameterError, "population"),
        ({"seed": -1}, ParameterError, "seed"),
        ({"parameters": {"shares": "all"}}, ParameterError, "shares"),
        ({"path": "train"}, ParameterError, "path"),
        ({"schema": "no-such-file.json"}, SchemaError, "no-such-file"),
        ({"unknown": "maybe"}, ParameterError, "unknown"),
    ],
)
def test_bad_input_is_named(change: dict, error: type[Exception], words: str, network) -> None:
    table = network.table(50, np.random.default_rng(0))
    arguments = {"epsilon": 1.0, "schema": network.schema, "method": "independent", **change}
    with pytest.raises(error, match=words):
        dither.publish(table, **arguments)


def test_too_few_people_is_an_error_not_a_crash(network) -> None:
    with pytest.raises(dither.DitherError, match="more participants"):
        dither.publish(
            network.table(1, np.random.default_rng(0)),
            epsilon=1.0,
            schema=network.schema,
            method="independent",
        )


def test_without_privacy_only_by_a_switch_and_never_silently(network, tmp_path: Path) -> None:
    table = network.table(500, np.random.default_rng(0))
    with pytest.raises(InputError, match="no_privacy"):
        dither.publish(table, epsilon=1.0, schema=network.schema, method="jtree-nonprivate")
    with pytest.raises(ParameterError, match="jtree-nonprivate"):
        dither.publish(
            table, epsilon=1.0, schema=network.schema, method="independent", no_privacy=True
        )
    release = dither.publish(
        table,
        epsilon=1.0,
        schema=network.schema,
        method="jtree-nonprivate",
        no_privacy=True,
        seed=1,
    )
    assert not release.private
    folder = release.save(tmp_path / "open")
    manifest = json.loads((folder / "release.json").read_text())
    assert manifest["private"] is False
    assert manifest["epsilon_achieved"] is None
    assert "NOT PRIVATE" in (folder / "report.html").read_text()
    from dither.release import load_release

    assert not load_release(folder).private


@pytest.mark.slow
def test_intervals_quality_and_exposure_of_a_saved_release(network, tmp_path: Path) -> None:
    """What a real collection can say of itself: held-out error, manipulation bound, intervals for any marginal."""
    table = network.table(20_000, np.random.default_rng(0))
    release = dither.publish(
        table, epsilon=4.0, schema=network.schema, seed=1, holdout=0.1, rows=10
    )
    assert release.notes["held_out"]["1"]["reports"] == pytest.approx(2_000, abs=60)
    moved = release.notes["manipulation"][network.schema.names[0]]
    assert 0.01 < moved["1%"] < moved["5%"] <= 1
    folder = release.save(tmp_path / "out")
    page = (folder / "report.html").read_text()
    assert "Manipulation" in page
    assert "without the truth" in page
    again = dither.load_release(folder)
    names = network.schema.names[:2]
    direct, saved = (
        dither.bootstrap(r, [names], replicates=5, seed=2)[0] for r in (release, again)
    )
    np.testing.assert_array_equal(direct.low, saved.low)
    truth = release.truth.marginal(names)
    assert np.mean((direct.low <= truth) & (truth <= direct.high)) > 0.5
    assert (direct.standard_errors > 0).all()


def test_empty_table() -> None:
    with pytest.raises(TableError, match=r"empty|no rows"):
        dither.publish(pa.table({"x": pa.array([], pa.int64())}), epsilon=1.0)


def test_a_method_that_asks_nothing_is_refused() -> None:
    schema = dither.Schema((dither.Attribute("n", "numeric", edges=(0.0, 1.0, 2.0)),))
    with pytest.raises(ParameterError, match="asks no question"):
        dither.publish(
            pa.table({"n": [0.5, 1.5]}),
            epsilon=1.0,
            schema=schema,
            method="chp",
            parameters={"consumers": "1"},
        )


SMALL = {"sex": ["F", "M"] * 60, "pay": [10, 20, 30] * 40}
DOMAIN = {
    "format": "dither-schema-1",
    "attributes": [
        {"name": "sex", "kind": "categorical", "values": ["F", "M"]},
        {"name": "pay", "kind": "ordinal", "values": [10, 20, 30, 40]},
    ],
}


@pytest.mark.parametrize(
    "domain",
    [DOMAIN, {a["name"]: {k: a[k] for k in a if k != "name"} for a in DOMAIN["attributes"]}],
)
def test_a_schema_is_given_as_the_dict_that_a_file_holds(domain: dict, tmp_path: Path) -> None:
    release = dither.publish(SMALL, epsilon=4.0, method="independent", schema=domain, seed=1)
    assert release.schema["pay"].values == (10, 20, 30, 40)
    assert not any("inferred" in w.message for w in release.warnings)
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(domain))
    same = dither.publish(SMALL, epsilon=4.0, method="independent", schema=path, seed=1)
    assert release.synthetic == same.synthetic
    release.save(tmp_path / "out")
    assert dither.load_release(tmp_path / "out").schema == release.schema
    fitted = dither.Synthesiser(epsilon=4.0, method="independent", schema=domain).fit(SMALL)
    assert fitted.schema_ == release.schema


def test_a_dict_that_is_no_schema_is_named() -> None:
    with pytest.raises(SchemaError, match=r"'pay'.*kind"):
        dither.publish(SMALL, epsilon=4.0, schema={"pay": {"kin": "boolean"}})
    with pytest.raises(SchemaError, match=r"path of a schema file or the dict.*not int"):
        dither.publish(SMALL, epsilon=4.0, schema=3)


def test_one_column_may_be_named_without_a_list() -> None:
    options = {"epsilon": 4.0, "method": "independent"}
    assert dither.publish(SMALL, drop="pay", **options).schema.names == ("sex",)
    assert dither.publish(SMALL, columns="pay", **options).schema.names == ("pay",)
    with pytest.raises(TableError, match="no column 'payy'"):
        dither.publish(SMALL, drop="payy", **options)


@pytest.mark.parametrize("wrong", [3, ["pay", 3], True])
def test_an_option_that_is_no_list_of_columns_is_named(wrong: object) -> None:
    with pytest.raises(ParameterError, match=r"columns takes a list of texts"):
        dither.publish(SMALL, epsilon=4.0, columns=wrong)
