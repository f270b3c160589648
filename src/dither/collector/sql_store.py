"""A store on an SQL database through SQLAlchemy Core: what SQLite and PostgreSQL do alike. `layout.py` has the tables."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from dither.collector.audit import AuditLog, note
from dither.collector.deletion import delete_campaign, delete_rows
from dither.collector.keys import KeyTable
from dither.collector.layout import (
    UNTIDIED,
    bring_up_to_date,
    campaigns,
    facts,
    forget_untidied,
    remember_to_tidy,
    reports,
    rounds,
    tokens,
)
from dither.collector.lookups import (
    a_page,
    earlier_rounds,
    held_of,
    known_tokens,
    repeats_of,
    stored_among,
)
from dither.collector.publications import PublicationTable
from dither.collector.sessions import SessionTable
from dither.collector.store import (
    ANSWER_SECONDS,
    LAYOUT_SECONDS,
    TIDY_SECONDS,
    WORK_SECONDS,
    Batch,
    Move,
    Outcome,
    Position,
    Row,
    State,
    StoreAway,
    StoreBusy,
    StoredCampaign,
    StoredRound,
    StoreFailure,
    StoreFull,
    StoreUntidy,
)
from dither.errors import InputError, StateError
from dither.tally.counting import add_digests, digest_of

_TRIES = 3  # of a transaction that the database undid in favour of another
READER_SECONDS = 3.0  # how long tidying waits for somebody else's reading to end
log = logging.getLogger("dither.collector")

_A_ROUND = "SELECT rounds.key, state, epoch FROM rounds{with_lock} WHERE campaign = :campaign AND number = :number {keep}"


class SqlStore(ABC):
    """The `Store` on an SQL database; a subclass adds what only its database can do."""

    shared = False
    _driver_error: type[
        Exception
    ]  # what the driver raises where SQLAlchemy does not stand in between
    # Words for the query that reads a round's state, after the table's name and at its end: so that it stays while reports are
    # added, and to wait for whoever keeps it so.
    _keep_state = ("", "")
    _await_adding = ("", "")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._earlier: dict[
            tuple[str, int], tuple[int, ...]
        ] = {}  # the keys of a campaign's rounds before one of them
        transactions = self._write, self._read
        self.keys, self.sessions = KeyTable(*transactions), SessionTable(*transactions)
        self.audit, self.publications = AuditLog(*transactions), PublicationTable(*transactions)
        self._state_of_round, self._round_alone = (
            sa.text(_A_ROUND.format(with_lock=lock, keep=keep))
            for lock, keep in (self._keep_state, self._await_adding)
        )
        with self._write(LAYOUT_SECONDS) as connection:
            self._alone(connection)
            bring_up_to_date(connection)
        self._tidy_left_over()

    # --- what differs between databases ---------------------------------------------------------------------------

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Connection]:
        """A transaction in which a round's state cannot change under the writer, and which is on disk when it has ended."""

    @abstractmethod
    def _insert_new(self, connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
        """Add rows in the order given, but none whose id is there; gives the ids of those added."""

    @abstractmethod
    def _rewrite(self, keys: Sequence[int]) -> None:
        """Write the closed rounds of these keys anew and, when that is done, call `_tidied`."""

    @abstractmethod
    def _translated(self, cause: BaseException | None, statement: str | None) -> Exception:
        """A driver's failure as StoreFull or StoreAway, or as StoreFailure, which tells nothing of what was stored."""

    @abstractmethod
    def _look(self) -> None:
        """Raise unless reports could be stored now."""

    @abstractmethod
    def close(self) -> None:
        """Close it, without waiting for a database that does not answer; operations under way in other threads fail."""

    def _table(self, key: int) -> str:
        """The table that holds the reports of a round."""
        return reports.name

    def _alone(self, connection: Connection) -> None:  # noqa: B027
        """From here to the end of the transaction nobody else makes or changes tables."""

    def _round_made(self, connection: Connection, key: int) -> None:  # noqa: B027
        """Make room for the reports of a new round."""

    def _drop_reports(self, connection: Connection, key: int) -> None:
        """Remove the reports of a round that is deleted."""
        delete_rows(connection, key)

    def _announce(self, connection: Connection, campaign: str) -> None:  # noqa: B027
        """Tell other collectors, once the transaction is committed, that a campaign was made or moved."""

    def _adding(self, connection: Connection, batch: Batch, key: int, epoch: int) -> None:  # noqa: B027
        """This process adds to a round in this epoch, in this transaction."""

    def await_change(self, seconds: float) -> None:
        time.sleep(seconds)

    def turn(self, campaign: str) -> AbstractContextManager[None]:
        return nullcontext()

    def _within(self, seconds: float) -> AbstractContextManager[None]:
        """Bounds what happens inside to so many seconds, where the connections do not do so themselves."""
        return nullcontext()

    # --- what does not --------------------------------------------------------------------------------------------

    @contextmanager
    def _guarded(self, seconds: float) -> Iterator[None]:
        """Bound what happens inside and translate the driver's failures."""
        try:
            with self._within(seconds):
                yield
        except sa.exc.TimeoutError:
            raise StoreAway("the database is away: all connections to it are in use") from None
        except sa.exc.StatementError as error:
            raise self._translated(error.orig, error.statement) from None
        except self._driver_error as error:
            raise self._translated(error, None) from None

    @contextmanager
    def _write(self, seconds: float) -> Iterator[Connection]:
        with self._guarded(seconds), self._writing() as connection:
            yield connection

    @contextmanager
    def _read(self, seconds: float) -> Iterator[Connection]:
        with self._guarded(seconds), self._engine.connect() as connection:
            yield connection

    def create_campaign(self, campaign: StoredCampaign, first: StoredRound) -> None:
        values = {
            **vars(campaign),
            "spec": json.dumps(campaign.spec),
            "state": campaign.state.value,
        }
        with self._write(WORK_SECONDS) as connection:
            connection.execute(sa.insert(campaigns).values(values))
            self._insert_round(connection, first)
            note(connection, "create", campaign.id, f"{campaign.state.value}, round 0")
            self._announce(connection, campaign.id)

    def campaign(self, campaign: str) -> StoredCampaign | None:
        return next(iter(self._select_campaigns(campaigns.c.id == campaign)), None)

    def campaigns(self) -> list[StoredCampaign]:
        return self._select_campaigns(sa.true())

    def _select_campaigns(self, where: sa.ColumnElement[bool]) -> list[StoredCampaign]:
        c = campaigns.c
        query = (
            sa.select(c.id, c.spec, c.state, c.round, c.machine, c.moves)
            .where(where)
            .order_by(c.id)
        )
        with self._read(ANSWER_SECONDS) as connection:
            found = connection.execute(query).all()
        return [
            StoredCampaign(r.id, json.loads(r.spec), State(r.state), r.round, r.machine, r.moves)
            for r in found
        ]

    def positions(self) -> dict[str, Position]:
        c = campaigns.c
        with self._read(ANSWER_SECONDS) as connection:
            found = connection.execute(sa.select(c.id, c.state, c.round, c.moves)).all()
        return {r.id: Position(State(r.state), r.round, r.moves) for r in found}

    def rounds(self, campaign: str) -> list[StoredRound]:
        c = rounds.c
        query = sa.select(c.number, c.state, c.start, c.plan, c.tally, c.closes, c.held)
        query = query.where(c.campaign == campaign).order_by(c.number)
        with self._read(WORK_SECONDS) as connection:
            found = connection.execute(query).all()
        return [
            StoredRound(
                campaign,
                r.number,
                r.state,
                r.start,
                json.loads(r.plan),
                r.tally,
                r.closes,
                bool(r.held),
            )
            for r in found
        ]

    def move(self, move: Move) -> bool:
        c = campaigns.c
        expected = [
            c.id == move.campaign,
            c.state == move.from_state.value,
            c.round == move.from_round,
        ]
        if move.moves is not None:
            expected.append(c.moves == move.moves)
        changes: dict[str, object] = {
            "state": move.to_state.value,
            "round": move.to_round,
            "moves": c.moves + 1,
        }
        changes |= {
            name: blob
            for name in ("machine", "release")
            if (blob := getattr(move, name)) is not None
        }
        with self._write(WORK_SECONDS) as connection:
            if (
                connection.execute(sa.update(campaigns).where(*expected).values(changes)).rowcount
                != 1
            ):
                return False
            if move.round_state is not None:
                # On PostgreSQL this waits for uploads that hold the round's row, and later ones wait for this.
                connection.execute(
                    self._round_alone, {"campaign": move.campaign, "number": move.from_round}
                )
                ends = {} if move.closes is None else {"closes": move.closes}
                connection.execute(
                    sa.update(rounds)
                    .where(rounds.c.campaign == move.campaign, rounds.c.number == move.from_round)
                    .values(state=move.round_state, tally=move.tally, held=int(move.held), **ends)
                )
                remember_to_tidy(connection, move)
            if move.opened is not None:
                self._insert_round(connection, move.opened)
            note(connection, move.to_state.value, move.campaign, move.said)
            self._announce(connection, move.campaign)
            return True

    def delete(self, campaign: str, moves: int) -> bool:
        with self._write(WORK_SECONDS) as connection:
            if not delete_campaign(connection, campaign, moves, self._drop_reports):
                return False
            self._announce(connection, campaign)
        self._tidy(set(self._untidied()))
        return True

    def release(self, campaign: str) -> bytes | None:
        with self._read(WORK_SECONDS) as connection:
            return connection.scalar(
                sa.select(campaigns.c.release).where(campaigns.c.id == campaign)
            )

    def add_tokens(self, campaign: str, hashes: Sequence[bytes]) -> None:
        with self._write(WORK_SECONDS) as connection:
            there = (
                sa.select(campaigns.c.id)
                .where(campaigns.c.id == campaign)
                .with_for_update(read=True)
            )
            if connection.scalar(there) is None:
                raise StateError(
                    f"campaign {campaign} was deleted meanwhile; none of its tokens is of use"
                )
            # Sorted, so that the order of issue is not the order of the rows.
            connection.execute(
                sa.insert(tokens), [{"campaign": campaign, "hash": h} for h in sorted(hashes)]
            )

    def add_reports(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        for _ in range(_TRIES - 1):
            try:
                return self._add_reports(batches)
            except StoreBusy:
                continue
        return self._add_reports(batches)

    def _add_reports(self, batches: Sequence[Batch]) -> list[list[Outcome]]:
        outcomes = [[Outcome.STORED] * len(batch.rows) for batch in batches]
        by_round: dict[tuple[str, int], dict[int, Batch]] = {}
        for i, batch in enumerate(batches):
            by_round.setdefault((batch.campaign, batch.round), {})[i] = batch
        with self._write(ANSWER_SECONDS) as connection:
            for (campaign, number), members in sorted(by_round.items()):
                of_round = {"campaign": campaign, "number": number}
                found = connection.execute(self._state_of_round, of_round).one_or_none()
                if found is not None and found.state == "open":
                    self._adding(connection, next(iter(members.values())), found.key, found.epoch)
                    self._add_to_round(connection, found.key, members, outcomes)
                    continue
                for i, batch in members.items():
                    if found is not None and found.state == "closed":
                        outcomes[i] = repeats_of(
                            connection, self._table(found.key), found.key, batch.rows
                        )
                    else:
                        closing = found is not None and found.state == "closing"
                        outcomes[i] = [
                            Outcome.ROUND_CLOSING if closing else Outcome.ROUND_CLOSED
                        ] * len(batch.rows)
        return outcomes

    def _add_to_round(
        self,
        connection: Connection,
        key: int,
        members: Mapping[int, Batch],
        outcomes: list[list[Outcome]],
    ) -> None:
        """Store the new rows of one round; tell repeats (same bytes) from conflicts (other bytes), and who has answered before."""
        known = known_tokens(connection, members.values())
        answered = self._answered(connection, members.values())
        first: dict[bytes, Row] = {}
        later: list[
            tuple[int, int, Row]
        ] = []  # whose id came before in this very group, or is in the store
        places: dict[bytes, tuple[int, int]] = {}
        for i, batch in members.items():
            for j, row in enumerate(batch.rows):
                if batch.token_hashes is not None and batch.token_hashes[j] not in known:
                    outcomes[i][j] = Outcome.UNKNOWN_TOKEN
                elif row.report_id in answered:
                    outcomes[i][j] = Outcome.ANSWERED
                elif row.report_id in first:
                    later.append((i, j, row))
                else:
                    first[row.report_id] = row
                    places[row.report_id] = (i, j)
        if not first:
            return
        inserted = self._insert_new(connection, key, sorted(first.values()))
        older = [report_id for report_id in first if report_id not in inserted]
        later += [(*places[report_id], first[report_id]) for report_id in older]
        held = {report_id: first[report_id] for report_id in inserted}
        held |= held_of(connection, self._table(key), key, older)
        for i, j, row in later:
            outcomes[i][j] = Outcome.DUPLICATE if held[row.report_id] == row else Outcome.CONFLICT

    def _answered(self, connection: Connection, batches: Iterable[Batch]) -> set[bytes]:
        """The ids among these that an earlier round of their campaign has, where each participant answers once in all.

        Nothing is added to an earlier round any more: its closing waited for whoever added, and came before this round opened.
        """
        once = [batch for batch in batches if batch.once]
        if not once:
            return set()
        asked = once[0].campaign, once[0].round
        if asked not in self._earlier:
            self._earlier[asked] = earlier_rounds(connection, *asked)
        ids = list({row.report_id for batch in once for row in batch.rows})
        tables = ((key, self._table(key)) for key in self._earlier[asked])
        return {found for key, table in tables for found in held_of(connection, table, key, ids)}

    def reports(
        self, campaign: str, number: int, block: int = 1 << 16, after: bytes = b""
    ) -> Iterator[list[Row]]:
        key = self.round_key(campaign, number)
        query = a_page(self._table(key))
        while True:
            # One query per page: no transaction stays open while somebody digests a block.
            with self._read(WORK_SECONDS) as connection:
                page = [
                    Row._make(r)
                    for r in connection.execute(query, {"key": key, "after": after, "block": block})
                ]
            if page:
                yield page
                after = page[-1].report_id
            if len(page) < block:
                return

    def stored_among(self, campaign: str, ids: Sequence[bytes]) -> set[bytes]:
        with self._read(ANSWER_SECONDS) as connection:
            return stored_among(connection, campaign, ids)

    def count(self, campaign: str, number: int) -> int:
        key = self.round_key(campaign, number)
        query = sa.text(f"SELECT count(*) FROM {self._table(key)} WHERE round_key = :key")
        with self._read(WORK_SECONDS) as connection:
            return connection.scalar(query, {"key": key}) or 0

    def answers(self, campaign: str, number: int) -> dict[int, int]:
        key = self.round_key(campaign, number)
        query = sa.text(
            f"SELECT question, count(*) FROM {self._table(key)} WHERE round_key = :key GROUP BY question"
        )
        with self._read(WORK_SECONDS) as connection:
            return {
                int(question): int(count)
                for question, count in connection.execute(query, {"key": key})
            }

    def digest(self, campaign: str, number: int) -> tuple[int, int]:
        reports, digest = 0, 0
        for page in self.reports(campaign, number):
            reports, digest = reports + len(page), add_digests(digest, digest_of(page))
        return reports, digest

    def settle(self, campaign: str, number: int) -> None:
        with self._write(ANSWER_SECONDS) as connection:
            connection.execute(self._round_alone, {"campaign": campaign, "number": number})

    def tidy(self, campaign: str, number: int) -> None:
        self._tidy({self.round_key(campaign, number), *self._untidied()})

    def untidied(self, campaign: str) -> set[int]:
        return set(self._untidied(rounds.c.campaign == campaign).values())

    def _untidied(self, where: sa.ColumnElement[bool] | None = None) -> dict[int, int]:
        """The keys and numbers of closed rounds not tidied yet."""
        marked = facts.c.name == sa.literal(UNTIDIED) + sa.cast(rounds.c.key, sa.Text)
        query = sa.select(rounds.c.key, rounds.c.number).join(facts, marked)
        with self._read(ANSWER_SECONDS) as connection:
            return {
                r.key: r.number
                for r in connection.execute(query.where(sa.true() if where is None else where))
            }

    def _tidy(self, keys: set[int]) -> None:
        with self._guarded(TIDY_SECONDS):
            self._rewrite(sorted(keys))

    def _tidied(self, keys: Sequence[int]) -> None:
        with self._writing() as connection:
            forget_untidied(connection, keys)

    def _tidy_left_over(self) -> None:
        """Try again when the store is opened: whoever was reading the database may be gone by then."""
        left_over = self._untidied()
        try:
            if left_over:
                self._tidy(set(left_over))
        except (StoreAway, StoreFull) as error:
            log.warning(
                "%d closed rounds may still show the order of arrival: %s", len(left_over), error
            )

    def check(self) -> None:
        with self._guarded(ANSWER_SECONDS):
            self._look()

    def _insert_round(self, connection: Connection, added: StoredRound) -> None:
        values = {**vars(added), "plan": json.dumps(added.plan), "held": int(added.held)}
        made = connection.execute(sa.insert(rounds).values(values))
        assert made.inserted_primary_key is not None
        self._round_made(connection, made.inserted_primary_key[0])

    def round_key(self, campaign: str, number: int) -> int:
        """What a round is called in the tables; an error if there is none."""
        query = sa.select(rounds.c.key).where(
            rounds.c.campaign == campaign, rounds.c.number == number
        )
        with self._read(ANSWER_SECONDS) as connection:
            found = connection.scalar(query)
        if found is None:
            raise InputError(
                f"campaign {campaign} has no round {number}", where="round", value=number
            )
        return found


def until_unread(unread: Callable[[], bool]) -> None:
    """Wait for a moment in which nobody else can see the reports as they came; `StoreUntidy` if there is none."""
    deadline = time.monotonic() + READER_SECONDS
    while not unread():
        if time.monotonic() > deadline:
            raise StoreUntidy(
                "somebody else reads the database and may still see the reports as they came"
            )
        time.sleep(0.02)


def store_failure(cause: BaseException | None, code: str, statement: str | None) -> StoreFailure:
    """What may be said about a failed statement: its kind and its first words. Drivers' messages repeat stored values."""
    words = " ".join((statement or "a statement").split()[:3])
    return StoreFailure(f"the database refused {words}: {type(cause).__name__} ({code})")
