"""CALM and FT: consistent marginals of attribute sets or pairs, from one round.

CALM measures marginals of a few attribute sets that cover every pair, makes them consistent and
derives any k-way marginal. Reference: Zhang, Wang, Li, He, Chen, "CALM: consistent adaptive
local marginal for marginal release under local differential privacy", CCS 2018.

FT measures randomised Fourier coefficients of pairs of attributes written in bits. Reference:
Cormode, Kulkarni, Srivastava, "Marginal release under local differential privacy", SIGMOD 2018
(MargHT), with non-binary attributes encoded in bits as in PrivIncr's and CALM's comparisons.
Coefficients are drawn uniformly over all that the pairs need.

Each participant answers one question at full epsilon. Both papers stop at marginals; for a
synthetic table a junction tree is fitted to the pairs and singles of the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from dither.checks import check_choice, check_whole, check_whole_or_none
from dither.errors import ParameterError
from dither.fit import AnswerCounts, check_marginal, make_consistent, norm_sub, pool, precision
from dither.mechanisms import POOLED_NAMES, Hadamard, kernels, mechanism
from dither.methods.diagnostics import Names, named
from dither.methods.machine import Campaign
from dither.methods.tree import OneRoundDiagnostics, OneRoundTree
from dither.reports import Plan, Question, question
from dither.schema import Schema
from dither.types import Floats


@dataclass(frozen=True)
class _CalmSettings:
    """Tuned constants of CALM."""

    # Caps on the cells of a covering set that are tried; 0 asks pair by pair. The one with the
    # least predicted noise is taken.
    caps: tuple[int, ...] = (0, 64, 256, 1_024, 4_096)


SETTINGS = _CalmSettings()


Table = tuple[tuple[str, ...], Floats]
MAX_CELLS = 4_000_000


def _consistent_marginals(
    schema: Schema, answers: Sequence[AnswerCounts], rounds: int = 5
) -> list[Table]:
    """The answered sets' distributions, by alternating consistency and projection.

    Tables are weighted by the inverse variance of a cell, of noise and sampling. Each step
    slightly violates the other's condition; a few iterations satisfy both closely.
    """
    tables: list[Table] = []
    weights = []
    for answer in answers:
        names = answer.question.attributes
        raw = kernels.estimate(answer.question.mechanism, answer.support, answer.n).frequencies
        tables.append((names, raw.reshape([schema[a].cardinality for a in names])))
        weights.append(precision(answer.question.mechanism, raw.size, answer.n))
    for _ in range(rounds):
        tables = [(names, norm_sub(table)) for names, table in make_consistent(tables, weights)]
    return tables


def reconstruct(
    schema: Schema,
    tables: Sequence[Table],
    attributes: Sequence[str],
    rounds: int = 100,
    tolerance: float = 1e-7,
) -> Floats:
    """The maximum entropy distribution of some attributes given the tables' marginals.

    Iterative proportional fitting from the even table; a set inside one table is summed from
    it. Small contradictions left by the projection are averaged.
    """
    check_marginal(schema, attributes)
    shape = tuple(schema[a].cardinality for a in attributes)
    if math.prod(shape) > MAX_CELLS:
        raise ParameterError(
            f"the marginal of {', '.join(attributes)} has {math.prod(shape):,} cells, more than the {MAX_CELLS:,} that "
            "can be reconstructed; ask fewer attributes",
            where="attributes",
        )
    views = _largest_views(tables, attributes)
    joint = np.full(shape, 1.0 / math.prod(shape))
    for _ in range(rounds):
        before = joint
        for axes, target in views:
            others = tuple(i for i in range(len(shape)) if i not in axes)
            now = joint.sum(axis=others, keepdims=True)
            wanted = target.reshape([shape[i] if i in axes else 1 for i in range(len(shape))])
            joint = joint * np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
            total = joint.sum()
            joint = joint / total if total > 0 else before
        if np.abs(joint - before).max() <= tolerance:
            break
    return np.asarray(joint)


def _largest_views(
    tables: Sequence[Table], attributes: Sequence[str]
) -> list[tuple[tuple[int, ...], Floats]]:
    """Each table's marginal of the attributes, without those contained in another one."""
    found: dict[tuple[int, ...], list[Floats]] = {}
    for names, table in tables:
        axes = tuple(i for i, a in enumerate(attributes) if a in names)
        if axes:
            kept = [a for a in names if a in attributes]
            summed = table.sum(axis=tuple(i for i, a in enumerate(names) if a not in attributes))
            view = np.transpose(summed, [kept.index(attributes[i]) for i in axes])
            found.setdefault(axes, []).append(view)
    maximal = [a for a in found if not any(set(a) < set(other) for other in found)]
    return [(axes, np.mean(found[axes], axis=0)) for axes in sorted(maximal)]


Set = tuple[int, ...]


def _cover_pairs(
    cardinalities: Sequence[int], most_cells: int, most_attributes: int | None = None
) -> list[Set]:
    """Sets of at most `most_cells` cells that cover every pair; a wider pair is a separate set.

    Greedy: start with the widest uncovered pair, add the attribute that covers the most new
    pairs (ties: the narrower, then the lower number) while it fits and covers any.
    """
    d = len(cardinalities)
    check_whole("marginal_cells", most_cells, 2)
    check_whole_or_none("size", most_attributes, 2)
    if d == 1:
        return [(0,)]
    open_pairs = set(combinations(range(d), 2))
    out: list[Set] = []
    for first in sorted(open_pairs, key=lambda p: (-cardinalities[p[0]] * cardinalities[p[1]], p)):
        if first not in open_pairs:
            continue
        chosen = set(first)
        while most_attributes is None or len(chosen) < most_attributes:
            cells = math.prod(cardinalities[a] for a in chosen)
            gains = {
                a: sum((min(a, b), max(a, b)) in open_pairs for b in chosen)
                for a in range(d)
                if a not in chosen and cells * cardinalities[a] <= most_cells
            }
            best = max(gains, key=lambda a: (gains[a], -cardinalities[a], -a), default=None)
            if best is None or gains[best] == 0:
                break
            chosen.add(best)
        members = tuple(sorted(chosen))
        open_pairs -= set(combinations(members, 2))
        out.append(members)
    return out


def pair_noise(
    cardinalities: Sequence[int],
    sets: Sequence[Set],
    shares: Sequence[float],
    unit_variance: Callable[[int], float],
) -> float:
    """The mean expected L1 noise of a pair computed from the sets, for one participant.

    A set of c cells with share w has variance unit_variance(c) / w per cell, times the cells
    summed into one. Sets with the same pair are pooled by inverse variance. k cells of standard
    error s have an L1 norm near k s.
    """
    precision = dict.fromkeys(combinations(range(len(cardinalities)), 2), 0.0)
    for members, share in zip(sets, shares, strict=True):
        whole = math.prod(cardinalities[a] for a in members)
        for i, j in combinations(sorted(members), 2):
            precision[i, j] += share / (
                unit_variance(whole) * (whole // (cardinalities[i] * cardinalities[j]))
            )
    noise = (
        cardinalities[i] * cardinalities[j] / math.sqrt(found) if found > 0 else math.inf
        for (i, j), found in precision.items()
    )
    return math.fsum(noise) / len(precision) if precision else 0.0


@dataclass(frozen=True)
class CalmParameters:
    """Parameters of CALM.

    `marginal_cells` is the largest set's cells (by default those with the least predicted
    noise), `size` its attributes. `significance` and `max_clique_cells` apply to the tree of
    the synthetic table.
    """

    mechanism: str = "best"
    marginal_cells: int | None = None
    size: int | None = None
    significance: float = 2.0
    max_clique_cells: int = 8_000

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, POOLED_NAMES)
        for name in ("marginal_cells", "size", "max_clique_cells"):
            check_whole_or_none(name, getattr(self, name), 2)


def _choose_cover(
    schema: Schema, epsilon: float, parameters: CalmParameters
) -> list[tuple[int, ...]]:
    """The requested cover, or the one with the least predicted noise of pairs."""
    sizes = schema.cardinalities

    def unit(cells: int) -> float:
        chosen = mechanism(parameters.mechanism, cells, epsilon)
        return chosen.total_variance / cells

    if parameters.marginal_cells is not None:
        return _cover_pairs(sizes, parameters.marginal_cells, parameters.size)
    best, least = None, np.inf
    for cap in SETTINGS.caps:
        cover = _cover_pairs(sizes, max(cap, 2), 2 if cap == 0 else parameters.size)
        noise = pair_noise(sizes, cover, _shares(schema, cover), unit)
        if best is None or noise < least:
            best, least = cover, noise
    assert best is not None
    return best


def _shares(schema: Schema, cover: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Participants by the root of a set's cells, near the least mean error over sets."""
    weights = np.sqrt([schema.cells([schema.names[a] for a in s]) for s in cover])
    return tuple(float(w) for w in weights / weights.sum())


@dataclass(frozen=True, kw_only=True)
class _CalmDiagnostics(OneRoundDiagnostics):
    """The covering sets, and the cells of the largest."""

    sets: Names
    largest_set_cells: int


class Calm(OneRoundTree[CalmParameters]):
    """One round of questions about covering sets."""

    method = "calm"
    parameters_class = CalmParameters

    def __init__(self, campaign: Campaign, parameters: CalmParameters) -> None:
        super().__init__(campaign, parameters)
        self.cover = _choose_cover(campaign.schema, campaign.epsilon, parameters)

    @cached_property
    def _round(self) -> Plan:
        schema, asked = self.campaign.schema, named(self.campaign.schema, self.cover)
        questions = [
            question(schema, names, self.campaign.epsilon, self.parameters.mechanism)
            for names in asked
        ]
        return Plan(0, tuple(questions), _shares(schema, self.cover))

    @cached_property
    def marginals(self) -> list[tuple[tuple[str, ...], Floats]]:
        """The covering sets' distributions, consistent and not negative (CALM's output)."""
        return _consistent_marginals(self.campaign.schema, self.evidence.answers)

    def marginal(self, attributes: Sequence[str]) -> Floats:
        """Any k-way marginal by maximum entropy given the covering marginals (CALM section 4.4)."""
        return reconstruct(self.campaign.schema, self.marginals, attributes)

    def diagnostics(self) -> _CalmDiagnostics:
        schema = self.campaign.schema
        sets = named(schema, self.cover)
        largest = max(map(schema.cells, sets))
        return self._state_tree(_CalmDiagnostics(sets=sets, largest_set_cells=largest))


@dataclass(frozen=True)
class FourierParameters:
    """`significance` and `max_clique_cells` apply to the tree of the synthetic table."""

    significance: float = 2.0
    max_clique_cells: int = 8_000

    def __post_init__(self) -> None:
        check_whole("max_clique_cells", self.max_clique_cells, 2)


@dataclass(frozen=True, kw_only=True)
class _FourierDiagnostics(OneRoundDiagnostics):
    """How many coefficients the pairs need."""

    coefficients: int


class Fourier(OneRoundTree[FourierParameters]):
    """One round of coefficients of all pairs."""

    method = "fourier"
    parameters_class = FourierParameters

    @cached_property
    def _round(self) -> Plan:
        names, sizes = self.campaign.schema.names, self.campaign.schema.cardinalities
        sets: list[tuple[int, ...]] = list(combinations(range(len(names)), 2)) or [(0,)]
        questions = []
        for s in sets:
            cells = int(np.prod([sizes[a] for a in s]))
            coefficients = Hadamard.for_epsilon(cells, sizes[s[-1]], self.campaign.epsilon)
            questions.append(Question(tuple(names[a] for a in s), coefficients))
        weights = np.array(
            [2.0**q.mechanism.bits for q in questions if isinstance(q.mechanism, Hadamard)]
        )
        return Plan(0, tuple(questions), tuple(float(w) for w in weights / weights.sum()))

    def marginal(self, attributes: Sequence[str]) -> Floats:
        """A pair by inverting its coefficients, larger sets by maximum entropy given the pairs."""
        schema = self.campaign.schema
        if len(attributes) <= 2:
            return norm_sub(pool(schema, self.evidence.answers, attributes).frequencies)
        inside = [
            p
            for p in combinations(attributes, 2)
            if self.evidence.pair(*sorted(map(schema.index, p)))
        ]
        return reconstruct(schema, [(p, self.marginal(p)) for p in inside], attributes)

    def diagnostics(self) -> _FourierDiagnostics:
        bits = [
            q.mechanism.bits for q in self._round.questions if isinstance(q.mechanism, Hadamard)
        ]
        return self._state_tree(_FourierDiagnostics(coefficients=sum(2**b for b in bits)))
