"""The manipulation bound against the worst attack, made of reports that the server accepts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dither.fit import AnswerCounts, norm_sub, pool
from dither.mechanisms import (
    BloomRappor,
    LocalHash,
    Mechanism,
    PackedReports,
    SubsetSelection,
    kernels,
    mechanism,
)
from dither.release.manipulation import set_bound
from dither.reports import Plan, question
from dither.schema import Attribute, Schema
from dither.tally import CountTally


def manipulation(
    asked: Mechanism,
    targets: int | list[int],
    share: float,
    frequency: float = 0.0,
    direction: str = "raise",
) -> float:
    """How far a share of forged reports moves the estimated frequency of some cells: the module's formula."""
    least, most = asked.forged_range(targets)
    return share * ((most if direction == "raise" else least) - frequency)


NAMES = ("grr", "sue", "oue", "olh", "subset", "hadamard", "bloom")


def _forged(asked: Mechanism, targets: list[int], direction: str) -> bytes:
    """One report that supports as many (or as few) of the targets as its format lets it, made bit by bit."""
    up = direction == "raise"
    others = [c for c in range(asked.cells) if c not in targets]
    if asked.name == "grr":
        return ((targets if up else others)[0]).to_bytes(asked.report_bytes, "little")
    if isinstance(asked, LocalHash):  # a = 0 hashes every cell to the bucket of b = 0
        return bytes(8) + (0 if up else 1).to_bytes(asked.report_bytes - 8, "little")
    if asked.name == "hadamard":  # coefficient 0 has the same sign in every cell
        return (0 if up else 1).to_bytes(asked.report_bytes, "little")
    if isinstance(asked, SubsetSelection):
        chosen = ([*targets, *others] if up else [*others, *targets])[: asked.size]
        return sum(1 << c for c in chosen).to_bytes(asked.report_bytes, "little")
    if isinstance(asked, BloomRappor):
        row = np.linalg.pinv(asked.filter_matrix().T.astype(float))[targets].sum(axis=0)
        bits = [j for j in range(asked.bits) if (row[j] > 0) == up]
        return sum(1 << j for j in bits).to_bytes(asked.report_bytes, "little")
    return sum(1 << c for c in (targets if up else [])).to_bytes(asked.report_bytes, "little")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("direction", ["raise", "lower"])
@pytest.mark.parametrize("size", [1, 3])
def test_the_bound_is_what_the_worst_attack_reaches(name: str, direction: str, size: int) -> None:
    asked = mechanism(name, 12, 1.5)
    targets = list(range(2, 2 + size))
    n, forgers = 400_000, 20_000
    rng = np.random.default_rng(3)
    honest = rng.multinomial(n - forgers, np.full(12, 1 / 12))
    forged = _forged(asked, targets, direction)
    asked.check_report(forged)
    block = PackedReports(np.tile(np.frombuffer(forged, np.uint8), (forgers, 1)))
    support = kernels.simulate(asked, honest, rng) + kernels.support(asked, block)
    found = kernels.estimate(asked, support, n).frequencies[targets].sum() - size / 12
    expected = manipulation(asked, targets, forgers / n, size / 12, direction)
    honest_noise = math.sqrt(asked.group_variance(size, size / 12, n) + size / 12 / n)
    slack = 3 if name == "bloom" else 1  # its group variance leaves correlations out
    assert abs(found - expected) < 4 * slack * honest_noise
    # A bound that forgot the scaling by p - q (a forger counts as one person) is rejected.
    if direction == "raise":
        assert found - forgers / n > 4 * honest_noise


@pytest.mark.parametrize("name", [n for n in NAMES if n != "bloom"])
def test_no_accepted_report_supports_more(name: str) -> None:
    """Every report of a small question, tried one by one."""
    asked = mechanism(name, 4, 1.0)
    span = 256 if asked.report_bytes == 1 else 0
    if isinstance(asked, LocalHash):
        reports = [
            (a << 28).to_bytes(4, "little") + (b << 28).to_bytes(4, "little") + bytes([g])
            for a in range(16)
            for b in range(16)
            for g in range(asked.buckets)
        ]
    else:
        reports = [bytes([value]) for value in range(span) if _accepted(asked, bytes([value]))]
    assert reports
    for targets in ([0], [1, 2], [0, 1, 3]):
        counts = [
            int(
                kernels.support(asked, PackedReports(np.frombuffer(r, np.uint8)[None, :]))[
                    targets
                ].sum()
            )
            for r in reports
        ]
        assert (min(counts), max(counts)) == asked.support_range(len(targets))


def _accepted(asked: Mechanism, report: bytes) -> bool:
    from dither.errors import ReportError

    try:
        asked.check_report(report)
    except ReportError:
        return False
    return True


def test_closed_forms_of_the_table() -> None:
    b, r, k, f, e = 0.05, 10, 128, 0.1, math.e
    assert manipulation(mechanism("grr", k, 1.0), r, b, f) == pytest.approx(
        b * (1 - f) + b * (k - r) / (e - 1), rel=1e-5
    )
    oue = b * (2 * r - f) + 2 * b * r / (e - 1)
    assert manipulation(mechanism("oue", k, 1.0), r, b, f) == pytest.approx(oue, rel=1e-5)
    root = math.exp(0.5)
    assert manipulation(mechanism("sue", k, 1.0), r, b, f) == pytest.approx(
        b * (r * root / (root - 1) - f), rel=1e-5
    )
    # Five per cent of forgers add more than the whole distribution to ten cells.
    assert oue > 1.5


def test_honest_people_move_nothing_and_forgers_in_proportion() -> None:
    asked = mechanism("oue", 16, 2.0)
    assert manipulation(asked, 2, 0.0, 0.3) == 0.0
    assert manipulation(asked, 2, 0.1, 0.3) == pytest.approx(2 * manipulation(asked, 2, 0.05, 0.3))
    assert manipulation(asked, 2, 0.1, direction="lower") < 0 < manipulation(asked, 2, 0.1)


def test_the_bound_is_the_shift_of_the_pooled_estimate() -> None:
    schema = Schema((Attribute("a", "ordinal", (1, 2)), Attribute("b", "ordinal", (1, 2, 3, 4))))
    asked = question(schema, ["a"], 1.0, "grr")
    share, n = 0.05, 20_000
    forged = int(share * n)
    p, q = float(asked.mechanism.p), float(asked.mechanism.q)
    counts = np.rint((n - forged) * np.array([0.3 * p + 0.7 * q, 0.7 * p + 0.3 * q])).astype(
        np.int64
    )
    before = pool(schema, [AnswerCounts(asked, counts, n - forged)], ["a"]).frequencies
    counts[0] += forged
    after = pool(schema, [AnswerCounts(asked, counts, n)], ["a"]).frequencies
    tally = CountTally(Plan(0, (asked,), (1.0,)), np.array([n]), [counts])
    found = set_bound(schema, [tally], "a", after, shares=(share,))
    assert found is not None
    # With two values raising one and lowering the other are the same, and neither is cut at zero.
    other = share / (1 - share) * (after[0] + q / (p - q))
    assert found[share] == pytest.approx(max(after[0] - before[0], other), rel=1e-6)
    assert set_bound(schema, [tally], "b", np.zeros(4)) is None


@pytest.mark.parametrize("name", ["grr", "oue", "subset"])
def test_no_projected_set_moves_further(name: str) -> None:
    """Random tables, forged reports and sets, most of them with cells that the projection cuts at zero."""
    k, n, forged = 9, 1000, 60
    schema = Schema((Attribute("a", "ordinal", tuple(range(k))),))
    asked = question(schema, ["a"], 1.0, name)
    mechanism_ = asked.mechanism
    plan, rng = Plan(0, (asked,), (1.0,)), np.random.default_rng(5)
    share, nearest, beyond_one_value = forged / n, 0.0, 0
    for _ in range(150):
        honest = kernels.simulate(
            mechanism_, rng.multinomial(n - forged, rng.dirichlet(np.full(k, 0.3))), rng
        )
        targets = rng.permutation(k)[: rng.integers(1, k)].tolist()
        report = _forged(mechanism_, targets, "raise")
        block = PackedReports(np.tile(np.frombuffer(report, np.uint8), (forged, 1)))
        counts = honest + kernels.support(mechanism_, block)
        before, after = (
            kernels.estimate(mechanism_, c, size).frequencies
            for c, size in ((honest, n - forged), (counts, n))
        )
        found = set_bound(
            schema, [CountTally(plan, np.array([n]), [counts])], "a", after, shares=(share,)
        )
        assert found is not None
        # Half the sum of absolute differences is the move of the set that moves most.
        moved = np.abs(norm_sub(after) - norm_sub(before)).sum() / 2
        assert moved <= found[share] + 1e-9
        nearest = max(nearest, moved / found[share])
        beyond_one_value += moved > (after - before).max()
    assert nearest > 0.5  # the bound is not idle
    # A report of randomised response names one value; others move sets further than any single value.
    assert name == "grr" or beyond_one_value > 10


def test_no_bound_exceeds_one() -> None:
    schema = Schema((Attribute("a", "ordinal", tuple(range(60))),))
    asked = question(schema, ["a"], 0.3, "grr")
    tally = CountTally(Plan(0, (asked,), (1.0,)), np.array([6000]), [np.full(60, 100, np.int64)])
    found = set_bound(schema, [tally], "a", np.full(60, 1 / 60), shares=(0.001, 0.05))
    assert found is not None
    assert found[0.001] < found[0.05] == 1
