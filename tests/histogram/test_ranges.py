"""The method `ranges`: its design against brute force, its exact guarantee, its kept design, and its density."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

import dither
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms import kernels
from dither.methods import restore, start
from dither.methods.histogram import optimise, ranges, read_consumers
from dither.methods.histogram import ranges as intervals
from dither.methods.histogram.ranges import interval_strategy
from dither.tally import pack, unpack


def every_interval(cells: int) -> np.ndarray:
    place = np.arange(cells)
    rows = [(place >= a) & (place < b) for a in range(cells) for b in range(a + 1, cells + 1)]
    return np.array(rows, float) / np.sqrt(len(rows))


def mean_variance(probabilities: np.ndarray, workload: np.ndarray) -> float:
    """Of one report, averaged over cells and intervals, with the decoder of least variance."""
    scaled = probabilities / probabilities.sum(axis=1)[:, None]
    decoder = np.linalg.solve(probabilities.T @ scaled, scaled.T)
    return float(((workload @ decoder) ** 2 @ probabilities - workload**2).sum(axis=0).mean())


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_mirrored_design_is_as_good_as_the_plain_one(epsilon: float) -> None:
    workload = every_interval(16)
    plain = optimise(workload, epsilon)
    ratio = np.exp(epsilon)
    slow = plain.weights[:, None] * np.where(plain.sets, ratio, 1.0)
    fast = interval_strategy(16, epsilon).probability_table
    assert mean_variance(fast, workload) <= 1.02 * mean_variance(slow, workload)
    # The measure tells designs apart: randomised response on the cells is far worse.
    chance = ratio / (ratio + 15)
    response = np.full((16, 16), (1 - chance) / 15)
    np.fill_diagonal(response, chance)
    assert mean_variance(fast, workload) < 0.7 * mean_variance(response, workload)


@pytest.mark.parametrize(("cells", "epsilon"), [(16, 1.0), (17, 0.3), (16, 12.0), (16, 30.0)])
def test_the_law_is_exact_and_within_epsilon(cells: int, epsilon: float) -> None:
    strategy = interval_strategy(cells, epsilon)
    columns = [strategy.column(cell) for cell in range(cells)]
    assert all(sum(column) == 2**32 for column in columns)
    worst = max(Fraction(max(row), min(row)) for row in zip(*columns, strict=True))
    assert worst <= strategy.ratio
    assert strategy.epsilon <= epsilon
    assert strategy.epsilon > 0.999 * min(epsilon, intervals.MAX_EPSILON)


def test_an_epsilon_too_small_to_design_for_is_refused() -> None:
    assert interval_strategy(16, 1e-6).epsilon <= 1e-6
    with pytest.raises(ParameterError, match="1e-06 or more, not 1e-09"):
        dither.histogram([1.0, 2.0], epsilon=1e-9, low=0, high=4, method="ranges")


def test_too_many_cells_are_refused() -> None:
    with pytest.raises(ParameterError, match="at most 256"):
        dither.histogram([0.5], consumers=[255, 254], epsilon=1.0, low=0, high=1, method="ranges")
    assert len(cell_edges(200, 1.0)) == 201
    assert len(cell_edges(3, 1.0)) == 137
    assert len(cell_edges(127, 1.0)) == 255, "no room to cut the ends as well"


def cell_edges(bins: int, high: float) -> np.ndarray:
    """The edges of the fine cells for one consumer."""
    schema = ranges.Ranges.schema_of("x", read_consumers([bins], 0.0, high), 0.0, high)
    return np.asarray(schema["x"].edges)


def test_cells_are_finer_at_the_ends_where_heaps_are() -> None:
    edges = cell_edges(16, 1024.0)
    assert edges[:7].tolist() == [0, 1, 2, 4, 8, 16, 24]
    assert (1024 - edges[::-1]).tolist() == edges.tolist()


def test_people_at_the_end_of_the_range_are_found_there() -> None:
    """A quarter of the people at zero: the share from a little above zero on is off by less than a tenth of them, where cells of
    1/128 would spread most of them over the stretch that is asked about."""
    rng = np.random.default_rng(5)
    values = np.concatenate([np.zeros(5000), rng.exponential(15.0, 15_000)]).clip(0, 100)
    release = dither.histogram(values, epsilon=2.0, low=0, high=100, method="ranges", seed=3)
    for above in (0.2, 0.4, 0.6):
        truth = float((values >= above).mean())
        found = release.number.range(above, 100.0)
        assert abs(found.estimate - truth) < 0.025
        assert found.low is not None
        assert found.high is not None
        assert found.low <= truth <= found.high
    even = release.number.cells.smoothed[:4].sum() * (1 - 0.2 / (100 / 128))  # type: ignore[union-attr, index]
    assert even > 0.15, "people taken as spread over the first of 128 cells would be far off"


def test_strong_smoothing_is_there_for_what_is_even() -> None:
    """20,000 even people at epsilon 0.5: all ranges are off by less than with the strengths up to 1,000 and Akaike's price of 2."""
    strategy, rng = interval_strategy(32, 0.5), np.random.default_rng(3)
    counts, truth = np.full(32, 625), np.full(32, 1 / 32)
    ours = theirs = 0.0
    for _ in range(12):
        outputs = kernels.simulate(strategy, counts, rng)
        ours += square_errors(
            ranges.likely_density(strategy.probability_table, outputs, np.ones(32)), truth
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranges, "_FIRST", ranges._FIRST[3:])
            patch.setattr(ranges, "_SECOND", ranges._SECOND[3:])
            patch.setattr(ranges, "SETTINGS", replace(ranges.SETTINGS, price=2.0))
            theirs += square_errors(
                ranges.likely_density(strategy.probability_table, outputs, np.ones(32)), truth
            )
    assert ours < 0.6 * theirs


SCHEMA = ranges.Ranges.schema_of("pay", read_consumers([16], 0.0, 1.0), 0.0, 1.0)


def test_a_kept_design_is_never_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = start("ranges", SCHEMA, 1.0, 1000)
    state, plan = machine.state(), machine.plan()
    monkeypatch.setattr(
        ranges, "interval_strategy", lambda *_: pytest.fail("it was designed again")
    )
    again = restore(state)
    assert plan is not None
    assert again.plan() is not None
    assert again.plan().to_json() == plan.to_json()  # type: ignore[union-attr]
    meta, arrays = unpack(state)
    with pytest.raises(ReportError, match="spends epsilon"):
        restore(pack({**meta, "epsilon": 0.9}, arrays))
    smaller = interval_strategy(16, 1.0).to_json()
    with pytest.raises(ReportError, match="134 cells"):
        restore(pack({**meta, "design": smaller}, arrays))
    broken = json.loads(json.dumps(meta["design"]))
    broken["high"][0] += 1
    with pytest.raises((ReportError, PrivacyError)):
        restore(pack({**meta, "design": broken}, arrays))


def test_a_fit_is_the_best_under_its_penalty() -> None:
    """Newton's method against a general optimiser on the same loss."""
    strategy = interval_strategy(16, 2.0)
    outputs = kernels.simulate(strategy, np.arange(16) * 40, np.random.default_rng(1)).astype(float)
    evidence = ranges.DensityEvidence.of(
        strategy.probability_table, outputs, np.array([1.0, 2.0] * 8)
    )
    differences = evidence._differences[0]
    fit = evidence.fit(differences, 3.0, np.zeros(16))
    penalty = 3.0 * differences.T @ differences
    slow = minimize(lambda logs: evidence._loss(logs, penalty), np.zeros(16), tol=1e-10)
    assert fit.shares == pytest.approx(evidence._shares(slow.x), abs=2e-4)
    rougher = evidence.fit(differences, 0.3, np.zeros(16))
    assert np.abs(rougher.shares - fit.shares).max() > 1e-2  # the check would see another penalty


def square_errors(shares: np.ndarray, truth: np.ndarray) -> float:
    return float(((every_interval(len(truth)) @ (shares - truth)) ** 2).sum())


@pytest.mark.parametrize("shape", ["even", "tail", "spike"])
def test_smoothing_is_chosen_by_the_data(shape: str) -> None:
    """Against EM, which smooths nothing: better where the density is smooth, and hardly worse where it is a spike."""
    place = np.arange(32)
    truth = {"even": np.ones(32), "tail": np.exp(-place / 5), "spike": 1 + 100.0 * (place == 11)}[
        shape
    ]
    counts = np.round(20_000 * truth / truth.sum()).astype(np.int64)
    truth, strategy = counts / counts.sum(), interval_strategy(32, 1.0)
    probabilities, rng = strategy.probability_table, np.random.default_rng(7)
    ours = theirs = 0.0
    for _ in range(12):
        outputs = kernels.simulate(strategy, counts, rng)
        likely = ranges.likely_density(probabilities, outputs, np.ones(32))
        assert likely.sum() == pytest.approx(1)
        assert likely.min() > 0
        plain = np.full(32, 1 / 32)
        for _ in range(600):
            plain *= probabilities.T @ (outputs / (probabilities @ plain)) / outputs.sum()
        ours += square_errors(likely, truth)
        theirs += square_errors(plain, truth)
    assert ours < {"even": 0.6, "tail": 0.9, "spike": 1.5}[shape] * theirs


def test_a_collection_without_consumers() -> None:
    values = np.random.default_rng(3).lognormal(10.8, 0.5, 8000).clip(0, 250_000)
    release = dither.histogram(values, epsilon=2.0, low=0, high=250_000, method="ranges", seed=5)
    (overview,) = release.consumers
    assert overview.edges[[0, -1]].tolist() == [0, 250_000]
    truth = np.histogram(values, overview.edges)[0]
    assert overview.estimates.min() >= 0
    assert overview.estimates.sum() == pytest.approx(8000)
    away = (overview.raw - truth) / overview.standard_errors
    assert (away**2).mean() < 2.2  # sixteen squares: below this with 99 %
    assert ((overview.estimates - truth) ** 2).sum() < ((overview.raw - truth) ** 2).sum()
    assert release.epsilon_achieved <= 2.0
    with pytest.raises(ParameterError, match="one consumer"):
        dither.histogram(values, epsilon=2.0, low=0, high=250_000, method="chp")
    wave = {"mechanism": "square-wave"}
    other = dither.histogram(
        values, epsilon=2.0, low=0, high=250_000, method="ranges", parameters=wave, seed=5
    )
    assert other.number.mechanisms == ("square-wave",)
    assert (
        np.abs(other.consumers[0].raw - truth).max() < 5 * other.consumers[0].standard_errors.max()
    )
