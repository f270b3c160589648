"""Replicates as bytes: read back exactly, small, and damaged ones are one clear error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.saved_releases import forget_digests

import dither
from dither.errors import InputError, ParameterError, ReportError
from dither.release import Bootstrap, Release, pack_replicates, unpack_replicates
from dither.tally import pack, unpack


@pytest.fixture(scope="module")
def release() -> Release:
    bundled = dither.load_dataset("adult")
    names = ["education", "sex", "income", "race"]
    schema = dither.Schema(tuple(bundled.schema[name] for name in names))
    table = bundled.table.select(names).slice(0, 20_000)
    options = {"parameters": {"total": 40}, "rows": 50, "seed": 1, "replicates": 5}
    return dither.publish(table, epsilon=4.0, schema=schema, **options)


def _made(release: Release) -> Bootstrap:
    assert release.replicates is not None
    return release.replicates


def test_answers_are_the_same_after_loading(release: Release, tmp_path: object) -> None:
    folder = release.save(f"{tmp_path}/out")
    again = dither.load_release(folder)
    for names in (["sex"], ["education", "income"], ["education", "sex", "income"]):
        was, now = _made(release).interval(names), _made(again).interval(names)
        assert was.to_json() == now.to_json()
        assert np.array_equal(again.marginal(names).standard_errors, was.standard_errors)
    assert json.loads((folder / "release.json").read_text())["replicates"] == 5
    assert again.call.replicates == 5


def test_single_precision_moves_no_figure(release: Release) -> None:
    found = _made(release)
    doubled = dither.bootstrap(release, [["education", "income"]], replicates=5)[0]
    kept = found.interval(["education", "income"])
    assert kept.standard_errors == pytest.approx(doubled.standard_errors, rel=1e-3)


def test_damaged_replicates_are_one_clear_error(release: Release, tmp_path: object) -> None:
    data = pack_replicates(_made(release))
    meta, arrays = unpack(data)
    first = next(iter(arrays))
    wrong = [
        data[:-5],
        b"",
        pack({**meta, "format": "other"}, arrays),
        pack({**meta, "models": meta["models"][:1]}, arrays),
        pack({**meta, "models": [{"kind": "unknown", "arrays": []}] * 5}, arrays),
        pack({**meta, "pairs": [["sex", "nobody", 0.1, 1.0, 0.0]]}, arrays),
        pack({**meta, "pairs": [["sex", "race", -1.0, 1.0, 0.0]]}, arrays),
        pack({**meta, "pairs": [["sex", "race", 0.1, 1.0, 7.0]]}, arrays),
        pack({**meta, "asked": [["sex", "sex"]]}, arrays),
        pack({**meta, "typical": "much"}, arrays),
        pack(meta, {**arrays, first: np.full_like(arrays[first], np.nan)}),
        pack(meta, {**arrays, first: arrays[first][:1]}),
        pack({key: value for key, value in meta.items() if key != "learnt"}, arrays),
    ]
    for bad in wrong:
        with pytest.raises((ReportError, InputError)):
            unpack_replicates(bad, release.model, None)
    folder = forget_digests(release.save(f"{tmp_path}/out"))
    (folder / "replicates.bin").write_bytes(data[:-5])
    with pytest.raises(InputError, match="not a whole release"):
        dither.load_release(folder)


def test_replicates_of_another_release_are_refused(release: Release, tmp_path: Path) -> None:
    """Their tables have the same shape, and every interval would be of other people."""
    parameters = {"total": 40}
    table = release.synthetic
    other = dither.publish(
        table, epsilon=1.0, schema=release.schema, parameters=parameters, rows=5, replicates=5
    )
    folder = forget_digests(release.save(tmp_path / "out"))
    (folder / "replicates.bin").write_bytes(pack_replicates(_made(other)))
    with pytest.raises(InputError, match="another release"):
        dither.load_release(folder)


def test_replicates_that_cannot_be_had_are_refused_before_anybody_is_asked() -> None:
    with pytest.raises(ParameterError, match="replicates"):
        dither.publish("adult", epsilon=2.0, replicates=3)
    with pytest.raises(ParameterError, match="tallies whole reports"):
        dither.publish("adult", epsilon=2.0, method="lopub", replicates=5)
