"""What the reports alone say of some attributes: unbiased sums over cells, with the exact covariance of their errors.

Every question whose attributes hold all those asked for contributes its own estimate; they are averaged as in `estimate.pool`,
with weights that do not depend on the answers. The covariance has the noise of the devices, known from the mechanism, and
that of who was asked, f(1-f)/n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dither.fit.pool import AnswerCounts, read_marginal
from dither.fit.ruled import add_up
from dither.mechanisms import Mechanism, PureMechanism
from dither.schema import Schema
from dither.types import Floats, Indices


@dataclass(frozen=True)
class _RawSums:
    """Unbiased estimates of several sums over cells, and the covariance of their errors."""

    estimates: Floats
    covariance: Floats


@dataclass(frozen=True)
class Reports:
    """All answers of a campaign, as far as they were counted."""

    schema: Schema
    answers: tuple[AnswerCounts, ...]

    @cached_property
    def _by_set(self) -> dict[frozenset[str], list[AnswerCounts]]:
        out: dict[frozenset[str], list[AnswerCounts]] = {}
        for answer in self.answers:
            out.setdefault(frozenset(answer.question.attributes), []).append(answer)
        return out

    def _holding(self, attributes: Sequence[str]) -> list[AnswerCounts]:
        wanted = frozenset(attributes)
        return [
            answer
            for asked, answers in self._by_set.items()
            if wanted <= asked
            for answer in answers
        ]

    def tell(self, attributes: Sequence[str]) -> bool:
        """Whether anybody was asked about all of these together."""
        wanted = frozenset(attributes)
        return any(wanted <= asked for asked in self._by_set)

    def _parts(self, attributes: Sequence[str]) -> list[tuple[AnswerCounts, Floats, float]]:
        """Each answer that holds the attributes, its estimate of their marginal and its share in the average."""
        found, cells = [], self.schema.cells(attributes)
        for answer in self._holding(attributes):
            marginal, group = read_marginal(self.schema, answer, attributes)
            precision = 1.0 / (
                answer.question.mechanism.group_variance(group, 1.0 / cells, answer.n)
                + 1.0 / cells / answer.n
            )
            found.append((answer, marginal, precision))
        total = sum(precision for *_, precision in found)
        return [(answer, marginal, precision / total) for answer, marginal, precision in found]

    def marginal(self, attributes: Sequence[str], frequencies: Floats) -> tuple[Floats, Floats]:
        """The averaged table of some attributes, and the variance of each cell if the true table were `frequencies`."""
        raw, variances = np.zeros(frequencies.shape), np.zeros(frequencies.shape)
        for answer, marginal, share in self._parts(attributes):
            mechanism, group = (
                answer.question.mechanism,
                answer.question.mechanism.cells // marginal.size,
            )
            low, high = (mechanism.group_variance(group, f, answer.n) for f in (0.0, 1.0))
            raw += share * marginal
            variances += share**2 * (
                low + (high - low) * frequencies + frequencies * (1 - frequencies) / answer.n
            )
        return raw, variances

    def sums(
        self,
        attributes: Sequence[str],
        groups: Sequence[Indices],
        weights: Floats,
        frequencies: Floats,
    ) -> _RawSums:
        """Sums with a row of weights each over the grouped table; variances are taken at `frequencies`, ungrouped."""
        estimates, covariance = np.zeros(len(weights)), np.zeros((len(weights), len(weights)))
        spread = weights.reshape(len(weights), *(int(group.max()) + 1 for group in groups))
        for axis, group in enumerate(groups):
            spread = np.take(spread, group, axis=axis + 1)
        for answer, marginal, share in self._parts(attributes):
            estimates += share * (weights @ add_up(marginal, groups).ravel())
            asked = answer.question.attributes
            rows = _broadcast(spread, attributes, asked, self.schema)
            even = _broadcast(frequencies[None], attributes, asked, self.schema)[0]
            covariance += share**2 * answer_covariance(
                answer.question.mechanism, rows, even / (even.size // frequencies.size), answer.n
            )
        return _RawSums(estimates, covariance)


def _broadcast(
    tables: Floats, attributes: Sequence[str], asked: Sequence[str], schema: Schema
) -> Floats:
    """Tables over some attributes repeated over the others that a question asks for, its axes in order, flattened."""
    order = [0, *(1 + list(attributes).index(name) for name in asked if name in attributes)]
    moved = np.transpose(tables, order)
    wide = moved.reshape(
        [len(tables), *(schema[n].cardinality if n in attributes else 1 for n in asked)]
    )
    return np.broadcast_to(wide, (len(tables), *(schema[n].cardinality for n in asked))).reshape(
        len(tables), -1
    )


def answer_covariance(mechanism: Mechanism, rows: Floats, frequencies: Floats, n: int) -> Floats:
    """The covariance of weighted sums of one question's estimates: the mechanism's noise and the choice of the n people."""
    own = rows @ frequencies
    by_cell = (rows * frequencies) @ rows.T
    sampling = (by_cell - np.outer(own, own)) / n
    if not isinstance(mechanism, PureMechanism):
        return np.asarray(sampling + _polarised(mechanism, rows, frequencies, n))
    p, q = float(mechanism.p), float(mechanism.q)
    squares = rows @ rows.T
    if mechanism.pair_probabilities is None:
        noise = p * (1 - p) * by_cell + q * (1 - q) * (squares - by_cell)
    else:
        with_own, others = mechanism.pair_probabilities
        first = rows.sum(axis=1)
        own_pairs = np.outer(first, own) + np.outer(own, first) - 2 * by_cell
        moment = p * by_cell + q * (squares - by_cell) + with_own * own_pairs
        moment += others * (np.outer(first, first) - squares - own_pairs)
        mean = q**2 * np.outer(first, first) + (p - q) ** 2 * by_cell
        noise = moment - mean - q * (p - q) * (np.outer(first, own) + np.outer(own, first))
    return np.asarray(sampling + noise / (n * (p - q) ** 2))


def _polarised(mechanism: Mechanism, rows: Floats, frequencies: Floats, n: int) -> Floats:
    """Covariances from variances of sums: cov(a, b) = (var(a + b) - var(a) - var(b)) / 2."""
    alone = [mechanism.weighted_variance(row, frequencies, n) for row in rows]
    out = np.diag(alone)
    for i in range(len(rows)):
        for j in range(i):
            both = mechanism.weighted_variance(rows[i] + rows[j], frequencies, n)
            out[i, j] = out[j, i] = (both - alone[i] - alone[j]) / 2
    return out
