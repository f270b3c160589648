"""Archives: what was packed comes back, and bytes that are no archive are one error, whatever they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dither.errors import ReportError
from dither.fit import model_from_bytes
from dither.tally import pack, unpack

MAGIC = pack({}, {})[:17]


def archive(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return MAGIC + len(text).to_bytes(8, "little") + text + body


def arrays(*entries: object) -> dict[str, object]:
    return {"meta": {}, "arrays": list(entries)}


DAMAGED = {
    "without meta": archive({"arrays": []}),
    "with a list for meta": archive({"meta": [1], "arrays": []}),
    "a list": archive([]),
    "nested without end": archive(b'{"meta":' + b"[" * 200_000 + b"]" * 200_000 + b',"arrays":[]}'),
    "no text": archive(b"\xff\xfe"),
    "a negative shape": archive(arrays(["a", "<f8", [-5]]), bytes(40)),
    "two negative lengths": archive(arrays(["a", "<f8", [-1, -1]]), bytes(8)),
    "a fractional shape": archive(arrays(["a", "<f8", [1.5]]), bytes(12)),
    "more than memory": archive(arrays(["a", "<f8", [10**30]])),
    "an object's type": archive(arrays(["a", "|O", [1]]), bytes(8)),
    "cut short": archive(arrays(["a", "<f8", [2]]), bytes(8)),
    "something behind it": archive(arrays(["a", "<f8", [1]]), bytes(9)),
    "a header beyond the end": MAGIC + (2**63).to_bytes(8, "little"),
    "nothing": b"",
}


def test_what_was_packed_comes_back() -> None:
    given = {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros(0, np.int32)}
    meta, found = unpack(pack({"kind": "x"}, given))
    assert meta == {"kind": "x"}
    assert list(found) == ["a", "b"]
    for name, values in given.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("why", DAMAGED)
def test_damaged_archives_are_refused(why: str) -> None:
    for read in (unpack, model_from_bytes):
        with pytest.raises(ReportError):
            read(DAMAGED[why])


@pytest.mark.parametrize("kind", [None, [], {}, 3, "another"])
def test_a_model_of_an_unknown_kind_is_refused(kind: object) -> None:
    with pytest.raises(ReportError, match="is not known"):
        model_from_bytes(archive({"meta": {"kind": kind}, "arrays": []}))
