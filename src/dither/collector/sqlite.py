"""SQLite: write-ahead log, synchronous=FULL, one writer at a time, and one collector a file.

With FULL the log reaches the disk before a commit returns: a report that was acknowledged survives a power cut. A file
system or a build that cannot give both settings is refused.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.sql_store import Dialect, SqlStore
from dither.collector.store import Row, StoreAway, StoreFull
from dither.errors import InputError

_FULL = 2
_INSERT = "INSERT OR IGNORE INTO reports (round_key, report_id, question, payload) VALUES (?, ?, ?, ?)"
LEAST_FREE = 32 << 20  # bytes on the disk below which the store says that it is full before a write fails


def open_sqlite(path: str | Path, least_free: int = LEAST_FREE) -> SqlStore:
    """The store in a file, made if it is not there; an error if another collector has it open."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"cannot open {path}: the folder {path.parent} does not exist", where=str(path))
    lock_file = _lock(path)
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(path, timeout=10, check_same_thread=False, isolation_level=None),
        poolclass=sa.pool.QueuePool,
    )
    sa.event.listen(engine, "connect", _prepare)
    sa.event.listen(engine, "begin", _begin)
    turn = threading.RLock()

    @contextmanager
    def writing() -> Iterator[Connection]:
        with turn, engine.connect() as plain:
            connection = plain.execution_options(dither_writes=True)
            with connection.begin():
                yield connection

    def tidy(key: int) -> None:
        # The log holds pages in the order in which they changed; the pages' own free space may hold earlier contents.
        with turn, engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            driver.execute("VACUUM")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def check() -> None:
        if shutil.disk_usage(path.parent).free < least_free:
            raise StoreFull(f"less than {least_free >> 20} MiB are free on the disk of {path}")
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1 FROM facts")

    def close() -> None:
        engine.dispose()
        os.close(lock_file)

    try:
        return SqlStore(Dialect(engine, writing, insert_new, guarded, "", tidy, check, close))
    except BaseException:
        close()
        raise


def insert_new(connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
    """One statement if all are new, which they nearly always are; otherwise back, and look which are."""
    parameters = [(key, *row) for row in rows]
    connection.exec_driver_sql("SAVEPOINT fresh")
    added = connection.exec_driver_sql(_INSERT, parameters).rowcount
    if added == len(rows):
        connection.exec_driver_sql("RELEASE fresh")
        return {row.report_id for row in rows}
    connection.exec_driver_sql("ROLLBACK TO fresh")
    fresh = set()
    for parameter, row in zip(parameters, rows, strict=True):
        if connection.exec_driver_sql(_INSERT, parameter).rowcount == 1:
            fresh.add(row.report_id)
    connection.exec_driver_sql("RELEASE fresh")
    return fresh


@contextmanager
def guarded() -> Iterator[None]:
    """SQLite's failures as StoreFull (the disk) and StoreAway (anything else that is not our mistake)."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_FULL:
            raise StoreFull("the disk is full") from error
        if isinstance(error.orig, (sqlite3.OperationalError, sqlite3.DatabaseError)) and not isinstance(
            error.orig, (sqlite3.IntegrityError, sqlite3.ProgrammingError)
        ):
            raise StoreAway(f"the database failed: {error.orig}") from error
        raise
    except sqlite3.OperationalError as error:
        raise StoreAway(f"the database failed: {error}") from error


def _prepare(driver: Any, record: object) -> None:
    mode = driver.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    driver.execute("PRAGMA synchronous=FULL")
    level = driver.execute("PRAGMA synchronous").fetchone()[0]
    if mode != "wal" or level != _FULL:
        raise InputError(
            f"SQLite gives journal_mode={mode} and synchronous={level} here; reports could be lost after they were acknowledged. "
            "Put the file on a local disk"
        )
    driver.execute("PRAGMA foreign_keys=ON")
    driver.execute("PRAGMA secure_delete=ON")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("dither_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _lock(path: Path) -> int:
    """A lock that ends with the process, however it ends."""
    try:
        handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}", where=str(path)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InputError(f"{path} is in use by another collector", where=str(path)) from None
    return handle
