"""Published releases: public from publication by a curator until it is withdrawn.

A published release has replicates, so all figures have intervals; they are made at the
first publication and kept. Visitors cannot distinguish a missing campaign from a
private one: both take the same lookup and have the same answer.
"""

from __future__ import annotations

import io
import logging
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import sqlalchemy as sa

from dither.collector import limits
from dither.collector.answering import Question, digest_of
from dither.collector.audit import note
from dither.collector.exploring import Explored, View
from dither.collector.layout import Transaction, campaigns, publications
from dither.collector.problems import Problem
from dither.collector.questions import Questions
from dither.errors import ParameterError, StateError
from dither.release.query import Answer, AnswerTable
from dither.release.report import ReportBody

T = TypeVar("T")
# Contents of reports and manifests in memory.
MAX_KEPT = 16
# One file in a release's folder.
MAX_FILE_BYTES = 1 << 30
_ID = re.compile("[0-9a-f]{2,64}")
log = logging.getLogger("dither.collector")


def no_release() -> Problem:
    """Return the error for a release that does not exist or that the reader may not see."""
    return Problem("not-found", "there is no such release")


@dataclass(frozen=True)
class Published:
    """A release that may be read, and by which bytes it is known."""

    campaign: str
    digest: str
    public: bool


class PublicationTable:
    """The publications in a store; every change is in the audit log."""

    def __init__(self, write: Transaction, read: Transaction) -> None:
        self._write, self._read = write, read

    def find(self, campaign: str) -> Published | None:
        """A release that was ever published, by one key lookup in every case."""
        c = publications.c
        with self._read(limits.ANSWER_SECONDS) as connection:
            query = sa.select(c.digest, c.public).where(c.campaign == campaign)
            found = connection.execute(query).one_or_none()
        return None if found is None else Published(campaign, found.digest, bool(found.public))

    def public(self, listed: bool = False) -> list[str]:
        """The ids of the campaigns with a public release; with `listed`, of those listed."""
        c = publications.c
        query = sa.select(c.campaign).where(c.public == 1).order_by(c.campaign)
        if listed:
            query = query.where(c.listed == 1)
        with self._read(limits.ANSWER_SECONDS) as connection:
            return list(connection.scalars(query))

    def release(self, campaign: str) -> bytes | None:
        """The zip file of a release that was ever published, with its replicates."""
        with self._read(limits.WORK_SECONDS) as connection:
            return connection.scalar(
                sa.select(publications.c.release).where(publications.c.campaign == campaign)
            )

    def publish(
        self, campaign: str, digest: str, release: bytes | None, listed: bool = True
    ) -> str:
        """Make a release public and return its digest; the first time store its bytes.

        `listed` also holds for a release that is public already.

        Replicates take long. If the release was published in the mean time, that one is
        kept; the campaign may also have been deleted.
        """
        c = publications.c
        with self._write(limits.WORK_SECONDS) as connection:
            there = sa.select(campaigns.c.id).where(campaigns.c.id == campaign).with_for_update()
            if connection.scalar(there) is None:
                raise StateError(f"campaign {campaign[:64]} was deleted meanwhile")
            known = connection.execute(
                sa.select(c.digest, c.public, c.listed).where(c.campaign == campaign)
            ).one_or_none()
            if known is None:
                values = {
                    "campaign": campaign,
                    "public": 1,
                    "digest": digest,
                    "release": release,
                    "listed": int(listed),
                }
                connection.execute(sa.insert(publications).values(values))
            else:
                digest = known.digest
                if known.public and bool(known.listed) == listed:
                    return digest
                changed = {"public": 1, "listed": int(listed)}
                connection.execute(
                    sa.update(publications).where(c.campaign == campaign).values(changed)
                )
            place = "" if listed else ", not listed"
            note(connection, "publish-release", campaign, f"sha256 {digest}{place}")
        return digest

    def unpublish(self, campaign: str) -> bool:
        """Make a release private again; False if it was."""
        c = publications.c
        with self._write(limits.WORK_SECONDS) as connection:
            changed = (
                sa.update(publications)
                .where(c.campaign == campaign, c.public == 1)
                .values(public=0)
            )
            if connection.execute(changed).rowcount == 0:
                return False
            note(connection, "unpublish-release", campaign)
            return True

    def is_finalised(self, campaign: str) -> bool:
        """Whether a campaign has a release, public or not."""
        c = campaigns.c
        with self._read(limits.ANSWER_SECONDS) as connection:
            return (
                connection.scalar(sa.select(c.id).where(c.id == campaign, c.release.is_not(None)))
                is not None
            )

    def finalised(self, campaign: str) -> bytes | None:
        """The zip file of a finalised campaign, public or not."""
        with self._read(limits.WORK_SECONDS) as connection:
            return connection.scalar(
                sa.select(campaigns.c.release).where(campaigns.c.id == campaign)
            )


class Publications:
    """Access to releases by readers. All methods query the store in a thread that may block."""

    def __init__(self, table: PublicationTable, questions: Questions) -> None:
        self._table, self._questions = table, questions
        self._guard = Lock()
        self._digests: dict[str, str] = {}
        self._kept: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def public(self, listed: bool = False) -> list[str]:
        """The campaigns with a public release; with `listed`, those on the first page."""
        return self._table.public(listed)

    def is_public(self, campaign: str) -> bool:
        """Whether a campaign's release is public."""
        found = self._table.find(campaign)
        return found is not None and found.public

    def find(self, campaign: str, everything: bool) -> Published:
        """A readable release: a public one, or any if the reader has a key (`everything`)."""
        # An invalid id takes the same lookup as a missing one.
        campaign = campaign if _ID.fullmatch(campaign) else ""
        found = self._table.find(campaign)
        if found is not None and (found.public or everything):
            return found
        if everything and (digest := self._finalised(campaign)):
            return Published(campaign, digest, False)
        raise no_release()

    def _finalised(self, campaign: str) -> str:
        """The digest of a release that was never published; empty if it does not exist.

        A release never changes until its campaign is deleted, so the store is always
        asked.
        """
        if not self._table.is_finalised(campaign):
            self._digests.pop(campaign, None)
            return ""
        known = self._digests.get(campaign, "")
        if not known and (data := self._table.finalised(campaign)) is not None:
            known = self._digests[campaign] = digest_of(data)
        return known

    def publish(self, campaign: str, listed: bool = True) -> Published:
        """Publish a release. The first time takes about twenty fits, for its replicates.

        Args:
            campaign: The campaign.
            listed: Whether the collector's first page and comparisons name the release.
        """
        found = self._table.find(campaign)
        if found is not None:
            digest = self._table.publish(campaign, found.digest, None, listed)
            return Published(campaign, digest, True)
        data = self._table.finalised(campaign)
        if data is None:
            raise StateError(f"campaign {campaign[:64]} has no release yet; finalise it first")
        try:
            data = self._questions.with_replicates(digest_of(data), data)
        except ParameterError as error:
            log.warning(
                "the release of campaign %s is published without replicates: %s", campaign, error
            )
        digest = self._table.publish(campaign, digest_of(data), data, listed)
        return Published(campaign, digest, True)

    def unpublish(self, campaign: str) -> bool:
        """Hide a release from readers without a key; False if it was hidden already.

        Downloaded copies remain.
        """
        return self._table.unpublish(campaign)

    def archive(self, found: Published) -> bytes:
        """The release's folder as a zip file."""
        data = self._table.release(found.campaign)
        if data is None or digest_of(data) != found.digest:
            data = self._table.finalised(found.campaign)
        # The release was deleted in the mean time.
        if data is None:
            raise no_release()
        return data

    def file(self, found: Published, name: str) -> bytes | None:
        """One file of the release's folder; None if it is not there."""
        with zipfile.ZipFile(io.BytesIO(self.archive(found))) as archive:
            if name not in archive.namelist():
                return None
            if archive.getinfo(name).file_size > MAX_FILE_BYTES:
                raise ParameterError(
                    f"{name} is too large to be sent by itself; download the folder", where=name
                )
            return archive.read(name)

    def manifest(self, found: Published) -> bytes:
        """The manifest, as the folder has it."""
        return self._keep("manifest", found, lambda: self.file(found, "release.json") or b"{}")

    def schema(self, found: Published) -> bytes:
        """The schema file, as the folder has it."""
        return self._keep("schema", found, lambda: self.file(found, "schema.json") or b"{}")

    def report(self, found: Published) -> ReportBody:
        """The report's content."""
        return self._keep(
            "report",
            found,
            lambda: self._questions.report(found.digest, lambda: self.archive(found)),
        )

    def ask(self, found: Published, question: Question) -> Answer | AnswerTable:
        """The answer to a question, with its interval."""
        return self._questions.answer(found.digest, question, lambda: self.archive(found))

    def explore(self, found: Published, view: View) -> Explored:
        """The figures of a view of the explorer; those of the whole release are kept."""

        def make() -> Explored:
            return self._questions.explore(found.digest, view, lambda: self.archive(found))

        # Readers choose the other views, so that keeping them could push out what is kept.
        return self._keep("overview", found, make) if view == View() else make()

    def _keep(self, kind: str, found: Published, make: Callable[[], T]) -> T:
        """Made once for each release, of which the latest few are kept."""
        key = (kind, found.digest)
        with self._guard:
            if key in self._kept:
                self._kept.move_to_end(key)
                known: T = self._kept[key]
                return known
        made = make()
        with self._guard:
            self._kept[key] = made
            while len(self._kept) > 3 * MAX_KEPT:
                self._kept.popitem(last=False)
        return made
