"""The Bayes-network method under both plans, both roots, every in-degree."""

import math
from itertools import combinations

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import ParameterError, PrivacyError
from dither.fit import BayesNet, candidates_computed
from dither.methods import start
from dither.methods.bayesnet import BayesNetParameters
from dither.schema import Attribute, Schema
from dither.simulate import simulate

NETWORK = generate_network((3, 2, 4, 3, 2), parents=1, strength=2.5, seed=4)
SCHEMA = NETWORK.schema
N = 12_000
TRUE_EDGES = {tuple(sorted((p, a))) for a, given in enumerate(NETWORK.parents) for p in given}


def run(n=N, epsilon=40.0, seed=0, plan="split", **parameters):
    parameters |= {"plan": plan}
    machine = start("bayesnet", SCHEMA, epsilon, n, parameters, seed).machine
    plans = simulate(
        machine,
        NETWORK.sample_codes(n, np.random.default_rng(seed)),
        np.random.default_rng(seed + 1),
    )
    return machine, plans


def error(model, names):
    return np.abs(model.marginal(names) - NETWORK.marginal(names)).sum() / 2


@pytest.mark.parametrize(
    ("root", "candidates"), [("entropy", "all"), ("entropy", "cached"), ("random", "all")]
)
@pytest.mark.parametrize(("plan", "epsilon", "n"), [("split", 40.0, N), ("sample", 4.0, 60_000)])
def test_the_network_is_found_and_its_marginals_are_right(plan, epsilon, n, root, candidates):
    machine, plans = run(n, epsilon, plan=plan, root=root, candidates=candidates, degree=1)
    model = machine.model()
    assert isinstance(model, BayesNet)
    found = {
        tuple(sorted((SCHEMA.index(p), SCHEMA.index(a))))
        for p, a in machine.diagnostics().to_json()["edges"]
    }
    assert len(found & TRUE_EDGES) >= 3
    assert sum(p.population for p in plans) <= 1 + 1e-9
    if plan == "sample":
        assert {len(p.questions[0].attributes) for p in plans} == {2}
    for i, j in TRUE_EDGES:
        names = [SCHEMA.names[i], SCHEMA.names[j]]
        product = np.multiply.outer(NETWORK.marginal(names[:1]), NETWORK.marginal(names[1:]))
        independent = np.abs(product - NETWORK.marginal(names)).sum() / 2
        # 40 over 5 attributes leaves each nearly exact; sampled pairs have half an L1 norm of noise near 0.03.
        assert error(model, names) < max(0.05, 0.5 * independent)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("candidates", ["all", "cached"])
def test_every_in_degree_is_kept_to_and_reported(degree, candidates):
    machine, _ = run(n=3_000, degree=degree, candidates=candidates)
    model, notes = machine.model(), machine.diagnostics().to_json()
    assert max(len(g) for g in model.parents) == degree
    assert notes["mutual_informations_computed"] == candidates_computed(
        5, degree, cached=candidates == "cached"
    )
    assert notes["mutual_informations_by_algorithm_3_and_4"] == [
        candidates_computed(5, degree, cached) for cached in (False, True)
    ]
    assert notes["sum_of_mutual_information"] > 0.2


def test_the_random_root_follows_the_seed():
    orders = {
        run(n=1_000, seed=seed, root="random", degree=1)[0].learnt.network.order[0]
        for seed in range(8)
    }
    assert len(orders) > 1
    assert (
        run(n=1_000, seed=3, root="random")[0].diagnostics().to_json()
        == run(n=1_000, seed=3, root="random")[0].diagnostics().to_json()
    )


def test_epsilon_is_the_whole_records_and_flip_is_checked():
    machine, plans = run(n=500, epsilon=1.0)
    assert plans[0].split
    assert plans[0].epsilon <= 1.0
    flip = 0.5
    whole = 5 * 2 * math.log((2 - flip) / flip)
    given = {"plan": "split", "flip": flip}
    exact = start("bayesnet", SCHEMA, whole + 1e-6, 500, given).plan()
    assert exact.epsilon == pytest.approx(whole, abs=1e-5)
    with pytest.raises(PrivacyError, match="flip"):
        start("bayesnet", SCHEMA, whole / 5, 500, given)
    assert np.isfinite(machine.model().marginal(["x0", "x2"])).all()


def test_nothing_learnable_falls_back_to_singles():
    machine, plans = run(n=300, epsilon=0.1, plan="sample")
    assert len(plans) == 1
    assert "independent" in machine.diagnostics().to_json()["fallback"]
    assert machine.model().parents == ((),) * 5


def test_wide_joints_give_way_and_one_attribute_is_enough():
    machine, _ = run(n=2_000, max_cells=8, degree=3)
    model = machine.model()
    for a, given in enumerate(model.parents):
        assert math.prod(SCHEMA.cardinalities[p] for p in (a, *given)) <= 8 or not given
    schema = Schema(SCHEMA.attributes[:1])
    for plan in ("split", "sample"):
        one = start("bayesnet", schema, 2.0, 2_000, {"plan": plan})
        simulate(
            one,
            NETWORK.sample_codes(2_000, np.random.default_rng(0))[:, :1],
            np.random.default_rng(0),
        )
        assert one.model().marginal(["x0"]).sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"degree": 0}, "degree"),
        ({"degree": 5}, "degree"),
        ({"flip": 1.0}, "flip"),
        ({"flip": 0.5}, "plan=split"),
        ({"omega": 0.0}, "omega"),
        ({"max_cells": 1}, "max_cells"),
        ({"tolerance": 0.0}, "tolerance"),
    ],
)
def test_bad_parameters_are_named(given, match):
    with pytest.raises(ParameterError, match=match):
        start("bayesnet", SCHEMA, 4.0, N, given)


def test_a_table_of_yes_or_no_attributes_gets_four_parents_and_gains_by_them():
    """Every attribute depends on a hidden state that two others tell little about."""
    rng = np.random.default_rng(4)
    hidden = rng.random(80_000) < 0.5
    columns = [np.where(rng.random(len(hidden)) < 0.75, hidden, ~hidden) for _ in range(8)]
    codes = np.asfortranarray(np.stack(columns, axis=1).astype(np.int32))
    schema = Schema(tuple(Attribute(f"b{i}", "boolean", (False, True)) for i in range(8)))
    errors = {}
    for name, given in (("default", {}), ("two", {"degree": 2})):
        machine = start("bayesnet", schema, 4.0, len(codes), given, 3).machine
        simulate(machine, codes, np.random.default_rng(7))
        model = machine.model()
        apart = []
        for i, j in combinations(range(8), 2):
            exact = np.histogram2d(codes[:, i], codes[:, j], 2)[0] / len(codes)
            found = model.marginal([schema.names[i], schema.names[j]])
            apart.append(np.abs(found - exact).sum() / 2)
        errors[name] = np.mean(apart)
        parents = max(len(g) for g in model.parents)
        assert parents == machine.diagnostics().to_json()["degree"] == (2 if given else 4)
    assert errors["default"] < 0.8 * errors["two"], errors


def test_wider_attributes_and_whole_reports_keep_two_parents():
    assert BayesNetParameters().parents_of(SCHEMA) == 2
    binary = Schema(tuple(Attribute(f"b{i}", "boolean", (False, True)) for i in range(3)))
    assert BayesNetParameters().parents_of(binary) == 4
    assert BayesNetParameters(plan="split").parents_of(binary) == 2
