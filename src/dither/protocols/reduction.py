"""What of a schema a method has to ask, given what is publicly known: determined attributes are left out, wide ones asked in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dither.errors import SchemaError
from dither.mechanisms import LocalHash
from dither.schema import Attribute, Schema
from dither.schema.rule_tables import constraints
from dither.schema.rules import Determines

WIDE = 256  # codes of one attribute; pairs of two such have as many cells as can be asked
GROUPS = 32  # into which a wide attribute without groups of its own is cut
MOST_EXTRA = 0.4  # of the participants, however much has to be asked apart
LEAST_EXTRA = 0.1


@dataclass(frozen=True)
class Reduction:
    """`schema` is the whole one, with groups for every wide attribute; `asked` is what the method inside is about.

    `wide` are asked in groups by the method and each alone in full; `learnt` are determinations whose outcomes are asked for.
    """

    schema: Schema
    asked: Schema
    wide: tuple[str, ...]
    learnt: tuple[Determines, ...]

    @property
    def extras(self) -> int:
        """How many questions a round of their own has."""
        return len(self.wide) + len(self.learnt)

    @property
    def share(self) -> float:
        """The share of the participants whom that round asks: as if each question were about one more attribute."""
        if not self.extras:
            return 0.0
        return min(MOST_EXTRA, max(LEAST_EXTRA, self.extras / (self.extras + len(self.asked))))


def reduce_schema(schema: Schema, *, pairs: bool) -> Reduction | None:
    """What is left to ask; None where nothing is known and nothing is wide. Only a method that asks pairs needs groups."""
    determined = {rule.attribute for rule in schema.rules if isinstance(rule, Determines)}
    left = [a for a in schema if a.name not in determined]
    wide = tuple(a.name for a in left if pairs and len(left) > 1 and (a.groups or a.cardinality > WIDE))
    if not wide and not schema.rules:
        return None
    constraints(schema)  # an error in the rules is said before anybody is asked
    attributes = tuple(with_groups(a) if a.name in wide else a for a in schema)
    whole = replace(schema, attributes=attributes)
    asked = tuple(grouped_attribute(whole[a.name]) if a.name in wide else a for a in left)
    learnt = tuple(rule for rule in schema.rules if isinstance(rule, Determines) and rule.outcomes is None)
    for rule in learnt:
        if whole.cells(rule.names) > LocalHash.most_cells:
            raise SchemaError(
                f"{rule.by!r} and {rule.attribute!r} have {whole.cells(rule.names):,} combinations, too many to learn which one "
                "determines which; state the map in the rule",
                where="rules",
            )
    return Reduction(whole, Schema(asked), wide, learnt)


def with_groups(attribute: Attribute) -> Attribute:
    """The attribute with its own groups, or with runs of neighbouring values as groups."""
    if attribute.groups:
        return attribute
    size = math.ceil(attribute.answers / GROUPS)
    labels = attribute.labels
    groups: list[str] = []
    for start in range(0, attribute.answers, size):
        run = labels[start : min(start + size, attribute.answers)]
        name = run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}"
        groups += [_distinct(name, groups)] * len(run)
    return replace(attribute, groups=tuple(groups))


def grouped_attribute(attribute: Attribute) -> Attribute:
    """An attribute whose values are the groups of another; in order if that one is, and no group comes twice."""
    codes = attribute.group_codes[: attribute.answers]
    runs = all(a <= b for a, b in zip(codes, codes[1:], strict=False))
    kind = "ordinal" if attribute.ordered and runs else "categorical"
    return Attribute(attribute.name, kind, values=attribute.group_names, missing=attribute.missing)


def _distinct(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "'"
    return name
