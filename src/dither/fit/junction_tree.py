"""Fit a junction tree to noisy marginals, all at once.

Estimating each clique separately uses only a part of the reports. Here the tree's distribution
is fitted to every measured marginal inside a clique, each cell weighted by its inverse
variance. Over distributions P of the tree,

    minimise  1/2 sum over measured cells of (P(cell) - y)^2 / variance.

References: McKenna, Sheldon, Miklau, "Graphical-model based estimation and inference for
differential privacy", ICML 2019 (Private-PGM: mirror descent with belief propagation);
acceleration by the interior gradient method of Auslender, Teboulle, SIAM J. Optim. 2006, with a
line search; early stopping by the discrepancy principle (Morozov 1966): a fit closer to the
measurements than their known noise follows the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from dither.errors import ParameterError
from dither.fit.marginal import Marginal
from dither.fit.model import MAX_CELLS, check_marginal, sample_rows
from dither.fit.triangulate import Triangulation, triangulate
from dither.schema import Schema, schema_from_json
from dither.schema.cells import cells_of, codes_of
from dither.tally.archive import pack, unpack
from dither.types import AnyArray, Codes, Floats, Indices, Integers


def _sum_out(table: AnyArray, scope: Sequence[int], keep: Sequence[int]) -> AnyArray:
    """The marginal of some of a table's attributes, axes in the order of `keep`."""
    left = [a for a in scope if a in set(keep)]
    axes = tuple(i for i, a in enumerate(scope) if a not in set(keep))
    summed = table.sum(axis=axes) if axes else table
    return np.transpose(summed, [left.index(a) for a in keep])


def _expand(table: AnyArray, scope: Sequence[int], target: Sequence[int]) -> AnyArray:
    """A view of a table over `scope` that broadcasts against tables over `target`."""
    order = [scope.index(a) for a in target if a in set(scope)]
    moved = np.transpose(table, order)
    sizes = iter(moved.shape)
    return moved.reshape([next(sizes) if a in set(scope) else 1 for a in target])


@dataclass(frozen=True)
class _Calibration:
    """The marginal of each clique under a set of potentials, and the log of their normaliser."""

    marginals: tuple[Floats, ...]
    log_normaliser: float


@dataclass(frozen=True)
class MessagePass:
    """How messages go between the cliques of one tree over attributes with these cardinalities."""

    tree: Triangulation
    cardinalities: tuple[int, ...]

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each clique's table."""
        return tuple(tuple(self.cardinalities[a] for a in clique) for clique in self.tree.cliques)

    @cached_property
    def _separators(self) -> tuple[tuple[int, ...], ...]:
        return self.tree.separators

    def log_sum(self, table: Floats, clique: int, keep: tuple[int, ...]) -> Floats:
        """log of the sum of exp over all attributes of a clique but `keep`, without overflow."""
        scope = self.tree.cliques[clique]
        axes = tuple(i for i, a in enumerate(scope) if a not in keep)
        top = table.max(axis=axes, keepdims=True)
        summed = np.log(np.exp(table - top).sum(axis=axes, keepdims=True)) + top
        # Cliques and separators are sorted, so the axes that are left are in the separator's order.
        return np.asarray(summed.reshape([self.cardinalities[a] for a in keep]))

    def calibrate(self, potentials: Sequence[Floats]) -> _Calibration:
        """Clique marginals of the distribution proportional to exp(sum of potentials)."""
        tree = self.tree
        beliefs = [np.array(p, dtype=np.float64) for p in potentials]
        upward: list[Floats] = [np.zeros(()) for _ in beliefs]
        for c in range(len(beliefs) - 1, 0, -1):
            separator, parent = self._separators[c], tree.parents[c]
            upward[c] = self.log_sum(beliefs[c], c, separator)
            beliefs[parent] += _expand(upward[c], separator, tree.cliques[parent])
        normaliser = float(self.log_sum(beliefs[0], 0, ()))
        beliefs[0] -= normaliser
        for c in range(1, len(beliefs)):
            separator, parent = self._separators[c], tree.parents[c]
            message = self.log_sum(beliefs[parent], parent, separator) - upward[c]
            beliefs[c] += _expand(message, separator, tree.cliques[c])
        return _Calibration(tuple(np.exp(b) for b in beliefs), normaliser)


_BLOCK = 1 << 18


@dataclass(frozen=True)
class JunctionTree:
    """Clique marginals on a junction tree, axes in the schema's order."""

    schema: Schema
    tree: Triangulation
    marginals: tuple[Floats, ...]
    kind = "junction_tree"

    def __post_init__(self) -> None:
        for clique, table in zip(self.tree.cliques, self.marginals, strict=True):
            shape = tuple(self.schema.cardinalities[i] for i in clique)
            if table.shape != shape or (table < 0).any() or not np.isclose(table.sum(), 1):
                raise ValueError(f"not a distribution over clique {clique}")
        for c, separator in enumerate(self.tree.separators):
            if c and not np.allclose(
                self._shared(c, separator), self._shared(self.tree.parents[c], separator), atol=1e-6
            ):
                raise ValueError(
                    f"clique {self.tree.cliques[c]} and its parent disagree on {separator}"
                )

    @classmethod
    def from_cliques(
        cls, schema: Schema, tree: Triangulation, tables: Sequence[AnyArray]
    ) -> JunctionTree:
        """From clique distributions that need not agree; see `_reconcile`."""
        return cls(schema, tree, _reconcile(tree, [np.asarray(t, np.float64) for t in tables]))

    def _shared(self, clique: int, attributes: tuple[int, ...]) -> Floats:
        return _sum_out(self.marginals[clique], self.tree.cliques[clique], attributes)

    def marginal(self, attributes: Sequence[str]) -> Floats:
        positions = check_marginal(self.schema, attributes)
        wanted = set(positions)
        for c, clique in enumerate(self.tree.cliques):
            if wanted <= set(clique):
                return np.ascontiguousarray(self._shared(c, positions))
        scope, table = self._pass_messages(wanted, {})
        out = np.ascontiguousarray(_sum_out(table, scope, positions))
        return np.asarray(out / out.sum())

    def all_pairs(self) -> Floats:
        """The marginals of all pairs, with the attributes' domains side by side in rows and columns.

        Blocks on the diagonal are diagonal matrices of one-way marginals. The joint
        distribution of an attribute and a clique is passed from clique to clique.
        """
        sizes = self.schema.cardinalities
        stops = np.cumsum(sizes)
        columns = [slice(stop - k, stop) for stop, k in zip(stops.tolist(), sizes, strict=True)]
        near: list[list[int]] = [[] for _ in self.tree.cliques]
        for c, parent in enumerate(self.tree.parents):
            if c:
                near[c].append(parent)
                near[parent].append(c)
        home: dict[int, int] = {}
        for c, clique in enumerate(self.tree.cliques):
            for a in clique:
                home.setdefault(a, c)
        flat = [table.ravel() for table in self.marginals]
        codes = [
            codes_of(np.arange(len(cells)), [sizes[a] for a in clique])
            for cells, clique in zip(flat, self.tree.cliques, strict=True)
        ]
        out = np.zeros((int(stops[-1]), int(stops[-1])))
        for first, clique in enumerate(self.tree.cliques):
            mine = [a for a in clique if home[a] == first]
            if not mine:
                continue
            rows = [
                codes[first][:, clique.index(a)][None] == np.arange(sizes[a])[:, None] for a in mine
            ]
            waiting = [(first, -1, np.concatenate(rows) * flat[first])]
            at = np.concatenate([np.arange(stops[-1])[columns[a]] for a in mine])
            while waiting:
                c, before, joint = waiting.pop()
                for position, a in enumerate(self.tree.cliques[c]):
                    if home[a] == c:
                        indicator = codes[c][:, position][:, None] == np.arange(sizes[a])
                        out[at, columns[a]] = joint @ indicator
                for other in near[c]:
                    if other != before:
                        waiting.append((other, c, self._pass_on(joint, c, other, flat, codes)))
        return out

    def _pass_on(
        self, joint: Floats, c: int, other: int, flat: Sequence[Floats], codes: Sequence[Integers]
    ) -> Floats:
        """From rows' joint distributions with a clique to those with its neighbour."""
        separator = self.tree.separators[c if self.tree.parents[c] == other and c else other]
        sizes = self.schema.cardinalities
        cells = math.prod(sizes[a] for a in separator)
        here, there = (
            cells_of(
                codes[n][:, [self.tree.cliques[n].index(a) for a in separator]],
                [sizes[a] for a in separator],
            )
            for n in (c, other)
        )
        order = np.argsort(here, kind="stable")
        starts = np.searchsorted(here[order], np.arange(cells))
        shared = np.add.reduceat(joint[:, order], starts, axis=1)
        total: Floats = np.bincount(there, flat[other], cells).astype(np.float64)
        given = _divide(flat[other], total[there])
        return np.asarray(shared[:, there] * given)

    def grouped(self, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
        """See `grouped_marginal`: values are added up as soon as no other clique needs them."""
        positions = [self.schema.index(name) for name in attributes]
        sums = {
            a: np.equal.outer(group, np.arange(group.max() + 1)) * 1.0
            for a, group in zip(positions, groups, strict=True)
        }
        scope, table = self._pass_messages(set(positions), sums)
        out = np.ascontiguousarray(
            _sum_out(table, scope, [a + len(self.schema) for a in positions])
        )
        return np.asarray(out / out.sum())

    def _pass_messages(
        self, wanted: set[int], sums: Mapping[int, Floats]
    ) -> tuple[tuple[int, ...], Floats]:
        """Messages from leaves to root over the smallest subtree with all wanted attributes.

        `sums` maps codes of a wanted attribute to groups, one column per group; the groups'
        axis is numbered after all attributes.
        """
        needed, root = self._subtree(wanted)
        inbox: dict[int, list[tuple[tuple[int, ...], Floats]]] = {c: [] for c in needed}
        for c in sorted(needed, reverse=True):
            separator = () if c == root else self.tree.separators[c]
            message = self._message(c, separator, inbox[c], wanted, sums)
            if c == root:
                return message
            inbox[self.tree.parents[c]].append(message)
        raise AssertionError("a tree has a root")

    def _subtree(self, wanted: set[int]) -> tuple[set[int], int]:
        """Remove leaves, and a root with one child, whose wanted attributes their neighbour has."""
        needed = set(range(len(self.tree.cliques)))
        children = {c: {i for i in needed if self.tree.parents[i] == c} for c in needed}
        root = 0
        changed = True
        while changed:
            changed = False
            for c in sorted(needed, reverse=True):
                parent = self.tree.parents[c]
                if (
                    c != root
                    and not children[c]
                    and wanted & set(self.tree.cliques[c]) <= set(self.tree.cliques[parent])
                ):
                    needed.discard(c)
                    children[parent].discard(c)
                    changed = True
            while len(children[root]) == 1:
                (child,) = children[root]
                if not wanted & set(self.tree.cliques[root]) <= set(self.tree.cliques[child]):
                    break
                needed.discard(root)
                root = child
                changed = True
        return needed, root

    def _message(
        self,
        c: int,
        separator: tuple[int, ...],
        inbox: list[tuple[tuple[int, ...], Floats]],
        wanted: set[int],
        sums: Mapping[int, Floats],
    ) -> tuple[tuple[int, ...], Floats]:
        """P(clique | separator) times the messages, summed to separator and wanted attributes."""
        clique = self.tree.cliques[c]
        table = self.marginals[c]
        if separator:
            table = _divide(table, _expand(self._shared(c, separator), separator, clique))
        # An attribute outside the parent is in no clique above: its values can be grouped here.
        inbox = inbox + [
            ((a, a + len(self.schema)), sums[a]) for a in clique if a in sums and a not in separator
        ]
        everything = set(clique).union(*(scope for scope, _ in inbox))
        keep = tuple(
            sorted(
                set(separator)
                | {a for a in everything if a >= len(self.schema) or a in wanted - sums.keys()}
            )
        )
        sizes = dict(enumerate(self.schema.cardinalities)) | {
            a + len(self.schema): g.shape[1] for a, g in sums.items()
        }
        cells = math.prod(sizes[a] for a in keep)
        if cells > MAX_CELLS:
            raise ParameterError(
                f"this marginal needs a table of {cells:,} cells on its way, more than {MAX_CELLS:,}; "
                "ask fewer attributes",
                where="attributes",
                value=cells,
            )
        # einsum knows 52 labels at most, so attributes are numbered afresh within each product.
        label = {a: i for i, a in enumerate(sorted(everything))}
        operands: list[Any] = [table, [label[a] for a in clique]]
        for scope, message in inbox:
            operands += [message, [label[a] for a in scope]]
        result = np.einsum(
            *operands, [label[a] for a in keep], optimize="greedy" if len(inbox) > 0 else False
        )
        return keep, np.asarray(result)

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        codes = np.zeros((rows, len(self.schema)), dtype=np.int32, order="F")
        for c, (clique, separator) in enumerate(
            zip(self.tree.cliques, self.tree.separators, strict=True)
        ):
            fresh = tuple(a for a in clique if a not in separator)
            table = self._shared(c, separator + fresh)
            shape = [self.schema.cardinalities[a] for a in fresh]
            for start in range(0, rows, _BLOCK):
                block = codes[start : start + _BLOCK]
                if separator:
                    sizes = [self.schema.cardinalities[a] for a in separator]
                    given = cells_of(block, self.schema.cardinalities, separator)
                    drawn = _sample_given(table.reshape(math.prod(sizes), -1), given, rng)
                else:
                    drawn = sample_rows(table.ravel(), len(block), rng).astype(np.int64)
                block[:, fresh] = codes_of(drawn, shape)
        return codes

    @cached_property
    def cells(self) -> int:
        """The cells of all cliques together."""
        return sum(t.size for t in self.marginals)

    def to_bytes(self) -> bytes:
        meta = {
            "kind": self.kind,
            "schema": self.schema.to_json(),
            "cliques": [list(c) for c in self.tree.cliques],
            "parents": list(self.tree.parents),
            "kept": [list(e) for e in self.tree.kept],
            "fill": [list(e) for e in self.tree.fill],
            "dropped": [list(e) for e in self.tree.dropped],
        }
        return pack(meta, {str(i): m for i, m in enumerate(self.marginals)})

    @classmethod
    def from_bytes(cls, data: bytes) -> JunctionTree:
        meta, arrays = unpack(data)
        kept, fill, dropped = (
            tuple((int(i), int(j)) for i, j in meta[name]) for name in ("kept", "fill", "dropped")
        )
        tree = Triangulation(
            tuple(tuple(c) for c in meta["cliques"]), tuple(meta["parents"]), kept, fill, dropped
        )
        return cls(
            schema_from_json(meta["schema"]),
            tree,
            tuple(arrays[str(i)] for i in range(len(tree.cliques))),
        )


def independent_tree(schema: Schema, marginals: Sequence[Floats]) -> JunctionTree:
    """The tree without any dependence: one clique per attribute."""
    tree = triangulate(schema.cardinalities, ())
    return JunctionTree(
        schema, tree, tuple(np.asarray(marginals[c[0]], np.float64) for c in tree.cliques)
    )


def _reconcile(
    tree: Triangulation, tables: Sequence[Floats], rounds: int = 50, tolerance: float = 1e-9
) -> tuple[Floats, ...]:
    """Clique distributions that agree on every separator, close to the given ones.

    Both sides of each separator are scaled to the mean of their marginals (iterative
    proportional fitting) until no cell changes by more than the tolerance. One pass from the
    root, which keeps each clique's conditional given its separator, then makes them equal.
    """
    current = [t / t.sum() for t in tables]
    separators = tree.separators
    for _ in range(rounds):
        moved = 0.0
        for c in range(1, len(current)):
            separator, p = separators[c], tree.parents[c]
            if not separator:
                continue
            mine = _sum_out(current[c], tree.cliques[c], separator)
            theirs = _sum_out(current[p], tree.cliques[p], separator)
            target = (mine + theirs) / 2
            moved = max(moved, float(np.abs(mine - theirs).max()))
            current[c] = _rescale(current[c], tree.cliques[c], separator, mine, target)
            current[p] = _rescale(current[p], tree.cliques[p], separator, theirs, target)
        if moved <= tolerance:
            break
    for c in range(1, len(current)):
        separator, p = separators[c], tree.parents[c]
        mine = _sum_out(current[c], tree.cliques[c], separator)
        theirs = _sum_out(current[p], tree.cliques[p], separator)
        current[c] = _rescale(current[c], tree.cliques[c], separator, mine, theirs)
    return tuple(current)


def _rescale(
    table: Floats, clique: tuple[int, ...], separator: tuple[int, ...], now: Floats, target: Floats
) -> Floats:
    """Scale a table to a new marginal; empty cells share the target evenly."""
    rest = table.size // max(now.size, 1)
    empty = now <= 0
    out = table * _expand(_divide(target, now), separator, clique)
    if (empty & (target > 0)).any():
        out = out + _expand(np.where(empty, target / rest, 0.0), separator, clique)
    return out


def _divide(a: Floats, b: Floats) -> Floats:
    """a / b with 0 where b is 0."""
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b > 0)


def _sample_given(joint: Floats, given: Integers, rng: np.random.Generator) -> Integers:
    """A column for each row number in `given`, drawn from that row of the joint.

    All rows share one cumulative sum, so that a uniform draw within a row's part finds the
    column by one binary search. Rows without probability return column 0.
    """
    width = joint.shape[1]
    cumulative = np.cumsum(joint.ravel())
    ends = cumulative[width - 1 :: width]
    starts = np.concatenate([[0.0], ends[:-1]])
    draws = starts[given] + rng.random(len(given)) * (ends - starts)[given]
    cells = np.searchsorted(cumulative, draws, side="right")
    return np.asarray(np.clip(cells - given * width, 0, width - 1))


# Starting cells are not zero, because multiplicative steps could not change them.
_LEAST = 1e-9


# The fit continues while the residual falls by more than this share in five iterations.
_MIN_DECREASE = 0.05


@dataclass(frozen=True)
class TreeFit:
    """A fitted tree with diagnostics.

    `discrepancy` is the weighted squared residual per measured cell, about 1 if the residual
    equals the known noise. `unused` counts measurements outside all cliques.
    """

    model: JunctionTree
    iterations: int
    discrepancy: float
    stopped: str
    unused: int


@dataclass(frozen=True)
class _Measured:
    """The cells of all measurements in one clique, and the sparse matrix that sums to them.

    One product computes all measurements, its transpose their gradient. The matrix has 12 bytes
    for each measurement and cell of the clique.
    """

    clique: int
    sums: csr_array
    gather: csr_array
    target: Floats
    weights: Floats

    def read(self, marginals: Sequence[Floats]) -> Floats:
        """What the clique's marginal says about the measured cells."""
        return np.asarray(self.sums @ marginals[self.clique].ravel())


def fit_tree(
    schema: Schema,
    tree: Triangulation,
    measurements: Sequence[Marginal],
    *,
    start: Sequence[AnyArray] | None = None,
    discrepancy: float = 1.0,
    least: float | None = None,
    tolerance: float = 1e-5,
    iterations: int = 1_000,
    progress: Callable[[int, float], None] | None = None,
) -> TreeFit:
    """The tree's distribution nearest to the measurements.

    It starts from the product of the one-way marginals `start` (even by default). It stops when
    the weighted squared residual reaches `discrepancy` times the number of measured cells (0:
    never) and, if `least` is given, falls slowly or reaches `least` times that number; when
    fifty iterations reduce it by less than `tolerance`; or after `iterations`. Signal reduces
    the residual quickly, noise slowly.
    """
    measured, unused = _place(schema, tree, measurements)
    messages = MessagePass(tree, schema.cardinalities)
    theta = _starting_potentials(schema, tree, start)
    state = messages.calibrate(theta)
    if not measured:
        return TreeFit(
            JunctionTree(schema, tree, _tidy(state.marginals)), 0, 0.0, "nothing measured", unused
        )
    cells = sum(p.target.size for p in measured)
    descent = _Descent(messages, measured, theta, state)
    history = [descent.residual]
    done, stopped = 0, "iterations"
    while done < iterations:
        if descent.residual <= (discrepancy if least is None else least) * cells or (
            descent.residual <= discrepancy * cells
            and history[-1] > (1 - _MIN_DECREASE) * history[-min(len(history), 6)]
        ):
            stopped = "discrepancy"
            break
        if done >= 50 and history[-51] - min(history[-50:]) < tolerance * history[-51]:
            stopped = "converged"
            break
        descent.step()
        history.append(descent.residual)
        done += 1
        if progress:
            progress(done, descent.residual / cells)
    model = JunctionTree(schema, tree, _tidy(descent.marginals))
    return TreeFit(model, done, descent.residual / cells, stopped, unused)


class _Descent:
    """The accelerated mirror descent: the iterate x, the mirror point z with its potentials, the step size."""

    def __init__(
        self,
        messages: MessagePass,
        measured: list[_Measured],
        theta: list[Floats],
        state: _Calibration,
    ) -> None:
        self.messages, self.measured = messages, measured
        self.theta, self.mirror = theta, state
        self.marginals: tuple[Floats, ...] = state.marginals
        self.smoothness = float(max(p.weights.max() for p in measured)) / 16
        self.momentum = 1.0
        self.fitted = [p.read(state.marginals) for p in measured]
        self.mirror_fitted = self.fitted
        self.residual = self._loss(self.fitted)

    def _loss(self, fitted: list[Floats]) -> float:
        return float(
            sum(
                (p.weights * (m - p.target) ** 2).sum()
                for p, m in zip(self.measured, fitted, strict=True)
            )
        )

    def step(self) -> None:
        """One accelerated step; the step size shrinks until the quadratic bound holds."""
        self.smoothness /= 1.1
        a = self.momentum
        while True:
            between = [
                (1 - a) * x + a * z for x, z in zip(self.fitted, self.mirror_fitted, strict=True)
            ]
            gradient = self._gradient(between)
            theta = [
                t - g / (self.smoothness * a) for t, g in zip(self.theta, gradient, strict=True)
            ]
            mirror = self.messages.calibrate(theta)
            fitted = [p.read(mirror.marginals) for p in self.measured]
            moved = sum(
                float((p.weights * (n - o) ** 2).sum())
                for p, n, o in zip(self.measured, fitted, self.mirror_fitted, strict=True)
            )
            if moved / 2 <= self.smoothness * self._divergence(theta, mirror) * (1 + 1e-9) + 1e-12:
                break
            self.smoothness *= 2
        before = self.residual
        self.momentum = _next_momentum(a)
        self.theta, self.mirror, self.mirror_fitted = theta, mirror, fitted
        pairs = zip(self.marginals, mirror.marginals, strict=True)
        self.marginals = tuple((1 - a) * x + a * z for x, z in pairs)
        self.fitted = [(1 - a) * x + a * z for x, z in zip(self.fitted, fitted, strict=True)]
        self.residual = self._loss(self.fitted)
        if self.residual > before:
            self._restart()

    def _restart(self) -> None:
        """Restart the momentum with the mirror point at the iterate."""
        self.momentum = 1.0
        self.theta = _log_potentials(self.messages.tree, self.marginals)
        self.mirror = self.messages.calibrate(self.theta)
        self.mirror_fitted = [p.read(self.mirror.marginals) for p in self.measured]

    def _gradient(self, fitted: list[Floats]) -> list[Floats]:
        out = [np.zeros(shape) for shape in self.messages.shapes]
        for p, m in zip(self.measured, fitted, strict=True):
            out[p.clique] = (p.gather @ (p.weights * (m - p.target))).reshape(out[p.clique].shape)
        return out

    def _divergence(self, theta: list[Floats], new: _Calibration) -> float:
        """Kullback-Leibler divergence of the new mirror point from the old one, from their potentials."""
        inner = sum(
            float(((a - b) * m).sum())
            for a, b, m in zip(theta, self.theta, new.marginals, strict=True)
        )
        return max(inner - new.log_normaliser + self.mirror.log_normaliser, 0.0)


def _next_momentum(a: float) -> float:
    """The b with b^2 = (1 - b) a^2: 1 at the start, then falling like 2/k."""
    return a * (math.sqrt(a * a + 4) - a) / 2


def _place(
    schema: Schema, tree: Triangulation, measurements: Sequence[Marginal]
) -> tuple[list[_Measured], int]:
    """Each measurement in the smallest clique that holds it."""
    sizes = tree.cells(schema.cardinalities)
    order = sorted(range(len(sizes)), key=lambda c: (sizes[c], c))
    placed: dict[int, list[tuple[tuple[int, ...], Marginal]]] = {}
    unused = 0
    for m in measurements:
        members = tuple(schema.index(name) for name in m.attributes)
        shape = tuple(schema.cardinalities[a] for a in members)
        if (
            m.frequencies.shape != shape
            or not np.isfinite(m.frequencies).all()
            or not np.isfinite(1 / m.variances).all()
        ):
            raise ParameterError(
                f"measurement of {m.attributes}: frequencies of shape {shape} with variances above 0 are needed"
            )
        holding = next((c for c in order if set(members) <= set(tree.cliques[c])), None)
        if holding is None:
            unused += 1
        else:
            placed.setdefault(holding, []).append((members, m))
    return [_measured(schema, tree, c, found) for c, found in placed.items()], unused


def _measured(
    schema: Schema,
    tree: Triangulation,
    clique: int,
    found: Sequence[tuple[tuple[int, ...], Marginal]],
) -> _Measured:
    scope = tree.cliques[clique]
    shape = tuple(schema.cardinalities[a] for a in scope)
    cells = math.prod(shape)
    codes = np.indices(shape, dtype=np.int32).reshape(len(scope), -1)
    rows, begin = [], 0
    for members, m in found:
        cell = np.ravel_multi_index([codes[scope.index(a)] for a in members], m.frequencies.shape)
        rows.append(begin + cell)
        begin += m.frequencies.size
    entries = (
        np.ones(cells * len(found)),
        (np.concatenate(rows), np.tile(np.arange(cells), len(found))),
    )
    sums = csr_array(entries, shape=(begin, cells))
    return _Measured(
        clique,
        sums,
        csr_array(sums.T),
        np.concatenate([np.asarray(m.frequencies, np.float64).ravel() for _, m in found]),
        np.concatenate([1.0 / m.variances.ravel() for _, m in found]),
    )


def _starting_potentials(
    schema: Schema, tree: Triangulation, start: Sequence[AnyArray] | None
) -> list[Floats]:
    """The logarithms of the one-way marginals, each in the first clique with its attribute."""
    theta = [np.zeros([schema.cardinalities[a] for a in clique]) for clique in tree.cliques]
    if start is None:
        return theta
    seen: set[int] = set()
    for c, clique in enumerate(tree.cliques):
        for a in clique:
            if a not in seen:
                seen.add(a)
                theta[c] += _expand(np.log(np.maximum(start[a], _LEAST)), (a,), clique)
    return theta


def _log_potentials(tree: Triangulation, marginals: Sequence[Floats]) -> list[Floats]:
    """Potentials of consistent clique marginals: clique over separator."""
    out = []
    for clique, separator, table in zip(tree.cliques, tree.separators, marginals, strict=True):
        log = np.log(np.maximum(table, 1e-300))
        if separator:
            log = log - _expand(
                np.log(np.maximum(_sum_out(table, clique, separator), 1e-300)), separator, clique
            )
        out.append(log)
    return out


def _tidy(marginals: Sequence[Floats]) -> tuple[Floats, ...]:
    return tuple(np.maximum(m, 0.0) / m.sum() for m in marginals)
