"""Arrays and JSON values as one deterministic byte string, for tallies, models and states.

Layout: the magic line, the length of a JSON header, the header (meta and each array's name,
dtype and shape, in order), then the arrays' bytes. Equal content has equal bytes, and nothing
in it can execute. Guarantee: a malformed archive raises `ReportError`, and no array takes
more memory than its bytes in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from dither.errors import DitherError, ReportError
from dither.types import AnyArray, JsonMapping, JsonObject

_MAGIC = b"dither-archive-1\n"
_DTYPES = ("|u1", "<u4", "<i4", "<i8", "<f4", "<f8")
# An array without elements has no bytes that bound its other dimensions, and a sum over
# its empty axis would allocate them. The largest in use is the length of a report.
_MAX_EMPTY_DIMENSIONS = 1 << 20


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
    """Return the meta and the arrays of an archive, the inverse of `pack`.

    Raises:
        ReportError: the bytes are not an archive that `pack` could have written.
    """
    start = len(_MAGIC) + 8
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
        raise ReportError("not a Dither archive, or one of another version")
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    if end > len(data):
        raise ReportError("a damaged Dither archive: cut short")
    with decoding("archive"):
        header = json.loads(data[start:end])
        meta = header["meta"]
        arrays: dict[str, AnyArray] = {}
        if not isinstance(meta, dict):
            raise TypeError("its meta is not an object")
        for name, dtype, shape in header["arrays"]:
            if not isinstance(name, str) or name in arrays:
                raise ValueError("an array without a unique name")
            if dtype not in _DTYPES:
                raise ValueError(f"an array of type {dtype!r}"[:100])
            size = np.dtype(dtype).itemsize
            count = _element_count(shape, (len(data) - end) // size)
            arrays[name] = np.frombuffer(data, dtype, count, end).reshape(shape).copy()
            end += count * size
    if end != len(data):
        raise ReportError("a damaged Dither archive: bytes after its end")
    return meta, arrays


def _element_count(shape: object, available: int) -> int:
    """The number of elements of an array of this shape; an error if the file has fewer."""
    if not isinstance(shape, list):
        raise TypeError("an array's shape is not a list")
    # Checked before anything is multiplied: a list times a text would repeat the text.
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError("an array's dimensions must be whole numbers from 0")
    product = 1
    for length in shape:
        product *= length or 1
        if product > max(available, _MAX_EMPTY_DIMENSIONS):
            raise ValueError("an array is cut short")
    if 0 in shape:
        return 0
    if product > available:
        raise ValueError("an array is cut short")
    return product


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn every error that malformed content causes into `ReportError`."""
    try:
        # Checks of numbers that are not finite need no warning too.
        with np.errstate(all="ignore"):
            yield
    except ReportError:
        raise
    except (
        DitherError,
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
        ArithmeticError,
        RecursionError,
    ) as error:
        message = str(error) if isinstance(error, DitherError | ValueError) else repr(error)
        raise ReportError(f"a damaged Dither {what}: {message[:200]}") from None
