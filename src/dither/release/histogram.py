"""What a histogram collection publishes: each consumer's counts and errors, and what it cost a participant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from dither import __version__
from dither.checks import check_between, check_whole
from dither.errors import ParameterError, ReportError
from dither.fit.project import normal_interval
from dither.mechanisms import OutputMechanism, check_spent, mechanism_from_json
from dither.methods.histogram.consumer import Consumer, Partition, read_consumers
from dither.methods.histogram.estimates import (
    CellEstimates,
    OutputCells,
    PureCells,
    consistent_counts,
)
from dither.methods.histogram.late import LateAnswer, late_answer
from dither.methods.histogram.machine import HistogramMachine
from dither.methods.mean import Mean, MeanAnswer, mean_answer_from_json
from dither.notice import Notice, notice_from_json, own_warnings
from dither.release import consumer_files
from dither.release.call import check_record, plain
from dither.release.collected import CollectedBy, collected_from_json
from dither.release.folder import MANIFEST, read_manifest, reading, write_folder, write_json
from dither.release.number_report import number_body, number_page
from dither.release.query.answer import Answer, AnswerTable
from dither.release.query.numbers import NumberInquiry
from dither.release.words import noise_sentence
from dither.schema import Schema, load_schema
from dither.tally.archive import pack, unpack
from dither.types import Floats, JsonMapping, JsonObject

FORMAT = "dither-histogram-1"
CELLS = "cells.bin"
SCHEMA = "schema.json"
FILES = (MANIFEST, "report.html", CELLS, SCHEMA, consumer_files.FOLDER)
_MAX_FIGURE = 1e150  # of an edge or count: the width of an interval and its square stay finite


@dataclass(frozen=True)
class ConsumerHistogram:
    """One consumer's counts.

    `raw` is unbiased and may be negative; `estimates` is the same, or the consistent, non-negative version if that
    was asked for, or read off the most likely density (`ranges`). Standard errors and intervals are those of the raw counts:
    noise and, where only some people were asked, who was drawn. `epsilon` is the consumer's own, if it asked for one.
    """

    name: str
    edges: Floats
    estimates: Floats
    standard_errors: Floats
    raw: Floats
    epsilon: float | None = None

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Two-sided intervals for each bin on its own, around the raw counts."""
        return normal_interval(self.raw, self.standard_errors, level)

    @property
    def labels(self) -> list[str]:
        """Each bin in words; the last one is closed."""
        edges = [f"{edge:,.10g}" for edge in self.edges]
        last = len(edges) - 2
        return [f"[{edges[i]}, {edges[i + 1]}{']' if i == last else ')'}" for i in range(last + 1)]

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        out: JsonObject = {
            "name": self.name,
            "edges": self.edges.tolist(),
            "estimates": self.estimates.tolist(),
            "standard_errors": self.standard_errors.tolist(),
        }
        if self.raw is not self.estimates:
            out["raw"] = self.raw.tolist()
        if self.epsilon is not None:
            out["epsilon"] = self.epsilon
        return out


@dataclass(frozen=True)
class HistogramRelease:
    """All consumers' histograms of one number, or its mean alone (`collected_mean`).

    `seed` is what the caller of a simulation gave, if anything.

    `call` has every argument of that call (`release.call.recorded`). A collection from real participants has a `campaign` instead
    and the `schema` that they were shown. `moved` is how many values lay
    outside the range: a true count, for whoever holds the values, and written nowhere.

    >>> import dither
    >>> found = dither.histogram([1.0, 2.5, 7.0] * 1000, consumers=[4], epsilon=4.0, low=0, high=8)
    >>> [round(edge) for edge in found.consumers[0].edges], found.participants
    ([0, 2, 4, 6, 8], 3000)
    """

    consumers: tuple[ConsumerHistogram, ...]
    epsilon_asked: float
    epsilon_achieved: float
    bits_per_report: int
    method: str
    mechanisms: tuple[str, ...]
    participants: int
    low: float
    high: float
    partition: tuple[float, ...]
    seed: int | None = None
    consistent: bool = False
    path: str = "counts"
    cells: CellEstimates | None = field(default=None, repr=False, compare=False)
    parameters: JsonMapping = field(default_factory=dict)
    notes: JsonMapping = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()
    call: JsonMapping | None = None
    campaign: CollectedBy | None = None
    schema: Schema | None = field(default=None, repr=False)
    collected_mean: MeanAnswer | None = None
    dither_version: str = __version__
    moved: int = field(default=0, repr=False, compare=False)

    @classmethod
    def from_machine(
        cls, machine: HistogramMachine, partition: Partition, *, consistent: bool, **known: Any
    ) -> Self:
        """The release of a finished histogram method; `partition` is the union of all consumers' edges."""
        answer = machine.answer()
        parameters = {
            name: value for name, value in machine.plain_parameters().items() if name != "consumers"
        }
        estimates: list[Floats] = list(answer.likely or answer.counts)
        if consistent:
            memberships = [partition.membership(c) for c in machine.consumers]
            estimates = consistent_counts(
                memberships, answer.counts, answer.variances, machine.population
            )
        return cls(
            consumers=tuple(
                ConsumerHistogram(
                    c.name, np.asarray(c.edges), estimate, np.sqrt(variance), raw, c.epsilon
                )
                for c, estimate, raw, variance in zip(
                    machine.consumers, estimates, answer.counts, answer.variances, strict=True
                )
            ),
            epsilon_asked=machine.campaign.epsilon,
            epsilon_achieved=machine.epsilon,
            bits_per_report=machine.bits,
            method=machine.method,
            mechanisms=machine.mechanisms,
            participants=machine.population,
            low=machine.low,
            high=machine.high,
            partition=partition.edges,
            consistent=consistent,
            cells=answer.cells,
            parameters=parameters,
            notes=machine.notes(),
            **known,
        )

    @classmethod
    def from_mean(cls, machine: Mean, **known: Any) -> Self:
        """The release of a finished `mean`."""
        answer = machine.answer()
        return cls(
            consumers=(),
            epsilon_asked=machine.campaign.epsilon,
            epsilon_achieved=machine.epsilon,
            bits_per_report=machine.bits,
            method=machine.method,
            mechanisms=machine.mechanisms,
            participants=answer.people,
            low=machine.low,
            high=machine.high,
            partition=(machine.low, machine.high),
            collected_mean=answer,
            parameters=machine.plain_parameters(),
            **known,
        )

    def __post_init__(self) -> None:
        check_spent(self.epsilon_asked, self.epsilon_achieved)
        object.__setattr__(
            self, "warnings", own_warnings(self.warnings, self.epsilon_achieved, self.seed)
        )

    @property
    def noise(self) -> str:
        """Where the noise came from and whether it can be drawn again, in one sentence."""
        return noise_sentence(self.seed, simulated=self.campaign is None)

    def consumer(self, name: str) -> ConsumerHistogram:
        """A consumer's histogram by name."""
        for entry in self.consumers:
            if entry.name == name:
                return entry
        raise ParameterError(
            f"no consumer {name!r}; there are {', '.join(c.name for c in self.consumers)}",
            where="consumer",
        )

    def answer(self, consumer: Consumer | Any, level: float = 0.95) -> LateAnswer:
        """Answer somebody who comes afterwards, from the same reports: a count of bins, edges or a `Consumer`."""
        (wanted,) = read_consumers([consumer], self.low, self.high)
        return late_answer(self._known_cells(), wanted, level)

    def range(self, low: float, high: float, level: float = 0.95) -> Answer:
        """The share of people whose number lies in [low, high), with its interval."""
        return self._inquiry.share(low, high, level)

    def cdf(self, value: float, level: float = 0.95) -> Answer:
        """The share of people with a smaller number than this, with its interval."""
        return self._inquiry.below(value, level)

    def quantile(self, levels: Sequence[float] | float, level: float = 0.95) -> AnswerTable:
        """The numbers below which these shares of the people lie, each with its interval."""
        return self._inquiry.quantiles(levels, level)

    def mean(self, level: float = 0.95) -> Answer:
        """The mean number, with its interval; of the method `mean` it is not cut to the range, which would bias it."""
        mean = self.collected_mean
        if mean is None:
            return self._inquiry.mean(level)
        low, high = mean.interval(check_between("level", level, 0, 1, ends="()"))
        return Answer(
            "mean", mean.estimate, low, high, mean.standard_error, level, None, "reports", "number"
        )

    def variance(self, level: float = 0.95) -> Answer:
        """The variance of the numbers, with its interval."""
        return self._inquiry.variance(level)

    @property
    def _inquiry(self) -> NumberInquiry:
        return NumberInquiry(self._known_cells())

    def _known_cells(self) -> CellEstimates:
        if self.cells is None:
            raise ParameterError(
                f"{self.method} keeps no cells to answer late questions from; collect with ranges, chp or smart",
                where="method",
                value=self.method,
            )
        return self.cells

    def report(self) -> str:
        """The page, one HTML file without any outside resource."""
        return number_page(self, number_body(self))

    def save(self, directory: str | Path, *, overwrite: bool = False) -> Path:
        """Write the folder in one step: release.json, report.html, each consumer's own files, and the cells that late answers
        come from. An earlier release is replaced only with `overwrite`."""

        def write(folder: Path) -> None:
            if self.cells is not None:
                (folder / CELLS).write_bytes(_pack_cells(self.cells))
            if self.schema is not None:
                write_json(self.schema.to_json(), folder / SCHEMA)
            consumer_files.write_consumers(self, folder)
            (folder / "report.html").write_text(self.report(), encoding="utf-8")
            write_json(self.to_json(), folder / MANIFEST)

        return write_folder(directory, FORMAT, FILES, write, overwrite=overwrite)

    @classmethod
    def load(cls, directory: str | Path) -> HistogramRelease:
        """Read a saved release."""
        folder = Path(directory)
        manifest = read_manifest(folder, FORMAT)
        cells = schema = None
        if (folder / CELLS).is_file():
            with reading(folder / CELLS):
                cells = _unpack_cells((folder / CELLS).read_bytes())
        if (folder / SCHEMA).is_file():
            with reading(folder / SCHEMA):
                schema = load_schema(folder / SCHEMA)
        with reading(folder / MANIFEST):
            for name in ("participants", "bits_per_report"):
                check_whole(name, manifest[name])
            if manifest["call"] is not None or manifest.get("campaign") is None:
                check_record(manifest["call"])
            plain = {
                name: manifest[name]
                for name in (
                    "epsilon_asked",
                    "epsilon_achieved",
                    "bits_per_report",
                    "method",
                    "parameters",
                    "participants",
                    "consistent",
                    "seed",
                    "path",
                    "notes",
                    "call",
                    "dither_version",
                )
            }
            return cls(
                **plain,
                consumers=tuple(_consumer(entry) for entry in manifest["consumers"]),
                mechanisms=tuple(map(str, manifest["mechanisms"])),
                low=float(manifest["range"][0]),
                high=float(manifest["range"][1]),
                partition=tuple(map(float, manifest["partition"])),
                warnings=tuple(notice_from_json(entry) for entry in manifest["warnings"]),
                cells=cells,
                campaign=None
                if manifest.get("campaign") is None
                else collected_from_json(manifest["campaign"]),
                schema=schema,
                collected_mean=None
                if manifest.get("mean") is None
                else mean_answer_from_json(manifest["mean"]),
            )

    def to_json(self) -> JsonObject:
        """The manifest, plain JSON values only; counts are estimated numbers of participants."""
        return {
            "format": FORMAT,
            "consumers": [c.to_json() for c in self.consumers],
            "epsilon_asked": self.epsilon_asked,
            "epsilon_achieved": self.epsilon_achieved,
            "bits_per_report": self.bits_per_report,
            "method": self.method,
            "parameters": plain(self.parameters),
            "mechanisms": list(self.mechanisms),
            "participants": self.participants,
            "range": [self.low, self.high],
            "partition": list(self.partition),
            "consistent": self.consistent,
            "private": self.seed is None,
            "seed": self.seed,
            "noise": self.noise,
            "path": self.path,
            "notes": plain(self.notes),
            "warnings": [warning.to_json() for warning in self.warnings],
            "call": self.call,
            "campaign": None if self.campaign is None else self.campaign.to_json(),
            "mean": None if self.collected_mean is None else self.collected_mean.to_json(),
            "dither_version": self.dither_version,
        }


def _consumer(data: JsonMapping) -> ConsumerHistogram:
    edges, estimates, errors = (
        np.asarray(data[key], float) for key in ("edges", "estimates", "standard_errors")
    )
    raw = np.asarray(data["raw"], float) if "raw" in data else estimates
    if not estimates.shape == errors.shape == raw.shape == (len(edges) - 1,):
        raise ValueError(f"consumer {data['name']!r} has not as many counts as bins")
    figures = np.concatenate([edges, estimates, errors, raw])
    if (
        not (np.abs(figures) < _MAX_FIGURE).all() or (errors < 0).any()
    ):  # also where one is no number
        raise ValueError(
            f"consumer {data['name']!r} has edges or counts that are no finite numbers"
        )
    if len(edges) < 2 or not (np.diff(edges) > 0).all():
        raise ValueError(f"consumer {data['name']!r} has edges that are not in order")
    return ConsumerHistogram(str(data["name"]), edges, estimates, errors, raw, data.get("epsilon"))


def _pack_cells(cells: CellEstimates) -> bytes:
    meta: JsonObject = {"edges": list(cells.partition.edges), "population": cells.population}
    arrays = {} if cells.smoothed is None else {"smoothed": cells.smoothed}
    if isinstance(cells, PureCells):
        meta |= {"mechanism": cells.mechanism.to_json(), "asked": cells.asked}
        return pack(meta, arrays | {"frequencies": cells.frequencies})
    if isinstance(cells, OutputCells):
        meta |= {"mechanism": cells.mechanism.to_json()}
        return pack(meta, arrays | {"counts_for": cells.counts_for, "outputs": cells.outputs})
    raise TypeError(f"cells of type {type(cells).__name__} can't be saved")


def _unpack_cells(data: bytes) -> CellEstimates:
    meta, arrays = unpack(data)
    partition = Partition(tuple(map(float, meta["edges"])))
    if partition.cells < 1:
        raise ReportError("the cells of a histogram have no edges")
    population = check_whole("population", meta["population"], 1)
    mechanism, smoothed = mechanism_from_json(meta["mechanism"]), arrays.get("smoothed")
    cells: CellEstimates
    if "outputs" in arrays:
        if not isinstance(mechanism, OutputMechanism) or arrays["outputs"].shape != (
            mechanism.counters,
        ):
            raise ReportError("the outputs of a histogram are not those of its mechanism")
        cells = OutputCells(
            partition, mechanism, arrays["counts_for"], arrays["outputs"], population, smoothed
        )
    else:
        asked = check_whole("asked", meta["asked"], 1)
        cells = PureCells(partition, mechanism, arrays["frequencies"], asked, population, smoothed)
    if (
        not cells.counts.shape
        == (smoothed if smoothed is not None else cells.counts).shape
        == (partition.cells,)
    ):
        raise ReportError("the cells of a histogram are not as many as its edges say")
    return cells
