from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from dither.errors import ParameterError
from dither.fit import AnswerCounts, make_consistent, normal_interval, pool
from dither.mechanisms import kernels
from dither.reports import question
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    tuple(Attribute(n, "ordinal", tuple(range(k))) for n, k in (("a", 3), ("b", 4), ("c", 2)))
)
JOINT = np.random.default_rng(0).dirichlet(np.ones(24)).reshape(3, 4, 2)


def answers(
    rng: np.random.Generator, epsilon: float = 1.0, mechanism: str = "best"
) -> list[AnswerCounts]:
    """Three overlapping questions to different people whose records are exactly the joint distribution."""
    out = []
    for names, n in ((("a", "b"), 6_000), (("c", "a"), 12_000), (("a",), 3_000)):
        asked = question(SCHEMA, names, epsilon, mechanism)
        axes = ["abc".index(x) for x in names]
        table = JOINT.sum(axis=tuple(i for i in range(3) if i not in axes))
        if names == ("c", "a"):
            table = table.T
        counts = np.floor(table.ravel() * n).astype(np.int64)
        counts[0] += n - counts.sum()
        out.append(AnswerCounts(asked, kernels.simulate(asked.mechanism, counts, rng), n))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["grr", "oue", "subset", "best"])
def test_pooled_marginal_is_unbiased_with_the_stated_error(mechanism: str) -> None:
    rng = np.random.default_rng(1)
    repeats = 600
    runs = [pool(SCHEMA, answers(rng, mechanism=mechanism), ["a"]) for _ in range(repeats)]
    truth = JOINT.sum(axis=(1, 2))
    z = np.array([(r.frequencies - truth) / r.standard_errors for r in runs])
    # Rounding the joint to whole people moves a frequency by at most 12/12000.
    assert np.abs(z.mean(axis=0)).max() < 4.5 / np.sqrt(repeats) + 0.1
    low, high = chi2.ppf([1e-6, 1 - 1e-6], repeats) / repeats
    assert ((z**2).mean(axis=0) > low).all()
    assert ((z**2).mean(axis=0) < high * 1.05).all()
    assert runs[0].n == 21_000


def test_pooling_beats_every_question_alone_and_wrong_weights_lose() -> None:
    """Weights n/C (erratum 6 of the papers) against the printed 1/(C n)."""
    rng = np.random.default_rng(2)
    truth = JOINT.sum(axis=(1, 2))
    right, wrong = [], []
    for _ in range(400):
        parts = answers(rng, mechanism="oue")
        right.append(((pool(SCHEMA, parts, ["a"]).frequencies - truth) ** 2).sum())
        each = [pool(SCHEMA, [p], ["a"]).frequencies for p in parts]
        weights = np.array([1 / (4 * 6_000), 1 / (2 * 12_000), 1 / 3_000])
        wrong.append(((np.average(each, axis=0, weights=weights) - truth) ** 2).sum())
        assert len(each) == 3
    assert np.mean(right) < 0.8 * np.mean(wrong)


def test_axes_come_in_the_order_asked_for() -> None:
    parts = answers(np.random.default_rng(3), epsilon=8.0)
    ac, ca = pool(SCHEMA, parts, ["a", "c"]), pool(SCHEMA, parts, ["c", "a"])
    np.testing.assert_allclose(ac.frequencies, ca.frequencies.T)
    np.testing.assert_allclose(ac.frequencies, JOINT.sum(axis=1), atol=0.05)
    with pytest.raises(ParameterError, match="b, c"):
        pool(SCHEMA, parts, ["b", "c"])


def test_consistent_tables_agree_on_what_they_share_and_gain_from_it() -> None:
    rng = np.random.default_rng(4)
    names = [("a", "b"), ("b", "c"), ("a", "c")]
    truth = {n: JOINT.sum(axis=tuple(i for i in range(3) if "abc"[i] not in n)) for n in names}
    before, after = [], []
    for _ in range(200):
        noisy = [(n, truth[n] + rng.normal(0, 0.02, truth[n].shape)) for n in names]
        made = dict(make_consistent(noisy, [1.0, 1.0, 1.0]))
        for table in made.values():
            assert table.sum() == pytest.approx(1)
        np.testing.assert_allclose(
            made["a", "b"].sum(axis=1), made["a", "c"].sum(axis=1), atol=1e-12
        )
        np.testing.assert_allclose(
            made["a", "b"].sum(axis=0), made["b", "c"].sum(axis=1), atol=1e-12
        )
        before.append(sum(((t - truth[n]) ** 2).sum() for n, t in noisy))
        after.append(sum(((t - truth[n]) ** 2).sum() for n, t in made.items()))
    assert np.mean(after) < 0.9 * np.mean(before)
    exact = make_consistent([(n, truth[n]) for n in names], [1.0, 2.0, 3.0])
    for n, table in exact:
        np.testing.assert_allclose(table, truth[n], atol=1e-12)


def test_intervals_cover_at_the_stated_rate() -> None:
    rng = np.random.default_rng(5)
    asked = question(SCHEMA, ["b"], 1.0, "oue")
    counts = np.array([500, 300, 150, 50])
    covered = []
    for _ in range(2_000):
        estimate = kernels.estimate(
            asked.mechanism, kernels.simulate(asked.mechanism, counts, rng), 1_000
        )
        low, high = normal_interval(estimate.frequencies, estimate.standard_errors)
        covered.append((low <= counts / 1_000) & (counts / 1_000 <= high))
    rate = np.mean(covered)
    assert abs(rate - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 8_000) + 0.003
    too_narrow = normal_interval(np.zeros(1), np.ones(1), 0.80)
    assert too_narrow[1][0] == pytest.approx(1.2816, abs=1e-4)
    with pytest.raises(ParameterError, match="level"):
        normal_interval(np.zeros(1), np.ones(1), 1.0)


@pytest.mark.parametrize("epsilon", [1.0, 12.0])
def test_weights_and_sample_size_hold_the_choice_of_who_was_asked(epsilon: float) -> None:
    """Few people asked about a alone, many about everything: without noise the many count by their number, not by cells."""
    rng = np.random.default_rng(5)
    truth = JOINT.sum(axis=(1, 2))
    alone, whole = (question(SCHEMA, names, epsilon, "grr") for names in (("a",), ("a", "b", "c")))
    scaled, squares, by_noise = [], [], []
    for _ in range(400):
        parts = []
        for asked, n, table in ((alone, 300, truth), (whole, 3_000, JOINT)):
            counts = rng.multinomial(n, table.ravel())
            parts.append(AnswerCounts(asked, kernels.simulate(asked.mechanism, counts, rng), n))
        found = pool(SCHEMA, parts, ["a"])
        variances = found.variances + truth * (1 - truth) / found.sample_size
        scaled.append((found.frequencies - truth) ** 2 / variances)
        squares.append(((found.frequencies - truth) ** 2).sum())
        each = [pool(SCHEMA, [part], ["a"]).frequencies for part in parts]
        inverse = [
            part.n
            / part.question.mechanism.group_variance(part.question.mechanism.cells // 3, 1 / 3, 1)
            for part in parts
        ]
        by_noise.append(((np.average(each, axis=0, weights=inverse) - truth) ** 2).sum())
        assert found.n == 3_300
        assert 300 < found.sample_size <= 3_300 + 1e-6
    # Squares of normal deviates over their variance: a mean of 400 is within 4.5 standard errors of one.
    assert np.abs(np.mean(scaled, axis=0) - 1).max() < 4.5 * np.sqrt(2 / 400)
    ratio = np.mean(squares) / np.mean(by_noise)
    assert ratio < 0.6 if epsilon > 8 else ratio == pytest.approx(1, abs=0.1)
