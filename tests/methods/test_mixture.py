"""The default method: what it asks, what it falls back to, and what it learns."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.datasets import RandomNetwork as Network
from dither.datasets import generate_network
from dither.errors import DitherError, ParameterError
from dither.fit import Model, answers_of
from dither.methods import MethodRun, restore, start
from dither.schema import Attribute, Schema
from dither.simulate import simulate

ADULT = (16, 7, 16, 16, 16, 7, 14, 6, 5, 2, 16, 16, 16, 41, 2)


def schema_of(cardinalities: tuple[int, ...], kind: str = "categorical") -> Schema:
    return Schema(
        tuple(Attribute(f"x{i}", kind, tuple(range(k))) for i, k in enumerate(cardinalities))
    )


def run_on(
    schema: Schema, codes: np.ndarray, epsilon: float, seed: int = 0, **parameters: object
) -> MethodRun:
    run = start("mixture", schema, epsilon, len(codes), parameters, seed)
    simulate(run, np.asfortranarray(codes.astype(np.int32)), np.random.default_rng([seed, 7]))
    return run


def finished(
    network: Network, n: int, epsilon: float, seed: int = 0, **parameters: object
) -> MethodRun:
    codes = network.sample_codes(n, np.random.default_rng(seed))
    return run_on(network.schema, codes, epsilon, seed, **parameters)


def pair_error(model: Model, codes: np.ndarray) -> float:
    schema = model.schema
    found = []
    for i, j in combinations(range(len(schema)), 2):
        k, m = schema.cardinalities[i], schema.cardinalities[j]
        truth = np.bincount(codes[:, i] * m + codes[:, j], minlength=k * m) / len(codes)
        pair = model.marginal([schema.names[i], schema.names[j]]).ravel()
        found.append(0.5 * np.abs(pair - truth).sum())
    return float(np.mean(found))


def people_by_question(run: MethodRun) -> dict[tuple[str, ...], int]:
    out: dict[tuple[str, ...], int] = {}
    for answer in answers_of(run.machine.counted):
        names = answer.question.attributes
        out[names] = out.get(names, 0) + answer.n
    return out


# What is asked.


@pytest.mark.slow
@pytest.mark.parametrize("cardinalities", [(2,) * 8, ADULT, (3, 2), (50, 60, 70)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_first_round_follows_from_public_facts(
    cardinalities: tuple[int, ...], epsilon: float
) -> None:
    schema = schema_of(cardinalities)
    plans = [start("mixture", schema, epsilon, 1_000_000, {}, seed).plan() for seed in (1, 2)]
    assert plans[0] is not None
    assert plans[1] is not None
    assert plans[0].to_json() == plans[1].to_json(), "the seed has no part in it"
    assert math.fsum(plans[0].shares) == pytest.approx(1)
    asked = {name for question in plans[0].questions for name in question.attributes}
    assert asked == set(schema.names)


def test_narrow_attributes_are_asked_in_sets() -> None:
    plan = start("mixture", schema_of((2,) * 16), 4.0, 100_000).plan()
    assert plan is not None
    assert max(len(q.attributes) for q in plan.questions) >= 4
    wide = start("mixture", schema_of(ADULT), 1.0, 1_500_000).plan()
    assert wide is not None
    assert {len(q.attributes) for q in wide.questions} <= {1, 2}


def test_where_nothing_can_be_learnt_the_questions_are_those_of_independent() -> None:
    schema = schema_of(ADULT)
    ours, theirs = (start(name, schema, 0.1, 10_000).plan() for name in ("mixture", "independent"))
    assert ours is not None
    assert theirs is not None
    assert [q.to_json() for q in ours.questions] == [q.to_json() for q in theirs.questions]
    assert ours.shares == pytest.approx(theirs.shares)


def test_people_follow_dependence() -> None:
    """Two copies among six attributes: their pair gets most of the later people in pairs."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 8, (100_000, 6))
    codes[:, 1] = codes[:, 0]
    run = run_on(schema_of((8,) * 6), codes, 2.0)
    people = people_by_question(run)
    pairs = {names: n for names, n in people.items() if len(names) == 2}
    assert max(pairs, key=lambda names: pairs[names]) == ("x0", "x1")
    assert pairs["x0", "x1"] > 0.25 * sum(pairs.values())
    first = run.plans[0]
    shares = {q.attributes: s for q, s in zip(first.questions, first.shares, strict=True)}
    assert pairs["x0", "x1"] > 5 * shares["x0", "x1"] * first.population * 100_000


def test_later_rounds_ask_no_question_of_a_handful_of_people() -> None:
    network = generate_network((6, 4, 5, 3, 6, 4, 5, 3), parents=1, strength=1.5, seed=2)
    run = finished(network, 20_000, 2.0)
    assert len(run.plans) == 4
    for plan in run.plans[1:]:
        assert min(plan.shares) * plan.population * 20_000 >= 19.0


def test_a_pair_that_follows_from_others_is_not_asked_for_long() -> None:
    """A chain a-b-c: the pair a-c depends strongly, and all of it through b."""
    rng = np.random.default_rng(3)
    columns = [rng.integers(0, 6, 150_000)]
    for _ in range(2):
        keep = rng.random(150_000) < 0.7
        columns.append(np.where(keep, columns[-1], rng.integers(0, 6, 150_000)))
    people = people_by_question(run_on(schema_of((6,) * 3), np.stack(columns, axis=1), 2.0))
    assert people["x0", "x2"] < 0.4 * min(people["x0", "x1"], people["x1", "x2"])


def test_rounds_ask_disjoint_people_and_fewer_rounds_can_be_asked_for() -> None:
    network = generate_network((2, 3, 4, 5, 6, 2, 3, 4), strength=2.0, seed=7)
    for rounds in (1, 2, 3, 4):
        run = finished(network, 60_000, 1.0, rounds=rounds)
        assert [plan.round for plan in run.plans] == list(range(rounds))
        assert sum(plan.population for plan in run.plans) == pytest.approx(1)
        assert sum(tally.participants for tally in run.closed) <= 60_000
        assert all(plan.epsilon <= 1.0 for plan in run.plans)
    for bad in ({"rounds": 0}, {"rounds": 5}, {"components": 0}, {"total": 1}, {"screen": "auto"}):
        with pytest.raises(ParameterError):
            start("mixture", network.schema, 1.0, 1000, bad)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cardinalities", "epsilon"), [((8,) * 8, 1.0), ((16,) * 6, 2.0), ((4, 6, 3, 8, 2, 5), 4.0)]
)
def test_one_way_errors_stay_near_those_of_independent(
    cardinalities: tuple[int, ...], epsilon: float
) -> None:
    """Attributes that all depend on each other draw people to pairs, but not without limit."""
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        common = rng.random(60_000)
        codes = np.stack(
            [
                np.minimum((0.7 * common + 0.3 * rng.random(60_000)) * k, k - 1)
                for k in cardinalities
            ],
            axis=1,
        ).astype(np.int64)
        schema = schema_of(cardinalities, "ordinal")
        errors = []
        for name in ("mixture", "independent"):
            run = start(name, schema, epsilon, len(codes), {}, seed)
            simulate(run, codes.astype(np.int32), np.random.default_rng([seed, 7]))
            model = run.model()
            errors.append(
                sum(
                    np.abs(
                        model.marginal([f"x{i}"]) - np.bincount(codes[:, i], minlength=k) / 60_000
                    ).sum()
                    for i, k in enumerate(cardinalities)
                )
            )
        ratios.append(errors[0] / errors[1])
    assert np.mean(ratios) < 1.55


# What is learnt.


@pytest.mark.slow
def test_strong_dependence_is_learnt_and_a_restored_run_gives_the_same() -> None:
    network = generate_network((2, 3, 4, 5, 6, 2, 3, 4), strength=3.0, seed=7)
    codes = network.sample_codes(200_000, np.random.default_rng(0))
    run = run_on(network.schema, codes, 1.0)
    baseline = start("independent", network.schema, 1.0, 200_000)
    simulate(baseline, codes, np.random.default_rng(0))
    assert pair_error(run.model(), codes) < 0.6 * pair_error(baseline.model(), codes)
    facts = run.diagnostics().to_json()
    assert "fallback" not in facts
    assert sum(facts["fit"]["shares"].values()) == pytest.approx(1)
    assert facts["people_in_pairs"] > 0.3
    again = restore(run.state())
    assert again.model().to_bytes() == run.model().to_bytes()


def test_independent_attributes_end_in_their_product() -> None:
    network = generate_network((2, 3, 4, 5, 6, 2, 3, 4), strength=0.0, seed=7)
    products = 0
    for seed in range(5):
        run = finished(network, 50_000, 1.0, seed)
        model, names = run.model(), network.schema.names
        outer = np.outer(model.marginal(names[:1]), model.marginal(names[1:2]))
        distance = np.abs(model.marginal(names[:2]) - outer).sum()
        fell_back = "modelled as independent" in run.diagnostics().to_json().get("fallback", "")
        assert bool(distance < 1e-9) is fell_back
        products += fell_back
    assert products >= 3


def test_a_dependence_of_three_is_not_taken_for_one_of_pairs() -> None:
    """Triples of bits with an exclusive or: no pair depends."""
    ratios = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 2, (40_000, 6))
        codes[:, 2] = codes[:, 0] ^ codes[:, 1]
        codes[:, 5] = codes[:, 3] ^ codes[:, 4]
        run = run_on(schema_of((2,) * 6), codes, 2.0, seed)
        model = run.model()
        flat = [model.marginal([name]) for name in run.campaign.schema.names]
        product = np.mean(
            [
                0.5
                * np.abs(
                    np.outer(flat[i], flat[j]).ravel()
                    - np.bincount(2 * codes[:, i] + codes[:, j], minlength=4) / len(codes)
                ).sum()
                for i, j in combinations(range(6), 2)
            ]
        )
        ratios.append(pair_error(model, codes) / product)
    assert np.mean(ratios) < 1.1


@pytest.mark.slow
def test_copies_of_wide_columns_are_learnt() -> None:
    """Two columns of 100 values that are copies, 200,000 people, epsilon 4."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        first = rng.integers(0, 100, 200_000)
        order = rng.permutation(100)
        codes = np.stack([first, order[first]], axis=1)
        run = run_on(schema_of((100, 100)), codes, 4.0, seed)
        joint = run.model().marginal(["x0", "x1"])
        assert joint[np.arange(100), order].sum() > 0.8


def test_two_dependent_numbers_are_asked_together() -> None:
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
        assert (apart_from < 0.1) is not dependent


@pytest.mark.slow
def test_noise_of_few_people_in_many_cells_is_not_believed() -> None:
    """1,500 people, four independent attributes of 30 values, epsilon 8."""
    errors, products = [], []
    for seed in range(4):
        codes = np.random.default_rng(seed).integers(0, 30, (1_500, 4))
        run = run_on(schema_of((30,) * 4), codes, 8.0, seed)
        alone = start("independent", schema_of((30,) * 4), 8.0, 1_500, {}, seed)
        simulate(alone, codes.astype(np.int32), np.random.default_rng([seed, 7]))
        even = np.full((30, 30), 1 / 900)
        for model, found in ((run.model(), errors), (alone.model(), products)):
            pair = model.marginal(["x0", "x1"])
            found.append(0.5 * np.abs(pair - even).sum())
    assert np.mean(errors) < 1.3 * np.mean(products)


# Edges.


@pytest.mark.parametrize("cardinalities", [(4,), (2, 3)])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_one_and_two_attributes(cardinalities: tuple[int, ...], epsilon: float) -> None:
    network = generate_network(cardinalities, strength=2.0, seed=1)
    model = finished(network, 30_000, epsilon).model()
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
@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize("n", [1, 2, 7, 40, 200])
def test_few_people_give_a_clear_error_or_a_model_without_nan(n: int, rounds: int) -> None:
    network = generate_network((2, 3, 4), strength=1.0, seed=1)
    for epsilon in (0.1, 6.0):
        complaint = ""
        try:
            run = finished(network, n, epsilon, rounds=rounds)
        except DitherError as error:
            complaint = str(error)
        if complaint:
            assert "participants" in complaint or "report" in complaint
            continue
        for name in network.schema.names:
            marginal = run.model().marginal([name])
            assert np.isfinite(marginal).all()
            assert marginal.sum() == pytest.approx(1)


@pytest.mark.parametrize(("people", "numbers"), [(178, 13), (569, 30)])
def test_a_short_attribute_of_a_small_table_is_asked(people: int, numbers: int) -> None:
    """The pilot expected 0.3 answers about it, and the collection ended without a release."""
    schema = schema_of((16,) * numbers + (3,), "ordinal")
    for seed in range(5):
        codes = np.random.default_rng(seed).integers(0, schema.cardinalities, (people, numbers + 1))
        run = run_on(schema, codes, 8.0, seed)
        assert set(people_by_question(run)) == {(name,) for name in schema.names}
        assert run.model().marginal([schema.names[-1]]).sum() == pytest.approx(1.0)
