"""Strong pairs of attributes: which they are, and where their potentials start.

One stopping rule for the whole fit is ruled by the many weak pairs and stops the few strong ones too early. A pair whose own
reports the fit contradicts beyond their noise becomes an edge (see `descent`), and its potential starts warm at what its own
reports say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import expit, gammaincc, stdtr

from dither.fit.mixture.targets import (
    Columns,
    Edges,
    PairTargets,
    inverse_variances,
    links,
    pooling_weights,
    trees,
)
from dither.fit.project import norm_sub
from dither.types import Floats

OWN = 0.99  # of a warm table is the pair's own, the rest the product, so that no cell is ruled out
MIN_ONE = 1e-6
MIN_RATIO = 1e-9  # to the product: a potential stays finite
RAKING_STEPS = 200
SHARPNESSES = (1.0, 1.5, 2.0, 3.0, 5.0)
MATCHED = 0.999  # of a matched table, the rest the product
MATCHING_STEPS = 50
MIN_MATCHED = 3  # values: of two, any dependence at all looks like a match
MATCH_DRAWS, MIN_DRAWS, MAX_DRAWN_CELLS = 100, 20, 2_000_000
PROBES, PROBE = (
    32,
    0.1,
)  # moved tables that measure degrees of freedom, and by how much of their noise
LEVEL = 0.1  # how often noise alone may make any pair of a table strong
NULL_DRAWS = 200
DETERMINED = 0.7  # of the smaller entropy
MAX_TREE_CELLS = (
    20_000  # of three or four attributes: every step costs as much as the table in each component
)
PairNoise = tuple[float, ...]  # c0, c1, c2 of the variance c0 + c1 f - c2 f^2


Warming = Callable[
    [Floats, Floats, Floats], Floats
]  # a warm table from raw ones (last two axes), and the one-way marginals


@dataclass(frozen=True)
class Marginals:
    """What a fit starts from: one-way marginals, the raw tables of the edges, and how a warm table is made of each."""

    one: Floats
    pairs: Mapping[tuple[int, int], Floats]
    warming: Mapping[tuple[int, int], Warming]


def marginals_of(targets: PairTargets, edges: Edges) -> Marginals:
    """Those of the pooled estimates."""
    tied = [link for tree in trees(edges) for link in links(tree)]
    raw = {(i, j): block(targets.columns, targets.pairs, i, j) for i, j in tied}
    return Marginals(targets.one, raw, {(i, j): best_warming(targets, i, j) for i, j in tied})


def block(columns: Columns, matrix: Floats, i: int, j: int) -> Floats:
    """The table of one pair."""
    return matrix[columns.of(i), columns.of(j)]


def projected(columns: Columns, one: Floats) -> Floats:
    """Every attribute's part as a distribution."""
    return np.concatenate([norm_sub(one[columns.of(i)]) for i in range(len(columns.cardinalities))])


def raked(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Tables (on the last two axes) scaled along their lines until their marginals are these (Deming and Stephan, 1940)."""
    for _ in range(RAKING_STEPS):
        table = table * (rows / np.maximum(table.sum(axis=-1), 1e-300))[..., :, None]
        table = table * (columns / np.maximum(table.sum(axis=-2), 1e-300))[..., None, :]
        if np.abs(table.sum(axis=-1) - rows).max() < 1e-7:
            break
    return table


def own_warm(raw: Floats, rows: Floats, columns: Floats, sharpness: float) -> Floats:
    """A pair's own projected table, a little of the product mixed in, raked to the one-way marginals.

    Sharpened, its ratio to the product is raised to a power and raked again: of a pair that determines each other, noise leaves
    small cells everywhere, and this takes from them what the one-way marginals show to belong to the large ones.
    """
    product = rows[..., :, None] * columns[..., None, :]
    own = _projected_rows(raw.reshape(-1, raw.shape[-2] * raw.shape[-1])).reshape(raw.shape)
    return _sharpened(
        raked(OWN * own + (1.0 - OWN) * product, rows, columns), rows, columns, sharpness
    )


def _sharpened(table: Floats, rows: Floats, columns: Floats, sharpness: float) -> Floats:
    """A table with these marginals, its ratio to the product raised to a power, raked to them again."""
    if sharpness == 1.0:
        return table
    product = rows[..., :, None] * columns[..., None, :]
    return raked(product * (table / product) ** sharpness, rows, columns)


def _raised(part: Floats) -> Floats:
    """Distributions (last axis) without zeros."""
    part = np.maximum(part, MIN_ONE)
    return np.asarray(part / part.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class Matched:
    """Two attributes treated as aliases if the reports support it.

    Every value of one matches one value of the other, with the probabilities of all matchings
    given the reports and the one-way marginals, by belief propagation (Huang and Jebara, arXiv
    0908.1769). A matched pair of values has one frequency, estimated by both one-way marginals,
    which improves both.
    """

    noise: PairNoise
    variances: tuple[float, float]  # of the one-way marginals

    def __call__(self, raw: Floats, rows: Floats, columns: Floats) -> Floats:
        c0, c1, c2 = self.noise
        first, second = self.variances
        across, down = rows[..., :, None], columns[..., None, :]
        both = (second * across + first * down) / (
            first + second
        )  # the frequency of a pair of values, if they match
        variance = c0 + 0.5 * both * (c1 - c2 * both)
        log_odds = both * (raw - 0.5 * both) / variance - (across - down) ** 2 / (
            2.0 * (first + second)
        )
        chances = matching_chances(log_odds)
        lines = (
            second * rows + first * (chances * down).sum(axis=-1),
            first * columns + second * (chances * across).sum(axis=-2),
        )
        new_rows, new_columns = (line / line.sum(axis=-1, keepdims=True) for line in lines)
        product = new_rows[..., :, None] * new_columns[..., None, :]
        return raked(MATCHED * chances * both + (1.0 - MATCHED) * product, new_rows, new_columns)


def matching_chances(log_odds: Floats) -> Floats:
    """How likely each pair of values is matched (last two axes) if a matching is as likely as the product of its cells' odds."""
    to_row, to_column = np.zeros_like(log_odds), np.zeros_like(log_odds)
    for _ in range(MATCHING_STEPS):
        to_row = 0.5 * (to_row - _log_sum_of_others(log_odds + to_column, -1))
        to_column = 0.5 * (to_column - _log_sum_of_others(log_odds + to_row, -2))
    return np.asarray(expit(log_odds + to_row + to_column))


def _log_sum_of_others(values: Floats, axis: int) -> Floats:
    largest = values.max(axis=axis, keepdims=True)
    raised = np.exp(values - largest)
    return np.asarray(
        np.log(np.maximum(raised.sum(axis=axis, keepdims=True) - raised, 1e-12)) + largest
    )


def _matched_of(targets: PairTargets, i: int, j: int) -> Matched | None:
    """The way to match the values of a pair, if they are equally many and more than two."""
    k = targets.columns.cardinalities
    if k[i] != k[j] or k[i] < MIN_MATCHED:
        return None
    first, second = (float(targets.one_variance[targets.columns.of(a)][0]) for a in (i, j))
    return Matched(tuple(float(c[i, j]) for c in targets.pair_noise), (first, second))


def match_gain(
    targets: PairTargets, i: int, j: int, fitted: Floats, rng: np.random.Generator
) -> tuple[float, float]:
    """How much lower the estimated risk of the matched table is than that of a fit's table, and how often a table drawn from the
    fit would seem so much better matched.

    A few hundred reports do not show 16 x 16 cells to be anything but noise, yet they show that one cell in each line stands out.
    """
    matched = _matched_of(targets, i, j)
    if matched is None:
        return -np.inf, 1.0
    raw, of = block(targets.columns, targets.pairs, i, j), targets.columns.of
    rows, columns = (_raised(targets.one[of(a)]) for a in (i, j))
    c0, c1, c2 = matched.noise
    deviation = np.sqrt(np.maximum(c0 + fitted * (c1 - c2 * fitted), 1e-3 * c2))

    def closer(tables: Floats, rows: Floats, columns: Floats) -> Floats:
        gaps = (
            ((tables - other) / deviation) ** 2
            for other in (fitted, matched(tables, rows, columns))
        )
        return np.asarray(np.subtract(*gaps).sum(axis=(-2, -1)))

    here = float(closer(raw, rows, columns))
    gain = here - 2.0 * (len(raw) - 1)  # a matched table has as many frequencies as one attribute
    if gain <= 0.0:
        return gain, 1.0
    draws = int(np.clip(MAX_DRAWN_CELLS // raw.size, MIN_DRAWS, MATCH_DRAWS))
    tables = drawn_tables(fitted, matched.noise, draws, rng)
    # The one-way marginals rest on the same people to the extent that this pair has a part in them.
    by_pair, _ = pooling_weights(targets)
    moved = tables - fitted
    null = closer(
        tables,
        _raised(rows + by_pair[i, j] * moved.sum(axis=-1)),
        _raised(columns + by_pair[j, i] * moved.sum(axis=-2)),
    )
    # One more draw from the same law as a few others: Student's t.
    distance = (here - null.mean()) / max(
        float(null.std(ddof=1)) * math.sqrt(1.0 + 1.0 / draws), 1e-300
    )
    return gain, float(stdtr(draws - 1, -distance))


def drawn_tables(fitted: Floats, noise: PairNoise, draws: int, rng: np.random.Generator) -> Floats:
    """Raw tables as reports about a pair with these frequencies would give: people fall into cells, and a device names its cell
    with chance p and another with chance q. With few people in a cell this is far from a normal law.

    c0, c1, c2 of the noise are q (1 - q) / (n (p - q)^2), (1 - 2q) / (n (p - q)) and 1/n, which gives n, p and q.
    """
    c0, c1, c2 = noise
    people = max(round(1.0 / c2), 1)
    apart = 1.0 / math.sqrt((c1 / c2) ** 2 + 4.0 * c0 / c2)
    other = float(np.clip(0.5 * (1.0 - apart * c1 / c2), 0.0, 0.5))
    shares = np.maximum(fitted.ravel(), 0.0)
    inside = rng.multinomial(people, shares / shares.sum(), draws)
    named = rng.binomial(inside, min(other + apart, 1.0)) + rng.binomial(people - inside, other)
    return np.asarray((named / people - other) / apart).reshape(draws, *fitted.shape)


@dataclass(frozen=True)
class _WarmRisk:
    """Of one way to make a warm table: its table in units of the noise, its estimated risk, its degrees of freedom."""

    warming: Warming
    table: Floats
    risk: float
    df: float


def _warm_risks(targets: PairTargets, i: int, j: int) -> list[_WarmRisk]:
    """For every way to make a warm table its estimated risk, SURE, with its degrees of freedom from some moved tables.

    The data are the pair's own table and the two one-way marginals, which a warm table may follow or better.
    """
    of, rng = targets.columns.of, np.random.default_rng(0)  # the same moves for all ways
    lines = [targets.one[of(a)] for a in (i, j)]
    raw = block(targets.columns, targets.pairs, i, j)
    c0, c1, c2 = (float(c[i, j]) for c in targets.pair_noise)
    soft = own_warm(raw, _raised(lines[0]), _raised(lines[1]), 1.0)
    own_deviation = np.sqrt(np.maximum(c0 + soft * (c1 - c2 * soft), 1e-3 * c2))
    deviations = [own_deviation, *(np.sqrt(targets.one_variance[of(a)]) for a in (i, j))]
    data = [raw, *lines]
    draws = [rng.standard_normal((PROBES, *d.shape)) for d in data]
    moved = [
        np.concatenate([d[None], d + PROBE * v * z])
        for d, v, z in zip(data, deviations, draws, strict=True)
    ]

    rows, columns = _raised(moved[1]), _raised(moved[2])
    own = own_warm(moved[0], rows, columns, 1.0)

    def risk(warming: Warming, tables: Floats) -> _WarmRisk:
        faces = (tables, tables.sum(axis=-1), tables.sum(axis=-2))
        chi2, df = 0.0, []
        for d, v, z, (here, *there) in zip(data, deviations, draws, faces, strict=True):
            chi2 += float((((here - d) / v) ** 2).sum())
            df.append(float((z * (np.stack(there) - here) / (PROBE * v)).sum()) / PROBES)
        return _WarmRisk(warming, tables[0] / own_deviation, chi2 + 2.0 * sum(df), df[0])

    found = [
        risk(partial(own_warm, sharpness=s), _sharpened(own, rows, columns, s)) for s in SHARPNESSES
    ]
    matched = _matched_of(targets, i, j)
    return found if matched is None else [*found, risk(matched, matched(moved[0], rows, columns))]


def _best_warm(targets: PairTargets, i: int, j: int) -> _WarmRisk:
    """The way with the least estimated risk; a matched table also where it is above that by one standard error, since it is the
    simplest."""
    found = _warm_risks(targets, i, j)
    best, last = min(found, key=lambda way: way.risk), found[-1]
    unsure = 2.0 * float(np.sqrt(((last.table - best.table) ** 2).sum()))
    return last if isinstance(last.warming, Matched) and last.risk < best.risk + unsure else best


def best_warming(targets: PairTargets, i: int, j: int) -> Warming:
    """How to make the warm table of a pair."""
    return _best_warm(targets, i, j).warming


def warm_degrees(targets: PairTargets, i: int, j: int) -> float:
    """The degrees of freedom that the warm table made that way takes."""
    return _best_warm(targets, i, j).df


def warm_potentials(columns: Columns, edges: Edges, start: Marginals) -> list[Floats]:
    """log(T / product) with T the pair's own warm table, for every link of every tree."""
    out = []
    for i, j in (link for tree in trees(edges) for link in links(tree)):
        first, second = (_raised(start.one[columns.of(a)]) for a in (i, j))
        table = start.warming[i, j](start.pairs[i, j], first, second)
        out.append(
            np.log(np.maximum(table / np.outer(table.sum(axis=1), table.sum(axis=0)), MIN_RATIO))
        )
    return out


def local_chi2(targets: PairTargets, pairs: Floats, one: Floats) -> Floats:
    """Each pair's chi^2 between its own reports and a model's table, as a matrix of attributes; zero where nothing was asked."""
    w2, _ = inverse_variances(targets, pairs, one)
    squares = w2 * (pairs - targets.pairs) ** 2
    return targets.columns.sums(targets.columns.sums(squares).T)


def pair_cells(columns: Columns) -> Floats:
    """The number of cells of every pair."""
    k = columns.cardinalities.astype(np.float64)
    return np.outer(k, k)


@dataclass(frozen=True)
class _OwnTables:
    """Projected tables of a pair against a fit's: by how much each is `closer` to its raw table in chi^2, and the degrees of
    freedom that it takes, which are its positive cells less one."""

    closer: Floats
    free: Floats

    @property
    def gain(self) -> Floats:
        """How much lower the estimated risk (SURE) is; the fit's degrees of freedom are left out, since a pair takes few."""
        return self.closer - 2.0 * self.free


def _projected_rows(raw: Floats) -> Floats:
    """`norm_sub` of every row."""
    descending = -np.sort(-raw, axis=1)
    excess = (np.cumsum(descending, axis=1) - 1.0) / np.arange(1, raw.shape[1] + 1)
    positive = (descending > excess).sum(axis=1)
    return np.asarray(np.maximum(raw - excess[np.arange(len(raw)), positive - 1][:, None], 0.0))


def own_tables(raw: Floats, fitted: Floats, noise: PairNoise) -> _OwnTables:
    """Compare raw tables of a pair, flat in rows and projected, with the flat table of a fit."""
    own = _projected_rows(raw)
    c0, c1, c2 = noise
    precision = 1.0 / np.maximum(c0 + own * (c1 - c2 * own), 1e-3 * c2)
    closer = (precision * ((fitted - raw) ** 2 - (own - raw) ** 2)).sum(axis=1)
    return _OwnTables(closer, (own > 0).sum(axis=1) - 1.0)


def chance_of(
    raw: Floats, closer: float, fitted: Floats, noise: PairNoise, rng: np.random.Generator
) -> float:
    """How often a table drawn from the fit would contradict it as much, by the clearer of two tests: chi^2, and how much closer
    its own projection is, which sees a few large cells among many; a gamma law is matched to some draws."""
    c0, c1, c2 = noise
    deviation = np.sqrt(np.maximum(c0 + fitted * (c1 - c2 * fitted), 1e-3 * c2))
    chi2 = float((((raw - fitted) / deviation) ** 2).sum())
    null = own_tables(
        fitted + deviation * rng.standard_normal((NULL_DRAWS, fitted.size)), fitted, noise
    ).closer
    mean, variance = max(float(null.mean()), 1e-300), max(float(null.var()), 1e-300)
    few_large = float(gammaincc(mean**2 / variance, max(closer, 0.0) * mean / variance))
    return 2.0 * min(few_large, float(gammaincc(raw.size / 2.0, chi2 / 2.0)))


def information(table: Floats) -> float:
    """The mutual information of a pair, in nats."""
    product = np.outer(table.sum(axis=1), table.sum(axis=0))
    seen = table > 0
    return max(float((table[seen] * np.log(table[seen] / product[seen])).sum()), 0.0)


def determined(table: Floats) -> bool:
    """Whether the mutual information is DETERMINED of the smaller entropy: all of it where one end is a function of the other."""
    lines = [line[line > 0] for line in (table.sum(axis=1), table.sum(axis=0))]
    return information(table) > DETERMINED * max(
        min(float(-(line * np.log(line)).sum()) for line in lines), 0.1
    )


def _expected(columns: Columns, pairs: Floats, asked: Sequence[tuple[int, int]]) -> Floats:
    """How the level of the test is shared out: half of it equally, half by the square of the mutual information that the fit sees,
    which leaves most to the few pairs that stand out."""
    squares = np.array([information(block(columns, pairs, i, j)) ** 2 for i, j in asked])
    equal, total = np.full(len(asked), 1.0 / len(asked)), float(squares.sum())
    return 0.5 * equal + 0.5 * (squares / total if total > 1e-9 else equal)


def strong_pairs(
    targets: PairTargets,
    pairs: Floats,
    already: Edges,
    rng: np.random.Generator,
    *,
    grow: bool = False,
) -> Edges:
    """The pairs to tie by an edge, by gain over the fit; no two share an attribute.

    A pair's table (or its matched table) must have the lower estimated risk, and be closer to
    its reports than noise explains at LEVEL for all pairs together (weighted Bonferroni;
    Genovese, Roeder, Wasserman, Biometrika 2006). With `grow` pairs may form rows with a limited
    number of cells. Pairs follow in which the fit has one attribute nearly determine the other,
    by mutual information, because an edge models them at less cost.
    """
    asked = [(int(i), int(j)) for i, j in np.argwhere(np.triu(targets.pair_noise[1] > 0, 1))]
    k = targets.columns.cardinalities
    out, found = list(already), []
    for (i, j), share in zip(asked, _expected(targets.columns, pairs, asked), strict=True):
        if not _fits(targets.columns, already, (i, j), grow):
            continue
        raw, fitted = (
            block(targets.columns, matrix, i, j).ravel() for matrix in (targets.pairs, pairs)
        )
        noise = tuple(float(c[i, j]) for c in targets.pair_noise)
        own = own_tables(raw[None], fitted, noise)
        if (
            own.gain[0] > 0.0
            and chance_of(raw, float(own.closer[0]), fitted, noise, rng) < LEVEL * share
        ):
            found.append((True, float(own.gain[0]), i, j))
            continue
        table = fitted.reshape(k[i], k[j])
        gain, chance = match_gain(targets, i, j, table, rng)
        if gain > 0.0 and chance < LEVEL * share:
            found.append((True, gain, i, j))
        elif determined(table):
            found.append((False, information(table), i, j))
    for _, _, i, j in sorted(found, reverse=True):
        if _fits(targets.columns, tuple(out), (i, j), grow):
            out.append((i, j))
    return tuple(out)


def _fits(columns: Columns, edges: Edges, new: tuple[int, int], grow: bool) -> bool:
    """Whether a pair shares no attribute with edges, or with `grow` makes a row of them longer that is not too large."""
    if not any(end in edge for end in new for edge in edges):
        return True
    try:
        grown = next(tree for tree in trees((*edges, new)) if new[0] in tree)
    except ValueError:
        return False
    return grow and int(np.prod(columns.cardinalities[list(grown)])) <= MAX_TREE_CELLS
