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
from dither.release import Release

VALUES = np.random.default_rng(7).beta(2, 5, 4000) * 10


def collected(method: str, **options: object) -> Release:
    consumers = [5] if method == "shp" else [5, [0, 1, 4, 10]]
    return dither.histogram(
        VALUES, consumers=consumers, epsilon=2.0, low=0, high=10, method=method, seed=3, **options
    )


@pytest.mark.parametrize("method", ["shp", "chp", "smart", "split", "sampled", "ranges"])
@pytest.mark.parametrize("consistent", [False, True])
def test_a_saved_histogram_reads_back(method: str, consistent: bool, tmp_path: Path) -> None:
    release = collected(method, consistent=consistent)
    again = Release.load(release.save(tmp_path / "deep" / "out"))
    assert again.to_json() == release.to_json()
    assert again.warnings == release.warnings
    assert again.report() == release.report()
    for was, now in zip(release.consumers, again.consumers, strict=True):
        assert was.estimates.tolist() == now.estimates.tolist()
        assert was.raw.tolist() == now.raw.tolist()
    was, now = release.number.answer(7), again.number.answer(7)
    assert was.to_json() == now.to_json()
    assert again.number.range(2, 5).to_json() == release.number.range(2, 5).to_json()


def test_an_earlier_release_is_replaced_whole_and_files_beside_it_are_kept(
    tmp_path: Path,
) -> None:
    release = collected("chp")
    out = release.save(tmp_path / "out")
    (out / "mine.txt").write_text("keep me")
    with pytest.raises(InputError, match="out holds a release"):
        release.save(out)
    split = collected("split")
    bare = replace(split, content=replace(split.number, cells=None))
    bare.save(out, overwrite=True)
    assert sorted(p.name for p in out.iterdir()) == [
        "consumers",
        "mine.txt",
        "release.json",
        "report.html",
        "schema.json",
    ], "no cells of before"
    other = dither.central_release(
        pa.table({"a": ["x", "y"] * 30}), epsilon=1.0, method="laplace", seed=1
    )
    other.save(out, overwrite=True)
    assert sorted(p.name for p in out.iterdir()) == [
        "deviations.bin",
        "histogram.parquet",
        "mine.txt",
        "release.json",
        "report.html",
        "schema.json",
        "synthetic.parquet",
    ], "one kind replaces another whole"


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a release"):
        Release.load(tmp_path / "nowhere")
    out = collected("chp").save(tmp_path / "out")
    cells = (out / "cells.bin").read_bytes()
    (out / "cells.bin").write_bytes(cells[:-3])
    with pytest.raises(InputError, match="damaged"):
        Release.load(out)
    (out / "cells.bin").unlink()
    assert Release.load(out).number.cells is None
    manifest = json.loads((out / "release.json").read_text())
    for change, words in (
        ({"format": "x"}, "dither-release-2"),
        ({"consumers": [{}]}, "edges"),
        ({"range": 3}, "release.json is damaged"),
    ):
        (out / "release.json").write_text(json.dumps(manifest | change))
        with pytest.raises(InputError, match=words):
            Release.load(out)


def test_a_seed_that_was_written_is_warned_of_whatever_the_manifest_says(tmp_path: Path) -> None:
    out = collected("chp").save(tmp_path / "out")
    manifest = json.loads((out / "release.json").read_text())
    (out / "release.json").write_text(json.dumps(manifest | {"warnings": []}))
    assert REPLAYABLE in Release.load(out).warnings


def test_a_failure_while_writing_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = collected("chp")
    out = release.save(tmp_path / "out")
    before = {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}

    def jam(release: Release) -> str:
        raise RuntimeError("paper jam")

    monkeypatch.setattr(Release, "report", jam)
    changed = replace(release, content=replace(release.number, consistent=True))
    with pytest.raises(RuntimeError, match="paper jam"):
        changed.save(out, overwrite=True)
    assert {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_names_of_consumers_become_files_that_stay_in_the_folder(tmp_path: Path) -> None:
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
    release = collected("shp")
    consumers = tuple(replace(release.consumers[0], name=name) for name in names)
    out = replace(release, content=replace(release.number, consumers=consumers)).save(
        tmp_path / "out"
    )
    written = list(tmp_path.rglob("*.csv"))
    assert {path.parent for path in written} == {out / "consumers"}
    files = {path.stem for path in written}
    assert len({name.lower() for name in files}) == len(names)
    for name in files:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name), name
        assert len(name) < 70
    assert {"etc-passwd", "consumer-CON", "3-bins", "3-bins-2"} <= files
