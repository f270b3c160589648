"""The house method: what it asks, when it screens, what it falls back to, and what it learns."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.datasets import RandomNetwork as Network
from dither.datasets import generate_network
from dither.errors import DitherError, ParameterError
from dither.fit import answers_of
from dither.fit.mixture.targets import pair_targets
from dither.mechanisms import kernels
from dither.methods import Campaign, MethodRun, restore
from dither.methods.independent import IndependentParameters, IndependentProtocol
from dither.methods.mixture.machine import MixtureParameters, MixtureProtocol
from dither.methods.mixture.plan import (
    SETTINGS,
    Screen,
    ScreenDesign,
    attribute_sets,
    design,
    evidence,
    marginal_variance,
    one_way_precision,
    pair_plan,
    pairs_are_free,
    paying_members,
    plan_screen,
    rest_shares,
    screen_cost,
    second_round,
    single_shares,
)
from dither.reports import Plan, question
from dither.schema import Attribute, Schema
from dither.simulate import simulate
from dither.tally import CountTally, zero

WIDE = (105, 16, 8, 4, 2, 2, 10, 20, 6, 3)
ADULT = (16, 7, 16, 16, 16, 7, 14, 6, 5, 2, 16, 16, 16, 41, 2)


def finished(
    network: Network, n: int, epsilon: float, seed: int = 0, **settings: object
) -> MixtureProtocol:
    rng = np.random.default_rng(seed)
    machine = MixtureProtocol(
        Campaign(network.schema, epsilon, n, seed), MixtureParameters(**settings)
    )  # type: ignore[arg-type]
    simulate(machine, network.sample_codes(n, rng), rng)
    return machine


def two_way_error(machine: MixtureProtocol | IndependentProtocol, network: Network) -> float:
    names, model = network.schema.names, machine.model()
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return float(
        np.mean([np.abs(model.marginal(p) - network.marginal(p)).sum() / 2 for p in pairs])
    )


# ---- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("cardinalities", [(2,) * 8, ADULT, WIDE, (3, 2), (50, 60, 70)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_shares_add_up_and_follow_from_public_facts(
    cardinalities: tuple[int, ...], epsilon: float
) -> None:
    everyone = range(len(cardinalities))
    plan = pair_plan(cardinalities, epsilon, everyone)
    assert math.fsum(s for _, s in plan) == pytest.approx(1)
    assert all(s > 0 for _, s in plan)
    assert plan == pair_plan(cardinalities, epsilon, everyone), "no hidden chance"
    asked = {
        pair for members, _ in plan for pair in ((a, b) for a in members for b in members if a < b)
    }
    assert len(asked) == len(cardinalities) * (len(cardinalities) - 1) // 2, "every pair is asked"
    campaign = Campaign(schema_of(cardinalities), epsilon, 1_000_000, seed=1)
    first = MixtureProtocol(campaign, MixtureParameters()).plan()
    other = MixtureProtocol(
        Campaign(campaign.schema, epsilon, 1_000_000, seed=2), MixtureParameters()
    ).plan()
    assert first is not None
    assert other is not None
    assert first.to_json() == other.to_json(), "nor does the first round depend on the seed"


def schema_of(cardinalities: tuple[int, ...]) -> Schema:
    return Schema(
        tuple(Attribute(f"x{i}", "ordinal", tuple(range(k))) for i, k in enumerate(cardinalities))
    )


def test_sets_replace_pairs_only_where_a_report_then_tells_more() -> None:
    assert {len(s) for s in attribute_sets(range(16), (2,) * 16, 4.0)} >= {4}
    assert {len(s) for s in attribute_sets(range(15), ADULT, 1.0)} == {2}
    for members in attribute_sets(range(16), (2,) * 16, 1.0):
        cells = 2 ** len(members)
        told = (
            math.comb(len(members), 2)
            * marginal_variance(4, 4, 1.0)
            / marginal_variance(cells, 4, 1.0)
        )
        assert told >= 1.0


def test_where_nothing_can_be_learnt_the_questions_are_those_of_independent() -> None:
    schema = schema_of(ADULT)
    ours = MixtureProtocol(Campaign(schema, 0.1, 10_000), MixtureParameters()).plan()
    theirs = IndependentProtocol(Campaign(schema, 0.1, 10_000), IndependentParameters()).plan()
    assert isinstance(ours, Plan)
    assert theirs is not None
    assert ours.to_json() == theirs.to_json()


@pytest.mark.slow
def test_a_campaign_opens_as_public_facts_say() -> None:
    assert design((2,) * 16, 100_000, 4.0).pairs, "binary attributes in sets cost nothing"
    assert pairs_are_free((2,) * 16, 4.0)
    assert not pairs_are_free(ADULT, 1.0)
    adult = design(ADULT, 1_500_000, 1.0)
    assert adult.screen is not None
    assert set(adult.screen.members) <= {1, 5, 7, 8, 9, 14}, "the narrow ones are screened"
    hopeless = design(ADULT, 10_000, 0.5)
    assert hopeless.screen is None
    assert not hopeless.pairs
    assert design(ADULT, 10_000, 0.5, "always").screen is not None
    assert design(ADULT, 10_000, 0.5, "never").pairs
    assert design((5,), 1000, 1.0, "always").screen is None


@pytest.mark.slow
@pytest.mark.parametrize("cardinalities", [ADULT, WIDE, (10,) * 12, (2,) * 16, (3, 4)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_screen_that_finds_nothing_costs_little(
    cardinalities: tuple[int, ...], epsilon: float
) -> None:
    screen = plan_screen(cardinalities, 1_000_000, epsilon)
    assert 0 < screen.share <= SETTINGS.max_share
    few = len(cardinalities) == 2 and epsilon == 0.1  # a single pair in so much noise
    assert (
        screen_cost(cardinalities, epsilon, screen)
        <= (SETTINGS.loss_one_pair if few else SETTINGS.loss) + 1e-6
    )


def test_two_dependent_numbers_are_asked_together() -> None:
    """The only pair there is: its screen has enough people to see a correlation of 0.8, and independence stays what it was."""
    rng = np.random.default_rng(5)
    first, apart = rng.beta(2, 4, (2, 20_000))
    other = 0.4 * rng.beta(4, 2, 20_000)
    schema = dither.Schema(
        tuple(
            dither.Attribute(name, "numeric", edges=tuple(np.linspace(0, 1, 9).tolist()))
            for name in "ab"
        )
    )
    for source, dependent in ((first, True), (apart, False)):
        table = pa.table({"a": first, "b": 0.6 * source + other})
        release = dither.publish(
            table, epsilon=2.0, schema=schema, method="mixture", seed=3, rows=10
        )
        joint = np.asarray(release.marginal(["a", "b"]).frequencies).reshape(8, 8)
        apart_from = float(np.abs(joint - np.outer(joint.sum(axis=1), joint.sum(axis=0))).sum())
        assert (apart_from > 0.3) is dependent
        assert (apart_from < 1e-9) is not dependent


def test_the_only_pair_is_asked_at_once_where_a_screen_would_miss_it() -> None:
    """8 x 8 cells, epsilon 1, 20,000 people: a screen of at most a quarter sees the correlation of 0.8 in few collections."""
    asked = design((8, 8), 20_000, 1.0, ordered=True)
    assert asked == ScreenDesign(None, pairs=True, alone=SETTINGS.only_pair_singles)
    assert design((8, 8), 20_000, 1.0).screen is not None, (
        "without an order there is no correlation to learn"
    )
    assert design((8, 8), 20_000, 2.0, ordered=True).screen is not None, "here a screen sees enough"
    assert design((8, 8, 8), 20_000, 1.0, ordered=True) == design((8, 8, 8), 20_000, 1.0)
    assert not design((60, 60), 20_000, 0.5, ordered=True).pairs, (
        "nor would half of the people see anything"
    )
    rng = np.random.default_rng(5)
    first = rng.beta(2, 4, 20_000)
    table = pa.table({"a": first, "b": 0.6 * first + 0.4 * rng.beta(4, 2, 20_000)})
    edges = tuple(np.linspace(0, 1, 9).tolist())
    schema = dither.Schema(tuple(dither.Attribute(name, "numeric", edges=edges) for name in "ab"))
    truth = np.histogram2d(table["a"], table["b"], bins=8, range=[(0, 1), (0, 1)])[0] / 20_000
    independent = np.abs(truth - np.outer(truth.sum(axis=1), truth.sum(axis=0))).sum()
    for seed in range(4):
        release = dither.publish(
            table, epsilon=1.0, schema=schema, method="mixture", seed=seed, rows=10
        )
        found = np.asarray(release.marginal(["a", "b"]).frequencies).reshape(8, 8)
        assert np.abs(found - truth).sum() < 0.75 * independent


def test_the_rest_of_the_people_make_up_for_the_screen() -> None:
    epsilon = 1.0
    np.testing.assert_allclose(
        rest_shares(WIDE, epsilon, np.zeros(len(WIDE)), 0.1),
        single_shares(WIDE, epsilon),
        rtol=1e-12,
    )
    screen = plan_screen(WIDE, 1_000_000, epsilon)
    asked = screen.share * one_way_precision(WIDE, epsilon, screen.sets)
    rest = rest_shares(WIDE, epsilon, asked, screen.share)
    assert rest.sum() == pytest.approx(1)
    assert all(rest[i] < single_shares(WIDE, epsilon)[i] for i in screen.members)
    plan = pair_plan(ADULT, epsilon, range(15))
    screen = plan_screen(ADULT, 1_500_000, epsilon)
    second = dict(second_round(screen, plan))
    both = {
        m: screen.share * dict(screen.sets).get(m, 0.0) + (1 - screen.share) * s
        for m, s in second.items()
    }
    for members, share in plan:
        assert both[members] == pytest.approx(share, rel=1e-9), (
            "together the rounds are the one-round plan"
        )


# ---- the test for dependence -----------------------------------------------------------------------------------------


def screened(network: Network, n: int, epsilon: float, rng: np.random.Generator) -> float:
    """The p-value of all pairs of a network's attributes, asked of n people."""
    k = network.schema.cardinalities
    sets = Screen(tuple(range(len(k))), 1.0).sets
    questions = tuple(
        question(network.schema, [network.schema.names[i] for i in m], epsilon) for m, _ in sets
    )
    tally = zero(Plan(0, questions, tuple(s for _, s in sets)))
    assert isinstance(tally, CountTally)
    each = n // len(sets)
    for i, q in enumerate(questions):
        truth = rng.multinomial(each, network.marginal(q.attributes).ravel())
        tally.add_counts(i, kernels.simulate(q.mechanism, truth, rng), each)
    return evidence(pair_targets(network.schema, answers_of([tally]))).p_value


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "n"), [(0.5, 20_000), (2.0, 5_000), (6.0, 20_000)])
def test_independent_attributes_are_seldom_taken_for_dependent(epsilon: float, n: int) -> None:
    network = generate_network((2, 3, 5, 4), strength=0.0, seed=2)
    rng = np.random.default_rng(0)
    p_values = np.array([screened(network, n, epsilon, rng) for _ in range(150)])
    # Bonferroni keeps the level; allow four standard errors of a proportion.
    for level in (SETTINGS.level, 0.1, 0.3):
        assert (p_values < level).mean() <= level + 4 * np.sqrt(level * (1 - level) / len(p_values))
    assert (p_values < 0.7).mean() > 0.1, "and the test is not asleep"


def test_strong_dependence_is_seen() -> None:
    network = generate_network((2, 3, 5, 4), strength=3.0, seed=2)
    rng = np.random.default_rng(0)
    assert all(screened(network, 20_000, 1.0, rng) < SETTINGS.level for _ in range(20))


def test_a_test_that_thought_the_noise_smaller_would_see_ghosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = generate_network((2, 3, 5, 4), strength=0.0, seed=2)
    import dither.methods.mixture.plan as module

    tail = module._gamma_tail
    monkeypatch.setattr(module, "_gamma_tail", lambda v, m, s: tail(v * 2.0, m, s))
    rng = np.random.default_rng(0)
    assert np.mean([screened(network, 20_000, 0.5, rng) < SETTINGS.level for _ in range(60)]) > 0.2


# ---- whole campaigns -------------------------------------------------------------------------------------------------


def test_strong_dependence_is_learnt_in_two_rounds() -> None:
    network = generate_network((2, 3, 4, 5, 6, 2, 3, 4), strength=3.0, seed=7)
    machine = finished(network, 200_000, 1.0)
    notes = machine.diagnostics().to_json()
    assert notes["screen"]["p_value"] < SETTINGS.level
    assert notes["asked_in_pairs"] >= 3
    assert "fallbacks" not in notes
    baseline = IndependentProtocol(machine.campaign, IndependentParameters())
    rng = np.random.default_rng(0)
    simulate(baseline, network.sample_codes(200_000, rng), rng)
    assert two_way_error(machine, network) < 0.8 * two_way_error(baseline, network)
    again = restore(MethodRun(machine).state())
    assert again.model().to_bytes() == machine.model().to_bytes()


def test_independent_attributes_end_in_their_product() -> None:
    network = generate_network((2, 3, 4, 5, 6, 2, 3, 4), strength=0.0, seed=7)
    machine = finished(network, 50_000, 1.0)
    assert machine.diagnostics().to_json()["asked_in_pairs"] == 0
    assert "too little dependence" in machine.diagnostics().to_json()["fallbacks"][0]
    model = machine.model()
    names = network.schema.names
    np.testing.assert_allclose(
        model.marginal(names[:2]),
        np.outer(model.marginal(names[:1]), model.marginal(names[1:2])),
        atol=1e-12,
    )


def test_nobody_is_asked_twice_and_the_second_round_waits_for_the_first() -> None:
    network = generate_network((2, 3, 4, 5, 6, 2, 3, 4), strength=3.0, seed=7)
    machine = finished(network, 100_000, 1.0)
    plans = [t.plan for t in machine._closed]
    assert [p.round for p in plans] == [0, 1]
    assert sum(p.population for p in plans) == pytest.approx(1)
    assert sum(t.participants for t in machine._closed) <= 100_000


def test_the_screen_can_be_forced_or_forbidden() -> None:
    network = generate_network((2, 2, 3), strength=2.0, seed=3)
    never = finished(network, 5_000, 0.5, screen="never")
    assert len(never._closed) == 1
    assert never.diagnostics().to_json()["asked_in_pairs"] == 3
    always = finished(network, 5_000, 6.0, screen="always")
    assert len(always._closed) == 2
    with pytest.raises(ParameterError, match="components"):
        MixtureParameters(components=0)
    with pytest.raises(ParameterError, match="singles"):
        MixtureParameters(singles=1.0)


@pytest.mark.parametrize("cardinalities", [(4,), (2, 3)])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_one_and_two_attributes(cardinalities: tuple[int, ...], epsilon: float) -> None:
    network = generate_network(cardinalities, strength=2.0, seed=1)
    machine = finished(network, 30_000, epsilon)
    model = machine.model()
    for name in network.schema.names:
        assert np.abs(model.marginal([name]) - network.marginal([name])).sum() / 2 < 0.12
    assert model.sample(100, np.random.default_rng(0)).shape == (100, len(cardinalities))


def test_missing_codes_are_values_like_any_other() -> None:
    network = generate_network((3, 4, 3, 5), strength=2.0, seed=4, missing=True)
    assert any(a.missing for a in network.schema)
    model = finished(network, 60_000, 3.0).model()
    for name in network.schema.names:
        assert np.abs(model.marginal([name]) - network.marginal([name])).sum() / 2 < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("screen", ["auto", "always", "never"])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_hardly_any_people_give_a_clear_error_or_a_model_without_nan(n: int, screen: str) -> None:
    network = generate_network((2, 3, 4), strength=1.0, seed=1)
    for epsilon in (0.1, 6.0):
        try:
            machine = finished(network, n, epsilon, screen=screen)
        except DitherError as error:
            complaint = str(error)
        else:
            complaint = ""
        if complaint:
            assert "participants" in complaint or "report" in complaint
            continue
        for name in network.schema.names:
            marginal = machine.model().marginal([name])
            assert np.isfinite(marginal).all()
            assert marginal.sum() == pytest.approx(1)


def test_members_are_those_for_which_pairs_pay() -> None:
    network = generate_network((2, 2, 3, 90), strength=3.0, seed=1)
    seen = evidence_of(network, 40_000, 1.0)
    assert seen.found
    assert 3 not in paying_members(network.schema.cardinalities, 2_000, 1.0, seen), (
        "the wide one stays alone"
    )
    assert paying_members(network.schema.cardinalities, 40_000_000_000, 1.0, seen) == [0, 1, 2, 3]
    assert paying_members(network.schema.cardinalities, 10, 1.0, seen) == []


def evidence_of(network: Network, n: int, epsilon: float):  # type: ignore[no-untyped-def]
    rng, schema = np.random.default_rng(0), Schema(network.schema.attributes[:3])
    answers = []
    for pair in (("x0", "x1"), ("x0", "x2"), ("x1", "x2")):
        q = question(schema, pair, epsilon)
        tally = zero(Plan(0, (q,), (1.0,)))
        assert isinstance(tally, CountTally)
        tally.add_counts(
            0,
            kernels.simulate(q.mechanism, rng.multinomial(n, network.marginal(pair).ravel()), rng),
            n,
        )
        answers += answers_of([tally])
    return evidence(pair_targets(schema, answers))
