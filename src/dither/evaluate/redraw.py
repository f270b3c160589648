"""Plays a campaign over again with people drawn from a model: the same plan, the same mechanisms, tallies without reports.

The tally of a question depends on its participants only through the counts of their cells, so those are drawn from the
model's own marginal of the question, and the mechanism's exact count-only law does the rest. Time and memory do not grow
with the number of participants (subset selection, drawn person by person, excepted).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dither.errors import ParameterError, PrivacyError
from dither.models import Model
from dither.protocols import ProtocolMachine
from dither.reports import Plan
from dither.tally import CountTally
from dither.types import Floats

Cells = Callable[[Sequence[str]], Floats]


def redraw(machine: ProtocolMachine, model: Model, rng: np.random.Generator) -> None:
    """Run every round of a campaign with independent people of the model's distribution.

    Guarantee: for plans that are tallied by counts each question's tally has exactly the law it would have with so many
    people sampled from the model. In a split plan different questions' tallies are drawn apart, which leaves each one's
    law as it is. Tallies of whole reports cannot be drawn this way and are refused.
    """
    people = machine.campaign.participants
    known: dict[tuple[str, ...], Floats] = {}  # rounds and replicates ask the same questions again
    while (plan := machine.plan()) is not None:
        if plan.epsilon > machine.campaign.epsilon:
            raise PrivacyError(f"round {plan.round} would spend more than epsilon {machine.campaign.epsilon}")
        machine.close(draw_tally(plan, model, max(round(plan.population * people), 1), rng, known))


def draw_tally(
    plan: Plan,
    model: Model,
    people: int,
    rng: np.random.Generator,
    known: dict[tuple[str, ...], Floats] | None = None,
) -> CountTally:
    """One round's tally of so many people drawn from the model."""
    if plan.tally != "counts":
        raise ParameterError(
            f"round {plan.round} is tallied by whole reports ({plan.tally}), which cannot be drawn from a model's marginals",
            where="method",
            value=plan.tally,
        )
    known = {} if known is None else known
    tally = CountTally(plan)
    asked = [people] * len(plan.questions) if plan.split else whole_shares(people, plan.shares)
    for i, (question, n) in enumerate(zip(plan.questions, asked, strict=True)):
        if n == 0:
            continue
        if question.attributes not in known:
            cells = model.marginal(question.attributes).ravel()
            known[question.attributes] = cells / cells.sum()
        truth = rng.multinomial(n, known[question.attributes])
        tally.add_counts(i, question.mechanism.simulate(truth, rng), n)
    return tally


def whole_shares(people: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers that add up to `people`, each within one of its share."""
    ends = np.rint(np.cumsum(shares) / sum(shares) * people).astype(np.int64)
    return [int(n) for n in np.diff(ends, prepend=0)]
