"""The contract of a mechanism: its exact law gives its epsilon, devices and batches follow that law, estimates are unbiased."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from dither.errors import DitherError, ReportError
from dither.mechanisms import Mechanism, PackedReports, kernels, log_up
from dither.randomness import RandomStream

DRAWS = 4_000
UNLIKELY = 1e-6  # how often a right mechanism may fail a test of chance


class MechanismContract:
    """Subclass it with a fixture `mechanism` that gives a small one (few cells), so that its whole law can be written out."""

    @pytest.fixture
    def mechanism(self) -> Mechanism:
        """The mechanism under test."""
        raise NotImplementedError("give a fixture `mechanism`")

    def test_the_law_adds_up_to_one_and_gives_the_stated_epsilon(
        self, mechanism: Mechanism
    ) -> None:
        laws = [mechanism.law(value) for value in range(mechanism.cells)]
        assert all(sum(law.values()) == 1 for law in laws)
        assert all(set(law) == set(laws[0]) for law in laws), (
            "a report that only one value can send would identify it"
        )
        worst = max(max(law[r] for law in laws) / min(law[r] for law in laws) for r in laws[0])
        assert worst <= mechanism.ratio
        assert mechanism.epsilon >= log_up(Fraction(worst)) - 1e-12, (
            "epsilon must not be understated"
        )

    def test_length_and_randomness_do_not_depend_on_the_value(self, mechanism: Mechanism) -> None:
        for value in range(mechanism.cells):
            taken: list[int] = []

            def source(count: int, taken: list[int] = taken) -> bytes:
                taken.append(count)
                return secrets.token_bytes(count)

            report = mechanism.randomise(value, source)
            assert taken == [mechanism.draw_bytes]
            assert len(report) == mechanism.report_bytes == math.ceil(mechanism.report_bits / 8)
            mechanism.check_report(report)

    def test_devices_and_batches_follow_the_law(self, mechanism: Mechanism) -> None:
        stream = RandomStream.from_generator(np.random.default_rng(1))
        source = np.random.default_rng(2).bytes
        for value in (0, mechanism.cells - 1):
            law = mechanism.law(value)
            one = Counter(mechanism.randomise(value, source) for _ in range(DRAWS))
            batch = kernels.randomise(mechanism, np.full(DRAWS, value), stream)
            many = Counter(row.tobytes() for row in batch.rows)
            for seen in (one, many):
                assert set(seen) <= set(law), "a report that the law does not have"
                assert _distance(seen, law) < chi2.isf(UNLIKELY, max(len(law) - 1, 1))

    def test_estimates_are_unbiased(self, mechanism: Mechanism) -> None:
        """By the law itself: the expected support of each value, put through `estimate`, gives that value's own frequency."""
        for value in range(mechanism.cells):
            law = mechanism.law(value)
            reports = list(law)
            rows = np.frombuffer(b"".join(reports), np.uint8).reshape(
                len(reports), mechanism.report_bytes
            )
            told = [
                kernels.estimate(
                    mechanism, kernels.support(mechanism, PackedReports(row[None])), 1
                ).frequencies
                for row in rows
            ]
            mean = np.asarray([float(law[r]) for r in reports]) @ np.asarray(told)
            np.testing.assert_allclose(mean, np.arange(mechanism.cells) == value, atol=1e-9)

    def test_simulated_counts_have_the_law_of_reports(self, mechanism: Mechanism) -> None:
        rng, n = np.random.default_rng(3), 20_000
        truth = np.bincount(rng.integers(0, mechanism.cells, n), minlength=mechanism.cells)
        told = kernels.estimate(mechanism, kernels.simulate(mechanism, truth, rng), n)
        assert np.abs((told.frequencies - truth / n) / told.standard_errors).max() < 5

    def test_json_survives_and_foreign_bytes_are_refused(self, mechanism: Mechanism) -> None:
        again = type(mechanism).from_json(mechanism.to_json())
        assert again == mechanism
        assert again.epsilon == mechanism.epsilon
        with pytest.raises(ReportError):
            mechanism.check_report(bytes(mechanism.report_bytes + 1))
        with pytest.raises(DitherError):
            mechanism.randomise(mechanism.cells, secrets.token_bytes)


def _distance(seen: Counter[bytes], law: dict[bytes, Fraction]) -> float:
    """Pearson's chi-square of counts against a law."""
    total = sum(seen.values())
    return float(
        sum((seen[r] - total * float(p)) ** 2 / (total * float(p)) for r, p in law.items() if p)
    )
