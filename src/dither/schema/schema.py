"""Schemas: attributes in a fixed order, rules, and the file format. Standard library only."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dither.checks import check_choice, check_whole, is_finite
from dither.errors import SchemaError
from dither.schema.attribute import (
    CYCLES,
    DAY,
    LAST_DAY,
    MAX_VALUES,
    PERIODS,
    TEXTS,
    Attribute,
    Cycle,
    Period,
    Value,
    Wording,
    check_kind,
    check_span,
    check_unit,
    day_number,
    period_edges,
    second_number,
    too_many,
)
from dither.schema.formats import NumberFormat, parse_format
from dither.schema.rules import Rule, check_rules, rules_from_json

if TYPE_CHECKING:
    from dither.types import JsonObject

DEFAULT_BINS = 16
Shape = Literal["even", "skewed", "heaped"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
_KNOWN = (
    "atoms",
    "bins",
    "by",
    "clip",
    "currency",
    "cycles",
    "edges",
    "format",
    "groups",
    "help",
    "kind",
    "labels",
    "max",
    "min",
    "missing",
    "name",
    "question",
    "shape",
    "unit",
    "values",
)
# Keys about a table's columns, without an effect on codes.
_COLUMN_KEYS = ("format", "currency")
# The keys of each kind, in addition to name, kind and missing.
_USED = {
    "numeric": {"edges", "min", "max", "bins", "atoms", "unit", "shape", "groups", "clip"},
    "duration": {"edges", "min", "max", "bins", "atoms", "unit", "shape", "groups", "clip"},
    "date": {"edges", "min", "max", "by", "cycles", "groups"},
    "datetime": {"edges", "min", "max", "by", "cycles", "groups"},
    "categorical": {"values", "groups"},
    "ordinal": {"values", "groups"},
    "boolean": set[str](),
}


def numeric(
    name: str,
    *,
    low: float,
    high: float,
    bins: int = DEFAULT_BINS,
    missing: bool = False,
    shape: Shape = "even",
    atoms: Sequence[float] = (),
    unit: float | None = None,
    kind: Literal["numeric", "duration"] = "numeric",
    clip: bool = False,
) -> Attribute:
    """A numeric attribute, or a duration in seconds, with bins between public bounds.

    Args:
        name: The attribute's name.
        low: The lower bound, the first edge.
        high: The upper bound, the last edge.
        bins: The number of bins.
        missing: Whether a missing answer has a code.
        shape: "even" bins have equal widths; if the integers between whole bounds are not more
            than `bins`, each gets a bin. "skewed" bins grow by a constant factor away from the
            bound nearest to zero, which has an atom if it is zero: for amounts with a long tail.
            "heaped" bins are even, and about `bins` round numbers are atoms: for answers that
            people round.
        atoms: More exact values with their own codes.
        unit: Every number is a multiple of it.
        kind: "numeric" or "duration".
        clip: Whether a number outside the bounds counts as the nearer bound.

    Raises:
        SchemaError: The bounds, bins or unit are not valid.
    """
    _check_bounds(name, kind, low, high)
    check_whole(f"bins of {kind} attribute {name!r}", bins, 1, error=SchemaError)
    check_choice(f"attribute {name!r}: shape", shape, SHAPES, where=name, error=SchemaError)
    # Cheap to write and expensive to build, so it is rejected before anything is built.
    if bins > MAX_VALUES:
        raise too_many(name, bins)
    check_unit(name, unit, (float(low), float(high)))
    exact = {float(atom) for atom in atoms}
    edges: Sequence[float]
    if shape == "skewed":
        edges = _growing(float(low), float(high), bins, unit)
        exact |= {0.0} if 0.0 in (low, high) else set()
    else:
        edges = _even(low, high, bins)
        exact |= set(_round_numbers(float(low), float(high), bins)) if shape == "heaped" else set()
    return Attribute(
        name,
        kind,
        edges=tuple(float(e) for e in edges),
        missing=missing,
        atoms=tuple(sorted(exact)),
        unit=None if unit is None else float(unit),
        clip=clip,
    )


def _check_bounds(name: str, kind: Literal["numeric", "duration"], low: float, high: float) -> None:
    for bound in (low, high):
        if not is_finite(bound):
            raise SchemaError(
                f"{kind} attribute {name!r}: min and max must be finite numbers",
                where=name,
                value=bound,
            )
    if low >= high:
        raise SchemaError(
            f"{kind} attribute {name!r}: min {low} must be below max {high}", where=name
        )
    check_span(name, kind, float(low), float(high))


def _even(low: float, high: float, bins: int) -> list[float]:
    if isinstance(low, int) and isinstance(high, int) and high - low + 1 <= bins:
        return [float(low), *(low + 0.5 + i for i in range(high - low)), float(high)]
    return [low + (high - low) * i / bins for i in range(bins)] + [float(high)]


def _growing(low: float, high: float, bins: int, unit: float | None) -> list[float]:
    """Edges in geometric steps over at most four powers of ten, rounded to few digits.

    They start at the bound nearer to zero.
    """
    span = high - low
    # Two units, so that one multiple lies between the atom at zero and the first edge.
    least = min(max(span * 1e-4, 2 * (unit or 0.0)), span)
    inner = (
        [_few_digits(least * (span / least) ** (i / (bins - 1))) for i in range(bins - 1)]
        if bins > 1
        else []
    )
    if unit is not None:
        inner = [float(f"{round(step / unit) * unit:.12g}") for step in inner]
    steps = sorted({step for step in inner if 0 < step < span})
    if abs(low) <= abs(high):
        edges = [low, *(low + step for step in steps), high]
    else:
        edges = [low, *(high - step for step in reversed(steps)), high]
    return sorted({edge for edge in edges if low <= edge <= high})


def _few_digits(number: float) -> float:
    return float(f"{number:.2g}")


def _round_numbers(low: float, high: float, about: int) -> list[float]:
    wanted = (high - low) / about
    power = 10.0 ** math.floor(math.log10(wanted))
    step = min((power * m for m in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / wanted)))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def attribute_from_json(name: str, entry: Any) -> Attribute:
    """Read one attribute of a schema file or of a plain domain dictionary.

    Raises:
        SchemaError: The entry is not valid.
    """
    if not isinstance(entry, dict):
        raise SchemaError(
            f"attribute {name!r} must be an object with a kind, not {entry!r}",
            where=name,
            value=entry,
        )
    unknown = sorted(set(entry) - set(_KNOWN))
    if unknown:
        raise SchemaError(
            f"attribute {name!r}: unknown key {unknown[0]!r}; known are {', '.join(_KNOWN)}",
            where=name,
            value=unknown,
        )
    texts = {key: entry[key] for key in TEXTS if key in entry}
    aside = (*TEXTS, *_COLUMN_KEYS)
    bare = _coded(name, {key: part for key, part in entry.items() if key not in aside})
    if any(key in entry for key in _COLUMN_KEYS):
        bare = replace(bare, format=_format(bare, entry))
    return _with_texts(bare, texts) if texts else bare


def _format(attribute: Attribute, entry: Mapping[str, Any]) -> str:
    """The format of an entry, also from its currency: "$" means $1,234.00 with a unit of cents."""
    if "format" in entry:
        if "currency" in entry:
            raise SchemaError(
                f"attribute {attribute.name!r} takes format or currency, not both",
                where=attribute.name,
            )
        # Checks an empty format too, which an attribute takes for none.
        parse_format(attribute.name, attribute.kind, entry["format"])
        return str(entry["format"])
    currency = entry["currency"]
    if not isinstance(currency, str) or not currency.strip() or attribute.kind != "numeric":
        raise SchemaError(
            f"attribute {attribute.name!r}: currency is a symbol such as $, and goes with numbers",
            where=attribute.name,
        )
    exponent = Decimal(repr(0.01 if attribute.unit is None else attribute.unit)).normalize()
    digits = max(0, -int(exponent.as_tuple().exponent))
    return NumberFormat(prefix=currency, thousands=",", digits=digits).example


def _with_texts(attribute: Attribute, texts: Mapping[str, Any]) -> Attribute:
    """Add the texts for people: one text each, or an object {language: text}."""
    spoken: dict[str, None] = {}
    for key in TEXTS:
        if _by_language(key, texts.get(key)):
            spoken |= dict.fromkeys(texts[key])
    wordings = tuple(_wording(attribute, texts, language) for language in spoken)
    found: dict[str, Any] = {}
    for field in ("question", "help", "captions"):
        given = [getattr(wording, field) for wording in (_wording(attribute, texts), *wordings)]
        found[field] = next((text for text in given if text), given[0])
    return replace(attribute, **found, wordings=wordings)


def _by_language(key: str, text: object) -> bool:
    """Whether a text is an object {language: text}; labels may also be {value: label}."""
    if not isinstance(text, Mapping):
        return False
    return key != "labels" or (bool(text) and not any(isinstance(v, str) for v in text.values()))


def _wording(attribute: Attribute, texts: Mapping[str, Any], language: str = "") -> Wording:
    """The texts in a language, or without one those that name no language."""
    said: dict[str, Any] = {"question": "", "help": "", "labels": ()}
    for key in TEXTS:
        text = texts.get(key, said[key])
        if _by_language(key, text):
            said[key] = text.get(language, said[key])
        elif not language:
            said[key] = text
    captions = _captions(attribute, said["labels"])
    return Wording(language, said["question"], said["help"], captions)


def _captions(attribute: Attribute, labels: object) -> tuple[str, ...]:
    """The labels: a list in the answers' order, or an object {value: label} for some values."""
    if isinstance(labels, Mapping):
        values = attribute.labels[: attribute.answers]
        valid = set(values)
        stray = [value for value in labels if value not in valid]
        if attribute.on_line or stray:
            problem = (
                "takes a list of labels, one for each answer"
                if attribute.on_line
                else f"has no value {stray[0]!r}"
            )
            raise SchemaError(
                f"attribute {attribute.name!r} {problem}; correct its labels", where=attribute.name
            )
        labels = [labels.get(value, value) for value in values]
    return _list(attribute.name, "labels", labels)


def _coded(name: str, entry: Mapping[str, Any]) -> Attribute:
    missing = entry.get("missing", False)
    if not isinstance(missing, bool):
        raise SchemaError(
            f"attribute {name!r}: missing must be true or false", where=name, value=missing
        )
    kind = check_kind(name, entry.get("kind"))
    if kind == "boolean":
        return Attribute(name, "boolean", values=(False, True), missing=missing)
    if kind in ("date", "datetime"):
        _check_used(name, kind, entry)
        edges, cycles = _time_edges(name, kind, entry)
        groups = _groups(name, (), entry.get("groups"))
        return Attribute(name, kind, edges=edges, missing=missing, cycles=cycles, groups=groups)
    if kind in ("numeric", "duration"):
        return _numbers(name, "numeric" if kind == "numeric" else "duration", entry, missing)
    values = _list(name, "values", entry.get("values"))
    return Attribute(
        name,
        kind,
        values=values,
        missing=missing,
        groups=_groups(name, values, entry.get("groups")),
    )


def _check_used(name: str, kind: str, entry: Mapping[str, object]) -> None:
    stray = sorted(set(entry) - _USED[kind] - {"name", "kind", "missing"})
    if stray:
        raise SchemaError(
            f"attribute {name!r}: a {kind} has no {stray[0]!r}", where=name, value=stray[0]
        )


def _numbers(
    name: str, kind: Literal["numeric", "duration"], entry: Mapping[str, Any], missing: bool
) -> Attribute:
    atoms = _list(name, "atoms", entry.get("atoms", ()))
    if not all(is_finite(atom) and not isinstance(atom, bool) for atom in atoms):
        raise SchemaError(
            f"attribute {name!r}: atoms must be finite numbers", where=name, value=atoms
        )
    unit, clip = entry.get("unit"), entry.get("clip", False)
    if unit is not None and (isinstance(unit, bool) or not is_finite(unit)):
        raise SchemaError(
            f"attribute {name!r}: unit must be a number above 0", where=name, value=unit
        )
    if "edges" in entry:
        edges = _list(name, "edges", entry["edges"])
        exact = tuple(sorted(float(atom) for atom in atoms))
        groups = _groups(name, (), entry.get("groups"))
        return Attribute(
            name,
            kind,
            edges=edges,
            missing=missing,
            atoms=exact,
            unit=unit,
            groups=groups,
            clip=clip,
        )
    if "min" not in entry or "max" not in entry:
        raise SchemaError(f"{kind} attribute {name!r} needs edges, or min and max", where=name)
    return numeric(
        name,
        low=entry["min"],
        high=entry["max"],
        bins=entry.get("bins", DEFAULT_BINS),
        missing=missing,
        shape=entry.get("shape", "even"),
        atoms=atoms,
        unit=unit,
        kind=kind,
        clip=clip,
    )


def _time_edges(
    name: str, kind: Literal["date", "datetime"], entry: Mapping[str, Any]
) -> tuple[tuple[float, ...], tuple[Cycle, ...]]:
    """The edges and cycles of a date or an instant.

    They are given as `edges` and `cycles`, or as `min`, `max` and `by`.
    """
    if "edges" in entry:
        if {"min", "max", "by"} & set(entry):
            raise SchemaError(
                f"attribute {name!r} takes edges, or min, max and by, not both", where=name
            )
        edges = tuple(
            _moment(name, kind, "edges", edge) for edge in _list(name, "edges", entry["edges"])
        )
        return edges, _list(name, "cycles", entry.get("cycles", ()))
    if "min" not in entry or "max" not in entry:
        raise SchemaError(f"{kind} attribute {name!r} needs edges, or min and max", where=name)
    if "cycles" in entry:
        raise SchemaError(
            f"attribute {name!r}: cycles go with edges; write them in 'by'", where=name
        )
    by = entry.get("by", "month")
    parts = [by] if isinstance(by, str) else list(_list(name, "by", by))
    if not parts:
        raise SchemaError(
            f"attribute {name!r}: by names at least one of {', '.join((*PERIODS, *CYCLES))}",
            where=name,
        )
    for part in parts:
        check_choice(
            f"attribute {name!r}: by", part, (*PERIODS, *CYCLES), where=name, error=SchemaError
        )
    periods: list[Period] = [part for part in PERIODS if part in parts]
    if len(periods) > 1 or len(set(parts)) < len(parts):
        raise SchemaError(
            f"attribute {name!r}: by names one of {', '.join(PERIODS)} at most, and nothing twice",
            where=name,
        )
    scale = 1.0 if kind == "date" else float(DAY)
    first, last = (_moment(name, kind, key, entry[key]) // scale for key in ("min", "max"))
    if first > last:
        raise SchemaError(f"{kind} attribute {name!r}: min must not be after max", where=name)
    if (last - first) / {"year": 365, "quarter": 90, "month": 28, "week": 7}.get(
        parts[0], 1
    ) > 2 * MAX_VALUES:
        raise too_many(name, int(last - first))
    cycles: tuple[Cycle, ...] = tuple(part for part in CYCLES if part in parts)
    return tuple(
        day * scale for day in period_edges(first, last, periods[0] if periods else None)
    ), cycles


def _moment(name: str, kind: Literal["date", "datetime"], key: str, text: object) -> float:
    number = None
    if isinstance(text, str):
        number = day_number(text) if kind == "date" else second_number(text)
    example = "2024-02-29" if kind == "date" else "2024-02-29T12:00:00"
    if number is None or not number.is_integer():
        raise SchemaError(
            f"attribute {name!r}: {key} holds {text!r}, which is not a {kind} such as {example}",
            where=name,
        )
    if number > (LAST_DAY if kind == "date" else LAST_DAY * DAY):
        raise SchemaError(
            f"attribute {name!r}: {text} lies beyond the year 9998", where=name, value=text
        )
    return number


def _groups(name: str, values: Sequence[Any], given: object) -> tuple[str, ...]:
    """One group per value, from a list or from an object {group: [values]}."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        return _list(name, "groups", given)
    of: dict[Any, str] = {}
    for group, members in given.items():
        for value in _list(name, f"group {group!r}", members):
            if not isinstance(value, (str, int, float)):
                raise SchemaError(
                    f"attribute {name!r}: {value!r} in group {group!r} is not a value", where=name
                )
            if value in of:
                raise SchemaError(
                    f"attribute {name!r}: the value {value!r} is in two groups",
                    where=name,
                    value=value,
                )
            of[value] = group
    valid = set(values)
    stray = [value for value in of if value not in valid] or [
        value for value in values if value not in of
    ]
    if stray:
        raise SchemaError(
            f"attribute {name!r}: groups must hold every value once; {stray[0]!r} is not in both",
            where=name,
            value=stray,
        )
    return tuple(of[value] for value in values)


def _list(name: str, key: str, given: object) -> tuple[Any, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise SchemaError(f"attribute {name!r}: {key} must be a list", where=name, value=given)
    return tuple(given)


FORMAT = "dither-schema-1"
MAX_ATTRIBUTES = 1 << 12
MAX_CODES = 1 << 20  # of all attributes together
_SHOWN = 6  # attributes, and values of one, that a notebook shows


@dataclass(frozen=True)
class Schema:
    """The public domain of a record: attributes in a fixed order, and rules.

    Attributes:
        attributes: Attributes with distinct names.
        rules: What every record satisfies.
        dropped: Columns of a table that are not asked, with the reason; devices do not get it.
        constants: Columns of a table with one value, or with none (None): they are not asked, and
            the synthetic table repeats the value. Devices do not get them.

    >>> from dither import Attribute, Schema
    >>> sex = Attribute("sex", "categorical", ("Female", "Male"))
    >>> schema = Schema((sex, Attribute("smokes", "boolean", (False, True))))
    >>> schema.names, schema.cardinalities
    (('sex', 'smokes'), (2, 2))
    """

    attributes: tuple[Attribute, ...]
    rules: tuple[Rule, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, Value | None], ...] = ()

    def __post_init__(self) -> None:
        if not self.attributes:
            raise SchemaError("a schema needs at least one attribute")
        seen: set[str] = set()
        for attribute in self.attributes:
            if attribute.name in seen:
                raise SchemaError(
                    f"the schema names attribute {attribute.name!r} twice", where=attribute.name
                )
            seen.add(attribute.name)
        _check_size(len(self.attributes), sum(a.cardinality for a in self.attributes))
        check_rules(self.rules, self.attributes)
        for names, state in ((self.dropped, "dropped"), (self.constants, "constant")):
            for name, _ in names:
                if name in seen:
                    raise SchemaError(
                        f"the schema asks for {name!r} and says that it is {state}", where=name
                    )

    def __len__(self) -> int:
        return len(self.attributes)

    def __repr__(self) -> str:
        shown = [f"{a.name}: {a.kind} {a.cardinality}" for a in self.attributes[:_SHOWN]]
        more = ["..."] if len(self) > _SHOWN else []
        return f"Schema({', '.join([*shown, *more])})"

    def _repr_html_(self) -> str:
        """A table of the attributes for a notebook."""
        rows = "".join(
            f"<tr><td>{escape(a.name)}</td><td>{a.kind}</td><td>{a.cardinality:,}</td>"
            f"<td>{escape(', '.join(a.labels[:_SHOWN]))}{', ...' if a.cardinality > _SHOWN else ''}</td></tr>"
            for a in self.attributes
        )
        head = "<tr><th>attribute</th><th>kind</th><th>values</th><th></th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.index(name)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The attributes' names in order."""
        return tuple(a.name for a in self.attributes)

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """The number of codes of each attribute in order."""
        return tuple(a.cardinality for a in self.attributes)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        """The position of an attribute.

        Raises:
            SchemaError: The schema has no such attribute; the message lists them.
        """
        try:
            return self._positions[name]
        except KeyError:
            raise SchemaError(
                f"no attribute {name!r} in the schema; it has {', '.join(self.names)}", where=name
            ) from None

    def cells(self, names: Sequence[str]) -> int:
        """The size of the product domain of some attributes."""
        return math.prod(self.cardinalities[self.index(n)] for n in names)

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages in which its texts are written; empty if they name none."""
        found = (w.language for attribute in self.attributes for w in attribute.wordings)
        return tuple(dict.fromkeys(found))

    def in_language(self, *languages: str) -> Schema:
        """Return the schema with its texts in the first of these languages that they have."""
        if not self.languages:
            return self
        return replace(self, attributes=tuple(a.in_language(*languages) for a in self.attributes))

    def to_json(self) -> JsonObject:
        """The form for devices, without formats, dropped and constant columns."""
        rules = {"rules": [rule.to_json() for rule in self.rules]} if self.rules else {}
        return {"format": FORMAT, "attributes": [a.to_json() for a in self.attributes], **rules}

    def file_json(self) -> JsonObject:
        """The form of a schema file, with all that is said of a table's columns."""
        out = {**self.to_json(), "attributes": [a.file_json() for a in self.attributes]}
        if self.dropped:
            out["dropped"] = dict(self.dropped)
        if self.constants:
            out["constants"] = dict(self.constants)
        return out

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical form without texts; equal fingerprints mean equal codes."""
        whole = self.to_json()
        coded = [
            {key: part for key, part in entry.items() if key not in TEXTS}
            for entry in whole["attributes"]
        ]
        canonical = json.dumps(
            {**whole, "attributes": coded}, sort_keys=True, separators=(",", ":")
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


def schema_from_json(data: object) -> Schema:
    """Read a schema from its file form, or from the plain form {name: {kind: ..}, ..}.

    Raises:
        SchemaError: The JSON is not a schema.
    """
    if not isinstance(data, Mapping):
        raise SchemaError("a schema must be a JSON object", value=data)
    whole = "attributes" in data and isinstance(data["attributes"], list)
    if whole:
        if data.get("format", FORMAT) != FORMAT:
            raise SchemaError(
                f"schema format {data['format']!r} is not known; this version reads {FORMAT}",
                where="format",
            )
        entries = []
        for position, entry in enumerate(data["attributes"]):
            if not isinstance(entry, Mapping) or "name" not in entry:
                raise SchemaError(
                    f"attribute number {position + 1} of the schema has no name", value=entry
                )
            entries.append((entry["name"], entry))
    else:
        entries = list(data.items())
    _check_size(len(entries), 0)
    built: list[Attribute] = []
    codes = 0
    for name, entry in entries:  # one at a time, because a few bytes can ask for many bins
        built.append(attribute_from_json(name, entry))
        codes += built[-1].cardinality
        _check_size(len(built), codes)
    rules = rules_from_json(data["rules"], built) if whole and "rules" in data else ()
    if not whole:
        return Schema(tuple(built))
    return Schema(
        tuple(built),
        rules,
        _dropped(data.get("dropped", {})),
        _constants(data.get("constants", {})),
    )


def _dropped(data: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(data, Mapping) or not all(
        isinstance(word, str) for pair in data.items() for word in pair
    ):
        raise SchemaError(
            "dropped must be an object from columns' names to reasons", where="dropped"
        )
    return tuple(data.items())


def _constants(data: object) -> tuple[tuple[str, Value | None], ...]:
    if not isinstance(data, Mapping) or not all(
        isinstance(name, str) and (value is None or isinstance(value, (str, int, float)))
        for name, value in data.items()
    ):
        raise SchemaError(
            "constants must be an object from columns' names to their one value", where="constants"
        )
    return tuple(data.items())


def load_schema(path: str | Path) -> Schema:
    """Read a schema file; an error names the file.

    Args:
        path: A JSON file of the format `dither-schema-1`.

    Returns:
        The schema.

    >>> import dither, json, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "schema.json")
    ...     _ = file.write_text(json.dumps(dither.load_dataset("adult").schema.to_json()))
    ...     len(dither.load_schema(file))
    15
    """
    path = Path(path)
    try:
        return schema_from_json(
            json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_no_duplicates)
        )
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(
            f"cannot read schema file {path}: {file_fault(error)}", where=str(path)
        ) from None
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"{path} is not JSON: {error.msg} in line {error.lineno}", where=str(path)
        ) from None
    except (ValueError, RecursionError):
        raise SchemaError(
            f"{path} has too long a number or too many brackets", where=str(path)
        ) from None
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}", where=error.where, value=error.value) from None


def _check_size(attributes: int, codes: int) -> None:
    if attributes > MAX_ATTRIBUTES:
        raise SchemaError(
            f"a schema of {attributes:,} attributes is too wide; at most {MAX_ATTRIBUTES:,} are asked"
        )
    if codes > MAX_CODES:
        raise SchemaError(
            f"the schema's values and bins exceed {MAX_CODES:,} in total; use coarser ones"
        )


def file_fault(error: Exception) -> str:
    """The reason why a file could not be read or written."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:200]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    out: JsonObject = {}
    for key, value in pairs:
        if key in out:
            raise SchemaError(f"the key {key!r} appears twice", where=key)
        out[key] = value
    return out
