"""The life of campaigns, for one-round, many-round and split methods, with a restart between any two steps."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from collector_harness import asked_tokens, describe, report_of, token_of

from dither.collector import (
    Batch,
    Campaigns,
    NoCampaign,
    Outcome,
    SqliteStore,
    State,
    Store,
    StoreFull,
    Writer,
    WriteResult,
    rebuild,
)
from dither.errors import DitherError, ParameterError, PrivacyError, StateError, TooFewAnswers
from dither.methods import restore, start
from dither.reports import Envelope
from dither.tally import tally_from_bytes

Opening = Callable[[], Store]
METHODS: dict[str, dict[str, Any]] = {
    "independent": {"method": "independent"},
    "rounds": {"method": "synthetic"},
    "split": {"method": "synthetic", "parameters": {"rounds": 2, "split": True}},
}


def answer_round(
    store: Store, campaigns: Campaigns, campaign: str, people: int, kind: str = "t"
) -> None:
    """Reports of so many people whom the open round asks, stored."""
    now = campaigns.get(campaign).open_round
    assert now is not None
    tokens = asked_tokens(campaign, now.start, now.plan, people, kind)
    reports = tuple(report_of(now.plan, now.campaign_bytes, t) for t in tokens)
    judged = now.judge(Envelope(now.campaign_bytes, now.plan.round, reports))
    assert not judged.refused
    assert store.add_reports([judged.batch]) == [[Outcome.STORED] * people]


@pytest.mark.slow
@pytest.mark.parametrize("kind", METHODS)
def test_every_method_goes_from_create_to_release_with_a_restart_after_each_step(
    open_store: Opening, kind: str, tmp_path: Path
) -> None:
    store = open_store()
    campaign = Campaigns(store).create(describe(**METHODS[kind])).stored.id
    twin = start("independent", *_arguments()) if kind == "independent" else None
    total = 0
    while True:
        store = open_store()
        campaigns = Campaigns(store)
        live = campaigns.get(campaign)
        if live.open_round is None:
            break
        plan = live.open_round.plan
        answer_round(store, campaigns, campaign, 45 + plan.round)
        total += 45 + plan.round
        expected = rebuild(store, campaign, plan)
        assert expected.participants == 45 + plan.round
        store = open_store()
        closed = Campaigns(store).close_round(campaign, plan.round)
        assert closed.rounds[plan.round].state == "closed"
        assert closed.rounds[plan.round].tally == expected.to_bytes()
        if twin is not None:
            twin.close(expected)
            assert restore(closed.stored.machine).state() == twin.state(), (
                "the server drives the machine as anyone would"
            )
    live = Campaigns(open_store()).finalise(campaign, rows=50)
    assert live.stored.state is State.FINALISED
    archive = zipfile.ZipFile(io.BytesIO(Campaigns(open_store()).release(campaign)))
    archive.extractall(tmp_path / "release")
    from dither.release import load_release

    release = load_release(tmp_path / "release")
    assert (release.participants, release.rounds, release.simulated, release.truth) == (
        total,
        len(live.rounds),
        False,
        None,
    )
    assert release.epsilon_achieved <= release.epsilon_asked == 2.0
    assert len(release.synthetic) == 50


def _arguments() -> tuple[Any, float, int, None, int]:
    from collector_harness import SCHEMA

    return SCHEMA, 2.0, 1000, None, 5


@pytest.mark.slow
def test_rounds_ask_different_people_and_together_everybody(open_store: Opening) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(**METHODS["rounds"])).stored.id
    from dither.reports import is_asked

    asked: list[set[int]] = []
    while (now := campaigns.get(campaign).open_round) is not None:
        members = {
            i
            for i in range(600)
            if is_asked(token_of(i, "p"), now.campaign_bytes, now.start, now.plan.population)
        }
        asked.append(members)
        answer_round(store, campaigns, campaign, 5)
        campaigns.close_round(campaign, now.plan.round)
    assert len(asked) == 3
    assert set.union(*asked) == set(range(600))
    assert sum(len(a) for a in asked) == 600
    assert all(130 < len(a) < 270 for a in asked), (
        "thirds of 600, six standard deviations either way"
    )


def test_every_operation_may_be_repeated_and_wrong_orders_are_refused(open_store: Opening) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(**METHODS["rounds"], draft=True)).stored.id
    with pytest.raises(StateError, match="draft"):
        campaigns.close_round(campaign, 0)
    assert campaigns.open(campaign).stored.state is State.OPEN
    assert campaigns.open(campaign).stored.state is State.OPEN
    with pytest.raises(StateError, match="not open yet"):
        campaigns.close_round(campaign, 1)
    with pytest.raises(StateError, match="close its rounds first"):
        campaigns.finalise(campaign)
    with pytest.raises(TooFewAnswers, match="without a single report"):
        campaigns.close_round(campaign, 0)
    assert campaigns.get(campaign).stored.state is State.OPEN, (
        "a round that cannot be closed stays open"
    )
    answer_round(store, campaigns, campaign, 4)
    for _ in range(2):
        assert campaigns.close_round(campaign, 0).stored.round == 1, (
            "closing round 0 twice does not close round 1"
        )
    for number in (1, 2):
        answer_round(store, campaigns, campaign, 4)
        campaigns.close_round(campaign, number)
    assert campaigns.get(campaign).stored.state is State.COLLECTED
    with pytest.raises(StateError, match="no release"):
        campaigns.release(campaign)
    with pytest.raises(StateError, match="cannot be opened"):
        campaigns.open(campaign)
    campaigns.finalise(campaign, 10)
    first = campaigns.release(campaign)
    campaigns.finalise(campaign, 20)
    assert campaigns.release(campaign) == first
    with pytest.raises(NoCampaign):
        campaigns.get("nobody")


@pytest.mark.parametrize("where", ["move", "tidy", "reports"])
def test_a_crash_while_closing_leaves_a_state_from_which_closing_goes_on(
    open_store: Opening, where: str
) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(**METHODS["rounds"])).stored.id
    answer_round(store, campaigns, campaign, 6)

    class Crash(BaseException):
        pass

    calls = []
    original = getattr(store, where)

    def crash(*arguments: Any) -> Any:
        calls.append(1)
        if where != "move" or len(calls) == 2:  # the first move is the one to `closing`
            raise Crash
        return original(*arguments)

    setattr(store, where, crash)
    with pytest.raises(Crash):
        campaigns.close_round(campaign, 0)
    store = open_store()
    again = Campaigns(store)
    assert again.get(campaign).stored.state is State.CLOSING
    assert again.get(campaign).open_round is None
    assert again.close_round(campaign, 0).stored.round == 1
    assert tally_from_bytes(again.get(campaign).rounds[0].tally or b"").participants == 6


def test_an_interrupted_closing_can_be_taken_back(open_store: Opening) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe()).stored.id
    answer_round(store, campaigns, campaign, 3)
    from dither.collector import Move

    assert store.move(Move(campaign, State.OPEN, 0, State.CLOSING, 0, "closing"))
    campaigns = Campaigns(store)
    assert campaigns.get(campaign).open_round is None
    assert campaigns.open(campaign).open_round is not None
    answer_round(store, campaigns, campaign, 2, "more")
    assert store.count(campaign, 0) == 5


def test_a_disk_too_full_to_tidy_does_not_stop_a_closing(
    open_store: Opening, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(**METHODS["rounds"])).stored.id
    answer_round(store, campaigns, campaign, 3)

    def full(*arguments: object) -> None:
        raise StoreFull("the disk is full")

    monkeypatch.setattr(store, "tidy", full)
    assert campaigns.close_round(campaign, 0).stored.round == 1
    assert "not tidied" in caplog.text


@pytest.mark.parametrize("kind", METHODS)
def test_the_running_tally_equals_the_rebuilt_one_whatever_happens_to_commits(
    open_store: Opening, kind: str
) -> None:
    store = open_store()
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe(**METHODS[kind])).stored.id
    now = campaigns.get(campaign).open_round
    assert now is not None
    results: list[WriteResult] = []

    def committed(batch: Batch, outcomes: list[Outcome]) -> None:
        running.committed(batch, outcomes)

    def forget(batch: Batch) -> None:
        running.forget(batch.campaign, batch.round)

    writer: Writer[None] = Writer(store, results.extend, committed, forget)
    running = store.running_tally(
        lambda name, number: campaigns.get(name).plans[number], writer.call
    )
    tokens = asked_tokens(campaign, now.start, now.plan, 60)
    reports = [report_of(now.plan, now.campaign_bytes, t) for t in tokens]
    batches = [
        now.judge(Envelope(now.campaign_bytes, 0, tuple(reports[i : i + 7]))).batch
        for i in range(0, 60, 5)
    ]
    original = store.add_reports
    count = 0

    def unsure(*arguments: Any) -> Any:
        """Every third commit happens, and then the connection is lost before anybody hears of it."""
        nonlocal count
        count += 1
        outcome = original(*arguments)
        if count % 3 == 0:
            raise StoreFull("lost")
        return outcome

    store.add_reports = unsure  # type: ignore[method-assign]
    for batch in batches:
        writer.submit(batch, None)
        # The commit is over when this returns, and none follows before both have been read.
        writer.call(lambda: None)
        assert (
            running.read(campaign, now.plan).to_bytes()
            == rebuild(store, campaign, now.plan).to_bytes()
        )
    writer.stop()
    assert any(r.error for r in results)
    assert store.count(campaign, 0) == 60


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": 10**400}, "epsilon"),
        ({"epsilon": "2"}, "epsilon"),
        ({"participants": 0}, "participants"),
        ({"participants": 1.5}, "participants"),
        ({"method": "nonsense"}, "no method"),
        ({"method": 3}, "method"),
        ({"parameters": {"mechanism": "bloom"}}, "must be one of"),
        ({"parameters": {"mechanism": [1]}}, "mechanism"),
        ({"participation": "anyone"}, "participation"),
        ({"seed": -1}, "seed"),
        ({"name": "x" * 201}, "name"),
        ({"name": "two\nlines"}, "name: must be one line of printable text"),
        ({"name": "\x1b[2J"}, "name: must be one line"),
        ({"schema": {"attributes": []}}, "at least one attribute"),
        ({"schema": {"a": {"kind": "numeric", "min": 0, "max": 1, "bins": 10**9}}}, "bins"),
        ({"schema": {"a": {"kind": "numeric", "edges": [0, 10**400]}}}, "edges"),
        ({"colour": 1}, "unknown key"),
        ({"schema": {"a": {"kind": "ordinal", "values": list(range(131_073))}}}, "values or bins"),
        (
            {
                "method": "lopub",
                "parameters": {"encoding": "unary"},
                "schema": {
                    f"a{i}": {"kind": "ordinal", "values": list(range(300))} for i in range(450)
                },
            },
            "bytes",
        ),
        (
            {
                "method": "lopub",
                "parameters": {"encoding": "bloom", "false_positive": 1e-25},
                "schema": {n: {"kind": "ordinal", "values": list(range(9))} for n in ("a", "b")},
            },
            "hashes",
        ),
    ],
)
def test_what_a_campaign_cannot_be_is_said_in_one_line(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    store = SqliteStore(tmp_path / "c.db")
    campaigns = Campaigns(store)
    with pytest.raises((ParameterError, PrivacyError, DitherError), match=said) as caught:
        campaigns.create({**describe(), **change})
    assert "\n" not in str(caught.value)
    assert campaigns.ids() == []
    store.close()
