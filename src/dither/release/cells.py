"""The content of a trusted curator's release: the noisy cells of a histogram, or noisy records.

Trust model: central. The guarantee protects people from readers of the release, not from the
curator. (The record form could be run without one, and says so.)

`deviations` are the errors of the method when it is run again on its own estimate, a row for each
run. A sum of cells has the sum of their deviations, so the error of any count or marginal follows,
however the errors of cells are correlated. They show the noise, and what a method leaves out of its
own estimate; not what it left out of the real table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import stdtrit

from dither.checks import check_between, check_choice
from dither.errors import QuestionError
from dither.fit import Marginal
from dither.fit.project import norm_sub
from dither.notice import Notice, own_warnings, shown_epsilon
from dither.release.call import Call, command, python_code
from dither.release.content import Kind
from dither.release.figures import attribute_figure
from dither.release.folder import MANIFEST, reading
from dither.release.intervals import Basis, LinearAnswer
from dither.release.pages import render_part
from dither.release.query.answer import Answer
from dither.release.query.ask import Inquiry
from dither.release.query.cells import Grid, build_grid
from dither.release.query.expression import Where, notes_of, question_words
from dither.release.report import ReportBody, attribute_card, shown_note
from dither.release.table import number_units
from dither.release.words import REPLAYED_TO_READERS, likelihood_factor
from dither.schema import Schema
from dither.schema.cells import codes_of, count_cells
from dither.schema.files import write_table
from dither.schema.table import encode
from dither.tally.archive import pack, unpack
from dither.types import Codes, Floats, Indices, JsonMapping, JsonObject, NativeTable, Progress

if TYPE_CHECKING:
    from dither.release.release import Release

Neighbours = Literal["add-remove", "replace"]
MEANING: dict[Neighbours, str] = {
    "add-remove": "one record added or removed",
    "replace": "one record changed; the number of records is public",
}
CENTRAL_TRUST = "central: a curator holds the table"
RECORD_TRUST = "local law, run by a curator who holds the table: each record is noised on its own"
_SYNTHETIC, _HISTOGRAM, _DEVIATIONS = "synthetic.parquet", "histogram.parquet", "deviations.bin"
# Reading and noising take longer the more records there are, which is private: those times stay
# with the curator.
_PUBLIC_STAGES = ("table",)


@dataclass(frozen=True)
class CellsContent:
    """What a curator publishes. Everything is computed from noisy values and public parameters.

    Args:
        synthetic: Rows in the shares of the estimate, or the noisy records themselves.
        neighbours: Which tables the guarantee makes hard to distinguish.
        public_seed: The seed of what is public anyway (matrices, the rows' order), not of noise.
        estimate: The raw estimates of all cells, the last column fastest; None where the domain is
            too large or the method gives none.
        deviations: The errors of the method in each repetition on its own estimate, if known.
        by_record: Whether noise was added to each record on its own.
    """

    kind: ClassVar[Kind] = "cells"
    from_participants: ClassVar[bool] = False
    files: ClassVar[tuple[str, ...]] = (_SYNTHETIC, _HISTOGRAM, _DEVIATIONS)

    synthetic: NativeTable
    neighbours: Neighbours
    public_seed: int
    estimate: Floats | None = field(default=None, repr=False)
    deviations: Floats | None = field(default=None, repr=False)
    by_record: bool = False

    @property
    def trust_model(self) -> str:
        """Which party has to be trusted."""
        return RECORD_TRUST if self.by_record else CENTRAL_TRUST

    @property
    def protects(self) -> str:
        """Which tables cannot be distinguished."""
        if self.by_record:
            return "any record against any other; the number of records is public"
        return MEANING[self.neighbours]

    @property
    def between(self) -> str:
        """What the guarantee makes hard to distinguish."""
        if self.neighbours == "add-remove":
            return "the table with and without a person's record"
        return "two records"

    @property
    def standard_errors(self) -> Floats | None:
        """The standard error of each cell, if known."""
        if self.deviations is None:
            return None
        errors: Floats = np.sqrt((self.deviations**2).mean(axis=0))
        return errors

    def histogram(self, schema: Schema) -> pa.Table:
        """All cells as a table: labels, the raw estimate, and its standard error if known."""
        if self.estimate is None:
            raise QuestionError("this release has no histogram", where="histogram")
        cells = codes_of(np.arange(self.estimate.size), schema.cardinalities).astype(np.int32)
        columns: dict[str, pa.Array] = {}
        for j, attribute in enumerate(schema):
            columns[attribute.name] = pa.DictionaryArray.from_arrays(
                pa.array(cells[:, j]), pa.array(attribute.labels)
            )
        columns[_free("estimate", columns)] = pa.array(self.estimate)
        if self.standard_errors is not None:
            columns[_free("standard_error", columns)] = pa.array(self.standard_errors)
        return pa.table(columns)

    def check(self, release: Release) -> None:
        """See `Content`."""

    def warnings(self, release: Release) -> Sequence[Notice]:
        """See `Content`."""
        spent, seed = release.epsilon_achieved, release.seed
        return own_warnings(release.warnings, spent, seed, self.between)

    def guarantee(self, release: Release) -> str:
        """See `Content`."""
        epsilon = release.epsilon_achieved
        return (
            f"The chance of any outcome changes by at most a factor of {likelihood_factor(epsilon)} "
            f"between neighbouring tables, {self.protects} (epsilon {shown_epsilon(epsilon)}; "
            f"trust model: {self.trust_model})."
        )

    def readers(self, release: Release) -> str:
        """See `Content`."""
        return REPLAYED_TO_READERS if release.replayable else self.guarantee(release)

    def describe(self, release: Release) -> str:
        """See `Content`."""
        return (
            f"{self.trust_model}; {release.method}, {len(release.schema)} columns, "
            f"epsilon {shown_epsilon(release.epsilon_achieved)}, {release.rows:,} synthetic rows"
        )

    def questions(
        self, release: Release, progress: Progress | None = None, reason: str = ""
    ) -> Inquiry:
        """See `Content`. Intervals come from the deviations."""
        biased = tuple(warning for warning in release.warnings if warning.code == "bias")
        return _CellsInquiry(release.schema, self, biased)

    def marginal(self, release: Release, attributes: Sequence[str]) -> Marginal:
        """See `Content`.

        It is the distribution nearest to the estimate or, without one, that of the synthetic
        table. Standard errors are those of the raw shares.
        """
        names, schema = tuple(attributes), release.schema
        places = [schema.index(name) for name in names]
        labels = tuple(schema[name].labels for name in names)
        sizes = schema.cardinalities
        if self.estimate is None:
            shares = np.zeros(tuple(sizes[place] for place in places))
            if release.rows:
                codes = encode(self.synthetic, schema).codes
                shares = count_cells(codes, sizes, places) / release.rows
            return Marginal(attributes=names, labels=labels, frequencies=shares)
        sums = _sums(self.estimate.reshape(sizes), places)
        total = max(1.0, float(sums.sum()))
        shares = norm_sub(sums.ravel() / total).reshape(sums.shape)
        errors = None
        if self.deviations is not None:
            runs = np.stack([_sums(run.reshape(sizes), places) for run in self.deviations])
            # A share is a sum over the total, and both have errors.
            axes = tuple(range(1, runs.ndim))
            runs = (runs - sums / total * runs.sum(axis=axes, keepdims=True)) / total
            errors = np.sqrt((runs**2).mean(axis=0))
        return Marginal(attributes=names, labels=labels, frequencies=shares, standard_errors=errors)

    def manifest(self, release: Release) -> JsonObject:
        """See `Content`."""
        stages = {
            stage: release.seconds[stage] for stage in _PUBLIC_STAGES if stage in release.seconds
        }
        return {
            "columns": list(release.schema.names),
            "cells": math.prod(release.schema.cardinalities),
            "flattening": "C order of the product of the columns' codes: "
            "the last column changes fastest",
            "neighbours": self.neighbours,
            "neighbours_meaning": self.protects,
            "by_record": self.by_record,
            "histogram": self.estimate is not None,
            "public_seed": self.public_seed,
            "replicates": 0 if self.deviations is None else len(self.deviations),
            "seconds": stages,
        }

    def write(self, release: Release, folder: Path, form: str) -> None:
        """See `Content`."""
        write_table(self.synthetic, folder / _SYNTHETIC)
        if self.estimate is not None:
            write_table(self.histogram(release.schema), folder / _HISTOGRAM)
        if self.deviations is not None:
            (folder / _DEVIATIONS).write_bytes(pack({}, {"deviations": self.deviations}))

    @classmethod
    def read(cls, folder: Path, manifest: JsonMapping, schema: Schema, call: Call) -> CellsContent:
        """Read the files of this kind."""
        estimate = deviations = None
        if (folder / _HISTOGRAM).is_file():
            with reading(folder / _HISTOGRAM):
                estimate = _read_parquet(folder / _HISTOGRAM).columns[len(schema)].to_numpy()
                _check_estimate(schema, estimate)
        if (folder / _DEVIATIONS).is_file():
            with reading(folder / _DEVIATIONS):
                deviations = unpack((folder / _DEVIATIONS).read_bytes())[1]["deviations"]
                _check_deviations(schema, estimate, deviations)
        with reading(folder / _SYNTHETIC):
            synthetic = _read_parquet(folder / _SYNTHETIC)
        with reading(folder / MANIFEST):
            if synthetic.num_rows != manifest["rows"] or sorted(synthetic.column_names) != sorted(
                schema.names
            ):
                raise ValueError(
                    f"{_SYNTHETIC} does not have the {manifest['rows']:,} rows and the columns "
                    "of this release"
                )
            if estimate is None and manifest["histogram"]:
                raise ValueError(f"{_HISTOGRAM} is missing")
            runs = 0 if deviations is None else len(deviations)
            if manifest.get("replicates", runs) != runs:
                raise ValueError(
                    f"{_DEVIATIONS} does not have {manifest['replicates']} repetitions"
                )
            return cls(
                synthetic=synthetic,
                neighbours=_check_neighbours(manifest["neighbours"]),
                public_seed=manifest["public_seed"],
                estimate=estimate,
                deviations=deviations,
                by_record=bool(manifest["by_record"]),
            )

    def check_shown(self, release: Release) -> None:
        """See `Content`."""
        shown_note(release.parameters)
        shown_note(release.notes)

    def report(self, release: Release) -> ReportBody:
        """See `Content`."""
        contents: list[tuple[str, str]] = []
        made = {**release.parameters, **release.notes}
        epsilon = shown_epsilon(release.epsilon_achieved, 4)
        cells = math.prod(release.schema.cardinalities)
        html = render_part(
            "report_body.html",
            contents=contents,
            release=release,
            content=self,
            made=[
                (name, "none" if value is None else shown_note(value))
                for name, value in made.items()
            ],
            cards=[
                attribute_card(attribute_figure(a, self.marginal(release, [a.name])))
                for a in release.schema
            ],
            command=command(release.call),
            python=None if release.call.record is None else python_code(release.call),
        )
        replayable = ", but NOT PRIVATE with its seed" if release.seed is not None else ""
        heading = "Record-wise (local) release" if self.by_record else "Central release"
        return ReportBody(
            html=html,
            contents=tuple(contents),
            heading=heading,
            subtitle=f"{self.trust_model.capitalize()}{replayable}",
            facts=(
                ("Method", release.method),
                ("Epsilon per record", epsilon),
                ("Columns", len(release.schema)),
                ("Cells", f"{cells:,}"),
                ("Synthetic rows", f"{release.rows:,}"),
            ),
            citation=f"Dither {release.dither_version}, release by a trusted curator: method "
            f"{release.method}, epsilon {epsilon}, {self.protects}, "
            f"schema {release.schema_fingerprint[:12]}.",
        )


class _CellsInquiry(Inquiry):
    """Questions about noisy cells. Shares are of the noisy total, counts are raw sums."""

    def __init__(self, schema: Schema, content: CellsContent, warnings: tuple[Notice, ...]) -> None:
        self._schema, self._content = schema, content
        codes: Codes | None = None
        if content.estimate is None:
            codes = encode(content.synthetic, schema).codes
            total = float(len(codes))
        else:
            total = float(content.estimate.sum())
        self._codes, self._total = codes, max(1.0, total)
        units = number_units(schema, content.synthetic)
        super().__init__(schema, units, self._shares, self._total, warnings)

    @property
    def _basis(self) -> Basis:
        return "noisy cells" if self._codes is None else "synthetic table"

    def count(self, where: Where | None, level: float) -> Answer:
        """The number of records that meet a question, with a Student interval.

        It is raw and not projected, so that the parts of a whole add up; it may be negative.
        """
        check_between("level", level, 0, 1, ends="()")
        node = self.reader.read(where)
        grid = build_grid(self.reader, [node])
        counts, runs = self._counts(grid, [grid.weights(grid.holds(node))])
        estimate = float(counts[0])
        error = low = high = None
        if runs is not None:
            error = float(np.sqrt((runs[:, 0] ** 2).mean()))
            half_width = float(stdtrit(len(runs), (1 + level) / 2)) * error
            low, high = estimate - half_width, estimate + half_width
        return Answer(
            asked=question_words("count", where, None),
            estimate=estimate,
            low=low,
            high=high,
            standard_error=error,
            level=level,
            people=estimate,
            basis=self._basis,
            unit="number",
            warnings=(*notes_of([node]), *self.warnings),
        )

    def _shares(self, grid: Grid, questions: Sequence[Floats]) -> LinearAnswer:
        counts, runs = self._counts(grid, questions)
        shares = counts / self._total
        if runs is None:
            unknown = np.full((len(shares),) * 2, np.nan)
            caution = "no interval can be computed: this release has no repetitions"
            return LinearAnswer(shares, unknown, math.inf, self._basis, caution)
        assert self._content.deviations is not None
        # A share is a sum over the total, and both have errors.
        totals = self._content.deviations.sum(axis=1, keepdims=True)
        runs = (runs - shares * totals) / self._total
        covariance = runs.T @ runs / len(runs)
        return LinearAnswer(shares, covariance, float(len(runs)), "noisy cells", "")

    def _counts(self, grid: Grid, questions: Sequence[Floats]) -> tuple[Floats, Floats | None]:
        """Weighted sums of the cells, and of each repetition's deviations."""
        weights = np.stack(questions).reshape(len(questions), -1)
        sizes, groups = self._schema.cardinalities, grid.groups
        places = [self._schema.index(name) for name in grid.names]
        if self._content.estimate is None:
            assert self._codes is not None
            counts = count_cells(self._codes, sizes, places).astype(np.float64)
            return weights @ _grouped(counts, groups).ravel(), None
        estimate = _sums(self._content.estimate.reshape(sizes), places)
        sums = weights @ _grouped(estimate, groups).ravel()
        if self._content.deviations is None:
            return sums, None
        runs = [
            weights @ _grouped(_sums(run.reshape(sizes), places), groups).ravel()
            for run in self._content.deviations
        ]
        return sums, np.stack(runs)


def _grouped(cells: Floats, groups: Sequence[Indices]) -> Floats:
    """Sums over the groups of codes on each axis."""
    for axis, group in enumerate(groups):
        member = np.zeros((len(group), int(group.max()) + 1))
        member[np.arange(len(group)), group] = 1.0
        cells = np.moveaxis(np.tensordot(cells, member, (axis, 0)), -1, axis)
    return cells


def _check_neighbours(value: str) -> Neighbours:
    check_choice("neighbours", value, tuple(MEANING))
    return "replace" if value == "replace" else "add-remove"


def _check_estimate(schema: Schema, estimate: Floats) -> None:
    cells = math.prod(schema.cardinalities)
    if estimate.shape != (cells,) or not np.isfinite(estimate).all():
        raise ValueError(
            f"the histogram does not have a number for each of {cells:,} cells of schema.json"
        )


def _check_deviations(schema: Schema, estimate: Floats | None, deviations: Floats) -> None:
    cells = math.prod(schema.cardinalities)
    if estimate is None:
        raise ValueError(f"there are deviations, and {_HISTOGRAM} is missing")
    if deviations.ndim != 2 or deviations.shape[1] != cells:
        raise ValueError(f"the deviations are not of the {cells:,} cells of schema.json")
    if len(deviations) == 0 or not np.isfinite(deviations).all():
        raise ValueError(f"the deviations do not have a number for each of {cells:,} cells")


def _sums(cells: Floats, places: Sequence[int]) -> Floats:
    """Sums over all axes but these, in this order."""
    kept = sorted(places)
    rest = tuple(axis for axis in range(cells.ndim) if axis not in kept)
    sums: Floats = cells.sum(axis=rest)
    return sums.transpose([kept.index(place) for place in places])


def _free(name: str, taken: JsonMapping) -> str:
    while name in taken:
        name += "_"
    return name


def _read_parquet(path: Path) -> pa.Table:
    """A Parquet file, even one without rows."""
    with pa.OSFile(str(path)) as file:
        return pq.read_table(file)
