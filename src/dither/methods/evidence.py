"""Estimates of singles and pairs, pooled over rounds, with the variance of noise and sampling.

Shared by the methods that ask each participant one question: PrivIncr and its one-round
variant, CALM, and the sampled plan of the Bayes network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from dither.fit import (
    AnswerCounts,
    Dependence,
    Marginal,
    PoolWeights,
    check_asked,
    contrast_noise,
    dependence,
    mutual_information,
    norm_sub,
    pool,
)
from dither.reports import Question
from dither.schema import Schema
from dither.types import Floats, Integers

Pair = tuple[int, int]
_MIN_VARIANCE = 1e-12


@dataclass(frozen=True)
class PairEvidence:
    """A pooled pair, its noise-aware test, and the product of the one-way frequencies."""

    pooled: Marginal
    variances: Floats
    test: Dependence
    product: Floats

    @cached_property
    def projected(self) -> Floats:
        """The nearest distribution to the raw pair."""
        return norm_sub(self.pooled.frequencies)

    @cached_property
    def shrunk(self) -> Floats:
        """The product of one-way frequencies plus the part of the difference that is not noise, as a distribution.

        The difference is scaled by its unbiased squared length over the observed one (James,
        Stein 1961), so the information of a pair within the noise is zero.
        """
        difference = self.pooled.frequencies - self.product
        observed = float((difference**2).sum())
        share = min(1.0, max(0.0, self.test.statistic / observed)) if observed > 0 else 0.0
        return norm_sub(self.product + share * difference)

    @cached_property
    def information(self) -> float:
        """Mutual information in nats of the shrunk table."""
        return mutual_information(self.shrunk) if self.test.statistic > 0 else 0.0

    @property
    def distance(self) -> float:
        """A bound on the total variation that taking the pair as independent costs; ranks edges."""
        return self.test.strength * math.sqrt(self.product.size) / 2


@dataclass(frozen=True)
class Evidence:
    """The answers of all closed rounds as singles and pairs; unanswered pairs have no evidence.

    `weights` are those of `pool`.
    """

    schema: Schema
    answers: Sequence[AnswerCounts]
    weights: PoolWeights = "variance"
    _pairs: dict[Pair, PairEvidence | None] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def singles(self) -> tuple[Marginal, ...]:
        """Every one-way marginal, pooled over all questions that hold the attribute."""
        check_asked(self.schema, self.answers)
        return tuple(self.pooled([name]) for name in self.schema.names)

    @cached_property
    def distributions(self) -> tuple[Floats, ...]:
        """The one-way marginals as distributions."""
        return tuple(norm_sub(p.frequencies) for p in self.singles)

    @cached_property
    def _holding(self) -> dict[frozenset[str], list[AnswerCounts]]:
        """The answers about each attribute and each pair, indexed because a search takes long."""
        out: dict[frozenset[str], list[AnswerCounts]] = {}
        for answer in self.answers:
            names = answer.question.attributes
            for held in (*((name,) for name in names), *combinations(names, 2)):
                out.setdefault(frozenset(held), []).append(answer)
        return out

    def pooled(self, names: Sequence[str]) -> Marginal:
        """Some attributes' marginal over every question that holds them all."""
        answers = self._holding.get(frozenset(names[:2]), ())
        return pool(self.schema, answers, names, self.weights)

    def pair(self, i: int, j: int) -> PairEvidence | None:
        """The evidence on a pair, i < j; None if it was not asked."""
        if (i, j) not in self._pairs:
            self._pairs[i, j] = self._weigh(i, j)
        return self._pairs[i, j]

    def _weigh(self, i: int, j: int) -> PairEvidence | None:
        names = [self.schema.names[i], self.schema.names[j]]
        if frozenset(names) not in self._holding:
            return None
        pooled = self.pooled(names)
        variances = _total_variances(pooled)
        rows, columns = self.singles[i].frequencies, self.singles[j].frequencies
        noise, row, column = (self._contrast_noise(held) for held in ((i, j), (i,), (j,)))
        test = dependence(pooled.frequencies, noise, rows, columns, row, column)
        return PairEvidence(pooled, variances, test, np.outer(rows, columns))

    def _contrast_noise(self, held: tuple[int, ...]) -> float:
        """The mean variance, of noise and sampling, of contrasts between independent cells."""
        names = [self.schema.names[k] for k in held]
        even, people = contrast_noise(self.schema, self._holding[frozenset(names)], names)
        uneven = math.prod(_unevenness(self.singles[k].frequencies) for k in held)
        degrees = math.prod(self.schema.cardinalities[k] - 1 for k in held)
        return max(even - people * uneven / degrees, _MIN_VARIANCE)

    def pairs(self) -> dict[Pair, PairEvidence]:
        """Every pair that was asked."""
        found = ((p, self.pair(*p)) for p in combinations(range(len(self.schema)), 2))
        return {pair: evidence for pair, evidence in found if evidence is not None}

    def information(self) -> Floats:
        """The symmetric matrix of denoised mutual informations; zero for unanswered pairs."""
        d = len(self.schema)
        out = np.zeros((d, d))
        for (i, j), evidence in self.pairs().items():
            out[i, j] = out[j, i] = evidence.information
        return out

    def measurements(self, larger: Sequence[tuple[int, ...]] = ()) -> list[Marginal]:
        """Raw singles, pairs and `larger` sets with the variances of noise and sampling."""
        sets = [self.pooled([self.schema.names[a] for a in positions]) for positions in larger]
        pairs = [evidence.pooled for evidence in self.pairs().values()]
        return [_with_sampling(marginal) for marginal in (*self.singles, *pairs, *sets)]

    def measured(self, kept: Sequence[Pair]) -> list[Marginal]:
        """What a release states as measured: all singles, and the pairs that were kept."""
        return [*self.singles, *(e.pooled for e in (self.pair(*p) for p in kept) if e is not None)]


def _unevenness(frequencies: Floats) -> float:
    """The squared distance of frequencies from even ones."""
    return float(((frequencies - frequencies.mean()) ** 2).sum())


def merged(answers: Sequence[AnswerCounts]) -> list[AnswerCounts]:
    """Answers to one question in several rounds, added up."""
    counts: dict[Question, tuple[Integers, int]] = {}
    for answer in answers:
        support, n = counts.get(answer.question, (np.zeros_like(answer.support), 0))
        counts[answer.question] = (support + answer.support, n + answer.n)
    return [AnswerCounts(question, support, n) for question, (support, n) in counts.items()]


def _total_variances(marginal: Marginal) -> Floats:
    """The mechanism's variance plus f(1-f)/n, n the effective number of answers."""
    f = np.clip(marginal.frequencies, 0.0, 1.0)
    return np.maximum(marginal.variances + f * (1 - f) / marginal.sample_size, _MIN_VARIANCE)


def _with_sampling(marginal: Marginal) -> Marginal:
    """The same marginal with standard errors that hold the choice of who was asked too."""
    return replace(marginal, standard_errors=np.sqrt(_total_variances(marginal)))
