"""The content of a trusted curator's release: the noisy cells of a histogram, or noisy records.

Trust model: central. The guarantee protects people from readers of the release, not from the
curator. (The record form could be run without one, and says so.)

`deviations` are the errors of the method when it is run again on its own estimate, a row for each
run. A sum of cells has the sum of their deviations, so the error of any count or marginal follows,
however the errors of cells are correlated. They show the noise, and what a method leaves out of its
own estimate; not what it left out of the real table.

All shares and counts are sums over one distribution (`CellsContent.distribution`), so that those of
a partition add up and none is negative. Where such a sum departs from the raw sum of noisy cells,
the distance counts as error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import stdtrit

from dither.checks import check_between, check_choice
from dither.errors import QuestionError
from dither.fit import Marginal
from dither.fit.project import norm_sub, scale_to
from dither.notice import Notice, own_warnings, shown_epsilon
from dither.release.call import Call, command, python_code
from dither.release.content import Kind
from dither.release.figures import attribute_figure, group_shares
from dither.release.folder import MANIFEST, reading
from dither.release.intervals import FLOOR, Basis, LinearAnswer
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
# A number of records is known to be above zero if it exceeds this number of standard errors.
TOTAL_ERRORS = 2.0
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

    @cached_property
    def total(self) -> float:
        """The estimated number of records, not below zero."""
        if self.estimate is None:
            return float(len(nw.from_native(self.synthetic, eager_only=True)))
        return max(0.0, float(self.estimate.sum()))

    @cached_property
    def total_unsure(self) -> bool:
        """Whether the number of records may be zero within its error."""
        if self.deviations is None:
            return self.total < 1
        spread = float(np.sqrt((self.deviations.sum(axis=1) ** 2).mean()))
        return self.total < max(1.0, TOTAL_ERRORS * spread)

    def distribution(self, schema: Schema) -> Floats:
        """The published shares of all cells, one axis per column: non-negative with sum one.

        Projecting many noisy cells moves people into empty ones. One-way tables are sums of many
        cells and far less noisy, so each is projected by itself and the cells are scaled to them.

        Raises:
            QuestionError: There are no estimates of cells.
        """
        if self.estimate is None:
            raise QuestionError("this release has no histogram", where="histogram")
        raw = self.estimate.reshape(schema.cardinalities) / max(1.0, self.total)
        cells = norm_sub(raw)
        one_way = [norm_sub(_sums(raw, [axis])) for axis in range(raw.ndim)]
        sums = [_sums(cells, [axis]) for axis in range(raw.ndim)]
        # A slice at zero cannot be scaled to more.
        if any((target[own == 0] > 0).any() for target, own in zip(one_way, sums, strict=True)):
            even = reduce(np.multiply.outer, one_way)
            cells = (1 - FLOOR) * cells + FLOOR * even
        return scale_to(cells, {(axis,): target for axis, target in enumerate(one_way)})

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
    ) -> _CellsInquiry:
        """See `Content`. Intervals come from the deviations."""
        biased = tuple(warning for warning in release.warnings if warning.code == "bias")
        return _CellsInquiry(release.schema, self, biased)

    def marginal(self, release: Release, attributes: Sequence[str]) -> Marginal:
        """See `Content`."""
        names, schema = tuple(attributes), release.schema
        shares, squares = self.questions(release).cell_errors(names)
        errors = None if squares is None else np.sqrt(squares)
        labels = tuple(schema[name].labels for name in names)
        if self.deviations is None or errors is None:
            return Marginal(names, shares, labels=labels)
        reach = float(stdtrit(len(self.deviations), 0.975))
        return Marginal(names, shares, errors, labels=labels, reach=reach)

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
                attribute_card(
                    attribute_figure(
                        a, self.marginal(release, [a.name]), shares=group_shares(release)
                    )
                )
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
    """Questions about noisy cells. Shares are of the noisy total."""

    def __init__(self, schema: Schema, content: CellsContent, warnings: tuple[Notice, ...]) -> None:
        self._schema, self._content = schema, content
        units = number_units(schema, content.synthetic)
        super().__init__(schema, units, self._shares, content.total, warnings)

    @cached_property
    def _codes(self) -> Codes:
        if self._content.total == 0:
            return np.zeros((0, len(self._schema)), dtype=np.int32)
        return encode(self._content.synthetic, self._schema).codes

    @cached_property
    def _distribution(self) -> Floats:
        return self._content.distribution(self._schema)

    @property
    def _basis(self) -> Basis:
        return "synthetic table" if self._content.estimate is None else "noisy cells"

    def count(self, where: Where | None, level: float) -> Answer:
        """The number of records that meet a question, with a Student interval."""
        check_between("level", level, 0, 1, ends="()")
        node = self.reader.read(where)
        grid = build_grid(self.reader, [node])
        weights = grid.weights(grid.holds(node))
        share = float(np.clip(weights.ravel() @ self._table(grid).ravel(), 0.0, 1.0))
        estimate = share * self._content.total
        error = low = high = None
        if self._content.deviations is not None:
            (raw,), runs = self._counts(grid, [weights])
            error = math.sqrt(float((runs[:, 0] ** 2).mean()) + float(raw - estimate) ** 2)
            half_width = float(stdtrit(len(runs), (1 + level) / 2)) * error
            low, high = max(0.0, estimate - half_width), estimate + half_width
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

    def cell_errors(self, names: Sequence[str]) -> tuple[Floats, Floats | None]:
        """A marginal's shares and their squared errors, if known."""
        places = [self._schema.index(name) for name in names]
        if self._content.estimate is None:
            counts = count_cells(self._codes, self._schema.cardinalities, places)
            return counts / max(1, len(self._codes)), None
        shares = _sums(self._distribution, places)
        if self._content.deviations is None or self._content.total_unsure:
            return shares, None
        sizes, total = self._schema.cardinalities, self._content.total
        raw = _sums(self._content.estimate.reshape(sizes), places) / total
        squares = (raw - shares) ** 2
        for run in self._content.deviations:
            deviation = _sums(run.reshape(sizes), places)
            # A share is a sum over the total, and both have errors.
            relative = (deviation - raw * deviation.sum()) / total
            squares = squares + relative**2 / len(self._content.deviations)
        return shares, squares

    def _shares(self, grid: Grid, questions: Sequence[Floats]) -> LinearAnswer:
        weights = np.stack(questions).reshape(len(questions), -1)
        shares = weights @ self._table(grid).ravel()
        unknown = np.full((len(shares),) * 2, np.nan)
        if self._content.deviations is None:
            caution = "no interval can be computed: this release has no repetitions"
            return LinearAnswer(shares, unknown, math.inf, self._basis, caution)
        if self._content.total_unsure:
            caution = "no interval: the number of records may be zero within its error"
            return LinearAnswer(shares, unknown, math.inf, self._basis, caution)
        counts, runs = self._counts(grid, questions)
        raw = counts / self._content.total
        # A share is a sum over the total, and both have errors.
        totals = self._content.deviations.sum(axis=1, keepdims=True)
        runs = (runs - raw * totals) / self._content.total
        covariance = runs.T @ runs / len(runs) + np.outer(raw - shares, raw - shares)
        return LinearAnswer(shares, covariance, float(len(runs)), "noisy cells", "")

    def _table(self, grid: Grid) -> Floats:
        """The published shares of a grid's cells."""
        places = [self._schema.index(name) for name in grid.names]
        if self._content.estimate is None:
            counts = count_cells(self._codes, self._schema.cardinalities, places)
            return _grouped(counts / max(1, len(self._codes)), grid.groups)
        return _grouped(_sums(self._distribution, places), grid.groups)

    def _counts(self, grid: Grid, questions: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Weighted sums of the noisy cells, and of each repetition's deviations."""
        assert self._content.estimate is not None
        assert self._content.deviations is not None
        weights = np.stack(questions).reshape(len(questions), -1)
        sizes = self._schema.cardinalities
        places = [self._schema.index(name) for name in grid.names]
        sums = [
            weights @ _grouped(_sums(cells.reshape(sizes), places), grid.groups).ravel()
            for cells in (self._content.estimate, *self._content.deviations)
        ]
        return sums[0], np.stack(sums[1:])


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
