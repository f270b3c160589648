"""Joint estimation from packed split reports: the three estimators, deduplication, many at once."""

from itertools import combinations

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import joint as module
from dither.fit.joint import SplitReports, estimate_joints
from dither.mechanisms import GRR, BloomRappor, PackedReports, kernels, sue_from_flip
from dither.randomness import RandomStream
from dither.reports import Plan, Question
from dither.tally import PatternTally, report_bits

SHAPE = (3, 2, 4)
NAMES = ("a", "b", "c")


def _mechanism(k, encoding, flip):
    return (
        sue_from_flip(k, flip)
        if encoding == "unary"
        else BloomRappor.for_flip(k, flip, 3 * k + 2, 2)
    )


def _reports(n=20_000, encoding="unary", flip=0.4, seed=0):
    joint = np.random.default_rng(9).dirichlet(np.full(24, 0.4)).reshape(SHAPE)
    cells = np.random.default_rng(seed).choice(24, n, p=joint.ravel())
    plan = Plan(
        0,
        tuple(
            Question((name,), _mechanism(k, encoding, flip))
            for name, k in zip(NAMES, SHAPE, strict=True)
        ),
        split=True,
        tally="patterns",
    )
    stream = RandomStream.from_seed(seed)
    values = np.unravel_index(cells, SHAPE)
    parts = [
        kernels.randomise(q.mechanism, v, stream).rows
        for q, v in zip(plan.questions, values, strict=True)
    ]
    tally = PatternTally(plan)
    tally.add(-1, PackedReports(np.concatenate(parts, axis=1)))
    truth = np.bincount(cells, minlength=24).reshape(SHAPE) / n
    return truth, SplitReports.from_tally(tally)


def _avd(a, b):
    return np.abs(a - b).sum() / 2


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["unary", "bloom"])
@pytest.mark.parametrize("estimator", ["em", "lasso", "hybrid"])
@pytest.mark.parametrize("names", [("a",), ("c", "a"), ("b", "c", "a")])
def test_every_estimator_finds_joints_in_the_order_asked(encoding, estimator, names):
    truth, reports = _reports(encoding=encoding)
    found = estimate_joints(reports, [names], estimator)[0]
    order = [NAMES.index(n) for n in names]
    exact = np.transpose(
        truth.sum(axis=tuple(i for i in range(3) if i not in order)), np.argsort(np.argsort(order))
    )
    assert found.joint.shape == exact.shape
    assert found.joint.sum() == pytest.approx(1)
    # Half the L1 norm of a raw k-way estimate: noise variance of a cell at most (0.445 + 1)^k - 1 per report.
    bound = 0.5 * exact.size * np.sqrt((1.445 ** len(names) - 1) / reports.n)
    assert _avd(found.joint, exact) < bound
    product = np.ones(())
    for axis in range(exact.ndim):
        product = np.multiply.outer(
            product, exact.sum(axis=tuple(i for i in range(exact.ndim) if i != axis))
        )
    if len(names) > 1:
        assert _avd(found.joint, exact) < _avd(product, exact) / 2


def test_merging_equal_reports_changes_nothing_but_time(monkeypatch):
    _, reports = _reports(n=4_000)
    bits, weights = reports.distinct([1, 0])
    assert len(weights) <= 32
    assert weights.sum() == 4_000
    merged = estimate_joints(reports, [["b", "a"]])[0].joint
    monkeypatch.setattr(module, "_MAX_CODE_BITS", 0)
    # All reports of 9 bits repeat; without merging by code the weights are the multiset's.
    plain = estimate_joints(reports, [["b", "a"]])[0].joint
    np.testing.assert_allclose(merged, plain, atol=1e-4)
    assert bits[0].shape[1] == 2


def test_gram_counts_every_pair_of_bits():
    _, reports = _reports(n=3_000)
    bits = report_bits(reports.plan, np.repeat(reports.patterns, reports.counts, axis=0)).astype(
        np.int64
    )
    np.testing.assert_array_equal(reports.gram, bits.T @ bits)
    assert reports.n == len(bits)


def test_raw_pairs_and_singles_are_unbiased_and_agree_with_three_way_products():
    truth, reports = _reports(n=30_000, encoding="bloom")
    for i, j in combinations(range(3), 2):
        raw, variance = reports.pair(i, j)
        exact = truth.sum(axis=3 - i - j)
        assert (np.abs(raw - exact) < 4.5 * np.sqrt(variance)).all()
    for i in range(3):
        exact = truth.sum(axis=tuple(k for k in range(3) if k != i))
        assert (
            np.abs(reports.singles[i] - exact) < 4.5 * np.sqrt(reports.single_variance(i))
        ).all()
    # Indicators of one report add up to one only on average, so a three-way sum is near the pair, not equal to it.
    assert np.abs(reports.cooccurrence([0, 1, 2]).sum(2) - reports.pair(0, 1)[0]).max() < 0.1


def test_many_at_once_give_the_same_as_one_by_one_and_tell_progress():
    _, reports = _reports(n=3_000)
    sets = list(combinations(NAMES, 2))
    seen = []
    many = estimate_joints(
        reports, sets, "hybrid", progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    for names, found in zip(sets, many, strict=True):
        assert found.attributes == names
        alone = estimate_joints(reports, [names], "hybrid")[0]
        np.testing.assert_array_equal(found.joint, alone.joint)


def test_an_interrupt_goes_through():
    _, reports = _reports(n=2_000)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate_joints(reports, list(combinations(NAMES, 2)), progress=stop)


def test_bad_requests_are_refused_with_the_name_at_fault():
    _, reports = _reports(n=100)
    with pytest.raises(ParameterError, match="no answer about 'z'; they are about a, b, c"):
        estimate_joints(reports, [["a", "z"]])
    with pytest.raises(ParameterError, match="estimator"):
        estimate_joints(reports, [["a"]], "guess")
    with pytest.raises(ParameterError, match="only once"):
        estimate_joints(reports, [["a", "a"]])
    plan = Plan(0, (Question(("a",), GRR.for_epsilon(3, 1.0)),), split=True, tally="patterns")
    with pytest.raises(ParameterError, match="bit vectors"):
        _ = SplitReports(plan, np.zeros((1, 1), np.uint8), np.ones(1, np.int64)).encodings
    with pytest.raises(ParameterError, match="no reports"):
        SplitReports(reports.plan, reports.patterns[:0], reports.counts[:0])
