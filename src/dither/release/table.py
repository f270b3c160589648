"""The content of a release about whole records: a model over the attributes and its sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import narwhals as nw
import numpy as np

from dither.checks import check_whole
from dither.errors import DitherError, InputError, ParameterError, PrivacyError, ReportError
from dither.fit import Marginal, Model, model_from_bytes
from dither.fit.ruled import grouped_marginal, told_within_groups
from dither.mechanisms import check_spent
from dither.notice import Notice, shown_epsilon
from dither.release.amplification import CentralGuarantee
from dither.release.call import AskedRound, Call, asked_from_json, plain
from dither.release.content import Kind
from dither.release.figures import measured_errors
from dither.release.folder import MANIFEST, mixed, read_if_there, reading
from dither.release.intervals import Bootstrap, LinearAnswer
from dither.release.query.ask import Inquiry
from dither.release.query.cells import Grid
from dither.release.query.expression import Reader
from dither.release.replicates import (
    pack_replicates,
    prepare_bootstrap,
    reports_in,
    unpack_replicates,
)
from dither.release.report import ReportBody, check_table_report, table_report
from dither.release.words import (
    EARLIER_REPLAYED_TO_READERS,
    NO_GUARANTEE,
    REPLAYED_TO_READERS,
    UNBOUNDED_READERS,
    central_from_json,
    central_json,
    earlier_release,
    earlier_sentence,
    find_warnings,
    guarantee_sentence,
    readers_sentence,
)
from dither.schema import Schema, schema_from_json
from dither.schema.cells import count_cells
from dither.schema.files import read_table, write_table
from dither.schema.table import adopt_table
from dither.tally.archive import pack, unpack
from dither.types import Codes, Floats, JsonMapping, JsonObject, NativeTable, Progress

if TYPE_CHECKING:
    from dither.release.release import Release

LOCAL_TRUST = "local: noise is added on each participant's device"
# Whole reports of millions of people are left out of the folder.
MAX_STATE_BYTES = 64 << 20
_MODEL, _MEASURED, _STATE, _REPLICATES = "model.bin", "measured.bin", "state.bin", "replicates.bin"
NO_ERRORS = (
    "these attributes were not measured together; release.with_replicates() estimates the error"
)


@dataclass(frozen=True)
class Truth:
    """The simulated participants' true marginals, with one axis per attribute like a model's."""

    marginal: Callable[[Sequence[str]], Floats]


def truth_from_codes(schema: Schema, codes: Codes) -> Truth:
    """The truth of a table of codes. Marginals are counted on demand."""

    def marginal(attributes: Sequence[str]) -> Floats:
        places = [schema.index(name) for name in attributes]
        counts = count_cells(codes, schema.cardinalities, places)
        return np.asarray(counts / max(len(codes), 1), dtype=np.float64)

    return Truth(marginal)


@dataclass(frozen=True)
class TableContent:
    """A model of whole records and a synthetic table drawn from it.

    Args:
        model: The fitted distribution over all attributes.
        synthetic: Rows drawn from the model.
        measured: The marginals as reports measured them, before the fit.
        asked: The questions of each round.
        central: The guarantee towards people who see the release alone; None without privacy or
            where a seed can replay the noise.
        state: The finished protocol (plans and tallies, noise only), from which replicates are
            made.
        replicates: Models fitted again to redrawn answers; every interval is read off them.
    """

    kind: ClassVar[Kind] = "table"
    from_participants: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = (
        "synthetic.parquet",
        "synthetic.csv",
        _MODEL,
        _MEASURED,
        _STATE,
        _REPLICATES,
    )

    model: Model
    synthetic: NativeTable
    measured: Sequence[Marginal] = ()
    asked: Sequence[AskedRound] = ()
    central: CentralGuarantee | None = None
    state: bytes | None = field(default=None, repr=False)
    replicates: Bootstrap | None = field(default=None, repr=False, compare=False)

    @property
    def trust_model(self) -> str:
        """Which party has to be trusted."""
        return LOCAL_TRUST

    @property
    def between(self) -> str:
        """What the guarantee makes hard to distinguish."""
        return "two records"

    def check(self, release: Release) -> None:
        """See `Content`."""
        check_whole("participants", release.participants, 1)
        if self.model.schema.fingerprint != release.schema.fingerprint:
            raise ParameterError(
                "the model was fitted to another schema than the release's", where="schema"
            )
        if self.central is None:
            return
        if not release.private:
            raise PrivacyError(
                "noise that can be replayed, or none, gives readers no guarantee", where="central"
            )
        earlier = 0.0 if release.earlier is None else float(release.earlier["epsilon"])
        for bound in (self.central.known, self.central.hidden):
            check_spent(max(release.epsilon_achieved, earlier), bound.epsilon)

    def warnings(self, release: Release) -> Sequence[Notice]:
        """See `Content`."""
        return find_warnings(release)

    def guarantee(self, release: Release) -> str:
        """See `Content`."""
        if release.no_privacy:
            return NO_GUARANTEE
        sentence = guarantee_sentence(release.epsilon_achieved, simulated=release.simulated)
        if release.earlier is None:
            return sentence
        return f"{sentence} {earlier_sentence(release.earlier, release.epsilon_achieved)}"

    def readers(self, release: Release) -> str:
        """See `Content`."""
        if release.no_privacy:
            return NO_GUARANTEE
        if self.central is not None:
            pooled = release.earlier is not None
            return readers_sentence(self.central, simulated=release.simulated, pooled=pooled)
        if release.replayable:
            return REPLAYED_TO_READERS
        return UNBOUNDED_READERS if release.private else EARLIER_REPLAYED_TO_READERS

    def describe(self, release: Release) -> str:
        """See `Content`."""
        kind = "simulated " if release.simulated else ""
        return (
            f"{kind}{release.method}, {len(release.schema)} attributes, "
            f"{release.participants:,} participants, "
            f"epsilon {shown_epsilon(release.epsilon_achieved)}, {release.rows:,} synthetic rows"
        )

    def questions(
        self, release: Release, progress: Progress | None = None, reason: str = ""
    ) -> Inquiry:
        """See `Content`. A release without replicates makes them at the first question."""
        sums = _ModelSums(release, self, progress, reason)
        reader = self.reader(release)
        return Inquiry(release.schema, reader.units, sums.linear, release.people)

    def reader(self, release: Release) -> Reader:
        """Reads questions; the published table shows which attributes hold whole numbers."""
        return Reader(release.schema, number_units(release.schema, self.synthetic))

    def marginal(self, release: Release, attributes: Sequence[str]) -> Marginal:
        """See `Content`.

        With replicates the errors are theirs, and the frequencies rest on the reports as well
        where these reject the model. Without, they are those of the reports about exactly these
        attributes, if they were measured together.
        """
        names = tuple(attributes)
        labels = tuple(release.schema[name].labels for name in names)
        if self.replicates is not None:
            interval = self.replicates.interval(names)
            known = not np.isnan(interval.standard_errors).any()
            return Marginal(
                names,
                interval.frequencies,
                interval.standard_errors if known else None,
                labels=labels,
                reason="" if known else interval.caution,
                reach=self.replicates.reach(),
            )
        errors = measured_errors(self.measured, names, release.people)
        reason = ""
        if errors is None:
            reason = told_within_groups(self.model, names) or NO_ERRORS
        return Marginal(names, self.model.marginal(names), errors, labels=labels, reason=reason)

    def manifest(self, release: Release) -> JsonObject:
        """See `Content`."""
        central = None
        if self.central is not None:
            central = central_json(self.central, self.readers(release))
        return {
            "central": central,
            "replicates": 0 if self.replicates is None else len(self.replicates.replicates),
            "model": self.model.kind,
            "asked": [entry.to_json() for entry in self.asked],
            "estimates": [self._estimate(release, name) for name in release.schema.names],
        }

    def _estimate(self, release: Release, name: str) -> JsonObject:
        marginal = self.marginal(release, [name])
        errors = marginal.standard_errors
        return {
            "attribute": name,
            "labels": list(marginal.labels[0]),
            "frequencies": marginal.frequencies.tolist(),
            "standard_errors": None if errors is None else plain(errors),
        }

    def write(self, release: Release, folder: Path, form: str) -> None:
        """See `Content`."""
        write_table(self.synthetic, folder / f"synthetic.{form}")
        (folder / _MODEL).write_bytes(self.model.to_bytes())
        if self.state is not None and len(self.state) <= MAX_STATE_BYTES:
            (folder / _STATE).write_bytes(self.state)
        if self.replicates is not None:
            (folder / _REPLICATES).write_bytes(pack_replicates(self.replicates))
        (folder / _MEASURED).write_bytes(_pack_measured(self.measured))

    @classmethod
    def read(cls, folder: Path, manifest: JsonMapping, schema: Schema, call: Call) -> TableContent:
        """Read the files of this kind."""
        with reading(folder / _MODEL):
            model = model_from_bytes((folder / _MODEL).read_bytes())
        with reading(folder / _MEASURED):
            measured = _unpack_measured((folder / _MEASURED).read_bytes(), schema)
        with reading(folder / _STATE):
            state = read_if_there(folder / _STATE)
            reports = reports_in(schema, state)
        with reading(folder / _REPLICATES):
            packed = read_if_there(folder / _REPLICATES)
            replicates = None if packed is None else unpack_replicates(packed, model, reports)
        synthetic = _read_synthetic(folder, schema)
        with reading(folder / MANIFEST):
            _check_state(folder, call, schema, state)
            earlier = earlier_release(manifest["notes"])
            # An early version left the participants of an earlier release out of the bound.
            counts_earlier = earlier is None or "private" in earlier
            central = None
            if manifest.get("central") is not None and counts_earlier:
                central = central_from_json(manifest["central"])
            return cls(
                model=model,
                synthetic=synthetic,
                measured=measured,
                asked=asked_from_json(manifest["asked"]),
                central=central,
                state=state,
                replicates=replicates,
            )

    def check_shown(self, release: Release) -> None:
        """See `Content`."""
        check_table_report(release)

    def report(self, release: Release) -> ReportBody:
        """See `Content`."""
        return table_report(release)


def number_units(schema: Schema, table: NativeTable) -> dict[str, float]:
    """The unit of each attribute's numbers, if the schema or a table has one."""
    columns = nw.from_native(adopt_table(table), eager_only=True).schema
    units = {a.name: 1.0 for a in schema if a.kind == "date" or columns[a.name].is_integer()}
    return units | {a.name: a.unit for a in schema if a.unit is not None}


@dataclass(frozen=True)
class _ModelSums:
    """Sums over cells of the model, with errors read off its replicates."""

    release: Release
    content: TableContent
    progress: Progress | None
    reason: str

    @cached_property
    def _replicates(self) -> Bootstrap | str:
        """The replicates, or the reason for having none."""
        if self.content.replicates is not None:
            return self.content.replicates
        if self.reason:
            return self.reason
        if self.release.no_privacy:
            return "no interval: this release was made from the true records, without any noise"
        try:
            return prepare_bootstrap(self.release, progress=self.progress)
        except DitherError as error:
            return f"no interval can be computed for this release: {error}"

    def linear(self, grid: Grid, questions: Sequence[Floats]) -> LinearAnswer:
        """All sums at once; without replicates the model's own, without an error."""
        weights, replicates = np.stack(questions), self._replicates
        if not isinstance(replicates, str):
            return replicates.linear(grid.names, grid.groups, weights)
        marginal = grouped_marginal(self.content.model, grid.names, grid.groups)
        estimates = weights.reshape(len(weights), -1) @ marginal.ravel()
        unknown = np.full((len(weights),) * 2, np.nan)
        return LinearAnswer(estimates, unknown, math.inf, "model", replicates)


def _check_state(folder: Path, call: Call, schema: Schema, state: bytes | None) -> None:
    """Raise an error if `state.bin` belongs to another release, with another guarantee."""
    if state is None:
        return
    facts, _ = unpack(state)
    if schema_from_json(facts["schema"]).fingerprint != schema.fingerprint:
        raise mixed(folder, _STATE, "schema.json")
    if (facts["method"], facts["epsilon"]) != (call.fitted_method, call.epsilon):
        raise mixed(folder, MANIFEST, _STATE)


def _read_synthetic(folder: Path, schema: Schema) -> NativeTable:
    """The synthetic table, written as CSV or as Parquet."""
    path = folder / "synthetic.csv"
    if not path.is_file():
        path = folder / "synthetic.parquet"
    with reading(path):
        table = read_table(path, schema if path.suffix == ".csv" else None)
    columns = set(nw.from_native(table, eager_only=True).columns)
    absent = [name for name in schema.names if name not in columns]
    if absent:
        raise InputError(
            f"{path} has no column {absent[0]!r}, which schema.json names", where=str(path)
        )
    return table


def _pack_measured(measured: Sequence[Marginal]) -> bytes:
    arrays = {}
    for i, entry in enumerate(measured):
        arrays[f"{i}.frequencies"] = entry.frequencies
        arrays[f"{i}.standard_errors"] = np.sqrt(entry.variances)
    meta = [
        {"attributes": list(entry.attributes), "n": int(entry.n), "effective_n": entry.effective_n}
        for entry in measured
    ]
    return pack({"measured": meta}, arrays)


def _unpack_measured(data: bytes, schema: Schema) -> tuple[Marginal, ...]:
    meta, arrays = unpack(data)
    out = []
    for i, entry in enumerate(meta["measured"]):
        names = tuple(entry["attributes"])
        frequencies, errors = arrays[f"{i}.frequencies"], arrays[f"{i}.standard_errors"]
        expected = tuple(schema[name].cardinality for name in names)
        if not frequencies.shape == errors.shape == expected:
            raise ReportError(
                f"measured.bin has a table of {', '.join(names)} that schema.json does not allow"
            )
        n = entry["n"]
        # Early versions wrote no effective sample size: all answers weighed the same.
        effective_n = entry.get("effective_n", 0.0)
        whole = type(n) is int and n >= 0
        if (
            not whole
            or type(effective_n) not in (int, float)
            or not 0 <= effective_n <= n * (1 + 1e-9)
        ):
            raise ReportError(
                f"measured.bin says {n!r} answers with effective size {effective_n!r} about "
                f"{', '.join(names)}"
            )
        out.append(Marginal(names, frequencies, errors, n, effective_n=effective_n))
    return tuple(out)
