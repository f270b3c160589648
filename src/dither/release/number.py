"""The content of a release about one number: its consumers' histograms, its cells, or its mean."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dither.checks import check_whole
from dither.errors import ParameterError, QuestionError, ReportError
from dither.fit import Marginal
from dither.fit.project import norm_sub, normal_interval
from dither.mechanisms import OutputMechanism, mechanism_from_json
from dither.methods.histogram.consumer import Consumer, Partition, read_consumers
from dither.methods.histogram.estimates import (
    CellEstimates,
    OutputCells,
    PureCells,
    consistent_counts,
)
from dither.methods.histogram.late import LateAnswer, late_answer
from dither.methods.histogram.machine import HistogramMachine, partition_of
from dither.methods.mean import Mean, MeanAnswer, mean_answer_from_json
from dither.notice import Notice, own_warnings, shown_epsilon
from dither.release.call import Call, command, python_code
from dither.release.charts import histogram_chart
from dither.release.content import Kind, unanswerable
from dither.release.figures import together
from dither.release.folder import MANIFEST, reading, write_json
from dither.release.pages import render_part
from dither.release.query.answer import Answer
from dither.release.query.numbers import NumberInquiry, NumberQuestions, number_schema
from dither.release.report import ReportBody, render_body
from dither.release.table import LOCAL_TRUST
from dither.release.words import REPLAYED_TO_READERS, UNBOUNDED_READERS, guarantee_sentence
from dither.schema import Schema
from dither.tally.archive import pack, unpack
from dither.types import Floats, JsonMapping, JsonObject, NativeTable, Progress

if TYPE_CHECKING:
    from dither.release.release import Release

CONSUMERS = "consumers"
_CELLS = "cells.bin"
# Of an edge or a count: the width of an interval and its square stay finite.
_MAX_FIGURE = 1e150
_MAX_LETTERS = 60
# Windows reserves these names for devices.
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


@dataclass(frozen=True)
class ConsumerHistogram:
    """One consumer's counts.

    `raw` is unbiased and may be negative. `estimates` is the same, or the consistent, non-negative
    version if that was asked for, or read off the most likely density (`ranges`). Standard errors
    and intervals are those of the raw counts: noise and, where only some people were asked, the
    sampling of them. `epsilon` is the consumer's own, if it asked for one.
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
        """The label of each bin; the last bin is closed."""
        return bin_labels(self.edges)

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


def bin_labels(edges: Floats) -> list[str]:
    """Labels of half-open bins, the last one closed."""
    shown = [f"{edge:,.10g}" for edge in edges]
    last = len(shown) - 2
    return [f"[{shown[i]}, {shown[i + 1]}{']' if i == last else ')'}" for i in range(last + 1)]


@dataclass(frozen=True)
class NumberContent:
    """What was collected about one number in [low, high].

    Args:
        attribute: The number's name.
        low: The lower end of the public range.
        high: The upper end.
        partition: The union of all consumers' edges.
        unit: What every number is a multiple of; the cells are then cut between its multiples.
        consumers: Each consumer's histogram.
        mechanisms: The randomisers that participants used.
        bits_per_report: What one participant sends.
        consistent: Whether the counts were made consistent and non-negative.
        cells: The estimates of all cells, from which later questions are answered; None where the
            method keeps none.
        collected_mean: The mean, of the method `mean` alone.
        clip: Whether numbers beyond the range counted as its nearer end, in a campaign.
    """

    kind: ClassVar[Kind] = "number"
    from_participants: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = (_CELLS, CONSUMERS)

    attribute: str
    low: float
    high: float
    partition: tuple[float, ...]
    consumers: tuple[ConsumerHistogram, ...] = ()
    mechanisms: tuple[str, ...] = ()
    bits_per_report: int = 0
    consistent: bool = False
    cells: CellEstimates | None = field(default=None, repr=False, compare=False)
    collected_mean: MeanAnswer | None = None
    clip: bool = False
    unit: float | None = None

    @classmethod
    def from_mean(cls, machine: Mean, attribute: str, *, clip: bool) -> NumberContent:
        """What a finished collection of a mean found."""
        return cls(
            attribute=attribute,
            low=machine.low,
            high=machine.high,
            partition=(machine.low, machine.high),
            mechanisms=machine.mechanisms,
            bits_per_report=machine.bits,
            collected_mean=machine.answer(),
            clip=clip,
        )

    @classmethod
    def from_histograms(
        cls,
        machine: HistogramMachine[Any],
        attribute: str,
        partition: Partition,
        *,
        consistent: bool,
        clip: bool,
    ) -> NumberContent:
        """What a finished collection of histograms found."""
        answer = machine.answer()
        estimates: Sequence[Floats] = answer.likely or answer.counts
        if consistent:
            memberships = [partition.membership(consumer) for consumer in machine.consumers]
            estimates = consistent_counts(
                memberships, answer.counts, answer.variances, machine.population
            )
        figures = zip(machine.consumers, estimates, answer.counts, answer.variances, strict=True)
        return cls(
            attribute=attribute,
            low=machine.low,
            high=machine.high,
            partition=partition.edges,
            consumers=tuple(
                ConsumerHistogram(
                    c.name, np.asarray(c.edges), estimate, np.sqrt(variance), raw, c.epsilon
                )
                for c, estimate, raw, variance in figures
            ),
            mechanisms=machine.mechanisms,
            bits_per_report=machine.bits,
            consistent=consistent,
            cells=answer.cells,
            clip=clip,
            unit=partition.unit,
        )

    @property
    def synthetic(self) -> NativeTable:
        """There is no synthetic table of one number."""
        raise unanswerable(self.kind, "synthetic table")

    @property
    def trust_model(self) -> str:
        """Which party has to be trusted."""
        return LOCAL_TRUST

    @property
    def between(self) -> str:
        """What the guarantee makes hard to distinguish."""
        return "two records"

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
        """The histogram of a further consumer, from the same reports.

        Args:
            consumer: A number of bins, a list of edges or a `Consumer`.
            level: The level of the intervals.

        Raises:
            QuestionError: The method keeps no cells.
        """
        (wanted,) = read_consumers([consumer], self.low, self.high)
        return late_answer(self._inquiry.cells, wanted, level)

    def range(self, low: float, high: float, level: float = 0.95) -> Answer:
        """The share of people whose number lies in [low, high)."""
        return self._inquiry.share(low, high, level)

    def cdf(self, value: float, level: float = 0.95) -> Answer:
        """The share of people with a smaller number than this."""
        return self._inquiry.below(value, level)

    def variance(self, level: float = 0.95) -> Answer:
        """The variance of the numbers."""
        return self._inquiry.variance(level)

    @cached_property
    def _inquiry(self) -> NumberInquiry:
        """Answers from the cells. One object, so that its answers can be subtracted."""
        if self.cells is not None:
            return NumberInquiry(self.cells)
        rest = "the mean alone" if self.collected_mean else "its consumers' counts alone"
        raise QuestionError(
            f"the method keeps no cells to answer further questions from, it has {rest}; "
            "collect with ranges, chp or smart",
            where="method",
        )

    def check(self, release: Release) -> None:
        """See `Content`."""
        check_whole("participants", release.participants)

    def warnings(self, release: Release) -> Sequence[Notice]:
        """See `Content`."""
        return own_warnings(release.warnings, release.epsilon_achieved, release.seed)

    def guarantee(self, release: Release) -> str:
        """See `Content`."""
        return guarantee_sentence(release.epsilon_achieved, simulated=release.simulated)

    def readers(self, release: Release) -> str:
        """See `Content`."""
        return REPLAYED_TO_READERS if release.replayable else UNBOUNDED_READERS

    def describe(self, release: Release) -> str:
        """See `Content`."""
        kind = "simulated " if release.simulated else ""
        figures = f"{len(self.consumers)} histograms" if self.consumers else "mean"
        return (
            f"{kind}{release.method}, {figures} of {self.attribute}, "
            f"{release.participants:,} participants, "
            f"epsilon {shown_epsilon(release.epsilon_achieved)}"
        )

    def questions(
        self, release: Release, progress: Progress | None = None, reason: str = ""
    ) -> NumberQuestions:
        """See `Content`. Answers have their errors without replicates."""
        edges = tuple(self.consumers[0].edges.tolist()) if self.consumers else self.partition
        schema = number_schema(self.attribute, self.partition, self.unit)
        return NumberQuestions(schema, lambda: self._inquiry, self.collected_mean, edges)

    def marginal(self, release: Release, attributes: Sequence[str]) -> Marginal:
        """See `Content`. The bins are those of the first consumer, or the cells."""
        table = self.questions(release).table(list(attributes), None, None, 0.95, False)
        shares = np.array([row.estimate for row in table.rows])
        errors = np.array([row.standard_error for row in table.rows], dtype=np.float64)
        labels = tuple(str(row.values[0]) for row in table.rows)
        return Marginal(table.by, shares, errors, labels=(labels,))

    def manifest(self, release: Release) -> JsonObject:
        """See `Content`. Counts are estimated numbers of participants."""
        mean = self.collected_mean
        return {
            "number": self.attribute,
            "range": [self.low, self.high],
            "partition": list(self.partition),
            "consumers": [consumer.to_json() for consumer in self.consumers],
            "mean": None if mean is None else mean.to_json(),
            "mechanisms": list(self.mechanisms),
            "bits_per_report": self.bits_per_report,
            "consistent": self.consistent,
            "clip": self.clip,
            **({} if self.unit is None else {"unit": self.unit}),
            "path": release.call.path,
        }

    def write(self, release: Release, folder: Path, form: str) -> None:
        """See `Content`. Each consumer gets consumers/NAME.json, .csv and .html."""
        if self.cells is not None:
            (folder / _CELLS).write_bytes(_pack_cells(self.cells))
        if not self.consumers:
            return
        (folder / CONSUMERS).mkdir()
        names = file_names([consumer.name for consumer in self.consumers])
        for consumer, name in zip(self.consumers, names, strict=True):
            path = folder / CONSUMERS / name
            write_json(self._consumer_json(release, consumer), path.with_name(f"{name}.json"))
            path.with_name(f"{name}.csv").write_text(
                _consumer_csv(consumer), encoding="utf-8", newline=""
            )
            page = render_body(release, self._report(release, consumer))
            path.with_name(f"{name}.html").write_text(page, encoding="utf-8")

    @classmethod
    def read(cls, folder: Path, manifest: JsonMapping, schema: Schema, call: Call) -> NumberContent:
        """Read the files of this kind."""
        cells = None
        if (folder / _CELLS).is_file():
            with reading(folder / _CELLS):
                cells = _unpack_cells((folder / _CELLS).read_bytes())
        with reading(folder / MANIFEST):
            low, high = _edges("range", manifest["range"])
            mean = manifest["mean"]
            attribute = manifest["number"]
            partition = _edges("partition", manifest["partition"])
            unit = _unit(manifest, partition)
            number_schema(attribute, partition, unit)
            return cls(
                attribute=attribute,
                low=low,
                high=high,
                partition=partition,
                consumers=tuple(_read_consumer(entry) for entry in manifest["consumers"]),
                mechanisms=tuple(map(str, manifest["mechanisms"])),
                bits_per_report=check_whole("bits_per_report", manifest["bits_per_report"]),
                consistent=_flag(manifest, "consistent"),
                cells=cells,
                collected_mean=None if mean is None else mean_answer_from_json(mean),
                clip=_flag(manifest, "clip"),
                unit=unit,
            )

    def check_shown(self, release: Release) -> None:
        """See `Content`."""
        self.report(release)

    def report(self, release: Release) -> ReportBody:
        """See `Content`."""
        return self._report(release)

    def _report(self, release: Release, only: ConsumerHistogram | None = None) -> ReportBody:
        """The report, or the page of one consumer, which leaves out how to run it again."""
        contents: list[tuple[str, str]] = []
        shown = self.consumers if only is None else (only,)
        again = only is None and release.call.record is not None
        epsilon = shown_epsilon(release.epsilon_achieved, 4)
        figures = "Histograms" if self.consumers else "Mean"
        html = render_part(
            "report_body.html",
            contents=contents,
            release=release,
            content=self,
            histograms=[self._consumer_section(release, consumer) for consumer in shown],
            command=command(release.call) if again else None,
            python=python_code(release.call) if again else None,
        )
        heading = release.call.title or release.call.name or release.call.campaign or figures
        replayable = ", but NOT PRIVATE with its seed" if release.seed is not None else ""
        mechanisms = ", ".join(self.mechanisms) or "nothing to ask"
        return ReportBody(
            html=html,
            contents=tuple(contents),
            heading=heading if only is None else f"Histogram for {only.name}",
            subtitle=f"Local differential privacy{replayable} · "
            f"collected by {release.method} ({mechanisms})",
            facts=(
                ("Participants", f"{release.participants:,}"),
                ("Epsilon per participant", epsilon),
                ("Bits per participant", f"{self.bits_per_report:,}"),
            ),
            citation=f"{figures} of one number from {release.participants:,} participants, "
            f"collected with Dither {release.dither_version}, method {release.method}, under local "
            f"differential privacy with epsilon {epsilon} for everything that a participant sent.",
        )

    def _consumer_section(
        self, release: Release, consumer: ConsumerHistogram
    ) -> Mapping[str, object]:
        """A consumer's chart and the rows of its table.

        Counts are not negative and add up to all people; the raw ones are in the files.
        """
        counts, errors, low, high = self.published_counts(release, consumer)
        figures = list(zip(consumer.labels, counts, errors, low, high, strict=True))
        # The largest of several noisy counts: its interval is one of intervals that hold together.
        wide = self.published_counts(release, consumer, together(len(figures)))
        ranked = list(zip(consumer.labels, *wide, strict=True))
        name, count, error, least, most = max(ranked, key=lambda row: row[1])
        shown, _, interval = rounded_counts(count, error, least, most)
        words = (
            f"Histogram for {consumer.name}, {len(figures)} bins. Largest: {name} with about "
            f"{shown} people (95 % interval {interval}, also for the choice of the largest). All "
            "figures are in the table below."
        )
        return {
            "name": consumer.name,
            "chart": histogram_chart(consumer.edges, counts, low, high, words),
            "rows": [(label, *rounded_counts(n, error, a, b)) for label, n, error, a, b in figures],
        }

    def published_counts(
        self, release: Release, consumer: ConsumerHistogram, level: float = 0.95
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """A consumer's counts, standard errors and intervals, as every question answers them.

        Counts are not negative and add up to all people, unlike the raw ones of `consumers`.
        """
        if self.cells is not None and consumer.epsilon is None:
            wanted = Consumer(consumer.name, tuple(consumer.edges.tolist()))
            late = late_answer(self.cells, wanted, level)
            return late.estimates, late.standard_errors, late.low, late.high
        people = float(release.people)
        counts = norm_sub(consumer.estimates / max(people, 1.0)) * people
        low, high = normal_interval(
            np.clip(consumer.raw, 0.0, people), consumer.standard_errors, level
        )
        low, high = np.clip(low, 0.0, counts), np.clip(high, counts, max(people, 0.0))
        return counts, consumer.standard_errors, low, high

    def _consumer_json(self, release: Release, consumer: ConsumerHistogram) -> JsonObject:
        """A consumer's figures with the facts they rest on."""
        low, high = consumer.interval()
        return {
            "format": "dither-consumer-1",
            **consumer.to_json(),
            "low": low.tolist(),
            "high": high.tolist(),
            "participants": release.participants,
            "epsilon_achieved": release.epsilon_achieved,
            "method": release.method,
            "range": [self.low, self.high],
            "consistent": self.consistent,
            "private": release.private,
            "campaign": release.campaign,
            "dither_version": release.dither_version,
        }


def rounded_counts(count: float, error: float, low: float, high: float) -> tuple[str, str, str]:
    """A count, its standard error and its interval, without digits that the error blurs.

    >>> rounded_counts(1234.56, 45.6, 1145.2, 1323.9)
    ('1,235', '46', '1,145 to 1,324')
    >>> rounded_counts(0.0, 0.0123, 0.0, 0.0241)
    ('0.000', '0.012', '0.000 to 0.024')
    """
    digits = 0 if error <= 0 else max(0, 1 - math.floor(math.log10(error)))
    shown = [f"{max(0.0, value):,.{min(digits, 6)}f}" for value in (count, error, low, high)]
    return shown[0], shown[1], f"{shown[2]} to {shown[3]}"


def file_names(names: Sequence[str]) -> list[str]:
    """A file name, without its ending, for each consumer; no two are alike.

    The names hold plain letters, digits, dots and dashes: no separator, no leading dot, no name of
    a device, so that each file lies in the folder.
    """
    out: list[str] = []
    taken: set[str] = set()
    for name in names:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[:_MAX_LETTERS]
        base = short.rstrip("-._") or "consumer"
        if _DEVICE.fullmatch(base):
            base = f"consumer-{base}"
        chosen, number = base, 1
        while chosen.lower() in taken:
            number += 1
            chosen = f"{base}-{number}"
        taken.add(chosen.lower())
        out.append(chosen)
    return out


def _consumer_csv(consumer: ConsumerHistogram) -> str:
    """One row per bin: its edges, the count, its standard error and 95 % interval."""
    low, high = consumer.interval()
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("from", "to", "count", "standard_error", "low", "high"))
    columns = (
        consumer.edges[:-1],
        consumer.edges[1:],
        consumer.estimates,
        consumer.standard_errors,
        low,
        high,
    )
    writer.writerows([repr(float(number)) for number in row] for row in zip(*columns, strict=True))
    return out.getvalue()


def _edges(name: str, data: Sequence[float]) -> tuple[float, ...]:
    """Finite numbers of a manifest in rising order."""
    edges = tuple(map(float, data))
    rising = all(low < high for low, high in pairwise(edges))
    # A comparison with NaN is false.
    if not rising or not all(abs(edge) < _MAX_FIGURE for edge in edges):
        raise ValueError(f"{name} is {data!r}, not finite numbers in order"[:200])
    return edges


def _unit(data: JsonMapping, edges: Sequence[float]) -> float | None:
    """The unit of a manifest or of cells, if they state one; an error unless it fits the edges."""
    if data.get("unit") is None:
        return None
    unit = float(data["unit"])
    attribute = number_schema("number", edges, unit).attributes[0]
    if partition_of(attribute).unit != unit:
        raise ValueError(f"its edges do not lie between multiples of its unit {unit:g}")
    return unit


def _read_consumer(data: JsonMapping) -> ConsumerHistogram:
    edges, estimates, errors = (
        np.asarray(data[key], float) for key in ("edges", "estimates", "standard_errors")
    )
    raw = np.asarray(data["raw"], float) if "raw" in data else estimates
    about = f"consumer {data['name']!r}"
    if not estimates.shape == errors.shape == raw.shape == (len(edges) - 1,):
        raise ValueError(f"{about} has not as many counts as bins")
    figures = np.concatenate([edges, estimates, errors, raw])
    # A comparison with NaN is false.
    if not (np.abs(figures) < _MAX_FIGURE).all() or (errors < 0).any():
        raise ValueError(f"{about} has edges or counts that are no finite numbers")
    if len(edges) < 2 or not (np.diff(edges) > 0).all():
        raise ValueError(f"{about} has edges that are not in order")
    return ConsumerHistogram(str(data["name"]), edges, estimates, errors, raw, data.get("epsilon"))


def _flag(manifest: JsonMapping, name: str) -> bool:
    value = manifest[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}"[:200])
    return value


def _pack_cells(cells: CellEstimates) -> bytes:
    meta: JsonObject = {"edges": list(cells.partition.edges), "population": cells.population}
    if cells.partition.unit is not None:
        meta |= {"unit": cells.partition.unit}
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
    edges = _edges("edges", meta["edges"])
    partition = Partition(edges, _unit(meta, edges))
    if partition.cells < 1:
        raise ReportError("the cells of a histogram have no edges")
    population = check_whole("population", meta["population"], 1)
    mechanism, smoothed = mechanism_from_json(meta["mechanism"]), arrays.get("smoothed")
    cells: CellEstimates
    if "outputs" in arrays:
        outputs = arrays["outputs"]
        if not isinstance(mechanism, OutputMechanism) or outputs.shape != (mechanism.counters,):
            raise ReportError("the outputs of a histogram are not those of its mechanism")
        counts_for = arrays["counts_for"]
        cells = OutputCells(partition, mechanism, counts_for, outputs, population, smoothed)
    else:
        asked = check_whole("asked", meta["asked"], 1)
        cells = PureCells(partition, mechanism, arrays["frequencies"], asked, population, smoothed)
    density = cells.counts if smoothed is None else smoothed
    if not cells.counts.shape == density.shape == (partition.cells,):
        raise ReportError("the cells of a histogram are not as many as its edges say")
    return cells
