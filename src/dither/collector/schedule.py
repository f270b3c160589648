"""When a round closes by itself: at how many reports, and at what time. Pure: the time is passed in.

Rounds ask different people, so each has a share of its campaign's reports and time: as much as the method plans for it
(`Plan.population`). A campaign of 1,000 expected reports whose first round has a population of 5 % closes that round at 50. The
last round takes whoever comes, until the campaign's own end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy.special import bdtrc, ndtr

from dither.reports import Plan
from dither.reports.plan import closing_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dither.collector.spec import CampaignSpec

_EXCESS_DEVIATIONS = 5
_LAST = 1 - 1e-9  # populations are floats: an end this near to 1 is 1
# A round's time is kept no finer, lest it tell when somebody came who filled the round before: hours where days are left.
_HOUR, _MINUTE, _SOON = 3600.0, 60.0, 2 * 86_400.0


def _is_last(plan: Plan, start: float) -> bool:
    """Whether everybody whom the earlier rounds left is this round's."""
    return start + plan.population >= _LAST


def reports_wanted(spec: CampaignSpec, plan: Plan, start: float) -> int | None:
    """At how many reports a round closes by itself; None if their number does not close it.

    The shares of all rounds add up to `closes_at_reports`. Without that, rounds that whoever arrives fills have their share of the
    expected participants, but for the last one, which turns nobody away.
    """
    total = spec.closes_at_reports
    if total is None:
        if spec.assignment == "token" or _is_last(plan, start):
            return None
        total = spec.participants
    end = total if _is_last(plan, start) else round((start + plan.population) * total)
    return max(1, end - round(start * total))


def expected_reports(spec: CampaignSpec, plan: Plan) -> int:
    """How many reports a round is expected to take: its share of the campaign's participants."""
    return round(max(spec.participants, spec.closes_at_reports or 0) * plan.population)


def has_excess(spec: CampaignSpec, plan: Plan, reports: int) -> bool:
    """Whether a round of an open campaign has more reports than it expects by more than chance.

    Anybody can make up tokens there, so one client can send as many reports as it likes. Five
    standard deviations of a Poisson number are exceeded once in millions of honest rounds.
    """
    expected = expected_reports(spec, plan)
    return spec.participation == "open" and reports > expected + _EXCESS_DEVIATIONS * math.sqrt(
        expected
    )


def crowded_questions(spec: CampaignSpec, plan: Plan, answers: Sequence[int]) -> list[int]:
    """The questions of an open campaign's round that have more reports than their share by more than chance.

    Tokens of honest participants divide a round's reports over its questions at random, with the plan's
    shares; participants who make up tokens can gather on one question without adding much to the total.

    Args:
        spec: The campaign.
        plan: The round's plan.
        answers: The number of reports to each question.

    Returns:
        The indices of questions whose number of reports, or a larger one, has less than the probability
        of five standard deviations (2.9e-7, one-sided) under the binomial distribution of the round's
        total. A round of 1,000 questions without forged reports is flagged with a probability below
        0.0003.
    """
    if spec.participation != "open" or plan.split:
        return []
    total, rare = sum(answers), float(ndtr(-_EXCESS_DEVIATIONS))
    # bdtrc(k, n, p) is the probability of more than k.
    return [
        i
        for i, (share, count) in enumerate(zip(plan.shares, answers, strict=True))
        if count > share * total and bdtrc(count - 1, total, share) < rare
    ]


def round_closes(spec: CampaignSpec, plan: Plan, start: float, now: float) -> float | None:
    """Seconds since 1970 at which a round that opens now closes by itself; None if no time closes it.

    Of the time that is left it has the share that its people are of those who are left; the last round has all of it.
    """
    if spec.closes is None:
        return None
    end = closing_seconds(spec.closes)
    if _is_last(plan, start) or now >= end:
        return end
    share, step = plan.population / (1 - start), _HOUR if end - now > _SOON else _MINUTE
    return min(end, math.ceil((now + share * (end - now)) / step) * step)
