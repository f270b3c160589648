"""Check, back up and restore a store, also while collectors use it.

A backup of either database is an SQLite file in the layout of a store, so each can be
restored to the other and a backup can be checked like a store. It is read in one
transaction and holds what was committed when it began. Rows are in the order of their keys:
a backup does not show the order of arrival. It has no browser sessions and no running
tallies, which are counted again.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector import layout
from dither.collector.audit import note
from dither.collector.postgres import PostgresStore, copy_rows, read_address
from dither.collector.spec import CampaignSpec
from dither.collector.sqlite import RUNNING, forget_running, is_plain_copy
from dither.collector.store import Row, State, StoreUnavailable
from dither.collector.tallies import rebuild
from dither.errors import DitherError, InputError
from dither.methods import restore as restore_method
from dither.private_files import make_private
from dither.reports import plan_from_json

_BLOCK = 10_000  # rows copied at a time
# Sessions and failed sign-ins are short-lived; running tallies belong to processes.
_NOT_COPIED = (layout.sessions, layout.sign_ins, layout.running)
_ROUND_STATES = {
    State.DRAFT: "draft",
    State.OPEN: "open",
    State.CLOSING: "closing",
    State.COLLECTED: "closed",
    State.FINALISED: "closed",
}


@dataclass
class StoreContents:
    """What a store holds.

    Attributes:
        layout: Its layout.
        campaigns: Number of campaigns.
        reports: Number of reports of all rounds.
        problems: What is wrong, one line each; filled by `check_store` only.
    """

    layout: int
    campaigns: int
    reports: int
    problems: list[str] = field(default_factory=list)


def check_store(address: str) -> StoreContents:
    """Check that a store is complete and consistent.

    Every campaign must be readable, its rounds must fit its state, and the tally of each
    closed round must equal its stored reports.

    Args:
        address: A file or a postgresql:// address.

    Raises:
        InputError: There is no store, or it has another layout.
    """
    with _snapshot(address) as connection:
        contents = _contents(connection)
        if connection.dialect.name == "sqlite":
            contents.problems += _damage(connection)
        if not contents.problems:
            for campaign in connection.execute(sa.select(layout.campaigns)).all():
                contents.problems += _problems_of(connection, campaign)
    return contents


def back_up(address: str, target: Path) -> StoreContents:
    """Write a backup of a store to a new file that only its owner can read.

    Args:
        address: A file or a postgresql:// address.
        target: The backup; it must not exist.

    Raises:
        InputError: There is no store, it is a plain copy, or `target` exists.
    """
    if not _is_postgres(address) and is_plain_copy(Path(address)):
        raise InputError(_plain_copy(address), where=address)
    return _write_file(address, target)


def restore_store(backup: Path, address: str, plain_copy: bool = False) -> StoreContents:
    """Make a store from a backup.

    Args:
        backup: The backup.
        address: A file that does not exist, or a postgresql:// address of an empty database.
        plain_copy: Accept a plain copy of the file of a running collector. Reports that were
            only in its write-ahead log are lost.

    Raises:
        InputError: The backup cannot be read, or the target holds a store already.
    """
    if not plain_copy and is_plain_copy(backup):
        raise InputError(_plain_copy(str(backup)), where=str(backup))
    if not _is_postgres(address):
        return _write_file(str(backup), Path(address))
    PostgresStore(address).close()  # creates the tables
    with _snapshot(str(backup)) as source, _postgres_engine(address).begin() as target:
        target.exec_driver_sql("LOCK TABLE campaigns IN ACCESS EXCLUSIVE MODE")
        if target.scalar(sa.select(sa.func.count()).select_from(layout.campaigns)):
            raise InputError("the database holds campaigns already; name an empty one")
        contents = _contents(source)
        target.execute(sa.delete(layout.keys))
        _copy_tables(source, target)
        layout.begin_epoch(target)
        note(target, "restore", detail=f"{contents.reports:,} reports from a backup")
    return contents


def _write_file(address: str, target: Path) -> StoreContents:
    """Write a store to a new SQLite file under another name, then rename it."""
    target = Path(os.path.realpath(target))
    if target.exists():
        raise InputError(f"{target} exists; name a new file", where=str(target))
    if not target.parent.is_dir():
        raise InputError(f"the folder of {target} does not exist", where=str(target))
    new = target.with_name(f"{target.name}.{secrets.token_hex(4)}.new")
    make_private(new)
    try:
        if _is_postgres(address):
            _copy_to_file(address, new)
        else:
            with _snapshot(address) as connection:
                _contents(connection)  # refuses what is not a store
            _vacuum_into(Path(address), new)
        with _snapshot(str(new)) as written:
            contents = _contents(written)
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        os.link(new, target)  # fails if the target was created meanwhile
        with open_folder(target.parent) as folder:
            os.fsync(folder)
    except FileExistsError:
        raise InputError(f"{target} exists; name a new file", where=str(target)) from None
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        raise _failure(error, address) from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                os.unlink(f"{new}{suffix}")
    return contents


@contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """Open a folder, to sync it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _vacuum_into(source: Path, new: Path) -> None:
    """Copy an SQLite store; a running collector goes on writing meanwhile."""
    driver = _open_file(source)
    try:
        driver.execute("VACUUM INTO ?", (str(new),))
    finally:
        driver.close()
    copy = sqlite3.connect(new)
    try:
        forget_running(copy)
        for table in _NOT_COPIED:
            copy.execute(f"DELETE FROM {table.name}")
        copy.execute(
            "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)",
            (layout.EPOCH, secrets.token_hex(8)),
        )
        copy.commit()
    finally:
        copy.close()


def _copy_to_file(address: str, new: Path) -> None:
    """Copy a store on PostgreSQL to an SQLite file."""
    engine = sa.create_engine(f"sqlite:///{new}", hide_parameters=True)
    try:
        with _snapshot(address) as source, engine.begin() as target:
            _contents(source)
            layout.bring_up_to_date(target)
            _copy_tables(source, target)
            layout.begin_epoch(target)
    finally:
        engine.dispose()


def _copy_tables(source: Connection, target: Connection) -> None:
    """Copy all rows, in the order of their keys, to empty tables."""
    # Reports come last: on PostgreSQL each round has a partition for them.
    in_order = sorted(layout.tables.sorted_tables, key=lambda table: table is layout.reports)
    for table in in_order:
        if table in _NOT_COPIED:
            continue
        query = sa.select(table).order_by(*table.primary_key.columns)
        if table is layout.facts:
            query = query.where(table.c.name.not_in(["version", RUNNING]))
        streamed = source.execution_options(stream_results=True, max_row_buffer=_BLOCK)
        for rows in streamed.execute(query).mappings().partitions(_BLOCK):
            values = [dict(row) for row in rows]
            if table is layout.rounds:
                values = [row | {"epoch": 0} for row in values]  # see tallies.py
            if table is layout.reports and target.dialect.name == "postgresql":
                copy_rows(target, values)
                continue
            target.execute(sa.insert(table), values)
        if table is layout.rounds and target.dialect.name == "postgresql":
            for key in target.scalars(sa.select(table.c.key).order_by(table.c.key)).all():
                layout.add_partition(target, key)
    if target.dialect.name == "postgresql":
        for name, column in (("rounds", "key"), ("audit", "number")):
            target.exec_driver_sql(
                f"SELECT setval(pg_get_serial_sequence('{name}', '{column}'), "
                f"(SELECT coalesce(max({column}), 0) + 1 FROM {name}), false)"
            )


# --- reading -------------------------------------------------------------------------------


def _is_postgres(address: str) -> bool:
    return address.startswith(("postgresql:", "postgres:"))


def _postgres_engine(address: str) -> sa.Engine:
    return sa.create_engine(
        read_address(address), poolclass=sa.NullPool, hide_parameters=True
    ).execution_options(isolation_level="REPEATABLE READ")


def _open_file(path: Path) -> sqlite3.Connection:
    """Open an existing SQLite file, also one that a collector uses."""
    try:
        with open(path, "rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise InputError(f"{path} is not an SQLite file", where=str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", where=str(path)) from None
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=5.0, isolation_level=None
    )


@contextmanager
def _snapshot(address: str) -> Iterator[Connection]:
    """Open a transaction that sees one state of a store; driver errors become clear ones."""
    if _is_postgres(address):
        engine = _postgres_engine(address)
    else:
        path = Path(os.path.realpath(address))
        engine = sa.create_engine(
            "sqlite://", creator=lambda: _open_file(path), hide_parameters=True
        )
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    try:
        with engine.connect() as connection, connection.begin() as transaction:
            if _is_postgres(address):
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            yield connection
            transaction.rollback()
    except sa.exc.SQLAlchemyError as error:
        raise _failure(error, address) from None
    finally:
        engine.dispose()


def _failure(error: Exception, address: str) -> DitherError:
    """Describe a failure of the database by its kind: an address may hold a password."""
    cause = getattr(error, "orig", None) or error
    if _is_postgres(address):
        return StoreUnavailable(f"the database failed: {type(cause).__name__}")
    if getattr(cause, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CORRUPT,
    ):
        return InputError(f"{address} is damaged: {cause}", where=address)
    return StoreUnavailable(f"{address}: {cause}")


def _contents(connection: Connection) -> StoreContents:
    """Count what a store holds.

    Raises:
        InputError: It is no store, or has another layout.
    """
    version = None
    if sa.inspect(connection).has_table(layout.facts.name):
        named = layout.facts.c.name == "version"
        version = connection.scalar(sa.select(layout.facts.c.value).where(named))
    if version != str(layout.VERSION):
        found = "no store is there" if version is None else f"the store has layout {version}"
        raise InputError(
            f"{found}; this version of Dither works on layout {layout.VERSION}", value=version
        )
    campaigns, reports = (
        connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
        for table in (layout.campaigns, layout.reports)
    )
    return StoreContents(layout.VERSION, campaigns, reports)


def _plain_copy(address: str) -> str:
    return (
        f"{address} is a plain copy of the file of a running collector, which lacks the latest "
        "reports; use 'dither store backup', or 'dither store restore --plain-copy' to accept it"
    )


# --- checking ------------------------------------------------------------------------------


def _damage(connection: Connection) -> list[str]:
    lines = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check(10)")]
    damage = [f"the file is damaged: {line}" for line in lines if line != "ok"]
    orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    return damage + [f"table {row[0]} refers to a row that {row[2]} lacks" for row in orphans[:10]]


def _problems_of(connection: Connection, campaign: sa.Row[Any]) -> list[str]:
    c = layout.rounds.c
    query = sa.select(layout.rounds).where(c.campaign == campaign.id).order_by(c.number)
    rounds = connection.execute(query).all()
    name = f"campaign {campaign.id}"
    if [round_.number for round_ in rounds] != list(range(campaign.round + 1)):
        return [f"{name} is in round {campaign.round} and has {len(rounds)} rounds"]
    expected = ["closed"] * campaign.round + [_ROUND_STATES[State(campaign.state)]]
    problems = [
        f"round {round_.number} of {name} is {round_.state}, not {state}"
        for round_, state in zip(rounds, expected, strict=True)
        if round_.state != state
    ]
    try:
        spec = json.loads(campaign.spec)
        CampaignSpec.from_json({key: value for key, value in spec.items() if key != "created"})
        restore_method(campaign.machine)
    except (DitherError, ValueError) as error:
        problems.append(f"{name} cannot be read: {error}")
    problems += _release_problems(campaign, name)
    for round_ in rounds:
        problems += _round_problems(connection, round_, f"round {round_.number} of {name}")
    return problems


def _release_problems(campaign: sa.Row[Any], name: str) -> list[str]:
    if campaign.state != State.FINALISED.value:
        return []
    if campaign.release is None:
        return [f"{name} is finalised and has no release"]
    try:
        with zipfile.ZipFile(io.BytesIO(campaign.release)) as release:
            damaged = release.testzip()
    except zipfile.BadZipFile:
        damaged = "the archive"
    return [f"the release of {name} is damaged: {damaged}"] if damaged else []


def _round_problems(connection: Connection, round_: sa.Row[Any], name: str) -> list[str]:
    """Compare the tally of a closed round with its reports, unless they were deleted."""
    if connection.dialect.name == "postgresql":
        table = f"reports_{round_.key:d}"
        if not sa.inspect(connection).has_table(table):
            return [f"{name} has no table {table}"]
    deleted = sa.select(layout.facts.c.value).where(
        layout.facts.c.name == f"{layout.REPORTS_DELETED}{round_.campaign}"
    )
    if round_.state != "closed" or connection.scalar(deleted) is not None:
        return []
    if round_.tally is None:
        return [f"{name} is closed and has no tally"]
    counted = rebuild(_Reports(connection, round_.key), "", plan_from_json(json.loads(round_.plan)))
    if counted.to_bytes() != round_.tally:
        return [f"the tally of {name} differs from its reports"]
    return []


@dataclass(frozen=True)
class _Reports:
    """The reports of one round in a snapshot."""

    connection: Connection
    key: int

    def reports(self, campaign: str, number: int) -> Iterator[list[Row]]:
        c = layout.reports.c
        query = sa.select(c.report_id, c.question, c.payload).where(c.round_key == self.key)
        streamed = self.connection.execution_options(stream_results=True, max_row_buffer=_BLOCK)
        for rows in streamed.execute(query).partitions(_BLOCK):
            yield [Row._make(row) for row in rows]
