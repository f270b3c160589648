"""Any sequence of sends, losses, restarts, closings and repeats: what was acknowledged is counted once, in its own round."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from collector_harness import describe, report_of, token_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

sys.path.insert(0, str(Path(__file__).parents[1] / "collector"))

from synthetic_machines import METHOD

from dither.collector import Campaigns, Outcome, SqliteStore, State
from dither.errors import StateError, TooFewAnswers
from dither.methods import METHODS
from dither.reports import Envelope, Report, report_id
from dither.tally import tally_from_bytes

pytestmark = pytest.mark.slow


class CollectorMachine(RuleBasedStateMachine):
    """A collector beside the simplest model of one: for each round, a dictionary from participant to bytes."""

    assignment = "token"

    def __init__(self) -> None:
        super().__init__()
        METHODS["synthetic"] = METHOD
        self.folder = Path(tempfile.mkdtemp(prefix="dither-stateful-"))
        self.store = SqliteStore(self.folder / "c.db")
        self.campaigns = Campaigns(self.store)
        self.campaign = self.campaigns.create(
            describe(method="synthetic", assignment=self.assignment)
        ).stored.id
        self.model: list[dict[bytes, Report]] = [{}]

    @property
    def once(self) -> bool:
        """Whether everybody is asked, once in all rounds."""
        return self.assignment == "arrival"

    def teardown(self) -> None:
        self.store.close()
        del METHODS["synthetic"]
        shutil.rmtree(self.folder)

    @rule(
        people=st.lists(st.integers(0, 30), min_size=1, max_size=6),
        noise=st.sampled_from(["", "", "other"]),
        fate=st.sampled_from(["arrives", "request lost", "answer lost"]),
    )
    def send(self, people: list[int], noise: str, fate: str) -> None:
        now = self.campaigns.get(self.campaign).open_round
        if now is None or fate == "request lost":
            return
        reports = tuple(
            report_of(now.plan, now.campaign_bytes, token_of(p), noise=noise) for p in people
        )
        judged = now.judge(Envelope(now.campaign_bytes, now.plan.round, reports))
        outcomes = judged.outcomes(self.store.add_reports([judged.batch])[0])
        held = self.model[now.plan.round]
        for report, outcome in zip(reports, outcomes, strict=True):
            key = report_id(report.token, now.campaign_bytes, None if self.once else now.plan.round)
            if outcome is Outcome.NOT_THIS_ROUND and not self.once:
                continue
            if self.once and any(key in earlier for earlier in self.model[: now.plan.round]):
                assert outcome is Outcome.ANSWERED
                continue
            expected = Outcome.STORED if key not in held else Outcome.DUPLICATE
            if key in held and held[key] != report:
                expected = Outcome.CONFLICT
            assert outcome is expected
            held.setdefault(key, report)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = SqliteStore(self.folder / "c.db")
        self.campaigns = Campaigns(self.store)

    @rule(number=st.integers(0, 3))
    def close_round(self, number: int) -> None:
        stored = self.campaigns.get(self.campaign).stored
        legal = number < stored.round or (
            number == stored.round and (stored.state is not State.OPEN or self.model[number])
        )
        try:
            live = self.campaigns.close_round(self.campaign, number)
        except (StateError, TooFewAnswers):
            assert not legal
            return
        assert legal
        if live.stored.round == len(self.model):
            self.model.append({})

    @rule()
    def finalise(self) -> None:
        collected = self.campaigns.get(self.campaign).stored.state in (
            State.COLLECTED,
            State.FINALISED,
        )
        if not collected:
            try:
                self.campaigns.finalise(self.campaign)
            except StateError:
                return
            raise AssertionError("a campaign was finalised before its rounds were closed")

    @invariant()
    def stored_reports_are_the_models(self) -> None:
        for number, held in enumerate(self.model):
            stored = {
                row.report_id: row.payload
                for page in self.store.reports(self.campaign, number)
                for row in page
            }
            assert stored == {key: report.payload for key, report in held.items()}

    @invariant()
    @precondition(lambda self: len(self.model) > 1)
    def closed_rounds_keep_their_tallies(self) -> None:
        for stored in self.campaigns.get(self.campaign).rounds:
            if stored.tally is not None:
                assert tally_from_bytes(stored.tally).participants == len(self.model[stored.number])


class ArrivalMachine(CollectorMachine):
    """The same where whoever arrives is asked."""

    assignment = "arrival"


_STEPS = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCollectorMachine = CollectorMachine.TestCase
TestCollectorMachine.settings = _STEPS
TestArrivalMachine = ArrivalMachine.TestCase
TestArrivalMachine.settings = _STEPS
