"""What is published: the model, a synthetic table, the guarantee, the uncertainty and where it came from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np

from dither.display import Picture, as_pandas, as_polars
from dither.errors import ParameterError, PrivacyError
from dither.fit import Marginal, Model
from dither.fit.ruled import core_of, told_within_groups
from dither.mechanisms import check_spent
from dither.methods import EarlierReports, MethodRun, method, restore
from dither.notice import Notice, shown_epsilon
from dither.progress import followed
from dither.release.amplification import CentralGuarantee, central_guarantee
from dither.release.call import AskedRound, Call, asked_in, plain
from dither.release.heldout import heldout_notes
from dither.release.intervals import Bootstrap
from dither.release.manipulation import manipulation_notes
from dither.release.misfit import misfit_notes
from dither.release.prior import read_prior
from dither.release.query.answer import Answer, AnswerTable
from dither.release.query.ask import Inquiry
from dither.release.query.expression import Where
from dither.release.replicates import pack_replicates, prepare_bootstrap, unpack_replicates
from dither.release.rounds import rounds_notes
from dither.release.standard_errors import measured_errors
from dither.release.truth import Truth
from dither.release.words import (
    EARLIER_REPLAYED,
    EARLIER_REPLAYED_TO_READERS,
    NO_GUARANTEE,
    REPLAYED_TO_READERS,
    UNBOUNDED_READERS,
    central_json,
    earlier_release,
    earlier_sentence,
    find_warnings,
    guarantee_sentence,
    noise_sentence,
    readers_sentence,
)
from dither.schema import Schema
from dither.schema.native import Layout
from dither.schema.table import decode, plain_layout
from dither.types import JsonMapping, JsonObject, NativeTable, Progress

FORMAT = "dither-release-1"
NO_ERRORS = "just these attributes were not measured together; release.with_replicates() finds out how far off the model is"


def _version() -> str:
    from dither import __version__

    return __version__


@dataclass(frozen=True)
class Release:
    """The outcome of a campaign.

    `epsilon_achieved` covers one participant's whole record over the whole campaign and never exceeds `epsilon_asked`.
    `truth` and `clipped` exist in simulations only. The truth is shown in the report and written nowhere else; `clipped` says how
    many rows' values were counted as "other" in each attribute where that happened, a true count that is written nowhere at all.
    A release with `no_privacy` was made from true records for comparison: its epsilon is infinite, and every part of it says so.
    `call` is the record of what was asked for, `state` the finished protocol (what was asked and the tallies, noise only), from
    which intervals for any marginal can be computed later. `central` is the guarantee towards those who see the release alone;
    there is none without privacy, nor where a seed can replay the noise. `replicates`
    are models fitted again to redrawn answers, made on request: all intervals of the release are read off them.

    >>> import dither
    >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex", "income"], rows=10)
    >>> answer = release.query("sex == 'Female'")
    >>> answer.low < answer.estimate < answer.high
    True
    """

    call: Call
    schema: Schema
    model: Model
    synthetic: NativeTable
    epsilon_achieved: float
    participants: int
    rounds: int
    rows: int
    measured: Sequence[Marginal] = ()
    asked: Sequence[AskedRound] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: JsonMapping = field(default_factory=dict)
    warnings: Sequence[Notice] = ()
    central: CentralGuarantee | None = None
    truth: Truth | None = field(default=None, repr=False, compare=False)
    clipped: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    state: bytes | None = field(default=None, repr=False)
    replicates: Bootstrap | None = field(default=None, repr=False, compare=False)
    description: str = ""
    reference: str = ""
    dither_version: str = field(default_factory=_version)

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
        **known: Any,
    ) -> Release:
        """The release of a finished protocol, whoever drove it.

        `call` is what was asked for (its parameters are filled in from the run), `draw` the generators of the synthetic codes
        and of values inside their bins, `layout` the columns' types where the driver knows them. `known` has what only a
        simulation knows: the truth, how many values were clipped, warnings of its input.
        """
        begun = time.perf_counter()
        model = run.model()
        fitted = time.perf_counter()
        chosen = method(run.method)
        earlier = run.machine.prior if isinstance(run.machine.prior, EarlierReports) else None
        method_notes = run.notes()
        central = None
        if not call.replayable and (earlier is None or earlier.private):
            # An earlier release's tallies tell about its participants even where the fit left them
            # out: the drift that decided so is in the notes.
            before = () if earlier is None else earlier.tallies
            people = participants + (0 if earlier is None else earlier.participants)
            central = central_guarantee([*run.tallies, *before], people)
        return cls.from_model(
            model,
            replace(call, parameters=run.plain_parameters()),
            participants,
            draw,
            layout,
            seconds={**(seconds or {}), "fit": round(fitted - begun, 4)},
            measured=tuple(run.measured()),
            epsilon_achieved=max(plan.epsilon for plan in run.plans),
            rounds=len(run.plans),
            asked=asked_in(run.plans),
            notes={
                **method_notes,
                **heldout_notes(run, model),
                **manipulation_notes(
                    run,
                    participants,
                    issued=call.participation == "tokens",
                    on_arrival=call.simulated
                    or call.assignment == "arrival",  # the default of campaigns
                ),
                # What was fitted is compared with what it was fitted to; rules and held-out answers stand around both.
                **misfit_notes(run.machine, core_of(model)),
                **({} if call.simulated else rounds_notes(model, run.tallies)),
            },
            central=central,
            state=_stored_state(run, method_notes),
            description=chosen.summary,
            reference=chosen.reference,
            **known,
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
        **facts: Any,
    ) -> Release:
        """The release of a model, with a synthetic table drawn from it and every warning it calls for."""
        begun = time.perf_counter()
        schema, rows = model.schema, participants if call.rows is None else call.rows
        codes = model.sample(rows, draw[0])
        synthetic = decode(
            codes, schema, plain_layout(schema) if layout is None else layout, draw[1]
        )
        spent = {**seconds, "sample": round(time.perf_counter() - begun, 4)}
        release = cls(
            call=call,
            schema=schema,
            model=model,
            synthetic=synthetic,
            participants=participants,
            rows=rows,
            seconds=spent,
            **facts,
        )
        return replace(release, warnings=find_warnings(release))

    def __post_init__(self) -> None:
        if not self.no_privacy:
            check_spent(self.epsilon_asked, self.epsilon_achieved)
        elif self.epsilon_achieved != math.inf:
            raise PrivacyError(
                "a release without privacy has no finite epsilon", where="epsilon_achieved"
            )
        if self.model.schema.fingerprint != self.schema.fingerprint:
            raise ParameterError(
                "the model was fitted to another schema than the release's", where="schema"
            )
        if self.truth is not None and not self.simulated:
            raise ParameterError(
                "a release that was not simulated cannot know the truth", where="truth"
            )
        if self.central is not None:
            if not self.private:
                raise PrivacyError(
                    "noise that can be replayed, or none, gives readers no guarantee",
                    where="central",
                )
            earlier = 0.0 if self.earlier is None else float(self.earlier["epsilon"])
            for bound in (self.central.known, self.central.hidden):
                check_spent(max(self.epsilon_achieved, earlier), bound.epsilon)

    @property
    def method(self) -> str:
        """The method's name."""
        return self.call.method

    @property
    def parameters(self) -> JsonMapping:
        """The method's parameters, defaults filled in."""
        return self.call.parameters

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
        return self.call.simulated

    @property
    def no_privacy(self) -> bool:
        """Whether it was made from true records, for comparison."""
        return self.call.no_privacy

    @property
    def campaign(self) -> dict[str, str | int | None] | None:
        """The campaign's id, what it said of itself, when it was to close, and the days on which it was created and finalised; None
        for a simulation."""
        if self.simulated:
            return None
        call = self.call
        told = (
            "name",
            "title",
            "purpose",
            "contact",
            "closes",
            "closes_at_reports",
            "created",
            "finalised",
        )
        return {"id": call.campaign, **{key: getattr(call, key) for key in told}}

    @property
    def schema_fingerprint(self) -> str:
        """SHA-256 of the schema: releases with the same fingerprint use the same codes."""
        return self.schema.fingerprint

    @property
    def guarantee(self) -> str:
        """What is promised to each participant, in one sentence."""
        if self.no_privacy:
            return NO_GUARANTEE
        own = guarantee_sentence(self.epsilon_achieved, simulated=self.simulated)
        return (
            own
            if self.earlier is None
            else f"{own} {earlier_sentence(self.earlier, self.epsilon_achieved)}"
        )

    @property
    def readers(self) -> str:
        """What is promised against those who see only the release, in one sentence."""
        if self.no_privacy:
            return NO_GUARANTEE
        if self.central is not None:
            return readers_sentence(
                self.central, simulated=self.simulated, pooled=self.earlier is not None
            )
        if self.replayable:
            return REPLAYED_TO_READERS
        return UNBOUNDED_READERS if self.private else EARLIER_REPLAYED_TO_READERS

    @property
    def replayable(self) -> bool:
        """Whether somebody who knows the seed can draw the same noise again: only in a simulation that was given one."""
        return self.call.replayable

    @property
    def earlier(self) -> JsonMapping | None:
        """What is recorded about the earlier release that was given as prior; None without one."""
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
        """Where the noise came from and whether it can be drawn again, in one sentence."""
        if self.no_privacy:
            return "None was added."
        own = noise_sentence(self.seed, simulated=self.simulated)
        replayed = self.earlier is not None and self.earlier.get("private") is not True
        return f"{own} {EARLIER_REPLAYED}" if replayed else own

    def marginal(self, attributes: Sequence[str] | str) -> Marginal:
        """The distribution of some attributes, with standard errors or with the reason why there are none.

        With replicates the errors are theirs, and the frequencies rest on the reports as well where these reject the model.
        Without, they are those of the reports about just these attributes, if they were measured together.
        """
        names = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        labels = tuple(self.schema[name].labels for name in names)
        if self.replicates is not None:
            found = self.replicates.interval(names)
            errors = None if found.caution else found.standard_errors
            return Marginal(names, found.frequencies, errors, labels=labels, reason=found.caution)
        errors = measured_errors(self.measured, names, self.participants)
        return Marginal(
            names,
            self.model.marginal(names),
            errors,
            labels=labels,
            reason="" if errors is not None else told_within_groups(self.model, names) or NO_ERRORS,
        )

    def query(self, where: Where, given: Where | None = None, level: float = 0.95) -> Answer:
        """The share of people for whom `where` holds, among those for whom `given` holds, with its interval.

        Both are text such as `"sex == 'Female' and 30 <= age < 50 and education in ['Bachelors', 'Masters']"`, or a mapping such
        as `{"sex": "Female", "education": ["Bachelors", "Masters"], "age": (30, 50)}` (the upper end not included). A release
        without replicates makes them at the first question and keeps them.
        """
        return self._inquiry.query(where, given, level)

    def table(
        self,
        by: Sequence[str] | str,
        where: Where | None = None,
        given: Where | None = None,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> AnswerTable:
        """The share of people with each combination of values for whom `where` holds, among those for whom `given` holds.

        With `simultaneous` all intervals hold together: each has the level `level ** (1 / rows)`, which suffices however the
        rows' errors hang together (Sidak 1967).
        """
        return self._inquiry.table(by, where, given, level, simultaneous)

    def mean(
        self,
        attribute: str,
        where: Where | None = None,
        given: Where | None = None,
        level: float = 0.95,
    ) -> Answer:
        """The mean of an attribute's numbers over the people for whom `where` and `given` hold; missing answers are left out.

        People are taken as evenly spread inside each bin; a warning says by how much that can matter.
        """
        return self._inquiry.mean(attribute, where, given, level)

    def quantile(
        self,
        attribute: str,
        levels: Sequence[float],
        where: Where | None = None,
        level: float = 0.95,
    ) -> AnswerTable:
        """The numbers below which these shares of the people lie for whom `where` holds, each with its interval."""
        return self._inquiry.quantiles(attribute, levels, where, None, level)

    @cached_property
    def _inquiry(self) -> Inquiry:
        return Inquiry(self)

    def with_replicates(
        self,
        count: int = 20,
        seed: int = 0,
        effort: str = "quick",
        progress: Progress | bool | None = None,
    ) -> Release:
        """The same release with the replicates that intervals are read off; see `dither.bootstrap`.

        They are saved with it, so that every later question is answered from the same ones and in milliseconds.
        """
        with followed(progress) as show:
            found = prepare_bootstrap(
                self, replicates=count, seed=seed, effort=effort, progress=show
            )
        # As they will be read back, in single precision: answers before and after saving are the same to the last digit.
        made = unpack_replicates(pack_replicates(found), self.model, found.reports)
        return replace(self, replicates=made, call=replace(self.call, replicates=count))

    def with_prior(self, prior: NativeTable) -> Release:
        """The release of the same reports with the fit averaged with a public table, and a synthetic table drawn anew.

        The table has the release's schema: a file, a bundled dataset's name or a table in memory. Replicates are not carried over.
        """
        if self.state is None:
            raise ParameterError(
                "this release carries no tallies to fit again with a prior; give the prior when it is made",
                where="prior",
            )
        run = restore(self.state)
        rows = read_prior(prior, self.schema)
        run.give_prior(rows)
        call = replace(self.call, prior=rows.source, replicates=0)
        draw = (
            np.random.default_rng([run.campaign.seed, 2]),
            np.random.default_rng([run.campaign.seed, 3]),
        )
        return Release.from_machine(
            run, call, self.participants, draw, truth=self.truth, clipped=self.clipped
        )

    def to_arrow(self) -> NativeTable:
        """The synthetic table as a PyArrow table."""
        return nw.from_native(self.synthetic, eager_only=True).to_arrow()

    def to_pandas(self) -> NativeTable:
        """The synthetic table as a pandas DataFrame."""
        return as_pandas(self.to_arrow())

    def to_polars(self) -> NativeTable:
        """The synthetic table as a polars DataFrame."""
        return as_polars(self.to_arrow())

    def plot(self, attributes: Sequence[str] | str | None = None) -> Picture:
        """The distribution of some attributes, or which attributes depend on each other: a picture for a notebook."""
        from dither.release.shown import plot_release

        return plot_release(self, attributes)

    def _repr_html_(self) -> str:
        from dither.release.shown import release_html

        return release_html(self)

    def save(
        self,
        directory: str | Path,
        clock: Callable[[], float] = time.perf_counter,
        form: Literal["parquet", "csv"] = "parquet",
        *,
        overwrite: bool = False,
    ) -> Path:
        """Write the release's folder in one step and give its path.

        It holds synthetic.parquet (or .csv, as `form` says), release.json, report.html, schema.json, model.bin, measured.bin and
        what there is of state.bin and replicates.bin. Either all of it appears or nothing changes. A folder with something in it is
        refused, unless it is an earlier release and `overwrite` is true: then that is replaced. A simulation's report shows the
        truth and can be read by its owner alone (mode 0600).
        """
        from dither.release.folder import save_release

        return save_release(self, directory, clock, form, overwrite=overwrite)

    @classmethod
    def load(cls, directory: str | Path) -> Release:
        """Read a saved release. The truth of a simulation is not in the folder, so the result has none."""
        from dither.release.folder import load_release

        return load_release(directory)

    def report(self) -> str:
        """The report, one HTML page without any outside resource."""
        from dither.release.report import render_report

        return render_report(self)

    def with_seconds(self, stage: str, seconds: float) -> Release:
        """The same release with the time of one more stage."""
        return replace(self, seconds={**self.seconds, stage: seconds})

    def to_json(self) -> JsonObject:
        """The manifest, plain JSON values only."""
        return {
            "format": FORMAT,
            "dither_version": self.dither_version,
            "method": self.method,
            "parameters": plain(self.parameters),
            "private": self.private,
            "epsilon_asked": plain(float(self.epsilon_asked)),
            "epsilon_achieved": plain(float(self.epsilon_achieved)),
            "guarantee": self.guarantee,
            "central": None if self.central is None else central_json(self.central, self.readers),
            "participants": int(self.participants),
            "rounds": int(self.rounds),
            "rows": int(self.rows),
            "seed": None if self.seed is None else int(self.seed),
            "noise": self.noise,
            "seconds": {stage: float(value) for stage, value in self.seconds.items()},
            "replicates": 0 if self.replicates is None else len(self.replicates.replicates),
            "simulated": bool(self.simulated),
            "campaign": self.campaign,
            "call": plain(self.call.to_json()),
            "schema_fingerprint": self.schema_fingerprint,
            "model": self.model.kind,
            "description": self.description,
            "reference": self.reference,
            "asked": [entry.to_json() for entry in self.asked],
            "notes": plain(self.notes),
            "warnings": [warning.to_json() for warning in find_warnings(self)],
            "estimates": [self._estimate(name) for name in self.schema.names],
        }

    def _estimate(self, name: str) -> JsonObject:
        marginal = self.marginal([name])
        return {
            "attribute": name,
            "labels": list(marginal.labels[0]),
            "frequencies": marginal.frequencies.tolist(),
            "standard_errors": None
            if marginal.standard_errors is None
            else plain(marginal.standard_errors),
        }

    def __getstate__(self) -> JsonObject:
        """What is pickled: everything but what a simulation knows of the truth, which is written nowhere."""
        return {k: v for k, v in vars(self).items() if k != "_inquiry"} | {
            "truth": None,
            "clipped": {},
        }

    def __repr__(self) -> str:
        kind = "simulated " if self.simulated else ""
        return (
            f"Release({kind}{self.method}, {len(self.schema)} attributes, {self.participants:,} participants, "
            f"epsilon {shown_epsilon(self.epsilon_achieved)}, {self.rows:,} synthetic rows)"
        )


def _stored_state(run: MethodRun, notes: JsonMapping) -> bytes:
    """The run's state without the tallies of an earlier release that its fit left out."""
    prior = run.machine.prior
    if not isinstance(prior, EarlierReports) or notes["prior"]["share_of_prior"] > 0:
        return run.state()
    run.machine.prior = None
    try:
        return run.state()
    finally:
        run.machine.prior = prior
