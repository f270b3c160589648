"""One attribute: a public, finite, ordered list of codes 0..cardinality-1. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from dither.checks import check_choice, check_whole, is_finite
from dither.errors import SchemaError

if TYPE_CHECKING:
    from dither.types import JsonObject

Kind = Literal["categorical", "ordinal", "boolean", "numeric"]
Value = str | int | float | bool
KINDS: tuple[Kind, ...] = ("categorical", "ordinal", "boolean", "numeric")
DEFAULT_BINS = 16
MOST_VALUES = 1 << 16  # values or bins of one attribute


@dataclass(frozen=True)
class Attribute:
    """An attribute and its public domain.

    Categorical, ordinal and boolean attributes list their `values`; numeric ones carry bin `edges` (bins are half-open,
    the last one closed). With `missing`, a missing answer is one more code, the last.
    """

    name: str
    kind: Kind
    values: tuple[Value, ...] = ()
    edges: tuple[float, ...] = ()
    missing: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"an attribute's name must be a non-empty string, not {self.name!r}", value=self.name)
        if not _is_text(self.name):
            raise SchemaError(
                f"attribute {self.name!r}: its name has half a surrogate pair, which is no text", where=ascii(self.name)
            )
        _check_kind(self.name, self.kind)
        if self.kind == "numeric":
            self._check_edges()
        else:
            self._check_values()
        if self.answers > MOST_VALUES:
            raise _too_many(self.name, self.answers)
        if self.answers < 2:
            raise SchemaError(
                f"attribute {self.name!r} has one possible value, so there is nothing to ask; drop it or widen it",
                where=self.name,
            )

    def _check_edges(self) -> None:
        if self.values:
            raise SchemaError(f"numeric attribute {self.name!r} takes edges, not values", where=self.name)
        if len(self.edges) > MOST_VALUES + 1:
            raise _too_many(self.name, len(self.edges) - 1)
        finite = all(is_finite(e) for e in self.edges)
        if len(self.edges) < 2 or not finite or any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise SchemaError(
                f"numeric attribute {self.name!r}: edges must be at least two finite, strictly increasing numbers",
                where=self.name,
                value=self.edges,
            )
        if not is_finite(self.edges[-1] - self.edges[0]):
            raise SchemaError(
                f"numeric attribute {self.name!r}: its edges are further apart than a number can say", where=self.name
            )

    def _check_values(self) -> None:
        if self.edges:
            raise SchemaError(f"attribute {self.name!r} is {self.kind}: it takes values, not edges", where=self.name)
        if self.kind == "boolean" and tuple(self.values) != (False, True):
            raise SchemaError(
                f"boolean attribute {self.name!r} has the values false, true in this order", where=self.name
            )
        for value in self.values:
            if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
                raise SchemaError(
                    f"attribute {self.name!r}: {value!r} cannot be a value; use text, whole or finite numbers",
                    where=self.name,
                    value=value,
                )
            if isinstance(value, str) and not _is_text(value):
                raise SchemaError(
                    f"attribute {self.name!r}: the value {value!r} has half a surrogate pair, which is no text",
                    where=self.name,
                    value=value,
                )
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise SchemaError(
                    f"attribute {self.name!r}: the value {_shown(value)} does not fit in 64 bits; write it as text",
                    where=self.name,
                    value=value,
                )
        # 1, 1.0 and True are equal in Python; two codes for equal values could not be told apart in a table.
        seen: set[object] = set()
        for value in self.values:
            if value in seen:
                raise SchemaError(
                    f"attribute {self.name!r} lists the value {value!r} twice", where=self.name, value=value
                )
            seen.add(value)

    @property
    def answers(self) -> int:
        """How many answers there are beside the missing one."""
        return len(self.edges) - 1 if self.kind == "numeric" else len(self.values)

    @property
    def cardinality(self) -> int:
        """How many codes there are; the missing one, if any, is the last."""
        return self.answers + int(self.missing)

    @property
    def ordered(self) -> bool:
        """Whether neighbouring codes are neighbouring values."""
        return self.kind in ("ordinal", "numeric")

    @property
    def labels(self) -> tuple[str, ...]:
        """A readable label for each code."""
        if self.kind == "numeric":
            last = self.answers - 1
            shown = [
                f"[{_short(a)}, {_short(b)}{']' if i == last else ')'}"
                for i, (a, b) in enumerate(zip(self.edges, self.edges[1:], strict=False))
            ]
        elif self.kind == "boolean":
            shown = ["false", "true"]
        else:
            shown = [str(v) for v in self.values]
        return (*shown, "(missing)") if self.missing else tuple(shown)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest number that an answer can be; None where some answer is no number."""
        ends = [float(value) for value in self.edges or self.values if not isinstance(value, (str, bool))]
        return (min(ends), max(ends)) if len(ends) == len(self.edges or self.values) else None

    @cached_property
    def codes(self) -> dict[Value, int]:
        """The code of each value; looking one up takes as long wherever it stands."""
        return {value: code for code, value in enumerate(self.values)}

    def to_json(self) -> JsonObject:
        """The form a schema file holds."""
        out: JsonObject = {"name": self.name, "kind": self.kind}
        if self.kind == "numeric":
            out["edges"] = list(self.edges)
        elif self.kind != "boolean":
            out["values"] = list(self.values)
        if self.missing:
            out["missing"] = True
        return out


def numeric(name: str, *, low: float, high: float, bins: int = DEFAULT_BINS, missing: bool = False) -> Attribute:
    """A numeric attribute cut into equal-width bins between public bounds.

    Whole-number bounds with no more integers between them than bins give one bin per integer, since a narrower bin
    would hold no value at all. The outermost edges are always the bounds themselves.
    """
    for bound in (low, high):
        if not is_finite(bound):
            raise SchemaError(
                f"numeric attribute {name!r}: min and max must be finite numbers", where=name, value=bound
            )
    check_whole(f"bins of numeric attribute {name!r}", bins, 1, error=SchemaError)
    if bins > MOST_VALUES:  # cheap to write and dear to build, so it is refused before anything is built
        raise _too_many(name, bins)
    if low >= high:
        raise SchemaError(f"numeric attribute {name!r}: min {low} must be below max {high}", where=name)
    if isinstance(low, int) and isinstance(high, int) and high - low + 1 <= bins:
        edges = [float(low), *(low + 0.5 + i for i in range(high - low)), float(high)]
    else:
        edges = [low + (high - low) * i / bins for i in range(bins)] + [float(high)]
    return Attribute(name, "numeric", edges=tuple(float(e) for e in edges), missing=missing)


def attribute_from_json(name: str, entry: Any) -> Attribute:
    """Read one attribute as a schema file or a plain domain dictionary states it."""
    if not isinstance(entry, dict):
        raise SchemaError(f"attribute {name!r} must be an object with a kind, not {entry!r}", where=name, value=entry)
    known = {"name", "kind", "values", "edges", "min", "max", "bins", "missing"}
    unknown = sorted(set(entry) - known)
    if unknown:
        raise SchemaError(
            f"attribute {name!r}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}",
            where=name,
            value=unknown,
        )
    missing = entry.get("missing", False)
    if not isinstance(missing, bool):
        raise SchemaError(f"attribute {name!r}: missing must be true or false", where=name, value=missing)
    kind = _check_kind(name, entry.get("kind"))
    if kind == "numeric":
        if "edges" in entry:
            return Attribute(name, "numeric", edges=_list(name, "edges", entry["edges"]), missing=missing)
        if "min" not in entry or "max" not in entry:
            raise SchemaError(f"numeric attribute {name!r} needs edges, or min and max", where=name)
        return numeric(name, low=entry["min"], high=entry["max"], bins=entry.get("bins", DEFAULT_BINS), missing=missing)
    if kind == "boolean":
        return Attribute(name, "boolean", values=(False, True), missing=missing)
    return Attribute(name, kind, values=_list(name, "values", entry.get("values")), missing=missing)


def _check_kind(name: str, kind: Any) -> Kind:
    return check_choice(f"attribute {name!r}: kind", kind, KINDS, where=name, error=SchemaError)


def _too_many(name: str, count: int) -> SchemaError:
    many = f"{count:,}" if count < 2**63 else "more than 2^63"
    return SchemaError(
        f"attribute {name!r} has {many} values or bins; at most {MOST_VALUES:,} are allowed", where=name, value=count
    )


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it, and so a table, a page and a file; half a surrogate pair it cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: int) -> str:
    return str(value) if value.bit_length() <= 256 else f"of {value.bit_length():,} bits"


def _list(name: str, key: str, given: object) -> tuple[Any, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise SchemaError(f"attribute {name!r}: {key} must be a list", where=name, value=given)
    return tuple(given)


def _short(number: float) -> str:
    """A number without needless digits, with thousands separated."""
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.6g}"
