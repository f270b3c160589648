"""Two releases of one schema side by side: each figure with its interval, and whether the two differ by more than their errors.

The releases are of different people, so that the errors of a difference are the sum of both in squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dither.display import Bar
from dither.errors import ParameterError

REACH = 1.96  # standard errors of a 95 % interval


@dataclass(frozen=True)
class _Compared:
    """One value in both: the figures, and by how much the second exceeds the first, with a 95 % interval if there is one."""

    first: Bar
    second: Bar
    difference: float
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class ComparedAttribute:
    """One attribute in both, and half the sum of the differences: the share of people who would have to be moved."""

    name: str
    values: Sequence[_Compared]
    distance: float


def compare_manifests(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[ComparedAttribute]:
    """The attributes of two manifests; an error unless they are of tables of one schema."""
    if not all("schema_fingerprint" in manifest for manifest in (first, second)):
        raise ParameterError(
            "one of the two releases is about one number; there is no table in it to compare"
        )
    if first["schema_fingerprint"] != second["schema_fingerprint"]:
        raise ParameterError(
            "the two releases have different schemas, so that their values mean different things"
        )
    return [_attribute(a, b) for a, b in zip(first["estimates"], second["estimates"], strict=True)]


def _attribute(first: Mapping[str, Any], second: Mapping[str, Any]) -> ComparedAttribute:
    values = []
    for i, label in enumerate(first["labels"]):
        a, b = float(first["frequencies"][i]), float(second["frequencies"][i])
        errors = [_error(side, i) for side in (first, second)]
        both = None if None in errors else math.hypot(*(error or 0.0 for error in errors))
        low, high = (None, None) if both is None else (b - a - REACH * both, b - a + REACH * both)
        values.append(
            _Compared(_bar(label, a, errors[0]), _bar(label, b, errors[1]), b - a, low, high)
        )
    return ComparedAttribute(
        first["attribute"], values, 0.5 * math.fsum(abs(v.difference) for v in values)
    )


def _error(side: Mapping[str, Any], i: int) -> float | None:
    told = side["standard_errors"]
    return None if told is None or told[i] is None else float(told[i])


def _bar(label: str, estimate: float, error: float | None) -> Bar:
    if error is None:
        return Bar(label, estimate)
    return Bar(
        label, estimate, max(0.0, estimate - REACH * error), min(1.0, estimate + REACH * error)
    )
