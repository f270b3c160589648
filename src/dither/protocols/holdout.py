"""Reports that the fit never sees: each question has a copy for a small share of its participants.

Reports are divided before they are tallied, which needs nothing of the driver, costs no privacy (a participant still answers one
question) and is exact for every mechanism. `evaluate.heldout` makes an unbiased error estimate of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dither.errors import ParameterError
from dither.estimate import Answered, answered
from dither.models import Model
from dither.protocols.machine import Campaign, Measured, ProtocolMachine, check_close
from dither.reports import Plan
from dither.tally import CountTally, RoundTally, tally_from_bytes
from dither.tally.archive import pack, unpack


class HoldOut:
    """A machine whose questions each have a copy for a share of their participants, kept from the fit.

    Meets the same seam as the machine inside, so the simulator and a server drive it alike. Rounds in which every participant
    answers everything have no copies and pass through; there is then nothing held out.
    """

    def __init__(self, machine: ProtocolMachine, share: float = 0.05) -> None:
        if not 0 < share < 1:
            raise ParameterError(
                f"the share held out must lie between 0 and 1, not {share!r}", where="holdout", value=share
            )
        self.machine, self.share = machine, share
        self.held: list[CountTally] = []

    @property
    def method(self) -> str:
        return self.machine.method

    @property
    def campaign(self) -> Campaign:
        return self.machine.campaign

    @property
    def parameters(self) -> Any:
        return getattr(self.machine, "parameters", None)

    def plan(self) -> Plan | None:
        plan = self.machine.plan()
        if plan is None or plan.split:
            return plan
        kept = tuple(s * (1 - self.share) for s in plan.shares)
        copies = tuple(s * self.share for s in plan.shares)
        return Plan(plan.round, plan.questions * 2, kept + copies, population=plan.population)

    def close(self, tally: RoundTally) -> None:
        inner = self.machine.plan()
        check_close(self.plan(), tally)
        assert inner is not None
        if inner.split:
            self.machine.close(tally)
            return
        assert isinstance(tally, CountTally)
        count = len(inner.questions)
        self.machine.close(CountTally(inner, tally.n[:count].copy(), tally.counts[:count]))
        self.held.append(CountTally(inner, tally.n[count:].copy(), tally.counts[count:]))

    def answers(self) -> list[Answered]:
        """The held-out questions that anybody answered."""
        return answered(self.held)

    def model(self) -> Model:
        return self.machine.model()

    def measured(self) -> Sequence[Measured]:
        return self.machine.measured()

    def notes(self) -> dict[str, Any]:
        return self.machine.notes()

    def state(self) -> bytes:
        arrays = {str(i): np.frombuffer(tally.to_bytes(), np.uint8) for i, tally in enumerate(self.held)}
        inner = np.frombuffer(self.machine.state(), np.uint8)
        return pack(
            {"method": self.method, "holdout": self.share, "rounds": len(self.held)}, {"machine": inner, **arrays}
        )

    @classmethod
    def restore(cls, state: bytes) -> HoldOut:
        from dither.protocols.registry import restore  # which restores what is inside, and knows of this class

        meta, arrays = unpack(state)
        out = cls(restore(arrays["machine"].tobytes()), float(meta["holdout"]))
        for i in range(int(meta["rounds"])):
            tally = tally_from_bytes(arrays[str(i)].tobytes())
            assert isinstance(tally, CountTally)
            out.held.append(tally)
        return out
