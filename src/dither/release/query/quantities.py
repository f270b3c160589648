"""Figures computed from sums over cells: shares, means, differences and ratios, with their errors.

A figure is a function of a few sums; its value comes with its gradient g, so its
variance is g' C g (delta method). The interval of a quotient a / b is Fieller's: all r
for which a - r b is within its error of zero. That is exact for normal errors, and
there is no interval if b is not significantly different from zero (Fieller, Some
problems in interval estimation, J. R. Statist. Soc. B 16, 1954).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dither.release.intervals import LinearAnswer
from dither.release.query.expression import EVERYONE, Node, Not, both
from dither.types import Floats


@dataclass(frozen=True)
class Sum:
    """The share of people for whom a question holds, or the sum of their numbers.

    With `reach` it is the sum of each number's possible distance from the middle of its
    bin, with `times` that of the products with another attribute's numbers. With a `bound`
    it is the smallest or largest share, wherever in their bins people are.
    """

    who: Node
    of: str | None = None
    reach: bool = False
    bound: Literal["", "least", "most"] = ""
    times: str | None = None


@dataclass(frozen=True)
class Share:
    """The share of the people for whom `given` holds for whom `where` holds too."""

    where: Node
    given: Node = EVERYONE

    @property
    def top(self) -> Sum:
        """The numerator."""
        return Sum(both(self.where, self.given))

    @property
    def base(self) -> Sum:
        """The denominator."""
        return Sum(self.given)

    @property
    def rest(self) -> Node:
        """The people of the denominator for whom `where` does not hold."""
        return both(Not(self.where), self.given)


@dataclass(frozen=True)
class Mean:
    """The mean of an attribute's numbers over the people for whom `who` holds."""

    attribute: str
    who: Node

    @property
    def top(self) -> Sum:
        """The numerator."""
        return Sum(self.who, self.attribute)

    @property
    def room(self) -> Sum:
        """By how much the numerator may differ if people are not in the middle of their bins."""
        return Sum(self.who, self.attribute, reach=True)

    @property
    def base(self) -> Sum:
        """The denominator."""
        return Sum(self.who)


@dataclass(frozen=True)
class Deviation:
    """The standard deviation of an attribute's numbers over people for whom `who` holds."""

    attribute: str
    who: Node

    @property
    def base(self) -> Sum:
        """The people."""
        return Sum(self.who)

    @property
    def sums(self) -> list[Sum]:
        """Sums of the numbers and of their squares."""
        name, who = self.attribute, self.who
        return [Sum(who, name), Sum(who, name, times=name)]


@dataclass(frozen=True)
class Correlation:
    """Pearson's correlation of two attributes' numbers over people for whom `who` holds."""

    first: str
    second: str
    who: Node

    @property
    def base(self) -> Sum:
        """The people."""
        return Sum(self.who)

    @property
    def sums(self) -> list[Sum]:
        """Sums of both numbers, of their squares and of their product."""
        pairs = [(self.first, None), (self.second, None), (self.first, self.first)]
        pairs += [(self.second, self.second), (self.first, self.second)]
        return [Sum(self.who, name, times=times) for name, times in pairs]


@dataclass(frozen=True)
class Difference:
    """One figure less another."""

    first: Quantity
    second: Quantity


@dataclass(frozen=True)
class Ratio:
    """One figure divided by another."""

    first: Quantity
    second: Quantity


Quantity = Share | Mean | Deviation | Correlation | Difference | Ratio


def sums_of(quantity: Quantity) -> list[Sum]:
    """The sums in a figure, except that over all people, which is 1."""
    if isinstance(quantity, (Difference, Ratio)):
        return sums_of(quantity.first) + sums_of(quantity.second)
    if isinstance(quantity, (Deviation, Correlation)):
        return [*quantity.sums, *([] if quantity.base == Sum(EVERYONE) else [quantity.base])]
    return [found for found in (quantity.top, quantity.base) if found != Sum(EVERYONE)]


def bounds_of(quantity: Quantity) -> list[Sum]:
    """The sums that bound a share, or a difference of shares, if bins are divided."""
    if isinstance(quantity, Difference):
        return bounds_of(quantity.first) + bounds_of(quantity.second)
    if not isinstance(quantity, Share):
        return []
    nodes = [quantity.top.who]
    if quantity.base != Sum(EVERYONE):
        nodes.append(quantity.rest)
    return [Sum(node, bound=bound) for node in nodes for bound in ("least", "most")]


def of_means(quantity: Quantity) -> bool:
    """Whether the figure is a mean or a difference of means."""
    if isinstance(quantity, Difference):
        return of_means(quantity.first) and of_means(quantity.second)
    return isinstance(quantity, Mean)


def of_shares(quantity: Quantity) -> bool:
    """Whether the figure is a share or a difference of shares."""
    if isinstance(quantity, Difference):
        return of_shares(quantity.first) and of_shares(quantity.second)
    return isinstance(quantity, Share)


@dataclass(frozen=True)
class _Estimate:
    """A figure with its error.

    `standard_error` is NaN if unknown, or if a divisor is not significantly different
    from zero.
    """

    value: float
    standard_error: float
    low: float
    high: float
    divisor_unsure: bool = False


class Evaluation:
    """Figures of sums that were estimated together."""

    def __init__(self, sums: list[Sum], answer: LinearAnswer, reach: float) -> None:
        self.places = {found: i for i, found in enumerate(sums)}
        self.answer, self.reach = answer, reach
        self.divisor_unsure = False

    def estimate(self, quantity: Quantity) -> _Estimate:
        """The figure with its interval, for sums and differences `reach` errors each way."""
        self.divisor_unsure = False
        value, gradient = self._value(quantity)
        error = self.error(gradient)
        low, high = value - self.reach * error, value + self.reach * error
        pair = self._quotient(quantity)
        if self.divisor_unsure:
            error = low = high = math.nan
        elif pair is not None:
            low, high = self._fieller(*pair)
        return _Estimate(value, error, low, high, self.divisor_unsure)

    def stretched(self, quantity: Quantity, estimate: _Estimate) -> _Estimate:
        """The estimate with an interval for any place of people inside their bins.

        The figure lies between two values that can both be estimated; the interval
        adds the margin of each.
        """
        if estimate.divisor_unsure:
            return estimate
        (least, to_least), (most, to_most) = (self._end(quantity, top) for top in (False, True))
        errors = self.error(to_least), self.error(to_most)
        low = min(estimate.value, least - self.reach * errors[0])
        high = max(estimate.value, most + self.reach * errors[1])
        if of_means(quantity):  # the interval of a quotient may be wider than by the delta method
            low, high = min(low, estimate.low), max(high, estimate.high)
        if math.isnan(max(errors)):
            low = high = math.nan
        error = math.hypot(max(errors), (most - least) / math.sqrt(12))
        return _Estimate(estimate.value, error, low, high)

    def _end(self, quantity: Quantity, top: bool) -> tuple[float, Floats]:
        """The largest (`top`) or smallest value of a figure of shares or means, and its gradient."""
        if isinstance(quantity, Difference):
            (a, to_a), (b, to_b) = (
                self._end(quantity.first, top),
                self._end(quantity.second, not top),
            )
            return a - b, to_a - to_b
        if isinstance(quantity, Mean):
            (a, to_a), (b, to_b) = self.sum(quantity.top), self.sum(quantity.base)
            room, to_room = self.sum(quantity.room)
            sign = 1.0 if top else -1.0
            a, to_a = a + sign * room, to_a + sign * to_room
            return a / b, (to_a - a / b * to_b) / b
        assert isinstance(quantity, Share)
        a, to_a = self.sum(Sum(quantity.top.who, bound="most" if top else "least"))
        if quantity.base == Sum(EVERYONE):
            return a, to_a
        rest, to_rest = self.sum(Sum(quantity.rest, bound="least" if top else "most"))
        base = a + rest
        if not base > 0:
            return float(top), np.zeros_like(to_a)
        return a / base, (to_a - a / base * (to_a + to_rest)) / base

    def error(self, gradient: Floats) -> float:
        """The standard error of a function of the sums with this gradient; NaN if unknown."""
        variance = float(gradient @ self.answer.covariance @ gradient)
        return math.sqrt(max(variance, 0.0)) if not math.isnan(variance) else math.nan

    def sum(self, asked: Sum) -> tuple[float, Floats]:
        """The estimate of one sum, and its gradient."""
        gradient = np.zeros(len(self.answer.estimates))
        if asked == Sum(EVERYONE):
            return 1.0, gradient
        place = self.places[asked]
        gradient[place] = 1.0
        return float(self.answer.estimates[place]), gradient

    def _value(self, quantity: Quantity) -> tuple[float, Floats]:
        if isinstance(quantity, Difference):
            (a, to_a), (b, to_b) = self._value(quantity.first), self._value(quantity.second)
            return a - b, to_a - to_b
        if isinstance(quantity, (Deviation, Correlation)):
            return self._moments(quantity)
        pair = self._quotient(quantity)
        if pair is None:
            assert not isinstance(quantity, Ratio)
            return self.sum(quantity.top)
        (a, to_a), (b, to_b) = pair
        if abs(b) <= self.reach * self.error(to_b):
            self.divisor_unsure = True
        if b == 0:
            return math.nan, to_a
        return a / b, (to_a - a / b * to_b) / b

    def _quotient(
        self, quantity: Quantity
    ) -> tuple[tuple[float, Floats], tuple[float, Floats]] | None:
        """Numerator and denominator; None if the figure is a sum or a difference."""
        if isinstance(quantity, (Difference, Deviation, Correlation)):
            return None
        if isinstance(quantity, Ratio):
            return self._value(quantity.first), self._value(quantity.second)
        return (
            None
            if quantity.base == Sum(EVERYONE)
            else (self.sum(quantity.top), self.sum(quantity.base))
        )

    def _moments(self, quantity: Deviation | Correlation) -> tuple[float, Floats]:
        """A function of means of numbers and products, with its gradient (delta method)."""
        base, to_base = self.sum(quantity.base)
        if abs(base) <= self.reach * self.error(to_base) or base == 0:
            self.divisor_unsure = True
            return math.nan, to_base
        means, gradients = [], []
        for asked in quantity.sums:
            total, to_total = self.sum(asked)
            means.append(total / base)
            gradients.append((to_total - total / base * to_base) / base)
        count = 1 if isinstance(quantity, Deviation) else 2
        variances, to_variances = [], []
        for i in range(count):
            variances.append(means[count + i] - means[i] ** 2)
            to_variances.append(gradients[count + i] - 2 * means[i] * gradients[i])
        if min(variances) <= 0:
            # Noise can make an estimated variance negative: nothing is known then.
            self.divisor_unsure = True
            return (0.0 if count == 1 else math.nan), np.zeros_like(to_base)
        if count == 1:
            deviation = math.sqrt(variances[0])
            return deviation, to_variances[0] / (2 * deviation)
        scale = math.sqrt(variances[0] * variances[1])
        value = (means[4] - means[0] * means[1]) / scale
        to_product = gradients[4] - means[0] * gradients[1] - means[1] * gradients[0]
        relative = to_variances[0] / variances[0] + to_variances[1] / variances[1]
        return value, to_product / scale - value / 2 * relative

    def _fieller(
        self, top: tuple[float, Floats], base: tuple[float, Floats]
    ) -> tuple[float, float]:
        (a, to_a), (b, to_b) = top, base
        gradients = np.stack([to_a, to_b])
        covariance = gradients @ self.answer.covariance @ gradients.T
        low, high = fieller(
            np.array(a), b, (covariance[0, 0], covariance[0, 1], covariance[1, 1]), self.reach
        )
        return float(low), float(high)


def fieller(
    top: Floats, base: float, variances: tuple[Floats, Floats, float], reach: float
) -> tuple[Floats, Floats]:
    """All r with |a - r b| at most `reach` standard errors of a - r b, for each a / b.

    `variances` are V_a, V_ab and V_b. The ends are the roots of (b^2 - t^2 V_b) r^2 - 2
    (a b - t^2 V_ab) r + (a^2 - t^2 V_a). They are NaN if b is not significantly
    different from zero.
    """
    square = reach * reach
    leading = base * base - square * variances[2]
    if not leading > 0:
        return np.full(top.shape, np.nan), np.full(top.shape, np.nan)
    half = top * base - square * variances[1]
    constant = top * top - square * variances[0]
    root = np.sqrt(np.maximum(half * half - leading * constant, 0.0))
    return (half - root) / leading, (half + root) / leading
