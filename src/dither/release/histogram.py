"""What a histogram collection publishes: each consumer's counts and errors, and what it cost a participant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from dither import __version__
from dither.checks import check_whole
from dither.errors import ParameterError, ReportError
from dither.estimate.project import normal_interval
from dither.mechanisms import SetStrategy, mechanism_from_json
from dither.mechanisms.probability import check_spent
from dither.notice import REPLAYABLE, Notice, notice_from_json
from dither.protocols.histogram.consumer import Consumer, Partition, read_consumers
from dither.protocols.histogram.estimates import CellEstimates, LateAnswer, PureCells, consistent_counts, late_answer
from dither.protocols.histogram.machine import HistogramMachine
from dither.protocols.histogram.smart import StrategyCells
from dither.release.call import check_record, command_again, plain, python_again
from dither.release.charts import histogram_chart
from dither.release.folder import MANIFEST, read_manifest, reading, write_folder, write_json
from dither.release.pages import render_page
from dither.release.words import noise_sentence
from dither.tally.archive import pack, unpack
from dither.types import Floats, JsonMapping, JsonObject

FORMAT = "dither-histogram-1"
CELLS = "cells.bin"
FILES = (MANIFEST, "report.html", CELLS)


@dataclass(frozen=True)
class ConsumerHistogram:
    """One consumer's counts.

    `raw` is unbiased and may be negative; `estimates` is the same, or the consistent, non-negative version if that
    was asked for. Standard errors and intervals are those of the raw counts: noise and, where only some people were
    asked, who was drawn. `epsilon` is the consumer's own, if it asked for one.
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
    """All consumers' histograms of one simulated collection; `seed` is what the caller gave, if anything.

    `call` has every argument of the call (`release.call.recorded`). `moved` is how many values lay outside the range: a true
    count, for whoever holds the values, and written nowhere.

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
    dither_version: str = __version__
    moved: int = field(default=0, repr=False, compare=False)

    @classmethod
    def from_machine(cls, machine: HistogramMachine, partition: Partition, *, consistent: bool, **known: Any) -> Self:
        """The release of a finished histogram method; `partition` is the union of all consumers' edges."""
        answer = machine.answer()
        parameters = {name: value for name, value in machine.plain_parameters().items() if name != "consumers"}
        estimates: list[Floats] = list(answer.counts)
        if consistent:
            memberships = [partition.membership(c) for c in machine.consumers]
            estimates = consistent_counts(memberships, answer.counts, answer.variances, machine.population)
        return cls(
            consumers=tuple(
                ConsumerHistogram(c.name, np.asarray(c.edges), estimate, np.sqrt(variance), raw, c.epsilon)
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

    def __post_init__(self) -> None:
        check_spent(self.epsilon_asked, self.epsilon_achieved)
        if self.seed is not None and REPLAYABLE not in self.warnings:
            object.__setattr__(self, "warnings", (*self.warnings, REPLAYABLE))

    @property
    def noise(self) -> str:
        """Where the noise came from and whether it can be drawn again, in one sentence."""
        return noise_sentence(self.seed, simulated=True)

    def consumer(self, name: str) -> ConsumerHistogram:
        """A consumer's histogram by name."""
        for entry in self.consumers:
            if entry.name == name:
                return entry
        raise ParameterError(
            f"no consumer {name!r}; there are {', '.join(c.name for c in self.consumers)}", where="consumer"
        )

    def answer(self, consumer: Consumer | Any, level: float = 0.95) -> LateAnswer:
        """Answer somebody who comes afterwards, from the same reports: a count of bins, edges or a `Consumer`."""
        if self.cells is None:
            raise ParameterError(
                f"{self.method} keeps no common partition to answer late queries from; collect with chp or smart",
                where="method",
                value=self.method,
            )
        (wanted,) = read_consumers([consumer], self.low, self.high)
        return late_answer(self.cells, wanted, level)

    def report(self) -> str:
        """The page, one HTML file without any outside resource."""
        return render_page(
            "histogram.html",
            title="Histograms",
            version=self.dither_version,
            subtitle=f"Local differential privacy{', but NOT PRIVATE with its seed' if self.seed is not None else ''} · "
            f"collected by {self.method} ({', '.join(self.mechanisms) or 'nothing to ask'})",
            release=self,
            histograms=[_section(consumer) for consumer in self.consumers],
            command=None if self.call is None else command_again(self.call),
            python=None if self.call is None else python_again(self.call),
        )

    def save(self, directory: str | Path) -> Path:
        """Write the folder in one step: release.json, report.html, and the cells that late answers come from."""

        def write(folder: Path) -> None:
            if self.cells is not None:
                (folder / CELLS).write_bytes(_pack_cells(self.cells))
            (folder / "report.html").write_text(self.report(), encoding="utf-8")
            write_json(self.to_json(), folder / MANIFEST)

        return write_folder(directory, FORMAT, FILES, write)

    @classmethod
    def load(cls, directory: str | Path) -> HistogramRelease:
        """Read a saved release."""
        folder = Path(directory)
        manifest = read_manifest(folder, FORMAT)
        with reading(folder):
            for name in ("participants", "bits_per_report"):
                check_whole(name, manifest[name])
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
                cells=_unpack_cells((folder / CELLS).read_bytes()) if (folder / CELLS).is_file() else None,
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
            "dither_version": self.dither_version,
        }


def _section(consumer: ConsumerHistogram) -> dict[str, object]:
    """A consumer's chart and the rows of its table."""
    low, high = consumer.interval()
    figures = list(zip(consumer.labels, consumer.estimates, consumer.standard_errors, low, high, strict=True))
    name, count, _, least, most = max(figures, key=lambda row: row[1])
    words = (
        f"Histogram for {consumer.name}, {len(figures)} bins. Largest: {name} with about {count:,.0f} people "
        f"(95 % interval {least:,.0f} to {most:,.0f}). All figures are in the table below."
    )
    return {
        "name": consumer.name,
        "chart": histogram_chart(consumer.edges, consumer.estimates, low, high, words),
        "rows": [(bin_, f"{n:,.1f}", f"{error:,.1f}", f"{a:,.1f} to {b:,.1f}") for bin_, n, error, a, b in figures],
    }


def _consumer(data: JsonMapping) -> ConsumerHistogram:
    edges, estimates, errors = (np.asarray(data[key], float) for key in ("edges", "estimates", "standard_errors"))
    raw = np.asarray(data["raw"], float) if "raw" in data else estimates
    if not estimates.shape == errors.shape == raw.shape == (len(edges) - 1,):
        raise ValueError(f"consumer {data['name']!r} has not as many counts as bins")
    return ConsumerHistogram(str(data["name"]), edges, estimates, errors, raw, data.get("epsilon"))


def _pack_cells(cells: CellEstimates) -> bytes:
    meta: JsonObject = {"edges": list(cells.partition.edges), "population": cells.population}
    if isinstance(cells, PureCells):
        meta |= {"mechanism": cells.mechanism.to_json(), "asked": cells.asked}
        return pack(meta, {"frequencies": cells.frequencies})
    if isinstance(cells, StrategyCells):
        meta |= {"strategy": cells.strategy.to_json()}
        return pack(meta, {"decoder": cells.decoder, "outputs": cells.outputs})
    raise TypeError(f"cells of type {type(cells).__name__} can't be saved")


def _unpack_cells(data: bytes) -> CellEstimates:
    meta, arrays = unpack(data)
    partition = Partition(tuple(map(float, meta["edges"])))
    if partition.cells < 1:
        raise ReportError("the cells of a histogram have no edges")
    population = check_whole("population", meta["population"], 1)
    if "strategy" in meta:
        strategy = SetStrategy.from_json(meta["strategy"])
        return StrategyCells(partition, strategy, arrays["decoder"], arrays["outputs"], population)
    mechanism = mechanism_from_json(meta["mechanism"])
    return PureCells(partition, mechanism, arrays["frequencies"], check_whole("asked", meta["asked"], 1), population)
