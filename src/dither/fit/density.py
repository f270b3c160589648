"""The density of a number from noisy outputs about its cells: penalised maximum likelihood, smoothness chosen by the data.

Reports say little about single cells and much about wide stretches, so the unbiased estimate of every cell is mostly noise, and the
plain maximum of the likelihood (EM) follows that noise. Here the logarithm of the density is penalised for its first or its second
differences: a straight line of the logarithm, an exponential tail, costs nothing with the second, an even density nothing with
the first. For each strength of both penalties there is a fit; they are averaged with weights exp(-criterion/2), the criterion being
Akaike's with the effective degrees of freedom of a penalised fit (Hastie, Tibshirani, "Generalized additive models", 1990;
Buckland, Burnham, Augustin, Biometrics 1997 for the average) and a price of 2.5 for each instead of 2: with so many fits the
luckiest looks better than it is, and a higher price makes up for that (Bhansali, Downham, Biometrika 1977). Choosing among them
uses the noisy reports alone and costs no privacy.

The likelihood is that of the outputs' least-variance linear estimate, which with its information matrix is all that the reports
tell where people are many; both are taken at a rough fit by EM. Nothing of the size of the outputs remains in the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dither.types import AnyIntegers, Floats

_STRONG = (1e6, 1e5, 1e4)  # an even density, or an exponential one, and hardly anything else
# Strengths of the penalties on first and on second differences.
_FIRST = (*_STRONG, 1000.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
_SECOND = (*_STRONG, 1000.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
_PRICE = 2.5  # of a degree of freedom; 2 to 3 measured alike on most shapes, less follows noise where the truth is even
_ROUGH_STEPS = 60  # of EM, for the point at which the information is taken
_EVEN_PART = 0.1  # of an even density in that point, so that no output looks impossible
_NEWTON = 60
_ENOUGH = 1e-3  # of the penalised log-likelihood: a hundredth of what one degree of freedom counts
_LONGEST = 4.0  # a step changes no cell's logarithm by more


def likely_density(chances: Floats, outputs: AnyIntegers, widths: Floats) -> Floats:
    """The cells' shares, all above zero and adding up to one.

    `chances` has the chance of each output (rows) in each cell (columns), `outputs` how often each was reported, `widths` how wide
    the cells are on the line.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # matrices of this size lose time by being shared out
        evidence = Evidence.of(chances, np.asarray(outputs, np.float64), widths)
        fits = [
            fit
            for order, strengths in ((1, _FIRST), (2, _SECOND))
            for fit in evidence.path(order, strengths)
        ]
    criteria = np.array([fit.criterion for fit in fits])
    weights = np.exp(-(criteria - criteria.min()) / 2)
    return np.asarray(
        weights @ np.array([fit.shares for fit in fits]) / weights.sum(), dtype=np.float64
    )


def rough_shares(
    chances: Floats, outputs: Floats, widths: Floats, steps: int = _ROUGH_STEPS
) -> Floats:
    """A few steps of EM from an even density, with a little of that density left in it."""
    even = widths / widths.sum()
    shares, total = even, outputs.sum()
    for _ in range(steps):
        shares = shares * (chances.T @ (outputs / (chances @ shares))) / total
    return np.asarray((1 - _EVEN_PART) * shares + _EVEN_PART * even, dtype=np.float64)


@dataclass(frozen=True)
class _DensityFit:
    """Shares, the logarithms of the density behind them, and the criterion."""

    shares: Floats
    logs: Floats
    criterion: float


@dataclass(frozen=True)
class Evidence:
    """The linear estimate of the cells' shares, the information of one report, how many reports, and a rough fit."""

    estimate: Floats
    information: Floats
    reports: float
    widths: Floats
    rough: Floats

    @classmethod
    def of(cls, chances: Floats, outputs: Floats, widths: Floats) -> Evidence:
        """What reports say, weighed as is best near their rough fit."""
        rough = rough_shares(chances, outputs, widths)
        expected = chances @ rough
        information = chances.T @ (chances / expected[:, None])
        estimate = np.linalg.solve(information, chances.T @ (outputs / expected) / outputs.sum())
        return cls(estimate, information, float(outputs.sum()), widths / widths.sum(), rough)

    def path(self, order: int, strengths: tuple[float, ...]) -> list[_DensityFit]:
        """Fits from the smoothest to the roughest, each from the one before."""
        out: list[_DensityFit] = []
        logs = np.log(self.rough.mean() * np.ones_like(self.rough))
        for strength in strengths:
            out.append(self.fit(self._differences[order - 1], strength, logs))
            logs = out[-1].logs
        return out

    @cached_property
    def _differences(self) -> tuple[Floats, Floats]:
        """First and second differences of the logarithms per distance of the cells' middles, in units of the mean cell."""
        wide = self.widths * len(self.widths)
        apart = (wide[1:] + wide[:-1]) / 2
        first = np.diff(np.eye(len(wide)), axis=0)
        slopes = first / apart[:, None]
        second = np.diff(slopes, axis=0) / np.sqrt((apart[1:] + apart[:-1]) / 2)[:, None]
        return first / np.sqrt(apart)[:, None], second

    def fit(self, differences: Floats, strength: float, logs: Floats) -> _DensityFit:
        """The most likely density under a penalty, by Newton's method with the expected curvature, damped where needed."""
        penalty = strength * differences.T @ differences
        now, damping = self._loss(logs, penalty), 1e-6
        for _ in range(_NEWTON):
            curvature, pull = self._local(logs, penalty)
            scale = float(np.trace(curvature)) / len(logs)
            for _ in range(12):
                step = np.linalg.solve(
                    curvature + (damping + 1e-9) * scale * np.eye(len(logs)), pull
                )
                step *= min(1.0, _LONGEST / max(float(np.abs(step).max()), 1e-300))
                ahead = self._loss(logs + step, penalty)
                if ahead <= now:
                    break
                damping *= 8
            else:
                break  # no step downhill is left that floats can tell
            logs, gained, now = logs + step, now - ahead, ahead
            logs = logs - logs.max()
            damping = max(damping / 4, 1e-9)
            if gained < _ENOUGH:
                break
        return _DensityFit(self._shares(logs), logs, self._criterion(logs, penalty))

    def _shares(self, logs: Floats) -> Floats:
        weight = self.widths * np.exp(logs - logs.max())
        return np.asarray(weight / weight.sum(), dtype=np.float64)

    def _loss(self, logs: Floats, penalty: Floats) -> float:
        miss = self.estimate - self._shares(logs)
        return float(self.reports * miss @ self.information @ miss + logs @ penalty @ logs) / 2

    def _local(self, logs: Floats, penalty: Floats) -> tuple[Floats, Floats]:
        """The expected curvature of the loss and the direction of its fall."""
        shares = self._shares(logs)
        turn = np.diag(shares) - np.outer(shares, shares)  # how shares change with the logarithms
        known = self.reports * turn @ self.information
        return known @ turn + penalty, known @ (self.estimate - shares) - penalty @ logs

    def _criterion(self, logs: Floats, penalty: Floats) -> float:
        """The loss without the penalty, twice, and the price of the effective degrees of freedom."""
        shares = self._shares(logs)
        curvature, _ = self._local(logs, penalty)
        known = curvature - penalty
        scale = 1e-9 * float(np.trace(curvature)) / len(logs)
        freedom = float(np.trace(np.linalg.solve(curvature + scale * np.eye(len(logs)), known)))
        miss = self.estimate - shares
        return float(self.reports * miss @ self.information @ miss) + _PRICE * freedom
