"""One contract for all mechanisms of the registry: exact law and epsilon, fixed sizes, equal laws on both paths, known
bias, covariance and worst forgery. Those of cells come first, those for means after them, what both share last.
"""

from __future__ import annotations

import json
import math
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dither.errors import ParameterError, ReportError
from dither.mechanisms import (
    MEANS,
    MECHANISMS,
    NAMES,
    BloomRappor,
    Duchi,
    DuchiVector,
    Hadamard,
    Hybrid,
    LocalHash,
    MeanMechanism,
    Mechanism,
    MultiMean,
    PackedReports,
    Piecewise,
    PureMechanism,
    Randomiser,
    SetStrategy,
    SquareWave,
    SubsetSelection,
    Unary,
    Window,
    kernels,
    log_up,
    mean_from_json,
    mechanism,
    mechanism_from_json,
)
from dither.randomness import RandomStream

BY_NAME = tuple(name for name in NAMES if name != "best")
EPSILONS = (0.01, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)


def halves(cells: int, epsilon: float, threshold_bits: int = 32) -> SetStrategy:
    """A strategy of every cell alone and of the lower half."""
    sets, ratio = [*(1 << cell for cell in range(cells)), (1 << cells // 2) - 1], math.exp(epsilon)
    weights = [0.6 / (ratio + cells - 1)] * cells + [0.2 / ratio]
    return SetStrategy.for_epsilon(cells, sets, weights, epsilon, threshold_bits)


def small_filters(cells: int, epsilon: float, threshold_bits: int = 32) -> BloomRappor:
    """Filters whose law can be written out."""
    return BloomRappor.for_epsilon(cells, epsilon, cells + 3, 2, threshold_bits=threshold_bits)


# How to build what is not built by name, and what is too large to be written out.
OTHERWISE: dict[str, Callable[..., Mechanism]] = {
    "bloom": small_filters,
    "square-wave": SquareWave.for_epsilon,
    "strategy": halves,
}


def small(name: str, cells: int = 5, epsilon: float = 1.2, threshold_bits: int = 16) -> Mechanism:
    """A mechanism with short thresholds, so that every draw can be tried and every report written out."""
    build = OTHERWISE.get(name) or MECHANISMS[name].build
    assert build is not None, f"{name} needs a way to be built here"
    return build(cells, epsilon, threshold_bits=threshold_bits)


def usual(name: str, cells: int, epsilon: float) -> Mechanism:
    return mechanism(name, cells, epsilon) if name in NAMES else small(name, cells, epsilon, 32)


def worst_ratio(laws: list[dict[bytes, Fraction]]) -> Fraction:
    """The largest ratio of one report's probabilities under two inputs."""
    assert all(set(law) == set(laws[0]) for law in laws), (
        "a report that only one input can send would identify it"
    )
    return max(max(law[r] for law in laws) / min(law[r] for law in laws) for r in laws[0])


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_achieved_epsilon_is_exact_and_never_above_what_was_asked(
    name: str, epsilon: float
) -> None:
    for cells in range(2, 65):
        built = mechanism(name, cells, epsilon)
        assert built.epsilon <= epsilon
        assert built.epsilon > epsilon - 2e-6 * max(cells, 2), (
            "privacy is kept but accuracy is given away"
        )
        assert 0 < built.q < built.p < 1
        # The ratio that the thresholds give, against e^epsilon enclosed by a Taylor series in rational arithmetic.
        assert built.ratio <= exponential_above(epsilon)


def exponential_above(epsilon: float) -> Fraction:
    """An upper bound of e^epsilon within 1e-30 of it, by Taylor series with its remainder."""
    x = Fraction(epsilon)
    term, total, i = Fraction(1), Fraction(1), 0
    while i < 80:
        i += 1
        term = term * x / i
        total += term
    return total + term  # the remainder is below the last term once i > 2 epsilon


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("cells", [2, 5, 16])
def test_bytes_consumed_and_report_length_do_not_depend_on_the_value(name: str, cells: int) -> None:
    built = usual(name, cells, 1.0)
    for value in range(cells):
        taken: list[int] = []

        def source(count: int, taken: list[int] = taken) -> bytes:
            taken.append(count)
            return secrets.token_bytes(count)

        report = built.randomise(value, source)
        assert taken == [built.draw_bytes]
        assert len(report) == built.report_bytes == math.ceil(built.report_bits / 8)
        built.check_report(report)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("cells", [2, 4, 5])
def test_the_law_adds_up_to_one_and_gives_the_stated_epsilon(name: str, cells: int) -> None:
    built = small(name, cells)
    laws = [built.law(value) for value in range(cells)]
    assert all(sum(law.values()) == 1 for law in laws)
    worst = worst_ratio(laws)
    assert worst <= built.ratio
    if name == "subset":  # whose stated ratio counts in how unequal the orders of tied keys can be
        assert built.epsilon == pytest.approx(log_up(worst), abs=1e-12)
    else:
        assert built.epsilon == log_up(worst)
    if isinstance(built, PureMechanism) and name not in (
        "olh",
        "subset",
    ):  # whose q is over all hashes and orders
        for value, other in product(range(cells), repeat=2):
            chance = sum(p for report, p in laws[value].items() if built.supports(report, other))
            assert chance == (built.p if value == other else built.q)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_law_is_that_of_every_draw(name: str) -> None:
    built = small(name)
    for value in (0, 3):
        if name == "subset":  # over all orders: the test below, and tests/security
            continue
        tried = exhaustive_law(built, value)
        stated = {report: chance for report, chance in built.law(value).items() if report in tried}
        total = sum(stated.values())
        assert tried == {report: chance / total for report, chance in stated.items()}


def exhaustive_law(built: Mechanism, value: int) -> dict[bytes, Fraction]:
    """The exact law of a report by trying every 16-bit draw of the real `randomise`."""
    if isinstance(built, (Unary, BloomRappor)):
        bits = built.counters
        chances = []
        for bit in range(bits):
            # One bit's draw runs through all values while the others stay at the largest draw, which sets nothing.
            hits = 0
            for draw in range(2**16):
                data = (
                    b"\xff\xff" * bit + draw.to_bytes(2, "little") + b"\xff\xff" * (bits - bit - 1)
                )
                hits += (
                    built.randomise(value, lambda _count, data=data: data)[bit // 8] >> (bit % 8)
                    & 1
                )
            chances.append(Fraction(hits, 2**16))
        law = {}
        for pattern in product((0, 1), repeat=bits):
            chance = math.prod(
                (c if b else 1 - c for c, b in zip(chances, pattern, strict=True)),
                start=Fraction(1),
            )
            law[
                sum(b << i for i, b in enumerate(pattern)).to_bytes(built.report_bytes, "little")
            ] = chance
        return law
    prefixes = [b""]
    if isinstance(built, LocalHash):  # the hash function that `law` takes
        prefixes = [(2**32 // built.cells).to_bytes(4, "little") + bytes(4)]
    if isinstance(built, Hadamard):  # two coefficients
        prefixes = [b"\x03", b"\x05"]
    counts: Counter[bytes] = Counter()
    for prefix in prefixes:
        for draw in range(2**16):
            data = prefix + draw.to_bytes(2, "little")
            counts[built.randomise(value, lambda _count, data=data: data)] += 1
    return {report: Fraction(c, len(prefixes) * 2**16) for report, c in counts.items()}


def test_local_hashing_q_is_exact_over_all_hash_functions() -> None:
    built = LocalHash.for_epsilon(9, 1.3, buckets=7)
    # a = 0 and b = v << 16 gives the hash value v, so the real function is counted over all values.
    widths = Counter(built.bucket(0, v << 16, 3) for v in range(2**16))
    assert sum(widths.values()) == 2**16
    other = Fraction(built.other, 2**32)
    q = sum(
        Fraction(widths[r] * widths[s], 2**32) * (built.p if r == s else other)
        for r, s in product(range(7), repeat=2)
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


@pytest.mark.slow
def test_subset_selection_holds_each_other_cell_with_q_exactly_over_all_orders() -> None:
    built = SubsetSelection.for_epsilon(5, 0.8, threshold_bits=16)
    assert built.size > 1
    value, inside, starts = 1, Counter[int](), {}
    for order in permutations(range(5)):
        position = order.index(value)
        if position not in starts:
            starts[position] = Counter(built.arc_start(position, draw) for draw in range(2**16))
        for start, weight in starts[position].items():
            for step in range(built.size):
                inside[order[(start + step) % 5]] += weight
    total = 120 * 2**16
    assert Fraction(inside[value], total) == built.p
    assert all(Fraction(inside[c], total) == built.q for c in range(5) if c != value)


# --------------------
# What a report adds to the estimates, over all reports of the law: mean, covariance, worst forgery, telling reports.

EXACT = [
    name for name in MECHANISMS if name != "olh"
]  # whose law is given the hash; the tests by chance below have it


def contributions(built: Mechanism) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Every report, its chance under each cell (reports x cells) and what it adds to each cell's estimate."""
    laws = [built.law(value) for value in range(built.cells)]
    reports = list(laws[0])
    chances = np.array([[float(law[r]) for law in laws] for r in reports])
    added = [
        kernels.estimate(built, kernels.support(built, packed(r)), 1).frequencies for r in reports
    ]
    return reports, chances, np.array(added)


def packed(*reports: bytes) -> PackedReports:
    return PackedReports(
        np.frombuffer(b"".join(reports), np.uint8).reshape(len(reports), -1).copy()
    )


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("cells", [2, 5])
def test_estimates_are_unbiased_with_the_stated_covariance(name: str, cells: int) -> None:
    built = small(name, cells)
    _, chances, added = contributions(built)
    assert chances.T @ added == pytest.approx(np.eye(cells), abs=1e-9)
    rng = np.random.default_rng(2)
    frequencies = rng.dirichlet(np.ones(cells))
    for weights in (*np.eye(cells), np.ones(cells), rng.normal(size=cells)):
        by_cell = chances.T @ (added @ weights) ** 2 - weights**2
        assert built.weighted_variance(weights, frequencies, 7) == pytest.approx(
            by_cell @ frequencies / 7, abs=1e-12
        )
        assert built.weighted_variance(weights, frequencies, 14) * 2 == pytest.approx(
            by_cell @ frequencies / 7, abs=1e-12
        )


@pytest.mark.parametrize(
    "name", [name for name in EXACT if name != "bloom"]
)  # which neglects correlations
@pytest.mark.parametrize("cells", [2, 5])
def test_variances_of_groups_are_the_mean_over_all_groups(name: str, cells: int) -> None:
    built = small(name, cells)
    _, chances, added = contributions(built)
    totals = []
    for size in range(1, cells + 1):
        inside, outside = [], []
        for group in combinations(range(cells), size):
            spread = chances.T @ added[:, group].sum(axis=1) ** 2
            for cell in range(cells):
                (inside if cell in group else outside).append(spread[cell] - (cell in group))
        for f in (0.0, 0.3, 1.0) if outside else (1.0,):
            expected = f * np.mean(inside) + (1 - f) * (np.mean(outside) if outside else 0.0)
            assert built.group_variance(size, f, 3) == pytest.approx(expected / 3, abs=1e-9)
        totals.append(built.group_variance(1, 1 / cells, 1))
    assert built.variance(0.3, 100) == pytest.approx(built.group_variance(1, 0.3, 100))
    assert built.total_variance == pytest.approx(cells * totals[0])


@pytest.mark.parametrize("name", EXACT)
def test_no_report_adds_more_or_less_than_the_stated_range(name: str) -> None:
    built = small(name)
    _, _, added = contributions(built)
    for size in (1, 2, 4, 5):
        sums = {group: added[:, group].sum(axis=1) for group in combinations(range(5), size)}
        for group, found in sums.items():
            assert built.forged_range(list(group)) == pytest.approx((found.min(), found.max()))
        low, high = built.forged_range(size)
        worst = (
            min(found.min() for found in sums.values()),
            max(found.max() for found in sums.values()),
        )
        if name == "bloom":  # r times the worst cell's
            assert low <= worst[0] + 1e-9
            assert high >= worst[1] - 1e-9
        else:
            assert (low, high) == pytest.approx(worst)


@pytest.mark.parametrize("name", MECHANISMS)
def test_telling_reports_have_the_largest_ratio(name: str) -> None:
    built = small(name)
    first, second = built.most_distinct_cells
    laws = built.law(first), built.law(second)
    ratios = {report: laws[0][report] / laws[1][report] for report in laws[0]}
    told = [
        ratio
        for report, ratio in ratios.items()
        if built.distinguishing_event(first, second)(report)
    ]
    assert told
    assert float(min(told)) == pytest.approx(float(max(ratios.values())))


# --------------------
# By chance: many people, on both paths.

N = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("path", ["reports", "counts"])
def test_unbiased_with_the_stated_variance_for_a_million_people(name: str, path: str) -> None:
    cells, repeats = 12, 40 if path == "counts" else 15
    built = usual(name, cells, 1.0)
    scores = scored_runs(built, built, path, cells, repeats)
    # Cell by cell: the mean of `repeats` standard normals has standard deviation 1/sqrt(repeats).
    assert np.abs(scores.mean(axis=0)).max() < 4.5 / math.sqrt(repeats)
    # Cells correlate (sets of fixed size), so the variance is checked cell by cell over independent runs.
    ratio = (scores**2).sum(axis=0)
    low, high = chi2.ppf([1e-6, 1 - 1e-6], repeats)
    assert ((ratio > low) & (ratio < high)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mutant_with_epsilon_five_per_cent_off_is_rejected(name: str) -> None:
    """Reports made at 1.05 epsilon but read as if at epsilon: the check above must fail."""
    cells, repeats = 12, 40
    honest, mutant = usual(name, cells, 1.0), usual(name, cells, 1.05)
    if isinstance(honest, SubsetSelection):
        mutant = SubsetSelection.for_epsilon(cells, 1.05, honest.size)
    if isinstance(honest, SquareWave):
        base = Window.for_epsilon(cells, honest.width, 1.05).base
        mutant = SquareWave(cells, honest.width, base)
    scores = scored_runs(mutant, honest, "counts", cells, repeats)
    assert np.abs(scores.mean(axis=0)).max() > 4.5 / math.sqrt(repeats)


def scored_runs(
    maker: Mechanism, reader: Mechanism, path: str, cells: int, repeats: int
) -> np.ndarray:
    """Standardised errors of `repeats` collections of a million people with unequal frequencies."""
    rng = np.random.default_rng(5)
    truth = np.arange(1, cells + 1) ** 2.0
    counts = np.floor(truth / truth.sum() * N).astype(np.int64)
    counts[-1] += N - counts.sum()
    values = np.repeat(np.arange(cells), counts)
    errors = np.sqrt([reader.weighted_variance(unit, counts / N, N) for unit in np.eye(cells)])
    scores = []
    for run in range(repeats):
        if path == "counts":
            tally = kernels.simulate(maker, counts, rng)
        else:
            tally = kernels.support(
                maker, kernels.randomise(maker, values, RandomStream.from_seed("contract", run))
            )
        found = kernels.estimate(reader, tally, N)
        assert found.standard_errors == pytest.approx(errors, rel=0.05)
        scores.append((found.frequencies - counts / N) / errors)
    return np.array(scores)


@pytest.mark.parametrize("name", MECHANISMS)
def test_scalar_reports_follow_the_same_law_as_vectorised_ones(name: str) -> None:
    cells, n = 6, 20_000
    built = usual(name, cells, 1.5)
    stream = RandomStream.from_seed("scalar", name)
    value = 2
    scalar = kernels.support(built, packed(*(built.randomise(value, stream) for _ in range(n))))
    fleet = kernels.support(built, kernels.randomise(built, np.full(n, value), stream))
    counted = kernels.simulate(
        built, np.bincount([value] * n, minlength=cells), np.random.default_rng(3)
    )
    for tally in (fleet, counted):
        spread = np.sqrt(
            np.maximum(scalar * (1 - scalar / n), 1) + np.maximum(tally * (1 - tally / n), 1)
        )
        assert (np.abs(scalar - tally) / spread).max() < 4.5


@pytest.mark.parametrize("name", ["grr", "square-wave", "strategy"])
def test_where_one_draw_makes_a_report_people_and_batches_draw_alike(name: str) -> None:
    built, cells = usual(name, 7, 1.3), np.arange(700) % 7
    rows = kernels.randomise(built, cells, RandomStream.from_seed(1)).rows
    source = RandomStream.from_seed(1)
    assert [bytes(row) for row in rows] == [built.randomise(int(cell), source) for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_joint_law_of_supports_is_the_same_on_both_paths(name: str) -> None:
    """Not just each cell: the covariance of the tally over repeated collections agrees (fixed-size sets, hashes)."""
    cells, n, repeats = 4, 200, 3_000
    built = usual(name, cells, 1.0)
    counts = np.array([100, 60, 30, 10])
    values = np.repeat(np.arange(cells), counts)
    rng = np.random.default_rng(8)
    stream = RandomStream.from_seed("joint", name)
    people = kernels.randomise(built, np.tile(values, repeats), stream).rows.reshape(repeats, n, -1)
    made = np.array(
        [kernels.support(built, PackedReports(np.ascontiguousarray(rows))) for rows in people]
    )
    drawn = np.array([kernels.simulate(built, counts, rng) for _ in range(repeats)])
    a, b = np.cov(made.T), np.cov(drawn.T)
    scale = np.sqrt(np.outer(np.diag(a), np.diag(a)))
    # A sample covariance has a standard error of about sqrt(2/repeats) of the scale; two of them are compared.
    compared = scale > 1e-3  # a strategy's last output takes up rounding only: it hardly ever comes
    assert (np.abs(a - b)[compared] / scale[compared]).max() < 5 * math.sqrt(2 * 2 / repeats)


@pytest.mark.parametrize("name", MECHANISMS)
def test_values_outside_the_domain_are_refused(name: str) -> None:
    built = usual(name, 4, 1.0)
    for value in (-1, 4):
        with pytest.raises(ParameterError, match=str(value)):
            built.randomise(value, secrets.token_bytes)
        with pytest.raises(ParameterError, match=str(value)):
            built.law(value)
        with pytest.raises(ParameterError, match=str(value)):
            kernels.randomise(built, np.array([0, value]), RandomStream.from_seed(0))
    for support, n in (
        (np.zeros(built.counters + 1, np.int64), 5),
        (np.zeros(built.counters, np.int64), 0),
    ):
        with pytest.raises(ParameterError):
            kernels.estimate(built, support, n)


# --------------------
# Means: a number in [-1, 1] per attribute is rounded to a level, and the levels have an exact law.


def means(threshold_bits: int = 16, levels: int = 5) -> dict[str, MeanMechanism]:
    """Small builds of every mechanism for means."""
    hybrid = Hybrid.for_epsilon(1.2, levels, threshold_bits)
    return {
        "duchi": Duchi.for_epsilon(1.2, levels, threshold_bits),
        "piecewise": Piecewise.for_epsilon(1.2, levels, threshold_bits),
        "hybrid": hybrid,
        "duchi-vector": DuchiVector.for_epsilon(4, 1.2, threshold_bits),
        "several-means": MultiMean(3, 2, hybrid),
    }


def every_record(built: MeanMechanism) -> list[tuple[int, ...]]:
    """The levels of every record; for several attributes of a fine grid the ends and the middle."""
    kept = (
        range(built.levels)
        if built.attributes == 1
        else sorted({0, built.levels // 2, built.levels - 1})
    )
    return list(product(kept, repeat=built.attributes))


def on_level(built: MeanMechanism, levels: tuple[int, ...]) -> list[Fraction]:
    return [Fraction(2 * level, built.levels - 1) - 1 for level in levels]


@pytest.mark.parametrize("name", MEANS)
def test_the_law_of_levels_gives_the_stated_epsilon_and_exactly_unbiased_numbers(name: str) -> None:
    built = means()[name]
    laws = [built.law(levels) for levels in every_record(built)]
    assert all(sum(law.values()) == 1 for law in laws)
    assert built.epsilon == log_up(worst_ratio(laws)) <= 1.2 * (2 if name == "several-means" else 1)
    for levels, law in zip(every_record(built), laws, strict=True):
        for place, truth in enumerate(on_level(built, levels)):
            told = [(p, built.numbers_in(report)[place]) for report, p in law.items()]
            known = [(p, number) for p, number in told if number is not None]
            assert sum(p * number for p, number in known) == truth * sum(p for p, _ in known)


@pytest.mark.parametrize("name", MEANS)
def test_reports_of_many_follow_the_law_of_their_levels(name: str) -> None:
    """Pearson's statistic for a record on levels, one by one and in a batch; half the epsilon is noticed."""
    built, people = means()[name], 30_000
    levels = (built.levels - 1, 0, built.levels // 2, 0)[: built.attributes]
    record = [float(x) for x in on_level(built, levels)]
    rows = kernels.randomise(
        built, np.tile(record, (people, 1)), RandomStream.from_seed("means", name)
    ).rows
    source = RandomStream.from_seed("one", name)
    for reports in (rows, [built.randomise(record, source) for _ in range(people // 3)]):
        assert misfit(reports, built.law(levels)) < 1
    other = MEANS[name].from_json(built.to_json())
    assert (
        misfit(rows, other.law(levels[::-1] if built.attributes > 1 else (built.levels // 2,))) > 1
    )


def misfit(reports: Any, law: dict[bytes, Fraction]) -> float:
    """Pearson's statistic against a law, over its 1 - 1e-6 quantile."""
    found = Counter(bytes(report) for report in reports)
    assert set(found) <= set(law)
    expected = {report: float(chance) * len(reports) for report, chance in law.items()}
    statistic = sum((found[report] - mean) ** 2 / mean for report, mean in expected.items())
    return statistic / float(chi2.ppf(1 - 1e-6, len(law) - 1))


@pytest.mark.parametrize(
    "name", [name for name in MEANS if name != "several-means"]
)  # which draws in another order
def test_one_person_and_many_draw_alike(name: str) -> None:
    for built in (means()[name], means(levels=101)[name]):
        values = np.random.default_rng(1).uniform(-1, 1, (200, built.attributes))
        values[0], values[1] = -1, 1
        rows = kernels.randomise(built, values, RandomStream.from_seed("a")).rows
        source = RandomStream.from_seed("a")
        assert [bytes(row) for row in rows] == [
            built.randomise(row.tolist(), source) for row in values
        ]


@pytest.mark.parametrize("name", MEANS)
def test_numbers_of_a_batch_are_those_of_each_report(name: str) -> None:
    built = means()[name]
    rows = kernels.randomise(
        built, np.zeros((50, built.attributes)), RandomStream.from_seed(1)
    ).rows
    for row, found in zip(rows, kernels.numbers(built, PackedReports(rows)), strict=True):
        stated = [math.nan if x is None else float(x) for x in built.numbers_in(bytes(row))]
        assert found == pytest.approx(stated, nan_ok=True)


@pytest.mark.parametrize("name", MEANS)
def test_random_bytes_do_not_depend_on_the_values(name: str) -> None:
    built, asked = means()[name], []

    def source(count: int) -> bytes:
        asked.append(count)
        return secrets.token_bytes(count)

    for value in (-1, -0.3, 0.0, 0.77, 1):
        report = built.randomise([value] * built.attributes, source)
        assert len(report) == built.report_bytes == math.ceil(built.report_bits / 8)
    assert asked == [built.draw_bytes] * 5


@pytest.mark.parametrize("name", MEANS)
def test_means_are_unbiased_and_no_wider_than_the_worst_variance(name: str) -> None:
    built, n = means(threshold_bits=32, levels=65)[name], 60_000
    values = np.random.default_rng(1).beta(2, 6, (n, built.attributes)) * 2 - 1
    for found, column in zip(
        kernels.estimate_means(
            built, kernels.randomise(built, values, RandomStream.from_seed(name))
        ),
        values.T,
        strict=True,
    ):
        assert abs(found.mean - column.mean()) < 4.5 * found.standard_error
        assert found.standard_error < math.sqrt((built.worst_variance + 1) / n)
        wrong = 2 * column.mean() + 0.5
        assert (
            abs(found.mean - wrong) > 4.5 * found.standard_error
            or abs(wrong - column.mean()) < 0.01
        )


# --------------------
# What both share: JSON, foreign reports, a device without NumPy.

ALL = {name: small(name) for name in MECHANISMS} | means()


def rebuilt(data: Any) -> Randomiser:
    return (mechanism_from_json if data.get("name") in MECHANISMS else mean_from_json)(data)


@pytest.mark.parametrize("name", ALL)
def test_round_trip_through_json(name: str) -> None:
    built = ALL[name]
    written = json.loads(json.dumps(built.to_json()))
    assert rebuilt(written) == built
    for key in written:
        for broken in (
            {k: v for k, v in written.items() if k != key},
            {**written, key: "9"},
            {**written, key: True},
        ):
            with pytest.raises((ReportError, ParameterError)):
                rebuilt(broken)
    with pytest.raises(ReportError):
        rebuilt({**written, "more": 1})
    for name_ in (None, [], "constructor"):
        with pytest.raises(ReportError):
            mechanism_from_json({**written, "name": name_})


@pytest.mark.parametrize("name", ALL)
def test_reports_that_no_input_gives_are_refused(name: str) -> None:
    built = ALL[name]
    inputs = range(built.cells) if isinstance(built, Mechanism) else every_record(built)  # type: ignore[attr-defined]
    possible = {report for given in inputs for report in built.law(given)}  # type: ignore[attr-defined]
    for report in possible:
        built.check_report(report)
        for wrong in (report[:-1], report + b"\0"):
            with pytest.raises(ReportError):
                built.check_report(wrong)
    # Every change of one byte that is not in the law: the answer's, for hashes of which the law knows one only.
    for place in range(8 if name == "olh" else 0, built.report_bytes):
        for byte in range(256):
            report = bytearray(min(possible))
            report[place] = byte
            if bytes(report) not in possible:
                with pytest.raises(ReportError):
                    built.check_report(bytes(report))


def test_a_device_needs_no_numpy() -> None:
    code = (
        "import sys, json, secrets\n"
        "for name in ('numpy', 'scipy', 'numba', 'cryptography'): sys.modules[name] = None\n"
        "from dither.mechanisms.registry import MECHANISMS, mean_from_json, mechanism_from_json\n"
        "for data in json.loads(sys.stdin.read()):\n"
        "    cells = data['name'] in MECHANISMS\n"
        "    built = (mechanism_from_json if cells else mean_from_json)(data)\n"
        "    built.check_report(built.randomise(1 if cells else [0.3] * built.attributes, secrets.token_bytes))\n"
        "    print(data['name'], built.epsilon)\n"
    )
    written = json.dumps([built.to_json() for built in ALL.values()])
    done = subprocess.run(
        [sys.executable, "-c", code], input=written, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        f"{built.name} {built.epsilon}" for built in ALL.values()
    ], done.stderr
