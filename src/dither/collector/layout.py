"""The tables of a store on an SQL database, and the migration of earlier layouts.

The tables hold no time, no address, no user agent, and no counter that grows with
arrivals. A report's key is its id, a hash of the token, and SQLite keeps the rows in the
order of that key, so the file does not show who came first. On PostgreSQL each round's
reports are a partition, `reports_KEY`, that can be rewritten or deleted separately.

The fact `version` names the layout. Opening a store migrates it to `VERSION` step by step
in one transaction; a store with an unknown layout is refused and not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from secrets import token_hex

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.store import Move
from dither.errors import InputError

# Opens a transaction that ends within the given seconds.
Transaction = Callable[[float], AbstractContextManager[Connection]]
VERSION = 5
# With the round's key, the name of the fact that its files may show the order of arrival.
UNTIDIED = "untidied round "
# With the campaign's id, the name of the fact that its reports were deleted, with the day.
REPORTS_DELETED = "reports deleted "
# With the campaign's id, the name of the day on which it was finalised.
FINALISED = "finalised "
# The random name of the restore that made this store; none if it was never restored.
EPOCH = "epoch"

tables = sa.MetaData()
_filled = partial(sa.Column, nullable=False)
facts = sa.Table(
    "facts", tables, sa.Column("name", sa.Text, primary_key=True), _filled("value", sa.Text)
)
campaigns = sa.Table(
    "campaigns",
    tables,
    sa.Column("id", sa.Text, primary_key=True),
    _filled("spec", sa.Text),
    _filled("state", sa.Text),
    _filled("round", sa.Integer),
    _filled("machine", sa.LargeBinary),
    sa.Column("release", sa.LargeBinary),
    # Counts the transitions; a transition that expects another number comes too late.
    _filled("moves", sa.Integer, server_default="0"),
)
rounds = sa.Table(
    "rounds",
    tables,
    sa.Column("key", sa.Integer, primary_key=True),
    _filled("campaign", sa.Text, sa.ForeignKey("campaigns.id")),
    _filled("number", sa.Integer),
    _filled("state", sa.Text),
    _filled("start", sa.Double),
    _filled("plan", sa.Text),
    sa.Column("tally", sa.LargeBinary),
    _filled("epoch", sa.Integer, server_default="0"),  # see tallies.py
    sa.Column("closes", sa.Double),  # time of the automatic closing
    # 1 while it waits for a tally counted outside the collector.
    _filled("held", sa.Integer, server_default="0"),
    sa.UniqueConstraint("campaign", "number"),
)
tokens = sa.Table(
    "tokens",
    tables,
    sa.Column("campaign", sa.Text, primary_key=True),
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)
reports = sa.Table(
    "reports",
    tables,
    sa.Column("round_key", sa.Integer, primary_key=True),
    sa.Column("report_id", sa.LargeBinary, primary_key=True),
    _filled("question", sa.Integer),
    _filled("payload", sa.LargeBinary),
    sqlite_with_rowid=False,
    postgresql_partition_by="LIST (round_key)",
)
# What each of several collectors counted of an open round in one epoch, null until published;
# in epochs -2 and -1 numbers of reports by question (see tallies.py), merged at the closing.
running = sa.Table(
    "running",
    tables,
    sa.Column("round_key", sa.Integer, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("tally", sa.LargeBinary),
)
# The following tables are about operators, never about participants.
keys = sa.Table(
    "keys",
    tables,
    sa.Column("name", sa.Text, primary_key=True),
    _filled("role", sa.Text),
    _filled("hash", sa.LargeBinary, unique=True),
    _filled("created", sa.Text),  # days
    sa.Column("revoked", sa.Text),
)
sessions = sa.Table(
    "sessions",
    tables,
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    _filled("key_hash", sa.LargeBinary),
    _filled("expires", sa.BigInteger),
)
sign_ins = sa.Table(  # failed sign-ins in one span of time
    "sign_ins",
    tables,
    sa.Column("span", sa.BigInteger, primary_key=True, autoincrement=False),
    _filled("failures", sa.Integer),
)
audit = sa.Table(
    "audit",
    tables,
    sa.Column("number", sa.Integer, primary_key=True),
    _filled("at", sa.Text),
    _filled("who", sa.Text),
    _filled("what", sa.Text),
    sa.Column("campaign", sa.Text),
    _filled("detail", sa.Text),
)
# Releases that were ever published, with their replicates, and whether they are public now.
publications = sa.Table(
    "publications",
    tables,
    sa.Column("campaign", sa.Text, sa.ForeignKey("campaigns.id"), primary_key=True),
    _filled("public", sa.Integer),
    _filled("digest", sa.Text),
    _filled("release", sa.LargeBinary),
    # 1 if the collector's first page names the release while it is public.
    _filled("listed", sa.Integer, server_default="1"),
)
# What curators typed into the form of a campaign; `changed` is a day.
drafts = sa.Table(
    "drafts",
    tables,
    sa.Column("id", sa.Text, primary_key=True),
    _filled("title", sa.Text),
    _filled("changed", sa.Text),
    _filled("version", sa.Integer),
    _filled("fields", sa.Text),
)


def bring_up_to_date(
    connection: Connection, others_running: Callable[[], bool] = lambda: False
) -> None:
    """Create the tables or migrate an earlier layout; the caller holds a lock.

    Args:
        connection: The connection, in a transaction.
        others_running: Returns whether other collectors use the database. An older one would
            fail, or write what the new layout does not expect.

    Raises:
        InputError: The layout is unknown, or earlier and in use.
    """
    version = None
    if sa.inspect(connection).has_table(facts.name):
        version = connection.scalar(sa.select(facts.c.value).where(facts.c.name == "version"))
    if version is None:
        tables.create_all(connection)
        connection.execute(sa.insert(facts).values(name="version", value=str(VERSION)))
        return
    if version not in map(str, range(1, VERSION + 1)):
        raise InputError(
            f"the database has layout {version}; this version of Dither reads layouts 1 to {VERSION}",
            value=version,
        )
    if version != str(VERSION) and others_running():
        raise InputError(
            f"the database has layout {version}, and a collector of an earlier version uses it; "
            "stop all of them, back up, then start this version",
            value=version,
        )
    for step in range(int(version), VERSION):
        _STEPS[step](connection)
    connection.execute(sa.update(facts).where(facts.c.name == "version").values(value=str(VERSION)))


def add_partition(connection: Connection, key: int) -> None:
    """Create the table of a round's reports on PostgreSQL.

    It is attached afterwards: creating it as a partition would block all uploads.
    """
    name = f"reports_{key:d}"
    connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE reports INCLUDING ALL)")
    connection.exec_driver_sql(
        f"ALTER TABLE reports ATTACH PARTITION {name} FOR VALUES IN ({key:d})"
    )


def _from_1_to_2(connection: Connection) -> None:
    """Count moves, share running tallies, and make each round a partition on PostgreSQL."""
    connection.exec_driver_sql("ALTER TABLE campaigns ADD COLUMN moves INTEGER DEFAULT 0 NOT NULL")
    connection.exec_driver_sql("ALTER TABLE rounds ADD COLUMN epoch INTEGER DEFAULT 0 NOT NULL")
    running.create(connection)
    if connection.dialect.name != "postgresql":
        return
    connection.exec_driver_sql("ALTER TABLE reports RENAME TO reports_before")
    connection.exec_driver_sql("ALTER INDEX reports_pkey RENAME TO reports_before_pkey")
    reports.create(connection)
    for (key,) in connection.execute(sa.select(rounds.c.key).order_by(rounds.c.key)).all():
        add_partition(connection, key)
        # In the order of ids: the order of arrival goes with the old table.
        connection.exec_driver_sql(
            f"INSERT INTO reports_{key:d} SELECT * FROM reports_before "
            f"WHERE round_key = {key:d} ORDER BY report_id"
        )
    connection.exec_driver_sql("DROP TABLE reports_before")


def _from_2_to_3(connection: Connection) -> None:
    """Add keys with names and roles, sessions, the audit log and public releases."""
    for table in (keys, sessions, sign_ins, audit, publications):
        table.create(connection)


def _from_3_to_4(connection: Connection) -> None:
    """Let rounds close at a time, unless they are held."""
    connection.exec_driver_sql("ALTER TABLE rounds ADD COLUMN closes DOUBLE PRECISION")
    connection.exec_driver_sql("ALTER TABLE rounds ADD COLUMN held INTEGER DEFAULT 0 NOT NULL")


def _from_4_to_5(connection: Connection) -> None:
    """Add drafts, and let a published release stay off the first page."""
    drafts.create(connection)
    columns = [column["name"] for column in sa.inspect(connection).get_columns(publications.name)]
    # Migrating layout 1 or 2 has just created the table as it is now.
    if "listed" not in columns:
        connection.exec_driver_sql(
            "ALTER TABLE publications ADD COLUMN listed INTEGER DEFAULT 1 NOT NULL"
        )


_STEPS: dict[int, Callable[[Connection], None]] = {
    1: _from_1_to_2,
    2: _from_2_to_3,
    3: _from_3_to_4,
    4: _from_4_to_5,
}


def begin_epoch(connection: Connection) -> None:
    """Name a restore, so that devices send again what was acknowledged before it."""
    connection.execute(sa.delete(facts).where(facts.c.name == EPOCH))
    connection.execute(sa.insert(facts).values(name=EPOCH, value=token_hex(8)))


def clear_untidied(connection: Connection, keys: Sequence[int]) -> None:
    """Remove the marks of rounds that have been rewritten."""
    connection.execute(
        sa.delete(facts).where(facts.c.name.in_([f"{UNTIDIED}{key}" for key in keys]))
    )


def mark_untidied(connection: Connection, move: Move) -> None:
    """Mark a round as untidied when it stops taking reports; unmark it if it opens again."""
    if move.round_state not in ("open", "closing"):
        return
    c = rounds.c
    key = connection.scalar(
        sa.select(c.key).where(c.campaign == move.campaign, c.number == move.from_round)
    )
    mark = f"{UNTIDIED}{key}"
    connection.execute(sa.delete(facts).where(facts.c.name == mark))
    if move.round_state == "closing":
        connection.execute(
            sa.insert(facts).values(name=mark, value="its files may show the order of arrival")
        )
