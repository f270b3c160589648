"""Public rules that every record satisfies: determined attributes, impossible combinations,
orders and sums.

A rule applies only if none of its attributes is missing, except that a missing answer
determines a missing answer. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dither.checks import is_finite
from dither.errors import SchemaError
from dither.schema.attribute import Attribute, Value

if TYPE_CHECKING:
    from dither.types import JsonObject


@dataclass(frozen=True)
class Determines:
    """`by` determines `attribute`.

    `outcomes` has the value for each answer of `by`; None if it is to be estimated.
    """

    by: str
    attribute: str
    outcomes: tuple[Value, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of the rule."""
        return (self.by, self.attribute)

    def to_json(self) -> JsonObject:
        """The form a schema file holds."""
        out: JsonObject = {"determines": self.attribute, "by": self.by}
        return out if self.outcomes is None else {**out, "outcomes": list(self.outcomes)}


@dataclass(frozen=True)
class Impossible:
    """No record has one of the listed values for every listed attribute.

    A value on a line means its whole cell.
    """

    values: tuple[tuple[str, tuple[Value, ...]], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of the rule."""
        return tuple(name for name, _ in self.values)

    def to_json(self) -> JsonObject:
        """The form a schema file holds."""
        return {"impossible": {name: list(values) for name, values in self.values}}


@dataclass(frozen=True)
class Order:
    """The first attribute is at most the second, or below it if `strict`."""

    low: str
    high: str
    strict: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of the rule."""
        return (self.low, self.high)

    def to_json(self) -> JsonObject:
        """The form a schema file holds."""
        return {"order": [self.low, self.high], **({"strict": True} if self.strict else {})}


@dataclass(frozen=True)
class Sum:
    """The sum of the parts is the total."""

    parts: tuple[str, ...]
    total: str

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of the rule."""
        return (*self.parts, self.total)

    def to_json(self) -> JsonObject:
        """The form a schema file holds."""
        return {"sum": list(self.parts), "is": self.total}


Rule = Determines | Impossible | Order | Sum
_MAX_RULES = 256
_MAX_NAMES = 6  # attributes that one rule may tie together


def code_of_value(attribute: Attribute, value: object) -> int | None:
    """The code of a value in a schema file; None if it is outside the domain.

    null is the missing answer.
    """
    if value is None:
        return attribute.answers if attribute.missing else None
    if not attribute.on_line:
        if isinstance(value, (str, int, float)) and value in attribute.codes:
            return attribute.codes[value]
        return None
    if attribute.kind == "numeric":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return attribute.line_code(float(value))
    number = attribute.number(value)
    return None if number is None else attribute.line_code(number)


def rules_from_json(data: object, attributes: Sequence[Attribute]) -> tuple[Rule, ...]:
    """Read the rules of a schema with these attributes.

    Raises:
        SchemaError: A rule is malformed; the message names it.
    """
    if not isinstance(data, list) or len(data) > _MAX_RULES:
        raise SchemaError(f"rules must be a list of at most {_MAX_RULES} objects", where="rules")
    by_name = {attribute.name: attribute for attribute in attributes}
    return tuple(_rule(f"rule {i + 1}", entry, by_name) for i, entry in enumerate(data))


def _rule(which: str, entry: Any, by_name: Mapping[str, Attribute]) -> Rule:
    keys = set(entry) if isinstance(entry, Mapping) else set()
    if "determines" in keys and keys <= {"determines", "by", "outcomes", "map"} and "by" in keys:
        by, attribute = entry["by"], entry["determines"]
        _check_names(which, (by, attribute), by_name)
        return Determines(by, attribute, _outcomes(which, entry, by_name[by]))
    if keys == {"impossible"} and isinstance(entry["impossible"], Mapping):
        listed = {name: _listed(which, values) for name, values in entry["impossible"].items()}
        return Impossible(tuple(sorted(listed.items())))
    if (
        "order" in keys
        and keys <= {"order", "strict"}
        and entry.get("strict", False) in (True, False)
    ):
        names = _listed(which, entry["order"])
        if len(names) != 2:
            raise SchemaError(
                f"{which}: order names two attributes, the smaller first", where="rules"
            )
        return Order(names[0], names[1], bool(entry.get("strict", False)))
    if keys == {"sum", "is"}:
        return Sum(_listed(which, entry["sum"]), entry["is"])
    raise SchemaError(
        f"{which} is not one of: {{determines, by, map}}, {{impossible}}, {{order, strict}}, {{sum, is}}",
        where="rules",
    )


def _listed(which: str, given: object) -> tuple[Any, ...]:
    if not isinstance(given, list) or not given:
        raise SchemaError(f"{which} needs a list that is not empty, not {given!r}", where="rules")
    return tuple(given)


def _outcomes(which: str, entry: Mapping[str, Any], by: Attribute) -> tuple[Value, ...] | None:
    """The value for each answer, from a list in the answers' order or a map from their labels."""
    if "map" not in entry:
        return _listed(which, entry["outcomes"]) if "outcomes" in entry else None
    if not isinstance(entry["map"], Mapping) or "outcomes" in entry:
        raise SchemaError(
            f"{which}: map must be an object from values of {by.name!r} to values", where="rules"
        )
    labels = by.labels[: by.answers]
    given = {str(key): value for key, value in entry["map"].items()}
    absent = [label for label in labels if label not in given]
    valid = set(labels)
    stray = [key for key in given if key not in valid]
    if absent or stray:
        problem = (
            f"lacks {absent[0]!r}"
            if absent
            else f"has {stray[0]!r}, which is not a value of {by.name!r}"
        )
        raise SchemaError(f"{which}: the map {problem}", where="rules")
    return tuple(given[label] for label in labels)


def check_rules(rules: Sequence[Rule], attributes: Sequence[Attribute]) -> None:
    """Check that rules fit the attributes.

    Raises:
        SchemaError: A rule does not fit, or an attribute is determined twice or by itself.
    """
    by_name = {attribute.name: attribute for attribute in attributes}
    determined: dict[str, str] = {}
    for i, rule in enumerate(rules):
        which = f"rule {i + 1}"
        _check_names(which, rule.names, by_name)
        if isinstance(rule, Determines):
            if rule.attribute in determined:
                raise SchemaError(
                    f"{which}: {rule.attribute!r} is determined by two rules", where="rules"
                )
            determined[rule.attribute] = rule.by
            _check_outcomes(which, rule, by_name[rule.by], by_name[rule.attribute])
        elif isinstance(rule, Impossible):
            for name, values in rule.values:
                _check_values(which, by_name[name], values)
        else:
            for name in rule.names:
                _check_numbers(which, by_name[name], rule, by_name)
    for name, by in determined.items():
        seen, at = {name}, by
        while at in determined:
            if at in seen:
                raise SchemaError(f"the rules determine {name!r} by itself", where="rules")
            seen.add(at)
            at = determined[at]


def _check_names(which: str, names: Sequence[object], by_name: Mapping[str, Attribute]) -> None:
    for name in names:
        if not isinstance(name, str) or name not in by_name:
            raise SchemaError(
                f"{which} names {name!r}, which is not an attribute", where="rules", value=name
            )
    if not 2 <= len(set(names)) == len(names) <= _MAX_NAMES:
        raise SchemaError(
            f"{which} must name two to {_MAX_NAMES} different attributes", where="rules"
        )


def _check_outcomes(which: str, rule: Determines, by: Attribute, attribute: Attribute) -> None:
    if by.missing and not attribute.missing:
        raise SchemaError(
            f"{which}: {rule.by!r} can be missing and {rule.attribute!r} cannot; let both be missing",
            where="rules",
        )
    if rule.outcomes is None:
        return
    if len(rule.outcomes) != by.answers:
        raise SchemaError(
            f"{which} needs {by.answers} outcomes, one for each answer of {rule.by!r}, not {len(rule.outcomes)}",
            where="rules",
        )
    _check_values(which, attribute, rule.outcomes)


def _check_values(which: str, attribute: Attribute, values: Sequence[object]) -> None:
    for value in values:
        if code_of_value(attribute, value) is None:
            raise SchemaError(
                f"{which}: {value!r} is not a value of {attribute.name!r}",
                where=attribute.name,
                value=value,
            )


def _check_numbers(
    which: str, attribute: Attribute, rule: Order | Sum, by_name: Mapping[str, Attribute]
) -> None:
    if attribute.cycles:
        raise SchemaError(
            f"{which}: {attribute.name!r} is cut by weekday or hour and has no order", where="rules"
        )
    if isinstance(rule, Sum):
        if attribute.kind not in ("numeric", "duration", "ordinal") or not _all_numbers(attribute):
            raise SchemaError(
                f"{which}: {attribute.name!r} is not a number, so it cannot be added", where="rules"
            )
        return
    low, high = by_name[rule.low], by_name[rule.high]
    alike = low.kind == high.kind or {low.kind, high.kind} <= {"numeric", "ordinal"}
    if not alike or not (
        attribute.on_line or (attribute.kind == "ordinal" and _all_numbers(attribute))
    ):
        raise SchemaError(
            f"{which}: {rule.low!r} and {rule.high!r} must both be numbers, dates, datetimes or durations",
            where="rules",
        )


def _all_numbers(attribute: Attribute) -> bool:
    return attribute.on_line or all(
        is_finite(v) and not isinstance(v, (bool, str)) for v in attribute.values
    )
