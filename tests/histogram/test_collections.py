"""The ways of collecting: unbiased, with exact errors, within epsilon, and the same law on both paths."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dither import histogram
from dither._histogram import collect
from dither.errors import ParameterError, PrivacyError, TableError
from dither.mechanisms import kernels
from dither.mechanisms import mechanism as build
from dither.methods.histogram import (
    Consumer,
    PureCells,
    ValueGroup,
    read_consumers,
    union,
    variance_by_type,
)
from dither.release.figures import measured_errors

BINS = (3, 4, 6)
CONSUMERS = read_consumers(BINS, 0.0, 1.0)
PARTITION = union(CONSUMERS, 0.0, 1.0)
COUNTS = np.array([900, 700, 40, 300, 10, 20, 5, 25], dtype=np.int64)
PEOPLE = ValueGroup(COUNTS, np.repeat(np.arange(8), COUNTS))
TRUTH = [PARTITION.membership(c) @ COUNTS for c in CONSUMERS]


def repeat(
    way: str, mechanism: str, epsilon: float, runs: int, people: ValueGroup | None = None
) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    given = {"mechanism": mechanism}
    path = "counts" if people is None else "reports"
    who = people or ValueGroup(COUNTS)
    answers = [
        collect(way, who, CONSUMERS, PARTITION, epsilon, rng, given, path=path).answer()
        for _ in range(runs)
    ]
    counts = np.array([np.concatenate(a.counts) for a in answers])
    return counts, np.array([np.concatenate(a.variances) for a in answers])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["chp", "split", "sampled", "smart"])
@pytest.mark.parametrize(("mechanism", "epsilon"), [("sue", 3.0), ("best", 1.0)])
def test_unbiased_with_true_standard_errors(way: str, mechanism: str, epsilon: float) -> None:
    runs = 400
    counts, variances = repeat(way, mechanism, epsilon, runs)
    truth, spread = np.concatenate(TRUTH), counts.std(axis=0, ddof=1)
    # 4.5 standard errors of the mean of the runs; of a standard deviation, about 1/sqrt(2 runs) of itself each.
    assert np.all(np.abs(counts.mean(axis=0) - truth) < 4.5 * spread / math.sqrt(runs))
    stated = np.sqrt(variances.mean(axis=0))
    assert np.all(np.abs(spread / stated - 1) < 4.5 / math.sqrt(2 * runs))
    inside = np.abs(counts - truth) < 1.96 * np.sqrt(variances)
    assert 0.93 < inside.mean() < 0.97


def test_the_paper_s_variance_is_rejected() -> None:
    """After theorem 7 the paper says that summing cells does not change the variance; four summed cells say otherwise."""
    counts, _ = repeat("chp", "sue", 1.0, 300)
    one_cell = math.sqrt(build("sue", 8, 1.0).variance(0.3, 2000)) * 2000
    widest = int(np.argmax([row.sum() for c in CONSUMERS for row in PARTITION.membership(c)]))
    assert counts[:, widest].std() > 1.4 * one_cell


@pytest.mark.slow
@pytest.mark.parametrize("way", ["chp", "split", "sampled", "smart"])
def test_reports_and_counts_have_one_law(way: str) -> None:
    from_counts, _ = repeat(way, "best", 2.0, 200)
    from_reports, _ = repeat(way, "best", 2.0, 200, PEOPLE)
    error = np.sqrt(from_counts.var(axis=0) / 200 + from_reports.var(axis=0) / 200)
    assert np.all(np.abs(from_counts.mean(axis=0) - from_reports.mean(axis=0)) < 4.5 * error)
    assert np.all(
        np.abs(np.log(from_counts.std(axis=0) / from_reports.std(axis=0))) < 4.5 / math.sqrt(200)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grr", "sue", "oue", "subset"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_weighted_variance_is_the_group_variance_and_the_simulated_one(
    name: str, epsilon: float
) -> None:
    mechanism, f = build(name, 8, epsilon), COUNTS / COUNTS.sum()
    for size in (1, 3, 7):
        row = np.zeros(8)
        row[:size] = 1.0
        assert mechanism.weighted_variance(row, f, 100) == pytest.approx(
            mechanism.group_variance(size, float(f[:size].sum()), 100), rel=1e-9
        )
    weights, rng = np.array([0.3, -1.0, 2.0, 0.0, 0.5, 1.0, 1.0, 0.25]), np.random.default_rng(2)
    drawn = [
        weights
        @ kernels.estimate(mechanism, kernels.simulate(mechanism, COUNTS, rng), 2000).frequencies
        for _ in range(800)
    ]
    assert np.var(drawn) == pytest.approx(
        mechanism.weighted_variance(weights, f, 2000), rel=4.5 * math.sqrt(2 / 800)
    )


@pytest.mark.parametrize("way", ["chp", "split", "sampled", "smart"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 15.0])
def test_epsilon_is_kept(way: str, epsilon: float) -> None:
    answer = collect(
        way, ValueGroup(COUNTS), CONSUMERS, PARTITION, epsilon, np.random.default_rng(0)
    )
    assert 0.99 * epsilon < answer.epsilon <= epsilon


def test_sampling_is_not_amplified() -> None:
    """Erratum 5: asking one in ten leaves the asked one's epsilon as it was."""
    rng, given = np.random.default_rng(0), {"mechanism": "sue"}
    few = collect(
        "sampled", ValueGroup(COUNTS), CONSUMERS, PARTITION, 2.0, rng, {**given, "share": 0.1}
    )
    all_ = collect("chp", ValueGroup(COUNTS), CONSUMERS, PARTITION, 2.0, rng, given)
    assert few.epsilon == all_.epsilon
    assert few.diagnostics().to_json()["asked"] == 200


def test_bits_are_the_union_of_edges() -> None:
    for bins, cells in (((10,), 10), ((3, 5, 7), 13), ((3, 5, 7, 10, 15), 26)):
        release = histogram(
            [0.5] * 50,
            consumers=bins,
            epsilon=15.0,
            low=0,
            high=1,
            parameters={"mechanism": "sue"},
            seed=1,
        )
        assert release.number.bits_per_report == cells == len(release.number.partition) - 1
        split = histogram(
            [0.5] * 50,
            consumers=bins,
            epsilon=15.0,
            low=0,
            high=1,
            method="split",
            parameters={"mechanism": "sue"},
            seed=1,
        )
        assert split.number.bits_per_report == sum(bins)
    assert build("grr", 13, 3.0).report_bits == 4


def test_chp_beats_split() -> None:
    for epsilon in (3.0, 15.0):
        errors = {}
        for way in ("chp", "split"):
            counts, _ = repeat(way, "sue", epsilon, 100)
            errors[way] = np.mean((counts - np.concatenate(TRUTH)) ** 2)
        assert errors["chp"] < errors["split"]


def test_the_smallest_epsilon_is_used() -> None:
    consumers = [{"bins": 3, "epsilon": 0.5}, {"bins": 5}]
    release = histogram([0.2, 0.8] * 100, consumers=consumers, epsilon=2.0, low=0, high=1, seed=1)
    assert release.epsilon_achieved <= 0.5
    split = histogram(
        [0.2, 0.8] * 100, consumers=consumers, epsilon=2.0, low=0, high=1, method="split", seed=1
    )
    assert 1.4 < split.epsilon_achieved <= 1.5


def test_variance_by_type_averages_to_the_total() -> None:
    mechanism, f = build("grr", 8, 2.0), COUNTS / COUNTS.sum()
    for consumer in CONSUMERS:
        parts = [
            mechanism.group_variance(stop - start, float(f[start:stop].sum()), 1)
            for start, stop in PARTITION.spans(consumer)
        ]
        assert variance_by_type(mechanism, PARTITION, consumer) @ f == pytest.approx(sum(parts))


def test_one_bin_needs_no_question() -> None:
    for way in ("shp", "chp", "split", "sampled", "smart"):
        release = histogram(
            [0.2, 0.8], consumers=[1], epsilon=1.0, low=0, high=1, method=way, seed=1
        )
        assert release.consumers[0].estimates.tolist() == [2.0]
        assert (release.epsilon_achieved, release.number.bits_per_report) == (0.0, 0)
    beside = histogram(
        [0.2, 0.8],
        consumers=[1, 3],
        epsilon=1.0,
        low=0,
        high=1,
        parameters={"mechanism": "sue"},
        seed=1,
    )
    assert beside.consumers[0].estimates.tolist() == [2.0]
    assert beside.consumers[0].standard_errors.tolist() == [0.0]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_release_and_json_is_plain() -> None:
    options: dict[str, Any] = {
        "consumers": [3, [0, 0.25, 1]],
        "epsilon": 1.0,
        "low": 0,
        "high": 1,
        "method": "smart",
    }
    values = np.linspace(0, 1, 500)
    first, second = (histogram(values, **options, seed=4).to_json() for _ in range(2))
    assert first == second
    assert first != histogram(values, **options, seed=5).to_json()
    document = json.loads(json.dumps(first, allow_nan=False))
    assert set(document["consumers"][0]) == {"name", "edges", "estimates", "standard_errors"}
    assert document["seed"] == 4
    fresh, again = (histogram(values, **{**options, "consumers": [40]}) for _ in range(2))
    assert fresh.seed is again.seed is None
    assert (fresh.consumers[0].raw != again.consumers[0].raw).any()


def test_consistent_histograms_agree_and_are_not_negative() -> None:
    for way in ("chp", "split", "smart"):
        release = histogram(
            np.repeat([0.05, 0.3, 0.95], [500, 20, 3]), consumers=[3, 6], epsilon=1.0, low=0, high=1, method=way,
            consistent=True, seed=9,
        )  # fmt: skip
        three, six = (c.estimates for c in release.consumers)
        assert np.allclose(three, six.reshape(3, 2).sum(axis=1), atol=1e-6)
        assert three.min() >= 0
        assert six.min() >= 0
        assert three.sum() == pytest.approx(523)
        assert (release.consumers[1].raw < 0).any()


def test_a_range_from_the_data_is_said_to_leak() -> None:
    release = histogram([1.0, 2.0, 5.0] * 10, consumers=[2], epsilon=1.0, seed=1)
    assert "reveals" in release.warnings[0].message
    assert (release.number.low, release.number.high) == (1.0, 5.0)


def test_dropping_is_said_to_tell() -> None:
    release = histogram(
        [0.5, 7.0], consumers=[2], epsilon=1.0, low=0, high=1, out_of_range="drop", seed=1
    )
    assert "silence" in release.warnings[0].message
    assert release.participants == 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"epsilon": 0.0}, PrivacyError, "above 0"),
        ({"method": "shp", "consumers": [2, 3]}, ParameterError, "one consumer"),
        ({"method": "none"}, ParameterError, "method must be one of chp, shp"),
        ({"parameters": {"mechanism": "none"}}, ParameterError, "mechanism must be one of grr"),
        ({"path": "none"}, ParameterError, "path"),
        ({"low": 2.0}, ParameterError, "below"),
        ({"high": math.inf}, ParameterError, "finite"),
        ({"seed": -1}, ParameterError, "seed"),
        ({"parameters": {"share": 0.5}}, ParameterError, "'chp' has no parameter 'share'"),
        ({"method": "sampled", "parameters": {"share": 0.0}}, ParameterError, "share"),
        ({"method": "smart", "parameters": {"objective": "best"}}, ParameterError, "objective"),
        ({"high": 0.4}, TableError, "outside"),
    ],
)
def test_wrong_options_are_named(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    base: dict[str, Any] = {"consumers": [2], "epsilon": 1.0, "low": 0.0, "high": 1.0, "seed": 1}
    with pytest.raises(error, match=words):
        histogram([0.1, 0.5, 0.9], **{**base, **options})


def test_cells_count_who_was_drawn() -> None:
    mechanism = build("grr", 8, 20.0)
    cells = PureCells(PARTITION, mechanism, COUNTS / COUNTS.sum(), 1000, 2000)
    whole = PureCells(PARTITION, mechanism, COUNTS / COUNTS.sum(), 2000, 2000)
    f = float(COUNTS[:2].sum() / 2000)
    drawn = (
        cells.bin_variances(Consumer("x", (0.0, 0.25)))[0]
        - 2 * whole.bin_variances(Consumer("x", (0.0, 0.25)))[0]
    )
    assert drawn == pytest.approx(2000**2 * f * (1 - f) / 1000 * 1000 / 1999, rel=1e-6)


def test_every_report_is_made_exactly_once() -> None:
    machine = collect(
        "chp",
        PEOPLE,
        CONSUMERS,
        PARTITION,
        2.0,
        np.random.default_rng(0),
        {"mechanism": "grr"},
        path="reports",
    )
    assert machine.counted[0].counts[0].sum() == 2000


@pytest.mark.parametrize(
    ("way", "given"),
    [("chp", {}), ("split", {}), ("smart", {}), ("sampled", {"share": 0.5}), ("sampled", {})],
)
def test_a_release_s_errors_are_the_spread_of_its_estimates(
    way: str, given: dict[str, Any]
) -> None:
    """At epsilon 8 most of a sampled method's variance is who was drawn: counted twice, the chi-square test rejects it."""
    runs, rng, total = 400, np.random.default_rng(8), int(COUNTS.sum())
    estimates, stated, doubled = [], [], []
    for _ in range(runs):
        machine = collect(way, ValueGroup(COUNTS), CONSUMERS, PARTITION, 8.0, rng, given)
        (measured,) = machine.measured()[:1]
        errors = measured_errors([measured], measured.attributes, total)
        assert errors is not None
        estimates.append(measured.frequencies)
        stated.append(errors**2)
        doubled.append(2 * errors**2 - measured.variances)
    ratio = (runs - 1) * np.var(estimates, axis=0, ddof=1) / np.mean(stated, axis=0)
    low, high = chi2.ppf([1e-5, 1 - 1e-5], runs - 1)
    assert np.all((low < ratio) & (ratio < high))
    if way == "sampled":
        twice = (runs - 1) * np.var(estimates, axis=0, ddof=1) / np.mean(doubled, axis=0)
        assert np.any(twice < low)
