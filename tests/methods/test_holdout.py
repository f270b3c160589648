"""A run with a hold-out: a check changes nothing, and it can be saved and restored."""

from __future__ import annotations

import numpy as np
import pytest

from dither.errors import TooFewAnswers
from dither.mechanisms import kernels
from dither.methods import MethodRun, restore, start
from dither.schema import Attribute, Schema
from dither.tally import CountTally, zero

SCHEMA = Schema(tuple(Attribute(name, "ordinal", (1, 2, 3)) for name in "ab"))


def outer(method: str = "independent") -> MethodRun:
    return start(method, SCHEMA, 4.0, 2_000, {}, 0, holdout=0.1)


def answered(machine: MethodRun, numbers: list[int]) -> CountTally:
    """The open round's tally with so many answers to each question, from people spread evenly over its cells."""
    plan = machine.plan()
    assert plan is not None
    tally = zero(plan)
    assert isinstance(tally, CountTally)
    rng = np.random.default_rng(1)
    for i, (question, n) in enumerate(zip(plan.questions, numbers, strict=True)):
        people = rng.multinomial(n, np.full(question.mechanism.cells, 1 / question.mechanism.cells))
        tally.add_counts(i, kernels.simulate(question.mechanism, people, rng), n)
    return tally


def test_a_tally_that_the_fit_cannot_use_leaves_both_machines_as_they_were() -> None:
    machine = outer()
    before, plan = machine.state(), machine.plan()
    # Enough people all in all, but those asked about the second attribute were all held out.
    refused = answered(machine, [500, 0, 50, 50])
    for attempt in (machine.check, machine.close):
        with pytest.raises(TooFewAnswers):
            attempt(refused)
        assert machine.state() == before
        assert machine.machine.closed == machine.closed == ()
        assert machine.plan() == plan
    machine.close(answered(machine, [500, 500, 50, 50]))
    assert machine.plan() is None
    assert [tally.participants for tally in machine.closed] == [1_000]


def test_a_check_closes_nothing() -> None:
    machine = outer()
    good = answered(machine, [500, 500, 50, 50])
    machine.check(good)
    assert machine.machine.closed == ()
    assert machine.held == []
    machine.close(good)
    assert len(machine.machine.closed) == len(machine.held) == 1


def test_a_run_with_holdout_is_restored() -> None:
    machine = outer()
    machine.close(answered(machine, [500, 500, 50, 50]))
    again = restore(machine.state())
    assert again.state() == machine.state()
    assert again.holdout == 0.1
    assert np.array_equal(again.model().marginal(["a"]), machine.model().marginal(["a"]))


def test_who_was_held_out_was_asked_too() -> None:
    schema = Schema((Attribute("pay", "numeric", edges=(0.0, 1.0, 2.0)),))
    machine = start("sampled", schema, 2.0, 400, {"consumers": "2", "share": 0.5}, holdout=0.25)
    plan = machine.plan()
    assert plan is not None
    tally = answered(machine, [60, 40][: len(plan.questions)])
    machine.close(tally)
    assert (
        machine.diagnostics().to_json()["asked"]
        == tally.participants
        > machine.machine.closed[0].participants
    )
