"""What of a schema a method has to ask: what is determined is left out, and wide attributes are asked in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dither.errors import SchemaError
from dither.mechanisms import LocalHash
from dither.protocols.independent import question_shares
from dither.reports import question
from dither.schema import Attribute, Schema
from dither.schema.attribute import Kind
from dither.schema.rule_tables import constraints
from dither.schema.rules import Determines

WIDE = 1024  # codes of one attribute from which on its pairs are asked in groups, though mechanisms would reach further
MOST_PAIR = LocalHash.most_cells  # cells of a pair, which no mechanism exceeds
GROUPS = 32  # into which a wide attribute without groups of its own is cut; 64 measured alike
MOST_EXTRA = 0.5  # of the participants, however much has to be asked apart
LEARNT_EXTRA = 0.1  # for each determination that is to be learnt


@dataclass(frozen=True)
class Reduction:
    """`schema` is the whole one, with groups for every wide attribute; `asked` is what the method inside is about.

    `wide` are asked in groups by the method and each alone in full; `learnt` are determinations whose outcomes are asked for.
    """

    schema: Schema
    asked: Schema
    wide: tuple[str, ...]
    learnt: tuple[Determines, ...]

    def extras(self, epsilon: float) -> list[tuple[tuple[str, ...], float]]:
        """What is asked apart, each with its share of all participants.

        A wide attribute gets the share that makes the sum of all one-way errors least, if single attributes were all that is asked.
        """
        attributes = [a for a in self.schema if a.name in self.asked.names]
        questions = (
            [question(self.schema, [a.name], epsilon) for a in attributes] if self.wide else []
        )
        alone = (
            dict(
                zip(
                    (a.name for a in attributes),
                    question_shares(questions, "least-error"),
                    strict=False,
                )
            )
            if questions
            else {}
        )
        shares = [((name,), alone[name]) for name in self.wide] + [
            (rule.names, LEARNT_EXTRA) for rule in self.learnt
        ]
        scale = min(1.0, MOST_EXTRA / math.fsum(share for _, share in shares)) if shares else 1.0
        return [(names, share * scale) for names, share in shares]


def reduce_schema(schema: Schema, *, pairs: bool) -> Reduction | None:
    """What is left to ask; None where nothing is known and nothing is wide. Only a method that asks pairs needs groups."""
    determined = {rule.attribute for rule in schema.rules if isinstance(rule, Determines)}
    left = [a for a in schema if a.name not in determined]
    wide = _wide(left) if pairs and len(left) > 1 else ()
    if not wide and not schema.rules:
        return None
    constraints(schema)  # an error in the rules is said before anybody is asked
    attributes = tuple(with_groups(a) if a.name in wide else a for a in schema)
    whole = replace(schema, attributes=attributes)
    asked = tuple(grouped_attribute(whole[a.name]) if a.name in wide else a for a in left)
    learnt = tuple(
        rule for rule in schema.rules if isinstance(rule, Determines) and rule.outcomes is None
    )
    for rule in learnt:
        if whole.cells(rule.names) > LocalHash.most_cells:
            raise SchemaError(
                f"{rule.by!r} and {rule.attribute!r} have {whole.cells(rule.names):,} combinations, too many to learn which one "
                "determines which; state the map in the rule",
                where="rules",
            )
    return Reduction(whole, Schema(asked), wide, learnt)


def _wide(attributes: Sequence[Attribute]) -> tuple[str, ...]:
    """Those with groups of their own, and the widest until no pair of the others, or of their groups, is too wide."""
    widths = {a.name: len(a.group_names) if a.groups else a.cardinality for a in attributes}
    wide = {a.name for a in attributes if a.groups}
    for name in sorted(widths, key=lambda name: -widths[name]):
        others = max((width for other, width in widths.items() if other != name), default=1)
        if name not in wide and (widths[name] > WIDE or widths[name] * others > MOST_PAIR):
            wide.add(name)
            widths[name] = GROUPS + 1
    return tuple(a.name for a in attributes if a.name in wide)


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
    runs = all(a <= b for a, b in pairwise(codes))
    kind: Kind = "ordinal" if attribute.ordered and runs else "categorical"
    return Attribute(attribute.name, kind, values=attribute.group_names, missing=attribute.missing)


def _distinct(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "'"
    return name
