"""Make the release of a finished campaign, and its folder as one zip file."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dither.checks import check_whole
from dither.collector.spec import CampaignSpec
from dither.methods import MethodRun
from dither.methods.histogram.consumer import Consumer, union
from dither.methods.histogram.machine import HistogramMachine
from dither.methods.mean import Mean
from dither.notice import Notice
from dither.release import Release
from dither.tally import CountTally, RoundTally

MAX_ROWS = 10_000_000
DEFAULT_ROWS = 100_000
# Questions named in the warning.
_MAX_CROWDED_SHOWN = 3


def make_release(
    run: MethodRun,
    participants: int,
    spec: CampaignSpec,
    rows: int | None,
    campaign: str = "",
    days: tuple[str, str] = ("", ""),
) -> Release:
    """Make the release of a finished protocol.

    Args:
        run: The finished protocol.
        participants: Number of participants.
        spec: The campaign's specification.
        rows: Synthetic rows; None for the number of participants, up to 100,000.
            Methods about one number have none.
        campaign: The campaign's id.
        days: The days of its creation and its end.
    """
    if isinstance(run.machine, HistogramMachine | Mean):
        return _number_release(run.machine, spec, campaign, *days)
    size = check_whole(
        "rows", min(participants, DEFAULT_ROWS) if rows is None else rows, 1, MAX_ROWS
    )
    draw = (
        np.random.default_rng([run.campaign.seed, 2]),
        np.random.default_rng([run.campaign.seed, 3]),
    )
    call = spec.call(size, campaign, *days)
    return Release.from_machine(
        run, call, participants, draw, warnings=_excess_notices(run.tallies, spec)
    )


def _excess_notices(tallies: Sequence[RoundTally], spec: CampaignSpec) -> tuple[Notice, ...]:
    """Warn if rounds or questions of an open campaign took more reports than expected."""
    found = [
        f"round {tally.plan.round + 1} took {tally.participants:,} reports, "
        f"{spec.expected_reports(tally.plan):,} were expected"
        for tally in tallies
        if spec.has_excess(tally.plan, tally.participants)
    ]
    crowded = [
        words
        for tally in tallies
        if isinstance(tally, CountTally)
        for words in _crowded(tally, spec)
    ]
    if len(crowded) > _MAX_CROWDED_SHOWN:
        crowded = [
            *crowded[:_MAX_CROWDED_SHOWN],
            f"and {len(crowded) - _MAX_CROWDED_SHOWN:,} more questions",
        ]
    if not found and not crowded:
        return ()
    words = (
        f"More reports than expected: {'; '.join([*found, *crowded])}. Anybody can take part in an open campaign "
        "any number of times, so some of them may come from the same person or be forged."
    )
    if crowded:
        words += (
            " Participants who decline other questions have the same effect on single questions."
        )
    return (Notice("more-reports-than-expected", words),)


def _crowded(tally: CountTally, spec: CampaignSpec) -> list[str]:
    """The questions of a round that took more reports than their share of its reports."""
    answers = tally.n.tolist()
    return [
        f"the question about {' and '.join(tally.plan.questions[i].attributes)} in round {tally.plan.round + 1} took "
        f"{answers[i]:,} reports, its share is {tally.plan.shares[i] * sum(answers):,.0f}"
        for i in spec.crowded_questions(tally.plan, answers)
    ]


def _number_release(
    machine: HistogramMachine[Any] | Mean,
    spec: CampaignSpec,
    campaign: str,
    created: str,
    finalised: str,
) -> Release:
    """The release of a finished campaign about one number."""
    schema = machine.campaign.schema
    # The seed of a campaign is that of a fit, and no fit is made here.
    call = replace(spec.call(0, campaign, created, finalised), seed=None, path="reports")
    partition = None
    if isinstance(machine, HistogramMachine):
        asked = [Consumer(each.name, each.edges) for each in schema]
        partition = union([*machine.consumers, *asked], machine.low, machine.high, machine.unit)
    return Release.from_number(
        machine,
        call,
        schema.attributes[0].name,
        partition,
        schema=schema,
        warnings=_excess_notices(machine.closed, spec),
    )


def zip_release(release: Release) -> bytes:
    """The release's folder as one zip file."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch:
        folder = release.save(Path(scratch) / "release")
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                archive.write(path, path.relative_to(folder).as_posix())
    return out.getvalue()
