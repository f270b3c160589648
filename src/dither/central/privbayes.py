"""PrivBayes: a Bayesian network chosen by the exponential mechanism, with noisy count tables.

Trust model: central. Guarantee: pure epsilon by composition, all parts accounted in
`_Budget`: 2 % for the number of records (nothing under `replace`, where it is public),
30 % of the rest for the d - 1 choices of a node and its parents, the remainder for one
noisy count table per node (sensitivity d, or 2 d for a replaced record).

The score is PrivBayes' R, times the number of records: half the L1 distance between the
joint counts of a node and its parents and their prediction under independence. One
added record changes it by 2 (n - a)(n - b) / (n (n + 1)) < 2, with a and b the counts
of its value and of its parents' values; one replaced record by at most 3 + 2/n (Zhang
et al.). Tests check both by enumeration. Parent sets are as large as theta-usefulness
allows: the average count of a table is at least theta times the scale of its noise, d
or (for a replaced record) 2 d over the tables' share of epsilon. The paper uses the
latter, since its neighbours differ by a replaced record.

Reference: Zhang, Cormode, Procopiuc, Srivastava, Xiao, "PrivBayes: private data release
via Bayesian networks", ACM TODS 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dither.central.linear import Cells
from dither.central.measurement import CuratorTask, Neighbours, NoisyHistogram, release_by
from dither.central.noise import ByteSource, achieved_epsilon, add_noise, calibrate, choose
from dither.checks import check_between, check_whole_or_none
from dither.errors import ParameterError
from dither.mechanisms import check_epsilon
from dither.schema.cells import cells_of, count_cells
from dither.types import Codes, Floats, Integers

SCORE_GRID = 64
MAX_CANDIDATES = 20_000
MAX_TABLE = 2**20


@dataclass(frozen=True)
class _PrivBayesSettings:
    """Tuned constants of PrivBayes."""

    # Part of epsilon for the number of records, which only bounds the tables.
    count_share: float = 0.02
    # Part of the rest for choosing the network: the paper's beta.
    structure_share: float = 0.3


SETTINGS = _PrivBayesSettings()

# The counts of some attributes, as an array with one axis for each.
CountsOf = Callable[[tuple[int, ...]], Integers]


@dataclass(frozen=True)
class PrivBayesParameters:
    """A table's average count is at least `theta` times its noise.

    A node has at most `degree` parents, if given.
    """

    degree: int | None = None
    theta: float = 4.0

    def __post_init__(self) -> None:
        check_whole_or_none("degree", self.degree, 0)
        check_between("theta", self.theta, 0, math.inf, ends="()")


@dataclass(frozen=True)
class _Budget:
    """How epsilon is shared; the parts add up to at most the whole."""

    records: float
    choices: float
    tables: float

    @property
    def total(self) -> float:
        return math.fsum((self.records, self.choices, self.tables))


@dataclass(frozen=True)
class Node:
    """An attribute with its parents and P(attribute | parents), the attribute on the last axis."""

    attribute: int
    parents: tuple[int, ...]
    conditional: Floats


@dataclass(frozen=True)
class _NoisyNetwork:
    """Nodes ordered with parents first; `records` is the noisy (or public) number of records."""

    nodes: tuple[Node, ...]
    cardinalities: tuple[int, ...]
    records: float
    budget: _Budget

    def joint(self) -> Floats:
        """The whole distribution, one axis per attribute."""
        d = len(self.cardinalities)
        out = np.ones(self.cardinalities)
        for node in self.nodes:
            axes = (*node.parents, node.attribute)
            order = np.argsort(axes)
            shape = [1] * d
            for axis in axes:
                shape[axis] = self.cardinalities[axis]
            out = out * node.conditional.transpose(order).reshape(shape)
        return out

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Rows of codes by ancestral sampling."""
        codes = np.zeros((rows, len(self.cardinalities)), dtype=np.int32)
        for node in self.nodes:
            tables = node.conditional.reshape(-1, self.cardinalities[node.attribute])
            which = cells_of(codes, self.cardinalities, node.parents)
            cumulative = tables.cumsum(axis=1)[:, :-1]
            codes[:, node.attribute] = (rng.random(rows)[:, None] >= cumulative[which]).sum(axis=1)
        return codes


def learn(
    counts_of: CountsOf,
    cardinalities: Sequence[int],
    epsilon: float,
    source: ByteSource,
    rng: np.random.Generator,
    neighbours: Neighbours,
    parameters: PrivBayesParameters,
) -> _NoisyNetwork:
    """Learn a network; `rng` is public randomness for the first node."""
    check_epsilon(epsilon)
    sizes = tuple(int(k) for k in cardinalities)
    d = len(sizes)
    degree = affordable_degree(d, parameters.degree)
    records, spent_records = _records(counts_of, epsilon, source, neighbours)
    for_choices = SETTINGS.structure_share * (epsilon - spent_records) if d > 1 else 0.0
    # Slightly less than the rest, so that rounding in these sums cannot exceed epsilon.
    for_tables = (epsilon - spent_records - for_choices) * (1 - 2**-50)
    sensitivity = d * (1 if neighbours == "add-remove" else 2)
    most_cells = max(records, 1.0) * for_tables / (sensitivity * parameters.theta)
    edges, spent_choices = _structure(
        counts_of, sizes, for_choices, source, rng, neighbours, degree, most_cells
    )
    scale = calibrate(sensitivity, for_tables)
    nodes = []
    for attribute, parents in edges:
        exact = counts_of((*parents, attribute))
        noisy = add_noise(exact, scale, source)
        nodes.append(Node(attribute, parents, _conditional(noisy.astype(np.float64))))
    budget = _Budget(spent_records, spent_choices, achieved_epsilon(sensitivity, scale))
    return _NoisyNetwork(tuple(nodes), sizes, records, budget)


def _records(
    counts_of: CountsOf, epsilon: float, source: ByteSource, neighbours: Neighbours
) -> tuple[float, float]:
    """The number of records, noisy unless public, and its cost."""
    exact = counts_of((0,)).sum(keepdims=True)
    if neighbours == "replace":
        return float(exact[0]), 0.0
    scale = calibrate(1, SETTINGS.count_share * epsilon)
    return float(max(0, add_noise(exact, scale, source)[0])), achieved_epsilon(1, scale)


def _structure(
    counts_of: CountsOf,
    sizes: tuple[int, ...],
    epsilon: float,
    source: ByteSource,
    rng: np.random.Generator,
    neighbours: Neighbours,
    degree: int,
    most_cells: float,
) -> tuple[list[tuple[int, tuple[int, ...]]], float]:
    """Greedy choice of nodes with parents by the exponential mechanism; the first is random."""
    d = len(sizes)
    placed = [int(rng.integers(d))]
    edges: list[tuple[int, tuple[int, ...]]] = [(placed[0], ())]
    scores: dict[tuple[int, tuple[int, ...]], int] = {}
    each = epsilon / max(1, d - 1)
    moved = score_sensitivity(int(counts_of((0,)).sum()), neighbours)
    for _ in range(d - 1):
        candidates = [
            (node, parents)
            for node in range(d)
            if node not in placed
            for parents in parent_sets(node, placed, sizes, degree, most_cells)
        ]
        for candidate in candidates:
            if candidate not in scores:
                scores[candidate] = dependence_score(counts_of((*candidate[1], candidate[0])))
        # More dependence is better; the exponential mechanism here prefers small scores.
        values = np.array([-scores[candidate] for candidate in candidates], dtype=np.int64)
        node, parents = candidates[choose(values, moved, each, source)]
        placed.append(node)
        edges.append((node, parents))
    return edges, epsilon


def affordable_degree(columns: int, asked: int | None) -> int:
    """The degree asked for, or the largest with few enough candidates to score.

    It depends on the number of columns only: a limit that depended on the nodes chosen
    so far would reveal them by failing. By Sperner's theorem, maximal parent sets among
    i placed attributes are no more than the largest binomial coefficient up to the
    degree.
    """

    def most_candidates(degree: int) -> int:
        widest = (
            max(math.comb(i, size) for size in range(min(degree, i) + 1)) for i in range(1, columns)
        )
        return max(
            ((columns - i) * sets for i, sets in zip(range(1, columns), widest, strict=True)),
            default=0,
        )

    if asked is None:
        return max(
            (k for k in range(1, columns) if most_candidates(k) <= MAX_CANDIDATES), default=1
        )
    if most_candidates(asked) > MAX_CANDIDATES:
        raise ParameterError(
            f"degree {asked} can make {most_candidates(asked):,} candidate parent sets of {columns} columns, more than "
            f"{MAX_CANDIDATES:,}; use a smaller one, or leave it to the method",
            where="degree",
            value=asked,
        )
    return asked


def parent_sets(
    node: int, placed: Iterable[int], sizes: Sequence[int], degree: int, most_cells: float
) -> list[tuple[int, ...]]:
    """Maximal sets of at most `degree` placed attributes whose table with the node fits.

    A set that fits is maximal if no further attribute fits; the empty set always fits.
    A table never has more than `MAX_TABLE` cells.
    """
    available, limit = sorted(placed), min(most_cells, MAX_TABLE)
    found: list[tuple[int, ...]] = []

    def grow(parents: tuple[int, ...], cells: int, rest: int) -> None:
        """All sets that extend these parents with attributes from place `rest` on."""
        joining = [a for a in available if a not in parents and cells * sizes[a] <= limit]
        if len(parents) == degree or not joining:
            found.append(parents)
            return
        for at in range(rest, len(available)):
            if cells * sizes[available[at]] <= limit:
                grow((*parents, available[at]), cells * sizes[available[at]], at + 1)

    grow((), sizes[node], 0)
    return found or [()]


def dependence_score(counts: Integers) -> int:
    """n R on the grid: half the L1 distance of joint counts (node last) from independence."""
    table = counts.reshape(-1, counts.shape[-1]).astype(np.float64)
    n = table.sum()
    if n == 0:
        return 0
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / n
    return round(SCORE_GRID * 0.5 * float(np.abs(table - expected).sum()))


def score_sensitivity(records: int, neighbours: Neighbours) -> int:
    """Change of a score on the grid by one record, plus rounding and floating-point steps.

    Under `replace` the number of records is public and may be used.
    """
    exact = 2.0 if neighbours == "add-remove" else min(4.0, 3 + 2 / max(1, records))
    return math.ceil(SCORE_GRID * exact) + 2


def _conditional(noisy: Floats) -> Floats:
    """Set negative counts to zero, empty rows to uniform, and normalise rows."""
    clipped = noisy.clip(0)
    totals = clipped.sum(axis=-1, keepdims=True)
    uniform = 1.0 / noisy.shape[-1]
    return np.where(totals > 0, clipped / np.where(totals > 0, totals, 1.0), uniform)


def table_counts(codes: Codes, cardinalities: Sequence[int]) -> CountsOf:
    """Counts of some attributes from rows of codes."""
    return lambda attributes: count_cells(codes, cardinalities, attributes)


def histogram_counts(counts: Integers, shape: Sequence[int]) -> CountsOf:
    """Counts of some attributes from the histogram of all of them."""
    full = counts.reshape(tuple(shape))

    def counts_of(attributes: tuple[int, ...]) -> Integers:
        dropped = tuple(a for a in range(full.ndim) if a not in attributes)
        kept = sorted(attributes)
        summed: Integers = full.sum(axis=dropped)
        return summed.transpose([kept.index(a) for a in attributes])

    return counts_of


def release(task: CuratorTask, parameters: PrivBayesParameters) -> NoisyHistogram:
    """Release a histogram through a network of its attributes; one attribute uses Laplace."""
    if len(task.shape) == 1:
        alone = release_by(Cells(task.cells), task)
        return NoisyHistogram(alone.estimate, alone.epsilon, {"parents": {}})
    network = learn(
        histogram_counts(task.counts, task.shape),
        task.shape, task.epsilon, task.source, task.rng, task.neighbours, parameters,
    )  # fmt: skip
    return NoisyHistogram(
        network.joint().ravel() * network.records, network.budget.total, network_notes(network)
    )


def network_notes(network: _NoisyNetwork) -> dict[str, object]:
    """A manifest's notes about a network, from noisy values only."""
    return {
        "parents": {str(node.attribute): list(node.parents) for node in network.nodes},
        "epsilon_records": network.budget.records,
        "epsilon_choices": network.budget.choices,
        "epsilon_tables": network.budget.tables,
    }
