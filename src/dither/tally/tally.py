"""Integer sufficient statistics of a round: add, merge, save.

Merging in any order gives identical integers. `CountTally` counts supports for each question.
`PatternTally` keeps the multiset of whole split reports, for EM over several attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from dither.errors import ParameterError, ReportError
from dither.mechanisms import BitMechanism, Mechanism, PackedReports, PureMechanism, kernels
from dither.reports import Plan, plan_from_json
from dither.reports.plan import check_payload
from dither.tally.archive import decoding, pack, unpack
from dither.types import Bytes, Counts


def _check_same(a: Plan, b: Plan) -> None:
    if a.to_json() != b.to_json():
        raise ParameterError("tallies of different plans cannot be merged")


def _check_rows(reports: PackedReports, width: int) -> None:
    if reports.rows.ndim != 2 or reports.rows.shape[1] != width or reports.rows.dtype != np.uint8:
        raise ReportError(f"reports of {width} bytes each were expected, not {reports.rows.shape}")


@dataclass
class CountTally:
    """For each question the number of answers (`n`) and the support of each counter."""

    plan: Plan
    n: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: list[Counts] = field(default_factory=list)
    kind = "counts"

    def __post_init__(self) -> None:
        if not self.counts:
            self.n = np.zeros(len(self.plan.questions), np.int64)
            self.counts = [np.zeros(q.mechanism.counters, np.int64) for q in self.plan.questions]

    def add(self, question: int, reports: PackedReports) -> None:
        """Add reports of one question; for split plans whole reports, with question -1."""
        if question == -1 and self.plan.split:
            _check_rows(reports, self.plan.report_offsets[-1])
            for i, (start, end) in enumerate(pairwise(self.plan.report_offsets)):
                self.add(i, PackedReports(np.ascontiguousarray(reports.rows[:, start:end])))
            return
        mechanism = self.plan.questions[question].mechanism
        _check_rows(reports, mechanism.report_bytes)
        self.add_counts(question, kernels.support(mechanism, reports), len(reports))

    def add_counts(self, question: int, support: Counts, n: int) -> None:
        """Add support counts of n reports that were counted or simulated elsewhere."""
        if (
            support.shape != self.counts[question].shape
            or n < 0
            or (support < 0).any()
            or (support > n).any()
        ):
            raise ReportError(f"impossible counts for question {question} of {n} reports")
        self.counts[question] += support
        self.n[question] += n

    def merge(self, other: CountTally) -> CountTally:
        """The tally of both sets of reports."""
        _check_same(self.plan, other.plan)
        merged = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        return CountTally(self.plan, self.n + other.n, merged)

    def to_bytes(self) -> bytes:
        arrays = {"n": self.n, **{str(i): c for i, c in enumerate(self.counts)}}
        return pack({"kind": self.kind, "plan": self.plan.to_json()}, arrays)

    @property
    def participants(self) -> int:
        """The number of participants who reported."""
        return int(self.n.max()) if self.plan.split else int(self.n.sum())


@dataclass
class PatternTally:
    """For a split plan: the distinct reports, in byte order, and their counts."""

    plan: Plan
    patterns: Bytes = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    counts: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    kind = "patterns"

    def __post_init__(self) -> None:
        if not self.plan.split:
            raise ParameterError(
                "patterns need a split plan: one report with an answer to every question"
            )
        if self.patterns.size == 0:
            self.patterns = np.zeros((0, self.plan.report_offsets[-1]), np.uint8)

    def add(self, question: int, reports: PackedReports) -> None:
        """Add whole split reports (question is -1)."""
        _check_rows(reports, self.plan.report_offsets[-1])
        self.patterns, self.counts = _multiset(
            np.concatenate([self.patterns, reports.rows]),
            np.concatenate([self.counts, np.ones(len(reports), np.int64)]),
        )

    def merge(self, other: PatternTally) -> PatternTally:
        """The tally of both sets of reports."""
        _check_same(self.plan, other.plan)
        patterns, counts = _multiset(
            np.concatenate([self.patterns, other.patterns]),
            np.concatenate([self.counts, other.counts]),
        )
        return PatternTally(self.plan, patterns, counts)

    def to_bytes(self) -> bytes:
        meta = {"kind": self.kind, "plan": self.plan.to_json()}
        return pack(meta, {"patterns": self.patterns, "counts": self.counts})

    @property
    def participants(self) -> int:
        """How many people reported."""
        return int(self.counts.sum())


RoundTally = CountTally | PatternTally


def zero(plan: Plan) -> RoundTally:
    """The empty tally of the kind that the plan asks for."""
    return CountTally(plan) if plan.tally == "counts" else PatternTally(plan)


def tally_from_bytes(data: bytes) -> RoundTally:
    """Load a saved tally.

    Raises:
        ReportError: The bytes are not a tally. `check_tally` checks whether its counts are
            possible.
    """
    meta, arrays = unpack(data)
    with decoding("tally"):
        plan = plan_from_json(meta["plan"])
        if meta["kind"] == CountTally.kind:
            return CountTally(
                plan, arrays["n"], [arrays[str(i)] for i in range(len(plan.questions))]
            )
        if meta["kind"] != PatternTally.kind:
            raise ReportError("a tally of an unknown kind")
        return PatternTally(plan, arrays["patterns"], arrays["counts"])


def check_tally(tally: RoundTally, plan: Plan, reports: int) -> None:
    """Check that n reports under this plan can have these counts.

    Raises:
        ReportError: They cannot.
    """
    if tally.plan.to_json() != plan.to_json():
        raise ReportError("the tally is of another plan")
    held = [tally.n, *tally.counts] if isinstance(tally, CountTally) else [tally.counts]
    # Sums of numbers beyond that could come out right again modulo 2^64.
    if any(array.dtype != np.int64 or (array > reports).any() for array in held):
        raise ReportError(
            f"the tally's counts must be whole numbers up to {reports:,}, the number of reports"
        )
    if isinstance(tally, CountTally):
        if tally.n.shape != (len(plan.questions),) or len(tally.counts) != len(plan.questions):
            raise ReportError("the tally has not a count for each question")
        added = CountTally(plan)
        for i, counts in enumerate(tally.counts):
            added.add_counts(i, counts, int(tally.n[i]))
            _check_support(plan.questions[i].mechanism, i, int(counts.sum()), int(tally.n[i]))
        if plan.split and len(set(tally.n.tolist())) > 1:
            raise ReportError("the tally of a split plan has different numbers of answers")
    else:
        width = plan.report_offsets[-1]
        shape = (len(tally.counts), width)
        if (
            tally.patterns.dtype != np.uint8
            or tally.patterns.shape != shape
            or (tally.counts < 1).any()
        ):
            raise ReportError("the tally's patterns and their counts do not belong together")
        for pattern in tally.patterns:
            check_payload(plan, -1, pattern.tobytes())
        if tally.merge(PatternTally(plan)).to_bytes() != tally.to_bytes():
            raise ReportError("the tally's patterns are not in order, or not different")
    if tally.participants != reports:
        raise ReportError(f"the tally is of {tally.participants:,} reports, not of {reports:,}")


def _check_support(mechanism: Mechanism, question: int, total: int, n: int) -> None:
    """If every report supports a fixed number of cells, check the total support."""
    if isinstance(mechanism, PureMechanism):
        fewest, most = mechanism.support_range(mechanism.cells)
        if not n * fewest <= total <= n * most:
            raise ReportError(
                f"impossible counts for question {question} of {n:,} reports: they add up to {total:,}"
            )


def report_bits(plan: Plan, rows: Bytes) -> Bytes:
    """The bits of split unary or Bloom reports, one column per counter, questions side by side."""
    parts = []
    for i, question in enumerate(plan.questions):
        if not isinstance(question.mechanism, BitMechanism):
            raise ParameterError(
                f"reports of {question.mechanism.name} are not bit vectors; use a unary or Bloom mechanism"
            )
        part = rows[:, plan.report_offsets[i] : plan.report_offsets[i + 1]]
        parts.append(
            np.unpackbits(part, axis=1, bitorder="little", count=question.mechanism.counters)
        )
    return np.concatenate(parts, axis=1)


def _multiset(rows: Bytes, counts: Counts) -> tuple[Bytes, Counts]:
    """Distinct rows in byte order with their counts added up."""
    if len(rows) == 0:
        return rows, counts
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1]))).ravel()
    # Void scalars sort as raw bytes, so the order does not depend on the order of
    # arrival.
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(first)
    return rows[order[starts]], np.add.reduceat(counts[order], starts)
