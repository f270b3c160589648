"""A schema: the attributes that are asked, in order, and its file form. Standard library only."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dither.errors import SchemaError
from dither.schema.attribute import TEXTS, Attribute
from dither.schema.read import attribute_from_json
from dither.schema.rules import Rule, check_rules, rules_from_json

if TYPE_CHECKING:
    from dither.types import JsonObject

FORMAT = "dither-schema-1"
MOST_ATTRIBUTES = 1 << 12
MOST_CODES = 1 << 20  # of all attributes together


@dataclass(frozen=True)
class Schema:
    """The public domain of a record: attributes with distinct names, in a fixed order, and the `rules` that every record keeps.

    `dropped` names columns of a table that are not asked, each with the reason; it is no part of what devices are told.

    >>> from dither import Attribute, Schema
    >>> schema = Schema((Attribute("sex", "categorical", ("Female", "Male")), Attribute("smokes", "boolean", (False, True))))
    >>> schema.names, schema.cardinalities
    (('sex', 'smokes'), (2, 2))
    """

    attributes: tuple[Attribute, ...]
    rules: tuple[Rule, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()

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
        for name, _ in self.dropped:
            if name in seen:
                raise SchemaError(
                    f"the schema asks for {name!r} and says that it is dropped", where=name
                )

    def __len__(self) -> int:
        return len(self.attributes)

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
        """The position of an attribute; an error names the ones there are."""
        try:
            return self._positions[name]
        except KeyError:
            raise SchemaError(
                f"no attribute {name!r} in the schema; it has {', '.join(self.names)}", where=name
            ) from None

    def cells(self, names: Sequence[str]) -> int:
        """The size of the product domain of some attributes."""
        return math.prod(self.cardinalities[self.index(n)] for n in names)

    def to_json(self) -> JsonObject:
        """What is asked, as devices read it: without the dropped columns."""
        rules = {"rules": [rule.to_json() for rule in self.rules]} if self.rules else {}
        return {"format": FORMAT, "attributes": [a.to_json() for a in self.attributes], **rules}

    def file_json(self) -> JsonObject:
        """The form a schema file holds: the same with the dropped columns and why."""
        return {**self.to_json(), **({"dropped": dict(self.dropped)} if self.dropped else {})}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical form without the texts for people: two parties with the same fingerprint mean the same codes."""
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
    """Read a schema from its file form, or from the plain form {name: {kind: ..}, ..}."""
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
    for name, entry in entries:  # one at a time: a few bytes can ask for many bins
        built.append(attribute_from_json(name, entry))
        codes += built[-1].cardinality
        _check_size(len(built), codes)
    rules = rules_from_json(data["rules"], built) if whole and "rules" in data else ()
    return Schema(tuple(built), rules, _dropped(data.get("dropped", {})) if whole else ())


def _dropped(data: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(data, Mapping) or not all(
        isinstance(word, str) for pair in data.items() for word in pair
    ):
        raise SchemaError(
            "dropped must be an object from columns' names to reasons", where="dropped"
        )
    return tuple(data.items())


def load_schema(path: str | Path) -> Schema:
    """Read a schema file; an error names the file.

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
    if attributes > MOST_ATTRIBUTES:
        raise SchemaError(
            f"a schema of {attributes:,} attributes is too wide; at most {MOST_ATTRIBUTES:,} are asked"
        )
    if codes > MOST_CODES:
        raise SchemaError(
            f"the schema's values and bins exceed {MOST_CODES:,} in total; use coarser ones"
        )


def file_fault(error: Exception) -> str:
    """Why a file could not be read or written, in a few words."""
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
