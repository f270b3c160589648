"""What a device keeps, in one SQLite file: its secret, the ledger, the memo and the outbox. Standard library only.

The ledger adds up what was spent on each campaign and, over all campaigns and servers, on the person who owns the device.
Spending, the randomised answer and the bytes to send are written in one transaction, before anything leaves the device: a
crash at any point leaves either no answer at all or the one that will be sent, never a second draw of noise.
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
# Added since the first version of the file; a file without them gets them when it is opened.
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
    ),  # when the collector first said that it has no such campaign
    ("campaigns", "drawn", "INTEGER"),  # 1 if this device drew the token itself
)
OUTBOX_BYTES = (
    4 << 20
)  # that wait to be sent to one server: one that acknowledges nothing stops no other
CAMPAIGN_BYTES = 256 << 10  # of these, for one campaign


@dataclass(frozen=True)
class WaitingReport:
    """A report in the outbox: the exact bytes of every try to send it."""

    campaign: str
    round: int
    body: bytes
    state: str  # "waiting", "acknowledged", "answered" (in another round) or "refused"


class Device:
    """A device's own books. `source` gives the secret and the tokens; it must be the operating system's generator.

    `cap_total` is the most epsilon that the device spends over all campaigns and servers within any `period` seconds (None:
    for ever). Both are kept in the file and stay in force until others are given. `clock` tells the time in seconds; a clock
    that goes back frees nothing, since the latest time ever seen counts.
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
            make_private(path)  # the files that SQLite puts beside it get the same permissions
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
            # When an older version spent is not known: it counts as spent now, and is forgotten no earlier than it may be.
            self._run("UPDATE answers SET time = ? WHERE time IS NULL", self._now())
            self._secret = bytes(self._run("SELECT secret FROM device")[0][0])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _run(self, statement: str, *values: float | str | bytes | None) -> list[Any]:
        """What one statement gives, all of it."""
        return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on disk when it ends."""
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
        """Enter a campaign for the first time, fixing its schema, how it asks people, the cap, the token and the collector's
        address; afterwards check schema, assignment, token and address.

        The cap is the most epsilon that this device spends on the campaign, whatever the collector announces later; of
        several caps given over time the smallest counts. A campaign's id and schema are public, so another server may show
        them too: token and reports go to the first address only, unless the application says that the collector has `moved`.
        """
        check_between("cap", cap, 0, math.inf, ends="()", error=PrivacyError)
        campaign = announcement.campaign.hex()
        with self.transaction():
            found = self._run(
                "SELECT fingerprint, token, assignment FROM campaigns WHERE campaign = ?", campaign
            )
            if not found:
                fresh = self.source(32) if token is None else token
                self._run(
                    "INSERT INTO campaigns (campaign, fingerprint, cap, token, address, assignment, drawn) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    *(
                        campaign,
                        announcement.schema.fingerprint,
                        cap,
                        fresh,
                        address,
                        announcement.assignment,
                    ),
                    int(token is None),
                )
                return fresh
            self.check_address(campaign, address, moved)
            fingerprint, held, assignment = found[0]
            if fingerprint != announcement.schema.fingerprint:
                raise PrivacyError(
                    f"campaign {campaign} has changed its schema; refusing to go on", where="schema"
                )
            if assignment not in (
                None,
                announcement.assignment,
            ):  # one answer in all must not become one in each round
                raise PrivacyError(
                    f"campaign {campaign} asked people by {assignment} and now by {announcement.assignment}; refusing to go on",
                    where="assignment",
                    value=announcement.assignment,
                )
            if token is not None and not hmac.compare_digest(token, bytes(held)):
                raise PrivacyError(
                    f"this device takes part in campaign {campaign} with another token",
                    where="token",
                )
            kept = "UPDATE campaigns SET cap = min(cap, ?), address = ?, assignment = ? WHERE campaign = ?"
            self._run(kept, cap, address, announcement.assignment, campaign)
            return bytes(held)

    def drew_token(self, campaign: str) -> bool:
        """Return whether this device drew the campaign's token itself; False where an earlier version did not note it."""
        return self._run("SELECT drawn FROM campaigns WHERE campaign = ?", campaign) == [(1,)]

    def check_address(self, campaign: str, address: str, moved: bool = False) -> None:
        """Refuse to deal with a campaign at another address than the one where it was joined."""
        found = self._run("SELECT address FROM campaigns WHERE campaign = ?", campaign)
        if found and found[0][0] not in (None, address) and not moved:
            raise PrivacyError(
                f"this device takes part in campaign {campaign} at {found[0][0]}, not at {address}; if the collector has moved, "
                "say so",
                where="address",
                value=address,
            )

    def cap(self, campaign: str) -> float:
        """The most epsilon this device spends on a campaign; nothing on one it has not joined."""
        found = self._run("SELECT cap FROM campaigns WHERE campaign = ?", campaign)
        return float(found[0][0]) if found else 0.0

    def spent(self, campaign: str) -> float:
        """The epsilon of everything answered in a campaign, added up and rounded up."""
        return self._sum("SELECT epsilon FROM answers WHERE campaign = ?", campaign)

    def limits(self) -> tuple[float | None, float | None]:
        """The `cap_total` and the `period` in force."""
        cap_total, period = self._run("SELECT cap_total, period FROM device")[0]
        return cap_total, period

    def spent_total(self) -> float:
        """The epsilon of everything answered in all campaigns within the last period, added up and rounded up."""
        period = self.limits()[1]
        since = -math.inf if period is None else self._now() - period
        return self._sum("SELECT epsilon FROM answers WHERE time > ?", since)

    def _sum(self, query: str, value: str | float) -> float:
        parts = [float(r[0]) for r in self._run(query, value) if r[0] > 0]
        return math.nextafter(math.fsum(parts), math.inf) if len(parts) > 1 else math.fsum(parts)

    def _now(self) -> float:
        """The clock's time, or the latest ever seen if that is later."""
        now = self._clock()
        check_finite("clock", now)
        self._run("UPDATE device SET latest = max(latest, ?)", now)
        return float(self._run("SELECT latest FROM device")[0][0])

    def answers_of(self, campaign: str, number: int) -> str | None:
        """The digest of the plan answered in a round, None if it was not."""
        found = self._run(
            "SELECT plan FROM answers WHERE campaign = ? AND round = ?", campaign, number
        )
        return str(found[0][0]) if found else None

    def answered_rounds(self, campaign: str) -> list[int]:
        """The rounds of a campaign in which this device has made a report, in order."""
        return [
            int(r[0])
            for r in self._run(
                "SELECT round FROM answers WHERE campaign = ? ORDER BY round", campaign
            )
        ]

    def check_spending(self, campaign: str, epsilon: float) -> None:
        """Refuse what would take the campaign's total above its cap, or the device's above `cap_total`."""
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
        """The answer given to this very question before; an error if its attributes were asked in another way."""
        asked = json.dumps(sorted(question.attributes))
        if not self._run(
            "SELECT 1 FROM asked WHERE campaign = ? AND attributes = ?", campaign, asked
        ):
            return None
        found = self._run("SELECT payload FROM memo WHERE key = ?", self._key(campaign, question))
        if not found:
            raise PrivacyError(
                f"campaign {campaign} asks about {', '.join(question.attributes)} a second time, and no earlier answer "
                "can be repeated",
                where="question",
                value=question.attributes,
            )
        return bytes(found[0][0])

    def remember(self, campaign: str, question: Question, payload: bytes) -> None:
        """Note that a question was answered; with a memo, also how. Call it inside a transaction."""
        asked = json.dumps(sorted(question.attributes))
        self._run("INSERT OR IGNORE INTO asked VALUES (?, ?)", campaign, asked)
        if self._memo:
            self._run("INSERT INTO memo VALUES (?, ?)", self._key(campaign, question), payload)

    def enter(self, announcement: Announcement, epsilon: float, body: bytes) -> None:
        """Enter an answer into the ledger and the outbox. Call it inside a transaction."""
        assert announcement.plan is not None
        campaign, number = announcement.campaign.hex(), announcement.plan.round
        query = (
            "SELECT coalesce(sum(length(body)), 0), coalesce(sum(length(body) * (o.campaign = ?)), 0) "
            "FROM outbox o JOIN campaigns c USING (campaign) "
            "WHERE c.address IS (SELECT address FROM campaigns WHERE campaign = ?)"
        )
        held, own = self._run(query, campaign, campaign)[0]
        if held + len(body) > OUTBOX_BYTES or own + len(body) > CAMPAIGN_BYTES:
            raise PrivacyError(
                "the outbox is full; send what waits in it first", where="outbox", value=held
            )
        self._run(
            "INSERT INTO answers (campaign, round, plan, epsilon, time) VALUES (?, ?, ?, ?, ?)",
            *(campaign, number, announcement.plan_digest, epsilon, self._now()),
        )
        self._run(
            "INSERT INTO outbox (campaign, round, body) VALUES (?, ?, ?)", campaign, number, body
        )

    def outbox(self, campaign: str | None = None) -> list[WaitingReport]:
        """Every report made and what became of it; bytes are dropped once a report has been acknowledged."""
        query = "SELECT campaign, round, body, state FROM outbox WHERE ? IS NULL OR campaign = ? ORDER BY campaign, round"
        return [WaitingReport(*row) for row in self._run(query, campaign, campaign)]

    def note_known(self, campaign: str, known: bool) -> float:
        """Note whether the collector has the campaign; return for how many seconds it has said that it has not."""
        if known:
            self._run("UPDATE campaigns SET unknown_since = NULL WHERE campaign = ?", campaign)
            return 0.0
        now = self._now()
        self._run(
            "UPDATE campaigns SET unknown_since = coalesce(unknown_since, ?) WHERE campaign = ?",
            now,
            campaign,
        )
        found = self._run("SELECT unknown_since FROM campaigns WHERE campaign = ?", campaign)
        return now - float(found[0][0]) if found else 0.0

    def settle(self, waiting: WaitingReport, state: str) -> None:
        """Note what became of a report; its bytes are no longer needed."""
        with self.transaction():
            settled = "UPDATE outbox SET state = ?, body = ? WHERE campaign = ? AND round = ?"
            self._run(settled, state, b"", waiting.campaign, waiting.round)

    def _key(self, campaign: str, question: Question) -> bytes:
        """The memo's key: without the secret the file does not tell which questions were answered."""
        text = json.dumps([campaign, question.to_json()], sort_keys=True)
        return hmac.new(self._secret, text.encode(), hashlib.sha256).digest()
