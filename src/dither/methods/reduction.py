"""A method that asks less than the whole record, because the rest is publicly known or too wide for pairs.

The machine inside works on the reduced schema and never hears of the rest. What has to be asked apart (a wide attribute in full,
which value determines which) has a round of its own with people of its own, before the method's rounds; so it works with every
method and costs no epsilon. The finished model is conditioned on the rules (`models.ruled`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from dither.errors import ReportError, SchemaError, TooFewAnswers
from dither.fit import Marginal, Model, answers_of, norm_sub, pool
from dither.fit.ruled import Ruled
from dither.mechanisms import LocalHash
from dither.methods.independent import question_shares
from dither.methods.machine import ProtocolMachine
from dither.reports import Plan, question
from dither.schema import Attribute, Schema
from dither.schema.attribute import Kind
from dither.schema.rule_tables import constraints, outcome_codes
from dither.schema.rules import Determines
from dither.tally import CountTally, PatternTally, RoundTally
from dither.types import Floats, Integers, JsonObject, Progress

WIDE = 1024  # codes of one attribute from which on its pairs are asked in groups, though mechanisms would reach further
MAX_PAIR = LocalHash.max_cells  # cells of a pair, which no mechanism exceeds
GROUPS = 32  # into which a wide attribute without groups of its own is cut; 64 measured alike
MAX_EXTRA = 0.5  # of the participants, however much has to be asked apart
LEARNT_EXTRA = 0.1  # for each determination that is to be learnt


@dataclass(frozen=True)
class _Reduction:
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
        scale = min(1.0, MAX_EXTRA / math.fsum(share for _, share in shares)) if shares else 1.0
        return [(names, share * scale) for names, share in shares]


def reduce_schema(schema: Schema, *, pairs: bool) -> _Reduction | None:
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
        if whole.cells(rule.names) > LocalHash.max_cells:
            raise SchemaError(
                f"{rule.by!r} and {rule.attribute!r} have {whole.cells(rule.names):,} combinations, too many to learn which one "
                "determines which; state the map in the rule",
                where="rules",
            )
    return _Reduction(whole, Schema(asked), wide, learnt)


def _wide(attributes: Sequence[Attribute]) -> tuple[str, ...]:
    """Those with groups of their own, and the widest until no pair of the others, or of their groups, is too wide."""
    widths = {a.name: len(a.group_names) if a.groups else a.cardinality for a in attributes}
    wide = {a.name for a in attributes if a.groups}
    for name in sorted(widths, key=lambda name: -widths[name]):
        others = max((width for other, width in widths.items() if other != name), default=1)
        if name not in wide and (widths[name] > WIDE or widths[name] * others > MAX_PAIR):
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


class Reduced(ProtocolMachine):
    """A machine inside a campaign of a wider schema. Drivers cannot tell it from any other."""

    def __init__(self, machine: ProtocolMachine, reduction: _Reduction, participants: int) -> None:
        self.machine, self.reduction = machine, reduction
        campaign = replace(machine.campaign, schema=reduction.schema, participants=participants)
        super().__init__(campaign, machine.parameters)

    @property
    def method(self) -> str:  # type: ignore[override]
        return self.machine.method

    @property
    def core(self) -> ProtocolMachine:
        return self.machine.core

    @property
    def progress(self) -> Progress | None:
        return self.machine.progress

    @progress.setter
    def progress(self, progress: Progress | None) -> None:
        self.machine.progress = progress

    @cached_property
    def _extra(self) -> Plan | None:
        """The round of what is asked apart."""
        extras = self.reduction.extras(self.campaign.epsilon)
        if not extras:
            return None
        questions = tuple(
            question(self.reduction.schema, names, self.campaign.epsilon) for names, _ in extras
        )
        total = math.fsum(share for _, share in extras)
        return Plan(0, questions, tuple(share / total for _, share in extras), population=total)

    def plan(self) -> Plan | None:
        if self._extra is not None and not self._closed:
            return self._extra
        inner = self.machine.plan()
        if inner is None:
            return None
        wide = set(self.reduction.wide)
        questions = tuple(
            replace(q, grouped=tuple(n for n in q.attributes if n in wide)) for q in inner.questions
        )
        number = inner.round + int(self._extra is not None)
        left = 1.0 if self._extra is None else 1.0 - self._extra.population
        return replace(inner, round=number, questions=questions, population=inner.population * left)

    def _inner(self, tally: RoundTally) -> RoundTally | None:
        """A round's tally as the machine inside expects it; None for the round that is not its own."""
        plan = self.machine.plan()
        if (
            tally.plan is self._extra
            or (self._extra is not None and tally.plan.round == 0)
            or plan is None
        ):
            return None
        if isinstance(tally, PatternTally):
            return PatternTally(plan, tally.patterns, tally.counts)
        return CountTally(plan, tally.n, tally.counts)

    def _check_answers(self, tally: RoundTally) -> None:
        inner = self._inner(tally)
        if inner is not None:
            self.machine.check(inner)
            return
        assert isinstance(tally, CountTally)
        silent = [
            q.attributes for q, n in zip(tally.plan.questions, tally.n, strict=True) if n == 0
        ]
        if silent:
            raise TooFewAnswers(
                f"nobody answered about {', '.join(silent[0])}; more participants are needed",
                value=silent,
            )

    def _go_on(self, tally: RoundTally) -> None:
        inner = self._inner(tally)
        if inner is not None:
            self.machine.close(inner)

    @cached_property
    def _within(self) -> dict[str, Floats]:
        """The share of each value of a wide attribute in its group, from the questions about it alone."""
        out = {}
        for name in self.reduction.wide:
            share = norm_sub(self._alone(name).frequencies)
            groups = np.asarray(self.reduction.schema[name].group_codes)
            total, size = np.bincount(groups, share), np.bincount(groups)
            even = 1.0 / size[groups]  # a group of which nothing was seen is taken as even
            out[name] = np.where(total[groups] > 0, share / np.maximum(total[groups], 1e-300), even)
        return out

    def _alone(self, name: str) -> Marginal:
        extra = [tally for tally in self.counted if tally.plan.round == 0]
        return pool(self.reduction.schema, answers_of(extra), [name])

    @cached_property
    def _outcomes(self) -> dict[str, Integers]:
        """The code of each determined attribute for every code of the other: stated, or the most frequent one."""
        schema, out = self.reduction.schema, {}
        answers = (
            answers_of([tally for tally in self.counted if tally.plan.round == 0])
            if self._extra
            else []
        )
        for rule in schema.rules:
            if not isinstance(rule, Determines):
                continue
            known = outcome_codes(rule, schema)
            if known is None:
                table = pool(schema, answers, rule.names).frequencies
                target, by = schema[rule.attribute], schema[rule.by]
                known = table[:, : target.answers].argmax(axis=1)
                if by.missing:
                    known[by.answers] = target.answers
            out[rule.attribute] = known
        return out

    def model(self) -> Model:
        self._finished()
        return Ruled(self.reduction.schema, self.machine.model(), self._within, self._outcomes)

    def measured(self) -> Sequence[Marginal]:
        if self.plan() == self._extra:
            return []
        wide = set(self.reduction.wide)
        inner = [m for m in self.machine.measured() if not wide & set(m.attributes)]
        found = [*inner, *(self._alone(name) for name in self.reduction.wide)]
        known = {m.attributes[0]: m for m in found if len(m.attributes) == 1}
        for rule in self.reduction.schema.rules:
            if isinstance(rule, Determines) and rule.by in known:
                known[rule.attribute] = self._carried(known[rule.by], rule)
                found.append(known[rule.attribute])
        return found

    def _carried(self, by: Marginal, rule: Determines) -> Marginal:
        """The marginal of a determined attribute: cells added up, and their variances as if they were uncorrelated."""
        codes, cells = (
            self._outcomes[rule.attribute],
            self.reduction.schema[rule.attribute].cardinality,
        )
        frequencies, variances = np.zeros(cells), np.zeros(cells)
        np.add.at(frequencies, codes, by.frequencies)
        np.add.at(variances, codes, by.variances)
        return Marginal((rule.attribute,), frequencies, np.sqrt(variances), by.n)

    def notes(self) -> JsonObject:
        notes = dict(self.machine.notes())
        determined = [
            rule.attribute for rule in self.reduction.schema.rules if isinstance(rule, Determines)
        ]
        if determined:
            notes["not_asked"] = determined
        if self.reduction.wide:
            notes["asked_in_groups"] = list(self.reduction.wide)
        return notes

    @classmethod
    def start_again(cls, state: bytes) -> Self:
        from dither.methods.registry import (
            start_again,
        )  # which knows the machine inside, and imports this module

        machine = start_again(state)
        if not isinstance(machine, cls):
            raise ReportError(
                "a state of a campaign without rules cannot be restored as one that has some"
            )
        return machine
