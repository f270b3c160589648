"""Raw sums: exact covariances, checked against the mechanisms' own variances and against drawn reports."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.fit import AnswerCounts, pool
from dither.mechanisms import kernels, mechanism
from dither.release import intervals as reports
from dither.release.intervals import Reports, answer_covariance
from dither.reports import question

CELLS, PEOPLE = 12, 5_000


@pytest.mark.parametrize("name", ["grr", "subset", "oue", "olh", "bloom"])
def test_variances_are_the_mechanism_s_and_those_of_the_choice_of_people(name: str) -> None:
    rng = np.random.default_rng(3)
    rows, f = rng.normal(size=(4, CELLS)), rng.dirichlet(np.ones(CELLS))
    made = mechanism(name, CELLS, 1.5)
    found = answer_covariance(made, rows, f, PEOPLE)
    for i, row in enumerate(rows):
        sampling = (row**2 @ f - (row @ f) ** 2) / PEOPLE
        assert found[i, i] == pytest.approx(
            made.weighted_variance(row, f, PEOPLE) + sampling, rel=1e-6
        )
    both = answer_covariance(made, (rows[0] + rows[1])[None], f, PEOPLE)
    assert both[0, 0] == pytest.approx(found[0, 0] + found[1, 1] + 2 * found[0, 1], rel=1e-6)


def _drawn(seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums over grouped values of a pair, read off a question about three attributes, and their stated covariance."""
    network, rng = generate_network([3, 4, 2], strength=1.5, seed=4), np.random.default_rng(8)
    asked = question(network.schema, ("x2", "x0", "x1"), 1.0)
    truth = network.marginal(asked.attributes).ravel()
    groups, rows = (
        [np.array([0, 1, 1]), np.array([0, 0, 1, 1])],
        np.array([[0.0, 1, 0, 0], [0, 0, 1, 1]]),
    )
    sums = []
    for _ in range(seeds):
        support = kernels.simulate(asked.mechanism, rng.multinomial(PEOPLE, truth), rng)
        told = Reports(network.schema, (AnswerCounts(asked, support, PEOPLE),))
        sums.append(told.sums(("x0", "x1"), groups, rows, network.marginal(["x0", "x1"])))
    exact = rows @ np.array(
        [
            network.marginal(["x0", "x1"])[np.ix_(a, b)].sum()
            for a in ([0], [1, 2])
            for b in ([0, 1], [2, 3])
        ]
    )
    return np.array([s.estimates for s in sums]) - exact, sums[0].covariance


def _check(errors: np.ndarray, covariance: np.ndarray) -> bool:
    """Whether the drawn errors have mean zero and the stated covariance, within five standard errors of each."""
    count, sizes = len(errors), np.sqrt(np.diag(covariance))
    mean = np.abs(errors.mean(axis=0)) / sizes * np.sqrt(count)
    gap = (
        np.abs(np.cov(errors, rowvar=False) - covariance)
        / np.outer(sizes, sizes)
        * np.sqrt(count / 2)
    )
    return bool((mean < 5).all() and (gap < 5).all())


def test_sums_are_unbiased_with_the_stated_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _check(*_drawn(800))
    real: Callable[..., np.ndarray] = reports.answer_covariance
    monkeypatch.setattr(reports, "answer_covariance", lambda *given: real(*given) / 2)
    assert not _check(*_drawn(800)), "half the covariance is rejected"


def test_a_marginal_is_the_pooled_one() -> None:
    network, rng = generate_network([3, 4, 2], strength=1.5, seed=4), np.random.default_rng(8)
    answers = []
    for names, people in (
        (("x0", "x1"), 4_000),
        (("x1", "x0", "x2"), 9_000),
        (("x0", "x2"), 5_000),
    ):
        asked = question(network.schema, names, 2.0)
        truth = rng.multinomial(people, network.marginal(names).ravel())
        answers.append(AnswerCounts(asked, kernels.simulate(asked.mechanism, truth, rng), people))
    told = Reports(network.schema, tuple(answers))
    fitted = network.marginal(["x1", "x0"])
    raw, variances = told.marginal(["x1", "x0"], fitted)
    # The weights here count the choice of people too, so that the averages agree up to a part of their error.
    assert (
        np.abs(raw - pool(network.schema, answers, ["x1", "x0"]).frequencies).max()
        < np.sqrt(variances).max()
    )
    cells = told.sums(("x1", "x0"), [np.arange(4), np.arange(3)], np.eye(12), fitted)
    assert cells.estimates == pytest.approx(raw.ravel())
    assert np.diag(cells.covariance) == pytest.approx(variances.ravel(), rel=1e-6)
    assert told.tell(["x2", "x1"])
    assert not Reports(network.schema, tuple(answers[:1])).tell(["x2", "x1"])
