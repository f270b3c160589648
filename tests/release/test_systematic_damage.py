"""Folders of all three kinds damaged file by file and value by value: one error class that names the file."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.saved_releases import forget_digests

import dither
from dither.errors import InputError

pytestmark = pytest.mark.slow
DELETED = object()
WRONG = (None, -1, 10**400, 1e308, "x", [], {"x": 1}, DELETED)
Load = Callable[[Path], Any]
LOADERS: dict[str, Load] = {
    "table": dither.load_release,
    "histogram": dither.load_release,
    "ranges": dither.load_release,
    "central": dither.load_release,
}
# What a folder can do without: pages and figures for people, and what only some releases have.
OPTIONAL = {
    "table": {"report.html", "state.bin", "replicates.bin"},
    "histogram": {"report.html", "cells.bin"},
    "ranges": {"report.html", "cells.bin"},
    "central": {"report.html"},
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound folder of each kind."""
    home = tmp_path_factory.mktemp("golden")
    table = pa.table({"a": ["x", "y"] * 200, "b": ["u", "v", "v", "u"] * 100})
    options = {"rows": 5, "seed": 1, "replicates": 5, "holdout": 0.2}
    dither.publish(table, epsilon=2.0, method="independent", **options).save(home / "table")
    numbers = {"consumers": [2, 4], "epsilon": 2.0, "low": 0, "high": 4}
    dither.histogram([1.0, 2.0, 3.0] * 40, **numbers).save(home / "histogram")
    dither.histogram([1.0, 2.0, 3.0] * 40, method="ranges", **numbers).save(home / "ranges")
    dither.central_release("adult", epsilon=1.0, method="laplace", columns=["sex", "income"]).save(
        home / "central"
    )
    for folder in home.iterdir():
        forget_digests(folder)
    return home


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value but the whole; of a list, of its first and last entries."""
    if isinstance(node, dict):
        inside = list(node.items())
    elif isinstance(node, list):
        inside = [(i, node[i]) for i in sorted({0, len(node) - 1}) if node]
    else:
        inside = []
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def edited(sound: str, place: tuple[Any, ...], value: object) -> str:
    """A JSON document with one value replaced or deleted."""
    document = json.loads(sound)
    holder = document
    for step in place[:-1]:
        holder = holder[step]
    if value is DELETED:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return json.dumps(document)


def refused(load: Load, folder: Path) -> str | None:
    """Why a folder is refused when it is read or shown, None if it is not; any other error goes through."""
    try:
        load(folder).report()
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "release.json") for kind in LOADERS),
        ("table", "schema.json"),
        ("central", "schema.json"),
    ],
)
def test_wrong_values_are_one_error_when_a_folder_is_read_or_shown(
    kind: str, name: str, golden: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(golden / kind, tmp_path / "out"))
    sound = (folder / name).read_text()
    assert refused(LOADERS[kind], folder) is None, "sound as it is"
    reasons = []
    cases = list(itertools.product(places(json.loads(sound)), WRONG))
    # A report about ranges takes long to make, and most of its manifest is that of every histogram: a part of the cases.
    for place, value in cases[:: 7 if kind == "ranges" else 1]:
        (folder / name).write_text(edited(sound, place, value))
        try:
            reasons.append(refused(LOADERS[kind], folder))
        except Exception as error:
            error.add_note(f"{name}: {'.'.join(map(str, place))} = {value!r:.40}")
            raise
    told = [reason for reason in reasons if reason is not None]
    assert len(told) > len(reasons) / 4, "most damage is noticed"
    assert all(".json" in reason for reason in told), "the file is named"


@pytest.mark.parametrize("kind", LOADERS)
def test_missing_and_truncated_files_are_one_error_that_names_them(
    kind: str, golden: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(golden / kind, tmp_path / "out"))
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            continue
        sound = path.read_bytes()
        path.unlink()
        reason = refused(LOADERS[kind], folder)
        assert (reason is None) == (path.name in OPTIONAL[kind]), path.name
        assert reason is None or path.name in reason
        for length in (0, 1, len(sound) // 2, len(sound) - 2):
            path.write_bytes(sound[:length])
            reason = refused(LOADERS[kind], folder)
            assert (reason is None) == (path.name == "report.html"), (path.name, length)
            assert reason is None or path.name in reason
        path.write_bytes(sound)
    assert refused(LOADERS[kind], folder) is None
