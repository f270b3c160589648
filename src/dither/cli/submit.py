"""dither submit: a table as simulated participants over real HTTP, for load and demonstrations.

Reports are made and framed as on a single device and sent in batches; a batch is sent with
identical bytes until it is acknowledged.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import numpy as np
import typer

from dither.cli.options import KEY_FILE, URL, KeyFile, Operator, Table, Url
from dither.client.announcement import Announcement, read_announcement
from dither.client.participant import draw_below, retry_pause, rounded_code
from dither.client.transport import Answer, Connection, Unreachable
from dither.datasets.bundled import read_named
from dither.errors import DitherError, InputError, ParameterError, ReportError, StateError
from dither.mechanisms import ByteSource
from dither.reports import Envelope, Plan, Report, limits
from dither.reports.codec import encode as encode_envelope
from dither.reports.codec import outcomes
from dither.reports.plan import LEVEL_BITS, Question, pick
from dither.schema import Schema
from dither.schema.columns import line_numbers
from dither.schema.table import encode
from dither.types import Codes, Floats

_BLOCK = 4096  # rows converted to lists at a time
# Advice for the user, by the outcome of a report.
_ADVICE = {
    "unknown-token": "give the campaign's tokens with --tokens",
    "answered": "these participants have answered in an earlier round",
    "conflict": "these participants have reported already, with other noise",
    "round-closed": "the round was closed while reports were sent",
    "not-this-round": "the round was closed while reports were sent",
}


def submit(
    table: Table,
    campaign: Annotated[str, typer.Option(help="the id that 'dither campaign create' printed")],
    url: Url = URL,
    tokens: Annotated[
        Path | None, typer.Option(help="issued tokens, one per line; row i uses line i")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="only the first rows")] = None,
    batch: Annotated[int, typer.Option(min=1, max=1000, help="reports per request")] = 500,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="repeats tokens and noise exactly, without protection; for demonstrations"
        ),
    ] = None,
    all_rounds: Annotated[
        bool,
        typer.Option(
            "--all-rounds",
            help="close each round when sent, also the last (needs the key), and go on",
        ),
    ] = False,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Send each row of a table as one simulated participant. Not for real collections: this program sees the records.

    In campaigns that assign participants on arrival, full rounds close automatically, and this command waits for the next one.

    Example: dither submit adult --campaign ID
    """
    if not campaign.isascii() or not campaign.isalnum():
        raise InputError(
            f"{campaign!r} is not the id of a campaign", where="--campaign", value=campaign
        )
    if seed is not None:
        print(
            "dither: with --seed, anyone who knows the seed can remove the noise: these reports "
            "have no protection",
            file=sys.stderr,
        )
    simulated = SimulatedFleet(seed, None if tokens is None else _read_tokens(tokens))
    path = f"{urlsplit(url).path.rstrip('/')}/v1/campaigns/{campaign}/reports"
    with closing(Connection(url)) as connection:
        post = partial(connection.request, "POST", path)
        announcement = fetch_announcement(connection, url, campaign)
        codes = _codes(table, announcement, rows)
        left = _arrivals(announcement, len(codes), seed)
        while True:
            here, left = _who_comes(announcement, left)
            people = _people(codes, here)
            sent = submit_round(announcement, people, simulated, post, batch, numbers=here)
            assert announcement.plan is not None
            number = announcement.plan.round
            print(f"round {number}: {sent.participants:,} participants: {_counts(sent.results)}")
            once = announcement.assignment == "arrival"
            if once:
                left = sent.late + left
            _complain(number, sent)
            if all_rounds:
                Operator(url, key_file).call("POST", f"/{campaign}/close-round", {"round": number})
            elif not (once and left):
                return
            announcement = _await_next_round(
                lambda: fetch_announcement(connection, url, campaign), number
            )
            if announcement.plan is None:
                print(f"campaign {campaign} is {announcement.state}", file=sys.stderr)
                return


def _people(codes: Codes | Floats, members: list[int]) -> Iterator[Sequence[float]]:
    """The codes of some participants, a block at a time."""
    for start in range(0, len(members), _BLOCK):
        yield from codes[members[start : start + _BLOCK]].tolist()


def _arrivals(announcement: Announcement, people: int, seed: int | None) -> list[int]:
    """Return the order of arrival: random where it decides the round, otherwise the table's."""
    if announcement.assignment == "arrival" and announcement.wanted is not None:
        return [int(i) for i in np.random.default_rng(seed).permutation(people)]
    return list(range(people))


def _who_comes(announcement: Announcement, left: list[int]) -> tuple[list[int], list[int]]:
    """Split the people into participants of this round and of later rounds.

    On arrival, a round takes as many as it wants; by token, all check whether they are asked.
    """
    if announcement.assignment == "token":
        return left, left
    wanted = len(left) if announcement.wanted is None else announcement.wanted
    return left[:wanted], left[wanted:]


def _counts(results: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{n:,} {result}" for result, n in sorted(results.items()))
        or "no participant is asked"
    )


def _complain(number: int, sent: _SendResult) -> None:
    """Print how many reports were refused and why; raise if none was accepted."""
    refused = {
        result: n for result, n in sent.results.items() if result not in ("stored", "duplicate")
    }
    if not refused:
        return
    advice = next(
        (f" ({_ADVICE[r]})" for r in sorted(refused, key=lambda r: -refused[r]) if r in _ADVICE), ""
    )
    if sum(refused.values()) == sent.participants:
        raise DitherError(
            f"the collector refused all {sent.participants:,} reports of round {number}: "
            f"{_counts(refused)}{advice}"
        )
    print(
        f"dither: {sum(refused.values()):,} of {sent.participants:,} reports of round {number} "
        f"were refused: {_counts(refused)}{advice}",
        file=sys.stderr,
    )


def _codes(table: str, announcement: Announcement, rows: int | None) -> Codes | Floats:
    """Return each row's codes; for an attribute that devices round, the number itself."""
    schema = announcement.schema
    native = read_named(table, schema)
    used = native if rows is None else native.slice(0, rows)
    codes = encode(used, schema).codes
    questions = () if announcement.plan is None else announcement.plan.questions
    rounded = {name for question in questions if question.rounded for name in question.attributes}
    if not rounded:
        return codes
    numbers = codes.astype(np.float64)
    for name in rounded:
        numbers[:, schema.index(name)] = line_numbers(schema[name], used[name])
    return numbers


def _read_tokens(path: Path) -> list[bytes]:
    try:
        return [bytes.fromhex(line) for line in path.read_text(encoding="ascii").split()]
    except (OSError, UnicodeDecodeError, ValueError):
        raise InputError(f"cannot read {path} as tokens, one per line", where="--tokens") from None


_FRAME = limits.TOKEN_BYTES + 4
_ROOM = limits.BODY_BYTES - 64


@dataclass
class _SendResult:
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
) -> _SendResult:
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
    sent = _SendResult()
    numbered = zip(count() if numbers is None else numbers, people, strict=False)
    for members in _batches(_reports(announcement, announcement.plan, numbered, simulated), batch):
        reports = tuple(report for _, report in members)
        body = encode_envelope(Envelope(announcement.campaign, announcement.plan.round, reports))
        results = _results(_persist(partial(post, body), sleep), len(reports))
        sent.participants += len(reports)
        sent.results.update(results)
        sent.late += [
            n for (n, _), result in zip(members, results, strict=True) if result == "round-closed"
        ]
    return sent


def _await_next_round(
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
