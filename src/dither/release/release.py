"""What is published: the model, a synthetic table, the guarantee, the uncertainty and where it came from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dither.errors import ParameterError, PrivacyError
from dither.estimate import Marginal
from dither.mechanisms.probability import check_spent
from dither.models import Model
from dither.notice import Notice
from dither.protocols import ProtocolMachine, method
from dither.release.call import AskedRound, Call, asked_in, plain
from dither.release.standard_errors import measured_errors
from dither.release.words import NO_GUARANTEE, find_warnings, guarantee_sentence, noise_sentence, shown_epsilon
from dither.schema import Schema
from dither.schema.cells import count_cells
from dither.schema.native import Layout
from dither.schema.table import decode, plain_layout
from dither.types import Codes, Floats, JsonMapping, JsonObject, NativeTable
from dither.uncertainty.heldout import heldout_notes
from dither.uncertainty.manipulation import manipulation_notes


@dataclass(frozen=True)
class Truth:
    """The simulated participants' true marginals: `marginal(attributes)` has one axis per attribute, like a model's."""

    marginal: Callable[[Sequence[str]], Floats]


def truth_from_codes(schema: Schema, codes: Codes) -> Truth:
    """The truth of a table of codes; marginals are counted when they are asked for."""

    def marginal(attributes: Sequence[str]) -> Floats:
        counts = count_cells(codes, schema.cardinalities, [schema.index(name) for name in attributes])
        return np.asarray(counts / max(len(codes), 1), dtype=np.float64)

    return Truth(marginal)


FORMAT = "dither-release-1"


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
    which intervals for any marginal can be computed later.
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
    truth: Truth | None = field(default=None, repr=False, compare=False)
    clipped: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    state: bytes | None = field(default=None, repr=False)
    description: str = ""
    reference: str = ""
    dither_version: str = field(default_factory=_version)

    @classmethod
    def from_machine(
        cls,
        machine: ProtocolMachine,
        call: Call,
        participants: int,
        draw: tuple[np.random.Generator, np.random.Generator],
        layout: Layout | None = None,
        *,
        seconds: Mapping[str, float] | None = None,
        **known: Any,
    ) -> Release:
        """The release of a finished protocol, whoever drove it.

        `call` is what was asked for (its parameters are filled in from the machine), `draw` the generators of the synthetic codes
        and of values inside their bins, `layout` the columns' types where the driver knows them. `known` has what only a
        simulation knows: the truth, how many values were clipped, warnings of its input.
        """
        begun = time.perf_counter()
        model = machine.model()
        fitted = time.perf_counter()
        chosen = method(machine.method)
        return cls.from_model(
            model,
            replace(call, parameters=machine.plain_parameters()),
            participants,
            draw,
            layout,
            seconds={**(seconds or {}), "fit": round(fitted - begun, 4)},
            measured=tuple(machine.measured()),
            epsilon_achieved=max(plan.epsilon for plan in machine.plans),
            rounds=len(machine.plans),
            asked=asked_in(machine.plans),
            notes={**machine.notes(), **heldout_notes(machine, model), **manipulation_notes(machine)},
            state=machine.state(),
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
        synthetic = decode(codes, schema, plain_layout(schema) if layout is None else layout, draw[1])
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
            raise PrivacyError("a release without privacy has no finite epsilon", where="epsilon_achieved")
        if self.model.schema.fingerprint != self.schema.fingerprint:
            raise ParameterError("the model was fitted to another schema than the release's", where="schema")
        if self.truth is not None and not self.simulated:
            raise ParameterError("a release that was not simulated cannot know the truth", where="truth")

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
    def campaign(self) -> dict[str, str] | None:
        """The campaign's id and name and the days on which it was created and finalised; None for a simulation."""
        if self.simulated:
            return None
        call = self.call
        return {"id": call.campaign, "name": call.name, "created": call.created, "finalised": call.finalised}

    @property
    def schema_fingerprint(self) -> str:
        """SHA-256 of the schema: releases with the same fingerprint use the same codes."""
        return self.schema.fingerprint

    @property
    def guarantee(self) -> str:
        """What is promised to each participant, in one sentence."""
        if self.no_privacy:
            return NO_GUARANTEE
        return guarantee_sentence(self.epsilon_achieved, simulated=self.simulated)

    @property
    def replayable(self) -> bool:
        """Whether somebody who knows the seed can draw the same noise again: only in a simulation that was given one."""
        return self.simulated and not self.no_privacy and self.seed is not None

    @property
    def private(self) -> bool:
        """Whether the guarantee holds against whoever reads all that is saved: noise was added, and nothing there replays it."""
        return not self.no_privacy and not self.replayable

    @property
    def noise(self) -> str:
        """Where the noise came from and whether it can be drawn again, in one sentence."""
        if self.no_privacy:
            return "None was added."
        return noise_sentence(self.seed, simulated=self.simulated)

    def marginal(self, attributes: Sequence[str] | str) -> Marginal:
        """The model's distribution of some attributes, with standard errors if just these were measured together."""
        names = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        frequencies = self.model.marginal(names)
        labels = tuple(self.schema[name].labels for name in names)
        return Marginal(names, frequencies, measured_errors(self.measured, names, self.participants), labels=labels)

    def save(
        self,
        directory: str | Path,
        clock: Callable[[], float] = time.perf_counter,
        form: Literal["parquet", "csv"] = "parquet",
    ) -> Path:
        """Write the release's folder in one step and give its path.

        It holds synthetic.parquet (or .csv, as `form` says), release.json, report.html, schema.json, model.bin and
        measured.bin. Either all of it appears or nothing changes. An earlier release is replaced; any other folder with
        something in it is refused.
        """
        from dither.release.folder import save_release

        return save_release(self, directory, clock, form)

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
            "participants": int(self.participants),
            "rounds": int(self.rounds),
            "rows": int(self.rows),
            "seed": None if self.seed is None else int(self.seed),
            "noise": self.noise,
            "seconds": {stage: float(value) for stage, value in self.seconds.items()},
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
            "standard_errors": None if marginal.standard_errors is None else plain(marginal.standard_errors),
        }

    def __repr__(self) -> str:
        kind = "simulated " if self.simulated else ""
        return (
            f"Release({kind}{self.method}, {len(self.schema)} attributes, {self.participants:,} participants, "
            f"epsilon {shown_epsilon(self.epsilon_achieved)}, {self.rows:,} synthetic rows)"
        )
