"""The folder of a release: whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.errors import InputError
from dither.notice import Notice
from dither.release import Release, check_target, load_release

FILES = {
    "synthetic.parquet",
    "release.json",
    "report.html",
    "schema.json",
    "model.bin",
    "measured.bin",
}


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes()
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }


@pytest.fixture(autouse=True)
def quick_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are tested elsewhere."""
    monkeypatch.setattr(
        "dither.release.release.render_body", lambda release, body: f"<html>{release.method}</html>"
    )


def test_a_saved_release_reads_back(make_release: Callable[..., Release], tmp_path: Path) -> None:
    release = make_release(
        population=99, schema_file="s.json", warnings=[Notice("care", "careful")]
    )
    ticks = count(0.0, 2.5)
    path = release.save(tmp_path / "deep" / "out", clock=lambda: next(ticks))
    assert path == tmp_path / "deep" / "out"
    assert {p.name for p in path.iterdir()} == FILES
    assert os.listdir(path.parent) == ["out"]
    assert pq.read_table(path / "synthetic.parquet").equals(release.synthetic)
    manifest = json.loads((path / "release.json").read_text())
    assert manifest["seconds"] == {"read": 0.25, "fit": 1.5, "report": 2.5}

    again = load_release(path)
    digests = manifest.pop("files")
    assert digests == {
        name: hashlib.sha256((path / name).read_bytes()).hexdigest()
        for name in ("synthetic.parquet", "model.bin", "measured.bin")
    }
    assert again.to_json() == manifest
    assert again.synthetic.equals(release.synthetic)
    assert again.schema == release.schema
    assert again.model.to_bytes() == release.model.to_bytes()
    assert list(again.asked) == list(release.asked)
    for was, now in zip(release.measured, again.measured, strict=True):
        assert (was.attributes, was.n, was.sample_size) == (now.attributes, now.n, now.sample_size)
        assert np.array_equal(was.frequencies, now.frequencies)
        assert np.array_equal(was.standard_errors, now.standard_errors)


def test_an_earlier_release_is_replaced_and_what_lies_beside_it_kept(
    make_release: Callable[..., Release], tmp_path: Path
) -> None:
    target = tmp_path / "out"
    make_release().save(target)
    (target / "mine.txt").write_text("keep me")
    before = contents(target)
    for directory in (target, str(target)):
        with pytest.raises(
            InputError, match=r"out holds a release; .* --overwrite \(Python: overwrite=True\)"
        ):
            make_release(seed=8).save(directory)
    assert contents(target) == before
    make_release(seed=8).save(target, overwrite=True)
    assert json.loads((target / "release.json").read_text())["seed"] == 8
    assert (target / "mine.txt").read_text() == "keep me"
    assert os.listdir(tmp_path) == ["out"]


def test_an_empty_folder_is_filled(make_release: Callable[..., Release], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    make_release().save(tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == FILES


def test_a_foreign_folder_or_a_file_is_refused_untouched(
    make_release: Callable[..., Release], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    before = contents(tmp_path)
    for name in ("out", "file"):
        with pytest.raises(InputError, match=name):
            make_release().save(tmp_path / name)
        with pytest.raises(InputError, match=name):
            check_target(tmp_path / name)
    assert contents(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["file", "out"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failure_while_writing_changes_nothing(
    error: type[BaseException],
    existing: bool,
    make_release: Callable[..., Release],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if existing:
        make_release().save(tmp_path / "out")
    before = contents(tmp_path)

    def fail(release: Release, body: object) -> str:
        assert any(name.startswith(".out.tmp-") for name in os.listdir(tmp_path))
        raise error("paper jam")

    monkeypatch.setattr("dither.release.release.render_body", fail)
    with pytest.raises(error, match="paper jam"):
        make_release(seed=9).save(tmp_path / "out", overwrite=True)
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == (["out"] if existing else [])


def test_a_failure_while_swapping_puts_the_earlier_release_back(
    make_release: Callable[..., Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    make_release().save(target)
    (target / "mine.txt").write_text("keep me")
    before = contents(tmp_path)
    real = os.replace

    def replace(source: Path, destination: Path) -> None:
        if Path(source).name.startswith(".out.tmp-"):
            raise OSError(28, "No space left on device")
        real(source, destination)

    monkeypatch.setattr("dither.release.folder.os.replace", replace)
    with pytest.raises(OSError, match="No space"):
        make_release(seed=9).save(target, overwrite=True)
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == ["out"]


def test_damaged_folders_are_named(make_release: Callable[..., Release], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a release"):
        load_release(tmp_path / "nowhere")
    target = make_release().save(tmp_path / "out")
    model = (target / "model.bin").read_bytes()
    (target / "model.bin").write_bytes(model[:-3])
    with pytest.raises(InputError, match="damaged"):
        load_release(target)
    (target / "model.bin").unlink()
    with pytest.raises(InputError, match=r"model\.bin"):
        load_release(target)
    (target / "release.json").write_text('{"format": "dither-release-1"}')
    with pytest.raises(InputError, match="call"):
        load_release(target)
    (target / "release.json").write_text('{"format": "other"}')
    with pytest.raises(InputError, match="dither-release-2"):
        load_release(target)
    (target / "release.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        load_release(target)


def test_a_pandas_table_is_written_too(
    make_release: Callable[..., Release], tmp_path: Path
) -> None:
    table = pa.table({"colour": ["red"], "<b>x</b>": [True], "age": [17]})
    path = make_release(synthetic=table.to_pandas()).save(tmp_path / "out")
    assert load_release(path).synthetic.to_pylist() == table.to_pylist()


def test_the_three_kinds_are_told_apart_and_have_one_interface(tmp_path: Path) -> None:
    import dither

    table, name = [1.0, 2.0, 3.0] * 30, "sex"
    kinds = {
        "release": dither.publish("adult", epsilon=1.0, method="independent", rows=5, seed=1),
        "histogram": dither.histogram(table, consumers=[2], epsilon=1.0, low=0, high=4, seed=1),
        "central": dither.central_release(
            "adult", epsilon=1.0, method="laplace", columns=[name], seed=1
        ),
    }
    for kind, release in kinds.items():
        folder = release.save(tmp_path / kind)
        again = load_release(folder)
        manifest = json.loads((folder / "release.json").read_text())
        assert again.to_json() == {k: v for k, v in manifest.items() if k != "files"}
        assert "<html" in again.report()
        assert again.method == release.method
        assert [w.code for w in again.warnings] == [w.code for w in release.warnings]
        assert dict(again.notes).keys() == dict(release.notes).keys()
        assert again.marginal(again.schema.names[0]).frequencies.sum() == pytest.approx(1.0)
        for other in kinds.values():
            with pytest.raises(InputError, match="holds a release"):
                other.save(folder)
    # One kind replaces another, and none of its files is left.
    kinds["histogram"].save(tmp_path / "release", overwrite=True)
    assert not (tmp_path / "release" / "model.bin").exists()
    assert load_release(tmp_path / "release").kind == "number"
