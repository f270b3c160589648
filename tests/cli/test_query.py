"""dither query: what it prints for programs and for people, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import dither
from dither.cli import run
from dither.datasets import generate_network
from dither.methods import start
from dither.release import Call, Release
from dither.simulate import simulate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small release with replicates."""
    place = tmp_path_factory.mktemp("release")
    network = generate_network([3, 4, 2], seed=1)
    table = network.table(3000, np.random.default_rng(0))
    release = dither.publish(
        table, epsilon=3.0, schema=network.schema, method="independent", rows=50, seed=1
    )
    release.with_replicates(10).save(place / "out")
    return place / "out"


@pytest.fixture(scope="module")
def names(folder: Path) -> tuple[str, ...]:
    return dither.load_release(folder).schema.names


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert run(["query", *words]) == 0
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_json_of_one_share(
    folder: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    release = dither.load_release(folder)
    label = release.schema[names[0]].labels[1]
    where = f"{names[0]} == {label!r}"
    found = json.loads(asked(capsys, str(folder), where, "--json")[0])
    assert list(found) == ["estimate", "low", "high", "standard_error", "people", "warnings"]
    assert found["estimate"] == pytest.approx(
        float(release.marginal(names[0]).frequencies[1]), abs=0.02
    )
    assert found["low"] < found["estimate"] < found["high"]
    assert found["people"] == pytest.approx(found["estimate"] * 3000)
    wider = json.loads(asked(capsys, str(folder), where, "--json", "--level", "0.99")[0])
    assert wider["high"] > found["high"]
    assert found == release.query(where).to_json()
    assert found["estimate"] == release.query({names[0]: label}).estimate


def test_json_of_a_table(
    folder: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    schema = dither.load_release(folder).schema
    base = f"{names[2]} == {schema[names[2]].labels[0]!r}"
    out, _ = asked(
        capsys, str(folder), "--by", f"{names[0]}, {names[1]}", "--given", base, "--json"
    )
    found = json.loads(out)
    assert list(found) == ["by", "rows", "warnings"]
    assert found["by"] == list(names[:2])
    assert [row["values"] for row in found["rows"]] == [
        [a, b] for a in schema[names[0]].labels for b in schema[names[1]].labels
    ]
    assert {tuple(row) for row in found["rows"]} == {("values", "estimate", "low", "high")}
    assert sum(row["estimate"] for row in found["rows"]) == pytest.approx(1.0)
    # The method takes attributes as independent: it says so.
    assert {frozenset(warning) for warning in found["warnings"]} == {
        frozenset(("code", "message", "advice"))
    }
    together = json.loads(
        asked(capsys, str(folder), "--by", names[0], "--simultaneous", "--json")[0]
    )
    alone = json.loads(asked(capsys, str(folder), "--by", names[0], "--json")[0])
    assert all(a["high"] > b["high"] for a, b in zip(together["rows"], alone["rows"], strict=True))


def test_csv_and_words_for_people(
    folder: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = asked(capsys, str(folder), "--by", names[0], "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == [names[0], "estimate", "low", "high", "standard_error"]
    assert len(rows) == 3
    out, _ = asked(capsys, str(folder), "--by", names[0])
    assert all(word in out for word in ("estimate", "95 % interval", "█", " % to "))
    out, _ = asked(capsys, str(folder), "True", "--level", "0.9")
    assert "90 % interval" in out
    assert "about 3,000 people" in out


def test_without_a_question_it_lists_the_attributes(
    folder: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = asked(capsys, str(folder))
    assert all(name in out for name in names)
    assert "dither query --help" in out


def test_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = (
        dither.load_dataset("adult").table.select(["age", "hours_per_week", "sex"]).slice(0, 4000)
    )
    release = dither.publish(table, epsilon=4.0, schema=None, method="independent", rows=20, seed=2)
    release.save(tmp_path / "out")  # without replicates: they are made for the question
    out, told = asked(capsys, str(tmp_path / "out"), "--quantiles", "age:0.25,0.5", "--json")
    found = json.loads(out)
    assert [row["values"] for row in found["rows"]] == [[0.25], [0.5]]
    assert found["rows"][0]["low"] <= found["rows"][0]["estimate"] < found["rows"][1]["estimate"]
    assert "publish --replicates 20" in told
    found = json.loads(
        asked(capsys, str(tmp_path / "out"), "--mean", "hours_per_week", "--json")[0]
    )
    assert found["low"] < found["estimate"] < found["high"]
    assert abs(found["estimate"] - pc.mean(table["hours_per_week"]).as_py()) < 2.5
    assert {warning["code"] for warning in found["warnings"]} >= {"inside-a-bin"}
    words = ["--mean", "hours_per_week", "--by", "sex", "--json"]
    groups = json.loads(asked(capsys, str(tmp_path / "out"), *words)[0])
    assert [row["values"] for row in groups["rows"]] == [["Female"], ["Male"]]
    # `independent` never asks both together: an estimate without an interval, and the reason.
    assert [row["low"] for row in groups["rows"]] == [None, None]
    assert "no-interval" in {warning["code"] for warning in groups["warnings"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["NAME0 == 'nonsense'"], "has no value 'nonsense'"),
        (["nmae > 3"], "no attribute 'nmae'"),
        (["__import__('os')"], "the only call that a question may make"),
        (["--by", "nothing"], "no attribute 'nothing'"),
        (["--by", "NAME0", "--quantile", "NAME1,0.5"], "two questions"),
        (["--by", "NAME1", "--mean", "NAME0"], "are no numbers"),
        (["--mean", "NAME0"], "are no numbers"),
        (["--quantiles", "NAME0"], "write an attribute and levels"),
        (["--quantiles", "NAME0:x"], "write an attribute and levels"),
        (["--given", "True"], "there is no question"),
        (["--json"], "there is no question"),
        (["True", "--json", "--csv"], "exclude each other"),
        (["True", "--level", "1.5"], "level must lie in (0, 1)"),
        (["True", "--simultaneous"], "goes with --by"),
    ],
)
def test_bad_questions_are_one_line_with_status_2(
    words: list[str],
    said: str,
    folder: Path,
    names: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for i, name in enumerate(names):
        words = [word.replace(f"NAME{i}", name) for word in words]
    assert run(["query", str(folder), *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_other_releases_and_folders_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    pq.write_table(
        generate_network([3, 4], seed=1).table(300, np.random.default_rng(0)),
        tmp_path / "t.parquet",
    )
    histogram = dither.histogram(np.arange(500.0), consumers=[3], epsilon=2.0, low=0, high=500)
    histogram.save(tmp_path / "histogram")
    central = dither.central_release(str(tmp_path / "t.parquet"), epsilon=2.0)
    central.save(tmp_path / "central")
    for place, words in [
        ("empty", "has no readable"),
        ("histogram", "no attribute 'age'"),
        ("central", "no attribute 'age'"),
    ]:
        assert run(["query", str(tmp_path / place), "age > 3", "--json"]) == 2
        printed = capsys.readouterr()
        assert words in printed.err
        assert printed.err.count("\n") == 1
    for place, question in [
        ("histogram", ["100 <= number < 250"]),
        ("histogram", ["--mean", "number"]),
        ("histogram", ["--quantile", "number,0.5"]),
        ("central", ["True"]),
    ]:
        assert run(["query", str(tmp_path / place), *question, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert {"estimate", "low", "high", "standard_error", "people", "warnings"} == set(answer)
    for place, by in [("histogram", "number"), ("central", "x0,x1")]:
        assert run(["query", str(tmp_path / place), "--by", by, "--json"]) == 0
        table = json.loads(capsys.readouterr().out)
        assert sum(row["estimate"] for row in table["rows"]) == pytest.approx(1.0)


def test_a_collected_release_answers_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever drove the protocol, the folder is the same; a collector's table has the schema's plain types."""
    network = generate_network([3, 4, 2], seed=1)
    codes = network.sample_codes(2000, np.random.default_rng(0))
    machine = start("independent", network.schema, 2.0, len(codes))
    simulate(machine, codes, np.random.default_rng(1))
    draw = np.random.default_rng(2), np.random.default_rng(3)
    call = Call(method="independent", epsilon=2.0, rows=10, simulated=False)
    Release.from_machine(machine, call, len(codes), draw).save(tmp_path / "out")
    label = network.schema["x2"].labels[0]
    found = json.loads(asked(capsys, str(tmp_path / "out"), f"x2 == {label!r}", "--json")[0])
    assert abs(found["estimate"] - float((codes[:, 2] == 0).mean())) < 4 * found["standard_error"]


@pytest.mark.parametrize("method", ["jtree-nonprivate", "lopub"])
def test_nobody_is_told_that_replicates_were_made_where_none_can_be(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = generate_network([3, 2], seed=1)
    table = network.table(500, np.random.default_rng(0))
    options = (
        {"epsilon": float("inf"), "no_privacy": True}
        if method == "jtree-nonprivate"
        else {"epsilon": 4.0}
    )
    dither.publish(table, schema=network.schema, method=method, rows=5, **options).save(
        tmp_path / "out"
    )
    label = network.schema["x0"].labels[0]
    told = asked(capsys, str(tmp_path / "out"), f"x0 == {label!r}")[1]
    reason = "made from the true records" if method == "jtree-nonprivate" else "can be computed"
    assert "no interval" in told
    assert reason in told
    assert "has no replicates" not in told


def test_that_replicates_are_made_is_said_before_they_are_all_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = generate_network([3, 2], seed=1)
    table = network.table(500, np.random.default_rng(0))
    release = dither.publish(
        table, schema=network.schema, method="independent", rows=5, epsilon=4.0
    )
    release.save(tmp_path / "out")
    question = [str(tmp_path / "out"), f"x0 == {network.schema['x0'].labels[0]!r}"]
    assert asked(capsys, *question)[1].count("has no replicates") == 1
    assert "has no replicates" not in asked(capsys, *question, "--quiet")[1]

    def stopped(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dither.release.replicates.Bootstrap", stopped)  # made when all of them are
    assert run(["query", *question]) != 0
    assert "has no replicates" in capsys.readouterr().err


def test_control_characters_of_a_folder_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A label or a warning could recolour the terminal or overwrite what stands on it."""
    hostile = "\x1b[31mred\x1b[2J\x9b1m\u202egnp"
    table = pa.table({"colour": [hostile, "blue"] * 50})
    release = dither.publish(table, epsilon=4.0, method="independent", rows=5, seed=1)
    folder = release.save(tmp_path / "out")
    manifest = json.loads((folder / "release.json").read_text())
    manifest["warnings"].append({"code": "method", "message": hostile})
    manifest["method"] = manifest["call"]["method"] = hostile
    (folder / "release.json").write_text(json.dumps(manifest))
    (folder / "state.bin").unlink()
    for words in ([], ["--by", "colour"], ["--by", hostile], [f"colour == {hostile!r}"]):
        run(["query", str(folder), *words])
        printed = "".join(capsys.readouterr())
        assert "red" in printed
        assert all(letter.isprintable() or letter == "\n" for letter in printed)
    loaded = dither.load_release(folder)
    for shown in (repr(loaded), repr(loaded.table("colour")), loaded.report()):
        assert "\x1b" not in shown


def test_a_terminal_gets_escaped_csv(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"colour": ["\x1b[31mred", "blue"] * 50})
    release = dither.publish(table, epsilon=4.0, method="independent", rows=5, seed=1, replicates=5)
    folder = release.save(tmp_path / "out")
    words = ["query", str(folder), "--by", "colour", "--csv"]
    assert run(words) == 0
    assert b"\x1b[31mred" in capsysbinary.readouterr().out, "programs get the label itself"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(words) == 0
    out = capsysbinary.readouterr().out
    assert b"\x1b" not in out
    assert b"\\x1b[31mred" in out
