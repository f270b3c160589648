"""Deleting a campaign from an SQL database: everything that was stored of it but what operators did, in one transaction."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector.audit import note
from dither.collector.layout import (
    campaigns,
    forget_untidied,
    publications,
    reports,
    rounds,
    running,
    tokens,
)


def delete_campaign(
    connection: Connection,
    campaign: str,
    moves: int,
    drop_reports: Callable[[Connection, int], None],
) -> bool:
    """Delete it if nobody has moved it since; the audit log keeps that it was there, and who deleted it."""
    found = sa.select(campaigns.c.state).where(
        campaigns.c.id == campaign, campaigns.c.moves == moves
    )
    state = connection.scalar(found.with_for_update())
    if state is None:
        return False
    keys = list(connection.scalars(sa.select(rounds.c.key).where(rounds.c.campaign == campaign)))
    for key in keys:
        drop_reports(connection, key)
    forget_untidied(connection, keys)
    connection.execute(sa.delete(running).where(running.c.round_key.in_(keys)))
    for table in (publications, rounds, tokens):
        connection.execute(sa.delete(table).where(table.c.campaign == campaign))
    connection.execute(sa.delete(campaigns).where(campaigns.c.id == campaign))
    note(connection, "delete", campaign, f"it was {state}")
    return True


def delete_rows(connection: Connection, key: int) -> None:
    """The reports of a round, where all rounds share a table."""
    connection.execute(sa.delete(reports).where(reports.c.round_key == key))
