"""PrivIncr: what it asks, what it prunes, how it stops and goes on, both fits, and each kind of bad input."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dither.errors import ParameterError, StateError, TooFewAnswers
from dither.fit import answers_of, pool
from dither.mechanisms import kernels, mechanism
from dither.methods import MethodRun, start
from dither.methods.evidence import Evidence
from dither.methods.privincr import asked_whole, relaxed_threshold, worth_asking
from dither.methods.tree import factor_cells
from dither.schema import Attribute, Schema
from dither.simulate import simulate
from dither.tally import zero

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True)),
        Attribute("c", "ordinal", (1, 2, 3, 4)),
        Attribute("d", "numeric", edges=(0.0, 1.0, 5.0, 9.0), missing=True),
        Attribute("e", "categorical", ("p", "q")),
    )
)
N = 40_000


def people(n=N, seed=0):
    """a drives b and c, c drives d; e stands alone."""
    rng = np.random.default_rng(seed)
    a = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    b = (rng.random(n) < np.array([0.1, 0.5, 0.9])[a]).astype(int)
    c = (a + rng.choice(4, n, p=[0.7, 0.1, 0.1, 0.1])) % 4
    d = (c + rng.choice(4, n, p=[0.8, 0.1, 0.05, 0.05])) % 4
    e = rng.choice(2, n, p=[0.3, 0.7])
    return np.asfortranarray(np.column_stack([a, b, c, d, e]).astype(np.int32))


def begin(n=N, epsilon=2.0, **parameters):
    return start("privincr", SCHEMA, epsilon, n, parameters).machine


def run(n=N, epsilon=2.0, seed=0, **parameters):
    machine = begin(n, epsilon, **parameters)
    plans = simulate(machine, people(n, seed), np.random.default_rng(seed + 1))
    return machine, plans


def distance(model, names, codes):
    positions = [SCHEMA.index(n) for n in names]
    shape = [SCHEMA.cardinalities[p] for p in positions]
    exact = np.bincount(
        np.ravel_multi_index(tuple(codes[:, positions].T), shape), minlength=math.prod(shape)
    )
    return np.abs(model.marginal(names).ravel() - exact / len(codes)).sum() / 2


@pytest.mark.parametrize("fit", ["joint", "paper"])
@pytest.mark.parametrize("mechanism", ["best", "oue"])
def test_dependences_are_learnt_and_independence_too(fit, mechanism):
    machine, plans = run(fit=fit, mechanism=mechanism)
    edges = {tuple(e) for e in machine.diagnostics().to_json()["edges"]}
    assert {("a", "b"), ("a", "c"), ("c", "d")} <= edges
    model, codes = machine.model(), people()
    # At epsilon 2 a pair of 16 cells asked of 3,000 people has standard errors near 0.015: half their L1 norm is 0.1, and
    # pooling over rounds and cliques brings it below that; independence would be 0.2 to 0.5 off.
    for pair in (("a", "b"), ("a", "c"), ("c", "d"), ("a", "d"), ("d", "e")):
        assert distance(model, pair, codes) < 0.1
    shuffled = np.column_stack(
        [np.random.default_rng(i).permutation(codes[:, i]) for i in range(5)]
    )
    assert distance(model, ("a", "c"), shuffled) > 0.2
    assert all(p.epsilon <= 2.0 for p in plans)
    if mechanism == "oue":
        assert {q.mechanism.name for p in plans for q in p.questions} == {"oue"}


def test_the_rounds_share_the_people_and_prune():
    machine, plans = run(rounds=4, omega=0.6)
    assert len(plans) == 5
    assert [p.population for p in plans[:4]] == pytest.approx([0.15] * 4)
    assert plans[4].population == pytest.approx(0.4)
    asked = [sum(len(q.attributes) == 2 for q in p.questions) for p in plans[:4]]
    assert asked[0] == 10
    assert asked == sorted(asked, reverse=True)
    assert machine.diagnostics().to_json()["pairs_left_after_each_round"][-1] < 10


def test_shares_of_the_paper_are_proportional_to_cells():
    plan = begin(shares="cells", singles=0.0, threshold="paper", mechanism="oue").plan()
    cells = np.array([q.mechanism.cells for q in plan.questions])
    assert len(plan.questions) == 10
    np.testing.assert_allclose(plan.shares, cells / cells.sum())
    rooted = begin(singles=0.0).plan()
    weights = np.sqrt([q.mechanism.cells for q in rooted.questions])
    np.testing.assert_allclose(rooted.shares, weights / weights.sum())


def test_pooled_pairs_use_every_round():
    machine, _ = run(rounds=3)
    holding = [a for a in answers_of(machine.counted) if {"a", "c"} <= set(a.question.attributes)]
    assert len(holding) == 4
    plain = pool(SCHEMA, holding, ["a", "c"])
    pooled = machine.evidence.pooled(["a", "c"])
    assert pooled.n == plain.n == sum(a.n for a in holding)
    np.testing.assert_allclose(pooled.frequencies, plain.frequencies, atol=1e-12)
    np.testing.assert_allclose(pooled.standard_errors, plain.standard_errors, rtol=1e-9)
    single = pool(SCHEMA, holding[:1], ["a", "c"])
    assert pooled.standard_errors.mean() < 0.75 * single.standard_errors.mean()


def test_the_relaxed_threshold_is_the_papers_and_prunes_nothing():
    # Spec, erratum 7: 16 x 16 cells and 10^4 reports give about -1.3 nats.
    assert relaxed_threshold(16, 16, 10_000, 0.3, 0.05) == pytest.approx(-1.3, abs=0.35)
    tau = 15 * 0.3**2 / 2
    by_hand = math.sqrt(2 / 10_000 * (256 * math.log(2) - math.log(0.1)))
    half = by_hand / 2
    entropy = -half * math.log(half) - (1 - half) * math.log(1 - half)
    assert relaxed_threshold(16, 16, 10_000, 0.3, 0.05) == pytest.approx(
        tau - half * math.log(255 * 15 * 15) - 3 * entropy
    )
    rising = [relaxed_threshold(4, 4, n, 0.3, 0.05) for n in (10**3, 10**5, 10**9)]
    assert rising == sorted(rising)
    assert rising[-1] == pytest.approx(3 * 0.3**2 / 2, abs=0.02)
    machine, _ = run(threshold="paper")
    assert machine.diagnostics().to_json()["pairs_left_after_each_round"] == [10] * 3


def test_the_calibrated_rule_keeps_few_pairs_of_noise():
    """Independent attributes: a rule at two standard deviations keeps a few of ten pairs at most."""
    codes = people()
    shuffled = np.asfortranarray(
        np.column_stack([np.random.default_rng(i).permutation(codes[:, i]) for i in range(5)])
    )
    machine = begin()
    simulate(machine, shuffled, np.random.default_rng(5))
    assert machine.diagnostics().to_json()["pairs_left_after_each_round"][-1] <= 2
    assert distance(machine.model(), ("a", "c"), shuffled) < 0.08


def test_nothing_learnable_falls_back_to_singles():
    machine, plans = run(n=400, epsilon=0.2)
    assert len(plans) == 1
    assert all(len(q.attributes) == 1 for q in plans[0].questions)
    assert "independent" in machine.diagnostics().to_json()["fallback"]
    model = machine.model()
    joint = model.marginal(["a", "c"])
    np.testing.assert_allclose(
        joint, np.outer(model.marginal(["a"]), model.marginal(["c"])), atol=1e-9
    )
    assert np.isfinite(joint).all()


def test_a_schema_of_one_attribute_needs_no_pairs():
    schema = Schema((Attribute("a", "categorical", ("x", "y", "z")),))
    machine = start("privincr", schema, 1.0, 3_000)
    simulate(machine, people(3_000)[:, :1], np.random.default_rng(0))
    assert machine.model().marginal(["a"]).sum() == pytest.approx(1)


def test_cliques_over_the_cap_give_up_their_weakest_pairs():
    machine, _ = run(max_clique_cells=12, epsilon=6.0)
    notes = machine.diagnostics().to_json()
    assert notes["largest_clique_cells"] <= 12
    assert ["c", "d"] in notes["edges_dropped_for_the_cap"], "16 cells cannot fit into 12"
    with pytest.raises(ParameterError, match="max_clique_cells"):
        begin(max_clique_cells=3)


@pytest.mark.parametrize("fit", ["joint", "paper"])
def test_cliques_of_more_than_two_are_fitted(fit):
    rng = np.random.default_rng(0)
    a = rng.choice(3, N)
    b = (rng.random(N) < np.array([0.1, 0.5, 0.9])[a]).astype(int)
    c = (a + b + rng.choice(4, N, p=[0.85, 0.05, 0.05, 0.05])) % 4
    rest = people()
    codes = np.asfortranarray(np.column_stack([a, b, c, rest[:, 3], rest[:, 4]]).astype(np.int32))
    machine = begin(fit=fit, epsilon=4.0)
    simulate(machine, codes, np.random.default_rng(3))
    assert ["a", "b", "c"] in [
        sorted(clique)[:3] for clique in machine.diagnostics().to_json()["cliques"]
    ]
    assert distance(machine.model(), ("a", "b", "c"), codes) < 0.08


def test_small_factors_when_noise_is_large():
    assert factor_cells(SCHEMA, 1.0, 10_000, 5) < factor_cells(SCHEMA, 4.0, 10_000, 5)
    assert factor_cells(SCHEMA, 0.1, 10, 5) == 4
    machine, _ = run(fit="paper", factor_cells=12, epsilon=4.0)
    assert all(q.mechanism.cells <= 12 for q in machine._closed[-1].plan.questions)


def test_noincremental_is_one_round_of_pairs():
    machine = start("noincremental", SCHEMA, 2.0, N)
    plans = simulate(machine, people(), np.random.default_rng(1))
    assert len(plans) == 2
    assert plans[0].population == pytest.approx(0.5)
    assert distance(machine.model(), ("a", "c"), people()) < 0.1
    with pytest.raises(ParameterError, match="omega"):
        start("noincremental", SCHEMA, 2.0, N, {"omega": 1.0})


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"omega": 0.0}, "omega"),
        ({"omega": 1.0}, "omega"),
        ({"omega": math.nan}, "omega"),
        ({"rounds": 0}, "rounds"),
        ({"singles": 1.0}, "singles"),
        ({"alpha": 0.0}, "alpha"),
        ({"phi": 2.0}, "phi"),
        ({"significance": math.inf}, "significance"),
        ({"factor_cells": 1}, "factor_cells"),
        ({"max_clique_cells": 1}, "max_clique_cells"),
    ],
)
def test_bad_parameters_are_named(given, match):
    with pytest.raises(ParameterError, match=match):
        begin(**given)


def test_more_rounds_than_the_participants_allow_are_refused_and_the_default_adapts():
    with pytest.raises(ParameterError, match="rounds=50 leaves"):
        begin(n=600, rounds=50)
    assert begin(n=600).rounds == 2
    assert begin().rounds == 3


@pytest.mark.parametrize("participants", [1, 15])
def test_too_few_people_for_one_round_of_pairs_is_no_fault_of_a_parameter(participants):
    with pytest.raises(
        TooFewAnswers, match=f"{participants} participants are too few.*more participants"
    ):
        start("noincremental", SCHEMA, 4.0, participants)


def test_a_round_without_reports_stays_open_and_a_missing_attribute_is_named():
    machine = begin()
    plan = machine.plan()
    with pytest.raises(TooFewAnswers, match="without a single report"):
        machine.close(zero(plan))
    assert machine.plan() == plan
    only = next(i for i, q in enumerate(plan.questions) if q.attributes == ("a", "b"))
    tally = zero(plan)
    tally.add_counts(only, np.ones(6, np.int64), 10)
    with pytest.raises(TooFewAnswers, match="nobody answered about c, d, e"):
        machine.close(tally)
    assert machine.plan() == plan
    with pytest.raises(StateError, match="still open"):
        machine.model()


def test_a_pair_that_nobody_answered_is_left_out_not_nan():
    machine = begin(rounds=1)
    plan = machine.plan()
    tally = zero(plan)
    rng = np.random.default_rng(0)
    for i, q in enumerate(plan.questions):
        if q.attributes != ("a", "c"):
            tally.add_counts(
                i,
                kernels.simulate(q.mechanism, np.full(q.mechanism.cells, 50), rng),
                50 * q.mechanism.cells,
            )
    machine.close(tally)
    evidence = Evidence(SCHEMA, answers_of([tally]))
    assert evidence.pair(0, 2) is None
    assert np.isfinite(evidence.information()).all()
    assert machine.plan() is not None


@pytest.mark.parametrize("mechanism", ["grr", "oue", "subset"])
@pytest.mark.parametrize("epsilon", [1.0, 6.0])
def test_scores_of_independent_attributes_are_standard_whatever_the_mechanism(mechanism, epsilon):
    """One frequent value each. Answers that add up to one vary more between cells than in one: 1.3 to 2 times for two values."""
    schema = Schema(
        tuple(Attribute(f"x{i}", "categorical", tuple(range(2 + i % 2))) for i in range(8))
    )
    rng = np.random.default_rng(4)
    squares, plain, scores = [], [], []
    for trial in range(16):
        codes = np.column_stack(
            [
                rng.choice(k, 20_000, p=[0.9, 0.1] if k == 2 else [0.9, 0.06, 0.04])
                for k in schema.cardinalities
            ]
        )
        given = {"mechanism": mechanism, "singles": 0.3, "threshold": "paper"}
        machine = start("noincremental", schema, epsilon, 20_000, given)
        simulate(machine, codes, np.random.default_rng(trial))
        evidence = Evidence(schema, answers_of(machine.counted[:1]))
        for pair, found in evidence.pairs().items():
            degrees = math.prod(schema.cardinalities[a] - 1 for a in pair)
            seen = found.test.statistic + found.test.noise
            squares.append(seen / found.test.noise)
            plain.append(seen / (degrees * found.variances.mean()))
            scores.append(found.test.score)
    # 448 squares over their means, chi-squares of one to four degrees: a standard error of at most sqrt(2/448).
    assert np.mean(squares) == pytest.approx(1.0, abs=4.5 * math.sqrt(2 / 448))
    assert abs(np.mean(scores)) < 0.35
    if mechanism != "oue" and epsilon > 1:
        assert np.mean(plain) > 1.0 + 4.5 * math.sqrt(2 / 448), (
            "the mean variance of a cell would be too little"
        )


def test_the_pairs_that_stay_gain_more_than_any_other_number_of_them():
    machine, _ = run(rounds=1, epsilon=1.0)
    evidence, pairs = machine.evidence, list(combinations(range(5), 2))
    every = worth_asking(evidence, pairs, 0.0, 1e9)
    assert every == pairs, "what costs nothing stays"
    assert worth_asking(evidence, pairs, 1e9, 0.0) == []
    few, many = (worth_asking(evidence, pairs, 1.0, people) for people in (0.0, 1e9))
    assert set(few) <= set(many)
    assert {(0, 1), (0, 2), (2, 3)} <= set(few)


def singles(k, attributes=4, epsilon=1.0, **parameters):
    """The share of participants who are asked about one attribute of k values."""
    names = (f"x{i}" for i in range(attributes))
    schema = Schema(tuple(Attribute(name, "categorical", tuple(range(k))) for name in names))
    plan = start("privincr", schema, epsilon, N, {"threshold": "paper", **parameters}).plan()
    asked = zip(plan.questions, plan.shares, strict=True)
    return sum(share for question, share in asked if len(question.attributes) == 1)


def test_singles_follow_from_the_widths_of_the_domains():
    assert 0.02 < singles(2) < 0.15 < singles(12) < 0.3
    assert singles(2, epsilon=8.0) == 0.0, "a pair of two values each tells as much of each"
    assert singles(4, singles=0.0) == 0.0


def test_singles_make_up_for_what_pairs_tell_less_of_their_attributes():
    one, two = mechanism("best", 2, 1.0), mechanism("best", 4, 1.0)
    alone = one.variance(0.5, 1) + 0.25
    told = 2 * alone / (two.group_variance(2, 0.5, 1) + 0.25)
    assert singles(2, attributes=2) == pytest.approx(0.3 * (1 - told))


def test_pairs_are_asked_for_the_singles_sake_where_they_tell_more():
    schema = Schema(tuple(Attribute(f"x{i}", "categorical", (0, 1)) for i in range(4)))
    codes = np.random.default_rng(0).integers(0, 2, (4_000, 4)).astype(np.int32)
    for epsilon, widths in ((8.0, {2}), (0.5, {1})):
        machine = start("privincr", schema, epsilon, 4_000)
        plans = simulate(machine, codes, np.random.default_rng(1))
        assert not machine.diagnostics().to_json().get("edges")
        assert {len(q.attributes) for q in plans[-1].questions} == widths


@pytest.mark.parametrize(
    ("sizes", "epsilon", "whole"),
    [((2,) * 6, 1.0, False), ((2,) * 4, 8.0, True), ((8, 8, 8), 2.0, False)],
)
def test_a_factor_is_asked_whole_where_its_pairs_are_read_more_exactly(sizes, epsilon, whole):
    """Against the errors of simulated answers of the same people, all about the set or shared between its pairs."""
    assert asked_whole(sizes, range(len(sizes)), epsilon, "best") is whole
    rng = np.random.default_rng(3)
    n, cells = 60_000, math.prod(sizes)
    together = mechanism("best", cells, epsilon)
    truth = rng.multinomial(n, np.full(cells, 1 / cells))
    table = kernels.estimate(
        together, kernels.simulate(together, truth, rng), n
    ).frequencies.reshape(sizes)
    pairs = list(combinations(range(len(sizes)), 2))
    errors = np.zeros(2)
    for pair in pairs:
        shape = [sizes[a] for a in pair]
        exact = np.full(math.prod(shape), 1 / math.prod(shape))
        read = table.sum(axis=tuple(a for a in range(len(sizes)) if a not in pair)).ravel()
        alone, people = mechanism("best", exact.size, epsilon), n // len(pairs)
        asked = kernels.estimate(
            alone, kernels.simulate(alone, rng.multinomial(people, exact), rng), people
        ).frequencies
        errors += [((read - exact) ** 2).sum(), ((asked - exact) ** 2).sum()]
    assert bool(errors[0] < errors[1]) is whole


def of_one_cause(
    n: int, attributes: int, share: float, seed: int, epsilon: float = 8.0, **parameters: Any
) -> MethodRun:
    """Binary attributes that each follow one hidden coin in a share of the people; all their pairs are asked to the end."""
    schema = Schema(tuple(Attribute(f"x{i}", "categorical", (0, 1)) for i in range(attributes)))
    rng = np.random.default_rng(seed)
    shared, own = rng.random((n, 1)) < 0.5, rng.random((n, attributes)) < 0.5
    codes = np.where(rng.random((n, attributes)) < share, shared, own).astype(np.int32)
    machine = start("privincr", schema, epsilon, n, parameters, seed)
    simulate(machine, codes, rng)
    return machine


def test_pairs_that_were_pruned_come_back_where_all_together_show_dependence() -> None:
    """66 weak pairs of which halfway hardly any stands out."""
    back = 0
    for seed in range(4):
        notes = of_one_cause(30_000, 12, 0.13, seed).diagnostics().to_json()
        assert (
            len(notes["edges"])
            == notes["pairs_left_after_each_round"][-1] + notes["pairs_that_came_back"]
        )
        back += notes["pairs_that_came_back"]
        paper = of_one_cause(30_000, 12, 0.13, seed, fit="paper").diagnostics().to_json()
        assert paper["pairs_that_came_back"] == 0, "its cliques are those that were asked"
    assert back > 6


def test_no_pair_comes_back_by_chance_against_a_price_or_below_phi() -> None:
    """Without dependence, two standard deviations alone took back some two of 66 pairs each time."""
    back = [
        of_one_cause(20_000, 12, 0.0, seed, 3.0).diagnostics().to_json()["pairs_that_came_back"]
        for seed in range(12)
    ]
    assert sum(back) <= 12
    assert back.count(0) >= 9
    for dear in ({"phi": 1.0}, {"price": 1e9}):
        notes = of_one_cause(100_000, 6, 0.5, 0, **dear).diagnostics().to_json()
        assert notes["pairs_left_after_each_round"][-1] == notes["pairs_that_came_back"] == 0
        assert "fallback" in notes
    # What is asked has no part in what is kept.
    edges = [
        of_one_cause(20_000, 12, 0.0, 1, 3.0, significance=sig).diagnostics().to_json().get("edges")
        for sig in (2.0, -5.0)
    ]
    assert edges[0] == edges[1]
