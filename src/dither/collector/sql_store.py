"""A store on an SQL database through SQLAlchemy Core: what SQLite and PostgreSQL share.

`layout.py` has the tables.
"""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from dither.collector import limits
from dither.collector.audit import AuditLog, note
from dither.collector.drafts import DraftTable
from dither.collector.keys import KeyTable, SessionTable
from dither.collector.layout import (
    EPOCH,
    FINALISED,
    REPORTS_DELETED,
    UNTIDIED,
    begin_epoch,
    bring_up_to_date,
    campaigns,
    clear_untidied,
    facts,
    mark_untidied,
    publications,
    reports,
    rounds,
    running,
    tokens,
)
from dither.collector.publications import PublicationTable
from dither.collector.store import (
    Batch,
    Deletion,
    InTurn,
    Move,
    Outcome,
    PlanOf,
    Position,
    Row,
    RunningTally,
    State,
    StoreBusy,
    StoredCampaign,
    StoredRound,
    StoreFailure,
    StoreFull,
    StoreUnavailable,
    StoreUntidy,
)
from dither.collector.tallies import LocalTallies, RebuiltTallies
from dither.errors import InputError, StateError
from dither.tally.counting import add_digests, digest_of

_TRIES = 3  # of a transaction that the database rolled back in favour of another
log = logging.getLogger("dither.collector")

_ROUND = (
    "SELECT rounds.key, state, epoch FROM rounds{lock} "
    "WHERE campaign = :campaign AND number = :number {suffix}"
)
_IDS_PER_QUERY = 500
_IDS: sa.BindParameter[bytes] = sa.bindparam("ids", expanding=True)
_ISSUED_TOKENS = sa.select(tokens.c.hash).where(
    tokens.c.campaign == sa.bindparam("campaign"), tokens.c.hash.in_(_IDS)
)


class SqlStore(ABC):
    """A `Store` on an SQL database; a subclass adds what depends on the database.

    Attributes:
        shared: Other collectors may use the store at the same time.
        _driver_error: What the driver raises where SQLAlchemy does not translate it.
        _keep_state: SQL added to the query of a round's state, after the table's name and at
            the end, so that the state cannot change while reports are added.
        _await_adding: The same to wait for every transaction that holds the state so.
        _one_snapshot: Options of a connection whose statements all see the same state.
    """

    shared = False
    _driver_error: type[Exception]
    _keep_state = ("", "")
    _await_adding = ("", "")
    _one_snapshot: Mapping[str, Any] = {}

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Keys of a campaign's rounds before a round; they never change once it is open.
        self._earlier: dict[tuple[str, int], tuple[int, ...]] = {}
        self.keys = KeyTable(self._write, self._read)
        self.sessions = SessionTable(self._write, self._read)
        self.audit = AuditLog(self._write, self._read)
        self.publications = PublicationTable(self._write, self._read)
        self.drafts = DraftTable(self._write, self._read)
        self._round_to_add = _round_query(*self._keep_state)
        self._round_locked = _round_query(*self._await_adding)
        with self._write(limits.LAYOUT_SECONDS) as connection:
            self._lock_layout(connection)
            bring_up_to_date(connection, partial(self._others_running, connection))
        self._tidy_left_over()

    # --- what depends on the database -----------------------------------------------------

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Connection]:
        """Open a transaction that is on disk when it has ended."""

    @abstractmethod
    def _insert_new(self, connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
        """Insert the rows whose ids are not stored yet, in the given order; return those ids."""

    @abstractmethod
    def _rewrite(self, keys: Sequence[int]) -> None:
        """Rewrite the closed rounds of these keys, then call `_tidied`."""

    @abstractmethod
    def _translated(self, cause: BaseException | None, statement: str | None) -> Exception:
        """Translate a driver's error into one of the store's, without stored values."""

    @abstractmethod
    def now(self) -> float:
        """Return the database's time in seconds since 1970."""

    @abstractmethod
    def _check_writable(self) -> None:
        """Raise unless reports could be stored now."""

    @abstractmethod
    def close(self) -> None:
        """Close the store at once; operations in other threads fail."""

    def running_tally(self, plan_of: PlanOf, in_turn: InTurn) -> RunningTally:
        """Count in memory if this process alone writes; otherwise rebuild at every read."""
        return RebuiltTallies(self) if self.shared else LocalTallies(self, in_turn)

    def _table(self, key: int) -> str:
        """Return the table that holds the reports of a round."""
        return reports.name

    def _lock_layout(self, connection: Connection) -> None:  # noqa: B027
        """Keep others from creating or changing tables until the transaction ends."""

    def _others_running(self, connection: Connection) -> bool:
        """Return whether other collectors use the database."""
        return False

    def _round_created(self, connection: Connection, key: int) -> None:  # noqa: B027
        """Prepare storage for the reports of a new round."""

    def _drop_reports(self, connection: Connection, key: int) -> None:
        """Remove the reports of a round that is deleted."""
        connection.execute(sa.delete(reports).where(reports.c.round_key == key))

    def _empty_reports(self, connection: Connection, key: int) -> None:
        """Remove the reports of a round that stays."""
        connection.execute(sa.delete(reports).where(reports.c.round_key == key))

    def _announce(self, connection: Connection, campaign: str) -> None:  # noqa: B027
        """Notify other collectors, at the commit, that a campaign was created or moved."""

    def _adding(self, connection: Connection, batch: Batch, key: int, epoch: int) -> None:  # noqa: B027
        """Record that this process adds to a round in this epoch, in this transaction."""

    def _count_change(self, connection: Connection, key: int, change: Mapping[int, int]) -> None:  # noqa: B027
        """Add to the kept counts of a round's reports by question, in this transaction."""

    def _deleting(self, connection: Connection, key: int, epoch: int) -> None:  # noqa: B027
        """Record that running tallies of this epoch count a report that is deleted."""

    def await_change(self, seconds: float) -> None:
        time.sleep(seconds)

    def turn(self, campaign: str) -> AbstractContextManager[None]:
        return nullcontext()

    def _within(self, seconds: float) -> AbstractContextManager[None]:
        """Limit the waits inside to `seconds`, where the connections do not do so themselves."""
        return nullcontext()

    # --- transactions ---------------------------------------------------------------------

    @contextmanager
    def _guarded(self, seconds: float) -> Iterator[None]:
        """Limit the waits inside and translate the driver's errors."""
        try:
            with self._within(seconds):
                yield
        except sa.exc.TimeoutError:
            raise StoreUnavailable(
                "the database is unavailable: all connections to it are in use"
            ) from None
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

    # --- campaigns and rounds -------------------------------------------------------------

    def create_campaign(self, campaign: StoredCampaign, first: StoredRound) -> None:
        values = {
            **vars(campaign),
            "spec": json.dumps(campaign.spec),
            "state": campaign.state.value,
        }
        with self._write(limits.WORK_SECONDS) as connection:
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
        query = sa.select(c.id, c.spec, c.state, c.round, c.machine, c.moves)
        with self._read(limits.ANSWER_SECONDS) as connection:
            selected = connection.execute(query.where(where).order_by(c.id)).all()
        return [
            StoredCampaign(r.id, json.loads(r.spec), State(r.state), r.round, r.machine, r.moves)
            for r in selected
        ]

    def positions(self) -> dict[str, Position]:
        c = campaigns.c
        with self._read(limits.ANSWER_SECONDS) as connection:
            selected = connection.execute(sa.select(c.id, c.state, c.round, c.moves)).all()
        return {r.id: Position(State(r.state), r.round, r.moves) for r in selected}

    def rounds(self, campaign: str) -> list[StoredRound]:
        c = rounds.c
        query = sa.select(c.number, c.state, c.start, c.plan, c.tally, c.closes, c.held)
        query = query.where(c.campaign == campaign).order_by(c.number)
        with self._read(limits.WORK_SECONDS) as connection:
            selected = connection.execute(query).all()
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
            for r in selected
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
        if move.machine is not None:
            changes["machine"] = move.machine
        if move.release is not None:
            changes["release"] = move.release
        with self._write(limits.WORK_SECONDS) as connection:
            update = sa.update(campaigns).where(*expected).values(changes)
            if connection.execute(update).rowcount != 1:
                return False
            if move.round_state is not None:
                self._move_round(connection, move)
            if move.opened is not None:
                self._insert_round(connection, move.opened)
            if move.finalised is not None:
                name = f"{FINALISED}{move.campaign}"
                connection.execute(sa.insert(facts).values(name=name, value=move.finalised))
            note(connection, move.to_state.value, move.campaign, move.description)
            self._announce(connection, move.campaign)
            return True

    def _move_round(self, connection: Connection, move: Move) -> None:
        # On PostgreSQL this waits for uploads that hold the round, and later ones wait for it.
        connection.execute(
            self._round_locked, {"campaign": move.campaign, "number": move.from_round}
        )
        values: dict[str, object] = {
            "state": move.round_state,
            "tally": move.tally,
            "held": int(move.held),
        }
        if move.closes is not None or move.open_ended:
            values["closes"] = move.closes
        of_round = (rounds.c.campaign == move.campaign, rounds.c.number == move.from_round)
        connection.execute(sa.update(rounds).where(*of_round).values(values))
        mark_untidied(connection, move)

    def delete(self, campaign: str, moves: int) -> bool:
        with self._write(limits.WORK_SECONDS) as connection:
            if not self._delete(connection, campaign, moves):
                return False
            self._announce(connection, campaign)
        self._tidy(set(self._untidied()))
        return True

    def _delete(self, connection: Connection, campaign: str, moves: int) -> bool:
        """Delete a campaign if it was not moved since; the audit log keeps that it existed."""
        c = campaigns.c
        unmoved = sa.select(c.state).where(c.id == campaign, c.moves == moves)
        state = connection.scalar(unmoved.with_for_update())
        if state is None:
            return False
        query = sa.select(rounds.c.key).where(rounds.c.campaign == campaign)
        keys = list(connection.scalars(query))
        for key in keys:
            self._drop_reports(connection, key)
        clear_untidied(connection, keys)
        of_campaign = [f"{FINALISED}{campaign}", f"{REPORTS_DELETED}{campaign}"]
        connection.execute(sa.delete(facts).where(facts.c.name.in_(of_campaign)))
        connection.execute(sa.delete(running).where(running.c.round_key.in_(keys)))
        for table in (publications, rounds, tokens):
            connection.execute(sa.delete(table).where(table.c.campaign == campaign))
        connection.execute(sa.delete(campaigns).where(c.id == campaign))
        note(connection, "delete", campaign, f"it was {state}")
        return True

    def delete_reports(self, campaign: str, finalised_by: str, today: str) -> bool:
        with self._write(limits.WORK_SECONDS) as connection:
            c = campaigns.c
            finalised = sa.select(c.id).where(c.id == campaign, c.state == State.FINALISED.value)
            if connection.scalar(finalised.with_for_update()) is None:
                return False
            if _fact(connection, f"{REPORTS_DELETED}{campaign}") is not None:
                return True
            day = _fact(connection, f"{FINALISED}{campaign}")
            if day is None:  # finalised by an earlier version: its days begin today
                name = f"{FINALISED}{campaign}"
                connection.execute(sa.insert(facts).values(name=name, value=today))
                day = today
            if day > finalised_by:
                return False
            query = sa.select(rounds.c.key).where(rounds.c.campaign == campaign)
            keys = list(connection.scalars(query))
            marks = [f"{UNTIDIED}{key}" for key in keys]
            connection.execute(sa.delete(facts).where(facts.c.name.in_(marks)))
            for key, mark in zip(keys, marks, strict=True):
                self._empty_reports(connection, key)
                connection.execute(
                    sa.insert(facts).values(name=mark, value="its files may hold deleted reports")
                )
            connection.execute(sa.delete(tokens).where(tokens.c.campaign == campaign))
            name = f"{REPORTS_DELETED}{campaign}"
            connection.execute(sa.insert(facts).values(name=name, value=today))
            note(connection, "delete-reports", campaign, f"finalised on {day}")
        self._tidy(set(keys))
        return True

    def release(self, campaign: str) -> bytes | None:
        query = sa.select(campaigns.c.release).where(campaigns.c.id == campaign)
        with self._read(limits.WORK_SECONDS) as connection:
            release: bytes | None = connection.scalar(query)
        return release

    def add_tokens(self, campaign: str, hashes: Sequence[bytes]) -> None:
        exists = sa.select(campaigns.c.id).where(campaigns.c.id == campaign)
        with self._write(limits.WORK_SECONDS) as connection:
            if connection.scalar(exists.with_for_update(read=True)) is None:
                raise StateError(f"campaign {campaign} was deleted; its tokens are useless")
            # Sorted, so that the order of rows does not show the order of issue.
            connection.execute(
                sa.insert(tokens), [{"campaign": campaign, "hash": h} for h in sorted(hashes)]
            )

    # --- reports --------------------------------------------------------------------------

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
        with self._write(limits.ANSWER_SECONDS) as connection:
            for (campaign, number), members in sorted(by_round.items()):
                round_ = connection.execute(
                    self._round_to_add, {"campaign": campaign, "number": number}
                ).one_or_none()
                if round_ is not None and round_.state == "open":
                    first = next(iter(members.values()))
                    self._adding(connection, first, round_.key, round_.epoch)
                    self._add_to_round(connection, round_.key, members, outcomes)
                    continue
                for i, batch in members.items():
                    outcomes[i] = self._refused(connection, round_, batch)
        return outcomes

    def _refused(
        self, connection: Connection, round_: sa.Row[Any] | None, batch: Batch
    ) -> list[Outcome]:
        """Return the outcomes of reports to a round that is not open."""
        if round_ is not None and round_.state == "closed":
            ids = list({row.report_id for row in batch.rows})
            stored = _stored_rows(connection, self._table(round_.key), round_.key, ids)
            return [_outcome_when_closed(row, stored.get(row.report_id)) for row in batch.rows]
        closing = round_ is not None and round_.state == "closing"
        outcome = Outcome.ROUND_CLOSING if closing else Outcome.ROUND_CLOSED
        return [outcome] * len(batch.rows)

    def _add_to_round(
        self,
        connection: Connection,
        key: int,
        members: Mapping[int, Batch],
        outcomes: list[list[Outcome]],
    ) -> None:
        """Store the new rows of one round and set the outcomes of all others."""
        issued = _issued_tokens(connection, members.values())
        answered = self._answered(connection, members.values())
        first: dict[bytes, Row] = {}
        places: dict[bytes, tuple[int, int]] = {}
        # Rows whose id occurs earlier in this group, or is in the store.
        repeats: list[tuple[int, int, Row]] = []
        for i, batch in members.items():
            for j, row in enumerate(batch.rows):
                if batch.token_hashes is not None and batch.token_hashes[j] not in issued:
                    outcomes[i][j] = Outcome.UNKNOWN_TOKEN
                elif row.report_id in answered:
                    outcomes[i][j] = Outcome.ANSWERED
                elif row.report_id in first:
                    repeats.append((i, j, row))
                else:
                    first[row.report_id] = row
                    places[row.report_id] = (i, j)
        if not first:
            return
        inserted = self._insert_new(connection, key, sorted(first.values()))
        self._count_change(connection, key, Counter(first[each].question for each in inserted))
        older = [report_id for report_id in first if report_id not in inserted]
        repeats += [(*places[report_id], first[report_id]) for report_id in older]
        stored = {report_id: first[report_id] for report_id in inserted}
        stored |= _stored_rows(connection, self._table(key), key, older)
        for i, j, row in repeats:
            same = stored[row.report_id] == row
            outcomes[i][j] = Outcome.DUPLICATE if same else Outcome.CONFLICT

    def _answered(self, connection: Connection, batches: Iterable[Batch]) -> set[bytes]:
        """Return the ids that an earlier round holds, where each participant reports once.

        Earlier rounds do not change: closing one waited for its uploads before the next
        round opened.
        """
        once = [batch for batch in batches if batch.once]
        if not once:
            return set()
        round_ = (once[0].campaign, once[0].round)
        if round_ not in self._earlier:
            self._earlier[round_] = _earlier_keys(connection, *round_)
        ids = list({row.report_id for batch in once for row in batch.rows})
        answered: set[bytes] = set()
        for key in self._earlier[round_]:
            answered |= _stored_rows(connection, self._table(key), key, ids).keys()
        return answered

    def reports(
        self, campaign: str, number: int, block: int = 1 << 16, after: bytes = b""
    ) -> Iterator[list[Row]]:
        key = self.round_key(campaign, number)
        query = _page_query(self._table(key))
        while True:
            # One query per page: no transaction stays open while the caller uses a page.
            with self._read(limits.WORK_SECONDS) as connection:
                selected = connection.execute(query, {"key": key, "after": after, "block": block})
                page = [Row._make(r) for r in selected]
            if page:
                yield page
                after = page[-1].report_id
            if len(page) < block:
                return

    def stored_among(self, campaign: str, ids: Sequence[bytes]) -> set[bytes]:
        c = reports.c
        with self._read(limits.ANSWER_SECONDS) as connection:
            of_campaign = sa.select(rounds.c.key).where(rounds.c.campaign == campaign)
            keys = list(connection.scalars(of_campaign))
            # The table of all rounds: one round's own table may be deleted at any moment.
            query = sa.select(c.report_id).where(c.round_key.in_(keys), c.report_id.in_(_IDS))
            return {row.report_id for row in _select_ids(connection, query, ids)}

    def delete_report(self, campaign: str, report_id: bytes) -> tuple[Deletion, int]:
        c = reports.c
        of_campaign = sa.select(rounds.c.key, rounds.c.number).where(rounds.c.campaign == campaign)
        with self._write(limits.ANSWER_SECONDS) as connection:
            numbers = {r.key: r.number for r in connection.execute(of_campaign)}
            stored = sa.select(c.round_key, c.question).where(
                c.round_key.in_(numbers), c.report_id == report_id
            )
            found = connection.execute(stored).one_or_none()
            if found is None:
                return Deletion.ABSENT, -1
            key = found.round_key
            at = {"campaign": campaign, "number": numbers[key]}
            round_ = connection.execute(self._round_to_add, at).one()
            if round_.state != "open":
                closing = round_.state == "closing"
                return Deletion.ROUND_CLOSING if closing else Deletion.ROUND_CLOSED, numbers[key]
            self._deleting(connection, key, round_.epoch)
            row = (c.round_key == key, c.report_id == report_id)
            if connection.execute(sa.delete(reports).where(*row)).rowcount != 1:
                return Deletion.ABSENT, numbers[key]  # another collector was faster
            self._count_change(connection, key, {found.question: -1})
            return Deletion.DELETED, numbers[key]

    def epoch(self) -> str:
        with self._read(limits.ANSWER_SECONDS) as connection:
            return _fact(connection, EPOCH) or ""

    def begin_epoch(self) -> None:
        with self._write(limits.WORK_SECONDS) as connection:
            begin_epoch(connection)
            note(connection, "restored", detail="marked as restored outside Dither")

    def count(self, campaign: str, number: int) -> int:
        key = self.round_key(campaign, number)
        query = sa.text(f"SELECT count(*) FROM {self._table(key)} WHERE round_key = :key")
        with self._read(limits.WORK_SECONDS) as connection:
            return connection.scalar(query, {"key": key}) or 0

    def answers(self, campaign: str, number: int, in_turn: InTurn | None = None) -> dict[int, int]:
        key = self.round_key(campaign, number)
        query = sa.text(
            f"SELECT question, count(*) FROM {self._table(key)} "
            "WHERE round_key = :key GROUP BY question"
        )
        with self._read(limits.WORK_SECONDS) as plain:
            connection = plain.execution_options(**self._one_snapshot)
            if in_turn is not None:
                # The first statement fixes what the transaction sees.
                in_turn(lambda: connection.execute(sa.select(facts.c.name).limit(1)).all())
            counts = connection.execute(query, {"key": key})
            return {int(question): int(count) for question, count in counts}

    def digest(self, campaign: str, number: int) -> tuple[int, int]:
        count, digest = 0, 0
        for page in self.reports(campaign, number):
            count += len(page)
            digest = add_digests(digest, digest_of(page))
        return count, digest

    def settle(self, campaign: str, number: int) -> None:
        with self._write(limits.ANSWER_SECONDS) as connection:
            connection.execute(self._round_locked, {"campaign": campaign, "number": number})

    # --- tidying --------------------------------------------------------------------------

    def tidy(self, campaign: str, number: int) -> None:
        self._tidy({self.round_key(campaign, number), *self._untidied()})

    def untidied(self, campaign: str) -> set[int]:
        return set(self._untidied(rounds.c.campaign == campaign).values())

    def _untidied(self, where: sa.ColumnElement[bool] | None = None) -> dict[int, int]:
        """Return the keys and numbers of closed rounds that are not tidied yet."""
        marked = facts.c.name == sa.literal(UNTIDIED) + sa.cast(rounds.c.key, sa.Text)
        query = sa.select(rounds.c.key, rounds.c.number).join(facts, marked)
        with self._read(limits.ANSWER_SECONDS) as connection:
            selected = connection.execute(query.where(sa.true() if where is None else where))
            return {r.key: r.number for r in selected}

    def _tidy(self, keys: set[int]) -> None:
        with self._guarded(limits.TIDY_SECONDS):
            self._rewrite(sorted(keys))

    def _tidied(self, keys: Sequence[int]) -> None:
        with self._writing() as connection:
            clear_untidied(connection, keys)

    def _tidy_left_over(self) -> None:
        """Try again when the store is opened: sessions that were reading may have ended."""
        left_over = self._untidied()
        try:
            if left_over:
                self._tidy(set(left_over))
        except (StoreUnavailable, StoreFull) as error:
            log.warning(
                "%d closed rounds may still show the order of arrival: %s", len(left_over), error
            )

    def check(self) -> None:
        with self._guarded(limits.ANSWER_SECONDS):
            self._check_writable()

    def _insert_round(self, connection: Connection, added: StoredRound) -> None:
        values = {**vars(added), "plan": json.dumps(added.plan), "held": int(added.held)}
        inserted = connection.execute(sa.insert(rounds).values(values))
        assert inserted.inserted_primary_key is not None
        self._round_created(connection, inserted.inserted_primary_key[0])

    def round_key(self, campaign: str, number: int) -> int:
        """Return the key of a round in the tables.

        Raises:
            InputError: The round does not exist.
        """
        c = rounds.c
        query = sa.select(c.key).where(c.campaign == campaign, c.number == number)
        with self._read(limits.ANSWER_SECONDS) as connection:
            key: int | None = connection.scalar(query)
        if key is None:
            raise InputError(
                f"campaign {campaign} has no round {number}", where="round", value=number
            )
        return key


def _fact(connection: Connection, name: str) -> str | None:
    value: str | None = connection.scalar(sa.select(facts.c.value).where(facts.c.name == name))
    return value


def until_unread(unread: Callable[[], bool]) -> None:
    """Wait until no other session can see the reports in the order of arrival.

    Raises:
        StoreUntidy: Another session kept reading for `READER_SECONDS`.
    """
    deadline = time.monotonic() + limits.READER_SECONDS
    while not unread():
        if time.monotonic() > deadline:
            raise StoreUntidy(
                "another session reads the database and may still see the order of arrival"
            )
        time.sleep(0.02)


def store_failure(cause: BaseException | None, code: str, statement: str | None) -> StoreFailure:
    """Describe a failed statement by its kind and first words: drivers repeat stored values."""
    words = " ".join((statement or "a statement").split()[:3])
    return StoreFailure(f"the database refused {words}: {type(cause).__name__} ({code})")


def _round_query(lock: str, suffix: str) -> sa.TextClause:
    return sa.text(_ROUND.format(lock=lock, suffix=suffix))


@cache
def _page_query(table: str) -> sa.TextClause:
    return sa.text(
        f"SELECT report_id, question, payload FROM {table} "
        "WHERE round_key = :key AND report_id > :after ORDER BY report_id LIMIT :block"
    )


@cache
def _rows_query(table: str) -> sa.TextClause:
    query = (
        f"SELECT report_id, question, payload FROM {table} "
        "WHERE round_key = :key AND report_id IN :ids"
    )
    return sa.text(query).bindparams(_IDS)


def _stored_rows(
    connection: Connection, table: str, key: int, ids: Sequence[bytes]
) -> dict[bytes, Row]:
    """Return the stored reports of a round that have one of these ids."""
    selected = _select_ids(connection, _rows_query(table), ids, key=key)
    return {r.report_id: Row._make(r) for r in selected}


def _outcome_when_closed(row: Row, stored: Row | None) -> Outcome:
    """Return the outcome of a report to a closed round, given the stored one of its id."""
    if stored is None:
        return Outcome.ROUND_CLOSED
    return Outcome.DUPLICATE if stored == row else Outcome.CONFLICT


def _earlier_keys(connection: Connection, campaign: str, number: int) -> tuple[int, ...]:
    query = sa.select(rounds.c.key).where(rounds.c.campaign == campaign, rounds.c.number < number)
    return tuple(connection.scalars(query.order_by(rounds.c.number)))


def _issued_tokens(connection: Connection, batches: Iterable[Batch]) -> set[bytes]:
    """Return the token hashes of some batches of one campaign that were issued."""
    with_tokens = [batch for batch in batches if batch.token_hashes is not None]
    hashes = list({h for batch in with_tokens for h in batch.token_hashes or ()})
    if not hashes:
        return set()
    campaign = with_tokens[0].campaign
    return {r.hash for r in _select_ids(connection, _ISSUED_TOKENS, hashes, campaign=campaign)}


def _select_ids(
    connection: Connection,
    query: sa.Select[Any] | sa.TextClause,
    ids: Sequence[bytes],
    **parameters: str | int,
) -> Iterator[sa.Row[Any]]:
    """Run a query over ids, as many at a time as a database takes."""
    for start in range(0, len(ids), _IDS_PER_QUERY):
        some = ids[start : start + _IDS_PER_QUERY]
        yield from connection.execute(query, {"ids": some, **parameters})
