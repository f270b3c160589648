from __future__ import annotations

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.estimate import norm_sub
from dither.estimate.support_em import em_frequencies, support_likelihood, supported
from dither.mechanisms import PackedReports, mechanism
from dither.mechanisms.fleet.stream import RandomStream

NAMES = ("grr", "sue", "oue", "subset", "olh")


def slow_em(likelihood: np.ndarray, steps: int = 4000) -> np.ndarray:
    """As written in any textbook, one report at a time."""
    p = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    for _ in range(steps):
        new = np.zeros_like(p)
        for row in likelihood:
            new += row * p / (row @ p)
        p = new / len(likelihood)
    return p


@pytest.mark.parametrize("name", NAMES)
def test_supported_cells_are_those_that_support_counts(name: str) -> None:
    built = mechanism(name, 11, 1.3)
    reports = built.randomise_many(np.arange(2000) % 11, RandomStream.from_seed(name))
    np.testing.assert_array_equal(supported(built, reports).sum(axis=0), built.support(reports))


@pytest.mark.parametrize("name", NAMES)
def test_em_is_the_textbook_s(name: str) -> None:
    built = mechanism(name, 4, 1.0)
    reports = built.randomise_many(np.array([0] * 30 + [1] * 20 + [3] * 10), RandomStream.from_seed(name, 2))
    likelihood = support_likelihood(built, reports)
    result = em_frequencies(built, reports, tolerance=1e-9, steps=20_000)
    np.testing.assert_allclose(result.joint, slow_em(likelihood.astype(float)), atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_em_finds_the_truth_and_beats_projection_when_reports_are_few(name: str) -> None:
    truth = np.array([0.6, 0.25, 0.1, 0.05, 0.0, 0.0, 0.0, 0.0])
    built = mechanism(name, 8, 1.0)
    values = np.repeat(np.arange(8), (truth * 400).astype(int))
    by_em, projected = [], []
    for run in range(60):
        reports = built.randomise_many(values, RandomStream.from_seed(name, "few", run))
        by_em.append(np.abs(em_frequencies(built, reports, 1e-5).joint - truth).sum() / 2)
        raw = built.estimate(built.support(reports), len(values)).frequencies
        projected.append(np.abs(norm_sub(raw) - truth).sum() / 2)
    assert np.mean(by_em) < 1.02 * np.mean(projected)
    many = built.randomise_many(
        np.repeat(np.arange(8), (truth * 100_000).astype(int)), RandomStream.from_seed(name, "many")
    )
    sd = np.sqrt(built.variance(0.3, 100_000))
    assert np.abs(em_frequencies(built, many).joint - truth).max() < 5 * sd


def test_what_has_no_support_or_does_not_fit_is_refused() -> None:
    bloom = mechanism("bloom", 4, 1.0)
    with pytest.raises(ParameterError, match="bloom"):
        supported(bloom, PackedReports(np.zeros((2, bloom.report_bytes), np.uint8)))
    grr = mechanism("grr", 4, 1.0)
    with pytest.raises(ParameterError, match="at least one"):
        em_frequencies(grr, PackedReports(np.zeros((0, 1), np.uint8)))
    with pytest.raises(ParameterError, match="gigabyte"):
        support_likelihood(grr, PackedReports(np.broadcast_to(np.zeros((1, 1), np.uint8), (1 << 27, 1))))
