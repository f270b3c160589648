"""Questions to a released histogram: counts of records that meet conditions, with intervals from repeated runs.

`deviations` are what the method was off by when it was run again on its own estimate, a row for each run. A sum of cells has the
sum of their deviations, so the error of any count or marginal follows, whichever way the cells' errors hang together. They show
the noise, and what a method leaves out of its own estimate; not what it left out of the real table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dither.checks import check_between, is_finite
from dither.errors import ParameterError
from dither.schema import Attribute, Schema
from dither.types import Floats

# A value, a list of values, or a pair (low, high).
Condition = object


@dataclass(frozen=True)
class CountAnswer:
    """How many records meet the conditions; the interval is None where the release knows no errors. Raw: may be below zero."""

    estimate: float
    standard_error: float | None
    low: float | None
    high: float | None
    level: float


def answer(
    schema: Schema,
    cells: Floats,
    deviations: Floats | None,
    where: Mapping[str, Condition],
    level: float,
) -> CountAnswer:
    """The count of the cells that meet the conditions, with a Student interval."""
    check_between("level", level, 0, 1, ends="()")
    weights = [np.ones(size) for size in schema.cardinalities]
    for name, condition in where.items():
        weights[schema.index(name)] = covered(schema[name], condition)
    estimate = float(weighted(cells[None], weights, schema.cardinalities)[0])
    if deviations is None:
        return CountAnswer(estimate, None, None, None, level)
    runs = weighted(deviations, weights, schema.cardinalities)
    error = float(np.sqrt((runs**2).mean()))
    reach = float(stdtrit(len(runs), (1 + level) / 2)) * error
    return CountAnswer(estimate, error, estimate - reach, estimate + reach, level)


def weighted(lines: Floats, weights: Sequence[Floats], shape: Sequence[int]) -> Floats:
    """The weighted sum of the cells of each line, axis by axis."""
    out = lines.reshape(len(lines), *shape)
    for axis in reversed(weights):
        out = out @ axis
    return out


def covered(attribute: Attribute, condition: Condition) -> Floats:
    """What part of each code meets a condition.

    A pair (low, high) is a range: of numbers and times from low up to high, bins that it cuts by the part of their width it
    covers; of listed values from low to high, both counted. Anything else is a value (of a number or time: an atom, or a bin's
    label), or a list of them.
    """
    out = np.zeros(attribute.cardinality)
    if isinstance(condition, tuple):
        if len(condition) != 2:
            raise ParameterError(
                f"a range of {attribute.name!r} is a pair (low, high), not {condition!r}",
                where=attribute.name,
            )
        return (
            _on_line(attribute, *condition) if attribute.on_line else _listed(attribute, *condition)
        )
    for value in condition if isinstance(condition, list) else [condition]:
        out[_code(attribute, value)] = 1.0
    return out


def _on_line(attribute: Attribute, low: object, high: object) -> Floats:
    """An atom is in a range that goes from it or over it, and in one that ends with it if nothing lies above, or nothing below."""
    first, last = _number(attribute, low), _number(attribute, high)
    if first is None or last is None or first > last:
        kind = "a number" if attribute.kind == "numeric" else f"a {attribute.kind}"
        raise ParameterError(
            f"a range of {attribute.name!r} goes from {kind} to one that is no smaller, not {low!r} to {high!r}",
            where=attribute.name,
        )
    starts, ends = np.asarray(attribute.line.ends, dtype=np.float64).T
    atom = starts == ends
    inside = (np.minimum(ends, last) - np.maximum(starts, first)).clip(0) / np.where(
        atom, 1.0, ends - starts
    )
    met = (first <= starts) & (
        (starts < last) | ((starts == last) & ((last == ends.max()) | (first == last)))
    )
    parts = np.repeat(np.where(atom, met, inside), attribute.turns)
    return np.append(
        parts, np.zeros(attribute.cardinality - parts.size)
    )  # a missing answer is in no range


def _number(attribute: Attribute, value: object) -> float | None:
    """Where a value lies on the attribute's line, None where it does not."""
    if attribute.kind != "numeric":
        return attribute.number(value)
    return float(value) if is_finite(value) else None  # type: ignore[arg-type]


def _listed(attribute: Attribute, low: object, high: object) -> Floats:
    if not attribute.ordered:
        raise ParameterError(
            f"{attribute.name!r} has no order and so no ranges; give a list of its values",
            where=attribute.name,
        )
    first, last = _code(attribute, low), _code(attribute, high)
    if first > last:
        raise ParameterError(
            f"{low!r} comes after {high!r} in {attribute.name!r}", where=attribute.name
        )
    codes = np.arange(attribute.cardinality)
    return ((codes >= first) & (codes <= last)).astype(np.float64)


def _code(attribute: Attribute, value: object) -> int:
    known = attribute.codes
    try:
        return known[value]  # type: ignore[index]
    except (KeyError, TypeError):
        pass
    if isinstance(value, str) and value in attribute.labels:
        return attribute.labels.index(value)
    if (
        attribute.on_line
        and not attribute.cycles
        and (number := _number(attribute, value)) is not None
    ):
        code = attribute.line_code(number)
        if code is not None and attribute.line.is_atom(code):
            return code
    raise ParameterError(
        f"{attribute.name!r} has no value {value!r}; it has {', '.join(attribute.labels[:8])}"
        f"{', …' if len(attribute.labels) > 8 else ''}",
        where=attribute.name,
        value=value,
    )
