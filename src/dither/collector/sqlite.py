"""SQLite: write-ahead log, synchronous=FULL, one writer at a time, and one collector per file.

With FULL the log reaches the disk before a commit returns: a report that was acknowledged survives a power cut. A file
system or a build that cannot give both settings is refused. The file and its companions are its owner's alone.
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

from dither.collector.sql_store import SqlStore, store_failure, until_unread
from dither.collector.store import ANSWER_SECONDS, Row, StoreAway, StoreFull
from dither.errors import InputError
from dither.private_files import make_private, tighten

_FULL = 2
_INSERT = (
    "INSERT OR IGNORE INTO reports (round_key, report_id, question, payload) VALUES (?, ?, ?, ?)"
)
_CHECK_SECONDS = (
    2.0  # what a look at readiness waits for others that write, in turn and for the file's lock
)
MIN_FREE = (
    32 << 20
)  # bytes on the disk below which the store says that it is full before a write fails


class SqliteStore(SqlStore):
    """The store in a file, made if it is not there, which this collector alone writes, one transaction at a time."""

    _driver_error = sqlite3.Error

    def __init__(self, path: str | Path, least_free: int = MIN_FREE) -> None:
        # SQLite follows links: what belongs beside the database is beside the file itself.
        self._path, self._least_free = Path(os.path.realpath(path)), least_free
        if not self._path.parent.is_dir():
            raise InputError(
                f"cannot open {self._path}: its folder does not exist", where=str(self._path)
            )
        _keep_private(self._path)
        self._lock_file: int | None = _lock(self._path)
        self._identity = _identity(self._path)
        self._turn = threading.RLock()
        self._tidying: list[sqlite3.Connection] = []
        engine = sa.create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=sa.QueuePool,
            pool_timeout=ANSWER_SECONDS,
            hide_parameters=True,
        )
        sa.event.listen(engine, "begin", _begin)
        try:
            super().__init__(engine)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Tidying under way is broken off; it is done when the file is next opened."""
        for driver in list(self._tidying):
            driver.interrupt()
        self._engine.dispose()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _connect(self) -> sqlite3.Connection:
        """Waits for somebody else's lock end by themselves, so `_within` bounds nothing here."""
        driver = sqlite3.connect(
            self._path, timeout=ANSWER_SECONDS, check_same_thread=False, isolation_level=None
        )
        try:
            _make_durable(driver)
        except BaseException:
            driver.close()
            raise
        return driver

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """It holds the right to write from its beginning."""
        with self._my_turn(), self._engine.connect() as plain:
            connection = plain.execution_options(dither_writes=True)
            with connection.begin():
                yield connection
                self._still_there()

    def _insert_new(self, connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
        """One statement if all are new, which they nearly always are; otherwise back, and look which are."""
        parameters = [(key, *row) for row in rows]
        connection.exec_driver_sql("SAVEPOINT fresh")
        fresh = {row.report_id for row in rows}
        if connection.exec_driver_sql(_INSERT, parameters).rowcount < len(rows):
            connection.exec_driver_sql("ROLLBACK TO fresh")
            fresh = {
                p[1] for p in parameters if connection.exec_driver_sql(_INSERT, p).rowcount == 1
            }
        connection.exec_driver_sql("RELEASE fresh")
        return fresh

    def _rewrite(self, keys: Sequence[int]) -> None:
        """The log holds pages in the order in which they changed; the pages' own free space may hold earlier contents."""
        with self._engine.connect() as connection:
            driver = _driver(connection)
            self._tidying.append(driver)
            try:
                until_unread(lambda: self._log_emptied(driver))
                with self._my_turn():
                    driver.execute("VACUUM")
                until_unread(lambda: self._log_emptied(driver))
                self._tidied(keys)
                # What is in the log by now is the note that this is done, and reports of other rounds that are still open.
                self._log_emptied(driver)
            finally:
                self._tidying.remove(driver)

    def _look(self) -> None:
        """There is room on the disk, and a transaction that writes can begin soon."""
        if shutil.disk_usage(self._path.parent).free < self._least_free:
            raise StoreFull(
                f"less than {self._least_free >> 20} MiB are free on the disk of {self._path}"
            )
        self._still_there()
        with self._my_turn(_CHECK_SECONDS), self._engine.connect() as connection:
            driver = _driver(connection)
            with _patient(driver, _CHECK_SECONDS):
                driver.execute("BEGIN IMMEDIATE")
                try:
                    driver.execute("SELECT 1 FROM facts").fetchone()
                finally:
                    driver.execute("ROLLBACK")

    def _still_there(self) -> None:
        """What is written to a file that was moved or deleted is found by nobody who looks for it under its name."""
        try:
            found = _identity(self._path)
        except OSError:
            raise StoreAway(
                f"{self._path} is gone; put it back, or start again without it"
            ) from None
        if found != self._identity:
            raise StoreAway(
                f"{self._path} is another file than the one that was opened; start again"
            )

    @contextmanager
    def _my_turn(self, seconds: float = ANSWER_SECONDS) -> Iterator[None]:
        if not self._turn.acquire(timeout=seconds):
            raise StoreAway("the database is being written anew, after a round was closed")
        try:
            yield
        finally:
            self._turn.release()

    def _log_emptied(self, driver: sqlite3.Connection) -> bool:
        """Needs a moment in which nobody else reads; whoever writes is let in between two tries."""
        with self._my_turn(), _patient(driver, 0.1):
            busy = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not busy

    def _translated(self, cause: BaseException | None, statement: str | None) -> Exception:
        """SQLite's own messages name tables and files, no values; those of anything else are not repeated."""
        code = getattr(cause, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_FULL:
            return StoreFull("the disk is full")
        ours = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
        if isinstance(cause, sqlite3.DatabaseError) and not isinstance(cause, ours):
            return StoreAway(f"the database failed: {cause}")
        return store_failure(cause, getattr(cause, "sqlite_errorname", "no code"), statement)


def _make_durable(driver: sqlite3.Connection) -> None:
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


def _driver(connection: Connection) -> sqlite3.Connection:
    """What is beneath, for statements that no transaction may hold."""
    driver: Any = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


@contextmanager
def _patient(driver: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Wait this long for somebody else's lock, for once."""
    driver.execute(f"PRAGMA busy_timeout = {int(1000 * seconds)}")
    try:
        yield
    finally:
        driver.execute(f"PRAGMA busy_timeout = {int(1000 * ANSWER_SECONDS)}")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("dither_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _keep_private(path: Path) -> None:
    """SQLite gives the files that it makes beside the database the database's own permissions."""
    try:
        make_private(path)
        for companion in ("-wal", "-shm", "-journal"):
            tighten(path.with_name(path.name + companion))
    except OSError as error:
        raise InputError(
            f"cannot open {path} and keep it to its owner: {error.strerror}", where=str(path)
        ) from None


def _lock(path: Path) -> int:
    """A lock that ends with the process, however it ends."""
    beside = path.with_name(path.name + ".lock")
    try:
        make_private(beside)
        handle = os.open(beside, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}", where=str(path)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InputError(
            f"{path} is in use by another collector; SQLite takes one process, PostgreSQL any number",
            where=str(path),
        ) from None
    return handle
