"""The persistent state of a device in one SQLite file: secret, ledger, memo and outbox.

The ledger sums the epsilon spent on each campaign and, over all campaigns and servers, on
the owner of the device. Spending, the randomised answer and the bytes to send are written in
one transaction before anything leaves the device. A crash therefore leaves either no answer
or the one that will be sent, never a second draw of noise. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dither.checks import check_between, check_finite
from dither.client.announcement import Announcement
from dither.errors import ParameterError, PrivacyError
from dither.mechanisms import ByteSource
from dither.private_files import make_private
from dither.reports import Question

_TABLES = (
    "device (secret BLOB NOT NULL)",
    "campaigns (campaign TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, cap REAL NOT NULL, token BLOB NOT NULL)",
    "answers (campaign TEXT NOT NULL, round INTEGER NOT NULL, plan TEXT NOT NULL, epsilon REAL NOT NULL, "
    "PRIMARY KEY (campaign, round))",
    "asked (campaign TEXT NOT NULL, attributes TEXT NOT NULL, PRIMARY KEY (campaign, attributes))",
    "memo (key BLOB PRIMARY KEY, payload BLOB NOT NULL)",
    "outbox (campaign TEXT NOT NULL, round INTEGER NOT NULL, body BLOB NOT NULL, "
    "state TEXT NOT NULL DEFAULT 'waiting', PRIMARY KEY (campaign, round))",
)
# Columns added after the first version; older files get them when they are opened.
_ADDED = (
    ("device", "cap_total", "REAL"),
    ("device", "period", "REAL"),
    ("device", "latest", "REAL NOT NULL DEFAULT 0"),
    ("answers", "time", "REAL"),
    ("campaigns", "address", "TEXT"),
    ("campaigns", "assignment", "TEXT"),
    (
        "campaigns",
        "unknown_since",
        "REAL",
        # When the collector first said that it has no such campaign.
    ),
    ("campaigns", "drawn", "INTEGER"),  # 1 if this device drew the token itself
    ("campaigns", "epoch", "TEXT NOT NULL DEFAULT ''"),  # the collector's, when last seen
    ("outbox", "epoch", "TEXT"),  # the collector's when it acknowledged the report
    ("outbox", "settled", "REAL"),  # the time of its acknowledgement
)
# The limit of waiting bytes for one server, so that a server that acknowledges nothing
# does not block the others.
OUTBOX_BYTES = 4 << 20
# The limit for one campaign.
CAMPAIGN_BYTES = 256 << 10
# Days for which the bytes of an acknowledged report are kept: a collector that was restored
# from a backup within this time gets them again. Longer serves older backups, and keeps the
# report on the device for longer.
RESEND_DAYS = 30


@dataclass(frozen=True)
class WaitingReport:
    """A report in the outbox, with the bytes of every attempt to send it.

    `state` is "waiting", "acknowledged", "answered" (in another round), "refused" or
    "deleted" (by the participant).
    """

    campaign: str
    round: int
    body: bytes
    state: str


class Device:
    """The state of one device.

    Args:
        path: The SQLite file, or ":memory:".
        source: Draws the secret and the tokens; it must be the operating system's generator,
            which is the default.
        memo: Keep answers, so that a repeated question gets the same answer.
        cap_total: The largest epsilon over all campaigns and servers within any `period`. Both
            are stored and stay in force until others are given.
        period: Seconds; None for the whole lifetime.
        clock: Returns the time in seconds. A clock that is set back frees nothing, because the
            latest time ever seen counts.
    """

    def __init__(
        self,
        path: str | Path,
        source: ByteSource | None = None,
        *,
        memo: bool = True,
        cap_total: float | None = None,
        period: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if cap_total is None and period is not None:
            raise ParameterError(
                "a period goes with a cap_total; give both", where="period", value=period
            )
        for name, number in (("cap_total", cap_total), ("period", period)):
            if number is not None:
                check_between(name, number, 0, math.inf, ends="()", error=PrivacyError)
        self.source: ByteSource = source or secrets.token_bytes
        self._memo = memo
        self._clock = clock
        if str(path) not in ("", ":memory:") and Path(path).parent.is_dir():
            # SQLite creates its other files with the same permissions.
            make_private(path)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._run("PRAGMA journal_mode=WAL")
        self._run("PRAGMA synchronous=FULL")
        with self.transaction():
            for table in _TABLES:
                self._run(f"CREATE TABLE IF NOT EXISTS {table}")
            for table, column, kind in _ADDED:
                if (column,) not in self._run(f"SELECT name FROM pragma_table_info('{table}')"):
                    self._run(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
            if not self._run("SELECT 1 FROM device"):
                self._run("INSERT INTO device (secret) VALUES (?)", self.source(32))
            if cap_total is not None:
                self._run("UPDATE device SET cap_total = ?, period = ?", cap_total, period)
            # An older version did not record the time of an answer. It counts as now, so that
            # it expires late rather than early.
            self._run("UPDATE answers SET time = ? WHERE time IS NULL", self._now())
            self._secret = bytes(self._run("SELECT secret FROM device")[0][0])
            self._forget_acknowledged()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _run(self, statement: str, *values: float | str | bytes | None) -> list[Any]:
        """Run one statement and fetch all rows."""
        return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that is on disk when it ends, or rolled back."""
        self._run("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._run("ROLLBACK")
            raise
        self._run("COMMIT")

    def join(
        self,
        announcement: Announcement,
        cap: float,
        token: bytes | None = None,
        address: str = "",
        moved: bool = False,
    ) -> bytes:
        """Join a campaign, or check that it has not changed since.

        The first call stores schema, assignment, cap, token and the collector's address; later calls
        compare them. A campaign's id and schema are public, so another server may show them too:
        token and reports go to the first address only, unless the collector has `moved`.

        Args:
            announcement: The campaign.
            cap: The largest epsilon that this device spends on the campaign; the smallest cap ever
                given counts.
            token: The ticket of the participant; drawn by default.
            address: The collector's address.
            moved: Accept another address than the stored one.

        Returns:
            The token.

        Raises:
            PrivacyError: Schema, assignment, token or address differ from the stored ones.
        """
        check_between("cap", cap, 0, math.inf, ends="()", error=PrivacyError)
        campaign = announcement.campaign.hex()
        with self.transaction():
            rows = self._run(
                "SELECT fingerprint, token, assignment FROM campaigns WHERE campaign = ?", campaign
            )
            if not rows:
                fresh = self.source(32) if token is None else token
                self._run(
                    "INSERT INTO campaigns (campaign, fingerprint, cap, token, address, assignment, drawn) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    campaign,
                    announcement.schema.fingerprint,
                    cap,
                    fresh,
                    address,
                    announcement.assignment,
                    int(token is None),
                )
                return fresh
            self.check_address(campaign, address, moved)
            fingerprint, held, assignment = rows[0]
            _check_unchanged(announcement, fingerprint, assignment)
            if token is not None and not hmac.compare_digest(token, bytes(held)):
                raise PrivacyError(
                    f"this device takes part in campaign {campaign} with another token",
                    where="token",
                )
            kept = "UPDATE campaigns SET cap = min(cap, ?), address = ?, assignment = ? WHERE campaign = ?"
            self._run(kept, cap, address, announcement.assignment, campaign)
            return bytes(held)

    def drew_token(self, campaign: str) -> bool:
        """Whether this device drew the campaign's token; False if an earlier version did not record it."""
        return self._run("SELECT drawn FROM campaigns WHERE campaign = ?", campaign) == [(1,)]

    def check_address(self, campaign: str, address: str, moved: bool = False) -> None:
        """Check that the campaign was joined at this address.

        Raises:
            PrivacyError: It was joined at another one and has not `moved`.
        """
        rows = self._run("SELECT address FROM campaigns WHERE campaign = ?", campaign)
        if rows and rows[0][0] not in (None, address) and not moved:
            raise PrivacyError(
                f"this device takes part in campaign {campaign} at {rows[0][0]}, not at {address}; if the collector has moved, "
                "say so",
                where="address",
                value=address,
            )

    def cap(self, campaign: str) -> float:
        """The largest epsilon that this device spends on a campaign; 0 if it has not joined."""
        rows = self._run("SELECT cap FROM campaigns WHERE campaign = ?", campaign)
        return float(rows[0][0]) if rows else 0.0

    def spent(self, campaign: str) -> float:
        """The total epsilon of all answers in a campaign, rounded up."""
        return self._sum("SELECT epsilon FROM answers WHERE campaign = ?", campaign)

    def limits(self) -> tuple[float | None, float | None]:
        """The `cap_total` and the `period` in force."""
        cap_total, period = self._run("SELECT cap_total, period FROM device")[0]
        return cap_total, period

    def spent_total(self) -> float:
        """The total epsilon of all answers in all campaigns within the period, rounded up."""
        period = self.limits()[1]
        since = -math.inf if period is None else self._now() - period
        return self._sum("SELECT epsilon FROM answers WHERE time > ?", since)

    def _sum(self, query: str, value: str | float) -> float:
        parts = [float(r[0]) for r in self._run(query, value) if r[0] > 0]
        return math.nextafter(math.fsum(parts), math.inf) if len(parts) > 1 else math.fsum(parts)

    def _now(self) -> float:
        """The clock's time, or the latest time ever seen if that is later."""
        now = self._clock()
        check_finite("clock", now)
        self._run("UPDATE device SET latest = max(latest, ?)", now)
        return float(self._run("SELECT latest FROM device")[0][0])

    def answers_of(self, campaign: str, number: int) -> str | None:
        """The digest of the plan answered in a round; None if the round was not answered."""
        rows = self._run(
            "SELECT plan FROM answers WHERE campaign = ? AND round = ?", campaign, number
        )
        return str(rows[0][0]) if rows else None

    def answered_rounds(self, campaign: str) -> list[int]:
        """The rounds of a campaign with a report of this device, in order."""
        return [
            int(r[0])
            for r in self._run(
                "SELECT round FROM answers WHERE campaign = ? ORDER BY round", campaign
            )
        ]

    def check_spending(self, campaign: str, epsilon: float) -> None:
        """Check that this epsilon fits the campaign's cap and `cap_total`.

        Raises:
            PrivacyError: It does not.
        """
        if epsilon == 0:  # an earlier answer once more
            return
        total = math.fsum([self.spent(campaign), epsilon])
        cap = self.cap(campaign)
        if total > cap:
            raise PrivacyError(
                f"campaign {campaign} would have spent epsilon {total:.9g} of this device, more than its cap {cap:.9g}",
                where="epsilon",
                value=total,
            )
        cap_total, period = self.limits()
        everything = math.fsum([self.spent_total(), epsilon])
        if cap_total is not None and everything > cap_total:
            within = "" if period is None else f" within {period:.9g} s"
            raise PrivacyError(
                f"all campaigns together would have spent epsilon {everything:.9g} of this device{within}, more than its "
                f"cap_total {cap_total:.9g}",
                where="cap_total",
                value=everything,
            )

    def recall(self, campaign: str, question: Question) -> bytes | None:
        """The earlier answer to this question, or None.

        Raises:
            PrivacyError: The same attributes were asked in another way.
        """
        asked = json.dumps(sorted(question.attributes))
        if not self._run(
            "SELECT 1 FROM asked WHERE campaign = ? AND attributes = ?", campaign, asked
        ):
            return None
        rows = self._run("SELECT payload FROM memo WHERE key = ?", self._key(campaign, question))
        if not rows:
            raise PrivacyError(
                f"campaign {campaign} asks about {', '.join(question.attributes)} a second time, and no earlier answer "
                "can be repeated",
                where="question",
                value=question.attributes,
            )
        return bytes(rows[0][0])

    def remember(self, campaign: str, question: Question, payload: bytes) -> None:
        """Record that a question was answered and, with a memo, the answer. Call it in a transaction."""
        asked = json.dumps(sorted(question.attributes))
        self._run("INSERT OR IGNORE INTO asked VALUES (?, ?)", campaign, asked)
        if self._memo:
            self._run("INSERT INTO memo VALUES (?, ?)", self._key(campaign, question), payload)

    def enter(self, announcement: Announcement, epsilon: float, body: bytes) -> None:
        """Enter an answer into the ledger and the outbox. Call it in a transaction."""
        assert announcement.plan is not None
        campaign, number = announcement.campaign.hex(), announcement.plan.round
        query = (
            "SELECT coalesce(sum(length(body)), 0), coalesce(sum(length(body) * (o.campaign = ?)), 0) "
            "FROM outbox o JOIN campaigns c USING (campaign) "
            "WHERE o.state = 'waiting' AND c.address IS (SELECT address FROM campaigns WHERE campaign = ?)"
        )
        for_server, for_campaign = self._run(query, campaign, campaign)[0]
        if for_server + len(body) > OUTBOX_BYTES or for_campaign + len(body) > CAMPAIGN_BYTES:
            raise PrivacyError(
                "the outbox is full; send what waits in it first", where="outbox", value=for_server
            )
        self._run(
            "INSERT INTO answers (campaign, round, plan, epsilon, time) VALUES (?, ?, ?, ?, ?)",
            *(campaign, number, announcement.plan_digest, epsilon, self._now()),
        )
        self._run(
            "INSERT INTO outbox (campaign, round, body) VALUES (?, ?, ?)", campaign, number, body
        )

    def outbox(self, campaign: str | None = None) -> list[WaitingReport]:
        """All reports and their states; the bytes are dropped once a report is settled."""
        query = "SELECT campaign, round, body, state FROM outbox WHERE ? IS NULL OR campaign = ? ORDER BY campaign, round"
        return [WaitingReport(*row) for row in self._run(query, campaign, campaign)]

    def note_epoch(self, announcement: Announcement) -> None:
        """Send the open round's report again if the collector was restored since it was acknowledged.

        Nothing is drawn and nothing is spent. A report of another plan is not sent: a restored
        collector may ask something else in a round of the same number.
        """
        campaign, epoch, plan = announcement.campaign.hex(), announcement.epoch, announcement.plan
        with self.transaction():
            self._run("UPDATE campaigns SET epoch = ? WHERE campaign = ?", epoch, campaign)
            if plan is None or self.answers_of(campaign, plan.round) != announcement.plan_digest:
                return
            self._run(
                "UPDATE outbox SET state = 'waiting' WHERE campaign = ? AND round = ? "
                "AND state = 'acknowledged' AND epoch <> ? AND length(body) > 0",
                *(campaign, plan.round, epoch),
            )

    def note_known(self, campaign: str, known: bool) -> float:
        """Record whether the collector has the campaign.

        Returns:
            For how many seconds the collector has said that it has no such campaign.
        """
        if known:
            self._run("UPDATE campaigns SET unknown_since = NULL WHERE campaign = ?", campaign)
            return 0.0
        now = self._now()
        self._run(
            "UPDATE campaigns SET unknown_since = coalesce(unknown_since, ?) WHERE campaign = ?",
            now,
            campaign,
        )
        rows = self._run("SELECT unknown_since FROM campaigns WHERE campaign = ?", campaign)
        return now - float(rows[0][0]) if rows else 0.0

    def settle(self, waiting: WaitingReport, state: str) -> None:
        """Record the final state of a report and drop its bytes.

        The bytes of an acknowledged report are kept for `RESEND_DAYS`.
        """
        of_round = (waiting.campaign, waiting.round)
        with self.transaction():
            if state != "acknowledged":
                settled = "UPDATE outbox SET state = ?, body = ? WHERE campaign = ? AND round = ?"
                self._run(settled, state, b"", *of_round)
                return
            self._run(
                "UPDATE outbox SET state = ?, settled = ?, "
                "epoch = (SELECT epoch FROM campaigns c WHERE c.campaign = outbox.campaign) "
                "WHERE campaign = ? AND round = ?",
                *(state, self._now(), *of_round),
            )
            self._forget_acknowledged()

    def _forget_acknowledged(self) -> None:
        """Drop acknowledged bytes that are older than `RESEND_DAYS` or more than `OUTBOX_BYTES`."""
        kept = self._run(
            "SELECT campaign, round, length(body), settled FROM outbox "
            "WHERE state = 'acknowledged' AND length(body) > 0 ORDER BY settled DESC, round DESC"
        )
        since, total = self._now() - RESEND_DAYS * 86_400, 0
        for campaign, number, length, settled in kept:
            total += length
            if total > OUTBOX_BYTES or settled is None or settled < since:
                drop = "UPDATE outbox SET body = ? WHERE campaign = ? AND round = ?"
                self._run(drop, b"", campaign, number)

    def _key(self, campaign: str, question: Question) -> bytes:
        """The memo's key: without the secret the file does not reveal which questions were answered."""
        text = json.dumps([campaign, question.to_json()], sort_keys=True)
        return hmac.new(self._secret, text.encode(), hashlib.sha256).digest()


def _check_unchanged(announcement: Announcement, fingerprint: str, assignment: str | None) -> None:
    """Refuse a campaign that changed since the device joined it."""
    campaign = announcement.campaign.hex()
    if fingerprint != announcement.schema.fingerprint:
        raise PrivacyError(
            f"campaign {campaign} has changed its schema; refusing to go on", where="schema"
        )
    # Otherwise one answer per campaign could become one per round.
    if assignment not in (None, announcement.assignment):
        raise PrivacyError(
            f"campaign {campaign} asked people by {assignment} and now by "
            f"{announcement.assignment}; refusing to go on",
            where="assignment",
            value=announcement.assignment,
        )
