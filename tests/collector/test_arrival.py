"""Whoever comes is asked in the open round, and answers once in the whole campaign, on both stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from collector_harness import RECORD, Caller, describe, envelope_of, plan_of, report_of, token_of

from dither.client import Answer, Device, Participant
from dither.collector import Campaigns, NewCampaign, Outcome, Store
from dither.reports import Envelope, report_id

Opening = Callable[[], Store]
ARRIVAL: dict[str, Any] = {"method": "synthetic", "assignment": "arrival"}


def test_it_is_what_new_campaigns_have_and_stored_ones_of_before_had_not() -> None:
    described = {key: value for key, value in describe().items() if key != "assignment"}
    assert NewCampaign.from_json(described).assignment == "arrival"
    from dither.collector import CampaignSpec

    assert CampaignSpec.from_json(described).assignment == "token"


def outcomes(
    store: Store, campaigns: Campaigns, campaign: str, tokens: list[int], noise: str = ""
) -> list[str]:
    now = campaigns.get(campaign).open_round
    assert now is not None
    return outcomes_in(store, now, tokens, noise)


def outcomes_in(store: Store, now: Any, tokens: list[int], noise: str = "") -> list[str]:
    reports = tuple(
        report_of(now.plan, now.campaign_bytes, token_of(i), noise=noise) for i in tokens
    )
    judged = now.judge(Envelope(now.campaign_bytes, now.plan.round, reports))
    stored = store.add_reports([judged.batch])[0] if judged.batch.rows else []
    return [o.value for o in judged.outcomes(stored)]


def test_one_answer_of_each_in_all_rounds(open_store: Opening) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(**ARRIVAL)).stored.id
    first = campaigns.get(campaign).open_round
    assert outcomes(store, campaigns, campaign, list(range(40))) == ["stored"] * 40, (
        "nobody is turned away"
    )
    assert outcomes(store, campaigns, campaign, [0, 1, 40]) == ["duplicate", "duplicate", "stored"]
    everybody = list(range(40))  # some of them draw the same noise twice
    assert set(outcomes(store, campaigns, campaign, everybody, "other")) == {
        "duplicate",
        "conflict",
    }
    campaigns.close_round(campaign, 0)
    store = open_store()  # nothing of this is in memory alone
    campaigns = Campaigns(store)
    assert outcomes(store, campaigns, campaign, [3, 50, 4, 51, 50]) == [
        *("answered", "stored", "answered", "stored", "duplicate")
    ]
    assert outcomes_in(store, first, [0, 1]) == ["duplicate", "duplicate"], (
        "the same bytes, whenever they come"
    )
    assert set(outcomes_in(store, first, everybody, "other")) == {"duplicate", "conflict"}
    assert outcomes_in(store, first, [60]) == ["round-closed"]
    campaigns.close_round(campaign, 1)
    assert outcomes(store, campaigns, campaign, [5, 51, 70]) == [
        "answered",
        "answered",
        "stored",
    ], "in any earlier one"
    counts = [store.count(campaign, number) for number in range(3)]
    assert counts == [41, 2, 1]
    ids = [row.report_id for n in range(3) for page in store.reports(campaign, n) for row in page]
    assert len(ids) == len(set(ids)) == 44


def test_without_the_look_at_earlier_rounds_somebody_counts_twice(open_store: Opening) -> None:
    """The check above can fail: a collector that stores what comes, as by token, takes a second answer."""
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(**ARRIVAL)).stored.id
    outcomes(store, campaigns, campaign, [0, 1])
    campaigns.close_round(campaign, 0)
    now = campaigns.get(campaign).open_round
    assert now is not None
    report = report_of(now.plan, now.campaign_bytes, token_of(0))
    judged = now.judge(Envelope(now.campaign_bytes, 1, (report,)))
    assert judged.batch.once
    careless = replace(judged.batch, once=False)
    assert store.add_reports([careless]) == [[Outcome.STORED]]


def test_by_token_people_are_asked_in_their_round_alone(open_store: Opening) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(method="synthetic")).stored.id
    found = outcomes(store, campaigns, campaign, list(range(60)))
    assert set(found) == {"stored", "not-this-round"}


def test_the_same_in_other_campaigns_is_another_matter(open_store: Opening) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    both = [campaigns.create(describe(**ARRIVAL)).stored.id for _ in range(2)]
    for campaign in both:
        assert outcomes(store, campaigns, campaign, [0, 1]) == ["stored", "stored"]
    campaigns.close_round(both[0], 0)
    assert outcomes(store, campaigns, both[0], [0]) == ["answered"]
    assert outcomes(store, campaigns, both[1], [0]) == ["duplicate"]


def test_over_http_and_from_a_device(caller: Caller, server: Any) -> None:
    campaign = caller.create(**ARRIVAL, participants=1000)
    announced = caller.announcement(campaign)
    assert (announced["assignment"], announced["wanted"], announced["round_closes"]) == (
        "arrival",
        333,
        None,
    )
    held = bytes.fromhex(campaign)

    def transport(method: str, address: str, body: bytes | None) -> Answer:
        path = "/" + address.split("/", 3)[3]
        headers = {} if body is None else {"content-type": "application/vnd.dither.reports"}
        return caller.connection.request(method, path, body, headers)

    device = Device(":memory:")
    token = token_of(7)

    def come(own: Device) -> Any:
        return Participant(
            own,
            "http://127.0.0.1:1",
            campaign,
            cap=2.0,
            token=token,
            transport=transport,
            sleep=lambda s: None,
        ).take_part(RECORD)

    receipt = report_id(token, held, None).hex()
    came = come(device)
    assert (came.result, came.receipt) == ("acknowledged", receipt)
    others = [token_of(i) for i in range(100, 130)]
    assert caller.upload(campaign, envelope_of(campaign, plan_of(announced), others)).status == 201
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    spent = device.spent(campaign)
    for _ in range(2):
        again = come(device)
        assert (again.result, again.receipt, again.spent) == ("acknowledged", receipt, spent), (
            "by its own books"
        )
    forgetful = Device(":memory:")
    for _ in range(2):
        twice = come(forgetful)
        assert (twice.result, twice.receipt, twice.spent) == ("used-elsewhere", "", 0.0), (
            "by the collector's word"
        )
        assert forgetful.outbox() == []
    raced = caller.upload(
        campaign, envelope_of(campaign, plan_of(caller.announcement(campaign)), [token])
    )
    assert json.loads(raced.body)["results"] == ["answered"]
    assert [entry["reports"] for entry in caller.status(campaign)["rounds"]] == [31, 0]
    assert "answered" in caller.connection.request("GET", "/metrics", None).body.decode()
    late = caller.upload(campaign, envelope_of(campaign, plan_of(announced), [token_of(999)]))
    assert json.loads(late.body)["results"] == ["round-closed"]
    device.close()
    forgetful.close()


def test_who_is_asked_later_by_token_learns_when(caller: Caller) -> None:
    campaign = caller.create(method="synthetic", closes="2999-01-31")
    announced = caller.announcement(campaign)

    def transport(method: str, address: str, body: bytes | None) -> Answer:
        path = "/" + address.split("/", 3)[3]
        headers = {} if body is None else {"content-type": "application/vnd.dither.reports"}
        return caller.connection.request(method, path, body, headers)

    found = set()
    for i in range(40):  # none of them is asked, or all are, once in ten million runs
        device = Device(":memory:")
        came = Participant(
            device, "http://127.0.0.1:1", campaign, cap=2.0, token=token_of(i), transport=transport
        ).take_part(RECORD)
        found.add((came.result, came.come_back))
        assert ("come back" in came.reason) == (came.result == "not-asked")
        device.close()
    assert found == {("acknowledged", None), ("not-asked", announced["round_closes"])}
    assert announced["round_closes"] is not None
