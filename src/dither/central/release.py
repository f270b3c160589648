"""The release of a trusted curator: some columns of a table, one method, a synthetic table and a histogram.

Trust model: central. The guarantee protects people from readers of the release, not from the curator. (The record form of
CSM could be run without one and says so.) Everything a release says begins with that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dither import __version__
from dither.central.answers import Condition, CountAnswer, answer
from dither.central.measurement import MAX_CELLS, Neighbours, check_neighbours, domain_size
from dither.central.methods import RECORDS, central_method
from dither.checks import check_whole
from dither.errors import StateError
from dither.fit import Marginal
from dither.fit.project import norm_sub
from dither.mechanisms import check_spent
from dither.notice import Notice, notice_from_json, own_warnings, shown_epsilon
from dither.randomness import check_seed
from dither.release.call import check_record, command_again, plain, python_again
from dither.release.figures import attribute_figure
from dither.release.folder import MANIFEST, read_manifest, reading, write_folder, write_json
from dither.release.pages import render_page
from dither.release.report import attribute_card, shown_note
from dither.release.words import noise_sentence
from dither.schema import Schema, load_schema
from dither.schema.cells import codes_of, count_cells
from dither.schema.files import write_table
from dither.schema.table import encode
from dither.tally.archive import pack, unpack
from dither.types import Floats, JsonMapping, JsonObject, NativeTable

FORMAT = "dither-central-release-1"
SYNTHETIC, HISTOGRAM, DEVIATIONS, SCHEMA = (
    "synthetic.parquet",
    "histogram.parquet",
    "deviations.bin",
    "schema.json",
)
FILES = (SYNTHETIC, HISTOGRAM, DEVIATIONS, SCHEMA, MANIFEST, "report.html")
# Reading and noising take the longer the more records there are, which is private: those times stay with the curator.
PUBLIC_STAGES = ("table",)
CENTRAL_TRUST = "central: a curator holds the table"
RECORD_TRUST = "local law, run by a curator who holds the table: each record is noised on its own"
MEANING: dict[Neighbours, str] = {
    "add-remove": "one record added or removed",
    "replace": "one record changed; the number of records is public",
}


@dataclass(frozen=True, repr=False)
class CentralRelease:
    """What is published, and how it came about.

    `estimate` holds the raw estimates of all cells, the last column fastest, and `deviations` what the method was off by in each
    repetition on its own estimate; None where the domain is too large or the method gives none. Everything is computed from
    noisy values and public parameters: `notes` too, and the number of synthetic rows, which is public under `replace`. `call`
    has every argument of the call (`release.call.recorded`).

    >>> import dither
    >>> release = dither.central_release("adult", epsilon=1.0, columns=["sex", "income"], method="laplace")
    >>> release.synthetic.column_names, release.estimate.shape
    (['sex', 'income'], (4,))
    """

    method: str
    schema: Schema
    synthetic: NativeTable
    estimate: Floats | None
    deviations: Floats | None
    epsilon_asked: float
    epsilon_achieved: float
    neighbours: Neighbours
    parameters: JsonMapping
    public_seed: int
    seed: int | None
    rows: int
    seconds: Mapping[str, float]
    notes: JsonMapping
    warnings: tuple[Notice, ...] = ()
    call: JsonMapping | None = None
    dither_version: str = __version__

    def __post_init__(self) -> None:
        check_spent(self.epsilon_asked, self.epsilon_achieved)
        adds = self.neighbours == "add-remove"
        between = "the table with and without a person's record" if adds else "two records"
        told = own_warnings(self.warnings, self.epsilon_achieved, self.seed, between)
        object.__setattr__(self, "warnings", told)

    @property
    def trust_model(self) -> str:
        """Who has to be trusted."""
        return RECORD_TRUST if self.method == RECORDS else CENTRAL_TRUST

    @property
    def protects(self) -> str:
        """Which tables cannot be told apart."""
        return (
            "any record against any other; the number of records is public"
            if self.method == RECORDS
            else MEANING[self.neighbours]
        )

    @property
    def noise(self) -> str:
        """Where the noise came from and whether it can be drawn again, in one sentence."""
        return noise_sentence(self.seed, simulated=True)

    @property
    def standard_errors(self) -> Floats | None:
        """Of each cell, if they are known."""
        return None if self.deviations is None else np.sqrt((self.deviations**2).mean(axis=0))

    def count(
        self, where: Mapping[str, Condition] | None = None, *, level: float = 0.95
    ) -> CountAnswer:
        """How many records meet the conditions, with an interval.

        `where` gives columns a value, a list of values, or a range as a pair: {"age": (30, 50), "sex": "Female"}. Raw and
        unprojected, so the parts of a whole add up.
        """
        cells = self._counted() if self.estimate is None else self.estimate
        return answer(self.schema, cells, self.deviations, where or {}, level)

    def _counted(self) -> Floats:
        domain_size(self.schema.cardinalities, self.schema.names)
        return (
            count_cells(encode(self.synthetic, self.schema).codes, self.schema.cardinalities)
            .ravel()
            .astype(np.float64)
        )

    def marginal(self, attributes: Sequence[str] | str) -> Marginal:
        """The distribution of some columns: the nearest one to the estimate, or, without any, that of the synthetic table.

        Standard errors are those of the raw shares, from the deviations.
        """
        names = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        places = [self.schema.index(name) for name in names]
        sizes, errors = self.schema.cardinalities, None
        if self.estimate is None:
            counts = (
                count_cells(encode(self.synthetic, self.schema).codes, sizes, places)
                if self.rows
                else None
            )
            shape = tuple(sizes[place] for place in places)
            shares = np.zeros(shape) if counts is None else counts / self.rows
        else:
            sums = _sums(self.estimate.reshape(sizes), places)
            total = max(1.0, float(sums.sum()))
            shares = norm_sub(sums.ravel() / total).reshape(sums.shape)
            if self.deviations is not None:
                runs = np.stack([_sums(run.reshape(sizes), places) for run in self.deviations])
                # a share is a sum over the total, and both are off
                axes = tuple(range(1, runs.ndim))
                runs = (runs - sums / total * runs.sum(axis=axes, keepdims=True)) / total
                errors = np.sqrt((runs**2).mean(axis=0))
        labels = tuple(self.schema[name].labels for name in names)
        return Marginal(attributes=names, labels=labels, frequencies=shares, standard_errors=errors)

    def histogram(self) -> pa.Table:
        """All cells as a table: the label of each column, the raw estimate, and its standard error where there is one."""
        if self.estimate is None:
            raise StateError("this release has no histogram")
        cells = codes_of(np.arange(self.estimate.size), self.schema.cardinalities).astype(np.int32)
        columns: JsonObject = {}
        for j, attribute in enumerate(self.schema):
            columns[attribute.name] = pa.DictionaryArray.from_arrays(
                pa.array(cells[:, j]), pa.array(attribute.labels)
            )
        columns[_free("estimate", columns)] = pa.array(self.estimate)
        if self.standard_errors is not None:
            columns[_free("standard_error", columns)] = pa.array(self.standard_errors)
        return pa.table(columns)

    def __repr__(self) -> str:
        return (
            f"CentralRelease({self.trust_model}; {self.method}, {len(self.schema)} columns, epsilon "
            f"{shown_epsilon(self.epsilon_achieved)}, {self.rows:,} synthetic rows)"
        )

    def report(self) -> str:
        """The report, one HTML page without any outside resource."""
        local = self.method == RECORDS
        made = {**self.parameters, **self.notes}
        return render_page(
            "central.html",
            title="Record-wise (local) release" if local else "Central release",
            version=self.dither_version,
            subtitle=f"{self.trust_model.capitalize()}{', but NOT PRIVATE with its seed' if self.seed is not None else ''}",
            release=self,
            chosen=central_method(self.method),
            local=local,
            made=[
                (name, "none" if value is None else shown_note(value))
                for name, value in made.items()
            ],
            cells=math.prod(self.schema.cardinalities),
            command=None if self.call is None else command_again(self.call),
            python=None if self.call is None else python_again(self.call),
            cards=[
                attribute_card(attribute_figure(a, self.marginal([a.name]))) for a in self.schema
            ],
        )

    def save(self, directory: str | Path, *, overwrite: bool = False) -> Path:
        """Write the release's folder in one step and give its path; an earlier one is replaced only with `overwrite`."""

        def write(folder: Path) -> None:
            write_table(self.synthetic, folder / SYNTHETIC)
            if self.estimate is not None:
                write_table(self.histogram(), folder / HISTOGRAM)
            if self.deviations is not None:
                (folder / DEVIATIONS).write_bytes(pack({}, {"deviations": self.deviations}))
            write_json(self.schema.to_json(), folder / SCHEMA)
            (folder / "report.html").write_text(self.report(), encoding="utf-8")
            write_json(self.to_json(), folder / MANIFEST)

        return write_folder(directory, FORMAT, FILES, write, overwrite=overwrite)

    @classmethod
    def load(cls, directory: str | Path) -> CentralRelease:
        """Read a saved release."""
        folder = Path(directory)
        manifest = read_manifest(folder, FORMAT)
        estimate = deviations = None
        with reading(folder / SCHEMA):
            schema = load_schema(folder / SCHEMA)
        if (folder / HISTOGRAM).is_file():
            with reading(folder / HISTOGRAM):
                estimate = _read(folder / HISTOGRAM).columns[len(schema)].to_numpy()
                _check_estimate(schema, estimate)
        if (folder / DEVIATIONS).is_file():
            with reading(folder / DEVIATIONS):
                deviations = unpack((folder / DEVIATIONS).read_bytes())[1]["deviations"]
                _check_deviations(schema, estimate, deviations)
        with reading(folder / SYNTHETIC):
            synthetic = _read(folder / SYNTHETIC)
        with reading(folder / MANIFEST):
            check_whole("rows", manifest["rows"])
            check_record(manifest["call"])
            _check_whole(manifest, schema, synthetic, estimate, deviations)
            kept = (
                "epsilon_asked",
                "epsilon_achieved",
                "parameters",
                "public_seed",
                "seed",
                "rows",
                "seconds",
                "notes",
                "call",
                "dither_version",
            )
            return cls(
                method=central_method(manifest["method"]).name,
                schema=schema,
                synthetic=synthetic,
                estimate=estimate,
                deviations=deviations,
                neighbours=check_neighbours(manifest["neighbours"]),
                warnings=tuple(notice_from_json(entry) for entry in manifest["warnings"]),
                **{name: manifest[name] for name in kept},
            )

    def to_json(self) -> JsonObject:
        """The manifest."""
        return {
            "trust_model": self.trust_model,
            "format": FORMAT,
            "method": self.method,
            "reference": central_method(self.method).reference,
            "columns": list(self.schema.names),
            "cells": math.prod(self.schema.cardinalities),
            "flattening": "C order of the product of the columns' codes: the last column changes fastest",
            "epsilon_asked": self.epsilon_asked,
            "epsilon_achieved": self.epsilon_achieved,
            "neighbours": self.neighbours,
            "neighbours_meaning": self.protects,
            "private": self.seed is None,
            "noise": self.noise,
            "seed": self.seed,
            "public_seed": self.public_seed,
            "parameters": plain(self.parameters),
            "notes": plain(self.notes),
            "rows": self.rows,
            "replicates": 0 if self.deviations is None else len(self.deviations),
            "seconds": {
                stage: self.seconds[stage] for stage in PUBLIC_STAGES if stage in self.seconds
            },
            "warnings": [warning.to_json() for warning in self.warnings],
            "call": self.call,
            "dither_version": self.dither_version,
        }


def _check_estimate(schema: Schema, estimate: Floats) -> None:
    cells = math.prod(schema.cardinalities)
    if estimate.shape != (cells,) or not np.isfinite(estimate).all():
        raise ValueError(
            f"the histogram does not have a number for each of {cells:,} cells of {SCHEMA}"
        )


def _check_deviations(schema: Schema, estimate: Floats | None, deviations: Floats) -> None:
    cells = math.prod(schema.cardinalities)
    if estimate is None:
        raise ValueError(f"there are deviations, and {HISTOGRAM} is missing")
    if deviations.ndim != 2 or deviations.shape[1] != cells:
        raise ValueError(f"the deviations are not of the {cells:,} cells of {SCHEMA}")
    if len(deviations) == 0 or not np.isfinite(deviations).all():
        raise ValueError(f"the deviations do not have a number for each of {cells:,} cells")


def _check_whole(
    manifest: JsonMapping,
    schema: Schema,
    synthetic: pa.Table,
    estimate: Floats | None,
    deviations: Floats | None,
) -> None:
    """An error where a part is missing or is of another release."""
    for name in ("parameters", "notes", "seconds"):
        if not isinstance(manifest[name], dict):
            raise ValueError(f"{name} is no table of names and values")
    check_seed(manifest["seed"])
    if synthetic.num_rows != manifest["rows"] or sorted(synthetic.column_names) != sorted(
        schema.names
    ):
        raise ValueError(
            f"{SYNTHETIC} does not have the {manifest['rows']:,} rows and the columns of this release"
        )
    if (
        estimate is None
        and manifest["method"] != RECORDS
        and math.prod(schema.cardinalities) <= MAX_CELLS
    ):
        raise ValueError(f"{HISTOGRAM} is missing")
    held = 0 if deviations is None else len(deviations)
    if manifest.get("replicates", held) != held:
        raise ValueError(f"{DEVIATIONS} does not have {manifest['replicates']} repetitions")


def _sums(cells: Floats, places: Sequence[int]) -> Floats:
    """Sums over all axes but these, in this order."""
    kept = sorted(places)
    rest = tuple(axis for axis in range(cells.ndim) if axis not in kept)
    return cells.sum(axis=rest).transpose([kept.index(place) for place in places])


def _free(name: str, taken: JsonMapping) -> str:
    while name in taken:
        name += "_"
    return name


def _read(path: Path) -> pa.Table:
    """A Parquet file, even one without rows."""
    with pa.OSFile(str(path)) as file:
        return pq.read_table(file)
