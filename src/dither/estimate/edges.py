"""Strong pairs of attributes: which they are, and where their potentials start.

One stopping rule for the whole fit is ruled by the many weak pairs and stops the few strong ones too early. A pair whose own
reports the fit contradicts beyond their noise becomes an edge (see `descent`), and its potential starts warm at what its own
reports say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc

from dither.estimate.project import norm_sub
from dither.estimate.targets import Columns, Edges, PairTargets, inverse_variances, links, trees
from dither.types import Floats

OWN = 0.99  # of a warm table is the pair's own, the rest the product, so that no cell is ruled out
LEAST_ONE = 1e-6
LEAST_RATIO = 1e-9  # to the product: a potential stays finite
RAKING_STEPS = 200
SHARPNESSES = (1.0, 1.5, 2.0, 3.0, 5.0)
PROBES, PROBE = 8, 0.1  # moved tables that measure degrees of freedom, and by how much of their noise
LEVEL = 0.1  # how often noise alone may make any pair of a table strong
NULL_DRAWS = 200
DETERMINED = 0.7  # of the smaller entropy
MOST_TREE_CELLS = 20_000  # of three or four attributes: every step costs as much as the table in each component
PairNoise = tuple[float, ...]  # c0, c1, c2 of the variance c0 + c1 f - c2 f^2


@dataclass(frozen=True)
class Marginals:
    """What a fit starts from: one-way marginals, the raw tables of the edges, and how much to sharpen each of them."""

    one: Floats
    pairs: Mapping[tuple[int, int], Floats]
    sharpness: Mapping[tuple[int, int], float]


def marginals_of(targets: PairTargets, edges: Edges) -> Marginals:
    """Those of the pooled estimates."""
    tied = [link for tree in trees(edges) for link in links(tree)]
    raw = {(i, j): block(targets.columns, targets.pairs, i, j) for i, j in tied}
    return Marginals(targets.one, raw, {(i, j): best_sharpness(targets, i, j) for i, j in tied})


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
    product = np.outer(rows, columns)
    own = projected_rows(raw.reshape(-1, product.size)).reshape(raw.shape)
    table = raked(OWN * own + (1.0 - OWN) * product, rows, columns)
    return table if sharpness == 1.0 else raked(product * (table / product) ** sharpness, rows, columns)


def _raised(columns: Columns, one: Floats, attribute: int) -> Floats:
    """An attribute's distribution without zeros."""
    part = np.maximum(one[columns.of(attribute)], LEAST_ONE)
    return np.asarray(part / part.sum())


def _warm_risks(targets: PairTargets, i: int, j: int) -> dict[float, tuple[float, float]]:
    """For every power the estimated risk of the warm table, SURE, and its degrees of freedom from some moved tables."""
    rows, columns = (_raised(targets.columns, targets.one, a) for a in (i, j))
    raw = block(targets.columns, targets.pairs, i, j)
    c0, c1, c2 = (float(c[i, j]) for c in targets.pair_noise)
    soft = own_warm(raw, rows, columns, 1.0)
    deviation = np.sqrt(np.maximum(c0 + soft * (c1 - c2 * soft), 1e-3 * c2))
    draws = np.random.default_rng(0).standard_normal((PROBES, *raw.shape))  # the same for all powers

    def risk(sharpness: float) -> tuple[float, float]:
        table, *moved = own_warm(np.stack([raw, *(raw + PROBE * deviation * draws)]), rows, columns, sharpness)
        df = float((draws * (np.stack(moved) - table) / (PROBE * deviation)).sum()) / PROBES
        return float((((table - raw) / deviation) ** 2).sum()) + 2.0 * df, df

    return {sharpness: risk(sharpness) for sharpness in SHARPNESSES}


def best_sharpness(targets: PairTargets, i: int, j: int) -> float:
    """The power with the least estimated risk of the warm table."""
    risks = _warm_risks(targets, i, j)
    return min(risks, key=lambda sharpness: risks[sharpness][0])


def warm_degrees(targets: PairTargets, i: int, j: int) -> float:
    """The degrees of freedom that the warm table of that power takes."""
    return min(_warm_risks(targets, i, j).values())[1]


def warm_potentials(columns: Columns, edges: Edges, start: Marginals) -> list[Floats]:
    """log(T / product) with T the pair's own warm table, for every link of every tree."""
    out = []
    for i, j in (link for tree in trees(edges) for link in links(tree)):
        first, second = (_raised(columns, start.one, a) for a in (i, j))
        table = own_warm(start.pairs[i, j], first, second, start.sharpness[i, j])
        out.append(np.log(np.maximum(table / np.outer(first, second), LEAST_RATIO)))
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
class OwnTables:
    """Projected tables of a pair against a fit's: by how much each is `closer` to its raw table in chi^2, and the degrees of
    freedom that it takes, which are its positive cells less one."""

    closer: Floats
    free: Floats

    @property
    def gain(self) -> Floats:
        """How much lower the estimated risk (SURE) is; the fit's degrees of freedom are left out, since a pair takes few."""
        return self.closer - 2.0 * self.free


def projected_rows(raw: Floats) -> Floats:
    """`norm_sub` of every row."""
    descending = -np.sort(-raw, axis=1)
    excess = (np.cumsum(descending, axis=1) - 1.0) / np.arange(1, raw.shape[1] + 1)
    positive = (descending > excess).sum(axis=1)
    return np.asarray(np.maximum(raw - excess[np.arange(len(raw)), positive - 1][:, None], 0.0))


def own_tables(raw: Floats, fitted: Floats, noise: PairNoise) -> OwnTables:
    """Compare raw tables of a pair, flat in rows and projected, with the flat table of a fit."""
    own = projected_rows(raw)
    c0, c1, c2 = noise
    precision = 1.0 / np.maximum(c0 + own * (c1 - c2 * own), 1e-3 * c2)
    closer = (precision * ((fitted - raw) ** 2 - (own - raw) ** 2)).sum(axis=1)
    return OwnTables(closer, (own > 0).sum(axis=1) - 1.0)


def chance_of(raw: Floats, closer: float, fitted: Floats, noise: PairNoise, rng: np.random.Generator) -> float:
    """How often a table drawn from the fit would contradict it as much, by the clearer of two tests: chi^2, and how much closer
    its own projection is, which sees a few large cells among many; a gamma law is matched to some draws."""
    c0, c1, c2 = noise
    deviation = np.sqrt(np.maximum(c0 + fitted * (c1 - c2 * fitted), 1e-3 * c2))
    chi2 = float((((raw - fitted) / deviation) ** 2).sum())
    null = own_tables(fitted + deviation * rng.standard_normal((NULL_DRAWS, fitted.size)), fitted, noise).closer
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
    return information(table) > DETERMINED * max(min(float(-(line * np.log(line)).sum()) for line in lines), 0.1)


def _expected(columns: Columns, pairs: Floats, asked: Sequence[tuple[int, int]]) -> Floats:
    """How the level of the test is shared out: half of it equally, half by the square of the mutual information that the fit sees,
    which leaves most to the few pairs that stand out."""
    squares = np.array([information(block(columns, pairs, i, j)) ** 2 for i, j in asked])
    equal, total = np.full(len(asked), 1.0 / len(asked)), float(squares.sum())
    return 0.5 * equal + 0.5 * (squares / total if total > 1e-9 else equal)


def strong_pairs(
    targets: PairTargets, pairs: Floats, already: Edges, rng: np.random.Generator, *, grow: bool = False
) -> Edges:
    """The pairs that know better than a fit, from the largest gain on, as far as none shares an attribute with another.

    A pair's own table must have the lower estimated risk, and be closer to its reports than noise would make it at LEVEL for all
    pairs together (weighted Bonferroni; Genovese, Roeder, Wasserman, Biometrika 2006). With `grow` pairs may
    form rows that have not too many cells. Behind those come the pairs of which the fit itself says that one
    end all but determines the other, by their mutual information: a fit may have learnt them at a price that an edge would save.
    """
    asked = [(int(i), int(j)) for i, j in np.argwhere(np.triu(targets.pair_noise[1] > 0, 1))]
    k = targets.columns.cardinalities
    out, found = list(already), []
    for (i, j), share in zip(asked, _expected(targets.columns, pairs, asked), strict=True):
        if not _fits(targets.columns, already, (i, j), grow):
            continue
        raw, fitted = (block(targets.columns, matrix, i, j).ravel() for matrix in (targets.pairs, pairs))
        noise = tuple(float(c[i, j]) for c in targets.pair_noise)
        own = own_tables(raw[None], fitted, noise)
        if own.gain[0] > 0.0 and chance_of(raw, float(own.closer[0]), fitted, noise, rng) < LEVEL * share:
            found.append((True, float(own.gain[0]), i, j))
        elif determined(table := fitted.reshape(k[i], k[j])):
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
    return grow and int(np.prod(columns.cardinalities[list(grown)])) <= MOST_TREE_CELLS
