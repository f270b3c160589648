"""Simulated participants in one process, for load tests and demonstrations.

Reports are made and framed as on a single device and sent in batches over HTTP; a batch is
sent with identical bytes until it is acknowledged. Standard library only.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from urllib.parse import urlsplit

from dither.client.announcement import Announcement, read_announcement
from dither.client.participant import draw_below, retry_pause, rounded_code
from dither.client.transport import Answer, Connection, Unreachable
from dither.errors import ParameterError, ReportError, StateError
from dither.mechanisms import ByteSource
from dither.reports import Envelope, Plan, Report, encode, limits
from dither.reports.codec import outcomes
from dither.reports.plan import LEVEL_BITS, Question, pick
from dither.schema import Schema

_FRAME = limits.TOKEN_BYTES + 4
_ROOM = limits.BODY_BYTES - 64


@dataclass
class SendResult:
    """The number of simulated participants who reported, and the results of their reports."""

    participants: int = 0
    results: Counter[str] = field(default_factory=Counter)
    # Participants who reported just after the round closed.
    late: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class SimulatedFleet:
    """The tokens and the noise of simulated participants: from the system, or from a seed."""

    seed: int | None = None
    issued: Sequence[bytes] | None = None
    _fresh: dict[int, bytes] = field(default_factory=dict, repr=False)

    def token(self, person: int) -> bytes:
        """The participant's token, the same in every round."""
        if self.issued is not None:
            if person >= len(self.issued):
                raise ParameterError(
                    f"{len(self.issued):,} tokens are too few for person {person + 1:,}",
                    where="tokens",
                )
            return self.issued[person]
        if self.seed is None:
            return self._fresh.setdefault(person, secrets.token_bytes(limits.TOKEN_BYTES))
        return hashlib.sha256(f"dither-simulated-token:{self.seed}:{person}".encode()).digest()

    def source(self, person: int, campaign: bytes, number: int) -> ByteSource:
        """The participant's noise in a round."""
        if self.seed is None:
            return secrets.token_bytes
        drawn = 0

        def draw(count: int) -> bytes:
            nonlocal drawn
            drawn += 1
            name = f"dither-simulated-noise:{self.seed}:{person}:{campaign.hex()}:{number}:{drawn}"
            return hashlib.shake_256(name.encode()).digest(count)

        return draw


def submit_round(
    announcement: Announcement,
    people: Iterable[Sequence[float]],
    simulated: SimulatedFleet,
    post: Callable[[bytes], Answer],
    batch: int = 500,
    sleep: Callable[[float], None] = time.sleep,
    numbers: Iterable[int] | None = None,
) -> SendResult:
    """Send the reports of all participants whom the open round asks.

    Args:
        announcement: The campaign, with an open round.
        people: The codes of each participant.
        simulated: The participants' tokens and noise.
        post: Sends one batch.
        batch: The largest number of reports in a batch.
        sleep: Waits between attempts.
        numbers: The participants' numbers, which determine tokens and noise; 0, 1, .. by
            default.

    Raises:
        ReportError: The collector does not report the result of a batch.
    """
    if announcement.plan is None:
        raise ParameterError(
            f"campaign {announcement.campaign.hex()} has no open round ({announcement.state})",
            where="campaign",
        )
    sent = SendResult()
    numbered = zip(count() if numbers is None else numbers, people, strict=False)
    for members in _batches(_reports(announcement, announcement.plan, numbered, simulated), batch):
        reports = tuple(report for _, report in members)
        body = encode(Envelope(announcement.campaign, announcement.plan.round, reports))
        results = _results(_persist(partial(post, body), sleep), len(reports))
        sent.participants += len(reports)
        sent.results.update(results)
        sent.late += [
            n for (n, _), result in zip(members, results, strict=True) if result == "round-closed"
        ]
    return sent


def await_next_round(
    refresh: Callable[[], Announcement],
    number: int,
    seconds: float = 600.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Announcement:
    """Wait until another round is open or the campaign has ended.

    Raises:
        StateError: Neither happens in time.
    """
    waited = 0.0
    while True:
        announcement = refresh()
        plan = announcement.plan
        if announcement.state in ("collected", "finalised") or (
            plan is not None and plan.round != number
        ):
            return announcement
        if waited >= seconds:
            raise StateError(
                f"round {number} was not closed within {seconds:g} s; look at the campaign's status"
            )
        sleep(0.2)
        waited += 0.2


def fetch_announcement(connection: Connection, url: str, campaign: str) -> Announcement:
    """Fetch the announcement of a campaign."""
    answer = connection.request(
        "GET", f"{urlsplit(url).path.rstrip('/')}/v1/campaigns/{campaign}", None
    )
    if answer.status != 200:
        raise ParameterError(
            f"the collector at {url} says {answer.status} about campaign {campaign}",
            where="campaign",
        )
    return read_announcement(answer.body)


def _reports(
    announcement: Announcement,
    plan: Plan,
    people: Iterable[tuple[int, Sequence[float]]],
    simulated: SimulatedFleet,
) -> Iterator[tuple[int, Report]]:
    campaign = announcement.campaign
    for person, codes in people:
        token = simulated.token(person)
        if not announcement.asks(token):
            continue
        picked = pick(token, campaign, plan)
        source = simulated.source(person, campaign, plan.round)
        questions = plan.questions if picked == -1 else (plan.questions[picked],)
        answers = [
            q.mechanism.randomise(_cell(q, announcement.schema, codes, source), source)
            for q in questions
        ]
        yield person, Report(token, picked, b"".join(answers))


def _cell(question: Question, schema: Schema, codes: Sequence[float], source: ByteSource) -> int:
    """The cell of a participant's codes; a rounded question takes the number itself."""
    if not question.rounded:
        return question.cell(schema, codes)
    name = question.attributes[0]
    draw = int.from_bytes(source(LEVEL_BITS // 8), "little")
    level = rounded_code(schema[name], codes[schema.index(name)], question.mechanism.cells, draw)
    return draw_below(question.mechanism.cells, source) if level is None else level


def _batches(
    reports: Iterable[tuple[int, Report]], size: int
) -> Iterator[list[tuple[int, Report]]]:
    group: list[tuple[int, Report]] = []
    held = 0
    for report in reports:
        length = _FRAME + len(report[1].payload)
        if group and (len(group) >= min(size, limits.REQUEST_REPORTS) or held + length > _ROOM):
            yield group
            group, held = [], 0
        group.append(report)
        held += length
    if group:
        yield group


def _persist(post: Callable[[], Answer], sleep: Callable[[float], None], tries: int = 8) -> Answer:
    for attempt in range(tries - 1):
        try:
            answer = post()
            if answer.status not in (408, 429, 503, 507):
                return answer
            asked = answer.retry_after or 0.0
        except Unreachable:
            asked = 0.0
        sleep(retry_pause(asked, 0.1 * 2**attempt))
    return post()


def _results(answer: Answer, expected: int) -> list[str]:
    results = outcomes(answer.status, answer.content_type, answer.body, expected)
    if results is None:
        raise ReportError(
            f"the collector refused a batch with status {answer.status}: {answer.reason}"
        )
    return results
