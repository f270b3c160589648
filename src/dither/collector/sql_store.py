"""A store on an SQL database through SQLAlchemy Core; what differs between databases is in `Dialect`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from dither.collector.store import (
    ANSWER_SECONDS,
    TIDY_SECONDS,
    WORK_SECONDS,
    Batch,
    Move,
    Outcome,
    Row,
    State,
    StoreAway,
    StoreBusy,
    StoredCampaign,
    StoredRound,
    StoreFull,
)
from dither.collector.tables import VERSION, campaigns, facts, metadata, reports, rounds, tokens
from dither.errors import InputError

_LOOKUP = 500  # ids in one query
_TRIES = 3  # of a transaction that the database undid in favour of another
_UNTIDIED = "untidied round "
log = logging.getLogger("dither.collector")


@dataclass(frozen=True)
class Dialect:
    """What differs between databases.

    `writing` opens a transaction in which a round's state cannot change under the writer; `insert_new` adds rows in the order
    given and says which ids were not there before; `guarded` bounds what happens inside to so many seconds and turns the driver's
    failures into StoreAway and StoreFull, or into StoreFailed, which tells nothing of what was stored; `tidy` writes the closed
    rounds of these keys anew and, when that is done, calls the function given, which notes it.
    """

    engine: Engine
    writing: Callable[[], AbstractContextManager[Connection]]
    insert_new: Callable[[Connection, int, Sequence[Row]], set[bytes]]
    guarded: Callable[[float], AbstractContextManager[None]]
    lock_round: str  # appended to the query that reads a round's state, so that it stays
    lock_writers: str  # appended to it to wait for whoever has it locked so
    tidy: Callable[[Sequence[int], Callable[[], None]], None]
    check: Callable[[], None]
    close: Callable[[], None]


class SqlStore:
    """The `Store` on an SQL database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._engine = dialect.engine
        of_round = "SELECT key, state FROM rounds WHERE campaign = :campaign AND number = :number"
        self._round_state = sa.text(f"{of_round} {dialect.lock_round}")
        self._round_alone = sa.text(f"{of_round} {dialect.lock_writers}")
        with dialect.guarded(WORK_SECONDS), dialect.writing() as connection:
            metadata.create_all(connection)
            found = connection.scalar(sa.select(facts.c.value).where(facts.c.name == "version"))
            if found is None:
                connection.execute(sa.insert(facts).values(name="version", value=VERSION))
            elif found != VERSION:
                raise InputError(
                    f"the database has layout {found}; this version of Dither reads layout {VERSION}", value=found
                )
        self._tidy_left_over()

    def create_campaign(self, campaign: StoredCampaign, first: StoredRound) -> None:
        with self._dialect.guarded(WORK_SECONDS), self._dialect.writing() as connection:
            connection.execute(
                sa.insert(campaigns).values(
                    id=campaign.id,
                    spec=json.dumps(campaign.spec),
                    state=campaign.state.value,
                    round=campaign.round,
                    machine=campaign.machine,
                )
            )
            _insert_round(connection, first)

    def campaign(self, campaign: str) -> StoredCampaign | None:
        found = self._select_campaigns(campaigns.c.id == campaign)
        return found[0] if found else None

    def campaigns(self) -> list[StoredCampaign]:
        return self._select_campaigns(sa.true())

    def _select_campaigns(self, where: Any) -> list[StoredCampaign]:
        c = campaigns.c
        query = sa.select(c.id, c.spec, c.state, c.round, c.machine).where(where).order_by(c.id)
        with self._dialect.guarded(ANSWER_SECONDS), self._engine.connect() as connection:
            return [
                StoredCampaign(r[0], json.loads(r[1]), State(r[2]), r[3], bytes(r[4]))
                for r in connection.execute(query)
            ]

    def rounds(self, campaign: str) -> list[StoredRound]:
        c = rounds.c
        query = sa.select(c.campaign, c.number, c.state, c.start, c.plan, c.tally).where(c.campaign == campaign)
        with self._dialect.guarded(WORK_SECONDS), self._engine.connect() as connection:
            return [
                StoredRound(r[0], r[1], r[2], r[3], json.loads(r[4]), None if r[5] is None else bytes(r[5]))
                for r in connection.execute(query.order_by(c.number))
            ]

    def move(self, move: Move) -> bool:
        with self._dialect.guarded(WORK_SECONDS), self._dialect.writing() as connection:
            changes: dict[str, Any] = {"state": move.to_state.value, "round": move.to_round}
            if move.machine is not None:
                changes["machine"] = move.machine
            if move.release is not None:
                changes["release"] = move.release
            moved = connection.execute(
                sa.update(campaigns)
                .where(
                    campaigns.c.id == move.campaign,
                    campaigns.c.state == move.from_state.value,
                    campaigns.c.round == move.from_round,
                )
                .values(**changes)
            )
            if moved.rowcount != 1:
                return False
            if move.round_state is not None:
                # On PostgreSQL this waits for uploads that hold the round's row, and later ones wait for this.
                connection.execute(
                    sa.update(rounds)
                    .where(rounds.c.campaign == move.campaign, rounds.c.number == move.from_round)
                    .values(state=move.round_state, tally=move.tally)
                )
                _remember_to_tidy(connection, move)
            if move.opened is not None:
                _insert_round(connection, move.opened)
            return True

    def release(self, campaign: str) -> bytes | None:
        with self._dialect.guarded(WORK_SECONDS), self._engine.connect() as connection:
            found = connection.scalar(sa.select(campaigns.c.release).where(campaigns.c.id == campaign))
            return None if found is None else bytes(found)

    def add_tokens(self, campaign: str, hashes: Sequence[bytes]) -> None:
        with self._dialect.guarded(WORK_SECONDS), self._dialect.writing() as connection:
            # Sorted, so that the order of issue is not the order of the rows.
            connection.execute(sa.insert(tokens), [{"campaign": campaign, "hash": h} for h in sorted(hashes)])

    def add_reports(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        for _ in range(_TRIES - 1):
            try:
                return self._add_reports(batches)
            except StoreBusy:
                continue
        return self._add_reports(batches)

    def _add_reports(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        with self._dialect.guarded(ANSWER_SECONDS), self._dialect.writing() as connection:
            outcomes: list[list[Outcome]] = [[Outcome.STORED] * len(b.rows) for b in batches]
            by_round: dict[tuple[str, int], list[int]] = {}
            for i, batch in enumerate(batches):
                by_round.setdefault((batch.campaign, batch.round), []).append(i)
            for (campaign, number), members in sorted(by_round.items()):
                found = connection.execute(self._round_state, {"campaign": campaign, "number": number}).one_or_none()
                if found is None or found[1] != "open":
                    closing = found is not None and found[1] == "closing"
                    for i in members:
                        outcomes[i] = [Outcome.ROUND_CLOSING if closing else Outcome.ROUND_CLOSED] * len(
                            batches[i].rows
                        )
                    continue
                known = _known_tokens(connection, campaign, [batches[i] for i in members])
                self._add_to_round(connection, int(found[0]), batches, members, known, outcomes)
            return outcomes

    def _add_to_round(
        self,
        connection: Connection,
        key: int,
        batches: Sequence[Batch],
        members: list[int],
        known: set[bytes] | None,
        outcomes: list[list[Outcome]],
    ) -> None:
        """Store the new rows; tell repeats (same bytes) from conflicts (other bytes)."""
        first: dict[bytes, Row] = {}
        repeated: list[tuple[int, int, Row]] = []
        places: dict[bytes, tuple[int, int]] = {}
        for i in members:
            hashes = batches[i].token_hashes
            for j, row in enumerate(batches[i].rows):
                if hashes is not None and (known is None or hashes[j] not in known):
                    outcomes[i][j] = Outcome.UNKNOWN_TOKEN
                elif row.report_id in first:
                    repeated.append((i, j, row))
                else:
                    first[row.report_id] = row
                    places[row.report_id] = (i, j)
        if not first:
            return
        inserted = self._dialect.insert_new(connection, key, sorted(first.values()))
        held = {r: row for r, row in first.items() if r in inserted}
        older = [r for r in first if r not in inserted]
        held.update(_lookup(connection, key, older))
        for r in older:
            i, j = places[r]
            outcomes[i][j] = _compare(held[r], first[r])
        for i, j, row in repeated:
            outcomes[i][j] = _compare(held[row.report_id], row)

    def reports(self, campaign: str, number: int, block: int = 1 << 16) -> Iterator[list[Row]]:
        query = sa.text(
            "SELECT report_id, question, payload FROM reports WHERE round_key = :key AND report_id > :after "
            "ORDER BY report_id LIMIT :block"
        )
        key = self._key(campaign, number)
        after = b""
        while True:
            # A page a query: no transaction stays open while somebody digests a block.
            with self._dialect.guarded(WORK_SECONDS), self._engine.connect() as connection:
                page = connection.execute(query, {"key": key, "after": after, "block": block}).all()
            if page:
                yield [Row(bytes(r[0]), r[1], bytes(r[2])) for r in page]
                after = bytes(page[-1][0])
            if len(page) < block:
                return

    def count(self, campaign: str, number: int) -> int:
        query = (
            sa.select(sa.func.count()).select_from(reports).where(reports.c.round_key == self._key(campaign, number))
        )
        with self._dialect.guarded(WORK_SECONDS), self._engine.connect() as connection:
            return int(connection.scalar(query) or 0)

    def settle(self, campaign: str, number: int) -> None:
        with self._dialect.guarded(ANSWER_SECONDS), self._dialect.writing() as connection:
            connection.execute(self._round_alone, {"campaign": campaign, "number": number})

    def tidy(self, campaign: str, number: int) -> None:
        self._tidy({self._key(campaign, number), *self._untidied()})

    def untidied(self, campaign: str) -> set[int]:
        return set(self._untidied(campaign).values())

    def _untidied(self, campaign: str | None = None) -> dict[int, int]:
        """The keys and numbers of closed rounds not tidied yet, of one campaign or of all."""
        marked = _mark(sa.cast(rounds.c.key, sa.Text))
        query = sa.select(rounds.c.key, rounds.c.number).join(facts, facts.c.name == marked)
        if campaign is not None:
            query = query.where(rounds.c.campaign == campaign)
        with self._dialect.guarded(ANSWER_SECONDS), self._engine.connect() as connection:
            return {int(r[0]): int(r[1]) for r in connection.execute(query)}

    def _tidy(self, keys: set[int]) -> None:
        def done() -> None:
            with self._dialect.writing() as connection:
                connection.execute(sa.delete(facts).where(facts.c.name.in_([_mark(str(key)) for key in keys])))

        with self._dialect.guarded(TIDY_SECONDS):
            self._dialect.tidy(sorted(keys), done)

    def _tidy_left_over(self) -> None:
        """When the store is opened, nobody else may read it any more."""
        left_over = self._untidied()
        if not left_over:
            return
        try:
            self._tidy(set(left_over))
        except (StoreAway, StoreFull) as error:
            log.warning("%d closed rounds may still show the order of arrival: %s", len(left_over), error)

    def check(self) -> None:
        with self._dialect.guarded(ANSWER_SECONDS):
            self._dialect.check()

    def close(self) -> None:
        self._dialect.close()

    def _key(self, campaign: str, number: int) -> int:
        query = sa.select(rounds.c.key).where(rounds.c.campaign == campaign, rounds.c.number == number)
        with self._dialect.guarded(ANSWER_SECONDS), self._engine.connect() as connection:
            found = connection.scalar(query)
        if found is None:
            raise InputError(f"campaign {campaign} has no round {number}", where="round", value=number)
        return int(found)


def failure_of(cause: BaseException | None, code: str, statement: str | None) -> str:
    """What may be said about a failed statement: its kind and its first words. Drivers' messages repeat stored values."""
    words = " ".join((statement or "a statement").split()[:3])
    return f"the database refused {words}: {type(cause).__name__} ({code})"


def _insert_round(connection: Connection, added: StoredRound) -> None:
    connection.execute(
        sa.insert(rounds).values(
            campaign=added.campaign,
            number=added.number,
            state=added.state,
            start=added.start,
            plan=json.dumps(added.plan),
            tally=added.tally,
        )
    )


def _remember_to_tidy(connection: Connection, move: Move) -> None:
    """From the moment a round stops taking reports until it is tidied, whatever happens in between; not if it opens again."""
    if move.round_state not in ("open", "closing"):
        return
    key = connection.scalar(
        sa.select(rounds.c.key).where(rounds.c.campaign == move.campaign, rounds.c.number == move.from_round)
    )
    connection.execute(sa.delete(facts).where(facts.c.name == _mark(str(key))))
    if move.round_state == "closing":
        connection.execute(
            sa.insert(facts).values(name=_mark(str(key)), value="its files may show the order of arrival")
        )


def _mark(key: Any) -> Any:
    """The name of the fact that a round is not tidied; the key as text or as an expression."""
    return sa.literal(_UNTIDIED) + key if isinstance(key, sa.ColumnElement) else _UNTIDIED + key


def _known_tokens(connection: Connection, campaign: str, batches: Sequence[Batch]) -> set[bytes] | None:
    wanted = list({h for b in batches if b.token_hashes is not None for h in b.token_hashes})
    known: set[bytes] = set()
    query = sa.select(tokens.c.hash).where(
        tokens.c.campaign == campaign, tokens.c.hash.in_(sa.bindparam("some", expanding=True))
    )
    for start in range(0, len(wanted), _LOOKUP):
        known.update(bytes(h) for h in connection.scalars(query, {"some": wanted[start : start + _LOOKUP]}))
    return known


def _lookup(connection: Connection, key: int, ids: Sequence[bytes]) -> dict[bytes, Row]:
    c = reports.c
    query = sa.select(c.report_id, c.question, c.payload).where(
        c.round_key == key, c.report_id.in_(sa.bindparam("some", expanding=True))
    )
    held: dict[bytes, Row] = {}
    for start in range(0, len(ids), _LOOKUP):
        for r in connection.execute(query, {"some": list(ids[start : start + _LOOKUP])}):
            held[bytes(r[0])] = Row(bytes(r[0]), r[1], bytes(r[2]))
    return held


def _compare(held: Row, given: Row) -> Outcome:
    return Outcome.DUPLICATE if held == given else Outcome.CONFLICT
