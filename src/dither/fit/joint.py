"""Joint distributions of any attributes from split reports, by EM, by Lasso, or by Lasso and then EM.

Reference: Ren et al., "LoPub", IEEE TIFS 2018, algorithms 1 to 3. `SplitReports` reads a multiset of whole reports,
which hold an answer to every question; it is what every estimator here, and whoever learns a structure, starts from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, pairwise
from typing import Literal

import numpy as np

from dither.checks import check_choice
from dither.errors import ParameterError
from dither.fit.em import (
    EMResult,
    RowProducts,
    bit_likelihood,
    check_cells,
    expectation_maximisation,
)
from dither.fit.lasso import (
    Encoding,
    View,
    pair_cooccurrence,
    pair_variance,
    paper_lasso,
    simplex_lasso,
    view_weight,
)
from dither.fit.marginal import Marginal
from dither.mechanisms import BitMechanism, Mechanism
from dither.reports import Plan
from dither.tally import PatternTally, report_bits
from dither.types import Bytes, Floats, Integers

Estimator = Literal["em", "lasso", "hybrid"]
ESTIMATORS: tuple[Estimator, ...] = ("em", "lasso", "hybrid")
Features = Literal["cooccurrence", "paper"]
Progress = Callable[[int, int], None]

_ROWS = 1 << 15
_MAX_CODE_BITS = 22  # reports of few bits are counted by their bits as a number


@dataclass(frozen=True)
class JointEstimate:
    """A joint distribution of some attributes, not negative and adding up to one, and what it took."""

    attributes: tuple[str, ...]
    joint: Floats
    estimator: str
    steps: int
    converged: bool


@dataclass(frozen=True)
class SplitReports:
    """Distinct reports of a split plan with one attribute per question, and how often each came."""

    plan: Plan
    patterns: Bytes
    counts: Integers

    def __post_init__(self) -> None:
        for question in self.plan.questions:
            if len(question.attributes) != 1:
                raise ParameterError(
                    "joint estimation needs questions about one attribute each",
                    value=question.attributes,
                )
        if not len(self.patterns):
            raise ParameterError("there are no reports to estimate from")

    @classmethod
    def from_tally(cls, tally: PatternTally) -> SplitReports:
        """The reports of a closed round."""
        return cls(tally.plan, tally.patterns, tally.counts)

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that the reports answer."""
        return tuple(q.attributes[0] for q in self.plan.questions)

    @cached_property
    def n(self) -> int:
        """How many people reported."""
        return int(self.counts.sum())

    def position(self, name: str) -> int:
        """Where the reports answer an attribute; an error lists the ones they do."""
        if name not in self.names:
            raise ParameterError(
                f"the reports hold no answer about {name!r}; they are about {', '.join(self.names)}",
                where=name,
            )
        return self.names.index(name)

    @cached_property
    def encodings(self) -> tuple[Encoding, ...]:
        """How each attribute's values became bits."""
        return tuple(_encoding_of(q.mechanism) for q in self.plan.questions)

    def bits(self, position: int, part: slice = slice(None)) -> Bytes:
        """One attribute's bits of the distinct reports."""
        offsets = self.plan.report_offsets
        rows = self.patterns[part, offsets[position] : offsets[position + 1]]
        width = self.plan.questions[position].mechanism.counters
        return np.unpackbits(np.ascontiguousarray(rows), axis=1, bitorder="little", count=width)

    def distinct(self, positions: Sequence[int]) -> tuple[list[Bytes], Integers | None]:
        """The bits of some attributes with weights; reports that agree on these bits are merged where there are few."""
        widths = [self.plan.questions[i].mechanism.counters for i in positions]
        if sum(widths) > _MAX_CODE_BITS or 2 ** sum(widths) > len(self.patterns):
            weights = None if self.n == len(self.counts) else self.counts
            return [self.bits(i) for i in positions], weights
        code = np.zeros(len(self.patterns), np.int64)
        for i, width in zip(positions, widths, strict=True):
            code = (code << width) | self.bits(i) @ (1 << np.arange(width, dtype=np.int64))
        weights = np.bincount(code, self.counts, 2 ** sum(widths)).astype(np.int64)
        seen = np.flatnonzero(weights)
        out, shift = [], sum(widths)
        for width in widths:
            shift -= width
            out.append((seen[:, None] >> (shift + np.arange(width)) & 1).astype(np.uint8))
        return out, weights[seen]

    def one_ways(self) -> list[Marginal]:
        """Every attribute's raw frequencies."""
        return [
            Marginal((name,), self.singles[i], np.sqrt(self.single_variance(i)), self.n)
            for i, name in enumerate(self.names)
        ]

    def pair_marginal(self, i: int, j: int) -> Marginal:
        """The raw frequencies of two attributes taken together."""
        raw, variance = self.pair(i, j)
        return Marginal((self.names[i], self.names[j]), raw, np.sqrt(variance), self.n)

    @cached_property
    def gram(self) -> Integers:
        """How often each two bits are set together, all attributes side by side; the diagonal holds single bits."""
        total = sum(q.mechanism.counters for q in self.plan.questions)
        out = np.zeros((total, total))
        for start in range(0, len(self.patterns), _ROWS):
            bits = report_bits(self.plan, self.patterns[start : start + _ROWS]).astype(np.float32)
            weights = self.counts[start : start + _ROWS]
            # Exact: whole numbers below 2^24 in a block. A product of a matrix with itself costs half of a general one.
            out += (
                bits.T @ bits
                if (weights == 1).all()
                else (bits * weights[:, None].astype(np.float32)).T @ bits
            )
        return np.rint(out).astype(np.int64)

    @cached_property
    def _columns(self) -> tuple[slice, ...]:
        ends = np.cumsum([0] + [q.mechanism.counters for q in self.plan.questions])
        return tuple(slice(int(a), int(b)) for a, b in pairwise(ends))

    @cached_property
    def singles(self) -> tuple[Floats, ...]:
        """Raw, unbiased one-way frequencies."""
        out = []
        for encoding, columns in zip(self.encodings, self._columns, strict=True):
            raw = (np.diag(self.gram)[columns] / self.n - encoding.q) / (encoding.p - encoding.q)
            decode = encoding.decode
            out.append(raw if decode is None else decode @ raw)
        return tuple(out)

    @cached_property
    def distributions(self) -> tuple[Floats, ...]:
        """One-way distributions: the raw frequencies projected on the simplex in the metric of the filters."""
        return tuple(
            simplex_lasso(raw, [View((0,), raw, 1.0)], [e.gram])
            for raw, e in zip(self.singles, self.encodings, strict=True)
        )

    def single_variance(self, position: int) -> Floats:
        """The variance of each one-way frequency, given the participants."""
        encoding = self.encodings[position]
        return (encoding.noise + np.clip(self.singles[position], 0, 1) * encoding.bump) / self.n

    def pair(self, i: int, j: int) -> tuple[Floats, Floats]:
        """The raw, unbiased joint frequencies of two attributes and their variances."""
        encodings = (self.encodings[i], self.encodings[j])
        diagonal = np.diag(self.gram)
        ones = (diagonal[self._columns[i]], diagonal[self._columns[j]])
        raw = pair_cooccurrence(
            self.gram[self._columns[i], self._columns[j]], ones, self.n, encodings
        )
        f_i, f_j = (np.clip(self.singles[k], 0, 1) for k in (i, j))
        return raw, pair_variance(encodings, f_i, f_j, np.clip(raw, 0, 1), self.n)

    def cooccurrence(self, positions: Sequence[int]) -> Floats:
        """Raw, unbiased joint frequencies of any attributes: the mean of the products of their indicators."""
        if len(positions) == 1:
            return self.singles[positions[0]]
        if len(positions) == 2:
            return self.pair(*positions)[0]
        check_cells(
            [self.encodings[i].cells for i in positions], [self.names[i] for i in positions]
        )
        bits, weights = self.distinct(positions)
        matrices = [self.encodings[i].indicators(b) for i, b in zip(positions, bits, strict=True)]
        if weights is not None:
            matrices[0] = matrices[0] * weights[:, None].astype(np.float32)
        products = RowProducts(matrices)
        total = np.zeros(products.widths)
        for _, a, b in products:
            total += a.T @ b
        return products.unfold(total / self.n)


def _encoding_of(mechanism: Mechanism) -> Encoding:
    """How a mechanism whose reports are bits encodes its cells; others do not answer in bits."""
    if not isinstance(mechanism, BitMechanism):
        raise ParameterError(
            f"reports of {mechanism.name} are not bit vectors; use a unary or Bloom mechanism"
        )
    filters = None
    if mechanism.filters is not None:
        filters = np.array(
            [[f >> b & 1 for b in range(mechanism.counters)] for f in mechanism.filters], np.uint8
        )
    return Encoding(filters, mechanism.cells, float(mechanism.p), float(mechanism.q))


def estimate_joint(
    reports: SplitReports,
    attributes: Sequence[str],
    estimator: Estimator = "em",
    *,
    features: Features = "cooccurrence",
    tolerance: float = 1e-5,
    steps: int = 2_000,
    printed: bool = False,
) -> JointEstimate:
    """The joint distribution of some attributes by one of LoPub's three estimators; `printed` is EM from the even table with
    the paper's own stopping rule."""
    check_choice("estimator", estimator, ESTIMATORS)
    if len(set(attributes)) != len(attributes) or not attributes:
        raise ParameterError(
            "a joint needs at least one attribute, and each only once",
            where="attributes",
            value=attributes,
        )
    positions = [reports.position(name) for name in attributes]
    check_cells([reports.encodings[i].cells for i in positions], attributes)
    names = tuple(attributes)
    if estimator == "lasso":
        return JointEstimate(names, _lasso_joint(reports, positions, features), estimator, 0, True)
    start: Floats | None = None
    if estimator == "hybrid":
        start = _lasso_joint(reports, positions, features)
    elif not printed:  # from the product of the one-way estimates: nearer than the even table, and no cell is ruled out
        start = _product_start(reports, positions)
    found = em_joint(reports, positions, start, tolerance, steps, printed)
    return JointEstimate(names, found.joint, estimator, found.steps, found.converged)


def em_joint(
    reports: SplitReports,
    positions: Sequence[int],
    start: Floats | None = None,
    tolerance: float = 1e-5,
    steps: int = 2_000,
    printed: bool = False,
) -> EMResult:
    """LoPub's algorithm 1 from a starting table; cells that are zero in it stay zero (algorithm 3)."""
    bits, weights = reports.distinct(positions)
    encodings = [reports.encodings[i] for i in positions]
    likelihoods = [
        bit_likelihood(b, e.filters, e.p, e.q, len(positions))
        for b, e in zip(bits, encodings, strict=True)
    ]
    return expectation_maximisation(
        likelihoods, weights, start=start, tolerance=tolerance, steps=steps, printed=printed
    )


def _lasso_joint(
    reports: SplitReports, positions: Sequence[int], features: Features = "cooccurrence"
) -> Floats:
    """LoPub's algorithm 2 on co-occurrences, or as printed."""
    encodings = [reports.encodings[i] for i in positions]
    if features == "paper":
        diagonal = np.diag(reports.gram)
        return paper_lasso([diagonal[reports._columns[i]] for i in positions], reports.n, encodings)
    if len(positions) == 1:
        return reports.distributions[positions[0]]
    # The joint itself, and every single and pair in it: these carry much less noise, and the Gram matrix has them all.
    everything = range(len(positions))
    axes: list[tuple[int, ...]] = [*((i,) for i in everything), *combinations(everything, 2)]
    axes += [tuple(everything)] if len(positions) > 2 else []
    views = []
    for chosen in axes:
        inside = [positions[i] for i in chosen]
        target = (
            reports.distributions[inside[0]] if len(inside) == 1 else reports.cooccurrence(inside)
        )
        views.append(View(chosen, target, view_weight([reports.encodings[i] for i in inside])))
    return simplex_lasso(_product_start(reports, positions), views, [e.gram for e in encodings])


def _product_start(reports: SplitReports, positions: Sequence[int]) -> Floats:
    """The product of the one-way distributions, each mixed with a little of the even one."""
    joint = np.ones(())
    for i in positions:
        single = reports.distributions[i]
        joint = np.multiply.outer(joint, 0.95 * single + 0.05 / len(single))
    return np.asarray(joint)


def estimate_joints(
    reports: SplitReports,
    sets: Sequence[Sequence[str]],
    estimator: Estimator = "em",
    *,
    features: Features = "cooccurrence",
    tolerance: float = 1e-5,
    steps: int = 2_000,
    printed: bool = False,
    progress: Progress | None = None,
) -> list[JointEstimate]:
    """Many joints, in the order asked, two or more at a time; the results do not depend on how many run at once."""
    from threadpoolctl import threadpool_limits

    options = {"features": features, "tolerance": tolerance, "steps": steps, "printed": printed}
    work = partial(estimate_joint, reports, estimator=estimator, **options)  # type: ignore[arg-type]
    reports.gram, reports.distributions  # noqa: B018  computed once, before threads ask for them
    # The matrices are too small to share between BLAS threads; whole joints are spread over the processors instead.
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool,
    ):
        futures = [pool.submit(work, names) for names in sets]
        try:
            out = []
            for done, future in enumerate(futures, 1):
                out.append(future.result())
                if progress:
                    progress(done, len(futures))
            return out
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
