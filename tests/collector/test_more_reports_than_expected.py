"""A round of an open campaign that takes far more reports than expected is flagged everywhere."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from collector_harness import Caller, asked_tokens, envelope_of, plan_of

from dither.collector.schedule import expected_reports, has_excess
from dither.collector.spec import CampaignSpec, NewCampaign, read
from dither.mechanisms import mechanism
from dither.reports import Plan, Question

CODE = "more-reports-than-expected"


def fill(caller: Caller, campaign: str, count: int) -> None:
    """All reports come from one client, which makes up the tokens."""
    plan = plan_of(caller.announcement(campaign))
    tokens = asked_tokens(campaign, 0.0, plan, count)
    for first in range(0, count, 100):
        assert caller.upload(campaign, envelope_of(campaign, plan, tokens[first : first + 100])).status == 201


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
    return read(NewCampaign, {"schema": schema, "epsilon": 1.0, "participants": 20_000, **more})


def test_chance_is_no_excess_and_issued_tokens_cannot_be_made_up() -> None:
    plan = Plan(0, (Question(("a",), mechanism("grr", 2, 1.0)),), (1.0,), population=0.25)
    spec = spec_of()
    assert expected_reports(spec, plan) == 5000
    assert not has_excess(spec, plan, 5300)
    assert has_excess(spec, plan, 5400)
    assert not has_excess(spec_of(participation="tokens"), plan, 60_000)
