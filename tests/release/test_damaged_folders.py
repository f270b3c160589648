"""Folders that somebody else wrote or damaged: one clear error when they are read, whatever is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.saved_releases import forget_digests

import dither
from dither.errors import DitherError, InputError
from dither.methods import restore
from dither.release import Release
from dither.tally import pack, unpack

HUGE = 10**400
Edit = Callable[[dict[str, Any]], object]


def published(folder: Path) -> Callable[[Path], Any]:
    table = {"a": ["x", "y"] * 50, "b": ["u", "v", "v", "u"] * 25}
    release = dither.publish(pa.table(table), epsilon=2.0, method="independent", rows=5)
    forget_digests(release.save(folder))
    return dither.load_release


def counted(folder: Path) -> Callable[[Path], Any]:
    numbers = [1.0, 2.0, 3.0] * 40
    release = dither.histogram(numbers, consumers=[2, 4], epsilon=2.0, low=0, high=4)
    forget_digests(release.save(folder))
    return dither.load_release


def curated(folder: Path) -> Callable[[Path], Any]:
    release = dither.central_release("adult", epsilon=1.0, method="laplace", columns=["sex"])
    forget_digests(release.save(folder))
    return dither.load_release


EVERY: dict[str, Edit] = {
    "format is a list": lambda m: m.update(format=[]),
    "format is an object": lambda m: m.update(format={}),
    "epsilon is negative": lambda m: m.update(epsilon_achieved=-5),
    "epsilon is true": lambda m: m.update(epsilon_achieved=True),
    "epsilon is huge": lambda m: m.update(epsilon_achieved=HUGE),
    "epsilon above what was asked": lambda m: m.update(epsilon_achieved=99.0),
    "no call": lambda m: m.pop("call"),
    "call is a list": lambda m: m.update(call=[]),
    "call is empty": lambda m: m.update(call={}),
    "warnings are text": lambda m: m.update(warnings=["x"]),
}
HISTOGRAM: dict[str, Edit] = {
    "range is empty": lambda m: m.update(range=[]),
    "range is infinite": lambda m: m.update(range=[0, float("inf")]),
    "range is not a number": lambda m: m.update(range=[float("nan"), 4]),
    "range is empty by its order": lambda m: m.update(range=[4, 0]),
    "partition is infinite": lambda m: m.update(partition=[0, 2, float("inf")]),
    "participants are text": lambda m: m.update(participants="x"),
    "bits are a list": lambda m: m.update(bits_per_report=[]),
    "edges are huge": lambda m: m["consumers"][0].update(edges=HUGE),
    "fewer counts than bins": lambda m: m["consumers"][0].update(estimates=[1.0]),
}
RELEASE: dict[str, Edit] = {
    "notes are null": lambda m: m.update(notes=None),
    "participants are text": lambda m: m.update(participants="x"),
    "participants are negative": lambda m: m.update(participants=-5),
    "participants are infinite": lambda m: m.update(participants=float("inf")),
    "participants are true": lambda m: m.update(participants=True),
    "rounds are null": lambda m: m.update(rounds=None),
    "seconds are a number": lambda m: m.update(seconds=1.5),
    "seconds are text": lambda m: m.update(seconds={"fit": "long"}),
    "description is a list": lambda m: m.update(description=[]),
    "another schema": lambda m: m.update(schema_fingerprint="0" * 64),
    "another method": lambda m: m["call"].update(method="mixture"),
    "a larger epsilon than the protocol's": lambda m: m["call"].update(epsilon=3.0),
    "sizes are null": lambda m: m["asked"][0].update(questions_by_size=None),
    "asked epsilon is huge": lambda m: m["asked"][0].update(epsilon=HUGE),
    "call's epsilon is huge": lambda m: m["call"].update(epsilon=HUGE),
}


@pytest.mark.parametrize(
    ("make", "edit"),
    [
        *[(make, edit) for make in (published, counted, curated) for edit in EVERY.values()],
        *[(counted, edit) for edit in HISTOGRAM.values()],
        *[(published, edit) for edit in RELEASE.values()],
    ],
)
def test_a_damaged_manifest_is_one_clear_error(
    make: Callable[..., Any], edit: Edit, tmp_path: Path
) -> None:
    load = make(tmp_path / "out")
    path = tmp_path / "out" / "release.json"
    load(tmp_path / "out")  # whole as it is
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(DitherError):
        load(tmp_path / "out")


@pytest.mark.parametrize("make", [published, counted, curated])
def test_nested_without_end(make: Callable[..., Any], tmp_path: Path) -> None:
    load = make(tmp_path / "out")
    (tmp_path / "out" / "release.json").write_text("[" * 200_000)
    with pytest.raises(DitherError, match="is not JSON"):
        load(tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "value"),
    [("asked", 0), ("population", "x"), ("edges", []), ("edges", [1.0]), ("edges", [0.0, 1e200])],
)
def test_damaged_cells(key: str, value: object, tmp_path: Path) -> None:
    load = counted(tmp_path / "out")
    path = tmp_path / "out" / "cells.bin"
    meta, arrays = unpack(path.read_bytes())
    path.write_bytes(pack({**meta, key: value}, arrays))
    with pytest.raises(DitherError):
        load(tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epsilon", None),
        ("epsilon", "x"),
        ("parameters", 3),
        ("rounds", "x"),
        ("rounds", 9),
        ("holdout", "x"),
        ("schema", []),
    ],
)
def test_a_damaged_state(key: str, value: object, tmp_path: Path) -> None:
    published(tmp_path / "out")
    state = (tmp_path / "out" / "state.bin").read_bytes()
    restore(state)
    meta, arrays = unpack(state)
    with pytest.raises(DitherError):
        restore(pack({**meta, key: value}, arrays))
    del meta["epsilon"]
    with pytest.raises(DitherError):
        restore(pack(meta, arrays))


def test_numbers_of_numpy_are_recorded_as_plain_ones(tmp_path: Path) -> None:
    one = np.int64(1)
    release = dither.publish(
        pa.table({"a": ["x", "y"] * 20}),
        epsilon=1.0,
        method="independent",
        rows=np.int64(3),
        seed=one,
        holdout=np.float64(0.1),
    )
    assert (type(release.call.seed), type(release.call.rows), type(release.call.holdout)) == (
        int,
        int,
        float,
    )
    release.save(tmp_path / "a")
    dither.histogram([1.0, 2.0] * 50, consumers=[3], epsilon=1, low=0, high=4, seed=one).save(
        tmp_path / "b"
    )
    dither.central_release("adult", epsilon=1.0, method="laplace", columns=["sex"], seed=one).save(
        tmp_path / "c"
    )
    dither.several_values(
        [[1.0], [2.0]] * 20, consumers=[2], epsilon=1, low=0, high=4, most=1, seed=one
    ).save(tmp_path / "d")


@pytest.mark.parametrize(
    "name",
    ["release.json", "schema.json", "model.bin", "measured.bin", "state.bin", "synthetic.parquet"],
)
def test_a_file_of_another_release(name: str, tmp_path: Path) -> None:
    """The guarantee of one release says nothing about another's figures."""
    load = published(tmp_path / "out")
    other = {"a": ["x", "y", "z", "y"] * 25, "c": ["u", "v", "w", "w"] * 25}
    dither.publish(pa.table(other), epsilon=8.0, method="independent", rows=5).save(
        tmp_path / "other"
    )
    (tmp_path / "out" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(DitherError):
        load(tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("table", "model.bin"),
        ("table", "measured.bin"),
        ("table", "state.bin"),
        ("table", "synthetic.parquet"),
        ("number", "cells.bin"),
        ("cells", "histogram.parquet"),
        ("cells", "deviations.bin"),
        ("cells", "synthetic.parquet"),
    ],
)
def test_a_file_of_another_release_with_the_same_schema(
    kind: str, name: str, tmp_path: Path
) -> None:
    table = pa.table({"a": ["x", "y"] * 50})
    make: dict[str, Callable[[int], Release]] = {
        "table": lambda seed: dither.publish(
            table, epsilon=2.0, method="independent", rows=9, seed=seed
        ),
        "number": lambda seed: dither.histogram(
            [1.0, 3.0] * 40, consumers=[2], epsilon=2.0, low=0, high=4, seed=seed
        ),
        "cells": lambda seed: dither.central_release(
            table, epsilon=1.0, method="laplace", seed=seed
        ),
    }
    folder, other = (make[kind](seed).save(tmp_path / str(seed)) for seed in (1, 5))
    sound = (folder / name).read_bytes()
    assert sound != (other / name).read_bytes()
    (folder / name).write_bytes((other / name).read_bytes())
    with pytest.raises(InputError, match=f"{name} is damaged or of another release"):
        dither.load_release(folder)
    (folder / name).write_bytes(sound)
    assert dither.load_release(folder).kind == kind
    manifest = json.loads((folder / "release.json").read_text())
    for files in ([], {name: "0" * 64}, {}):
        (folder / "release.json").write_text(json.dumps(manifest | {"files": files}))
        with pytest.raises(InputError, match="is not a whole release"):
            dither.load_release(folder)
    assert dither.load_release(forget_digests(folder)).kind == kind, "an earlier version's"


@pytest.mark.parametrize(
    ("wrong", "fine"),
    [
        ({"n": -1}, False),
        ({"n": "many"}, False),
        ({"n": True}, False),
        ({"effective_n": 1e9}, False),
        ({"effective_n": "1"}, False),
        ({"effective_n": None}, True),
    ],
)
def test_how_many_answers_a_measured_table_is_worth(
    wrong: dict[str, Any], fine: bool, tmp_path: Path
) -> None:
    """None stands for a folder that an earlier version wrote: without the entry all answers count alike."""
    load = published(tmp_path / "out")
    path = tmp_path / "out" / "measured.bin"
    meta, arrays = unpack(path.read_bytes())
    meta["measured"][0] = {k: v for k, v in (meta["measured"][0] | wrong).items() if v is not None}
    path.write_bytes(pack(meta, arrays))
    if fine:
        assert load(tmp_path / "out").measured[0].sample_size == meta["measured"][0]["n"]
    else:
        with pytest.raises(DitherError, match=r"measured\.bin says"):
            load(tmp_path / "out")
