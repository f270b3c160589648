"""When a round closes by itself: at how many reports, and at what time. Pure: the time is passed in.

Rounds ask different people, so each has a share of its campaign's reports and time: as much as the method plans for it
(`Plan.population`). A campaign of 1,000 expected reports whose first round has a population of 5 % closes that round at 50. The
last round takes whoever comes, until the campaign's own end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dither.reports import Plan
from dither.reports.closing import closing_seconds

if TYPE_CHECKING:
    from dither.collector.spec import CampaignSpec

_EXCESS_DEVIATIONS = 5
_LAST = 1 - 1e-9  # populations are floats: an end this near to 1 is 1
# A round's time is kept no finer, lest it tell when somebody came who filled the round before: hours where days are left.
_HOUR, _MINUTE, _SOON = 3600.0, 60.0, 2 * 86_400.0


def is_last(plan: Plan, start: float) -> bool:
    """Whether everybody whom the earlier rounds left is this round's."""
    return start + plan.population >= _LAST


def reports_wanted(spec: CampaignSpec, plan: Plan, start: float) -> int | None:
    """At how many reports a round closes by itself; None if their number does not close it.

    The shares of all rounds add up to `closes_at_reports`. Without that, rounds that whoever arrives fills have their share of the
    expected participants, but for the last one, which turns nobody away.
    """
    total = spec.closes_at_reports
    if total is None:
        if spec.assignment == "token" or is_last(plan, start):
            return None
        total = spec.participants
    end = total if is_last(plan, start) else round((start + plan.population) * total)
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
    return spec.participation == "open" and reports > expected + _EXCESS_DEVIATIONS * math.sqrt(expected)


def round_closes(spec: CampaignSpec, plan: Plan, start: float, now: float) -> float | None:
    """Seconds since 1970 at which a round that opens now closes by itself; None if no time closes it.

    Of the time that is left it has the share that its people are of those who are left; the last round has all of it.
    """
    if spec.closes is None:
        return None
    end = closing_seconds(spec.closes)
    if is_last(plan, start) or now >= end:
        return end
    share, step = plan.population / (1 - start), _HOUR if end - now > _SOON else _MINUTE
    return min(end, math.ceil((now + share * (end - now)) / step) * step)
