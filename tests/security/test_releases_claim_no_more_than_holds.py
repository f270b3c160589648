"""What a release says of its protection is true: resampled rows, seeds in the folder, the truth on the page, true counts."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dither
from dither import several_values
from dither.central.curator import central_release
from dither.cli import run
from dither.errors import PrivacyError
from dither.notice import REPLAYABLE, RESAMPLED, SHOWS_TRUTH, shown_epsilon
from dither.release import Call, NumberContent, Release
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("town", "categorical", values=("a", "b", "other")),
        Attribute("age", "numeric", edges=(0, 30, 60, 90)),
    )
)
OPTIONS: dict[str, Any] = {"epsilon": 2.0, "schema": SCHEMA, "method": "independent", "rows": 20}


def people(last: str = "b", rows: int = 400) -> pa.Table:
    return pa.table(
        {"town": ["a", "b"] * (rows // 2 - 1) + ["a", last], "age": [20.0, 70.0] * (rows // 2)}
    )


def plain(page: str) -> str:
    return re.sub(r"<style.*?</style>|<svg.*?</svg>|<[^>]+>", " ", page, flags=re.DOTALL)


@pytest.mark.parametrize("given", [{}, {"population": 3000}])
def test_resampled_rows_are_said_in_all_four_places(
    given: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(people(), tmp_path / "people.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    options = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    command = [
        "publish",
        str(tmp_path / "people.parquet"),
        "--epsilon",
        "2",
        "--method",
        "independent",
    ]
    assert (
        run(
            [
                *command,
                "--schema",
                str(tmp_path / "schema.json"),
                *options,
                "-o",
                str(tmp_path / "out"),
            ]
        )
        == 0
    )
    printed = capsys.readouterr().err
    manifest = json.loads((tmp_path / "out" / "release.json").read_text())
    page = (tmp_path / "out" / "report.html").read_text()
    for notice, holds in ((RESAMPLED, bool(given)), (SHOWS_TRUTH, True), (REPLAYABLE, False)):
        assert (f"dither: warning: {notice.message}\n" in printed) is holds
        assert (notice.to_json() in manifest["warnings"]) is holds
        assert (notice.message[1:] in page) is holds
        assert (notice in dither.load_release(tmp_path / "out").warnings) is holds
    release = dither.publish(people(), **OPTIONS, **given)
    assert (RESAMPLED in release.warnings) is bool(given)


@pytest.mark.parametrize("seed", [None, 5])
def test_private_means_the_same_in_every_manifest(seed: int | None) -> None:
    made = [
        dither.publish(people(), **OPTIONS, seed=seed),
        central_release(
            people(), epsilon=1.0, method="laplace", schema=SCHEMA, seed=seed, replicates=0
        ),
        dither.histogram([20.0, 70.0] * 100, consumers=[3], epsilon=1.0, low=0, high=90, seed=seed),
        several_values(
            [[20.0], [70.0]] * 100, consumers=[3], epsilon=1.0, low=0, high=90, most=2, seed=seed
        ),
    ]
    assert [release.to_json()["private"] for release in made] == [seed is None] * len(made)


@pytest.mark.parametrize("seed", [None, 5])
def test_no_page_promises_to_stand_theft_of_its_own_seed(seed: int | None, tmp_path: Path) -> None:
    release = dither.publish(people(), **OPTIONS, seed=seed)
    assert release.private is (seed is None)
    assert not release.no_privacy
    words = plain(release.report())
    assert ("stolen" in words) is (seed is None)
    assert ("nor against anyone who knows the seed" in words) is (seed is not None)
    assert ("NOT PRIVATE with its seed" in words) is (seed is not None)
    loaded = dither.load_release(release.save(tmp_path / "out"))
    assert loaded.private is release.private
    assert not loaded.no_privacy


def test_a_folder_with_a_seed_warns_whatever_its_manifest_says(tmp_path: Path) -> None:
    folder = dither.publish(people(), **OPTIONS, seed=5, population=500).save(tmp_path / "out")
    manifest = json.loads((folder / "release.json").read_text())
    (folder / "release.json").write_text(json.dumps({**manifest, "warnings": [], "private": True}))
    loaded = dither.load_release(folder)
    assert {REPLAYABLE, RESAMPLED} <= set(loaded.warnings)
    assert not loaded.private


def test_a_record_wise_release_does_not_deny_its_curator(tmp_path: Path) -> None:
    release = central_release(people(), epsilon=1.0, method="csm-records", schema=SCHEMA, seed=1)
    words = plain((release.save(tmp_path / "out") / "report.html").read_text())
    assert "before anyone sees it" not in words + release.cells.trust_model
    assert "A curator who holds the whole table made this release" in words
    assert "curator" in release.cells.trust_model


def test_the_folder_is_the_same_whether_or_not_a_value_lay_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte by byte, with the seed and the clock held still: no file has the true count, or that there was one."""
    monkeypatch.setattr("dither._publish.time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr("dither.release.release.time", SimpleNamespace(perf_counter=lambda: 0.0))
    written = []
    for last in ("other", "Atlantis"):
        release = dither.publish(people(last), **OPTIONS, seed=5, unknown="other")
        assert dict(release.clipped) == ({} if last == "other" else {"town": 1})
        folder = release.save(tmp_path / last, clock=lambda: 0.0)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) > 3
        written.append({path.relative_to(folder): path.read_bytes() for path in files})
        assert not dither.load_release(folder).clipped
    assert written[0] == written[1]
    pq.write_table(people("Atlantis"), tmp_path / "people.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    command = [
        "publish",
        str(tmp_path / "people.parquet"),
        "--epsilon",
        "2",
        "--unknown",
        "other",
        "-o",
    ]
    assert run([*command, str(tmp_path / "cli"), "--schema", str(tmp_path / "schema.json")]) == 0
    assert "town: 1 values outside the domain" in capsys.readouterr().err
    assert "outside the domain" not in (tmp_path / "cli" / "report.html").read_text()


@pytest.mark.parametrize(
    ("policy", "inside", "outside"), [("clip", 90.0, 91.0), ("drop", None, 91.0)]
)
def test_histogram_files_are_the_same_whether_or_not_a_value_lay_outside(
    policy: str, inside: float | None, outside: float, tmp_path: Path
) -> None:
    """A dropped value is compared with one that never was: leaving people out shows in the number of participants alone."""
    written = []
    for last in (inside, outside):
        values = [20.0, 70.0] * 100 + ([] if last is None else [last])
        release = dither.histogram(
            values, consumers=[3, 4], epsilon=1.0, low=0, high=90, seed=5, out_of_range=policy  # type: ignore[arg-type]
        )  # fmt: skip
        assert sum(release.clipped.values()) == int(last == outside)
        folder = release.save(tmp_path / str(last))
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) > 3
        written.append({path.relative_to(folder): path.read_bytes() for path in files})
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("epsilon", "digits", "words"),
    [
        (1.0000003996, 6, "1.00001"),
        (1.0, 6, "1"),
        (0.1, 6, "0.1"),
        (0.30000000000000004, 6, "0.300001"),
        (3.9999999996, 4, "4"),
        (2.00049, 4, "2.001"),
        (12345.6, 4, "1.235e+04"),
        (0.0, 6, "0"),
        (float("inf"), 6, "inf"),
    ],
)
def test_epsilons_are_rounded_up(epsilon: float, digits: int, words: str) -> None:
    assert shown_epsilon(epsilon, digits) == words
    assert float(words) >= epsilon


def test_the_guarantee_states_no_less_than_was_spent() -> None:
    made = dither.histogram([1.0, 2.0], consumers=[2], epsilon=2.0, low=0, high=4)
    assert "epsilon 1.00001," in replace(made, epsilon_achieved=1.0000003996).guarantee


@pytest.mark.parametrize(
    ("name", "method"), [("sue", "summed"), ("oue", "summed"), ("grr", "independent")]
)
def test_several_answers_never_add_up_to_more_than_was_asked(name: str, method: Any) -> None:
    """At epsilons whose share rounds up to that of a law which the thresholds hold exactly."""
    for most in range(2, 20):
        for ratio in (3, 31):
            share = math.log(ratio) * (2 if name == "sue" else 1)
            for epsilon in (share * most, math.nextafter(share * most, 0.0)):
                made = several_values(
                    [[0.1], []], consumers=[1], epsilon=epsilon, low=0, high=1, most=most,
                    method=method, parameters={"mechanism": name},
                )  # fmt: skip
                assert made.epsilon_achieved <= epsilon


def test_a_histogram_that_spent_more_than_asked_is_refused() -> None:
    with pytest.raises(PrivacyError, match="more than the"):
        Release(
            call=Call(epsilon=1.0, method="chp", simulated=True),
            content=NumberContent("number", 0.0, 1.0, (0.0, 1.0)),
            schema=SCHEMA,
            epsilon_achieved=1.0000000000000002,
            participants=1,
            rounds=1,
            rows=0,
        )
