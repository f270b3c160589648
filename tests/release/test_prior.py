"""A public table through `publish` and from a saved release: what is recorded, what the report says, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dither
from dither.cli import run
from dither.datasets import generate_network
from dither.errors import InputError, ParameterError
from dither.schema import decode, plain_layout

pytestmark = pytest.mark.slow

NETWORK = generate_network([3] * 5, parents=1, strength=1.5, seed=2)
OPTIONS: dict[str, Any] = {
    "schema": NETWORK.schema,
    "parameters": {"rounds": 1, "total": 24, "components": 8},
}


def table(rows: int, seed: int) -> Any:
    codes = NETWORK.sample_codes(rows, np.random.default_rng(seed))
    return decode(codes, NETWORK.schema, plain_layout(NETWORK.schema), np.random.default_rng(0))


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("public") / "census.parquet"
    pq.write_table(table(2_000, 7), path)
    return path


@pytest.fixture(scope="module")
def release(public: Path) -> dither.Release:
    return dither.publish(table(4_000, 1), epsilon=2.0, seed=3, rows=50, prior=public, **OPTIONS)


def test_a_release_says_where_its_prior_came_from(
    release: dither.Release, public: Path, tmp_path: Path
) -> None:
    folder = release.save(tmp_path / "out")
    manifest = json.loads((folder / "release.json").read_text())
    said = manifest["notes"]["prior"]
    assert said["sha256"] == hashlib.sha256(public.read_bytes()).hexdigest()
    assert (said["source"], said["rows"]) == (str(public), 2_000)
    assert said["share_of_prior"] > 0.1
    assert manifest["call"]["prior"] == str(public)
    assert manifest["epsilon_achieved"] <= 2.0
    page = (folder / "report.html").read_text()
    assert "What was known beforehand" in page
    assert f"{said['share_of_prior']:.0%} of the result" in page
    assert "It has no part in the result" not in page
    again = dither.load_release(folder)
    found = dither.bootstrap(again, [NETWORK.schema.names[:2]], replicates=5)[0]
    assert (found.low <= found.high).all()


def test_the_report_of_a_prior_without_a_share_does_not_say_that_it_was_used(
    tmp_path: Path,
) -> None:
    wrong = table(500, 7).slice(0, 1)
    pq.write_table(pa.concat_tables([wrong] * 500), tmp_path / "wrong.parquet")
    one = dither.publish(
        table(40_000, 1), epsilon=4.0, seed=3, rows=50, prior=tmp_path / "wrong.parquet", **OPTIONS
    )
    assert one.notes["prior"]["share_of_prior"] == 0
    page = (one.save(tmp_path / "out") / "report.html").read_text()
    assert "It has no part in the result" in page
    assert "0% of the result" not in page


def test_a_collected_release_is_fitted_again_with_a_prior(
    release: dither.Release, public: Path
) -> None:
    without = dither.publish(table(4_000, 1), epsilon=2.0, seed=3, rows=50, **OPTIONS)
    assert "prior" not in without.notes
    given = without.with_prior(public)
    names = NETWORK.schema.names[:2]
    assert np.allclose(given.marginal(names).frequencies, release.marginal(names).frequencies)
    assert given.call.prior == str(public)
    assert given.epsilon_achieved == without.epsilon_achieved


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (
            lambda t: t.drop_columns([NETWORK.schema.names[2]]),
            f"the table has no column '{NETWORK.schema.names[2]}'",
        ),
        (
            lambda t: t.set_column(0, NETWORK.schema.names[0], pa.array(["nowhere"] * t.num_rows)),
            "value 'nowhere' is not in the schema's domain",
        ),
        (lambda t: t.slice(0, 0), "has no rows"),
    ],
)
def test_a_prior_of_another_schema_is_one_clear_line(
    public: Path, tmp_path: Path, spoil: Any, line: str
) -> None:
    bad = tmp_path / "bad.parquet"
    pq.write_table(spoil(pq.read_table(public)), bad)
    with pytest.raises(InputError) as caught:
        dither.publish(table(500, 1), epsilon=2.0, prior=bad, **OPTIONS)
    assert str(caught.value).startswith(f"prior {bad}")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_that_the_schema_lacks_are_left_out_and_methods_without_a_use_refuse(
    public: Path,
) -> None:
    wider = pq.read_table(public).append_column("more", pa.array(range(2_000)))
    made = dither.publish(table(2_000, 1), epsilon=2.0, rows=10, prior=wider, **OPTIONS)
    assert made.notes["prior"]["source"] == "a table in memory"
    with pytest.raises(ParameterError, match="takes no prior"):
        dither.publish(
            table(500, 1), epsilon=2.0, method="independent", schema=NETWORK.schema, prior=public
        )
    with pytest.raises(ParameterError, match="leave prior out"):
        dither.publish(
            table(500, 1),
            epsilon=2.0,
            method="jtree-nonprivate",
            no_privacy=True,
            schema=NETWORK.schema,
            prior=public,
        )


def test_the_command_line_takes_a_prior_and_writes_nothing_where_it_is_wrong(
    public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(table(1_000, 1), tmp_path / "mine.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(NETWORK.schema.to_json()))
    asked = [
        "publish",
        str(tmp_path / "mine.parquet"),
        "--schema",
        str(tmp_path / "schema.json"),
        "--epsilon",
        "2",
    ]
    asked += ["--set", "rounds=1", "--set", "total=24", "--set", "components=8", "--rows", "10"]
    assert run([*asked, "--prior", str(public), "-o", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "release.json").read_text())["call"]["prior"] == str(
        public
    )
    capsys.readouterr()
    assert run([*asked, "--prior", "nowhere.csv", "-o", str(tmp_path / "no")]) == 2
    assert "prior nowhere.csv: file not found" in capsys.readouterr().err
    assert run([*asked, "--prior", str(tmp_path), "-o", str(tmp_path / "no")]) == 2
    assert "is a folder without a state.bin" in capsys.readouterr().err
    other = ["publish", str(tmp_path / "mine.parquet"), "--epsilon", "2", "--set", "rounds=1"]
    assert run([*other, "--prior", str(tmp_path / "out"), "-o", str(tmp_path / "no")]) == 2
    assert "is a release of another schema" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
