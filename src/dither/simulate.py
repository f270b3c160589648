"""Drives a protocol over a table of codes, one row a participant.

Two paths that agree in distribution: `counts` draws each round's tally directly from the true counts, in time that does not
grow with participants times cells; `reports` makes every participant's report, packed as on the wire, and tallies it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from dither.checks import check_choice
from dither.errors import PrivacyError, TooFewAnswers
from dither.estimate.apportion import apportion
from dither.mechanisms import PackedReports
from dither.mechanisms.kernels.stream import RandomStream
from dither.protocols import ProtocolMachine
from dither.reports import Plan, Question
from dither.schema import Schema
from dither.schema.cells import cells_of
from dither.tally import CountTally, RoundTally, zero
from dither.types import Codes, Integers, Progress

Path = Literal["counts", "reports"]
PATHS: tuple[Path, ...] = ("counts", "reports")

_BLOCK = 1 << 16


def question_cells(schema: Schema, question: Question, codes: Codes) -> Integers:
    """Each person's cell of a question."""
    return cells_of(codes, schema.cardinalities, [schema.index(name) for name in question.attributes])


def simulate(
    machine: ProtocolMachine,
    codes: Codes,
    rng: np.random.Generator,
    *,
    path: Path = "counts",
    progress: Progress | None = None,
) -> list[Plan]:
    """Put every round's plan to people who have not been asked before, until the machine has finished; give the plans.

    Guarantee: each row answers at most once, and no plan is put that exceeds the campaign's epsilon.
    """
    check_choice("path", path, PATHS)
    campaign = machine.campaign
    order = rng.permutation(len(codes))
    asked = 0
    plans: list[Plan] = []
    while (plan := machine.plan()) is not None:
        if plan.epsilon > campaign.epsilon:
            raise PrivacyError(f"round {plan.round} would spend epsilon {plan.epsilon}, more than {campaign.epsilon}")
        # Rounding may leave one person too few for the last round, never one twice.
        take = min(round(plan.population * len(codes)), len(codes) - asked)
        people = order[asked : asked + take]
        asked += take
        if take == 0:
            raise TooFewAnswers(
                f"round {plan.round} has nobody left to ask: {len(codes):,} participants are too few for this method",
                where="participants",
                value=len(codes),
            )
        tally = zero(plan)
        if plan.split:
            _ask_everything(campaign.schema, plan, codes, people, rng, path, tally, progress)
        else:
            _ask_one_each(campaign.schema, plan, codes, people, rng, path, tally, progress)
        machine.close(tally)
        plans.append(plan)
    return plans


def _ask_one_each(
    schema: Schema,
    plan: Plan,
    codes: Codes,
    people: Integers,
    rng: np.random.Generator,
    path: Path,
    tally: RoundTally,
    progress: Progress | None,
) -> None:
    assert isinstance(tally, CountTally)
    ends = np.cumsum(apportion(len(people), plan.shares))
    start = 0
    for i, (question, end) in enumerate(zip(plan.questions, ends, strict=True)):
        group = people[start:end]
        start = int(end)
        if len(group):
            cells = question_cells(schema, question, codes[group])
            if path == "counts":
                truth = np.bincount(cells, minlength=question.mechanism.cells)
                tally.add_counts(i, question.mechanism.simulate(truth, rng), len(group))
            else:
                stream = RandomStream.from_generator(rng)
                for block in range(0, len(cells), _BLOCK):
                    tally.add(i, question.mechanism.randomise_many(cells[block : block + _BLOCK], stream))
        if progress:
            progress(f"round {plan.round + 1}: questions answered", i + 1, len(plan.questions))


def _ask_everything(
    schema: Schema,
    plan: Plan,
    codes: Codes,
    people: Integers,
    rng: np.random.Generator,
    path: Path,
    tally: RoundTally,
    progress: Progress | None,
) -> None:
    if isinstance(tally, CountTally) and path == "counts":
        for i, question in enumerate(plan.questions):
            truth = np.bincount(question_cells(schema, question, codes[people]), minlength=question.mechanism.cells)
            tally.add_counts(i, question.mechanism.simulate(truth, rng), len(people))
        return
    # Co-occurrences and patterns exist only in whole reports, so both paths make them.
    stream = RandomStream.from_generator(rng)
    parts: list[npt.NDArray[np.uint8]] = []
    for block in range(0, len(people), _BLOCK):
        rows = codes[people[block : block + _BLOCK]]
        answers = [q.mechanism.randomise_many(question_cells(schema, q, rows), stream).rows for q in plan.questions]
        parts.append(np.concatenate(answers, axis=1))
        if progress:
            progress(f"round {plan.round + 1}: reports made", min(block + _BLOCK, len(people)), len(people))
    tally.add(-1, PackedReports(np.concatenate(parts)))
