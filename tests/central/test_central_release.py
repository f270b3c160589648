"""A central release from a table to a folder, on the command line too."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.saved_releases import forget_digests

import dither.cli
from dither.central import (
    CENTRAL,
    CuratorTask,
    central_method,
    check_neighbours,
    domain_size,
    seeded_source,
)
from dither.central.curator import central_release, whole_cells
from dither.errors import (
    InputError,
    ParameterError,
    PrivacyError,
    QuestionError,
    SchemaError,
)
from dither.notice import REPLAYABLE
from dither.release import Release, check_target
from dither.schema import Attribute, Schema, count_cells
from dither.tally import pack

SCHEMA = Schema(
    (
        Attribute("colour", "categorical", values=("red", "green", "blue")),
        Attribute("size", "ordinal", values=(1, 2, 3, 4)),
        Attribute("old", "boolean", values=(False, True)),
    )
)


COLUMNS = {"agrid": ["size", "old"]}  # the others take all three


def table(rows: int = 3000) -> pa.Table:
    rng = np.random.default_rng(0)
    size = rng.integers(1, 5, rows)
    colour = np.array(["red", "green", "blue"])[np.minimum(size - 1, 2)]
    return pa.table({"colour": colour, "size": size, "old": rng.random(rows) < 0.3})


@pytest.mark.parametrize("method", [*CENTRAL])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_every_method_makes_a_table_like_the_input(method: str, neighbours: str) -> None:
    columns = COLUMNS.get(method, ["colour", "size", "old"])
    made = central_release(
        table(),
        epsilon=2.0,
        method=method,
        schema=SCHEMA,
        neighbours=neighbours,
        seed=1,
        replicates=3,
        columns=columns,
    )
    assert made.synthetic.schema.names == columns
    assert [f.type for f in made.synthetic.schema] == [
        table().schema.field(name).type for name in columns
    ]
    assert made.epsilon_achieved <= 2.0
    assert made.rows == made.synthetic.num_rows
    if neighbours == "replace":
        assert made.rows == 3000
    manifest = made.to_json()
    assert manifest["trust_model"] == (
        "central: a curator holds the table" if method != "csm-records" else made.cells.trust_model
    )
    assert ("local" in manifest["trust_model"]) == (method == "csm-records")
    json.dumps(manifest, allow_nan=False)


def test_columns_are_chosen_and_ordered() -> None:
    made = central_release(
        table(), epsilon=5.0, method="laplace", columns=["old", "colour"], schema=SCHEMA, seed=3
    )
    assert made.synthetic.schema.names == ["old", "colour"]
    cells = made.cells.histogram(made.schema)
    assert cells.num_rows == 6
    truth = count_cells(
        np.stack(
            [
                table()["old"].to_numpy().astype(int),
                [["red", "green", "blue"].index(c) for c in table()["colour"].to_pylist()],
            ],
            axis=1,
        ),
        (2, 3),
    ).ravel()
    estimates = cells["estimate"].to_numpy()
    errors = cells["standard_error"].to_numpy()
    assert np.abs(estimates - truth).max() < 12  # scale 0.2
    assert (errors < 2).all()
    assert cells["colour"].to_pylist()[:3] == ["red", "green", "blue"]


def test_the_same_seed_gives_the_same_release_and_says_it_is_not_private() -> None:
    one, two, other = (
        central_release(table(), epsilon=0.5, method="csm", schema=SCHEMA, seed=s, replicates=0)
        for s in (1, 1, 2)
    )
    assert one.synthetic.equals(two.synthetic)
    assert not np.array_equal(one.cells.estimate, other.cells.estimate)
    assert REPLAYABLE in one.warnings
    assert one.to_json()["private"] is False


def test_without_a_seed_the_noise_is_fresh() -> None:
    one, two = (
        central_release(table(), epsilon=0.5, method="laplace", schema=SCHEMA, replicates=0)
        for _ in range(2)
    )
    assert not np.array_equal(one.cells.estimate, two.cells.estimate)
    assert one.seed is None
    assert one.to_json()["private"] is True
    assert REPLAYABLE not in one.warnings


def test_standard_errors_cover_the_laplace_noise() -> None:
    made = central_release(
        table(), epsilon=0.5, method="laplace", schema=SCHEMA, seed=5, replicates=200
    )
    assert made.cells.standard_errors is not None
    wanted = math.sqrt(2 * math.exp(-0.5)) / (1 - math.exp(-0.5))
    # the mean of 24 cells x 200 draws; relative spread of a squared Laplace draw is sqrt(5)
    assert np.sqrt((made.cells.standard_errors**2).mean()) == pytest.approx(
        wanted, rel=5 * math.sqrt(5 / (24 * 200)) / 2
    )


def test_whole_cells_keep_the_total() -> None:
    rng = np.random.default_rng(0)
    for total in (0, 1, 7, 1000):
        made = whole_cells(rng.normal(5, 20, 40), total)
        assert made.sum() == total
        assert (made >= 0).all()
    assert whole_cells(np.array([3.0, 0, 5]), 8).tolist() == [3, 0, 5]


def test_a_domain_that_does_not_fit_names_its_columns() -> None:
    with pytest.raises(ParameterError, match=r"product of a, b has 4,194,304 cells.*fewer columns"):
        domain_size((2048, 2048), ("a", "b"))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"epsilon": 0}, PrivacyError, "epsilon"),
        ({"method": "laplas"}, ParameterError, "laplas"),
        ({"neighbours": "all"}, ParameterError, "add-remove, replace"),
        ({"columns": ["shape"]}, SchemaError, "shape"),
        ({"columns": []}, ParameterError, "at least one column"),
        ({"parameters": {"tau": 0.3}, "method": "laplace"}, ParameterError, "no parameter 'tau'"),
        ({"parameters": {"sparsity": 0}}, ParameterError, "sparsity"),
        ({"seed": -1}, ParameterError, "seed"),
    ],
)
def test_wrong_options_are_named(options: dict, error: type[InputError], words: str) -> None:
    with pytest.raises(error, match=words):
        central_release(table(50), **{"epsilon": 1.0, "schema": SCHEMA, **options})


def test_wide_tables_only_fit_privbayes() -> None:
    names = [f"c{j}" for j in range(22)]
    schema = Schema(tuple(Attribute(n, "categorical", values=(0, 1)) for n in names))
    data = pa.table({n: np.random.default_rng(j).integers(0, 2, 300) for j, n in enumerate(names)})
    with pytest.raises(ParameterError, match="4,194,304 cells"):
        central_release(data, epsilon=1.0, method="csm", schema=schema)
    made = central_release(
        data, epsilon=1.0, method="privbayes", schema=schema, seed=1, parameters={"degree": 1}
    )
    assert made.cells.estimate is None
    assert made.synthetic.num_columns == 22
    with pytest.raises(QuestionError, match="no histogram"):
        made.cells.histogram(made.schema)


def test_folder_is_whole_and_only_replaces_its_own_kind(tmp_path: Path) -> None:
    made = central_release(
        table(), epsilon=1.0, method="privelet", schema=SCHEMA, seed=1, replicates=2
    )
    out = tmp_path / "out"
    made.save(out)
    with pytest.raises(InputError, match="out holds a release"):
        made.save(out)
    made.save(out, overwrite=True)
    assert sorted(p.name for p in out.iterdir()) == [
        "deviations.bin",
        "histogram.parquet",
        "release.json",
        "report.html",
        "schema.json",
        "synthetic.parquet",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    page = (out / "report.html").read_text()
    assert "central: a curator holds the table" in page
    assert "NOT private" in page
    assert "http" not in page
    assert pq.read_table(out / "synthetic.parquet").num_rows == made.rows
    (out / "diary.txt").write_text("mine")
    made.save(out, overwrite=True)
    assert (out / "diary.txt").read_text() == "mine", "what people laid beside a release is kept"
    other = tmp_path / "local"
    other.mkdir()
    (other / "release.json").write_text('{"format": "another"}')
    with pytest.raises(InputError, match="another version"):
        check_target(other)
    with pytest.raises(InputError, match="is a file"):
        check_target(other / "release.json")


def test_checks_of_arrays_and_names() -> None:
    assert check_neighbours("replace") == "replace"
    assert set(CENTRAL) == {
        "laplace",
        "threshold",
        "privelet",
        "hierarchical",
        "dawa",
        "agrid",
        "fourier",
        "privbayes",
        "csm",
        "projection",
        "csm-records",
    }
    assert central_method("csm").reference
    for wrong in ([1.5, 2.0], [[1, 2]], [3], [-1, 2]):
        with pytest.raises(ParameterError, match="histogram"):
            CuratorTask(np.asarray(wrong), 1.0, seeded_source(1), np.random.default_rng(0))


@pytest.fixture
def run():
    return dither.cli.run


def test_command_line(run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "t.csv"
    data.write_text("a,b\n" + "\n".join(f"{i % 2},{'xy'[i % 2]}" for i in range(200)) + "\n")
    schema = tmp_path / "s.json"
    schema.write_text(
        json.dumps(
            {
                "a": {"kind": "categorical", "values": [0, 1]},
                "b": {"kind": "categorical", "values": ["x", "y"]},
            }
        )
    )
    out = tmp_path / "out"
    given = [
        "central",
        str(data),
        "--schema",
        str(schema),
        "--columns",
        "a,b",
        "--method",
        "laplace",
        "--epsilon",
        "1",
    ]
    assert run([*given, "--seed", "4", "-o", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    manifest = json.loads(captured.out)
    written = json.loads((out / "release.json").read_text())
    assert set(written.pop("files")) == {"synthetic.parquet", "histogram.parquet", "deviations.bin"}
    assert manifest == written
    assert manifest["trust_model"] == "central: a curator holds the table"
    assert manifest["method"] == "laplace"
    assert "NOT private" in captured.err
    assert run([*given, "-o", str(out), "--overwrite"]) == 0
    captured = capsys.readouterr()
    assert "NOT private" not in captured.err
    assert "central: a curator holds the table" in captured.out
    assert (
        run([*given[:-4], "--method", "nonsense", "--epsilon", "1", "-o", str(out), "--overwrite"])
        == 2
    )
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("method", "options", "parameters"),
    [
        ("csm", ["--set", "tau=0.5", "--set", "dictionary=dct", "--set", "measurement=gaussian"],
         {"tau": 0.5, "dictionary": "dct", "measurement": "gaussian", "total": True}),
        ("csm", ["--set", "records=40000", "--set", "total=no"], {"tau": None, "records": 40000, "total": False}),
        ("hierarchical", ["--set", "branching=4"], {"branching": 4}),
        ("privbayes", ["--set", "degree=1", "--neighbours", "replace"], {"degree": 1, "theta": 4.0}),
    ],
)  # fmt: skip
def test_parameters_are_set_by_name(
    run, method: str, options: list[str], parameters: dict, tmp_path: Path
) -> None:
    given = [
        "central",
        "adult",
        "--method",
        method,
        "--columns",
        "sex,income",
        "--epsilon",
        "1",
        "--seed",
        "1",
    ]
    assert run([*given, *options, "-o", str(tmp_path / "out")]) == 0
    written = json.loads((tmp_path / "out" / "release.json").read_text())
    assert parameters.items() <= written["parameters"].items()


@pytest.mark.parametrize(
    "setting",
    ["tau=2", "tau=x", "measurement=fourier", "sparsity=0", "degree=1", "records=0", "tau"],
)
def test_a_wrong_parameter_is_one_line(
    run, setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "central",
        "adult",
        "--columns",
        "sex",
        "--epsilon",
        "1",
        "--set",
        setting,
        "-o",
        str(tmp_path / "out"),
    ]
    assert run(given) == 2
    err = capsys.readouterr().err
    assert setting.partition("=")[0] in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("method", ["csm", "laplace", "privbayes", "csm-records"])
@pytest.mark.parametrize("replicates", [0, 2])
def test_a_saved_release_reads_back(method: str, replicates: int, tmp_path: Path) -> None:
    made = central_release(
        table(300), epsilon=1.0, method=method, schema=SCHEMA, seed=3, replicates=replicates
    )
    again = Release.load(made.save(tmp_path / "out"))
    assert again.to_json() == made.to_json()
    assert again.warnings == made.warnings
    assert again.schema == made.schema
    assert again.synthetic.equals(made.synthetic)
    assert again.report() == made.report()
    for was, now in (
        (made.cells.estimate, again.cells.estimate),
        (made.cells.standard_errors, again.cells.standard_errors),
    ):
        assert (was is None) == (now is None)
        assert was is None or np.array_equal(was, now)


def test_an_empty_table_reads_back(tmp_path: Path) -> None:
    made = [
        central_release(table(20), epsilon=0.002, method="laplace", schema=SCHEMA, seed=s)
        for s in range(4)
    ]
    empty = next(release for release in made if release.rows == 0)
    again = Release.load(empty.save(tmp_path / "out"))
    assert again.synthetic.num_rows == 0
    assert again.report() == empty.report()


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a release"):
        Release.load(tmp_path / "nowhere")
    made = central_release(
        table(300), epsilon=1.0, method="laplace", schema=SCHEMA, seed=3, replicates=0
    )
    out = forget_digests(made.save(tmp_path / "out"))
    manifest = json.loads((out / "release.json").read_text())
    for change, words in (
        ({"kind": "table"}, "model.bin cannot be read"),
        ({"method": "laplas"}, "laplas"),
        ({"neighbours": "all"}, "neighbours"),
        ({"warnings": [{"code": 1}]}, "a code and a message"),
        ({"epsilon_achieved": 1.5}, "more than the 1.0 asked for"),
    ):
        (out / "release.json").write_text(json.dumps(manifest | change))
        with pytest.raises(InputError, match=words):
            Release.load(out)
    (out / "release.json").write_text(json.dumps({"format": "dither-release-2", "method": "csm"}))
    with pytest.raises(InputError, match=r"release.json is damaged"):
        Release.load(out)
    (out / "release.json").write_text(json.dumps(manifest))
    (out / "histogram.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="not a whole"):
        Release.load(out)
    (out / "synthetic.parquet").unlink()
    with pytest.raises(InputError, match="not a whole"):
        Release.load(out)


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        ("agrid", "c=5e-324"),
        ("csm", f"records={10**200}"),
        ("projection", f"records={10**200}"),
    ],
)
def test_settings_beyond_floats_are_one_line(
    run, method: str, setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "central",
        "adult",
        "--columns",
        "sex,income",
        "--epsilon",
        "1",
        "-o",
        str(tmp_path / "out"),
    ]
    assert run([*given, "--method", method, "--set", setting]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert setting.partition("=")[0] in said


def test_options_that_would_never_end_are_refused() -> None:
    for options in ({"replicates": 10**8}, {"records": 10**200}):
        with pytest.raises(ParameterError, match=next(iter(options))):
            central_release(table(50), epsilon=1.0, schema=SCHEMA, **options)
    wide = Schema(tuple(Attribute(name, "ordinal", values=tuple(range(100))) for name in "abc"))
    rows = pa.table({name: [1, 2, 3] for name in "abc"})
    with pytest.raises(ParameterError, match="99 children have 941,480,149,401 leaves"):
        central_release(
            rows, epsilon=1.0, schema=wide, method="hierarchical", parameters={"branching": 99}
        )


def test_more_children_than_cells_are_not_made_up() -> None:
    given = {"epsilon": 1.0, "schema": SCHEMA, "seed": 1, "method": "hierarchical", "replicates": 0}
    many = central_release(table(300), parameters={"branching": 10**11}, **given)
    assert many.notes["branching"] == [3, 4, 2]


def test_a_manifest_does_not_tell_how_long_private_rows_took() -> None:
    ticks = iter(range(100))
    made = central_release(
        table(50), epsilon=1.0, schema=SCHEMA, method="laplace", clock=lambda: float(next(ticks))
    )
    assert set(made.seconds) == {"read", "method", "table"}
    assert set(made.to_json()["seconds"]) == {"table"}


def test_parts_that_are_missing_or_of_another_release_are_named(tmp_path: Path) -> None:
    made = central_release(
        table(300), epsilon=1.0, method="laplace", schema=SCHEMA, seed=3, replicates=3
    )
    cells = made.cells.estimate.size

    def damaged(change: Callable[[Path], object]) -> Path:
        out = forget_digests(made.save(tmp_path / "out", overwrite=True))
        change(out)
        return out

    def manifest(**change: object) -> Callable[[Path], object]:
        def write(out: Path) -> None:
            read = json.loads((out / "release.json").read_text())
            (out / "release.json").write_text(json.dumps(read | change))

        return write

    def deviations(array: np.ndarray) -> Callable[[Path], object]:
        return lambda out: (out / "deviations.bin").write_bytes(pack({}, {"deviations": array}))

    assert Release.load(damaged(lambda out: None)).count() == made.count()
    for change, words in (
        (lambda out: (out / "deviations.bin").unlink(), "does not have 3 repetitions"),
        (deviations(np.zeros((0, cells))), "number for each"),
        (deviations(np.full((3, cells), np.nan)), "number for each"),
        (
            lambda out: [(out / name).unlink() for name in ("histogram.parquet", "deviations.bin")],
            "is missing",
        ),
        (
            lambda out: pq.write_table(made.synthetic.slice(1), out / "synthetic.parquet"),
            "does not have the",
        ),
        (
            lambda out: pq.write_table(pa.table({"z": [1] * made.rows}), out / "synthetic.parquet"),
            "does not have the",
        ),
        (manifest(notes=None), "notes"),
        (manifest(parameters=3), "parameters"),
        (manifest(seed="x"), "seed"),
    ):
        with pytest.raises(InputError, match=words):
            Release.load(damaged(change))


def test_a_seed_that_was_written_is_warned_of_whatever_the_manifest_says(tmp_path: Path) -> None:
    out = central_release(table(300), epsilon=1.0, method="laplace", schema=SCHEMA, seed=3).save(
        tmp_path / "out"
    )
    manifest = json.loads((out / "release.json").read_text())
    (out / "release.json").write_text(json.dumps(manifest | {"warnings": []}))
    assert REPLAYABLE in Release.load(out).warnings


def test_marginals_are_sums_of_the_cells() -> None:
    made = central_release(
        table(), epsilon=3.0, method="laplace", schema=SCHEMA, seed=5, replicates=3
    )
    assert made.cells.estimate is not None
    assert made.cells.standard_errors is not None
    cells, total = made.cells.estimate.reshape(3, 4, 2), made.cells.estimate.sum()
    assert made.cells.deviations is not None
    one = made.marginal("size")
    assert one.attributes == ("size",)
    assert one.labels == (SCHEMA["size"].labels,)
    assert one.frequencies == pytest.approx(cells.sum(axis=(0, 2)) / total, abs=1e-9)
    off = made.cells.deviations.reshape(-1, 3, 4, 2).sum(axis=(1, 3))
    share = cells.sum(axis=(0, 2)) / total
    off = (off - share * off.sum(axis=1, keepdims=True)) / total
    assert one.standard_errors == pytest.approx(np.sqrt((off**2).mean(axis=0)))
    turned = made.marginal(["old", "colour"])
    assert turned.frequencies == pytest.approx((cells.sum(axis=1) / total).T, abs=1e-3)
    assert turned.frequencies.sum() == pytest.approx(1.0)
    assert turned.standard_errors is not None
    assert turned.standard_errors.shape == (2, 3)
    rows = central_release(table(), epsilon=3.0, method="csm-records", schema=SCHEMA, seed=5)
    shares = [
        np.mean(np.array(rows.synthetic["old"].to_pylist()) == value) for value in (False, True)
    ]
    assert rows.marginal(["old"]).frequencies == pytest.approx(shares)
    with pytest.raises(SchemaError, match="shape"):
        made.marginal(["shape"])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["laplace", "privbayes"])
def test_a_noisy_number_of_records_at_zero_gives_an_empty_table(
    method: str, seed: int, tmp_path: Path
) -> None:
    """Failing would depend on the noise and ask for another run, which spends epsilon again."""
    made = central_release(
        table(20), epsilon=0.002, method=method, schema=SCHEMA, seed=seed, replicates=2
    )
    assert ("empty-table" in {w.code for w in made.warnings}) is (made.rows == 0)
    folder = made.save(tmp_path / "out")
    assert pq.read_table(folder / "synthetic.parquet").num_rows == made.rows
    assert pq.read_schema(folder / "synthetic.parquet").types == table().schema.types


def test_an_empty_table_comes_out_for_some_of_these_seeds() -> None:
    sizes = [
        central_release(table(20), epsilon=0.002, method="laplace", schema=SCHEMA, seed=s).rows
        for s in range(4)
    ]
    assert 0 in sizes


def test_an_empty_table_of_a_domain_too_large_for_a_histogram(tmp_path: Path) -> None:
    wide = Schema(tuple(Attribute(f"a{i}", "ordinal", values=tuple(range(16))) for i in range(6)))
    rows = pa.table({a.name: [0, 1, 2] for a in wide})
    made = [
        central_release(rows, epsilon=0.01, method="privbayes", schema=wide, seed=s)
        for s in range(6)
    ]
    assert 0 in [m.rows for m in made]
    for release in made:
        release.save(tmp_path / "out", overwrite=True)


def test_a_synthetic_table_s_size_is_bounded_whatever_the_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dither.central.curator.MAX_ROWS", 1000)
    made = central_release(
        table(3000), epsilon=2.0, method="laplace", schema=SCHEMA, seed=1, replicates=0
    )
    assert made.rows == made.synthetic.num_rows == 1000
    assert "rows-capped" in {w.code for w in made.warnings}
    share = np.mean(np.array(made.synthetic["old"].to_pylist()))
    assert share == pytest.approx(np.mean(table(3000)["old"].to_pylist()), abs=0.01)
    public = central_release(
        table(3000),
        epsilon=2.0,
        method="laplace",
        schema=SCHEMA,
        seed=1,
        replicates=0,
        neighbours="replace",
    )
    assert public.rows == 3000


@pytest.mark.parametrize(
    "epsilon", [1e308, 1e5, 1e-7, 1e-12, 1e-320, pytest.param(10**400, id="no float")]
)
@pytest.mark.parametrize("method", ["csm", "laplace", "csm-records"])
def test_an_epsilon_that_means_nothing_is_refused(method: str, epsilon: float) -> None:
    with pytest.raises(PrivacyError, match="epsilon must"):
        central_release(table(), epsilon=epsilon, method=method, schema=SCHEMA)


@pytest.mark.parametrize("epsilon", [1e-6, 1e4])
@pytest.mark.parametrize("method", [*CENTRAL])
def test_every_epsilon_in_the_range_gives_a_release_or_one_clear_refusal(
    method: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dither.central.curator.MAX_ROWS", 5000)
    given = {"epsilon": epsilon, "method": method, "schema": SCHEMA, "seed": 2, "replicates": 2}
    given["columns"] = COLUMNS.get(method)
    if method in ("fourier", "privbayes"):  # what they choose by takes less extreme ones only
        with pytest.raises(PrivacyError, match="out of range for choosing"):
            central_release(table(50), **given)
        return
    made = central_release(table(50), **given)
    assert made.epsilon_achieved <= epsilon
    assert (
        np.all(np.isfinite(made.cells.estimate))
        if made.cells.estimate is not None
        else method == "csm-records"
    )


def test_a_seeded_release_promises_readers_nothing() -> None:
    table = pa.table({"a": ["x", "y"] * 40})
    private = dither.central_release(table, epsilon=1.0, method="laplace")
    seeded = dither.central_release(table, epsilon=1.0, method="laplace", seed=7)
    assert private.readers == private.guarantee
    assert seeded.readers.startswith("Nothing is promised against readers")
