"""Arrays and plain values as one deterministic byte string: how tallies, models and protocol states are kept.

Layout: the magic line, the length of a JSON header, the header (meta and each array's name, dtype and shape, in order), then
the arrays' bytes. Equal content gives equal bytes, and nothing in it can execute.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import numpy as np

from dither.errors import ReportError
from dither.types import AnyArray, JsonMapping, JsonObject

_MAGIC = b"dither-archive-1\n"
_DTYPES = ("|u1", "<u4", "<i4", "<i8", "<f4", "<f8")


def pack(meta: JsonMapping, arrays: Mapping[str, AnyArray]) -> bytes:
    """Meta must be plain JSON; arrays must be of a fixed-width integer or float type."""
    entries, chunks = [], []
    for name, array in arrays.items():
        data = np.ascontiguousarray(array)
        data = data.astype(data.dtype.newbyteorder("<"), copy=False)
        if data.dtype.str not in _DTYPES:
            raise TypeError(f"array {name!r} of type {data.dtype} cannot be archived")
        entries.append([name, data.dtype.str, list(data.shape)])
        chunks.append(data.tobytes())
    header = json.dumps(
        {"meta": meta, "arrays": entries}, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()
    return b"".join([_MAGIC, len(header).to_bytes(8, "little"), header, *chunks])


def unpack(data: bytes) -> tuple[JsonObject, dict[str, AnyArray]]:
    """The inverse of `pack`; bytes that are not an archive raise `ReportError`."""
    start = len(_MAGIC) + 8
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
        raise ReportError("not a Dither archive, or one of another version")
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    try:
        header = json.loads(data[start:end])
        meta, arrays = header["meta"], {}
        if not isinstance(meta, dict):
            raise TypeError("its meta is no object")
        for name, dtype, shape in header["arrays"]:
            if dtype not in _DTYPES:
                raise ValueError(dtype)
            size = math.prod(shape) * np.dtype(dtype).itemsize
            if end + size > len(data):
                raise ValueError("cut short")
            arrays[name] = np.frombuffer(data[end : end + size], dtype=dtype).reshape(shape).copy()
            end += size
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ReportError(f"a damaged Dither archive: {error}") from None
    if end != len(data):
        raise ReportError("a damaged Dither archive: bytes after its end")
    return meta, arrays
