"""Where collectors that share a PostgreSQL put together what each of them has counted of an open round.

Every transaction that adds reports reads the round's epoch while it holds the round's gate, and writes down that its process adds
in it. Ending an epoch takes the gate alone: then all that was added in it is committed, and it is known who added. So the sum of
what those processes counted, and of everything before, is exact; a process that cannot say what it counted (it was killed, or does
not know what became of a commit) is noticed, and everything is counted anew. Nothing is written down before anybody has asked.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.layout import rounds, running
from dither.collector.store import ANSWER_SECONDS, TIDY_SECONDS, WORK_SECONDS, Part, Row

_PAGE = 1 << 16
_ADDS = "INSERT INTO running (round_key, epoch, worker) VALUES (:key, :epoch, :worker) ON CONFLICT DO NOTHING"
_END = "UPDATE rounds SET epoch = epoch + 1 WHERE key = :key RETURNING epoch - 1"

Transaction = Callable[[float], AbstractContextManager[Connection]]


class Epochs:
    """The epochs of a store's rounds; `write` and `read` give transactions of the store that end in so many seconds, and `announce`
    wakes the other collectors when one is committed."""

    def __init__(
        self,
        write: Transaction,
        read: Transaction,
        round_alone: sa.TextClause,
        announce: Callable[[Connection, str], None],
    ) -> None:
        self._announce = announce
        self.worker = secrets.token_hex(8)
        self._write, self._read, self._round_alone = write, read, round_alone
        self._noted: set[tuple[int, int]] = set()
        # The key and epoch in which reports of a round were last added; read by the thread that added them.
        self.latest: dict[tuple[str, int], tuple[int, int]] = {}

    def adding(
        self, connection: Connection, campaign: str, number: int, key: int, epoch: int
    ) -> None:
        """This process adds to a round in this transaction."""
        self.latest[campaign, number] = (key, epoch)
        if epoch and (key, epoch) not in self._noted:
            connection.execute(sa.text(_ADDS), {"key": key, "epoch": epoch, "worker": self.worker})

    def added(self, key: int, epoch: int) -> None:
        """That transaction was committed."""
        self._noted.add((key, epoch))

    def now(self, keys: list[int]) -> dict[int, int]:
        """The present epochs of rounds."""
        query = sa.select(rounds.c.key, rounds.c.epoch).where(rounds.c.key.in_(keys))
        with self._read(ANSWER_SECONDS) as connection:
            return {r.key: r.epoch for r in connection.execute(query)}

    def parts(self, key: int) -> list[Part]:
        """What is known of a round."""
        c = running.c
        with self._read(WORK_SECONDS) as connection:
            found = connection.execute(
                sa.select(c.epoch, c.worker, c.tally).where(c.round_key == key)
            )
            return [Part._make(r) for r in found]

    def end(self, campaign: str, number: int) -> tuple[int, int]:
        """End a round's epoch when nobody is adding; gives the round's key and the epoch that has ended."""
        with self._write(ANSWER_SECONDS) as connection:
            return self._end(connection, campaign, number)

    def _end(self, connection: Connection, campaign: str, number: int) -> tuple[int, int]:
        found = connection.execute(
            self._round_alone, {"campaign": campaign, "number": number}
        ).one()
        self._announce(connection, campaign)
        return found.key, connection.execute(sa.text(_END), {"key": found.key}).scalar_one()

    def publish(self, key: int, epoch: int, tally: bytes) -> None:
        """Say what this process has counted in an epoch that has ended."""
        c = running.c
        mine = (c.round_key == key, c.epoch == epoch, c.worker == self.worker)
        with self._write(WORK_SECONDS) as connection:
            connection.execute(sa.update(running).where(*mine).values(tally=tally))
        self._noted.discard((key, epoch))

    def replace(self, key: int, epoch: int, tally: bytes) -> None:
        """From now on this is everything up to the end of an epoch."""
        c = running.c
        with self._write(WORK_SECONDS) as connection:
            connection.execute(sa.delete(running).where(c.round_key == key, c.epoch <= epoch))
            connection.execute(
                sa.insert(running).values(round_key=key, epoch=epoch, worker="", tally=tally)
            )

    def forget(self, keys: list[int]) -> None:
        """Nobody will ask for these rounds again, or everything is to be counted anew."""
        with self._write(WORK_SECONDS) as connection:
            connection.execute(sa.delete(running).where(running.c.round_key.in_(keys)))

    @contextmanager
    def everything(
        self, campaign: str, number: int, table: Callable[[int], str]
    ) -> Iterator[tuple[int, int, Iterator[list[Row]]]]:
        """End the epoch, and see what was stored until then and nothing else: the round's key, the epoch, and the reports."""
        with self._read(TIDY_SECONDS) as plain:
            seen = plain.execution_options(isolation_level="REPEATABLE READ")
            with self._write(ANSWER_SECONDS) as connection:
                key, epoch = self._end(connection, campaign, number)
                seen.exec_driver_sql(
                    "SELECT 1"
                ).scalar()  # from here on it sees what is committed now; nobody is adding
            yield key, epoch, _pages(seen, key, table(key))


def _pages(seen: Connection, key: int, table: str) -> Iterator[list[Row]]:
    after, more = b"", True
    query = sa.text(
        f"SELECT report_id, question, payload FROM {table} WHERE report_id > :after ORDER BY report_id LIMIT {_PAGE}"
    )
    while more:
        page = [Row._make(r) for r in seen.execute(query, {"after": after})]
        if page:
            yield page
            after = page[-1].report_id
        more = len(page) == _PAGE
