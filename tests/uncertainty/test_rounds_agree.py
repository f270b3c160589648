"""The test of rounds keeps its level where rounds agree, notices where they do not, and a wrong covariance would be found out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import binom, kstest

from dither.collector import CampaignSpec, make_release
from dither.fit import Independent
from dither.mechanisms import mechanism
from dither.methods import start
from dither.release import draw_tally, prepare_bootstrap
from dither.release import fit_checks as rounds
from dither.release.fit_checks import RoundsTest, rounds_notes, rounds_tests, rounds_that_differ
from dither.reports import Plan, Question
from dither.schema import Attribute, Schema
from dither.tally import CountTally

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True)),
        Attribute("c", "ordinal", tuple(range(20))),
        Attribute("d", "boolean", (False, True)),
    )
)


@dataclass(frozen=True)
class Dense:
    """A joint distribution as one table."""

    schema: Schema
    joint: np.ndarray

    def marginal(self, attributes: Sequence[str]) -> np.ndarray:
        axes = [self.schema.index(name) for name in attributes]
        rest = tuple(i for i in range(self.joint.ndim) if i not in axes)
        kept = [i for i in range(self.joint.ndim) if i in axes]
        return np.transpose(self.joint.sum(axis=rest), [kept.index(axis) for axis in axes])


def the_model(shift: float = 0.0) -> Dense:
    """A joint distribution with dependence; `shift` moves so much of the people from the first value of a to the second."""
    joint = np.random.default_rng(3).dirichlet(np.full(3 * 2 * 20 * 2, 0.8)).reshape(3, 2, 20, 2)
    share = joint[0].sum()
    moved = joint.copy()
    moved[0] *= 1 - shift / share
    moved[1] += joint[0] * shift / share
    return Dense(SCHEMA, moved)


def asked(number: int, *questions: tuple[str, tuple[str, ...]], population: float = 0.3) -> Plan:
    made = tuple(
        Question(names, mechanism(kind, SCHEMA.cells(names), 1.5)) for kind, names in questions
    )
    return Plan(number, made, (1 / len(made),) * len(made), population=population)


# Every kind of mechanism; single attributes and pairs; what adds up to one and what does not.
PLANS = (
    asked(0, ("grr", ("a",)), ("oue", ("a", "b")), ("olh", ("c",)), ("grr", ("d",))),
    asked(1, ("grr", ("a",)), ("subset", ("a", "c")), ("hadamard", ("c",)), ("oue", ("b", "a"))),
    asked(2, ("oue", ("a", "b")), ("grr", ("b",)), ("olh", ("c", "b"))),
)


def campaign(seed: int, people: int = 3000, shift: float = 0.0) -> list[CountTally]:
    rng = np.random.default_rng([seed, 77])
    return [
        draw_tally(plan, the_model(shift if plan.round == 0 else 0.0), people, rng)
        for plan in PLANS
    ]


RUNS = 160


@pytest.fixture(scope="module")
def found() -> dict[str, list[RoundsTest]]:
    """The tests of many campaigns whose rounds agree."""
    model, out = the_model(), {}
    for seed in range(RUNS):
        for test in rounds_tests(model, campaign(seed)):
            out.setdefault(test.attribute, []).append(test)
    return out


@pytest.mark.slow
def test_p_values_are_uniform_where_rounds_agree(found: dict[str, list[RoundsTest]]) -> None:
    assert set(found) == {"a", "b", "c"}, "d is asked in one round alone"
    for name, tests in found.items():
        assert len(tests) == RUNS
        p = np.array([test.p for test in tests])
        assert kstest(p, "uniform").pvalue > 1e-3, name
        for level in (0.05, 0.2):
            low, high = binom.ppf([1e-4, 1 - 1e-4], RUNS, level)
            assert low <= (p <= level).sum() <= high, (name, level)


@pytest.mark.slow
def test_the_rounds_and_degrees_are_those_of_the_estimates(
    found: dict[str, list[RoundsTest]],
) -> None:
    assert {t.rounds for t in found["a"]} == {(0, 1, 2)}
    assert {t.degrees for t in found["b"]} == {4}, (
        "two differences of two values, of bits that need not add up"
    )
    assert {t.degrees for t in found["c"]} == {2 * rounds.MAX_GROUPS}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["no noise of who came", "half the noise"])
def test_a_wrong_covariance_would_be_found_out(
    found: dict[str, list[RoundsTest]], monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    right = rounds._read

    def careless(
        model: Dense, answer: rounds.AnswerCounts, name: str, groups: np.ndarray
    ) -> rounds._Estimate:
        kept = right(model, answer, name, groups)
        if wrong == "half the noise":
            return replace(kept, covariance=kept.covariance / 2)
        shares = groups @ model.marginal([name])
        return replace(
            kept,
            covariance=kept.covariance - (np.diag(shares) - np.outer(shares, shares)) / answer.n,
        )

    monkeypatch.setattr(rounds, "_read", careless)
    # Much epsilon: there who came matters beside the noise.
    loud = [
        replace(
            p,
            questions=tuple(
                replace(q, mechanism=mechanism("oue", q.mechanism.cells, 5.0)) for q in p.questions
            ),
        )
        for p in PLANS
    ]
    model, p_values = the_model(), []
    for seed in range(60):
        rng = np.random.default_rng([seed, 78])
        tallies = [draw_tally(plan, model, 2000, rng) for plan in loud]
        p_values += [test.p for test in rounds_tests(model, tallies) if test.attribute == "a"]
    assert kstest(p_values, "uniform").pvalue < 1e-3


@pytest.mark.slow
def test_a_difference_is_noticed_and_named() -> None:
    model, named = the_model(), []
    for seed in range(12):
        notes = rounds_notes(model, campaign(seed, 12_000, shift=0.12))["rounds_agree"]
        named.append("a" in notes["differ"])
        assert ("answered differently" in notes["sentence"]) == bool(notes["differ"])
    assert sum(named) >= 11
    agreeing = [rounds_notes(model, campaign(seed))["rounds_agree"]["differ"] for seed in range(20)]
    assert sum(bool(one) for one in agreeing) <= 2


def test_holm_names_no_more_than_it_may() -> None:
    def test_of(p: float) -> RoundsTest:
        from scipy.stats import chi2

        return RoundsTest(f"{p}", (0, 1), float(chi2.isf(p, 1)), 1)

    assert rounds_that_differ([test_of(p) for p in (0.5, 0.004, 0.001)]) == ["0.001", "0.004"]
    assert rounds_that_differ([test_of(p) for p in (0.5, 0.006, 0.001)]) == ["0.001"]
    assert rounds_that_differ([test_of(p) for p in (0.5, 0.004, 0.2)]) == []


def test_nothing_is_said_where_nothing_was_asked_twice_or_too_few_answered() -> None:
    model, rng = the_model(), np.random.default_rng(1)
    assert rounds_notes(model, [draw_tally(PLANS[0], model, 500, rng)]) == {}
    assert rounds_notes(model, [draw_tally(plan, model, 40, rng) for plan in PLANS[:2]]) == {}


def test_a_collections_intervals_are_of_those_who_came_not_of_those_expected() -> None:
    """A tenth of the expected people came: errors are the root of ten larger than planned."""
    schema = Schema(tuple(Attribute(name, "categorical", tuple("wxyz")) for name in "ab"))
    machine = start("independent", schema, 2.0, 40_000, None, 1)
    plan = machine.plan()
    assert plan is not None
    even = Independent(schema, (np.full(4, 0.25), np.full(4, 0.25)))
    machine.close(draw_tally(plan, even, 4_000, np.random.default_rng(5)))
    spec = CampaignSpec(
        schema=schema, epsilon=2.0, participants=40_000, seed=1, method="independent"
    )
    release = make_release(machine, 4_000, spec, 10)
    errors = prepare_bootstrap(release, replicates=40, seed=2).interval(["a"]).standard_errors
    measured = release.marginal(["a"]).standard_errors
    assert measured is not None
    assert float(np.mean(errors)) == pytest.approx(float(np.mean(measured)), rel=0.25), (
        "not a third of it"
    )
