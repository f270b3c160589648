"""LoPub from reports to a synthetic table, and each kind of bad input."""

import math

import numpy as np
import pytest

from dither.errors import ParameterError, PrivacyError, SchemaError
from dither.fit import Model
from dither.mechanisms import BloomRappor
from dither.methods import ProtocolMachine, start
from dither.methods.lopub import noise_aware
from dither.schema import Attribute, Schema
from dither.simulate import simulate

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True)),
        Attribute("c", "ordinal", (1, 2, 3, 4)),
        Attribute("d", "numeric", edges=(0.0, 1.0, 5.0, 9.0), missing=True),
        Attribute("e", "categorical", ("p", "q")),
    )
)
N = 8_000


def people(n=N, seed=0):
    """a drives b and c, c drives d; e stands alone."""
    rng = np.random.default_rng(seed)
    a = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    b = (rng.random(n) < np.array([0.1, 0.5, 0.9])[a]).astype(int)
    c = (a + rng.choice(4, n, p=[0.7, 0.1, 0.1, 0.1])) % 4
    d = (c + rng.choice(4, n, p=[0.8, 0.1, 0.05, 0.05])) % 4
    e = rng.choice(2, n, p=[0.3, 0.7])
    return np.column_stack([a, b, c, d, e]).astype(np.int32)


def run(n=N, seed=0, epsilon=1_000.0, **parameters):
    machine = start("lopub", SCHEMA, epsilon, n, parameters).machine
    simulate(machine, people(n, seed), np.random.default_rng(seed + 1))
    return machine


def distance(model, names, codes):
    positions = [SCHEMA.index(n) for n in names]
    shape = [SCHEMA.cardinalities[p] for p in positions]
    exact = np.bincount(
        np.ravel_multi_index(tuple(codes[:, positions].T), shape), minlength=math.prod(shape)
    )
    return np.abs(model.marginal(names).ravel() - exact / len(codes)).sum() / 2


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["unary", "bloom"])
@pytest.mark.parametrize(
    ("estimator", "fit"),
    [("em", "cliques"), ("lasso", "cliques"), ("hybrid", "cliques"), ("em", "pairs")],
)
def test_dependences_are_learnt_and_independence_too(encoding, estimator, fit):
    machine = run(flip=0.3, encoding=encoding, estimator=estimator, fit=fit)
    assert isinstance(machine, ProtocolMachine)
    model = machine.model()
    assert isinstance(model, Model)
    edges = {tuple(e) for e in machine.diagnostics().to_json()["edges"]}
    assert {("a", "b"), ("a", "c"), ("c", "d")} <= edges
    assert not any("e" in edge for edge in edges)
    codes = people()
    for pair in (("a", "b"), ("c", "d"), ("a", "d"), ("d", "e")):
        # 16 cells with a standard error of about 0.005 each: half their L1 norm is about 0.03.
        assert distance(model, pair, codes) < 0.06
    synthetic = model.sample(50_000, np.random.default_rng(3))
    independent = np.column_stack(
        [np.random.default_rng(i).permutation(codes[:, i]) for i in range(5)]
    )
    assert distance(model, ("a", "c"), synthetic) < 0.02
    assert distance(model, ("a", "c"), independent) > 0.2


def test_a_flip_probability_states_the_records_epsilon_and_the_papers_beside_it():
    machine = start("lopub", SCHEMA, 100.0, N, {"flip": 0.5})
    notes = machine.diagnostics().to_json()
    assert notes["epsilon_per_attribute_as_in_the_paper"] == pytest.approx(
        2 * math.log(3), abs=1e-6
    )
    assert notes["epsilon_record"] == pytest.approx(5 * 2 * math.log(3), abs=1e-6)
    assert notes["epsilon_record"] == machine.plan().epsilon
    assert notes["flip"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "parameters", [{}, {"encoding": "bloom"}, {"encoding": "bloom", "bits": 16, "hashes": 2}]
)
@pytest.mark.parametrize("epsilon", [0.1, 4.0, 60.0])
def test_flip_follows_from_the_records_epsilon(parameters, epsilon):
    plan = start("lopub", SCHEMA, epsilon, N, parameters).plan()
    assert epsilon * (1 - 1e-6) < plan.epsilon <= epsilon
    flips = {round(float(2 * q.mechanism.q), 7) for q in plan.questions}
    assert len(flips) == 1


@pytest.mark.parametrize(
    ("values", "given", "size"),
    [
        (10, {"false_positive": 0.05}, (63, 4)),
        (10, {}, (63, 4)),
        (10, {"bits": 128, "hashes": 4}, (128, 4)),
        (16, {"bits": 32}, (32, 1)),
        (10, {"hashes": 2}, (29, 2)),
    ],
)
def test_bits_and_hashes_from_a_rate_or_given(values, given, size):
    schema = Schema((Attribute("a", "ordinal", tuple(range(values))),))
    plan = start("lopub", schema, 4.0, N, {"encoding": "bloom", **given}).plan()
    found = plan.questions[0].mechanism
    assert (found.counters, found.hashes) == size


@pytest.mark.parametrize(("bits", "hashes"), [(4, 1), (5, 1)])
def test_small_filters_tell_every_value_apart(bits, hashes):
    """The first hash seed gives two values of some attribute the same filter; another one is found."""
    codes = people(20_000)
    plain = [BloomRappor(k, bits, hashes, 1, 0).filters for k in SCHEMA.cardinalities]
    assert any(len(set(filters)) < len(filters) for filters in plain)
    machine = run(20_000, flip=0.05, encoding="bloom", bits=bits, hashes=hashes)
    for name in SCHEMA.names:
        assert distance(machine.model(), (name,), codes) < 0.05


def test_values_that_filters_cannot_tell_apart_are_refused_by_name():
    def begin(**parameters):
        return start("lopub", SCHEMA, 50.0, 10, {"encoding": "bloom", **parameters})

    with pytest.raises(
        ParameterError, match=r"^c: 3 bits cannot distinguish 4 values; use at least 4 bits"
    ):
        begin(bits=3, hashes=1)
    with pytest.raises(
        ParameterError, match=r"^a: the hash seed 0 does not distinguish 3 values by 4 bits"
    ):
        begin(bits=4, hashes=1, hash_seed=0)
    given = begin(bits=32, hashes=4, hash_seed=7)
    assert [q.mechanism.seed for q in given.plan().questions] == [7] * 5


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"hash_seed": -1, "encoding": "bloom"}, "hash_seed"),
        ({"hash_seed": 1}, "encoding=bloom"),
        ({"flip": 0.0}, "flip"),
        ({"flip": 1.0}, "flip"),
        ({"flip": -2.0}, "flip"),
        ({"phi": 1.5}, "phi"),
        ({"bits": 0, "encoding": "bloom"}, "bits"),
        ({"bits": 8}, "encoding=bloom"),
        ({"bits": 8, "hashes": 2, "false_positive": 0.1, "encoding": "bloom"}, "false_positive"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"max_clique_cells": 0}, "max_clique_cells"),
        ({"estimator": "guess"}, "estimator"),
        ({"pruning": "some"}, "pruning"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, word):
    with pytest.raises(ParameterError, match=word):
        start("lopub", SCHEMA, 50.0, N, parameters)


def test_text_settings_are_read():
    texts = {"flip": "0.5", "estimator": "hybrid", "phi": "none", "bits": "auto"}
    given = {"flip": 0.5, "estimator": "hybrid"}
    read, plain = (start("lopub", SCHEMA, 50.0, N, each) for each in (texts, given))
    assert read.plain_parameters() == plain.plain_parameters()


def test_a_flip_that_breaks_the_guarantee_is_refused():
    with pytest.raises(PrivacyError, match=r"flip=0\.1 gives a whole record epsilon"):
        start("lopub", SCHEMA, 5.0, N, {"flip": 0.1})


@pytest.mark.parametrize("encoding", ["unary", "bloom"])
def test_an_epsilon_that_leaves_nothing_is_refused(encoding):
    with pytest.raises(PrivacyError, match="so small that the flip probability rounds to 1"):
        start("lopub", SCHEMA, 1e-10, N, {"encoding": encoding})


def test_an_attribute_with_one_value_is_refused():
    with pytest.raises(SchemaError, match="one possible value"):
        Schema((Attribute("only", "categorical", ("x",)),))


def test_a_cap_below_an_attribute_is_refused_before_anyone_is_asked():
    with pytest.raises(ParameterError, match="max_clique_cells=3"):
        start("lopub", SCHEMA, 9.0, N, {"max_clique_cells": 3})


def test_the_cap_drops_edges_and_says_so():
    machine = run(flip=0.1, max_clique_cells=12)
    notes = machine.diagnostics().to_json()
    assert notes["largest_clique_cells"] <= 12
    assert notes["edges_dropped_for_the_cap"]
    assert notes["dependences_found"] == len(notes["edges"]) + len(
        notes["edges_dropped_for_the_cap"]
    )


@pytest.mark.parametrize(
    ("pruning", "examined"), [("none", 10), ("empty", 3), ("full", 3), ("paper", 3)]
)
def test_pruning_counts_what_it_examined(pruning, examined):
    machine = run(flip=0.2, pruning=pruning, phi=0.4, threshold="paper", estimator="lasso")
    notes = machine.diagnostics().to_json()
    assert notes["pairs"] == 10
    assert notes["pairs_examined"] == examined
    if pruning == "full":
        assert notes["dependences_found"] >= 7


def test_the_papers_rule_keeps_strong_pairs_only():
    strong = run(flip=0.2, threshold="paper", phi=0.5).diagnostics().to_json()["edges"]
    weak = run(flip=0.2, threshold="paper", phi=0.01).diagnostics().to_json()["dependences_found"]
    assert {tuple(e) for e in strong} <= {("a", "b"), ("a", "c"), ("c", "d")}
    assert weak >= 9  # any noise passes so low a threshold


def test_noise_alone_gives_no_edges():
    machine = start("lopub", SCHEMA, 1_000.0, N, {"flip": 0.8})
    codes = people()
    shuffled = np.column_stack(
        [np.random.default_rng(i).permutation(codes[:, i]) for i in range(5)]
    )
    simulate(machine, shuffled, np.random.default_rng(2))
    assert machine.diagnostics().to_json()["dependences_found"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("flip", [0.05, 0.6])
@pytest.mark.parametrize("encoding", ["unary", "bloom"])
def test_scores_of_independent_attributes_are_standard(encoding, flip):
    """One frequent value each, where a test that mistakes the noise goes wrong."""
    rng = np.random.default_rng(11)
    schema = Schema(
        (
            Attribute("a", "categorical", tuple(range(6))),
            Attribute("c", "categorical", tuple(range(8))),
        )
    )
    scores = []
    for trial in range(60):
        codes = np.column_stack(
            [
                rng.choice(6, 2_000, p=[0.9] + [0.02] * 5),
                rng.choice(8, 2_000, p=[0.65] + [0.05] * 7),
            ]
        )
        machine = start("lopub", schema, 1e5, 2_000, {"flip": flip, "encoding": encoding})
        simulate(machine, codes, np.random.default_rng(trial))
        scores.append(noise_aware(machine.machine.reports, 0, 1).score)
    assert abs(np.mean(scores)) < 4 / np.sqrt(60)
    # The statistic is a weighted sum of few chi-squares, so its deviation is known to about a quarter from 60 trials.
    assert 0.65 < np.std(scores) < 1.6


def test_measured_marginals_are_raw_with_honest_errors():
    codes = people()
    singles = {m.attributes: m for m in run(flip=0.4).measured()}
    assert {("a",), ("b",), ("c",), ("d",), ("e",), ("a", "b")} <= set(singles)
    for (name, *rest), measured in singles.items():
        if not rest:
            exact = (
                np.bincount(codes[:, SCHEMA.index(name)], minlength=SCHEMA[name].cardinality) / N
            )
            assert (np.abs(measured.frequencies - exact) < 4.5 * measured.standard_errors).all()


def test_progress_is_told():
    given = {"flip": 0.3, "threshold": "paper", "phi": 0.1}
    machine = start("lopub", SCHEMA, 1_000.0, 2_000, given)
    seen = []
    machine.progress = lambda what, done, total: seen.append((what, done, total))
    simulate(machine, people(2_000), np.random.default_rng(0))
    machine.model()
    assert ("pairs estimated", 10, 10) in seen
    assert any(what == "cliques estimated" and done == total for what, done, total in seen)


def test_one_attribute_alone_works():
    schema = Schema((Attribute("a", "categorical", ("x", "y", "z")),))
    machine = start("lopub", schema, 4.0, 5_000)
    simulate(machine, people(5_000)[:, :1], np.random.default_rng(0))
    assert machine.model().marginal(["a"]) == pytest.approx([0.5, 0.3, 0.2], abs=0.06)
