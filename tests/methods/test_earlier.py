"""Tallies of an earlier campaign: pooled where nothing has changed, of little weight where people have."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dither
from dither.datasets import generate_network
from dither.errors import ReportError
from dither.evaluation import marginal
from dither.fit import answers_of
from dither.methods import EarlierReports, MethodRun, restore, start
from dither.methods.prior import pooled_answers
from dither.schema import decode, plain_layout
from dither.simulate import simulate
from dither.tally import pack, unpack

pytestmark = pytest.mark.slow

NETWORK, OTHER = (generate_network([4] * 5, parents=1, strength=1.2, seed=seed) for seed in (3, 8))
SIZES, NAMES = tuple(NETWORK.schema.cardinalities), tuple(NETWORK.schema.names)
PARAMETERS = {"rounds": 1, "total": 48, "components": 16}


def campaign(network: Any, seed: int, epsilon: float = 2.0, people: int = 20_000) -> MethodRun[Any]:
    codes = network.sample_codes(people, np.random.default_rng([seed, 5]))
    machine = start("mixture", NETWORK.schema, epsilon, people, PARAMETERS, seed=seed)
    simulate(machine, codes, np.random.default_rng(seed))
    return machine


def earlier(machine: MethodRun[Any]) -> EarlierReports:
    return EarlierReports(machine.counted, "last year", "00", private=True)


def pair_error(machine: MethodRun[Any]) -> float:
    exact = NETWORK.sample_codes(400_000, np.random.default_rng(99))
    model = machine.model()
    return float(
        np.mean(
            [
                np.abs(model.marginal([NAMES[i], NAMES[j]]) - marginal(exact, SIZES, (i, j))).sum()
                / 2
                for i, j in combinations(range(len(SIZES)), 2)
            ]
        )
    )


def with_earlier(machine: MethodRun[Any], before: MethodRun[Any]) -> MethodRun[Any]:
    again = start(
        "mixture",
        NETWORK.schema,
        machine.campaign.epsilon,
        20_000,
        PARAMETERS,
        seed=machine.campaign.seed,
    )
    again.give_prior(earlier(before))
    for tally in machine.closed:
        again.close(tally)
    return again


def test_campaigns_of_the_same_people_sharpen_each_other() -> None:
    alone, both = [], []
    for seed in (1, 2, 3):
        now = campaign(NETWORK, seed)
        pooled = with_earlier(now, campaign(NETWORK, seed + 50))
        said = pooled.diagnostics().to_json()["prior"]
        assert said["weight"] > 0.75
        assert 0.4 < said["share_of_prior"] <= 0.5
        assert said["drift_p_value"] > 1e-3
        alone.append(pair_error(now))
        both.append(pair_error(pooled))
    assert np.mean(both) < 0.95 * np.mean(alone)


def test_other_people_are_left_out() -> None:
    now = campaign(NETWORK, 1)
    pooled = with_earlier(now, campaign(OTHER, 51))
    said = pooled.diagnostics().to_json()["prior"]
    assert said["drift_p_value"] < 1e-6
    assert said["left_out"] == "people have changed since"
    assert pair_error(pooled) == pytest.approx(pair_error(now))


def test_a_campaign_is_not_pooled_with_itself() -> None:
    now = campaign(NETWORK, 1)
    said = pooled_answers(NETWORK.schema, answers_of(now.counted), earlier(now)).note
    assert said["weight"] == 0.0
    assert "too like those of now" in said["left_out"]


def test_the_weight_falls_with_the_drift() -> None:
    """People of whom a part are others."""
    weights = []
    for part in (0.0, 0.25, 0.4):
        codes = NETWORK.sample_codes(20_000, np.random.default_rng(4))
        codes[: int(part * len(codes))] = OTHER.sample_codes(
            int(part * len(codes)), np.random.default_rng(5)
        )
        before = start("mixture", NETWORK.schema, 2.0, 20_000, PARAMETERS, seed=7)
        simulate(before, codes, np.random.default_rng(8))
        weights.append(
            pooled_answers(
                NETWORK.schema, answers_of(campaign(NETWORK, 1).counted), earlier(before)
            ).note["weight"]
        )
    assert weights[0] > 0.75
    assert weights[0] > weights[1] > weights[2]


@pytest.mark.parametrize("epsilon", [1.0, 6.0])
def test_without_drift_differences_are_what_noise_and_sampling_make_them(epsilon: float) -> None:
    """At epsilon 6 most of it is that only some people were asked: left out, every two campaigns would seem to drift."""
    values = []
    for seed in range(6):
        now, before = (campaign(NETWORK, 2 * seed + k, epsilon, 4_000) for k in (0, 1))
        values.append(
            pooled_answers(NETWORK.schema, answers_of(now.counted), earlier(before)).note[
                "drift_p_value"
            ]
        )
    assert min(values) > 1e-4
    assert max(values) > 0.05


def test_the_state_keeps_the_tallies_and_other_questions_are_left_out() -> None:
    now, before = campaign(NETWORK, 1), campaign(NETWORK, 51)
    pooled = with_earlier(now, before)
    again = restore(pooled.state())
    assert np.allclose(again.model().marginal(NAMES[:2]), pooled.model().marginal(NAMES[:2]))
    meta, arrays = unpack(pooled.state())
    with pytest.raises(ReportError, match="damaged Dither prior"):
        restore(pack(meta, {name: a for name, a in arrays.items() if "earlier" not in name}))
    alone = start("independent", NETWORK.schema, 2.0, 500)
    simulate(alone, NETWORK.sample_codes(500, np.random.default_rng(1)), np.random.default_rng(1))
    none = EarlierReports(alone.counted, "last year", "00", private=True)
    pairs = [a for a in answers_of(now.counted) if len(a.question.attributes) == 2]
    found = pooled_answers(NETWORK.schema, pairs, none)
    assert len(found.answers) == len(pairs)
    assert "other questions" in found.note["left_out"]


def test_an_earlier_release_is_pooled_from_its_folder(tmp_path: Path) -> None:
    def table(seed: int) -> Any:
        codes = NETWORK.sample_codes(3_000, np.random.default_rng(seed))
        return decode(codes, NETWORK.schema, plain_layout(NETWORK.schema), np.random.default_rng(0))

    options: dict[str, Any] = {
        "epsilon": 2.0,
        "schema": NETWORK.schema,
        "rows": 20,
        "parameters": PARAMETERS,
    }
    folder = dither.publish(table(1), holdout=0.05, **options).save(tmp_path / "earlier")
    release = dither.publish(table(2), prior=folder, **options)
    said = release.notes["prior"]
    assert (said["kind"], said["source"]) == ("release", str(folder))
    assert said["participants"] == pytest.approx(0.95 * 3_000, rel=0.02)
    page = (release.save(tmp_path / "now") / "report.html").read_text()
    assert "earlier campaign were pooled" in page
    found = dither.bootstrap(dither.load_release(tmp_path / "now"), [NAMES[:2]], replicates=5)[0]
    assert (found.low <= found.high).all()
