"""Checks of arguments, once: each gives the value back or raises one line that names the argument, the value and what is wanted.

Standard library only, since a device checks too. `error` is the class to raise where it is not a `ParameterError`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection
from typing import TypeVar

from dither.errors import DitherError, ParameterError

T = TypeVar("T")
# Control characters and halves of surrogate pairs: no page, file or terminal shows them as text.
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_whole(
    name: str,
    value: object,
    least: int = 0,
    most: int | None = None,
    *,
    error: type[DitherError] = ParameterError,
) -> int:
    """A whole number from `least` to `most`; True and False are none, NumPy's whole numbers are."""
    whole = as_whole(value)
    if whole is None or whole < least or (most is not None and whole > most):
        limits = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        raise error(
            f"{name} must be a whole number {limits}, not {value!r}", where=name, value=value
        )
    return whole


def check_whole_or_none(
    name: str, value: object, least: int = 0, most: int | None = None
) -> int | None:
    """The same, or None for what is left to the method."""
    return None if value is None else check_whole(name, value, least, most)


def as_whole(value: object) -> int | None:
    """The whole number that a value is, None if it is none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def check_between(
    name: str,
    value: float,
    low: float,
    high: float,
    *,
    ends: str = "[]",
    error: type[DitherError] = ParameterError,
) -> float:
    """A number between two others; `ends` says which of them it may equal: "[]", "()", "[)" or "(]"."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    above = real and (value >= low if ends[0] == "[" else value > low)
    below = real and (value <= high if ends[1] == "]" else value < high)
    if not (above and below):
        raise error(
            f"{name} must lie in {ends[0]}{low:g}, {high:g}{ends[1]}, not {value!r}",
            where=name,
            value=value,
        )
    return value


def check_finite(name: str, value: float) -> float:
    """A number that is neither infinite nor undefined."""
    if not is_finite(value):
        raise ParameterError(
            f"{name} must be a finite number, not {value!r}", where=name, value=value
        )
    return value


def is_finite(value: object) -> bool:
    """Whether this is a number, neither infinite nor undefined, that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_choice(
    name: str,
    value: T,
    choices: Collection[T],
    *,
    where: str | None = None,
    error: type[DitherError] = ParameterError,
) -> T:
    """One of some values; the error lists them, and says `where` if that is not the argument's name."""
    if value not in choices:
        known = ", ".join(str(choice) for choice in choices)
        raise error(
            f"{name} must be one of {known}, not {value!r}", where=where or name, value=value
        )
    return value


def check_text(
    name: str,
    value: object,
    most: int,
    *,
    lines: bool = False,
    where: str | None = None,
    error: type[DitherError] = ParameterError,
) -> str:
    """Text for people of at most so many characters, without control characters; with `lines` it may have line breaks."""
    if not isinstance(value, str) or len(value) > most:
        found = f"{len(value):,} characters" if isinstance(value, str) else repr(value)[:80]
        raise error(
            f"{name} must be text of at most {most:,} characters, not {found}", where=where or name
        )
    if _NO_TEXT.search(value.replace("\n", "") if lines else value):
        kind = "text" if lines else "one line of text"
        raise error(f"{name} must be {kind} without control characters", where=where or name)
    return value
