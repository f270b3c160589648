"""dither submit: a table as simulated participants over real HTTP, for load and demonstrations."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import numpy as np
import typer

from dither.cli.options import KEY_FILE, URL, KeyFile, Operator, Table, Url
from dither.client.announcement import Announcement
from dither.client.fleet import (
    SendResult,
    SimulatedFleet,
    await_next_round,
    fetch_announcement,
    submit_round,
)
from dither.client.transport import Connection
from dither.datasets.bundled import read_named
from dither.errors import DitherError, InputError
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
        announcement = fetch_announcement(connection, url, campaign)
        codes = _codes(table, announcement, rows)
        left = _arrivals(announcement, len(codes), seed)
        while True:
            here, left = _who_comes(announcement, left)
            people = (
                person
                for start in range(0, len(here), _BLOCK)
                for person in codes[here[start : start + _BLOCK]].tolist()
            )
            sent = submit_round(
                *(
                    announcement,
                    people,
                    simulated,
                    lambda body: connection.request("POST", path, body),
                    batch,
                ),
                numbers=here,
            )
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
            announcement = await_next_round(
                lambda: fetch_announcement(connection, url, campaign), number
            )
            if announcement.plan is None:
                print(f"campaign {campaign} is {announcement.state}", file=sys.stderr)
                return


def _arrivals(announcement: Announcement, people: int, seed: int | None) -> list[int]:
    """Return the order of arrival: random where it decides the round, otherwise the table's."""
    if announcement.assignment == "arrival" and announcement.wanted is not None:
        return [int(i) for i in np.random.default_rng(seed).permutation(people)]
    return list(range(people))


def _who_comes(announcement: Announcement, left: list[int]) -> tuple[list[int], list[int]]:
    """Split the people into those who come during this round and those who come later.

    On arrival, a round takes as many as it wants; by token, all check whether they are asked.
    """
    if announcement.assignment == "token":
        return left, left
    wanted = len(left) if announcement.wanted is None else announcement.wanted
    return left[:wanted], left[wanted:]


def _counts(results: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{n:,} {result}" for result, n in sorted(results.items())) or "nobody is asked"
    )


def _complain(number: int, sent: SendResult) -> None:
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
