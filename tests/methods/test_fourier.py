"""FT: exact guarantee, unbiased coefficients, the two simulation paths, and the method on top."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms import Hadamard, Mechanism, PackedReports, kernels, mechanism_from_json
from dither.methods import start
from dither.randomness import RandomStream
from dither.simulate import simulate

NETWORK = generate_network((3, 2, 4, 3), parents=1, strength=2.0, seed=4)
SCHEMA = NETWORK.schema
N = 60_000


def exact_law(mechanism, value):
    """Every report's probability, by going through all coefficients and both outcomes."""
    law = Counter()
    for index in range(2**mechanism.bits):
        parity = bin(index & mechanism.code(value)).count("1") & 1
        for turned, share in ((0, mechanism.p), (1, 1 - mechanism.p)):
            law[index << 1 | (parity ^ turned)] += share / 2**mechanism.bits
    return law


@pytest.mark.parametrize(("cells", "columns"), [(6, 2), (12, 4), (3, 3), (15, 5)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_guarantee_is_exact_and_never_more_than_asked(cells, columns, epsilon):
    mechanism = Hadamard.for_epsilon(cells, columns, epsilon)
    assert isinstance(mechanism, Mechanism)
    laws = [exact_law(mechanism, v) for v in range(cells)]
    assert all(sum(law.values()) == 1 for law in laws)
    worst = max(a[r] / b[r] for a in laws for b in laws for r in a)
    assert math.log(worst) <= mechanism.epsilon <= epsilon
    assert mechanism.epsilon == pytest.approx(epsilon, abs=1e-6)
    # A report supports a cell whose parity it shows: p for the own cell, exactly one half for any other.
    for v in range(cells):
        for other in range(cells):
            supported = sum(
                share
                for report, share in laws[v].items()
                if (bin((report >> 1) & mechanism.code(other)).count("1") & 1) == report & 1
            )
            assert supported == (mechanism.p if v == other else Fraction(1, 2))


def test_scalar_and_fleet_reports_follow_the_same_law():
    mechanism, n = Hadamard.for_epsilon(6, 2, 1.0), 60_000
    law = exact_law(mechanism, 3)
    fleet = kernels.randomise(mechanism, np.full(n, 3), RandomStream.from_seed(1))
    single = [
        mechanism.randomise(3, source)
        for source in [RandomStream.from_seed(2)]
        for _ in range(n // 10)
    ]
    for rows, total in (
        (fleet.rows, n),
        (np.frombuffer(b"".join(single), np.uint8).reshape(-1, mechanism.report_bytes), n // 10),
    ):
        seen = Counter(int.from_bytes(bytes(row), "little") for row in rows)
        z = [
            (seen[r] - total * float(p)) / math.sqrt(total * float(p) * (1 - float(p)))
            for r, p in law.items()
        ]
        assert np.abs(z).max() < 4.5
        wrong = exact_law(mechanism, 2)
        far = [
            (seen[r] - total * float(p)) / math.sqrt(total * float(p) * (1 - float(p)))
            for r, p in wrong.items()
        ]
        assert np.abs(far).max() > 8, "the law of another value is rejected"
        mechanism.check_report(bytes(rows[0]))


def test_support_counts_equal_a_slow_count_and_estimates_are_unbiased_with_the_stated_variance():
    mechanism = Hadamard.for_epsilon(6, 3, 1.5)
    reports = kernels.randomise(mechanism, np.arange(600) % 6, RandomStream.from_seed(3))
    slow = np.zeros(6, int)
    for row in reports.rows:
        answer = int.from_bytes(bytes(row), "little")
        for cell in range(6):
            slow[cell] += (bin((answer >> 1) & mechanism.code(cell)).count("1") & 1) == answer & 1
    np.testing.assert_array_equal(kernels.support(mechanism, reports), slow)
    truth = np.array([500, 300, 100, 60, 40, 0])
    rng = np.random.default_rng(0)
    runs = np.array(
        [
            kernels.estimate(mechanism, kernels.simulate(mechanism, truth, rng), 1_000).frequencies
            for _ in range(3_000)
        ]
    )
    f = truth / 1_000
    variance = np.array([mechanism.variance(x, 1_000) for x in f])
    assert np.abs((runs.mean(0) - f) / np.sqrt(variance / 3_000)).max() < 4
    np.testing.assert_allclose(runs.var(0), variance, rtol=0.15)
    np.testing.assert_allclose(
        runs[:, :3].sum(1).var(), mechanism.group_variance(3, f[:3].sum(), 1_000), rtol=0.15
    )


def test_bad_mechanisms_and_reports_are_refused():
    with pytest.raises(ParameterError, match="rows"):
        Hadamard.for_epsilon(6, 4, 1.0)
    with pytest.raises(PrivacyError):
        Hadamard(6, 2, 0)
    mechanism = Hadamard.for_epsilon(6, 2, 1.0)
    with pytest.raises(ReportError):
        mechanism.check_report(b"\xff")
    with pytest.raises(ReportError):
        kernels.support(mechanism, PackedReports(np.array([[255]], np.uint8)))
    again = mechanism_from_json(mechanism.to_json())
    assert again == mechanism


def test_the_method_learns_dependence():
    machine = start("fourier", SCHEMA, 4.0, N).machine
    simulate(machine, NETWORK.sample_codes(N, np.random.default_rng(0)), np.random.default_rng(1))
    for names in (["x0", "x1"], ["x1", "x2"], ["x0", "x1", "x2"]):
        exact = NETWORK.marginal(names)
        # Variance 1/4 / (n (p - 1/2)^2), about 1/n: 10,000 answers per pair, standard error 0.01, half an L1 norm 0.05.
        assert np.abs(machine.marginal(names) - exact).sum() / 2 < 0.1
        assert np.abs(machine.model().marginal(names) - exact).sum() / 2 < 0.1
    strong = NETWORK.marginal(["x0", "x1"]) - np.outer(
        NETWORK.marginal(["x0"]), NETWORK.marginal(["x1"])
    )
    assert np.abs(strong).sum() / 2 > 0.1, "independence would not pass"
    assert machine.diagnostics().to_json()["coefficients"] == sum(
        2 ** (a + b) for a, b in ((2, 1), (2, 2), (2, 2), (1, 2), (1, 2), (2, 2))
    )


def test_a_cap_below_one_attribute_is_refused():
    with pytest.raises(ParameterError, match="max_clique_cells"):
        start("fourier", SCHEMA, 1.0, N, {"max_clique_cells": 3})
