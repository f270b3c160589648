"""Which of some reports and tokens a store on an SQL database has: questions asked inside a transaction of `sql_store`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.layout import reports, rounds, tokens
from dither.collector.store import Batch, Outcome, Row

_LOOKUP = 500  # ids in one query
_SOME: sa.BindParameter[bytes] = sa.bindparam("some", expanding=True)
_KNOWN_TOKENS = sa.select(tokens.c.hash).where(
    tokens.c.campaign == sa.bindparam("campaign"), tokens.c.hash.in_(_SOME)
)


@cache
def a_page(table: str) -> sa.TextClause:
    """Some reports of a round from an id on, in the order of ids."""
    return sa.text(
        f"SELECT report_id, question, payload FROM {table} WHERE round_key = :key AND report_id > :after "
        "ORDER BY report_id LIMIT :block"
    )


@cache
def _held(table: str) -> sa.TextClause:
    found = f"SELECT report_id, question, payload FROM {table} WHERE round_key = :key AND report_id IN :some"
    return sa.text(found).bindparams(_SOME)


def held_of(connection: Connection, table: str, key: int, ids: Sequence[bytes]) -> dict[bytes, Row]:
    """The stored reports of a round that have one of these ids."""
    return {r.report_id: Row._make(r) for r in _matching(connection, _held(table), ids, key=key)}


def repeats_of(connection: Connection, table: str, key: int, rows: Sequence[Row]) -> list[Outcome]:
    """What is to be said of reports that come to a closed round: stored before with the same bytes, with others, or too late."""
    held = held_of(connection, table, key, list({row.report_id for row in rows}))
    return [
        Outcome.ROUND_CLOSED
        if row.report_id not in held
        else (Outcome.DUPLICATE if held[row.report_id] == row else Outcome.CONFLICT)
        for row in rows
    ]


def stored_among(connection: Connection, campaign: str, ids: Sequence[bytes]) -> set[bytes]:
    """Return the ids that a stored report of any round of the campaign has."""
    keys = list(connection.scalars(sa.select(rounds.c.key).where(rounds.c.campaign == campaign)))
    # The table of all rounds, not one table per round: a campaign may be deleted meanwhile.
    query = sa.select(reports.c.report_id).where(
        reports.c.round_key.in_(keys), reports.c.report_id.in_(_SOME)
    )
    return {row.report_id for row in _matching(connection, query, ids)}


def earlier_rounds(connection: Connection, campaign: str, number: int) -> tuple[int, ...]:
    """The keys of the rounds of a campaign before one of them."""
    query = sa.select(rounds.c.key).where(rounds.c.campaign == campaign, rounds.c.number < number)
    return tuple(connection.scalars(query.order_by(rounds.c.number)))


def known_tokens(connection: Connection, batches: Iterable[Batch]) -> set[bytes]:
    """The hashes of issued tokens among those of some batches of one campaign."""
    listed = [batch for batch in batches if batch.token_hashes is not None]
    wanted = list({found for batch in listed for found in batch.token_hashes or ()})
    if not wanted:
        return set()
    return {
        r.hash for r in _matching(connection, _KNOWN_TOKENS, wanted, campaign=listed[0].campaign)
    }


def _matching(
    connection: Connection,
    query: sa.Select[Any] | sa.TextClause,
    some: Sequence[bytes],
    **fixed: str | int,
) -> Iterator[sa.Row[Any]]:
    """What a query finds of some ids, as many at a time as a database takes."""
    for start in range(0, len(some), _LOOKUP):
        yield from connection.execute(query, {"some": some[start : start + _LOOKUP], **fixed})
