"""Fit to whole tables of answered sets: several descents in lockstep, with twins for their df.

The weights of the cells follow the fit while that moves chi^2 by more than its standard
deviation. With fixed weights a step is one of least squares; with weights at the fitted
frequencies it is Fisher scoring, a step of the likelihood. Every set has its own participants,
so the noise of different sets is independent. A pair of attributes joined by an edge is one
member of the sets that contain both; its columns, one per pair of values, follow those of all
attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dither.fit.mixture.descent import (
    Descent,
    Gradient,
    Probe,
    State,
    StepSize,
    TableGradient,
    Tied,
)
from dither.fit.mixture.edges import Marginals, projected, warm_potentials
from dither.fit.mixture.targets import Columns, Edges, NoiseBook, PairTargets
from dither.fit.pool import AnswerCounts
from dither.mechanisms import kernels
from dither.schema import Schema
from dither.types import Floats, Indices, Reals

_BLOCK_ROWS = (
    512  # rows of the thin matrices that go through together: what a processor's cache holds
)


@dataclass(frozen=True)
class _SetBlock:
    """Answered sets of one shape: their tables as (set, 1, row, column), rows the first `cut` units, columns the others.

    A unit is an attribute or an edge, by the places of its attributes among the `members`. `noise` are the coefficients c0, c1,
    c2 of a cell's variance c0 + c1 f - c2 f^2; `shares` say how much of a pooled marginal comes from each set: those of all
    members, then those of all pairs; `where` are the units' columns in the matrix of all domains side by side.
    """

    members: Indices
    shape: tuple[int, ...]
    units: tuple[tuple[int, ...], ...]
    cut: int
    tables: Reals
    noise: tuple[Reals, Reals, Reals]
    shares: Reals
    where: tuple[Indices, ...]

    def variances(self, f: Reals) -> Reals:
        """The variances of the cells at given frequencies; never zero, so that one cell cannot rule a fit."""
        c0, c1, c2 = self.noise
        return np.asarray(np.maximum(c0 + f * (c1 - c2 * f), 1e-3 * c2 / math.prod(self.shape)))

    def halves(self, by_column: Reals) -> tuple[Reals, Reals]:
        """The two thin matrices of all starts: (set, start, cells of the half, component); no units make a column of ones."""
        rows, columns = (_product(self.factors(by_column, part)) for part in self.parts)
        if columns is None:
            columns = np.ones((len(self.members), 1, *by_column.shape[1:]))
        assert rows is not None
        return rows.transpose(0, 2, 1, 3), columns.transpose(0, 2, 1, 3)

    @property
    def parts(self) -> tuple[range, range]:
        """The units in either half."""
        return range(self.cut), range(self.cut, len(self.units))

    def factors(self, by_column: Reals, units: range) -> list[Reals]:
        """The components of some units: (set, value, start, component) each."""
        return [by_column[self.where[unit]] for unit in units]

    def pooled(self, tables: Reals) -> Iterator[tuple[tuple[int, ...], Reals]]:
        """Every set's marginals of its members and of their pairs, each times its share: (attributes in order, values)."""
        whole = tables.reshape(len(tables), *self.shape)
        for number, places in enumerate(_margins(self.shape)):
            marginals = whole.sum(
                axis=tuple(1 + p for p in range(len(self.shape)) if p not in places)
            )
            for members, share, values in zip(
                self.members, self.shares[:, number], marginals, strict=True
            ):
                attributes = tuple(int(members[p]) for p in places)
                in_order = attributes == tuple(sorted(attributes))
                yield (
                    tuple(sorted(attributes)),
                    np.asarray(share * (values if in_order else values.T)),
                )


@dataclass(frozen=True)
class SetTargets:
    """All answered sets, in blocks of equal shape, which go through together.

    Pair marginals of a larger set's table tell nothing of what three of its attributes do together; the table itself does. A
    set's members are put into two groups. The mixture's table is then one product of two thin matrices, component by component,
    and so is each half of its gradient.
    """

    columns: Columns
    blocks: tuple[_SetBlock, ...]
    cells: int
    edges: Edges = ()


@dataclass
class _AskedSet:
    """What was answered about one set: precision-weighted sums."""

    table: Reals
    precision: float
    noise: Reals
    pooled: Reals  # the precision of each marginal that is pooled

    def add(self, other: _AskedSet) -> None:
        self.table += other.table
        self.precision += other.precision
        self.noise += other.noise
        self.pooled += other.pooled


def _margins(members: Sequence[object]) -> list[tuple[int, ...]]:
    """The members and then their pairs, by places."""
    return [places for size in (1, 2) for places in combinations(range(len(members)), size)]


def _grouped(members: Sequence[int], edges: Edges, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """A set's members as attributes and edges, from narrow to wide."""
    tied = [edge for edge in edges if edge[0] in members and edge[1] in members]
    rest = [(i,) for i in members if not any(i in edge for edge in tied)]
    return sorted([*rest, *tied], key=lambda unit: (math.prod(sizes[i] for i in unit), unit))


def _places(groups: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Where each group's attributes stand when the groups are laid side by side."""
    ends = np.cumsum([len(group) for group in groups]).tolist()
    return tuple(
        tuple(range(end - len(group), end)) for group, end in zip(groups, ends, strict=True)
    )


def set_targets(
    schema: Schema, answers: Sequence[AnswerCounts], columns: Columns, edges: Edges = ()
) -> SetTargets:
    """Each set's table once, several answers about a set averaged with weights inverse to their variance."""
    k, place, book = (
        schema.cardinalities,
        {name: i for i, name in enumerate(schema.names)},
        NoiseBook(),
    )
    asked: dict[tuple[tuple[int, ...], ...], _AskedSet] = {}
    total: dict[tuple[int, ...], float] = {}
    for answer in answers:
        given = [place[name] for name in answer.question.attributes]
        groups = tuple(_grouped(given, edges, k))
        order = [given.index(i) for group in groups for i in group]
        raw = kernels.estimate(answer.question.mechanism, answer.support, answer.n).frequencies
        table = raw.reshape([k[i] for i in given]).transpose(order).ravel()
        precision, c = book.of(answer, 1, raw.size)
        margins = [tuple(sorted(given[order[p]] for p in places)) for places in _margins(given)]
        cells = [math.prod(k[i] for i in margin) for margin in margins]
        pooled = np.array([book.of(answer, raw.size // size, size)[0] for size in cells])
        for margin, share in zip(margins, pooled.tolist(), strict=True):
            total[margin] = total.get(margin, 0.0) + share
        found = _AskedSet(precision * table, precision, precision**2 * c, pooled)
        if groups in asked:
            asked[groups].add(found)
        else:
            asked[groups] = found
    by_shape: dict[tuple[tuple[int, ...], ...], list[tuple[tuple[int, ...], ...]]] = {}
    for groups in asked:
        by_shape.setdefault(tuple(tuple(k[i] for i in group) for group in groups), []).append(
            groups
        )
    begins = _first_columns(columns, edges)
    blocks = []
    for shapes, sets in by_shape.items():
        units, sizes = _places(shapes), tuple(math.prod(shape) for shape in shapes)
        cut = _balanced(sizes)
        rows, width = math.prod(sizes[:cut]), math.prod(sizes[cut:])
        step = max(1, _BLOCK_ROWS // (rows + width))
        for begin in range(0, len(sets), step):
            part = sets[begin : begin + step]
            found_here = [asked[groups] for groups in part]
            index = np.array(
                [[i for group in groups for i in group] for groups in part], dtype=np.intp
            )
            noise = np.array([f.noise / f.precision**2 for f in found_here])[:, :, None, None, None]
            totals = [
                [total[tuple(sorted(m[p] for p in places))] for places in _margins(m)]
                for m in index.tolist()
            ]
            blocks.append(
                _SetBlock(
                    index,
                    tuple(size for shape in shapes for size in shape),
                    units,
                    cut,
                    np.array([f.table / f.precision for f in found_here]).reshape(
                        len(part), 1, rows, width
                    ),
                    (noise[:, 0], noise[:, 1], noise[:, 2]),
                    np.array([f.pooled for f in found_here]) / np.array(totals),
                    tuple(
                        np.array([begins[groups[u]] for groups in part], dtype=np.intp)[:, None]
                        + np.arange(size)
                        for u, size in enumerate(sizes)
                    ),
                )
            )
    return SetTargets(columns, tuple(blocks), sum(block.tables.size for block in blocks), edges)


def _first_columns(columns: Columns, edges: Edges) -> dict[tuple[int, ...], int]:
    """The first column of every attribute and edge; edges follow all attributes."""
    out: dict[tuple[int, ...], int] = {(i,): int(start) for i, start in enumerate(columns.starts)}
    behind = columns.width
    for i, j in edges:
        out[i, j] = behind
        behind += int(columns.cardinalities[i] * columns.cardinalities[j])
    return out


def _balanced(shape: tuple[int, ...]) -> int:
    """Where to cut a set's units so that the two halves have the fewest cells together; a single unit is a row."""
    cuts = range(1, max(2, len(shape)))
    return min(cuts, key=lambda c: math.prod(shape[:c]) + math.prod(shape[c:]))


def _product(factors: list[Reals]) -> Reals | None:
    """Row-wise outer products of (set, values, start, component) arrays."""
    out: Reals | None = None
    for factor in factors:
        out = (
            factor
            if out is None
            else (out[:, :, None] * factor[:, None]).reshape(len(out), -1, *out.shape[2:])
        )
    return out


def predicted(weights: Reals, halves: tuple[Reals, Reals]) -> Reals:
    """A block's tables of all starts: (set, start, row, column)."""
    return np.asarray((halves[0] * weights[:, None, :]) @ halves[1].swapaxes(-1, -2))


def pull_back(
    block: _SetBlock, by_column: Reals, halves: tuple[Reals, Reals], pull: Reals, out: Reals
) -> Reals:
    """Add the gradient in the components (each divided by its weight) to `out`; gives the gradient in the weights.

    `pull` is the derivative of the loss in the block's tables; `out` is laid out as `by_column`: (column, start, component).
    """
    toward = pull @ halves[1], pull.swapaxes(-1, -2) @ halves[0]
    for part, gradient in zip(block.parts, toward, strict=True):
        _chain(block, part, gradient, by_column, out)
    return np.asarray(np.einsum("nskc,nskc->sc", toward[0], halves[0]))


def _chain(block: _SetBlock, units: range, toward: Reals, by_column: Reals, out: Reals) -> None:
    """From the gradient in a half's product to that in each of its factors: the factors are split in two, again and again."""
    if len(units) <= 1:
        for unit in units:
            for number, (begin, size) in enumerate((int(w[0]), len(w)) for w in block.where[unit]):
                out[begin : begin + size] += toward[number].swapaxes(0, 1)
        return
    parts = units[: len(units) // 2], units[len(units) // 2 :]
    first, second = (_product(block.factors(by_column, part)) for part in parts)
    assert first is not None
    assert second is not None
    sets, starts, _, components = toward.shape
    split = toward.reshape(sets, starts, first.shape[1], second.shape[1], components)
    _chain(block, parts[0], np.einsum("nsabc,nbsc->nsac", split, second), by_column, out)
    _chain(block, parts[1], np.einsum("nsabc,nasc->nsbc", split, first), by_column, out)


MIN_CHANCE = 1e-6
TOWARDS_NATURAL = (
    0.25  # 0: the gradient in the logits, in which rare values hardly move; 1: the natural gradient
)
WORKING = (
    np.float32
)  # of a step; half the time of doubles, and the noise in the data is a thousand times coarser


def moved_start(
    sets: SetTargets, start: Marginals, directions: list[Reals], scale: float
) -> Marginals:
    """The pooled marginals after every table has moved: the start of a twin rests on the same data."""
    columns, shifted, pairs = (
        sets.columns,
        start.one.copy(),
        {edge: start.pairs[edge].copy() for edge in sets.edges},
    )
    for block, direction in zip(sets.blocks, directions, strict=True):
        for attributes, values in block.pooled(direction):
            if len(attributes) == 1:
                shifted[columns.of(attributes[0])] += scale * values
            elif attributes in pairs:
                pairs[attributes[0], attributes[1]] += scale * values
    return Marginals(projected(columns, shifted), pairs, start.warming)


def laid_out(states: Sequence[State]) -> Reals:
    """All starts' components and then the tables of their edges, column by column: (column, start, component)."""
    rows = [
        np.concatenate(
            [state.components, *(t.tables.reshape(len(t.first), -1) for t in state.ties)], axis=1
        )
        for state in states
    ]
    return np.stack(rows).transpose(2, 0, 1)


def tables_of(sets: SetTargets, states: Sequence[State]) -> list[Reals]:
    """What the average of some models says of every block: (set, 1, row, column)."""
    weights = np.concatenate([state.weights for state in states])[None] / len(states)
    by_column = np.concatenate([laid_out([state]) for state in states], axis=2)
    return [predicted(weights, block.halves(by_column)) for block in sets.blocks]


@dataclass
class _Weights:
    """A block's inverse variances and, for the twins, standard normal draws: (set, twin, row, column)."""

    precision: Reals
    draws: Reals

    @property
    def moved(self) -> Reals:
        return np.asarray(self.draws / np.sqrt(self.precision))

    @property
    def score(self) -> Reals:
        return np.asarray(self.draws * np.sqrt(self.precision))


class SetLockstep:
    """All starts and the twins of the first few, advanced together."""

    def __init__(
        self,
        sets: SetTargets,
        pilot: State,
        start: Marginals,
        logits: Callable[[Floats], Floats],
        offsets: Sequence[Floats],
        twins: int,
        probe: float,
        momentum: float,
        rng: np.random.Generator,
    ) -> None:
        """Starts lie at the logits of the one-way marginals plus an offset each; variances are taken at the pilot, a fit
        without edges."""
        self.sets, self.cells, self.probe, self.momentum = sets, float(sets.cells), probe, momentum
        self.control = StepSize()
        self.twin_models: list[State] = []
        flat = State(pilot.weights, pilot.factors, pilot.components, untied(sets, pilot))
        self.weighed = [
            _Weights(
                1.0 / block.variances(table),
                rng.standard_normal((len(block.members), twins, *block.tables.shape[2:])),
            )
            for block, table in zip(sets.blocks, self.tables([flat]), strict=True)
        ]

        def begun(marginals: Marginals, offset: Floats) -> Descent:
            potentials = warm_potentials(sets.columns, sets.edges, marginals)
            return Descent(sets.columns, logits(marginals.one) + offset, sets.edges, potentials)

        self.starts = [begun(start, offset) for offset in offsets]
        self.twins = [begun(self._twin_start(start, twin), offsets[twin]) for twin in range(twins)]

    def _twin_start(self, start: Marginals, twin: int) -> Marginals:
        """The marginals that a twin starts from."""
        return moved_start(
            self.sets, start, [w.moved[:, twin : twin + 1] for w in self.weighed], self.probe
        )

    def tables(self, states: list[State]) -> list[Reals]:
        """What the average of some models says of every block: (set, 1, row, column)."""
        return tables_of(self.sets, states)

    def moved_pairs(self, targets: PairTargets, twin: int) -> Probe:
        """The pairs after every table has moved as for a twin: a fit to pairs follows that as it follows these tables' noise."""
        columns, directions = self.sets.columns, [w.moved[:, twin : twin + 1] for w in self.weighed]
        moved, alone = np.zeros_like(targets.pairs), np.zeros(columns.width)
        one = targets.one.copy()
        for block, direction in zip(self.sets.blocks, directions, strict=True):
            # Single questions have other participants than pairs.
            if len(block.shape) == 1:
                for (attribute,), values in zip(block.members.tolist(), direction, strict=True):
                    alone[columns.of(attribute)] = values.ravel()
            for attributes, values in block.pooled(direction):
                if len(attributes) == 1:
                    one[columns.of(attributes[0])] += self.probe * values
                else:
                    moved[columns.of(attributes[0]), columns.of(attributes[1])] += values
        moved += moved.T
        return Probe(
            targets.pairs + self.probe * moved,
            targets.singles + self.probe * alone,
            projected(columns, one),
        )

    def followed(self, twins: Sequence[tuple[State, State]], precisions: list[Reals]) -> float:
        """Degrees of freedom of models, from how far their twins followed the moved tables."""
        total = 0.0
        for number, (model, twin) in enumerate(twins):
            gaps = zip(
                self.tables([twin]), self.tables([model]), self.weighed, precisions, strict=True
            )
            total += math.fsum(
                float(((a - b) * p)[:, 0].ravel() @ w.moved[:, number].ravel())
                for a, b, w, p in gaps
            )
        return total / (len(twins) * self.probe)

    def precisions(self, tables: list[Reals]) -> list[Reals]:
        """One over the variances of all cells at given frequencies."""
        return [
            1.0 / block.variances(table)
            for block, table in zip(self.sets.blocks, tables, strict=True)
        ]

    def chi2(self, tables: list[Reals], precisions: list[Reals]) -> float:
        gaps = zip(tables, self.sets.blocks, precisions, strict=True)
        return math.fsum(float((w * (t - block.tables) ** 2).sum()) for t, block, w in gaps)

    def reweigh(self, models: list[State]) -> bool:
        """Take the variances at the average of the models, if that matters; what was judged before is then void."""
        tables = self.tables(models)
        renewed = self.precisions(tables)
        change = self.chi2(tables, renewed) - self.chi2(tables, [w.precision for w in self.weighed])
        if abs(change) < math.sqrt(2.0 * self.cells):
            return False
        for weighed, precision in zip(self.weighed, renewed, strict=True):
            weighed.precision = precision
        self.control.last = math.inf
        return True

    def dependence(self, models: list[State], product: State) -> tuple[float, float]:
        """chi^2 as a function of the share s of dependence that is kept is constant + s cross + s^2 square."""
        mixed, flat = self.tables(models), self.tables([product])
        cross = square = 0.0
        for t, alone, block, w in zip(mixed, flat, self.sets.blocks, self.weighed, strict=True):
            gap = t - alone
            cross += 2.0 * float((w.precision * gap * (alone - block.tables)).sum())
            square += float((w.precision * gap * gap).sum())
        return cross, square

    def chi2_alone(self, state: State) -> float:
        """chi^2 of a state with the variances at itself."""
        tables = self.tables([state])
        return self.chi2(tables, self.precisions(tables))

    def advance(self, check: bool) -> tuple[list[State], float, float]:
        """One step; gives the models before it and, on a check, chi^2 of their average and its degrees of freedom."""
        everyone, count, twins = [*self.starts, *self.twins], len(self.starts), len(self.twins)
        models = [start.model() for start in everyone]
        weights = np.stack([state.weights for state in models]).astype(WORKING)
        by_column = np.ascontiguousarray(laid_out(models), dtype=WORKING)
        toward, by_weight = np.zeros_like(by_column), np.zeros_like(weights)
        loss = chi2 = followed = 0.0
        for block, weighed in zip(self.sets.blocks, self.weighed, strict=True):
            halves = block.halves(by_column)
            table = predicted(weights, halves)
            if check:
                mean = table[:, :count].mean(axis=1, keepdims=True) - block.tables
                chi2 += float((weighed.precision * mean * mean).sum())
                followed += float(((table[:, count:] - table[:, :twins]) * weighed.score).sum())
            table -= block.tables
            table[:, count:] -= self.probe * weighed.moved
            pull = weighed.precision.astype(WORKING) * table
            loss += float((pull[:, :count] * table[:, :count]).sum())
            by_weight += pull_back(block, by_column, halves, pull, toward)
        gradients = []
        for number, (start, state) in enumerate(zip(everyone, models, strict=True)):
            found = gradient_of(
                start, state, toward[:, number].T.astype(np.float64), by_weight[number]
            )
            eased = found.logits / np.maximum(state.components, MIN_CHANCE) ** TOWARDS_NATURAL
            gradients.append(Gradient(eased, found.weights, found.potentials))
        restart = self.control.update(
            loss, max(float(np.abs(g.logits).max()) for g in gradients[:count])
        )
        for start, gradient in zip(everyone, gradients, strict=True):
            start.step(gradient, self.control.size, self.momentum, restart)
        self.twin_models = models[count:]
        return models[:count], chi2, followed / (max(twins, 1) * self.probe)


def gradient_of(start: Descent, state: State, toward: Floats, by_weight: Reals) -> Gradient:
    """One start's gradient from that in its columns, laid out (component, column), and in its weights."""
    width, by_table = start.columns.width, []
    begin = width
    for tied in state.ties:
        tables = tied.tables
        times = toward[:, begin : begin + tables[0].size].reshape(tables.shape) * tables
        by_table.append(
            TableGradient(
                times.sum(axis=2), times.sum(axis=1), np.tensordot(state.weights, times, axes=1)
            )
        )
        begin += tables[0].size
    return start.in_logits(
        state, toward[:, :width], np.asarray(by_weight, dtype=np.float64), by_table
    )


def untied(sets: SetTargets, state: State) -> tuple[Tied, ...]:
    """The edges' tables of a model that has none: products."""
    of, a = sets.columns.of, state.components
    return tuple(
        Tied(a[:, of(i)], np.ones((a[:, of(i)].shape[1], a[:, of(j)].shape[1])), a[:, of(j)])
        for i, j in sets.edges
    )
