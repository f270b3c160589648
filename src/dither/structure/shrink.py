"""How strongly each pair depends, as all pairs together tell: adaptive shrinkage of squared dependences.

One pair's unbiased squared dependence is mostly noise, and the pairs where it is large are those where noise is. All pairs
together show how much dependence there is to be found: their prior is a mixture of no dependence and of normal effects of
several sizes, whose weights are fitted to the pairs themselves, so that a table without dependence shrinks everything to
nothing and one where everything depends hardly shrinks at all.

Reference: Stephens, "False discovery rates: a new deal", Biostatistics 2017 (adaptive shrinkage, with its pseudo-count for no
effect); for normal effects the posterior is in closed form (James, Stein 1961; Efron, Morris, JASA 1973).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dither.structure.dependence import Dependence
from dither.types import Floats

# Mean squared dependences times cells, about Cramer's V squared: from what nobody could see to complete dependence.
_SIZES = np.concatenate([[0.0], 4.0 ** np.arange(-9, 2)])
_STEPS = 200


def shrunk_squares(tests: Sequence[Dependence], shapes: Sequence[tuple[int, int]]) -> Floats:
    """The posterior mean of each pair's squared distance from independence.

    For noise of variance s^2 in each of the f = (k-1)(m-1) directions, the residual's square over s^2 is (1 + r) times a
    chi-square of f degrees when the effects have variance r s^2; with B = r/(1+r) the effect's mean square is then
    B^2 |y|^2 + f B s^2.
    """
    rows, columns = np.array(shapes, np.float64).reshape(-1, 2).T
    degrees = (rows - 1) * (columns - 1)
    noise = np.array([test.noise for test in tests])
    variance = np.maximum(noise / degrees, np.finfo(float).tiny)
    observed = np.maximum(np.array([test.statistic for test in tests]) + noise, 0.0) / variance
    ratio = _SIZES / (rows * columns * degrees * variance)[:, None]
    log = -0.5 * (degrees[:, None] * np.log1p(ratio) + observed[:, None] / (1 + ratio))
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    prior = np.full(len(_SIZES), 1.0 / len(_SIZES))
    for _ in range(_STEPS):
        weights = likelihood * prior
        prior = (weights / weights.sum(axis=1, keepdims=True)).sum(axis=0)
        prior[0] += 1.0  # in doubt, no dependence
        prior /= prior.sum()
    weights = likelihood * prior
    weights /= weights.sum(axis=1, keepdims=True)
    kept = ratio / (1 + ratio)
    squares = (weights * (kept**2 * observed[:, None] + degrees[:, None] * kept)).sum(axis=1)
    return np.asarray(squares * variance)
