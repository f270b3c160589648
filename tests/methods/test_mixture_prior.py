"""A public table as a prior: it helps where it is right, does no harm where it is wrong, and is part of the machine's state."""

from __future__ import annotations

from copy import copy
from itertools import combinations

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import ParameterError, ReportError
from dither.evaluation import marginal
from dither.methods import MethodRun, PublicRows, restore, start
from dither.methods.prior import prior_from_state
from dither.simulate import simulate
from dither.tally import pack, unpack

NETWORK = generate_network([4] * 7, parents=1, strength=1.2, seed=3)
SIZES, NAMES = tuple(NETWORK.schema.cardinalities), tuple(NETWORK.schema.names)
CODES = NETWORK.sample_codes(40_000, np.random.default_rng(1))
NEAR = NETWORK.sample_codes(3_000, np.random.default_rng(9))


@pytest.fixture(scope="module")
def collected() -> MethodRun:
    machine = start("mixture", NETWORK.schema, 2.0, len(CODES), {"rounds": 1, "total": 120}, seed=4)
    simulate(machine, CODES, np.random.default_rng(2))
    machine.model()
    return machine


def with_rows(machine: MethodRun, rows: np.ndarray) -> MethodRun:
    """The same reports and the same fit to them, with a prior."""
    again = MethodRun(copy(machine.machine))
    vars(again.machine).pop("_fitted", None)
    again.give_prior(PublicRows(rows.astype(np.int32), "public.csv", "00"))
    return again


def pair_error(machine: MethodRun, codes: np.ndarray = CODES, ways: int = 2) -> float:
    model, schema = machine.model(), machine.campaign.schema
    names, sizes = schema.names, tuple(schema.cardinalities)
    return float(
        np.mean(
            [
                np.abs(
                    model.marginal([names[i] for i in held]) - marginal(codes, sizes, held)
                ).sum()
                / 2
                for held in combinations(range(len(sizes)), ways)
            ]
        )
    )


def test_a_right_prior_helps_and_the_notes_say_where_it_came_from(
    collected: MethodRun,
) -> None:
    found = with_rows(collected, NEAR)
    assert pair_error(found) < 0.75 * pair_error(collected)
    said = found.diagnostics().to_json()["prior"]
    assert (said["source"], said["rows"], said["sha256"], said["classes"]) == (
        "public.csv",
        3_000,
        "00",
        50,
    )
    assert said["share_of_prior"] > 0.4
    assert sum(said["shares"].values()) == pytest.approx(1.0)
    assert said["estimated_risk"] < said["estimated_risk_without"]
    assert "prior" not in collected.diagnostics().to_json()


def wrong(kind: str, near: np.ndarray = NEAR, sizes: tuple[int, ...] = SIZES) -> np.ndarray:
    rng = np.random.default_rng(5)
    made = {
        "columns shuffled": lambda: np.stack(
            [rng.permutation(column) for column in near.T], axis=1
        ),
        "half of them": lambda: np.stack(
            [rng.permutation(c) if i % 2 else c for i, c in enumerate(near.T)], axis=1
        ),
        "renamed": lambda: np.stack(
            [rng.permutation(k)[c] for k, c in zip(sizes, near.T, strict=True)], axis=1
        ),
        "even": lambda: np.stack([rng.integers(0, k, len(near)) for k in sizes], axis=1),
        "one row": lambda: np.repeat(near[:1], 300, axis=0),
        "one value": lambda: near[near[:, 0] == 0],
        "one last value": lambda: near[near[:, -1] == np.bincount(near[:, -1]).argmin()],
        "three rows": lambda: near[:3],
    }
    return made[kind]()


KINDS = (
    "columns shuffled",
    "half of them",
    "renamed",
    "even",
    "one row",
    "one value",
    "one last value",
    "three rows",
)
SMALL = {
    "seven attributes": ([4] * 7, 1, 1.2, 3, 40_000),
    "five attributes": ([3, 5, 2, 6, 4], 2, 1.5, 11, 20_000),
    "no dependence": ([4] * 7, 1, 0.0, 3, 40_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_wrong_prior_does_no_harm_in_a_small_campaign(name: str) -> None:
    """With few reports the estimated risks differ by less than their errors. Going one standard error of the noise along the step
    short of the best shares gave 1.04 and 1.05 in two of these; the error now includes how the candidates follow the noise."""
    sizes, parents, strength, drawn, people = SMALL[name]
    network = generate_network(sizes, parents=parents, strength=strength, seed=drawn)
    near = network.sample_codes(9_000, np.random.default_rng([0, 78]))
    codes = network.sample_codes(people, np.random.default_rng([0, 77]))
    machine = start("mixture", network.schema, 2.0, people, {"rounds": 1}, seed=0)
    simulate(machine, codes, np.random.default_rng([0, 1]))
    alone = pair_error(machine, codes)
    ratios = {
        kind: pair_error(with_rows(machine, wrong(kind, near, tuple(sizes))), codes) / alone
        for kind in KINDS
    }
    assert max(ratios.values()) < 1.01, ratios


@pytest.mark.slow
def test_chance_dependence_of_a_public_table_does_no_harm_to_triples() -> None:
    """Reports about pairs cannot judge it: a hundred classes of these shuffled rows gave 1.22 and 1.52."""
    network = generate_network([4] * 7, parents=1, strength=0.0, seed=3)
    near = network.sample_codes(15_000, np.random.default_rng([0, 78]))
    codes = network.sample_codes(150_000, np.random.default_rng([0, 77]))
    machine = start("mixture", network.schema, 4.0, len(codes), {"rounds": 1}, seed=0)
    simulate(machine, codes, np.random.default_rng([0, 1]))
    alone = pair_error(machine, codes, 3)
    for kind in ("columns shuffled", "half of them"):
        found = with_rows(machine, wrong(kind, near))
        assert pair_error(found, codes, 3) < 1.01 * alone
        assert found.diagnostics().to_json()["prior"]["classes"] == 1


def test_taking_a_wrong_prior_at_its_word_would_do_harm(collected: MethodRun) -> None:
    """What the test above would notice."""
    for kind in ("renamed", "even", "one row"):
        machine = with_rows(collected, wrong(kind))
        assert machine.machine.prior is not None
        classes = machine.machine.prior.classes
        pairs = (classes.components.T * classes.weights) @ classes.components
        off = [
            np.abs(
                pairs[4 * i : 4 * i + 4, 4 * j : 4 * j + 4]
                - marginal(CODES, SIZES, (i, j)).reshape(4, 4)
            ).sum()
            / 2
            for i, j in combinations(range(len(SIZES)), 2)
        ]
        assert np.mean(off) > 2.0 * pair_error(collected)


def test_a_prior_is_part_of_the_state_and_a_damaged_one_is_refused(
    collected: MethodRun,
) -> None:
    found = with_rows(collected, NEAR)
    again = restore(found.state())
    assert again.machine.prior is not None
    assert again.machine.prior.facts() == {
        "kind": "table",
        "source": "public.csv",
        "rows": 3_000,
        "sha256": "00",
    }
    assert np.allclose(again.model().marginal(NAMES[:2]), found.model().marginal(NAMES[:2]))
    meta, arrays = unpack(found.state())
    for name, bad in (("prior weights", np.full(3, 0.5)), ("prior components", np.ones((50, 2)))):
        with pytest.raises(ReportError, match="prior is no mixture"):
            restore(pack(meta, {**arrays, name: bad}))
    with pytest.raises(ReportError, match="prior is damaged"):
        restore(pack({**meta, "prior": {"rows": "many"}}, arrays))
    with pytest.raises(ReportError, match="no mixture"):
        prior_from_state({"rows": 0, "source": "", "sha256": ""}, arrays, NETWORK.schema)


@pytest.mark.slow
def test_sets_of_three_judge_a_prior_too() -> None:
    network = generate_network([2] * 8, parents=2, strength=1.5, seed=2)
    codes = network.sample_codes(6_000, np.random.default_rng(1))
    machine = start("mixture", network.schema, 2.0, len(codes), {"total": 60}, seed=4)
    simulate(machine, codes, np.random.default_rng(2))
    assert any(len(q.attributes) > 2 for plan in machine.plans for q in plan.questions)
    near = network.sample_codes(4_000, np.random.default_rng(3))
    turned = near.copy()
    turned[:, ::2] = 1 - turned[:, ::2]
    right_said, turned_said = (
        with_rows(machine, rows).diagnostics().to_json()["prior"] for rows in (near, turned)
    )
    assert right_said["share_of_prior"] > 0.2
    assert turned_said["share_of_prior"] < 0.1


def test_a_prior_is_not_used_where_no_pairs_were_asked() -> None:
    machine = start("mixture", NETWORK.schema, 0.05, 500, seed=4)
    simulate(machine, CODES[:500], np.random.default_rng(2))
    machine.give_prior(PublicRows(NEAR, "public.csv", "00"))
    said = machine.diagnostics().to_json()["prior"]
    assert said["share_of_prior"] == 0.0
    assert "no pairs were asked" in said["left_out"]


def test_a_method_without_use_for_it_and_an_empty_table_are_refused() -> None:
    with pytest.raises(ParameterError, match="method 'calm' takes no prior"):
        start("calm", NETWORK.schema, 1.0, 100).give_prior(PublicRows(NEAR, "p", ""))
    with pytest.raises(ParameterError, match="prior p has no rows"):
        start("mixture", NETWORK.schema, 1.0, 100).give_prior(PublicRows(NEAR[:0], "p", ""))
