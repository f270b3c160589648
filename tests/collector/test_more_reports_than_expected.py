"""A round of an open campaign that takes far more reports than expected is flagged everywhere."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from collector_harness import Caller, asked_tokens, envelope_of, plan_of

from dither.collector import CampaignSpec, NewCampaign, make_release
from dither.mechanisms import mechanism
from dither.methods import start
from dither.reports import Plan, Question
from dither.schema import Attribute, Schema
from dither.tally import CountTally

CODE = "more-reports-than-expected"


def fill(caller: Caller, campaign: str, count: int) -> None:
    """All reports come from one client, which makes up the tokens."""
    plan = plan_of(caller.announcement(campaign))
    tokens = asked_tokens(campaign, 0.0, plan, count)
    for first in range(0, count, 100):
        assert (
            caller.upload(campaign, envelope_of(campaign, plan, tokens[first : first + 100])).status
            == 201
        )


def release_json(caller: Caller, campaign: str) -> dict[str, Any]:
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert caller.admin("POST", f"/{campaign}/finalise", {"rows": 10}).status == 200
    answer = caller.admin("GET", f"/{campaign}/release")
    assert answer.status == 200
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        return dict(json.loads(archive.read("release.json")))


@pytest.mark.parametrize(("count", "flagged"), [(100, False), (145, False), (300, True)])
def test_status_and_release_say_both_numbers(caller: Caller, count: int, flagged: bool) -> None:
    campaign = caller.create(participants=100, assignment="arrival")
    fill(caller, campaign, count)
    [round_] = caller.status(campaign)["rounds"]
    assert (round_["reports"], round_["expected"], round_["excess"]) == (count, 100, flagged)
    found = [w for w in release_json(caller, campaign)["warnings"] if w["code"] == CODE]
    assert len(found) == flagged
    if flagged:
        assert "300 reports, 100 were expected" in found[0]["message"]


def spec_of(**more: Any) -> CampaignSpec:
    schema = {"attributes": [{"name": "a", "kind": "boolean", "values": [False, True]}]}
    return NewCampaign.from_json({"schema": schema, "epsilon": 1.0, "participants": 20_000, **more})


def test_chance_is_no_excess_and_issued_tokens_cannot_be_made_up() -> None:
    plan = Plan(0, (Question(("a",), mechanism("grr", 2, 1.0)),), (1.0,), population=0.25)
    spec = spec_of()
    assert spec.expected_reports(plan) == 5000
    assert not spec.has_excess(plan, 5300)
    assert spec.has_excess(plan, 5400)
    assert not spec_of(participation="tokens").has_excess(plan, 60_000)


def fifteen_questions(crowd: int, **more: Any) -> list[str]:
    """What a release warns of: 3,000 honest participants, and a crowd on the fourth of 15 questions."""
    schema = Schema(tuple(Attribute(f"a{i}", "boolean", (False, True)) for i in range(15)))
    machine = start("independent", schema, 1.0, 3000, {}, 1, 0.0)
    plan = machine.plan()
    assert plan is not None
    tally = CountTally(plan)
    numbers = np.random.default_rng(4).multinomial(3000, plan.shares)
    numbers[3] += crowd
    for i, number in enumerate(numbers.tolist()):
        tally.add_counts(i, np.array([number // 2, number - number // 2]), number)
    machine.close(tally)
    release = make_release(machine, tally.participants, spec_of(participants=3000, **more), 10)
    return [notice.message for notice in release.warnings if notice.code == CODE]


def test_a_crowd_on_one_question_is_flagged_though_the_round_is_not() -> None:
    assert fifteen_questions(0) == []
    [message] = fifteen_questions(260)
    assert "the question about a3 in round 1 took" in message
    assert "round 1 took 3,260 reports" not in message
    assert "decline other questions" in message
    assert fifteen_questions(260, participation="tokens") == []


def test_honest_questions_are_hardly_ever_flagged() -> None:
    """Questions of few expected reports too, where five standard deviations would be passed in every other round."""
    rng = np.random.default_rng(8)
    shares = (*(0.0005,) * 200, *(0.009,) * 100)
    questions = tuple(Question((f"a{i}",), mechanism("grr", 2, 1.0)) for i in range(300))
    plan = Plan(0, questions, shares)
    spec, flagged, five_deviations = spec_of(), 0, 0
    for _ in range(200):
        numbers = rng.multinomial(200, shares)
        flagged += len(spec.crowded_questions(plan, numbers.tolist()))
        expected = 200 * np.array(shares)
        five_deviations += int((numbers > expected + 5 * np.sqrt(expected)).sum())
    # 60,000 questions at 2.9e-7 each: one flag has a probability of 0.02.
    assert flagged == 0
    assert five_deviations > 100
