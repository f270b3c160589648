"""Schema reduction: which attributes a method asks, when rules or width make some unnecessary.

An attribute that a rule determines is not asked. An attribute too wide for pairs is asked in
groups, and alone in full. A method may also ask ordered attributes in few groups of equal width
where full pairs would drown in noise (`coarse_groups`). What must be asked separately (a wide attribute in full, which value
determines which) has its own round with its own participants before the method's rounds, so the
reduction works with every method and costs no epsilon. `SeparateAnswers` brings the finished
model and the measured marginals back to the whole schema (`fit.ruled`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.fft import dct, idct

from dither.errors import SchemaError, TooFewAnswers
from dither.fit import AnswerCounts, Marginal, Model, Ruled, norm_sub, pool
from dither.mechanisms import LocalHash, kernels
from dither.methods.diagnostics import Diagnostics
from dither.methods.independent import question_shares
from dither.reports import Plan, Question, question
from dither.schema import Attribute, Schema
from dither.schema.attribute import Kind
from dither.schema.rule_tables import constraints, outcome_codes
from dither.schema.rules import Determines
from dither.tally import CountTally, PatternTally, RoundTally
from dither.types import Codes, Floats, Integers


@dataclass(frozen=True)
class _ReductionSettings:
    """Tuned constants of schema reduction."""

    # Attributes with more codes are asked in groups, although mechanisms would reach further.
    wide: int = 1024
    # Groups of a wide attribute whose schema names none. 64 groups measured the same error.
    groups: int = 32
    # Upper limit of the share of participants in the separate round.
    max_separate: float = 0.5
    # Share of participants for each determination to learn.
    learn_share: float = 0.1
    # Ordered attributes with more values than this are asked on a coarse grid where that is
    # less than half as fine. 16 values measured the same error with and without.
    fine: int = 32
    # Groups of a coarse grid over the fourth root of a pair's signal, and at least so many.
    grid: float = 0.7
    min_grid: int = 4
    # Share of participants who are asked one attribute in full if all are on coarse grids.
    fine_share: float = 0.2


SETTINGS = _ReductionSettings()


# No mechanism has more cells.
MAX_PAIR = LocalHash.max_cells


@dataclass(frozen=True)
class Reduction:
    """Which part of a schema a method asks.

    Attributes:
        schema: The whole schema, with groups for every wide attribute.
        asked: The schema of the method's machine.
        wide: Attributes asked in groups by the method, and each alone in full.
        learnt: Determinations whose outcomes are asked for.
        coarse: Those of `wide` that are ordered and on a coarse grid.
    """

    schema: Schema
    asked: Schema
    wide: tuple[str, ...]
    learnt: tuple[Determines, ...]
    coarse: tuple[str, ...] = ()

    def separate_shares(self, epsilon: float) -> list[tuple[tuple[str, ...], float]]:
        """The attributes asked separately, each set with its share of all participants.

        A wide attribute gets the share that minimises the sum of all one-way errors, as if only
        single attributes were asked.
        """
        shares: list[tuple[tuple[str, ...], float]] = []
        if self.wide:
            names = [name for name in self.schema.names if name in self.asked.names]
            questions = [question(self.schema, [name], epsilon) for name in names]
            alone = dict(zip(names, question_shares(questions, "least-error"), strict=True))
            shares += [
                ((name,), alone[name] * (SETTINGS.fine_share if name in self.coarse else 1.0))
                for name in self.wide
            ]
        shares += [(rule.names, SETTINGS.learn_share) for rule in self.learnt]
        if not shares:
            return []
        scale = min(1.0, SETTINGS.max_separate / math.fsum(share for _, share in shares))
        return [(names, share * scale) for names, share in shares]

    def separate_round(self, epsilon: float) -> Plan | None:
        """The round of the attributes asked separately; None if there are none."""
        shares = self.separate_shares(epsilon)
        if not shares:
            return None
        questions = tuple(question(self.schema, names, epsilon) for names, _ in shares)
        total = math.fsum(share for _, share in shares)
        return Plan(0, questions, tuple(share / total for _, share in shares), population=total)

    def whole_round(self, inner: Plan, separate: Plan | None) -> Plan:
        """A machine's round in terms of the whole schema, after the separate round."""
        questions = tuple(self._whole_question(q) for q in inner.questions)
        if separate is None:
            return replace(inner, questions=questions)
        return replace(
            inner,
            round=inner.round + 1,
            questions=questions,
            population=inner.population * (1.0 - separate.population),
        )

    def _whole_question(self, asked: Question) -> Question:
        """A machine's question; one about a single attribute on a coarse grid asks it in full."""
        if asked.attributes[0] in self.coarse and len(asked.attributes) == 1:
            return question(self.schema, asked.attributes, asked.mechanism.epsilon)
        return replace(asked, grouped=tuple(name for name in asked.attributes if name in self.wide))

    def machine_tally(self, plan: Plan, tally: RoundTally) -> RoundTally:
        """A round's tally with the plan that the machine gave for it.

        Answers about an attribute in full are added up to groups. They become the support
        that as many answers about groups as are equally precise are expected to give.
        """
        if isinstance(tally, PatternTally):
            return PatternTally(plan, tally.patterns, tally.counts)
        n, counts = tally.n.copy(), list(tally.counts)
        for i, (inner, whole) in enumerate(zip(plan.questions, tally.plan.questions, strict=True)):
            if inner.mechanism != whole.mechanism and n[i]:
                groups = np.asarray(self.schema[whole.attributes[0]].group_codes)
                counts[i], n[i] = _as_groups(inner, whole, groups, counts[i], int(n[i]))
        return CountTally(plan, n, counts)

    def check_separate(self, tally: RoundTally) -> None:
        """Raise `TooFewAnswers` if a question of the separate round has no answer."""
        assert isinstance(tally, CountTally)
        silent = [
            q.attributes for q, n in zip(tally.plan.questions, tally.n, strict=True) if n == 0
        ]
        if silent:
            raise TooFewAnswers(
                f"nobody answered about {', '.join(silent[0])}; more participants are needed",
                value=silent,
            )

    def asked_codes(self, codes: Codes) -> Codes:
        """Codes of the whole schema as codes of the machine's schema."""
        columns = []
        for attribute in self.asked:
            column = codes[:, self.schema.index(attribute.name)]
            whole = self.schema[attribute.name]
            if attribute.cardinality != whole.cardinality:
                column = np.asarray(whole.group_codes)[column]
            columns.append(column)
        return np.stack(columns, axis=1)

    def state_in(self, facts: Diagnostics) -> Diagnostics:
        """A machine's facts with those about the reduction."""
        determined = [rule.attribute for rule in self.schema.rules if isinstance(rule, Determines)]
        return replace(facts, not_asked=determined or None, asked_in_groups=list(self.wide) or None)


def _as_groups(
    inner: Question, whole: Question, groups: Integers, support: Integers, n: int
) -> tuple[Integers, int]:
    """Support of a question about groups, from answers about values."""
    values = kernels.estimate(whole.mechanism, support, n).frequencies
    shares = np.bincount(groups, values)
    even = 1.0 / len(shares)
    own = even * (1.0 - even)
    variances = [
        whole.mechanism.group_variance(int(size), even, 1) + own for size in np.bincount(groups)
    ]
    direct = inner.mechanism.group_variance(1, even, 1) + own
    equal = max(1, round(n * min(1.0, direct / float(np.mean(variances)))))
    # An estimate is linear in the support: its values at none and at full support invert it.
    ends = [
        kernels.estimate(inner.mechanism, np.full(len(shares), at), equal).frequencies
        for at in (0, equal)
    ]
    raw = equal * (shares - ends[0]) / (ends[1] - ends[0])
    return np.clip(np.rint(raw), 0, equal).astype(np.int64), equal


@dataclass(frozen=True)
class SeparateAnswers:
    """The answers in full, which extend a machine's results to the whole schema."""

    reduction: Reduction
    answers: Sequence[AnswerCounts]

    def whole_model(self, model: Model) -> Ruled:
        """The machine's model over the whole schema, conditioned on the rules."""
        return Ruled(self.reduction.schema, model, self._within, self._outcomes)

    def whole_measured(self, measured: Sequence[Marginal]) -> list[Marginal]:
        """The machine's marginals without groups, those asked separately and those determined."""
        wide = set(self.reduction.wide)
        out = [marginal for marginal in measured if not wide & set(marginal.attributes)]
        out += [self._alone(name) for name in self.reduction.wide]
        singles = {m.attributes[0]: m for m in out if len(m.attributes) == 1}
        for rule in self.reduction.schema.rules:
            if isinstance(rule, Determines) and rule.by in singles:
                singles[rule.attribute] = self._determined(singles[rule.by], rule)
                out.append(singles[rule.attribute])
        return out

    @cached_property
    def _within(self) -> dict[str, Floats]:
        """The share of each value of a wide attribute in its group."""
        out = {}
        for name in self.reduction.wide:
            share = self._alone(name).frequencies
            if name in self.reduction.coarse:
                answers = self.reduction.schema[name].answers
                variance = float(self._alone(name).variances.mean())
                share = np.append(smoothed(share[:answers], variance), share[answers:])
            share = norm_sub(share)
            groups = np.asarray(self.reduction.schema[name].group_codes)
            total, size = np.bincount(groups, share), np.bincount(groups)
            # Values of a group without any answer are equally likely.
            even = 1.0 / size[groups]
            out[name] = np.where(total[groups] > 0, share / np.maximum(total[groups], 1e-300), even)
        return out

    def _alone(self, name: str) -> Marginal:
        return pool(self.reduction.schema, self.answers, [name])

    @cached_property
    def _outcomes(self) -> dict[str, Integers]:
        """The code of each determined attribute for every code of the other.

        It is the stated one, or the most frequent one in the answers.
        """
        schema, out = self.reduction.schema, {}
        for rule in schema.rules:
            if not isinstance(rule, Determines):
                continue
            outcomes = outcome_codes(rule, schema)
            if outcomes is None:
                table = pool(schema, self.answers, rule.names).frequencies
                target, by = schema[rule.attribute], schema[rule.by]
                outcomes = table[:, : target.answers].argmax(axis=1)
                if by.missing:
                    outcomes[by.answers] = target.answers
            out[rule.attribute] = outcomes
        return out

    def _determined(self, by: Marginal, rule: Determines) -> Marginal:
        """The marginal of a determined attribute.

        Cells are added up, and their variances too, as if the cells were uncorrelated.
        """
        codes = self._outcomes[rule.attribute]
        cells = self.reduction.schema[rule.attribute].cardinality
        frequencies, variances = np.zeros(cells), np.zeros(cells)
        np.add.at(frequencies, codes, by.frequencies)
        np.add.at(variances, codes, by.variances)
        return Marginal((rule.attribute,), frequencies, np.sqrt(variances), by.n)


def smoothed(raw: Floats, variance: float) -> Floats:
    """Noisy frequencies of ordered values, as smooth as Stein's estimate of the risk advises.

    Second differences are penalised. In the cosine basis the penalty is diagonal, so the
    degrees of freedom are the sum of the factors.
    """
    size = len(raw)
    waves = dct(raw, norm="ortho")
    roughness = (2.0 - 2.0 * np.cos(np.pi * np.arange(size) / size)) ** 2
    factors = [1.0 / (1.0 + strength * roughness) for strength in (0.0, *4.0 ** np.arange(-3, 13))]
    risks = [
        float((((1.0 - kept) * waves) ** 2).sum() + 2.0 * variance * kept.sum()) for kept in factors
    ]
    return np.asarray(idct(factors[int(np.argmin(risks))] * waves, norm="ortho"))


def coarse_groups(schema: Schema, participants: int, epsilon: float) -> dict[str, int]:
    """Ordered attributes to ask on a coarse grid, with the number of groups.

    A pair's table on a grid of g x g cells has noise proportional to g and misses what varies
    inside its cells, about 1/g. Their sum is least where g is proportional to the fourth root
    of the people per pair times (e^epsilon - 1)^2 / e^epsilon.
    """
    pairs = math.comb(len(schema), 2)
    if not pairs:
        return {}
    people = (1.0 - SETTINGS.fine_share) * participants / pairs
    signal = people * (2.0 * math.sinh(epsilon / 2.0)) ** 2
    groups = max(SETTINGS.min_grid, round(SETTINGS.grid * signal**0.25))
    least = max(SETTINGS.fine, 2 * groups)
    return {
        a.name: groups
        for a in schema
        # The schema of a saved run has the grid's groups already.
        if a.ordered
        and least < a.answers <= SETTINGS.wide
        and a.groups in ((), with_groups(replace(a, groups=()), groups).groups)
    }


def reduce_schema(
    schema: Schema, *, pairs: bool, coarse: Mapping[str, int] | None = None
) -> Reduction | None:
    """The part of a schema that is left to ask.

    Args:
        schema: The whole schema.
        pairs: Whether the method asks pairs; only then are wide attributes asked in groups.
        coarse: Attributes to ask in groups although they are not too wide, with the number of
            groups.

    Returns:
        None if no rule determines an attribute and none is too wide.

    Raises:
        SchemaError: The rules contradict each other, or an unstated map has too many cells.
    """
    determined = {rule.attribute for rule in schema.rules if isinstance(rule, Determines)}
    left = [a for a in schema if a.name not in determined]
    chosen = dict(coarse or {}) if len(left) > 1 else {}
    plain = [replace(a, groups=()) if a.name in chosen else a for a in left]
    wide = _wide(plain) if pairs and len(left) > 1 else ()
    # Attributes that are too wide in any case keep their groups.
    chosen = {a.name: chosen[a.name] for a in left if a.name in chosen and a.name not in wide}
    wide = tuple(a.name for a in left if a.name in wide or a.name in chosen)
    if not wide and not schema.rules:
        return None
    constraints(schema)  # raises an error in the rules before anyone is asked
    attributes = tuple(with_groups(a, chosen.get(a.name)) if a.name in wide else a for a in schema)
    whole = replace(schema, attributes=attributes)
    asked = tuple(_grouped_attribute(whole[a.name]) if a.name in wide else a for a in left)
    learnt = tuple(
        rule for rule in schema.rules if isinstance(rule, Determines) and rule.outcomes is None
    )
    for rule in learnt:
        if whole.cells(rule.names) > LocalHash.max_cells:
            raise SchemaError(
                f"{rule.by!r} and {rule.attribute!r} have {whole.cells(rule.names):,} combinations, "
                "too many to learn which one determines which; state the map in the rule",
                where="rules",
            )
    return Reduction(whole, Schema(asked), wide, learnt, tuple(chosen))


def _wide(attributes: Sequence[Attribute]) -> tuple[str, ...]:
    """Attributes to ask in groups: those with stated groups, and the widest of the others.

    The widest are added until no pair, of attributes or of groups, has too many cells.
    """
    widths = {a.name: len(a.group_names) if a.groups else a.cardinality for a in attributes}
    wide = {a.name for a in attributes if a.groups}
    for name in sorted(widths, key=lambda name: -widths[name]):
        others = max((width for other, width in widths.items() if other != name), default=1)
        if name not in wide and (widths[name] > SETTINGS.wide or widths[name] * others > MAX_PAIR):
            wide.add(name)
            widths[name] = SETTINGS.groups + 1
    return tuple(a.name for a in attributes if a.name in wide)


def with_groups(attribute: Attribute, count: int | None = None) -> Attribute:
    """The attribute with its stated groups, or with runs of neighbouring values as groups.

    Args:
        attribute: The attribute.
        count: The number of runs; by default of equal length, `_ReductionSettings.groups`.
    """
    if attribute.groups:
        return attribute
    size = math.ceil(attribute.answers / SETTINGS.groups)
    starts = list(range(0, attribute.answers, size))
    if count is not None:
        starts = [attribute.answers * group // count for group in range(count)]
    labels = attribute.labels
    groups: list[str] = []
    for start, stop in zip(starts, [*starts[1:], attribute.answers], strict=True):
        run = labels[start:stop]
        name = run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}"
        groups += [_distinct(name, groups)] * len(run)
    return replace(attribute, groups=tuple(groups))


def _grouped_attribute(attribute: Attribute) -> Attribute:
    """An attribute whose values are the groups of another.

    It is ordinal if the other one is ordered and each group is a run of its values.
    """
    codes = attribute.group_codes[: attribute.answers]
    runs = all(a <= b for a, b in pairwise(codes))
    kind: Kind = "ordinal" if attribute.ordered and runs else "categorical"
    return Attribute(attribute.name, kind, values=attribute.group_names, missing=attribute.missing)


def _distinct(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "'"
    return name
