"""A histogram's folder: whole or not at all, and read back with everything that late answers need."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.errors import InputError
from dither.notice import REPLAYABLE
from dither.release.consumer_files import file_names
from dither.release.histogram import HistogramRelease

VALUES = np.random.default_rng(7).beta(2, 5, 4000) * 10


def collected(method: str, **options: object) -> HistogramRelease:
    consumers = [5] if method == "shp" else [5, [0, 1, 4, 10]]
    return dither.histogram(
        VALUES, consumers=consumers, epsilon=2.0, low=0, high=10, method=method, seed=3, **options
    )


@pytest.mark.parametrize("method", ["shp", "chp", "smart", "split", "sampled", "ranges"])
@pytest.mark.parametrize("consistent", [False, True])
def test_a_saved_histogram_reads_back(method: str, consistent: bool, tmp_path: Path) -> None:
    release = collected(method, consistent=consistent)
    again = HistogramRelease.load(release.save(tmp_path / "deep" / "out"))
    assert again.to_json() == release.to_json()
    assert again.warnings == release.warnings
    assert again.report() == release.report()
    for was, now in zip(release.consumers, again.consumers, strict=True):
        assert was.estimates.tolist() == now.estimates.tolist()
        assert was.raw.tolist() == now.raw.tolist()
    was, now = release.answer(7), again.answer(7)
    assert was.to_json() == now.to_json()
    assert again.range(2, 5).to_json() == release.range(2, 5).to_json()


def test_what_lies_beside_a_histogram_is_kept_and_another_kind_is_not_overwritten(
    tmp_path: Path,
) -> None:
    release = collected("chp")
    out = release.save(tmp_path / "out")
    (out / "mine.txt").write_text("keep me")
    with pytest.raises(InputError, match="out holds a release"):
        release.save(out)
    replace(collected("split"), cells=None).save(out, overwrite=True)
    assert sorted(p.name for p in out.iterdir()) == [
        "consumers",
        "mine.txt",
        "release.json",
        "report.html",
    ], "no cells of before"
    other = dither.central_release(
        pa.table({"a": ["x", "y"] * 30}), epsilon=1.0, method="laplace", seed=1
    )
    with pytest.raises(InputError, match="another kind"):
        other.save(out, overwrite=True)
    with pytest.raises(InputError, match="another kind"):
        release.save(other.save(tmp_path / "central"), overwrite=True)


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a release"):
        HistogramRelease.load(tmp_path / "nowhere")
    out = collected("chp").save(tmp_path / "out")
    cells = (out / "cells.bin").read_bytes()
    (out / "cells.bin").write_bytes(cells[:-3])
    with pytest.raises(InputError, match="damaged"):
        HistogramRelease.load(out)
    (out / "cells.bin").unlink()
    assert HistogramRelease.load(out).cells is None
    manifest = json.loads((out / "release.json").read_text())
    for change, words in (
        ({"format": "x"}, "dither-histogram-1"),
        ({"consumers": [{}]}, "edges"),
        ({"range": 3}, "release.json is damaged"),
    ):
        (out / "release.json").write_text(json.dumps(manifest | change))
        with pytest.raises(InputError, match=words):
            HistogramRelease.load(out)


def test_a_seed_that_was_written_is_warned_of_whatever_the_manifest_says(tmp_path: Path) -> None:
    out = collected("chp").save(tmp_path / "out")
    manifest = json.loads((out / "release.json").read_text())
    (out / "release.json").write_text(json.dumps(manifest | {"warnings": []}))
    assert REPLAYABLE in HistogramRelease.load(out).warnings


def test_a_failure_while_writing_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = collected("chp")
    out = release.save(tmp_path / "out")
    before = {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}

    def jam(release: HistogramRelease) -> str:
        raise RuntimeError("paper jam")

    monkeypatch.setattr(HistogramRelease, "report", jam)
    with pytest.raises(RuntimeError, match="paper jam"):
        replace(release, consistent=True).save(out, overwrite=True)
    assert {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_names_of_consumers_become_files_that_stay_in_the_folder() -> None:
    names = [
        "../../etc/passwd",
        "a/b\\c",
        "",
        "...",
        "CON",
        "con",
        "café ☃",
        "x" * 500,
        "3 bins",
        "3  bins",
        ".htaccess",
        "a\0b\n",
    ]
    files = file_names(names)
    assert len({name.lower() for name in files}) == len(names)
    for name in files:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name), name
        assert len(name) < 70
    assert files[0] == "etc-passwd"
    assert files[4] == "consumer-CON"
    assert file_names(["3 bins", "5 bins"]) == ["3-bins", "5-bins"]
