"""One contract for all mechanisms: exact epsilon, fixed sizes, equal laws on both paths, known bias and variance."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import chi2

from dither.errors import ParameterError, ReportError
from dither.mechanisms import (
    GRR,
    BloomRappor,
    LocalHash,
    Mechanism,
    SubsetSelection,
    Unary,
    mechanism,
    mechanism_from_json,
)
from dither.mechanisms.kernels.stream import RandomStream

NAMES = ("grr", "sue", "oue", "olh", "subset", "bloom")
EPSILONS = (0.01, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)


def small_build(name: str, cells: int, epsilon: float) -> Mechanism:
    """The same mechanism with 16-bit thresholds, so that every draw can be tried."""
    from dither.mechanisms import oue, sue

    builders: dict[str, Callable[[], Mechanism]] = {
        "grr": lambda: GRR.for_epsilon(cells, epsilon, 16),
        "sue": lambda: sue(cells, epsilon, 16),
        "oue": lambda: oue(cells, epsilon, 16),
        "olh": lambda: LocalHash.for_epsilon(cells, epsilon, threshold_bits=16),
        "subset": lambda: SubsetSelection.for_epsilon(cells, epsilon, threshold_bits=16),
        "bloom": lambda: BloomRappor.for_epsilon(cells, epsilon, 8, 2, threshold_bits=16),
    }
    return builders[name]()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_achieved_epsilon_is_exact_and_never_above_what_was_asked(name: str, epsilon: float) -> None:
    for cells in range(2, 65):
        built = mechanism(name, cells, epsilon)
        assert built.epsilon <= epsilon
        assert built.epsilon > epsilon - 2e-6 * max(cells, 2), "privacy is kept but accuracy is given away"
        assert 0 < built.q < built.p < 1
        # The ratio that the thresholds give, against e^epsilon enclosed by a Taylor series in rational arithmetic.
        assert likelihood_ratio(built) <= exponential_above(epsilon)


def likelihood_ratio(built: Mechanism) -> Fraction:
    """The largest ratio of a report's probabilities under two values, derived here from the definition of each mechanism."""
    if isinstance(built, GRR):
        return built.p / built.q
    if isinstance(built, Unary):
        return (built.p / built.q) * ((1 - built.q) / (1 - built.p))
    if isinstance(built, LocalHash):
        return Fraction(built.keep, built.other)
    if isinstance(built, SubsetSelection):
        return Fraction(built.covering * (built.cells - built.size), built.left)
    assert isinstance(built, BloomRappor)
    return (built.p / built.q) ** built.distance


def exponential_above(epsilon: float) -> Fraction:
    """An upper bound of e^epsilon within 1e-30 of it, by Taylor series with its remainder."""
    x = Fraction(epsilon)
    term, total, i = Fraction(1), Fraction(1), 0
    while i < 80:
        i += 1
        term = term * x / i
        total += term
    return total + term  # the remainder is below the last term once i > 2 epsilon


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cells", [2, 5, 16])
def test_bytes_consumed_and_report_length_do_not_depend_on_the_value(name: str, cells: int) -> None:
    built = mechanism(name, cells, 1.0)
    for value in range(cells):
        taken: list[int] = []

        def source(count: int, taken: list[int] = taken) -> bytes:
            taken.append(count)
            return secrets.token_bytes(count)

        report = built.randomise(value, source)
        assert taken == [built.draw_bytes]
        assert len(report) == built.report_bytes
        built.check_report(report)


@pytest.mark.parametrize("name", NAMES)
def test_every_draw_of_a_sixteen_bit_build_gives_exactly_the_stated_probabilities(name: str) -> None:
    cells = 5
    built = small_build(name, cells, 1.2)
    probabilities = [exhaustive_report_law(built, value) for value in range(cells)]
    worst = Fraction(1)
    for law in probabilities:
        assert sum(law.values()) == 1
    for first, second in product(probabilities, repeat=2):
        assert set(first) == set(second), "a report that only one value can send would identify it"
        worst = max(worst, *(first[r] / second[r] for r in first))
    assert worst <= exponential_above(built.epsilon)
    if name not in ("subset", "bloom"):  # whose stated ratio is that over all orders, or of the farthest filters
        assert math.log(worst) == pytest.approx(built.epsilon, abs=1e-12)
    if name == "bloom":
        return
    for value, other in product(range(cells), repeat=2):
        chance = sum((p for r, p in probabilities[value].items() if supports(built, r, other)), Fraction(0))
        if value == other:
            assert chance == built.p
        elif name not in ("olh", "subset"):  # whose q is over all hash functions and orders, checked below
            assert chance == built.q


def test_local_hashing_q_is_exact_over_all_hash_functions() -> None:
    built = LocalHash.for_epsilon(9, 1.3, buckets=7)
    # a = 0 and b = v << 16 gives the hash value v, so the real function is counted over all values.
    widths = Counter(built.bucket(0, v << 16, 3) for v in range(2**16))
    assert sum(widths.values()) == 2**16
    other = Fraction(built.other, 2**32)
    q = sum(
        Fraction(widths[r] * widths[s], 2**32) * (built.p if r == s else other) for r, s in product(range(7), repeat=2)
    )
    assert built.q == q


def test_the_hash_family_is_strongly_universal() -> None:
    """((a x + b) mod 2^W) >> (W-l) for keys below 2^(W-l+1): every pair of hash values equally often, tried whole at W = 8."""
    word, out = 8, 4
    a, b = np.meshgrid(np.arange(2**word), np.arange(2**word))
    hashed = {x: ((a * x + b) % 2**word) >> (word - out) for x in range(2 ** (word - out + 1))}
    for x, y in ((0, 1), (1, 2), (3, 19), (15, 31), (0, 16), (7, 8)):
        pairs = np.bincount((hashed[x] * 2**out + hashed[y]).ravel(), minlength=2 ** (2 * out))
        assert (pairs == 2 ** (2 * word - 2 * out)).all()


def test_subset_selection_holds_each_other_cell_with_q_exactly_over_all_orders() -> None:
    built = SubsetSelection.for_epsilon(5, 0.8, threshold_bits=16)
    assert built.size > 1
    value = 1
    inside: Counter[int] = Counter()
    for order in permutations(range(5)):
        position = order.index(value)
        starts = STARTS.setdefault(position, Counter(built.arc_start(position, draw) for draw in range(2**16)))
        for start, weight in starts.items():
            for step in range(built.size):
                inside[order[(start + step) % 5]] += weight
    total = 120 * 2**16
    assert Fraction(inside[value], total) == built.p
    assert all(Fraction(inside[c], total) == built.q for c in range(5) if c != value)


STARTS: dict[int, Counter[int]] = {}


def supports(built: Mechanism, report: bytes, cell: int) -> bool:
    if isinstance(built, GRR):
        return int.from_bytes(report, "little") == cell
    if isinstance(built, LocalHash):
        a, b = int.from_bytes(report[:4], "little"), int.from_bytes(report[4:8], "little")
        return built.bucket(a, b, cell) == report[8]
    return bool(int.from_bytes(report, "little") >> cell & 1)


def exhaustive_report_law(built: Mechanism, value: int) -> dict[bytes, Fraction]:
    """The exact law of a report by trying every 16-bit draw of the real `randomise`."""
    if isinstance(built, (Unary, BloomRappor)):
        bits = built.counters
        chances = []
        for bit in range(bits):
            # One bit's draw runs through all values while the others stay at the largest draw, which sets nothing.
            hits = 0
            for draw in range(2**16):
                data = b"\xff\xff" * bit + draw.to_bytes(2, "little") + b"\xff\xff" * (bits - bit - 1)
                hits += built.randomise(value, lambda _count, data=data: data)[bit // 8] >> (bit % 8) & 1
            chances.append(Fraction(hits, 2**16))
        law = {}
        for pattern in product((0, 1), repeat=bits):
            chance = math.prod((c if b else 1 - c for c, b in zip(chances, pattern, strict=True)), start=Fraction(1))
            law[sum(b << i for i, b in enumerate(pattern)).to_bytes(built.report_bytes, "little")] = chance
        return law
    prefixes = [b""]
    if isinstance(built, LocalHash):  # two hash functions, the whole draw of each
        prefixes = [
            a.to_bytes(4, "little") + b.to_bytes(4, "little") for a, b in ((1 << 16, 7 << 16), (12345 << 16, 99 << 16))
        ]
    if isinstance(built, SubsetSelection):
        prefixes = [b"".join(((i * 3) % 5).to_bytes(8, "little") for i in range(5))]
    counts: Counter[bytes] = Counter()
    for prefix in prefixes:
        for draw in range(2**16):
            data = prefix + draw.to_bytes(2, "little")
            counts[built.randomise(value, lambda _count, data=data: data)] += 1
    return {report: Fraction(c, len(prefixes) * 2**16) for report, c in counts.items()}


@pytest.mark.parametrize("name", NAMES)
def test_round_trip_through_json(name: str) -> None:
    built = mechanism(name, 9, 0.7)
    assert mechanism_from_json(built.to_json()) == built
    broken = {**built.to_json(), "cells": "9"}
    with pytest.raises(ReportError):
        mechanism_from_json(broken)
    with pytest.raises(ReportError):
        mechanism_from_json({k: v for k, v in built.to_json().items() if k != "cells"})


@pytest.mark.parametrize("name", NAMES)
def test_values_outside_the_domain_are_refused(name: str) -> None:
    built = mechanism(name, 4, 1.0)
    for value in (-1, 4):
        with pytest.raises(ParameterError, match=str(value)):
            built.randomise(value, secrets.token_bytes)
        with pytest.raises(ParameterError, match=str(value)):
            built.randomise_many(np.array([0, value]), RandomStream.from_seed(0))
    with pytest.raises(ReportError):
        built.check_report(bytes(built.report_bytes + 1))


def z_scores(built: Mechanism, estimate: np.ndarray, truth: np.ndarray, n: int) -> np.ndarray:
    if isinstance(built, BloomRappor):
        errors = built.estimate(np.zeros(built.bits, np.int64), n).standard_errors
    else:
        errors = np.sqrt([built.variance(float(f), n) for f in truth])
    return (estimate - truth) / errors


N = 1_000_000


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["reports", "counts"])
def test_unbiased_with_the_stated_variance_for_a_million_people(name: str, path: str) -> None:
    cells, repeats = 12, 40 if path == "counts" else 15
    built = mechanism(name, cells, 1.0)
    scores = scored_runs(built, built, path, cells, repeats)
    # Cell by cell: the mean of `repeats` standard normals has standard deviation 1/sqrt(repeats).
    assert np.abs(scores.mean(axis=0)).max() < 4.5 / math.sqrt(repeats)
    # Cells correlate (sets of fixed size), so the variance is checked cell by cell over independent runs.
    ratio = (scores**2).sum(axis=0)
    low, high = chi2.ppf([1e-6, 1 - 1e-6], repeats)
    assert ((ratio > low) & (ratio < high)).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_with_epsilon_five_per_cent_off_is_rejected(name: str) -> None:
    """Reports made at 1.05 epsilon but read as if at epsilon: the check above must fail."""
    cells, repeats = 12, 40
    honest, mutant = mechanism(name, cells, 1.0), mechanism(name, cells, 1.05)
    if isinstance(honest, SubsetSelection) and isinstance(mutant, SubsetSelection):
        mutant = SubsetSelection.for_epsilon(cells, 1.05, honest.size)
    scores = scored_runs(mutant, honest, "counts", cells, repeats)
    assert np.abs(scores.mean(axis=0)).max() > 4.5 / math.sqrt(repeats)


def scored_runs(maker: Mechanism, reader: Mechanism, path: str, cells: int, repeats: int) -> np.ndarray:
    """Standardised errors of `repeats` collections of a million people with unequal frequencies."""
    rng = np.random.default_rng(5)
    truth = np.arange(1, cells + 1) ** 2.0
    counts = np.floor(truth / truth.sum() * N).astype(np.int64)
    counts[-1] += N - counts.sum()
    values = np.repeat(np.arange(cells), counts)
    scores = []
    for run in range(repeats):
        if path == "counts":
            tally = maker.simulate(counts, rng)
        else:
            tally = maker.support(maker.randomise_many(values, RandomStream.from_seed("contract", run)))
        scores.append(z_scores(reader, reader.estimate(tally, N).frequencies, counts / N, N))
    return np.array(scores)


@pytest.mark.parametrize("name", NAMES)
def test_scalar_reports_follow_the_same_law_as_vectorised_ones(name: str) -> None:
    cells, n = 6, 20_000
    built = mechanism(name, cells, 1.5)
    stream = RandomStream.from_seed("scalar", name)
    value = 2
    rows = np.frombuffer(b"".join(built.randomise(value, stream) for _ in range(n)), np.uint8).reshape(n, -1)
    from dither.mechanisms import PackedReports

    scalar = built.support(PackedReports(rows))
    fleet = built.support(built.randomise_many(np.full(n, value), stream))
    counted = built.simulate(np.bincount([value] * n, minlength=cells), np.random.default_rng(3))
    for tally in (fleet, counted):
        spread = np.sqrt(np.maximum(scalar * (1 - scalar / n), 1) + np.maximum(tally * (1 - tally / n), 1))
        assert (np.abs(scalar - tally) / spread).max() < 4.5


@pytest.mark.parametrize("name", NAMES)
def test_joint_law_of_supports_is_the_same_on_both_paths(name: str) -> None:
    """Not just each cell: the covariance of the tally over repeated collections agrees (fixed-size sets, hashes)."""
    cells, n, repeats = 4, 200, 3_000
    built = mechanism(name, cells, 1.0)
    counts = np.array([100, 60, 30, 10])
    values = np.repeat(np.arange(cells), counts)
    rng = np.random.default_rng(8)
    stream = RandomStream.from_seed("joint", name)
    people = built.randomise_many(np.tile(values, repeats), stream).rows.reshape(repeats, n, -1)
    from dither.mechanisms import PackedReports

    made = np.array([built.support(PackedReports(np.ascontiguousarray(rows))) for rows in people])
    drawn = np.array([built.simulate(counts, rng) for _ in range(repeats)])
    a, b = np.cov(made.T), np.cov(drawn.T)
    scale = np.sqrt(np.outer(np.diag(a), np.diag(a)))
    # A sample covariance has a standard error of about sqrt(2/repeats) of the scale; two of them are compared.
    assert (np.abs(a - b) / scale).max() < 5 * math.sqrt(2 * 2 / repeats)


@pytest.mark.parametrize("name", ["grr", "sue", "oue", "subset"])
def test_variance_of_summed_cells_is_exact(name: str) -> None:
    cells, repeats = 8, 20_000
    built = mechanism(name, cells, 1.0)
    counts = np.array([50, 10, 5, 20, 5, 5, 3, 2])
    rng = np.random.default_rng(4)
    if name == "subset":
        repeats = 4_000
    sums = [built.estimate(built.simulate(counts, rng), 100).frequencies[1:5].sum() for _ in range(repeats)]
    stated = built.group_variance(4, counts[1:5].sum() / 100, 100)
    low, high = chi2.ppf([1e-6, 1 - 1e-6], repeats - 1) / (repeats - 1)
    assert low < np.var(sums, ddof=1) / stated < high
    assert built.group_variance(1, 0.3, 100) == pytest.approx(built.variance(0.3, 100))
