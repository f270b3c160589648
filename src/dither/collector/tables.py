"""The tables of a store, the same for SQLite and PostgreSQL.

What is not here is the point: no time, no address, no user agent, no counter that grows with arrivals. A report's key is its
id, a hash of the token, and SQLite keeps the rows in the order of that key, so the file does not tell who came first.
"""

from __future__ import annotations

import sqlalchemy as sa

VERSION = "1"

metadata = sa.MetaData()

facts = sa.Table(
    "facts", metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False)
)

campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("machine", sa.LargeBinary, nullable=False),
    sa.Column("release", sa.LargeBinary),
)

rounds = sa.Table(
    "rounds",
    metadata,
    sa.Column("key", sa.Integer, primary_key=True),
    sa.Column("campaign", sa.Text, sa.ForeignKey("campaigns.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("start", sa.Double, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("tally", sa.LargeBinary),
    sa.UniqueConstraint("campaign", "number"),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("campaign", sa.Text, primary_key=True),
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)

reports = sa.Table(
    "reports",
    metadata,
    sa.Column("round_key", sa.Integer, primary_key=True),
    sa.Column("report_id", sa.LargeBinary, primary_key=True),
    sa.Column("question", sa.Integer, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
