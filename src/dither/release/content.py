"""What every kind of release provides: its questions, its files, its report and its guarantee.

A `Release` is an envelope of facts around one `Content`. There are four kinds: a model over the
attributes of a table (`TableContent`), the cells of one number with its consumers' histograms
(`NumberContent`), the cells of a trusted curator's histogram (`CellsContent`), and the reports of a
panel (`PanelContent`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from dither.errors import QuestionError
from dither.fit import Marginal
from dither.notice import Notice
from dither.release.query.answer import Answer, AnswerTable
from dither.release.query.expression import Where
from dither.types import JsonObject, NativeTable, Progress

if TYPE_CHECKING:
    from dither.release.release import Release
    from dither.release.report import ReportBody

Kind = Literal["table", "number", "cells", "panel"]


class Questions(Protocol):
    """Answers questions about one release; see the methods of `Release` of the same names."""

    def query(self, where: Where | None, given: Where | None, level: float) -> Answer:
        """A share of people."""

    def table(
        self,
        by: Sequence[str] | str,
        where: Where | None,
        given: Where | None,
        level: float,
        simultaneous: bool,
    ) -> AnswerTable:
        """A share for each combination of values."""

    def mean(
        self, attribute: str, where: Where | None, given: Where | None, level: float
    ) -> Answer:
        """The mean of an attribute's numbers."""

    def quantiles(
        self,
        attribute: str,
        levels: Sequence[float],
        where: Where | None,
        given: Where | None,
        level: float,
    ) -> AnswerTable:
        """The numbers below which given shares of the people lie."""

    def means(
        self,
        attribute: str,
        by: Sequence[str],
        where: Where | None,
        given: Where | None,
        level: float,
    ) -> AnswerTable:
        """The mean of an attribute's numbers for each combination of values."""

    def std(self, attribute: str, where: Where | None, given: Where | None, level: float) -> Answer:
        """The standard deviation of an attribute's numbers."""

    def corr(
        self, first: str, second: str, where: Where | None, given: Where | None, level: float
    ) -> Answer:
        """Pearson's correlation of two attributes' numbers."""

    def count(self, where: Where | None, level: float) -> Answer:
        """A number of people."""


class Content(Protocol):
    """One kind of release. Methods take the release that holds the content, for its facts."""

    kind: ClassVar[Kind]
    files: ClassVar[tuple[str, ...]]
    # Whether participants answered, or rows of a table in their place.
    from_participants: ClassVar[bool]

    @property
    def synthetic(self) -> NativeTable:
        """The synthetic table; `QuestionError` where there is none."""

    @property
    def trust_model(self) -> str:
        """Which party has to be trusted."""

    @property
    def between(self) -> str:
        """What the guarantee makes hard to distinguish."""

    def check(self, release: Release) -> None:
        """Raise an error if the content and the facts around it do not belong together."""

    def warnings(self, release: Release) -> Sequence[Notice]:
        """The warnings that the content calls for."""

    def guarantee(self, release: Release) -> str:
        """The promise to each participant, in one sentence."""

    def readers(self, release: Release) -> str:
        """The promise against people who see only the release, in one sentence."""

    def describe(self, release: Release) -> str:
        """The release in a few words, for its `repr`."""

    def questions(
        self, release: Release, progress: Progress | None = None, reason: str = ""
    ) -> Questions:
        """Answer questions; with a `reason`, no replicates are made and answers state it."""

    def marginal(self, release: Release, attributes: Sequence[str]) -> Marginal:
        """The distribution of some attributes."""

    def manifest(self, release: Release) -> JsonObject:
        """The keys that this kind adds to the manifest."""

    def write(self, release: Release, folder: Path, form: str) -> None:
        """Write the files of this kind."""

    def check_shown(self, release: Release) -> None:
        """Raise an error if the report could not show what the manifest says."""

    def report(self, release: Release) -> ReportBody:
        """The content of the report."""


def unanswerable(kind: Kind, question: str) -> QuestionError:
    """The error for a question that a release of this kind cannot answer."""
    return QuestionError(
        f"{_ABOUT[kind]} has no {question}; it has {_OFFERS[kind]}", where=question
    )


_ABOUT: dict[Kind, str] = {
    "table": "a release of a table",
    "number": "a release of one number",
    "cells": "a release of a trusted curator",
    "panel": "a panel",
}
_OFFERS: dict[Kind, str] = {
    "table": "query, table, mean, quantile, marginal, count and synthetic",
    "number": "query, table, mean, quantile, marginal, count and consumers",
    "cells": "query, table, mean, quantile, marginal, count and synthetic",
    "panel": "query and table of a wave, change and trend",
}
