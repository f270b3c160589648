"""Other ways to answer ranges of one number, or of two, from local reports: each estimates the shares of equal cells.

AHEAD: Du, Zhang, Bai, Liu, Ji, Cheng, Chen, "AHEAD: adaptive hierarchical decomposition for range query under local differential
privacy", CCS 2021, with fan-out 2, the paper's threshold and its post-processing. HIERARCHY: Cormode, Kulkarni, Srivastava,
"Answering range queries under local differential privacy", VLDB 2019, with fan-out 4, a level per participant, OUE, and
least-squares consistency. HDG: Yang, Wang, Li, Cheng, Su, "Answering multi-dimensional range queries under local differential
privacy", VLDB 2020, for two attributes. Written from the papers; simulated by counts, which has the law of the reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dither.fit import norm_sub
from dither.mechanisms import kernels, mechanism


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
