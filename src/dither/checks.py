"""Checks of arguments: the one way to validate what a caller passes.

Each check returns the value, or raises one line that names the argument, the value and the
requirement. `error` is the class to raise, by default `ParameterError`. Standard library
only, because a device checks too.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection
from typing import TypeVar

from dither.errors import DitherError, ParameterError

T = TypeVar("T")
# Control characters and halves of surrogate pairs: no page, file or terminal shows them
# as text.
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_whole(
    name: str,
    value: object,
    least: int = 0,
    most: int | None = None,
    *,
    error: type[DitherError] = ParameterError,
) -> int:
    """Check a whole number. Booleans are rejected, NumPy's integers are accepted.

    Args:
        name: The argument's name, for the message.
        value: The value to check.
        least: The smallest allowed value.
        most: The largest allowed value; None for no limit.
        error: The class to raise.

    Returns:
        The value as a Python integer.
    """
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
    """Check a whole number, or None for a value that the callee chooses."""
    return None if value is None else check_whole(name, value, least, most)


def as_whole(value: object) -> int | None:
    """The value as an integer; None if it is not a whole number."""
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
    """Check a number in an interval.

    Args:
        name: The argument's name, for the message.
        value: The value to check.
        low: The lower end.
        high: The upper end.
        ends: Which ends belong to the interval: "[]", "()", "[)" or "(]".
        error: The class to raise.
    """
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
    """Check a number that is neither infinite nor NaN."""
    if not is_finite(value):
        raise ParameterError(
            f"{name} must be a finite number, not {value!r}", where=name, value=value
        )
    return value


def is_finite(value: object) -> bool:
    """Whether a value is a finite number that a float can represent."""
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
    """Check that a value is one of `choices`; the message lists them.

    `where` replaces the argument's name in the error's `where`.
    """
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
    """Check text for people: of limited length and without control characters.

    Args:
        name: The argument's name, for the message.
        value: The value to check.
        most: The largest number of characters.
        lines: The text may have line breaks.
        where: Replaces the argument's name in the error's `where`.
        error: The class to raise.
    """
    if not isinstance(value, str) or len(value) > most:
        found = f"{len(value):,} characters" if isinstance(value, str) else repr(value)[:80]
        raise error(
            f"{name} must be text of at most {most:,} characters, not {found}", where=where or name
        )
    if _NO_TEXT.search(value.replace("\n", "") if lines else value):
        kind = "text" if lines else "one line of text"
        raise error(f"{name} must be {kind} without control characters", where=where or name)
    return value
