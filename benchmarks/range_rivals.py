"""Other ways to answer ranges of one number, or of two, from local reports: each estimates the shares of equal cells.

AHEAD: Du, Zhang, Bai, Liu, Ji, Cheng, Chen, "AHEAD: adaptive hierarchical decomposition for range query under local differential
privacy", CCS 2021, with fan-out 2, the paper's threshold and its post-processing. HIERARCHY: Cormode, Kulkarni, Srivastava,
"Answering range queries under local differential privacy", VLDB 2019, with fan-out 4, a level per participant, OUE, and
least-squares consistency. PRIPL-TREE: Wang, Ye, Hu, Meng, "PriPL-Tree: accurate range query for arbitrary distribution under local
differential privacy", PVLDB 17(11), 2024, with the paper's share of 0.2 for the first phase. HDG: Yang, Wang, Li, Cheng, Su,
"Answering multi-dimensional range queries under local differential privacy", VLDB 2020, for two attributes. Written from the
papers; simulated by counts, which has the law of the reports.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from dither.fit import norm_sub
from dither.mechanisms import SquareWave, kernels, mechanism


def oue_shares(counts: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Unbiased shares of cells from OUE reports of people with these counts."""
    chosen = mechanism("oue", len(counts), epsilon)
    people = int(counts.sum())
    return kernels.estimate(
        chosen, kernels.simulate(chosen, counts.astype(np.int64), rng), people
    ).frequencies


def oue_variance(people: int, epsilon: float) -> float:
    """Of a rare cell's share."""
    return float(4 * np.exp(epsilon) / (people * (np.exp(epsilon) - 1) ** 2))


def divide(counts: np.ndarray, groups: int, rng: np.random.Generator) -> list[np.ndarray]:
    """People put at random into groups of equal size, by their cells."""
    left, out = counts.astype(np.int64), []
    for group in range(groups, 0, -1):
        drawn = (
            rng.multivariate_hypergeometric(left, int(left.sum()) // group, method="marginals")
            if group > 1
            else left
        )
        out.append(drawn)
        left = left - drawn
    return out


# ---- one number ------------------------------------------------------------------------------------------------------


def hierarchy(
    counts: np.ndarray, epsilon: float, rng: np.random.Generator, fan: int = 4
) -> np.ndarray:
    """Every level of a tree asked from its share of the people; the cells that agree with all levels in least squares."""
    cells = len(counts)
    levels = round(np.log(cells) / np.log(fan))
    matrix, right = np.zeros((cells, cells)), np.zeros(cells)
    for level, group in enumerate(divide(counts, levels, rng)):
        width = cells // fan ** (level + 1)
        nodes = np.kron(np.eye(cells // width), np.ones((1, width)))
        matrix += nodes.T @ nodes
        right += nodes.T @ oue_shares(nodes @ group, epsilon, rng)
    everybody = 1e4  # the total is known, so its weight exceeds that of any node
    return np.linalg.solve(matrix + everybody, right + everybody)


@dataclass
class Node:
    """A stretch of cells in AHEAD's tree with what was seen of it."""

    start: int
    stop: int
    share: float = 0.0
    variance: float = np.inf
    seen: list[float] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)


def ahead(counts: np.ndarray, epsilon: float, rng: np.random.Generator, fan: int = 2) -> np.ndarray:
    """A tree that is split only where enough people are: a node whose share exceeds sqrt((fan+1) variance) is divided."""
    cells = len(counts)
    root = Node(0, cells, 1.0, 0.0)
    leaves = [root]
    for group in divide(counts, round(np.log(cells) / np.log(fan)), rng):
        variance = oue_variance(int(group.sum()), epsilon)
        leaves = [
            part for leaf in leaves for part in _split(leaf, fan, np.sqrt((fan + 1) * variance))
        ]
        ends = np.concatenate([[0], np.cumsum(group)])
        found = norm_sub(
            oue_shares(np.array([ends[n.stop] - ends[n.start] for n in leaves]), epsilon, rng)
        )
        for leaf, share in zip(leaves, found, strict=True):
            leaf.seen.append(float(share))
            leaf.share, leaf.variance = float(np.mean(leaf.seen)), variance / len(leaf.seen)
    _average(root)
    out = np.zeros(cells)
    _spread(root, 1.0, out)
    return out


def _split(node: Node, fan: int, threshold: float) -> list[Node]:
    if node.stop - node.start == 1 or node.share <= threshold:
        return [node]
    width = (node.stop - node.start) // fan
    node.children = [Node(node.start + i * width, node.start + (i + 1) * width) for i in range(fan)]
    return node.children


def _average(node: Node) -> None:
    """Bottom up: a node's own figure and its children's sum, weighed by their variances."""
    if not node.children:
        return
    for child in node.children:
        _average(child)
    total, variance = sum(c.share for c in node.children), sum(c.variance for c in node.children)
    if node.variance > 0:
        weight = variance / (variance + node.variance)
        node.share = weight * node.share + (1 - weight) * total
        node.variance = node.variance * variance / (node.variance + variance)


def _spread(node: Node, share: float, out: np.ndarray) -> None:
    """Top down: children add up to their parent; people of a leaf are spread evenly."""
    if not node.children:
        out[node.start : node.stop] = share / (node.stop - node.start)
        return
    more = (share - sum(c.share for c in node.children)) / len(node.children)
    for child in node.children:
        _spread(child, child.share + more, out)


# ---- two numbers -----------------------------------------------------------------------------------------------------


def hdg(counts: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Hybrid-dimensional grids: one- and two-dimensional grids of the sizes that the paper advises, a third of the people each, as
    one table by weighted updates."""
    cells, people = len(counts), counts.sum()
    ratio = np.exp(epsilon)
    fine = ((people / 3) * (ratio - 1) ** 2 * 0.7**2 / (2 * ratio)) ** (1 / 3)
    coarse = (2 * 0.03 * (ratio - 1) * np.sqrt((people / 3) / ratio)) ** 0.5
    fine, coarse = (
        min(cells, max(2, 1 << round(np.log2(max(size, 2.0))))) for size in (fine, coarse)
    )
    first, second, both = (g.reshape(cells, cells) for g in divide(counts.ravel(), 3, rng))
    rows = norm_sub(oue_shares(_blocks(first, fine, 1).ravel(), epsilon, rng)).reshape(fine, 1)
    columns = norm_sub(oue_shares(_blocks(second, 1, fine).ravel(), epsilon, rng)).reshape(1, fine)
    joint = norm_sub(oue_shares(_blocks(both, coarse, coarse).ravel(), epsilon, rng)).reshape(
        coarse, coarse
    )
    table = np.full((cells, cells), 1 / cells**2)
    for _ in range(100):
        before = table
        for known in (rows, columns, joint):
            now = _blocks(table, *known.shape)
            factor = np.divide(known, now, out=np.zeros_like(known), where=now > 0)
            table = table * np.kron(
                factor, np.ones((cells // known.shape[0], cells // known.shape[1]))
            )
        table = table / table.sum()
        if np.abs(table - before).sum() < 1 / people:
            break
    return table


def _blocks(table: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Sums over equal blocks."""
    high, wide = table.shape
    return table.reshape(rows, high // rows, columns, wide // columns).sum(axis=(1, 3))


# ---- piecewise linear tree -------------------------------------------------------------------------------------------

PILOT = 0.2  # of the people, who report by the square wave: the paper's default
SEGMENTS = 32  # at most; half of them are found on the estimate without smoothing
EM_STEPS = 1_000


@dataclass
class Piece:
    """A node of the piecewise linear tree: values [start, stop), their share, and its error as a sum over reports."""

    start: int
    stop: int
    share: float = 0.0
    variance: float = 0.0
    children: list[Piece] = field(default_factory=list)

    @property
    def levels(self) -> int:
        """Levels of its subtree, its own included."""
        return 1 + max((child.levels for child in self.children), default=0)

    def leaves(self) -> list[Piece]:
        """Its leaves in order."""
        return (
            [leaf for child in self.children for leaf in child.leaves()]
            if self.children
            else [self]
        )


def pripl(counts: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """A piecewise linear tree. A fifth of the people give a rough histogram, to which a continuous piecewise linear function is
    fitted. Its segments are the leaves of a binary tree, thinned out, whose nodes the other people are asked about. Leaves are
    averaged with the rough histogram and made consistent; people of a leaf follow its slope."""
    cells = len(counts)
    asked = counts.astype(np.int64)
    first = rng.multivariate_hypergeometric(asked, int(PILOT * asked.sum()), method="marginals")
    wave = SquareWave.for_epsilon(cells, epsilon)
    outputs = kernels.simulate(wave, first, rng)
    smooth = kernels.density(wave, outputs)
    rough = _likely(wave.probability_table, outputs.astype(float))
    least = np.sqrt(oue_variance(int(asked.sum()), epsilon))
    breaks = _breaks(rough, [], SEGMENTS // 2, smooth, least)
    breaks = _breaks(smooth, breaks, SEGMENTS, smooth, least)
    slopes = _slopes(smooth, breaks)
    ends = [0, *breaks, cells]
    root = _pair_up([Piece(a, b) for a, b in itertools.pairwise(ends)])
    _thin_out(root, root, cells)
    _ask(root, asked - first, epsilon, rng)
    for child in root.children:
        _gather(child, smooth)
    root.share = 1.0
    _agree(root)
    out = np.zeros(cells)
    for leaf, slope in zip(root.leaves(), slopes, strict=True):
        size = leaf.stop - leaf.start
        bound = 2 * leaf.share / max(size * (size - 1), 1)
        places = np.arange(size) - (size - 1) / 2
        out[leaf.start : leaf.stop] = leaf.share / size + np.clip(slope, -bound, bound) * places
    return np.maximum(out, 0.0)


def _likely(probabilities: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """The most likely shares, by EM without smoothing."""
    shares, total = np.full(probabilities.shape[1], 1 / probabilities.shape[1]), outputs.sum()
    for _ in range(EM_STEPS):
        now = shares * (probabilities.T @ (outputs / (probabilities @ shares))) / total
        if np.abs(now - shares).sum() < 1 / total:
            break
        shares = now
    return shares


def _hinges(cells: int, breaks: list[int]) -> np.ndarray:
    """Columns that span the continuous functions with these breaks, each between two values."""
    place = np.arange(cells, dtype=float)
    bends = [np.maximum(place - (at - 0.5), 0.0) for at in breaks]
    return np.column_stack([np.ones(cells), place, *bends])


def _breaks(
    shares: np.ndarray, breaks: list[int], most: int, held: np.ndarray, least: float
) -> list[int]:
    """Break the segment of largest squared error at the best place, while that pays and it holds enough people."""
    cells, found = len(shares), sorted(breaks)
    while len(found) + 1 < most:
        basis = np.linalg.qr(_hinges(cells, found))[0]
        left = shares - basis @ (basis.T @ shares)
        ends = [0, *found, cells]
        segments = [
            (a, b) for a, b in itertools.pairwise(ends) if b - a >= 2 and held[a:b].sum() >= least
        ]
        if not segments:
            break
        start, stop = max(segments, key=lambda s: float((left[s[0] : s[1]] ** 2).sum()))
        tried = _hinges(cells, list(range(start + 1, stop)))[:, 2:]
        new = tried - basis @ (basis.T @ tried)
        square = (new**2).sum(axis=0)
        gain = np.divide(
            (new.T @ left) ** 2, square, out=np.zeros_like(square), where=square > 1e-9
        )
        before = float(left @ left)
        after = max(before - float(gain.max()), 1e-300)
        found = sorted([*found, start + 1 + int(gain.argmax())])
        if round(before / after, 2) <= 1:
            break
    return found


def _slopes(shares: np.ndarray, breaks: list[int]) -> np.ndarray:
    """The slope of each segment of the least-squares fit."""
    fitted = np.linalg.lstsq(_hinges(len(shares), breaks), shares, rcond=None)[0]
    return np.cumsum(fitted[1:])


def _pair_up(nodes: list[Piece]) -> Piece:
    """A binary tree over nodes in order; a last one left over joins the last pair."""
    while len(nodes) > 3:
        pairs = [nodes[i : i + 2] for i in range(0, len(nodes) - len(nodes) % 2, 2)]
        if len(nodes) % 2:
            pairs[-1].append(nodes[-1])
        nodes = [Piece(group[0].start, group[-1].stop, 0.0, 0.0, list(group)) for group in pairs]
    return Piece(nodes[0].start, nodes[-1].stop, children=nodes if len(nodes) > 1 else [])


def _thin_out(root: Piece, node: Piece, cells: int) -> None:
    """Drop inner nodes from the bottom where random ranges are then expected to have less error."""
    for child in list(node.children):
        _thin_out(root, child, cells)
        if child.children:
            at, before = node.children.index(child), _expected(root, cells)
            node.children[at : at + 1] = child.children
            if _expected(root, cells) >= before:
                node.children[at : at + len(child.children)] = [child]


def _expected(node: Piece, cells: int, left: float = 1.0) -> float:
    """The noise of random ranges: of each node how often it is used without its parent, over its people."""
    total = 0.0
    for child in node.children:
        used = _cut_by(child, cells) - _cut_by(node, cells)
        total += used * child.levels / left
        total += _expected(child, cells, left * (1 - 1 / child.levels))
    return total


def _cut_by(node: Piece, cells: int) -> float:
    """The share of ranges that hold a whole node."""
    return 2 * (node.start + 1) * (cells - node.stop + 1) / (cells * (cells - 1))


def _ask(node: Piece, people: np.ndarray, epsilon: float, rng: np.random.Generator) -> None:
    """Each child from an even part of the people that its levels share; the rest goes to its children."""
    for child in node.children:
        count = int(people.sum()) // child.levels
        group = people
        if child.levels > 1:
            group = rng.multivariate_hypergeometric(people, count, method="marginals")
        own = int(group[child.start : child.stop].sum())
        q = 1 / (np.exp(epsilon) + 1)
        ones = rng.binomial(own, 0.5) + rng.binomial(count - own, q)
        child.share = (ones / count - q) / (0.5 - q)
        child.variance = oue_variance(count, epsilon)
        _ask(child, people - group, epsilon, rng)


def _gather(node: Piece, rough: np.ndarray) -> None:
    """Bottom up: averages of a node with its children's sum, of a leaf with the rough histogram."""
    if node.children:
        for child in node.children:
            _gather(child, rough)
        other = sum(child.share for child in node.children)
        variance = sum(child.variance for child in node.children)
    else:
        # The histogram's squared error is its distance from the leaf beyond the leaf's noise.
        other = float(rough[node.start : node.stop].sum())
        variance = (other - node.share) ** 2
        variance = min(variance - node.variance if variance > node.variance else variance, other**2)
    weight = variance / (variance + node.variance)
    node.share = weight * node.share + (1 - weight) * other
    node.variance = weight * node.variance


def _agree(node: Piece) -> None:
    """Top down: non-negative children that add up to their parent."""
    if not node.children:
        return
    shares = np.array([child.share for child in node.children])
    shares = node.share * norm_sub(shares / node.share) if node.share > 0 else np.zeros(len(shares))
    for child, share in zip(node.children, shares, strict=True):
        child.share = float(share)
        _agree(child)
