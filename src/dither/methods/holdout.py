"""Reports that the fit never sees: each question has a copy for a small share of its participants.

Reports are divided before they are tallied, which needs nothing of the driver, costs no privacy (a participant still answers one
question) and is exact for every mechanism. `uncertainty.heldout` makes an unbiased error estimate of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from dither.checks import check_between
from dither.errors import ReportError
from dither.fit import AnswerCounts, Marginal, Model, answers_of
from dither.methods.machine import ProtocolMachine, tallies_in
from dither.reports import Plan
from dither.tally import CountTally, RoundTally
from dither.tally.archive import unpack
from dither.types import JsonObject, Progress


class HoldOut(ProtocolMachine):
    """A machine whose questions each have a copy for a share of their participants, kept from the fit.

    Drivers cannot tell it from the machine inside. Rounds in which every participant answers everything have no copies and pass
    through; there is then nothing held out. `closed` has what the fit sees, `held` the rest.
    """

    def __init__(self, machine: ProtocolMachine, share: float = 0.05) -> None:
        check_between("holdout", share, 0, 1, ends="()")
        self.machine, self.share = machine, share
        super().__init__(machine.campaign, machine.parameters)

    @property
    def method(self) -> str:  # type: ignore[override]
        return self.machine.method

    @property
    def core(self) -> ProtocolMachine:
        return self.machine.core

    @property
    def progress(self) -> Progress | None:
        return self.machine.progress

    @progress.setter
    def progress(self, progress: Progress | None) -> None:
        self.machine.progress = progress

    @property
    def closed(self) -> tuple[RoundTally, ...]:
        return self.machine.closed

    @property
    def held(self) -> list[CountTally]:
        """The tallies of the copies."""
        return [
            _half(tally, 1)
            for tally in self._closed
            if isinstance(tally, CountTally) and not tally.plan.split
        ]

    def answers(self) -> list[AnswerCounts]:
        """The held-out questions that anybody answered."""
        return answers_of(self.held)

    def plan(self) -> Plan | None:
        plan = self.machine.plan()
        if plan is None or plan.split:
            return plan
        kept = tuple(s * (1 - self.share) for s in plan.shares)
        copies = tuple(s * self.share for s in plan.shares)
        return Plan(plan.round, plan.questions * 2, kept + copies, population=plan.population)

    def _check_answers(self, tally: RoundTally) -> None:
        self.machine.check(_kept(tally, self.machine.plan()))

    def _go_on(self, tally: RoundTally) -> None:
        self.machine.close(_kept(tally, self.machine.plan()))

    def model(self) -> Model:
        return self.machine.model()

    def measured(self) -> Sequence[Marginal]:
        return self.machine.measured()

    def notes(self) -> JsonObject:
        notes = self.machine.notes()
        # Who was held out was asked too.
        return {**notes, "asked": self._closed[0].participants} if "asked" in notes else notes

    @classmethod
    def start_again(cls, state: bytes) -> Self:
        from dither.methods.registry import start_again

        machine = start_again(state)
        if not isinstance(machine, cls):
            raise ReportError(
                "a state of a campaign that held nothing out cannot be restored as one that did"
            )
        return machine

    def _facts(self) -> JsonObject:
        return {**super()._facts(), "holdout": self.share}


def fitted_tallies(state: bytes) -> list[RoundTally]:
    """The tallies that the fit of a saved machine saw, without starting the machine anew."""
    tallies = tallies_in(state)
    return [_kept(tally, None) for tally in tallies] if "holdout" in unpack(state)[0] else tallies


def _kept(tally: RoundTally, plan: Plan | None) -> RoundTally:
    """What is left for the fit of a round's tally; `plan` is the round's own, without the copies."""
    return tally if tally.plan.split or not isinstance(tally, CountTally) else _half(tally, 0, plan)


def _half(tally: CountTally, which: int, plan: Plan | None = None) -> CountTally:
    whole, count = tally.plan, len(tally.plan.questions) // 2
    part = slice(which * count, (which + 1) * count)
    total = sum(whole.shares[part])
    own = plan or Plan(
        whole.round,
        whole.questions[:count],
        tuple(s / total for s in whole.shares[part]),
        population=whole.population,
    )
    return CountTally(own, tally.n[part].copy(), tally.counts[part])
