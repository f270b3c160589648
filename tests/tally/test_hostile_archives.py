"""Archives that somebody damaged or forged: `ReportError` alone, and little memory, for every kind."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.saved_releases import forget_digests

import dither
from dither.collector import read_counted
from dither.errors import InputError, ReportError
from dither.fit import (
    KINDS,
    BayesNet,
    Independent,
    Raked,
    Ruled,
    independent_tree,
    model_from_bytes,
)
from dither.fit.average import Average
from dither.fit.mixture import Mixture
from dither.methods import restore, start
from dither.release import pack_replicates, unpack_replicates
from dither.schema import Attribute, Determines, Schema
from dither.tally import CountTally, pack, tally_from_bytes, unpack, zero

MAGIC = pack({}, {})[:17]
# An attribute may have 2^17 values, which a damaged schema can ask for in a few bytes.
MAX_BYTES = 64 << 20
SCHEMA = Schema(
    (
        Attribute("a", "ordinal", tuple(range(3))),
        Attribute("b", "ordinal", tuple(range(2))),
        Attribute("n", "numeric", edges=(0.0, 1.0, 5.0)),
    )
)
MARGINALS = (np.array([0.5, 0.25, 0.25]), np.array([0.5, 0.5]), np.array([0.75, 0.25]))
JUNK = (
    None,
    True,
    -1,
    0,
    1,
    3 * 10**8,
    10**12,
    10**30,
    1.5,
    1e308,
    "x",
    "a" * 40,
    [],
    {},
    [3 * 10**8, "x"],
    [10**6, 10**6],
    [0, 10**15],
)
Reader = Callable[[bytes], object]


def _models() -> Iterator[tuple[str, bytes]]:
    yield "independent", Independent(SCHEMA, MARGINALS).to_bytes()
    yield "junction_tree", independent_tree(SCHEMA, MARGINALS).to_bytes()
    tables = (MARGINALS[0], np.tile(MARGINALS[1], (3, 1)), MARGINALS[2])
    yield "bayes_net", BayesNet(SCHEMA, ((), (0,), ()), tables).to_bytes()
    components = tuple(np.stack([marginal, marginal]) for marginal in MARGINALS)
    yield "mixture", Mixture(SCHEMA, np.array([0.5, 0.5]), components).to_bytes()
    flat = Independent(SCHEMA, MARGINALS)
    both = (flat, Mixture(SCHEMA, np.array([0.5, 0.5]), components))
    yield "average", Average(SCHEMA, np.array([0.25, 0.75]), both).to_bytes()
    yield "raked", Raked(flat, ("b",), np.array([0.5, 1.5])).to_bytes()
    ruled = Schema(SCHEMA.attributes, (Determines("a", "b", (1, 0, 1)),))
    core = Independent(Schema((SCHEMA["a"], SCHEMA["n"])), (MARGINALS[0], MARGINALS[2]))
    yield "ruled", Ruled(ruled, core, {}, {"b": np.array([1, 0, 1])}).to_bytes()


@cache
def _archives() -> dict[str, tuple[bytes, Reader]]:
    """A sound archive of each kind, and what reads it."""
    out: dict[str, tuple[bytes, Reader]] = {
        f"model {kind}": (data, model_from_bytes) for kind, data in _models()
    }
    plan = start("independent", SCHEMA, 2.0, 100, {}, 1, 0.0).plan()
    assert plan is not None
    counts = zero(plan)
    assert isinstance(counts, CountTally)
    out["count tally"] = counts.to_bytes(), tally_from_bytes
    counted = {"reports": 0, "digest": "00" * 32}
    sent = pack(counted, {"tally": np.frombuffer(counts.to_bytes(), np.uint8)})
    out["tally counted elsewhere"] = sent, read_counted
    split = start("lopub", SCHEMA, 2.0, 100, {}, 1, 0.0).plan()
    assert split is not None
    assert split.split
    out["pattern tally"] = zero(split).to_bytes(), tally_from_bytes
    table = pa.table({"a": ["x", "y"] * 200, "b": ["u", "v", "v", "u"] * 100})
    release = dither.publish(table, epsilon=4.0, method="independent", rows=5, seed=1, replicates=5)
    assert release.state is not None
    assert release.replicates is not None
    out["state"] = release.state, restore
    model = release.model
    out["replicates"] = (
        pack_replicates(release.replicates),
        lambda data: unpack_replicates(data, model, None),
    )
    return out


KINDS_OF_ARCHIVES = (
    *(f"model {kind}" for kind in sorted(KINDS)),
    "count tally",
    "tally counted elsewhere",
    "pattern tally",
    "state",
    "replicates",
)


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON document but the whole."""
    inside = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, value in inside:
        yield (*path, key)
        yield from _places(value, (*path, key))


def _header_mutated(data: bytes, draw: Callable[..., Any]) -> bytes:
    """The same archive with some values of its header replaced, removed or repeated."""
    length = int.from_bytes(data[17:25], "little")
    header, body = json.loads(data[25 : 25 + length]), data[25 + length :]
    for _ in range(draw(st.integers(1, 2))):
        places = list(_places(header))
        *path, key = places[draw(st.integers(0, len(places) - 1))]
        holder = header
        for step in path:
            holder = holder[step]
        action = draw(st.sampled_from(["replace", "replace", "remove", "repeat"]))
        if action == "remove":
            del holder[key]
        elif action == "repeat" and isinstance(holder, list):
            holder.append(holder[key])
        else:
            holder[key] = json.loads(json.dumps(draw(st.sampled_from(JUNK))))
    text = json.dumps(header).encode()
    return MAGIC + len(text).to_bytes(8, "little") + text + body


def _bytes_mutated(data: bytes, draw: Callable[..., Any]) -> bytes:
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
    end = draw(st.sampled_from([len(changed), len(changed), draw(st.integers(0, len(changed)))]))
    return bytes(changed[:end]) + draw(st.sampled_from([b"", b"", b"\0", bytes(64)]))


def _peak_of(read: Reader, data: bytes) -> int:
    """The memory that reading took at most; any error but `ReportError` goes through."""
    tracemalloc.start()
    try:
        read(data)
    except ReportError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("kind", KINDS_OF_ARCHIVES)
def test_a_sound_archive_is_read(kind: str) -> None:
    data, read = _archives()[kind]
    assert read(data) is not None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_OF_ARCHIVES)
@settings(
    max_examples=300, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_a_mutated_archive_raises_report_errors_only_and_takes_little_memory(
    kind: str, data: st.DataObject
) -> None:
    sound, read = _archives()[kind]
    mutate = data.draw(st.sampled_from([_header_mutated, _header_mutated, _bytes_mutated]))
    assert _peak_of(read, mutate(sound, data.draw)) < MAX_BYTES


def _forged(shape: object, body: bytes = b"") -> bytes:
    text = json.dumps({"meta": {}, "arrays": [["a", "|u1", shape]]}).encode()
    return MAGIC + len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    "shape",
    [
        [3 * 10**8, "x"],
        [10**12, "x"],
        [10**8, [0]],
        [True, True],
        [4.0],
        [-1],
        [-2, -2],
        [0, 10**15],
        [10**15, 0],
        [0, 10**9, 10**9],
        ["x"],
        [None],
        "",
        "4",
        4,
        None,
        {},
        {"4": 1},
        [1] * 100,
        [10**4000],
        [[4]],
    ],
    ids=str,
)
def test_a_forged_shape_is_refused_before_anything_is_allocated(shape: object) -> None:
    data = _forged(shape, bytes(4))
    with pytest.raises(ReportError):
        unpack(data)
    assert _peak_of(unpack, data) < 1 << 20


def test_two_arrays_of_one_name_and_names_that_are_none_are_refused() -> None:
    for names in (("a", "a"), (1,), (None,)):
        text = json.dumps({"meta": {}, "arrays": [[name, "|u1", [1]] for name in names]}).encode()
        with pytest.raises(ReportError):
            unpack(MAGIC + len(text).to_bytes(8, "little") + text + bytes(len(names)))


def test_models_with_rules_are_not_nested() -> None:
    data, read = _archives()["model ruled"]
    meta, arrays = unpack(data)
    nested = pack(meta, {**arrays, "core": np.frombuffer(data, np.uint8)})
    with pytest.raises(ReportError, match="contains another"):
        read(nested)


def test_an_archive_is_read_with_one_copy_of_its_arrays() -> None:
    data = pack({}, {"a": np.zeros(4 << 20, np.uint8)})
    assert _peak_of(unpack, data) < 5 << 20


def test_a_hostile_file_of_a_release_names_the_file(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y"] * 20})
    release = dither.publish(table, epsilon=4.0, method="independent", rows=5)
    forget_digests(release.save(tmp_path / "out"))
    for name in ("model.bin", "measured.bin", "state.bin"):
        path = tmp_path / "out" / name
        sound = path.read_bytes()
        path.write_bytes(_forged([3 * 10**8, "x"]))
        with pytest.raises(InputError, match=name):
            dither.load_release(tmp_path / "out")
        path.write_bytes(sound)
