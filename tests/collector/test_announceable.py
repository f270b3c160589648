"""A campaign, and each of its rounds, is opened only if every device could read what is announced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, asked_tokens, describe, envelope_of, plan_of
from synthetic_machines import Synthetic

from dither.client import read_announcement
from dither.collector import Campaigns, SqliteStore, State
from dither.errors import InputError
from dither.mechanisms import mechanism
from dither.reports import Plan, Question, limits

MANY = {f"{i:03}{'x' * 700}": {"kind": "boolean"} for i in range(110)}


@pytest.fixture
def campaigns(tmp_path: Path) -> Iterator[Campaigns]:
    store = SqliteStore(tmp_path / "c.db")
    yield Campaigns(store)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("opened", [True, False], ids=["open", "draft"])
def test_a_campaign_whose_announcement_is_too_long_is_refused_with_what_is_too_large(
    campaigns: Campaigns, opened: bool
) -> None:
    with pytest.raises(
        InputError, match=r"round 0 .* of the schema, .* of a plan of 5,995 questions.* 8,388,608"
    ) as caught:
        campaigns.create(describe(schema=MANY, method="fourier", draft=not opened))
    assert caught.value.where == "questions"
    assert "\n" not in str(caught.value)
    assert campaigns.ids() == []


def test_a_schema_that_is_too_long_is_named(campaigns: Campaigns) -> None:
    long = {"a": {"kind": "categorical", "values": ["x" * 5_000_000, "y" * 5_000_000]}}
    with pytest.raises(InputError, match=r"10,000,\d\d\d of the schema") as caught:
        campaigns.create(describe(schema=long))
    assert caught.value.where == "schema"


def test_what_fits_is_read_by_devices_as_it_was_checked(campaigns: Campaigns) -> None:
    live = campaigns.create(
        describe(
            schema={"a": {"kind": "categorical", "values": ["x" * 4_000_000, "y" * 4_000_000]}}
        )
    )
    assert 8_000_000 < len(live.public) <= limits.PLAN_BYTES
    assert read_announcement(live.public).plan == plan_of(json.loads(live.public))


@pytest.mark.parametrize(
    "attribute",
    [
        {"kind": "categorical", "values": [2**62, 2**62 + 1]},
        {"kind": "categorical", "values": [9007199254740993, 9007199254740992.0]},
        {"kind": "ordinal", "values": [-(2**53), 0]},
        {"kind": "numeric", "edges": [2**60, 2**60 + 1, 2**61]},
        {"kind": "numeric", "edges": [0, 1, 10**300]},
    ],
)
def test_whole_numbers_that_browsers_confuse_are_refused_with_the_attribute_named(
    campaigns: Campaigns, attribute: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=r"attribute 'large' .* 2\^53") as caught:
        campaigns.create(describe(schema={"small": {"kind": "boolean"}, "large": attribute}))
    assert caught.value.where == "large"
    assert campaigns.ids() == []


@pytest.mark.parametrize(
    "attribute",
    [
        {"kind": "categorical", "values": [2**53 - 1, -(2**53) + 1, "9007199254740993"]},
        {"kind": "numeric", "edges": [-1e300, 0, 1e22, 1e300]},
    ],
)
def test_numbers_that_browsers_can_tell_apart_are_fine(
    campaigns: Campaigns, attribute: dict[str, Any]
) -> None:
    assert campaigns.create(describe(schema={"a": attribute})).stored.state is State.OPEN


def test_a_next_round_that_no_device_could_answer_leaves_the_round_open(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = caller.create(method="synthetic")
    announced = caller.announcement(campaign)
    plan = plan_of(announced)
    tokens = asked_tokens(campaign, announced["start"], plan, 20)
    assert caller.upload(campaign, envelope_of(campaign, plan, tokens)).status == 201
    original = Synthetic.plan

    def other_cells(machine: Synthetic) -> Plan | None:
        made = original(machine)
        if made is None or made.round == 0:
            return made
        first = Question(
            made.questions[0].attributes, mechanism("grr", 7, machine.campaign.epsilon)
        )
        return Plan(
            made.round, (first, *made.questions[1:]), made.shares, population=made.population
        )

    monkeypatch.setattr(Synthetic, "plan", other_cells)
    answer = caller.admin("POST", f"/{campaign}/close-round", {"round": 0})
    said = json.loads(answer.body)
    assert (answer.status, said["type"]) == (422, "urn:dither:problem:invalid")
    assert "no device would answer round 1" in said["detail"]
    assert "3 cells, not 7" in said["detail"]
    status = caller.status(campaign)
    assert (status["state"], status["round"], status["rounds"][0]["state"]) == ("open", 0, "open")
    monkeypatch.setattr(Synthetic, "plan", original)
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
