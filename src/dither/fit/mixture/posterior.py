"""The posterior of a mixture of products, given all noisy pair and single marginals: its energy and slope, for a sampler.

C components of equal weight. The logits of attribute i in component c are b_i + W_ci with W_ci ~ N(0, tau_i^2 S_i) and
b_i ~ N(0, tau_b^2 S_i); S_i is the identity, or for ordered values 0.2 I + 0.8 exp(-|u - v|/4), so that neighbours tend to be
alike; tau_i^2 has an inverse gamma law. The likelihood is that of the estimates' noise, exp(-chi^2 / 2), at fixed weights. Edges
keep the potentials they have in a fit.

Coordinates are white: W = tau L z with L L' = S. A reflection of the components (Householder) gathers what they share in row 0,
where b is integrated out: its scale is sqrt(C tau_b^2 + tau_i^2). So the one stiff direction, the one-way marginals, stands apart
from the others, and a sampler can have its curvature in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dither.fit.mixture.descent import Descent, State
from dither.fit.mixture.targets import Columns, Edges, PairTargets
from dither.types import Floats

SHARED_SCALE = 2.0  # tau_b
SHAPE, SCALE = 1.0, 0.05  # of the inverse gamma law of tau_i^2
OWN, REACH = (
    0.2,
    4.0,
)  # the part of an ordered value's variance that is its own, and how many values apart neighbours are alike


class Likeness:
    """L with L L' = S, which is the identity but for ordered values."""

    def __init__(self, columns: Columns, precision: type[np.floating]) -> None:
        self.blocks = [
            (slice(int(start), int(start) + count), _root(count).astype(precision))
            for start, count in zip(columns.starts, columns.ordered, strict=True)
            if count > 1
        ]

    def spread(self, rows: Floats) -> Floats:
        """L times every row, in place."""
        for at, root in self.blocks:
            rows[:, at] = rows[:, at] @ root.T
        return rows

    def gathered(self, rows: Floats) -> Floats:
        """L' times every row, in place."""
        for at, root in self.blocks:
            rows[:, at] = rows[:, at] @ root
        return rows

    def undone(self, rows: Floats) -> Floats:
        """L^-1 times every row, in place."""
        for at, root in self.blocks:
            rows[:, at] = np.linalg.solve(root, rows[:, at].T).T
        return rows


def _root(count: int) -> Floats:
    place = np.arange(count)
    alike = OWN * np.eye(count) + (1.0 - OWN) * np.exp(-np.abs(place[:, None] - place) / REACH)
    return np.asarray(np.linalg.cholesky(alike))


@dataclass(frozen=True)
class _Placed:
    """The model at a position of the sampler."""

    state: State
    pairs: Floats


class Posterior:
    """Energy (minus the log density) and gradient at x = (z of all components, log tau of all attributes), flat."""

    def __init__(
        self,
        targets: PairTargets,
        weights: tuple[Floats, Floats],
        components: int,
        edges: Edges = (),
        potentials: Sequence[Floats] = (),
        precision: type[np.floating] = np.float32,
    ) -> None:
        self.columns, self.components, self.precision = targets.columns, components, precision
        self.w2, self.w1 = (w.astype(precision) for w in weights)
        self.pairs, self.singles = (
            targets.pairs.astype(precision),
            targets.singles.astype(precision),
        )
        self.likeness = Likeness(targets.columns, precision)
        width = targets.columns.width
        self.descent = Descent(
            targets.columns,
            np.zeros((components, width), dtype=precision),
            edges,
            [potential.astype(precision) for potential in potentials],
        )
        self.descent.weight_logits = np.zeros(components, dtype=precision)
        mirror = np.full(components, -1.0 / np.sqrt(components))
        mirror[0] += 1.0
        length = float(np.linalg.norm(mirror))
        self.mirror = (mirror / length if length > 0 else mirror).astype(precision)
        self.attributes = len(targets.columns.cardinalities)

    @property
    def size(self) -> int:
        """The number of coordinates: first C x D of z, then one log tau per attribute."""
        return self.components * self.columns.width + self.attributes

    def split(self, x: Floats) -> tuple[Floats, Floats]:
        """z and log tau."""
        inner = self.components * self.columns.width
        return x[:inner].reshape(self.components, self.columns.width), x[inner:]

    def _scale(self, log_tau: Floats) -> Floats:
        """Of every row and column of z; row 0 holds b too."""
        tau = self.columns.spread(np.exp(log_tau)).astype(self.precision)
        out = np.empty((self.components, self.columns.width), dtype=self.precision)
        out[1:] = tau
        out[0] = np.sqrt(self.components * SHARED_SCALE**2 + tau * tau)
        return out

    def _reflected(self, rows: Floats) -> Floats:
        return np.asarray(rows - (2.0 * self.mirror)[:, None] * (self.mirror @ rows))

    def logits(self, x: Floats) -> Floats:
        """Of all components."""
        z, log_tau = self.split(x)
        return self._reflected(self.likeness.spread(z * self._scale(log_tau)))

    def at(self, logits: Floats, log_tau: Floats) -> Floats:
        """The position with these logits."""
        rows = self.likeness.undone(self._reflected(logits))
        return np.concatenate([(rows / self._scale(log_tau)).ravel(), log_tau]).astype(
            self.precision
        )

    def placed(self, x: Floats) -> _Placed:
        """The mixture at a position."""
        self.descent.logits = self.logits(x)
        state = self.descent.model()
        return _Placed(state, self.descent.pairs(state))

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Energy and gradient."""
        z, log_tau = self.split(x)
        scale = self._scale(log_tau)
        scaled = z * scale
        self.descent.logits = self._reflected(self.likeness.spread(scaled.copy()))
        state = self.descent.model()
        off, off1 = self.descent.pairs(state), state.one - self.singles
        off -= self.pairs
        pull, pull1 = self.w2 * off, self.w1 * off1
        half_chi2 = 0.25 * float(np.vdot(pull, off)) + 0.5 * float(pull1 @ off1)
        slope = self.descent.pair_gradient(state, pull, pull1).logits
        slope /= self.precision(self.components)
        by_scaled = self.likeness.gathered(self._reflected(slope))
        # log tau: through the rows' scale, and its own law with the factor that the change of variable brings.
        variance = np.exp(2.0 * log_tau.astype(np.float64))
        through = by_scaled * scaled
        by_tau = self.columns.sums(through[1:].sum(axis=0, dtype=np.float64))
        share = (
            self.columns.spread(variance) / scale[0].astype(np.float64) ** 2
        )  # of tau^2 in row 0's variance
        by_tau += self.columns.sums(share * through[0]) + 2.0 * SHAPE - 2.0 * SCALE / variance
        prior = float((2.0 * SHAPE * log_tau + SCALE / variance).sum())
        energy = half_chi2 + 0.5 * float(np.vdot(z, z)) + prior
        gradient = np.empty(self.size, dtype=self.precision)
        into, into_tau = self.split(gradient)
        np.multiply(by_scaled, scale, out=into)
        into += z
        into_tau[:] = by_tau
        return energy, gradient

    def rescaled(self, x: Floats, rng: np.random.Generator) -> Floats:
        """A Gibbs step: tau_i^2 drawn given W (inverse gamma), with W as it is. Row 0, which holds b too, is left out of W's law
        by keeping z there: its scale hardly depends on tau."""
        z, log_tau = self.split(x)
        variance = np.exp(2.0 * log_tau.astype(np.float64))
        squares = self.columns.sums((z[1:].astype(np.float64) ** 2).sum(axis=0)) * variance
        free = (self.components - 1) * self.columns.cardinalities
        drawn = (SCALE + 0.5 * squares) / rng.gamma(SHAPE + 0.5 * free)
        out = x.copy()
        into, into_tau = self.split(out)
        into[1:] *= self.columns.spread(np.sqrt(variance / drawn)).astype(self.precision)
        into_tau[:] = 0.5 * np.log(drawn)
        return out

    def shared_curvature(self, one: Floats, log_tau: Floats) -> Floats:
        """The curvature of row 0 (Gauss and Newton), as if components were alike: they move the one-way marginals `one`.

        A shift d of all logits moves an attribute's marginal by a = (diag p - p p') d and the pair's table by a p' + p a'.
        """
        w2, w1 = self.w2.astype(np.float64), self.w1.astype(np.float64)
        inner = np.diag(w2 @ one**2 + w1) + w2 * np.outer(one, one)
        moves = np.zeros_like(inner)
        for i in range(self.attributes):
            at = self.columns.of(i)
            moves[at, at] = np.diag(one[at]) - np.outer(one[at], one[at])
        reach = self._scale(log_tau)[0].astype(np.float64) / np.sqrt(self.components)
        across = self.likeness.gathered(moves) * reach
        return np.asarray(across.T @ inner @ across + np.eye(len(inner)))
