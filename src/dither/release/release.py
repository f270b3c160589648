"""Releases: one envelope of facts around a model, a number's cells, a curator's cells or a panel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from dither import __version__
from dither.checks import check_choice, check_whole, check_whole_or_none
from dither.display import Picture, as_pandas, as_polars, printable
from dither.errors import ParameterError, PrivacyError, QuestionError
from dither.fit import Marginal, Model
from dither.fit.raked import Raked, rake, read_totals
from dither.fit.ruled import core_of
from dither.mechanisms import check_spent
from dither.methods import Diagnostics, EarlierReports, MethodRun, method, restore
from dither.methods.histogram.consumer import Partition
from dither.methods.histogram.machine import HistogramMachine
from dither.methods.mean import Mean
from dither.notice import SHOWS_TRUTH, Notice, notice_from_json
from dither.private_files import make_private
from dither.progress import followed
from dither.randomness import check_seed
from dither.release.amplification import CentralGuarantee, central_guarantee
from dither.release.call import (
    MIN_REPLICATES,
    AskedRound,
    Call,
    asked_in,
    call_from_json,
    plain,
)
from dither.release.cells import CellsContent
from dither.release.content import Content, Questions, unanswerable
from dither.release.fit_checks import heldout_notes, rounds_notes
from dither.release.folder import (
    FORMAT,
    MANIFEST,
    REPORT,
    SCHEMA,
    check_digests,
    file_digests,
    mixed,
    read_manifest,
    reading,
    write_folder,
    write_json,
)
from dither.release.inference import Family, Regression, regress
from dither.release.intervals import Bootstrap
from dither.release.manipulation import manipulation_notes
from dither.release.misfit import misfit_notes
from dither.release.number import ConsumerHistogram, NumberContent
from dither.release.panel import PanelContent
from dither.release.prior import read_prior
from dither.release.query.answer import Answer, AnswerTable
from dither.release.query.expression import Where
from dither.release.query.numbers import number_schema
from dither.release.replicates import pack_replicates, prepare_bootstrap, unpack_replicates
from dither.release.report import plot_dependence, release_html, render_body
from dither.release.table import TableContent, Truth
from dither.release.words import EARLIER_REPLAYED, earlier_release, noise_sentence
from dither.schema import Schema, load_schema
from dither.schema.files import write_table
from dither.schema.table import (
    Layout,
    decode,
    plain_layout,
    public_layout,
    read_columns,
    to_arrow,
)
from dither.types import JsonMapping, JsonObject, NativeTable, Progress

MAX_TABLES = 99
_CONTENTS: dict[
    str, type[TableContent] | type[NumberContent] | type[CellsContent] | type[PanelContent]
] = {
    "table": TableContent,
    "number": NumberContent,
    "cells": CellsContent,
    "panel": PanelContent,
}
FILES = (
    MANIFEST,
    REPORT,
    SCHEMA,
    *dict.fromkeys(name for content in _CONTENTS.values() for name in content.files),
    *(f"synthetic-{i:02d}.{form}" for i in range(1, MAX_TABLES + 1) for form in ("parquet", "csv")),
)


# Without eq: contents hold arrays and tables, which have no single truth value when compared.
@dataclass(frozen=True, repr=False, eq=False)
class Release:
    """The outcome of a campaign, a simulation or a curator's run.

    Questions (`query`, `table`, `mean`, `quantile`, `marginal`, `count`) and files are the same for
    every kind of content; a question that a kind cannot answer raises `QuestionError`.

    Args:
        call: What was asked for, every option that can change the release.
        content: The published figures: a model, a number's cells, or a curator's cells.
        schema: The public domain of a record.
        epsilon_achieved: The guarantee of one participant's whole record over the whole campaign.
            It never exceeds `epsilon_asked`, and is infinite for a release without privacy.
        participants: How many people took part; None where that is private (a curator's release
            under add-remove).
        rounds: How many rounds were asked.
        rows: The rows of the synthetic table, 0 without one.
        seconds: The time that each stage took.
        notes: Facts that the method reports about its fit.
        warnings: What a reader has to know. Those that the release calls for are added.
        truth: The true marginals, in a simulation only. The report shows them; no other file does.
        clipped: How many values of each attribute lay outside its domain, in a simulation only; a
            true count, which no file holds.
        description: The method in one sentence.
        reference: The method's paper.

    >>> import dither
    >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex", "income"], rows=10)
    >>> answer = release.query("sex == 'Female'")
    >>> answer.low < answer.estimate < answer.high
    True
    """

    call: Call
    content: Content
    schema: Schema
    epsilon_achieved: float
    participants: int | None
    rounds: int
    rows: int
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: JsonMapping = field(default_factory=dict)
    warnings: Sequence[Notice] = ()
    truth: Truth | None = field(default=None, compare=False)
    clipped: Mapping[str, int] = field(default_factory=dict, compare=False)
    description: str = ""
    reference: str = ""
    dither_version: str = __version__

    @classmethod
    def from_machine(
        cls,
        run: MethodRun,
        call: Call,
        participants: int,
        draw: tuple[np.random.Generator, np.random.Generator],
        layout: Layout | None = None,
        *,
        seconds: Mapping[str, float] | None = None,
        **facts: Any,
    ) -> Release:
        """The release of a finished protocol over whole records.

        Args:
            run: The finished protocol.
            call: What was asked for; its parameters are filled in from the run.
            participants: How many people took part.
            draw: The generators of the synthetic codes and of values inside their bins.
            layout: The columns' types, if known.
            seconds: The time of the stages so far.
            facts: Facts that only a simulation has: the truth, clipped values, warnings.
        """
        begun = time.perf_counter()
        model = run.model()
        fitted = time.perf_counter()
        chosen = method(run.method)
        facts_of_run = run.diagnostics()
        content = {
            "measured": tuple(run.measured()),
            "asked": asked_in(run.plans),
            "central": _central_guarantee(run, call, participants),
            "state": _stored_state(run, facts_of_run),
        }
        notes = {
            **facts_of_run.to_json(),
            **heldout_notes(run, model),
            **manipulation_notes(
                run,
                participants,
                issued=call.participation == "tokens",
                on_arrival=call.simulated or call.assignment == "arrival",
            ),
            # The fit is compared with its input, without rules and held-out answers.
            **misfit_notes(run.machine, core_of(model)),
            **({} if call.simulated else rounds_notes(model, run.tallies)),
        }
        return cls.from_model(
            model,
            replace(call, parameters=run.plain_parameters()),
            participants,
            draw,
            layout,
            seconds={**(seconds or {}), "fit": round(fitted - begun, 4)},
            content=content,
            epsilon_achieved=max(plan.epsilon for plan in run.plans),
            rounds=len(run.plans),
            notes=notes,
            description=chosen.summary,
            reference=chosen.reference,
            **facts,
        )

    @classmethod
    def from_model(
        cls,
        model: Model,
        call: Call,
        participants: int,
        draw: tuple[np.random.Generator, np.random.Generator],
        layout: Layout | None = None,
        *,
        seconds: Mapping[str, float],
        content: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Release:
        """The release of a model, with a synthetic table drawn from it.

        `content` has further fields of `TableContent`, `facts` those of the release.
        """
        begun = time.perf_counter()
        schema, rows = model.schema, participants if call.rows is None else call.rows
        codes = model.sample(rows, draw[0])
        columns = plain_layout(schema) if layout is None else layout
        synthetic = decode(codes, schema, columns, draw[1])
        return cls(
            call=call,
            content=TableContent(model, synthetic, **(content or {})),
            schema=schema,
            participants=participants,
            rows=rows,
            seconds={**seconds, "sample": round(time.perf_counter() - begun, 4)},
            **facts,
        )

    @classmethod
    def from_number(
        cls,
        machine: HistogramMachine[Any] | Mean,
        call: Call,
        attribute: str,
        partition: Partition | None = None,
        *,
        consistent: bool = False,
        **facts: Any,
    ) -> Release:
        """The release of a finished protocol about one number.

        Args:
            machine: The finished protocol.
            call: What was asked for; its parameters are filled in from the machine.
            attribute: The number's name.
            partition: The union of all consumers' edges; the method `mean` needs none.
            consistent: Whether counts are made consistent and non-negative.
            facts: Further fields of the release.
        """
        parameters = dict(machine.plain_parameters())
        parameters.pop("consumers", None)
        clip = not call.simulated and machine.campaign.schema.attributes[0].clip
        if isinstance(machine, Mean):
            content = NumberContent.from_mean(machine, attribute, clip=clip)
            participants = machine.answer().people
        else:
            assert partition is not None
            content = NumberContent.from_histograms(
                machine, attribute, partition, consistent=consistent, clip=clip
            )
            participants = machine.population
            facts = {"notes": machine.diagnostics().to_json(), **facts}
        chosen = method(machine.method)
        return cls(
            **{
                "call": replace(call, parameters=parameters),
                "content": content,
                "schema": number_schema(attribute, content.partition, content.unit),
                "epsilon_achieved": machine.epsilon,
                "participants": participants,
                "rounds": len(machine.closed),
                "rows": 0,
                "description": chosen.summary,
                "reference": chosen.reference,
                **facts,
            }
        )

    def __post_init__(self) -> None:
        if not self.no_privacy:
            check_spent(self.epsilon_asked, self.epsilon_achieved)
        elif self.epsilon_achieved != math.inf:
            raise PrivacyError(
                "a release without privacy has no finite epsilon", where="epsilon_achieved"
            )
        check_whole_or_none("participants", self.participants, 0)
        if self.truth is not None and not self.simulated:
            raise ParameterError(
                "a release that was not simulated cannot know the truth", where="truth"
            )
        self.content.check(self)
        object.__setattr__(self, "warnings", tuple(self.content.warnings(self)))

    @property
    def kind(self) -> str:
        """The kind of content: "table", "number", "cells" or "panel"."""
        return self.content.kind

    @property
    def method(self) -> str:
        """The method's name."""
        return self.call.method

    @property
    def parameters(self) -> JsonMapping:
        """The method's parameters, defaults filled in."""
        return self.call.parameters

    @property
    def epsilon(self) -> float:
        """The guarantee that was achieved; infinite without privacy."""
        return self.epsilon_achieved

    @property
    def epsilon_asked(self) -> float:
        """The guarantee that was asked for; infinite without privacy."""
        return math.inf if self.call.no_privacy else self.call.epsilon

    @property
    def seed(self) -> int | None:
        """See `Call`."""
        return self.call.seed

    @property
    def simulated(self) -> bool:
        """Whether rows of a table played the participants."""
        return self.call.simulated and self.content.from_participants

    @property
    def no_privacy(self) -> bool:
        """Whether it was made from true records, for comparison."""
        return self.call.no_privacy

    @property
    def people(self) -> int:
        """The number of participants, 0 where it is private."""
        return self.participants or 0

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Why the method did less than it can, one sentence each; empty if it did not fall back."""
        if not Diagnostics.from_json(self.notes).fell_back:
            return ()
        stated = [self.notes.get(key) or () for key in ("fallback", "fallbacks")]
        reasons: list[str] = []
        for entry in stated:
            reasons += [entry] if isinstance(entry, str) else map(str, entry)
        return tuple(reasons)

    @property
    def campaign(self) -> dict[str, str | int | None] | None:
        """The campaign's id, its texts, its closing rule and its days; None if there was none."""
        call = self.call
        if call.simulated:
            return None
        return {
            "id": call.campaign,
            "name": call.name,
            "title": call.title,
            "purpose": call.purpose,
            "contact": call.contact,
            "closes": call.closes,
            "closes_at_reports": call.closes_at_reports,
            "created": call.created,
            "finalised": call.finalised,
        }

    @property
    def schema_fingerprint(self) -> str:
        """SHA-256 of the schema: releases with the same fingerprint use the same codes."""
        return self.schema.fingerprint

    @property
    def guarantee(self) -> str:
        """The promise to each participant, in one sentence."""
        return self.content.guarantee(self)

    @property
    def readers(self) -> str:
        """The promise against people who see only the release, in one sentence."""
        return self.content.readers(self)

    @property
    def replayable(self) -> bool:
        """Whether anyone who knows the seed can draw the same noise again."""
        return self.call.replayable

    @property
    def earlier(self) -> JsonMapping | None:
        """The record of the earlier release that was given as prior; None without one."""
        return earlier_release(self.notes)

    @property
    def private(self) -> bool:
        """Whether the guarantee holds against everyone who reads all that is saved.

        Noise was added, and no seed can replay it, neither this release's nor that of an earlier
        release given as prior.
        """
        earlier_private = self.earlier is None or self.earlier.get("private") is True
        return not self.no_privacy and not self.replayable and earlier_private

    @property
    def noise(self) -> str:
        """The source of the noise and whether it can be drawn again, in one sentence."""
        if self.no_privacy:
            return "None was added."
        sentence = noise_sentence(self.seed, simulated=self.call.simulated)
        replayed = self.earlier is not None and self.earlier.get("private") is not True
        return f"{sentence} {EARLIER_REPLAYED}" if replayed else sentence

    @property
    def number(self) -> NumberContent:
        """The content of a release about one number, with questions of its own.

        Raises:
            QuestionError: The release is of another kind.
        """
        if not isinstance(self.content, NumberContent):
            raise unanswerable(self.content.kind, "number")
        return self.content

    @property
    def cells(self) -> CellsContent:
        """The content of a curator's release.

        Raises:
            QuestionError: The release is of another kind.
        """
        if not isinstance(self.content, CellsContent):
            raise unanswerable(self.content.kind, "cells of a curator")
        return self.content

    @property
    def panel(self) -> PanelContent:
        """The content of a panel: its waves, reports and guarantees.

        Raises:
            QuestionError: The release is of another kind.
        """
        if not isinstance(self.content, PanelContent):
            raise unanswerable(self.content.kind, "waves")
        return self.content

    def _table(self, part: str) -> TableContent:
        if not isinstance(self.content, TableContent):
            raise unanswerable(self.content.kind, part)
        return self.content

    @property
    def synthetic(self) -> NativeTable:
        """The synthetic table; `QuestionError` for a release of one number."""
        return self.content.synthetic

    @property
    def model(self) -> Model:
        """The fitted model of a table; `QuestionError` for other kinds."""
        return self._table("model").model

    @property
    def measured(self) -> Sequence[Marginal]:
        """The marginals of a table as reports measured them."""
        return self._table("measured marginals").measured

    @property
    def asked(self) -> Sequence[AskedRound]:
        """The questions of each round of a table."""
        return self._table("record of rounds").asked

    @property
    def central(self) -> CentralGuarantee | None:
        """The guarantee of a table towards people who see the release alone, if there is one."""
        return self._table("central guarantee").central

    @property
    def state(self) -> bytes | None:
        """The finished protocol of a table: plans and tallies, noise only."""
        return self._table("tallies").state

    @property
    def replicates(self) -> Bootstrap | None:
        """The models of a table that were fitted again to redrawn answers, if there are any."""
        return self._table("replicates").replicates

    @property
    def consumers(self) -> tuple[ConsumerHistogram, ...]:
        """The consumers' histograms of one number."""
        return self.number.consumers

    def consumer(self, name: str) -> ConsumerHistogram:
        """A consumer's histogram of one number, by name.

        Args:
            name: The consumer's name.

        Returns:
            The consumer's histogram.
        """
        return self.number.consumer(name)

    def marginal(self, attributes: Sequence[str] | str) -> Marginal:
        """The distribution of some attributes.

        Args:
            attributes: One name or several.

        Returns:
            Frequencies, with standard errors or the reason for having none.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex", "income"], rows=10)
        >>> release.marginal("sex").labels
        (('Female', 'Male'),)
        """
        names = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        return self.content.marginal(self, names)

    def query(
        self,
        where: Where | None,
        given: Where | None = None,
        level: float = 0.95,
        *,
        wave: object = None,
    ) -> Answer:
        """The share of people for whom `where` holds, among those for whom `given` holds.

        A table without replicates makes them at the first question and keeps them.

        Args:
            where: Text such as `"sex == 'Female' and 30 <= age < 50 and education in
                ['Bachelors', 'Masters']"`, or a mapping such as `{"sex": "Female", "education":
                ["Bachelors", "Masters"], "age": (30, 50)}` (the upper end not included).
            given: Among which people, in the same form; all if omitted.
            level: The level of the interval.
            wave: In a panel, a value of the time column.

        Returns:
            The share with its interval, the number of people and warnings. Two answers of one
            release can be subtracted and divided.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex", "income"], rows=10)
        >>> men = release.query("sex == 'Male'")
        >>> 0.6 < men.low < men.estimate < men.high < 0.75
        True
        """
        return self.questions_at(wave).query(where, given, level)

    def table(
        self,
        *by: str | Sequence[str],
        where: Where | None = None,
        given: Where | None = None,
        level: float = 0.95,
        simultaneous: bool = False,
        wave: object = None,
    ) -> AnswerTable:
        """The share of people with each combination of values, among those for whom `given` holds.

        Args:
            by: Attributes: `table("sex", "education")`, or one list of them.
            where: Which people to count; see `query`.
            given: Among which people; all if omitted.
            level: The level of the intervals.
            simultaneous: Whether the intervals cover all rows at once. Each then has the level
                `level ** (1 / rows)`, which suffices however the rows' errors are correlated
                (Sidak 1967).
            wave: In a panel, a value of the time column.

        Returns:
            A row with share and interval for each combination of values.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex", "income"], rows=10)
        >>> [row.values for row in release.table("sex", "income").rows]
        [('Female', '<=50K'), ('Female', '>50K'), ('Male', '<=50K'), ('Male', '>50K')]
        """
        questions = self.questions_at(wave)
        return questions.table(_names(by), where, given, level, simultaneous)

    def change(
        self, first: object, second: object, where: Where | None, level: float = 0.95
    ) -> Answer:
        """How much a share of a panel's people changed from one wave to another.

        People who answered in both waves have the same permanent noise in both, which the
        interval takes into account.

        Args:
            first: A value of the time column.
            second: Another one.
            where: Which people; see `query`.
            level: The level of the interval.

        Returns:
            The share in the second wave less that in the first.

        Raises:
            QuestionError: The release is no panel, or the question is about several attributes.
            ParameterError: There is no such wave.
        """
        return self.panel.change(self, first, second, where, level)

    def trend(
        self, where: Where | None, level: float = 0.95, *, simultaneous: bool = True
    ) -> AnswerTable:
        """A share of a panel's people in every wave.

        Args:
            where: Which people; see `query`.
            level: The level of the intervals.
            simultaneous: Whether the intervals cover all waves at once.

        Returns:
            The shares by wave, with a band that holds together.

        Raises:
            QuestionError: The release is no panel, or the question is about several attributes.
        """
        return self.panel.trend(self, where, level, simultaneous)

    def questions_at(self, wave: object = None, progress: Progress | None = None) -> Questions:
        """What answers questions about the release, or about one wave of a panel.

        Args:
            wave: A value of a panel's time column; None for other kinds of releases.
            progress: See `publish`; used where answers need replicates.

        Raises:
            QuestionError: A wave is given, and the release is no panel.
            ParameterError: A panel has no such wave, or none is given.
        """
        if wave is not None:
            return self.panel.at(self, wave)
        return self._questions if progress is None else self.content.questions(self, progress)

    @overload
    def mean(
        self,
        attribute: str | None = None,
        where: Where | None = None,
        given: Where | None = None,
        level: float = 0.95,
        *,
        by: None = None,
    ) -> Answer: ...

    @overload
    def mean(
        self,
        attribute: str | None = None,
        where: Where | None = None,
        given: Where | None = None,
        level: float = 0.95,
        *,
        by: str | Sequence[str],
    ) -> AnswerTable: ...

    def mean(
        self,
        attribute: str | None = None,
        where: Where | None = None,
        given: Where | None = None,
        level: float = 0.95,
        *,
        by: str | Sequence[str] | None = None,
    ) -> Answer | AnswerTable:
        """The mean of an attribute's numbers over the people for whom `where` and `given` hold.

        Missing answers are left out. The estimate takes people as evenly spread inside each bin;
        the interval covers any place of people in their bins.

        Args:
            attribute: An attribute of numbers; may be omitted if there is one alone.
            where: Which people; see `query`.
            given: A further condition.
            level: The level of the interval.
            by: Attributes; the mean of each combination of their values is then given as an
                `AnswerTable`.

        Returns:
            The mean with its interval; with `by` a table with a mean for each group.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=8.0, method="independent", columns=["age", "sex"], rows=10)
        >>> 35 < release.mean("age").estimate < 42
        True
        >>> [row.values for row in release.mean("age", by="sex").rows]
        [('Female',), ('Male',)]
        """
        name = attribute or self._only_attribute()
        if by is None:
            return self._questions.mean(name, where, given, level)
        return self._questions.means(name, _names([by]), where, given, level)

    @overload
    def quantile(
        self, attribute: str, levels: float, where: Where | None = None, level: float = 0.95
    ) -> Answer: ...

    @overload
    def quantile(
        self,
        attribute: str,
        levels: Sequence[float],
        where: Where | None = None,
        level: float = 0.95,
    ) -> AnswerTable: ...

    def quantile(
        self,
        attribute: str,
        levels: float | Sequence[float],
        where: Where | None = None,
        level: float = 0.95,
    ) -> Answer | AnswerTable:
        """The number below which a share of the people lies for whom `where` holds.

        Args:
            attribute: An attribute of numbers.
            levels: One share, which gives an `Answer`, or a list, which gives an `AnswerTable`.
            where: Which people; all if omitted.
            level: The level of the intervals.

        Returns:
            The number below which that share lies; with several levels a table.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=8.0, method="independent", columns=["age", "sex"], rows=10)
        >>> 33 < release.quantile("age", 0.5).estimate < 41
        True
        """
        if not isinstance(levels, int | float):
            return self._questions.quantiles(attribute, levels, where, None, level)
        return self._questions.quantiles(attribute, [levels], where, None, level).only()

    def median(
        self, attribute: str | None = None, where: Where | None = None, level: float = 0.95
    ) -> Answer:
        """The median of an attribute's numbers: `quantile(attribute, 0.5)`.

        Args:
            attribute: An attribute of numbers; may be omitted if there is one alone.
            where: Which people; all if omitted.
            level: The level of the interval.

        Returns:
            The median with its interval.
        """
        return self.quantile(attribute or self._only_attribute(), 0.5, where, level)

    def std(
        self,
        attribute: str | None = None,
        where: Where | None = None,
        given: Where | None = None,
        level: float = 0.95,
    ) -> Answer:
        """The standard deviation of an attribute's numbers.

        People are taken as evenly spread inside each bin, and that spread is counted.

        Args:
            attribute: An attribute of numbers; may be omitted if there is one alone.
            where: Which people; see `query`.
            given: A further condition.
            level: The level of the interval (delta method).

        Returns:
            The standard deviation with its interval.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=8.0, method="independent", columns=["age", "sex"], rows=10)
        >>> 10 < release.std("age").estimate < 17
        True
        """
        return self._questions.std(attribute or self._only_attribute(), where, given, level)

    def corr(
        self,
        first: str,
        second: str,
        where: Where | None = None,
        given: Where | None = None,
        level: float = 0.95,
    ) -> Answer:
        """Pearson's correlation of two attributes' numbers.

        People are taken as evenly spread inside each bin. A method that models attributes as
        independent gives zero.

        Args:
            first: An attribute of numbers.
            second: Another one.
            where: Which people; see `query`.
            given: A further condition.
            level: The level of the interval (delta method).

        Returns:
            The correlation with its interval.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=8.0, method="calm", columns=["age", "hours_per_week"], rows=10)
        >>> -0.2 < release.corr("age", "hours_per_week").estimate < 0.4
        True
        """
        return self._questions.corr(first, second, where, given, level)

    def count(self, where: Where | None = None, *, level: float = 0.95) -> Answer:
        """The number of people for whom `where` holds.

        Args:
            where: Which people; see `query`.
            level: The level of the interval.

        Returns:
            The number of people with its interval.
        """
        return self._questions.count(where, level)

    @cached_property
    def _questions(self) -> Questions:
        return self.content.questions(self)

    @cached_property
    def bootstrap(self) -> Bootstrap:
        """The replicates of a table's release; without stored ones they are made once."""
        made = self._table("replicates").replicates
        if made is None and self.no_privacy:
            raise QuestionError(
                "no interval: this release was made from the true records, without any noise",
                where="replicates",
            )
        return prepare_bootstrap(self) if made is None else made

    def regress(
        self, formula: str, family: Family = "gaussian", *, level: float = 0.95
    ) -> Regression:
        """A generalised linear model fitted to the release, with intervals that hold.

        A regression on the synthetic rows treats one draw from one fit as if it were data: its
        intervals are too narrow. Here the model's own table is regressed on, and the errors
        contain noise, fit and sampling. A number of a bin counts as the bin's middle; rows with a
        missing answer are left out. Needs the extra `stats` (statsmodels, patsy).

        Args:
            formula: A formula as in statsmodels, such as "pay ~ age + C(sex)".
            family: "gaussian", "binomial" or "poisson", with its canonical link. A binomial
                response has two values, of which the last one in the schema's order counts as
                success (True, 1, ">50K"), or lies in [0, 1].
            level: The level of the intervals.

        Returns:
            Coefficients with standard errors and intervals, and their covariance.

        Raises:
            QuestionError: How the attributes depend on each other was not learnt.
            ParameterError: The formula cannot be read or its coefficients are not determined.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=8.0, method="calm", columns=["age", "income"], rows=10)
        >>> fitted = release.regress("income ~ age", family="binomial")
        >>> list(fitted.coefficients["name"])
        ['Intercept', 'age']
        """
        return regress(self, self._table("regression"), formula, family, level)

    def tables(self, count: int, *, seed: int | None = None) -> list[NativeTable]:
        """Synthetic tables, each drawn from another replicate of the model.

        One synthetic table hides the noise of the fit. Analyse each of these and give the
        estimates and standard errors to `dither.combine`.

        Args:
            count: How many tables, from 2 on; at most as many as replicates if these are stored.
            seed: The seed of the drawn rows; by default one from the operating system.

        Returns:
            The tables, of the synthetic table's kind.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["age", "sex"], rows=10)
        >>> len(release.tables(3))
        3
        """
        content = self._table("tables")
        stored = content.replicates
        most = MAX_TABLES if stored is None else min(MAX_TABLES, len(stored.replicates))
        check_whole("count", count, 2, most)
        if stored is None:
            stored = prepare_bootstrap(self, replicates=max(count, MIN_REPLICATES))
        root = np.random.SeedSequence(seed)
        layout = public_layout(read_columns(content.synthetic)[0], self.schema, declared=True)
        drawn = []
        for model, each in zip(stored.replicates[:count], root.spawn(count), strict=True):
            draw = np.random.default_rng(each)
            drawn.append(decode(model.sample(self.rows, draw), self.schema, layout, draw))
        return drawn

    def _only_attribute(self) -> str:
        if len(self.schema) != 1:
            raise ParameterError(
                f"name the attribute; there are {', '.join(self.schema.names[:12])}",
                where="attribute",
            )
        return self.schema.names[0]

    def with_replicates(
        self,
        count: int = 20,
        seed: int = 0,
        effort: str = "quick",
        progress: Progress | bool | None = None,
    ) -> Release:
        """The same release with replicates, from which intervals are read; see `dither.bootstrap`.

        They are saved with it, so that every later question is answered from the same ones and in
        milliseconds. Other kinds than tables have their intervals without them.

        Args:
            count: How many fits are made.
            seed: The seed of the redrawn answers, which are no one's.
            effort: "quick" to fit with fewer starts, "full" to fit exactly like the release.
            progress: True for a bar, or a function that is called after each fit.

        Returns:
            The release with its replicates.
        """
        content = self._table("replicates")
        with followed(progress) as show:
            made = prepare_bootstrap(
                self, replicates=count, seed=seed, effort=effort, progress=show
            )
        # They are kept in the single precision in which they are saved, so that answers before
        # and after saving are the same to the last digit.
        stored = unpack_replicates(pack_replicates(made), content.model, made.reports)
        call = replace(self.call, replicates=count)
        return replace(self, content=replace(content, replicates=stored), call=call)

    def without_truth(self) -> Release:
        """The same release without the true figures of a simulation: its report may be shared."""
        warnings = tuple(warning for warning in self.warnings if warning != SHOWS_TRUTH)
        return replace(self, truth=None, clipped={}, warnings=warnings)

    def with_prior(self, prior: NativeTable) -> Release:
        """The release of the same reports with the fit averaged with a public table.

        The table has the release's schema: a file, a bundled dataset's name or a table in memory.
        The synthetic table is drawn again; replicates are not carried over.

        Args:
            prior: The public table, or its file or bundled name.

        Returns:
            The release with the average.
        """
        state = self._table("prior").state
        if state is None:
            raise ParameterError(
                "this release carries no tallies to fit again with a prior; give the prior when it is made",
                where="prior",
            )
        run = restore(state)
        rows = read_prior(prior, self.schema)
        run.give_prior(rows)
        call = replace(self.call, prior=rows.source, replicates=0)
        seed = run.campaign.seed
        draw = (np.random.default_rng([seed, 2]), np.random.default_rng([seed, 3]))
        return Release.from_machine(
            run, call, self.people, draw, truth=self.truth, clipped=self.clipped
        )

    def rake(
        self,
        totals: Mapping[str | tuple[str, ...], Mapping[Any, float]],
        *,
        seed: int | None = None,
    ) -> Release:
        """The release with its people weighted to known totals of the population.

        This corrects for who took part, as far as the attributes of the totals explain it: the
        result is the distribution closest to the fitted one that has these totals. Replicates
        are raked too, so intervals are those of the raked figures; without stored ones 20 are
        made. Reports are left out of the result, so it cannot be raked to further totals later:
        give all totals at once.

        Args:
            totals: For an attribute, or a tuple of attributes, the share or number of people of
                each value or tuple of values; numbers are divided by their sum. Values that
                are left out have nobody.
            seed: The seed of the new synthetic rows; by default one from the operating system.

        Returns:
            The raked release, with replicates.

        Raises:
            ParameterError: A value is unknown, or the totals contradict each other.

        >>> import dither
        >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex", "income"], rows=100)
        >>> raked = release.rake({"sex": {"Female": 51, "Male": 49}})
        >>> round(raked.query("sex == 'Female'").estimate, 6)
        0.51
        """
        content = self._table("raking")
        if isinstance(content.model, Raked):
            raise ParameterError("this release is raked already; give all totals at once")
        read = read_totals(self.schema, totals)
        made = self.bootstrap
        models = tuple(rake(model, read) for model in made.replicates)
        model = rake(content.model, read)
        draw = np.random.default_rng(seed)
        layout = public_layout(read_columns(content.synthetic)[0], self.schema, declared=True)
        synthetic = decode(model.sample(self.rows, draw), self.schema, layout, draw)
        known = " and ".join(" x ".join(names) for names in read)
        notice = Notice("raked", f"people are weighted to known totals of {known}")
        replicates = replace(made, model=model, replicates=models, reports=None)
        fresh = replace(
            content,
            model=model,
            synthetic=synthetic,
            measured=(),
            state=None,
            replicates=unpack_replicates(pack_replicates(replicates), model, None),
        )
        return replace(
            self,
            content=fresh,
            call=replace(self.call, replicates=len(models)),
            warnings=(*self.warnings, notice),
            truth=None,
            clipped={},
        )

    def to_arrow(self) -> NativeTable:
        """The synthetic table as a PyArrow table.

        Returns:
            The table.
        """
        return to_arrow(self.synthetic)

    def to_pandas(self) -> NativeTable:
        """The synthetic table as a pandas DataFrame.

        Returns:
            The table.
        """
        return as_pandas(self.to_arrow())

    def to_polars(self) -> NativeTable:
        """The synthetic table as a polars DataFrame.

        Returns:
            The table.
        """
        return as_polars(self.to_arrow())

    def plot(self, attributes: Sequence[str] | str | None = None) -> Picture:
        """The distribution of some attributes, or the dependences of a table, for a notebook.

        Args:
            attributes: One attribute, or two or more; by default all dependences.

        Returns:
            A picture that notebooks show; `save` writes it as SVG.
        """
        if attributes is not None:
            return self.marginal(attributes).plot()
        self._table("dependences to plot")
        return plot_dependence(self)

    def _repr_html_(self) -> str:
        return release_html(self)

    def save(
        self,
        directory: str | Path,
        clock: Callable[[], float] = time.perf_counter,
        form: Literal["parquet", "csv"] = "parquet",
        *,
        overwrite: bool = False,
        tables: int = 0,
    ) -> Path:
        """Write the release's folder in one step and return its path.

        It holds release.json, report.html, schema.json and the files of its kind; a table's rows
        are in synthetic.parquet, or .csv as `form` says; with `tables`, that many further ones as
        `Release.tables` draws them are in synthetic-01.parquet and so on. Either all of it appears or nothing
        changes. A simulation's report that shows the truth can be read by its owner alone (mode
        0600).

        Args:
            directory: The folder, new or empty.
            clock: The clock of the stages' times.
            form: The format of the synthetic tables.
            overwrite: Whether an earlier release in the folder is replaced.
            tables: How many further synthetic tables are written.

        Returns:
            The folder.

        Raises:
            InputError: The folder has something in it, unless that is an earlier release and
                `overwrite` is true: then the earlier release is replaced.
        """

        check_choice("form", form, ("parquet", "csv"))
        drawn = self.tables(tables, seed=self.seed) if tables else []

        def write(folder: Path) -> None:
            started = clock()
            self.content.write(self, folder, form)
            for number, table in enumerate(drawn, start=1):
                write_table(table, folder / f"synthetic-{number:02d}.{form}")
            digests = file_digests(folder, self.content.files)
            write_json(self.schema.file_json(), folder / SCHEMA)
            page = folder / REPORT
            # The page shows the truth, so it is as confidential as the table.
            if self.truth is not None:
                make_private(page)
            page.write_text(self.report(), encoding="utf-8")
            timed = self if self.kind != "table" else self._timed("report", clock() - started)
            write_json({**timed.to_json(), "files": digests}, folder / MANIFEST)

        return write_folder(directory, FILES, write, overwrite=overwrite)

    @classmethod
    def load(cls, directory: str | Path) -> Release:
        """Read a saved release; see `dither.load_release`.

        Args:
            directory: The folder.

        Returns:
            The release.
        """
        return load_release(directory)

    def report(self) -> str:
        """The report, one HTML page without any outside resource.

        Returns:
            The page as HTML.
        """
        return render_body(self, self.content.report(self))

    def _timed(self, stage: str, seconds: float) -> Release:
        return replace(self, seconds={**self.seconds, stage: seconds})

    def to_json(self) -> JsonObject:
        """The manifest, plain JSON values only."""
        return {
            "trust_model": self.content.trust_model,
            "format": FORMAT,
            "kind": self.kind,
            "dither_version": self.dither_version,
            "method": self.method,
            "parameters": plain(self.parameters),
            "private": self.private,
            "epsilon_asked": plain(float(self.epsilon_asked)),
            "epsilon_achieved": plain(float(self.epsilon_achieved)),
            "guarantee": self.guarantee,
            "participants": None if self.participants is None else int(self.participants),
            "rounds": int(self.rounds),
            "rows": int(self.rows),
            "seed": None if self.seed is None else int(self.seed),
            "noise": self.noise,
            "seconds": {stage: float(value) for stage, value in self.seconds.items()},
            "simulated": bool(self.simulated),
            "campaign": self.campaign,
            "call": plain(self.call.to_json()),
            "schema_fingerprint": self.schema_fingerprint,
            "description": self.description,
            "reference": self.reference,
            "notes": plain(self.notes),
            "warnings": [warning.to_json() for warning in self.warnings],
            **self.content.manifest(self),
        }

    def __getstate__(self) -> dict[str, object]:
        """Everything but the truth of a simulation, which is written nowhere."""
        made = ("_questions", "bootstrap")
        state = {name: value for name, value in vars(self).items() if name not in made}
        return state | {"truth": None, "clipped": {}}

    def __repr__(self) -> str:
        fell_back = "".join(f"; fell back: {reason}" for reason in self.fallbacks)
        return printable(f"Release({self.content.describe(self)}{fell_back})")


def _names(given: Sequence[str | Sequence[str]]) -> Sequence[str]:
    """The names of one list, or of several arguments."""
    if len(given) == 1 and not isinstance(given[0], str):
        return given[0]
    names = [name for name in given if isinstance(name, str)]
    if len(names) < len(given):
        raise ParameterError("name the attributes one by one or in one list", where="by")
    return names


def load_release(directory: str | Path) -> Release:
    """Read a saved release of any kind, also of earlier versions.

    The truth of a simulation is not in the folder, so the result has none.

    Args:
        directory: The folder that `Release.save` or `dither publish` wrote.

    Returns:
        The release.

    Raises:
        InputError: The folder is no release, or a file of it is damaged or of another release.

    >>> import dither, tempfile
    >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex", "income"], rows=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dither.load_release(release.save(f"{folder}/out")).method
    'independent'
    """
    folder = Path(directory)
    manifest = read_manifest(folder)
    with reading(folder / MANIFEST):
        content_class = _CONTENTS[manifest["kind"]]
        call = call_from_json(manifest["call"])
        _check_call(call, manifest)
    # Early versions wrote no schema for a simulated number.
    early = content_class is NumberContent and manifest["format"] != FORMAT
    if early and not (folder / SCHEMA).is_file():
        with reading(folder / MANIFEST):
            schema = number_schema(manifest["number"], manifest["partition"])
    else:
        with reading(folder / SCHEMA):
            schema = load_schema(folder / SCHEMA)
    with reading(folder / MANIFEST):
        if manifest.get("schema_fingerprint", schema.fingerprint) != schema.fingerprint:
            raise mixed(folder, MANIFEST, SCHEMA)
    check_digests(folder, content_class.files, manifest.get("files"))
    content = content_class.read(folder, manifest, schema, call)
    with reading(folder / MANIFEST):
        facts = {name: _plain_field(name, manifest[name]) for name in _PLAIN_FIELDS}
        spent = manifest["epsilon_achieved"]
        release = Release(
            call=call,
            content=content,
            schema=schema,
            epsilon_achieved=math.inf if spent is None else spent,
            participants=manifest["participants"],
            warnings=tuple(notice_from_json(entry) for entry in manifest["warnings"]),
            **facts,
        )
        content.check_shown(release)
        return release


_PLAIN_FIELDS: Mapping[str, type] = {
    "rounds": int,
    "rows": int,
    "seconds": dict,
    "notes": dict,
    "description": str,
    "reference": str,
    "dither_version": str,
}
_TEXTS = (
    *("method", "path", "unknown", "name", "title", "purpose", "contact", "participation"),
    *("assignment", "epsilon_reason", "campaign", "created", "finalised"),
)


def _check_call(call: Call, manifest: JsonMapping) -> None:
    """Raise an error if a call has values of a wrong type or contradicts the manifest."""
    for name in ("method", "parameters", "seed"):
        if manifest[name] != plain(getattr(call, name)):
            raise ValueError(f"{name} is {manifest[name]!r}, and the call says otherwise"[:200])
    for name in _TEXTS:
        if not isinstance(getattr(call, name), str):
            raise ValueError(f"the call's {name} is {getattr(call, name)!r}"[:200])
    if not isinstance(call.simulated, bool) or not isinstance(call.no_privacy, bool):
        raise ValueError("the call does not say whether it was a simulation")
    check_seed(call.seed)


def _plain_field(name: str, value: Any) -> Any:
    fits = isinstance(value, _PLAIN_FIELDS[name]) and not isinstance(value, bool)
    if not fits or (isinstance(value, int) and value < 0):
        raise ValueError(f"{name} is {value!r}"[:200])
    if name == "seconds":
        return {stage: float(spent) for stage, spent in value.items()}
    return value


def _central_guarantee(run: MethodRun, call: Call, participants: int) -> CentralGuarantee | None:
    """The guarantee towards readers of the release; None where a seed can replay the noise."""
    prior = run.machine.prior
    earlier = prior if isinstance(prior, EarlierReports) else None
    if call.replayable or (earlier is not None and not earlier.private):
        return None
    if earlier is None:
        return central_guarantee(run.tallies, participants)
    # The tallies of an earlier release tell about its participants even where the fit left them
    # out: the drift that decided so is in the notes.
    people = participants + earlier.participants
    return central_guarantee([*run.tallies, *earlier.tallies], people)


def _stored_state(run: MethodRun, facts: Diagnostics) -> bytes:
    """The machine's state without the tallies of an earlier release that its fit left out."""
    prior = run.machine.prior
    if not isinstance(prior, EarlierReports) or facts.share_of_prior > 0:
        return run.state()
    run.machine.prior = None
    try:
        return run.state()
    finally:
        run.machine.prior = prior
