"""SQLite: write-ahead log, synchronous=FULL, one writer at a time, and one collector per file.

With FULL the log reaches the disk before a commit returns: an acknowledged report survives
a power cut. A file system or a build without both settings is refused. Only the owner can
read the file and its companions.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector import limits
from dither.collector.sql_store import SqlStore, store_failure, until_unread
from dither.collector.store import Row, StoreFull, StoreUnavailable
from dither.errors import InputError
from dither.private_files import make_private, tighten

_FULL = 2  # the value of `PRAGMA synchronous`
_INSERT = (
    "INSERT OR IGNORE INTO reports (round_key, report_id, question, payload) VALUES (?, ?, ?, ?)"
)
_UNMARK_SECONDS = 0.2  # how long closing the store waits for another connection's lock
# The name of the fact that a collector uses the file, with the file's number on its disk. A
# plain copy of the file has another number, and lacks what is only in the log.
RUNNING = "running"
log = logging.getLogger("dither.collector")
_CHECK_SECONDS = 2.0  # how long a health check waits for the writer and for the file's lock
# Bytes free on the disk below which the store reports that it is full. A write that fails
# for want of space is reported too, but then the operator has no warning.
_MIN_FREE = 32 << 20


class SqliteStore(SqlStore):
    """The store in a file, created if absent, that this collector alone writes.

    Args:
        path: The database file.
        min_free: Free bytes on the disk below which `check` raises `StoreFull`.
    """

    _driver_error = sqlite3.Error

    def __init__(self, path: str | Path, min_free: int = _MIN_FREE) -> None:
        # SQLite follows links: the companion files are next to the real file.
        self._path = Path(os.path.realpath(path))
        self._min_free = min_free
        if not self._path.parent.is_dir():
            raise InputError(
                f"cannot open {self._path}: its folder does not exist", where=str(self._path)
            )
        _keep_private(self._path)
        self._lock_file: int | None = _lock(self._path)
        self._marked = False
        if is_plain_copy(self._path):
            os.close(self._lock_file)
            raise InputError(
                f"{self._path} is a plain copy of the file of a running collector, or was moved "
                f"after a crash without {self._path.name}-wal: the latest reports are missing. Use "
                "'dither store backup', or 'dither store restore --plain-copy' to accept it",
                where=str(self._path),
            )
        self._identity = _identity(self._path)
        self._opened = time.time(), _elapsed()
        self._turn = threading.RLock()
        self._tidying: list[sqlite3.Connection] = []
        engine = sa.create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=sa.QueuePool,
            pool_timeout=limits.ANSWER_SECONDS,
            hide_parameters=True,
        )
        sa.event.listen(engine, "begin", _begin)
        try:
            super().__init__(engine)
            self._mark_running()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; a rewrite in progress is interrupted and done at the next opening."""
        for driver in list(self._tidying):
            driver.interrupt()
        self._unmark_running()
        self._engine.dispose()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _mark_running(self) -> None:
        """Record in the file itself, not only in its log, that a collector uses it."""
        with self._guarded(limits.ANSWER_SECONDS), self._engine.connect() as connection:
            driver = _driver(connection)
            driver.execute("BEGIN IMMEDIATE")
            forget_running(driver)
            driver.execute("INSERT INTO facts VALUES (?, ?)", (RUNNING, str(self._identity[1])))
            driver.execute("COMMIT")
            self._log_emptied(driver)
        self._marked = True

    def _unmark_running(self) -> None:
        """Remove the record if that is possible at once; it does no harm in this file."""
        if not self._marked:
            return
        self._marked = False
        try:
            self._still_there()
            driver = sqlite3.connect(self._path, timeout=_UNMARK_SECONDS)
            try:
                with driver:
                    forget_running(driver)
            finally:
                driver.close()
        except (StoreUnavailable, sqlite3.Error) as error:
            log.warning("%s keeps the mark of a running collector: %s", self._path, error)

    def _connect(self) -> sqlite3.Connection:
        """Open a connection whose waits for locks are limited, so `_within` need not be."""
        driver = sqlite3.connect(
            self._path, timeout=limits.ANSWER_SECONDS, check_same_thread=False, isolation_level=None
        )
        try:
            _make_durable(driver)
        except BaseException:
            driver.close()
            raise
        return driver

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Open a transaction that has the write lock from its beginning."""
        with self._my_turn(), self._engine.connect() as plain:
            connection = plain.execution_options(dither_writes=True)
            with connection.begin():
                yield connection
                self._still_there()

    def _insert_new(self, connection: Connection, key: int, rows: Sequence[Row]) -> set[bytes]:
        """Insert by one statement if all are new, as they nearly always are; else one by one."""
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
        """Empty the log and rewrite the file.

        The log holds pages in the order of their changes, and free space in pages may hold
        earlier contents.
        """
        with self._engine.connect() as connection:
            driver = _driver(connection)
            self._tidying.append(driver)
            try:
                until_unread(lambda: self._log_emptied(driver))
                with self._my_turn():
                    driver.execute("VACUUM")
                until_unread(lambda: self._log_emptied(driver))
                self._tidied(keys)
                # The log now holds the mark that this is done, and reports of open rounds.
                self._log_emptied(driver)
            finally:
                self._tidying.remove(driver)

    def now(self) -> float:
        """Return the machine's time at the opening plus the time since.

        SQLite has no clock of its own. This one does not follow the machine's clock when it
        jumps, so a jump is noticed.
        """
        wall, elapsed = self._opened
        return wall + _elapsed() - elapsed

    def _check_writable(self) -> None:
        """Check the space on the disk, and that a writing transaction can begin."""
        if shutil.disk_usage(self._path.parent).free < self._min_free:
            raise StoreFull(
                f"less than {self._min_free >> 20} MiB are free on the disk of {self._path}"
            )
        self._still_there()
        with self._my_turn(_CHECK_SECONDS), self._engine.connect() as connection:
            driver = _driver(connection)
            with _busy_timeout(driver, _CHECK_SECONDS):
                driver.execute("BEGIN IMMEDIATE")
                try:
                    driver.execute("SELECT 1 FROM facts").fetchone()
                finally:
                    driver.execute("ROLLBACK")

    def _still_there(self) -> None:
        """Raise if the file was moved, deleted or replaced: its reports would be lost."""
        try:
            identity = _identity(self._path)
        except OSError:
            raise StoreUnavailable(
                f"{self._path} is gone; put it back, or restart without it"
            ) from None
        if identity != self._identity:
            raise StoreUnavailable(
                f"{self._path} is not the file that was opened; restart the collector"
            )

    @contextmanager
    def _my_turn(self, seconds: float = limits.ANSWER_SECONDS) -> Iterator[None]:
        if not self._turn.acquire(timeout=seconds):
            raise StoreUnavailable("the database is being rewritten after a round was closed")
        try:
            yield
        finally:
            self._turn.release()

    def _log_emptied(self, driver: sqlite3.Connection) -> bool:
        """Try to empty the log, which needs a moment without readers; writers go in between."""
        with self._my_turn(), _busy_timeout(driver, 0.1):
            busy = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not busy

    def _translated(self, cause: BaseException | None, statement: str | None) -> Exception:
        """Translate by error code. SQLite's messages name tables and files, never values."""
        code = getattr(cause, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_FULL:
            return StoreFull("the disk is full")
        defects = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
        if isinstance(cause, sqlite3.DatabaseError) and not isinstance(cause, defects):
            return StoreUnavailable(f"the database failed: {cause}")
        return store_failure(cause, getattr(cause, "sqlite_errorname", "no code"), statement)


def _elapsed() -> float:
    """Return seconds that only increase, also while the machine is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):  # Linux
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def is_plain_copy(path: Path) -> bool:
    """Return whether a file was copied without its log while a collector used it."""
    if path.with_name(path.name + "-wal").exists():
        return False
    try:
        status = os.stat(path)
        if status.st_size == 0:
            return False
        driver = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=limits.ANSWER_SECONDS
        )
        try:
            query = "SELECT value FROM facts WHERE name = ?"
            found = driver.execute(query, (RUNNING,)).fetchone()
        finally:
            driver.close()
    except (OSError, sqlite3.Error):  # not a store: opening it raises the error
        return False
    return found is not None and found[0] != str(status.st_ino)


def forget_running(driver: sqlite3.Connection) -> None:
    """Remove the record that a collector uses the file."""
    driver.execute("DELETE FROM facts WHERE name = ?", (RUNNING,))


def _make_durable(driver: sqlite3.Connection) -> None:
    mode = driver.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    driver.execute("PRAGMA synchronous=FULL")
    level = driver.execute("PRAGMA synchronous").fetchone()[0]
    if mode != "wal" or level != _FULL:
        raise InputError(
            f"SQLite gives journal_mode={mode} and synchronous={level} here; acknowledged "
            "reports could be lost. Put the file on a local disk"
        )
    driver.execute("PRAGMA foreign_keys=ON")
    driver.execute("PRAGMA secure_delete=ON")


def _driver(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection, for statements outside any transaction."""
    driver: Any = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


@contextmanager
def _busy_timeout(driver: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Limit waits for another connection's lock inside the block."""
    driver.execute(f"PRAGMA busy_timeout = {int(1000 * seconds)}")
    try:
        yield
    finally:
        driver.execute(f"PRAGMA busy_timeout = {int(1000 * limits.ANSWER_SECONDS)}")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("dither_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _keep_private(path: Path) -> None:
    """Restrict the file to its owner; SQLite creates its companions with the same permissions."""
    try:
        make_private(path)
        for companion in ("-wal", "-shm", "-journal"):
            tighten(path.with_name(path.name + companion))
    except OSError as error:
        raise InputError(
            f"cannot open {path} and restrict it to its owner: {error.strerror}", where=str(path)
        ) from None


def _lock(path: Path) -> int:
    """Take a lock that ends with the process, even if it is killed."""
    lock_file = path.with_name(path.name + ".lock")
    try:
        make_private(lock_file)
        handle = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}", where=str(path)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InputError(
            f"{path} is in use by another collector; SQLite takes one process, "
            "PostgreSQL any number",
            where=str(path),
        ) from None
    return handle
