"""The histogram methods: a numeric attribute, asked once, for consumers with different bins.

Reference: Zheng, Yan, Duan, Tang, Tian, "Histogram publication over numerical values under
local differential privacy", 2021: SHP (section 4.1), CHP (4.2), the split baseline and
sampling (5). Theorem 2's ratio is ((1-f/2)/(f/2))^2, and bins are half-open (erratum 9).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np

from dither.checks import check_between, check_choice
from dither.errors import ParameterError, SchemaError
from dither.fit import Independent, Marginal, norm_sub
from dither.mechanisms import NAMES, Mechanism, SetStrategy, kernels
from dither.methods.diagnostics import Diagnostics, SampleDiagnostics
from dither.methods.histogram.consumer import Consumer, Partition, read_consumers, union
from dither.methods.histogram.estimates import (
    CellEstimates,
    ConsumerCounts,
    OutputCells,
    PureCells,
    build,
    read_off,
)
from dither.methods.histogram.smart import Choice, Objective, choose
from dither.methods.machine import Campaign, ProtocolMachine
from dither.reports import Plan, Question
from dither.schema import Attribute, Schema
from dither.tally import CountTally
from dither.types import Floats, Integers, JsonObject

# The paper's sampling ratio.
SHARE = 0.8
# Parts of epsilon are reduced by this factor, so that rounding cannot carry their sum past it.
_ROUNDING = 1 - 1e-12


@dataclass(frozen=True)
class HistogramParameters:
    """Parameters of the histogram methods.

    Attributes:
        consumers: The consumers' bins, as numbers of bins ("3,5,7") or as JSON. In JSON each
            consumer is a number of bins, a list of edges, or an object with a name, bins,
            width or edges, and an epsilon.
        mechanism: The mechanism of all participants.
    """

    consumers: str = "10"
    mechanism: str = "best"

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, NAMES)


@dataclass(frozen=True)
class _SampledParameters(HistogramParameters):
    """`share` is the share of the participants who are asked."""

    share: float = SHARE

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("share", self.share, 0, 1, ends="(]")


@dataclass(frozen=True)
class SmartParameters(HistogramParameters):
    """`objective` is what the report minimises: the mean or the worst variance of the bins."""

    objective: Objective = "mean"


def consumers_from_text(text: str, low: float, high: float) -> tuple[Consumer, ...]:
    """The consumers of a `consumers` parameter."""
    try:
        given = json.loads(text if text.lstrip()[:1] in ("[", "{") else f"[{text}]")
    except (RecursionError, ValueError):
        raise ParameterError(
            f"consumers={text[:60]!r}: write numbers of bins such as 3,5,7, or a JSON list",
            where="consumers",
        ) from None
    return read_consumers(given if isinstance(given, list) else [given], low, high)


def consumers_to_text(consumers: Iterable[Consumer]) -> str:
    """The inverse of `consumers_from_text`."""
    return json.dumps([asdict(consumer) for consumer in consumers])


def smallest(consumers: Sequence[Consumer], epsilon: float) -> float:
    """The smallest epsilon of the campaign and its consumers."""
    return min([epsilon, *(c.epsilon for c in consumers if c.epsilon is not None)])


H = TypeVar("H", bound=HistogramParameters)


def numeric_attribute(name: str, partition: Partition) -> Attribute:
    """An attribute with these bins; a single bin is halved, since an attribute needs two."""
    edges = partition.edges
    return Attribute(
        name,
        "numeric",
        edges=edges if partition.cells > 1 else (edges[0], sum(edges) / 2, edges[1]),
        unit=partition.unit,
    )


def partition_of(attribute: Attribute) -> Partition:
    """The cells of an attribute's bins; in its unit if no edge can be a number."""
    unit = attribute.unit
    if unit is not None:
        halves = np.asarray(attribute.edges) / unit - 0.5
        if np.abs(halves - np.rint(halves)).max() > 1e-9:
            unit = None
    return Partition(attribute.edges, unit)


def _marginal(name: str, cells: CellEstimates, n: int) -> Marginal:
    """The attribute's marginal with the standard errors of the noise; sampling errors excluded."""
    return Marginal((name,), cells.counts / cells.population, np.sqrt(cells.noise_variances()), n)


class HistogramMachine(ProtocolMachine[H]):
    """One round about one number; `answer` returns each consumer's counts.

    `overview` has the bins of a method that needs no consumers.
    """

    overview: ClassVar[tuple[int, ...]] = ()

    def __init__(self, campaign: Campaign, parameters: H) -> None:
        super().__init__(campaign, parameters)
        for attribute in campaign.schema:
            if attribute.kind != "numeric" or attribute.missing or attribute.atoms:
                raise SchemaError(
                    f"method {self.method!r} needs a numeric attribute without atoms or missing answers, which "
                    f"{attribute.name!r} is not; choose another attribute, or the method 'independent'",
                    where=attribute.name,
                )
        first = partition_of(campaign.schema.attributes[0])
        self.low, self.high, self.unit = first.low, first.high, first.unit
        self.consumers = consumers_from_text(parameters.consumers, self.low, self.high)

    @classmethod
    @abstractmethod
    def schema_of(
        cls,
        name: str,
        consumers: Sequence[Consumer],
        low: float,
        high: float,
        unit: float | None = None,
    ) -> Schema:
        """The schema of a collection for these consumers about a number in [low, high].

        Args:
            name: The number's name.
            consumers: Their bins.
            low: The smallest number.
            high: The largest number.
            unit: Every number is a multiple of it. Methods that ask for the consumers' bins only
                have no use for it.
        """

    @cached_property
    @abstractmethod
    def _questions(self) -> tuple[Question, ...]:
        """One question per attribute; none for an attribute with a single bin."""

    @property
    def share(self) -> float:
        """The share of the participants who are asked."""
        return 1.0

    @cached_property
    def _round(self) -> Plan | None:
        if not self._questions:
            return None
        if len(self._questions) > 1:
            return Plan(0, self._questions, split=True)
        return Plan(0, self._questions, (1.0,), population=self.share)

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    @property
    def epsilon(self) -> float:
        """The epsilon that a participant spends."""
        return 0.0 if self._round is None else self._round.epsilon

    @property
    def bits(self) -> int:
        """The bits that a participant sends."""
        return sum(question.mechanism.report_bits for question in self._questions)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms' names."""
        return tuple(question.mechanism.name for question in self._questions)

    def _tally(self) -> CountTally | None:
        self._finished()
        return self.counted[0] if self._closed else None

    @property
    def population(self) -> int:
        """The population of the counts: the planned one, or the one inferred from the reports."""
        tally = self._tally()
        planned = max(1, round(self.share * self.campaign.participants))
        if tally is None or tally.participants == planned:
            return self.campaign.participants
        return round(tally.participants / self.share)

    @abstractmethod
    def answer(self) -> ConsumerCounts:
        """Each consumer's raw counts with their variances."""

    @abstractmethod
    def measured(self) -> list[Marginal]: ...

    def model(self) -> Independent:
        self._finished()
        found = {
            marginal.attributes[0]: norm_sub(marginal.frequencies) for marginal in self.measured()
        }
        even = {a.name: np.full(a.cardinality, 1 / a.cardinality) for a in self.campaign.schema}
        return Independent(self.campaign.schema, tuple((even | found).values()))


class PartitionMachine(HistogramMachine[H]):
    """One question about the cell of a partition; every consumer's bins are sums of cells."""

    def __init__(self, campaign: Campaign, parameters: H) -> None:
        super().__init__(campaign, parameters)
        if len(campaign.schema) != 1:
            raise SchemaError(
                f"method {self.method!r} asks about one attribute, not {len(campaign.schema)}"
            )
        self.partition = partition_of(campaign.schema.attributes[0])
        for consumer in self.consumers:
            self.partition.spans(consumer)  # names an edge that the attribute's bins do not have

    @classmethod
    def schema_of(
        cls,
        name: str,
        consumers: Sequence[Consumer],
        low: float,
        high: float,
        unit: float | None = None,
    ) -> Schema:
        return Schema((numeric_attribute(name, union(consumers, low, high)),))

    @cached_property
    def _mechanism(self) -> Mechanism:
        budget = smallest(self.consumers, self.campaign.epsilon)
        return build(self.parameters.mechanism, self.partition.cells, budget)

    @cached_property
    def _questions(self) -> tuple[Question, ...]:
        if union(self.consumers, self.low, self.high, self.unit).cells == 1:
            return ()
        return (Question(self.campaign.schema.names, self._mechanism),)

    @cached_property
    def cells(self) -> CellEstimates | None:
        """The partition's cells; None if it has only one."""
        tally = self._tally()
        return None if tally is None else self._cells(tally.counts[0], tally.participants)

    def _cells(self, counts: Integers, n: int) -> CellEstimates:
        return PureCells(
            self.partition,
            self._mechanism,
            kernels.estimate(self._mechanism, counts, n).frequencies,
            n,
            self.population,
        )

    def answer(self) -> ConsumerCounts:
        if self.cells is None:
            totals = tuple(np.full(c.bins, float(self.population)) for c in self.consumers)
            return ConsumerCounts(totals, tuple(np.zeros(c.bins) for c in self.consumers), None)
        return ConsumerCounts(*read_off(self.cells, self.consumers), self.cells)

    def measured(self) -> list[Marginal]:
        if self.cells is None or not self._closed:
            return []
        return [_marginal(self.campaign.schema.names[0], self.cells, self._closed[0].participants)]


class Chp(PartitionMachine[HistogramParameters]):
    """Participants answer once over the union of all edges, at the smallest epsilon requested."""

    method = "chp"
    parameters_class = HistogramParameters


class Shp(Chp):
    """CHP with a single consumer."""

    method = "shp"

    def __init__(self, campaign: Campaign, parameters: HistogramParameters) -> None:
        super().__init__(campaign, parameters)
        if len(self.consumers) != 1:
            raise ParameterError(
                f"shp answers one consumer, not {len(self.consumers)}: use chp (one report for all) or split (epsilon divided)",
                where="method",
                value="shp",
            )


class SampledChp(PartitionMachine[_SampledParameters]):
    """CHP with a random sample of the participants.

    Sampling does not amplify the guarantee: the collector sees who reports, and a report's
    likelihood ratio is e^epsilon (erratum 5). The errors include the sampling error.
    """

    method = "sampled"
    parameters_class = _SampledParameters

    @property
    def share(self) -> float:
        return self.parameters.share

    def diagnostics(self) -> SampleDiagnostics:
        if not self._questions:
            return SampleDiagnostics()
        asked = self._closed[0].participants if self._closed else None
        return SampleDiagnostics(asked=asked, share=self.share)


@dataclass(frozen=True, kw_only=True)
class _SmartDiagnostics(Diagnostics):
    """What the designed report is expected to gain over CHP."""

    predicted_gain_over_chp: float | None = None
    predicted_variance_ratio: list[float] | None = None
    objective: str | None = None


class Smart(PartitionMachine[SmartParameters]):
    """CHP with a report designed for the consumers' bins, if that harms no consumer (`smart.py`)."""

    method = "smart"
    parameters_class = SmartParameters

    @cached_property
    def _choice(self) -> Choice:
        given = self.parameters
        return choose(
            self.partition, tuple(self.consumers), self._budget, given.mechanism, given.objective
        )

    @property
    def _budget(self) -> float:
        return smallest(self.consumers, self.campaign.epsilon)

    def design(self) -> JsonObject | None:
        return self._choice.to_json() if self._questions else None

    def take_design(self, design: JsonObject) -> None:
        self._choice = Choice.from_json(
            design, self.partition.cells, len(self.consumers), self._budget
        )

    @cached_property
    def _mechanism(self) -> Mechanism:
        return self._choice.mechanism

    def _cells(self, counts: Integers, n: int) -> CellEstimates:
        mechanism = self._choice.mechanism
        if not isinstance(mechanism, SetStrategy):
            return super()._cells(counts, n)
        return OutputCells(
            self.partition, mechanism, np.asarray(self._choice.counts_for), counts, self.population
        )

    def diagnostics(self) -> _SmartDiagnostics:
        if not self._questions:
            return _SmartDiagnostics()
        return _SmartDiagnostics(
            predicted_gain_over_chp=self._choice.gain,
            predicted_variance_ratio=list(self._choice.ratios),
            objective=self.parameters.objective,
        )


class Split(HistogramMachine[HistogramParameters]):
    """The paper's baseline: every participant answers every consumer at a part of epsilon.

    The schema has one attribute per consumer, with that consumer's bins.
    """

    method = "split"
    parameters_class = HistogramParameters

    @classmethod
    def schema_of(
        cls,
        name: str,
        consumers: Sequence[Consumer],
        low: float,
        high: float,
        unit: float | None = None,
    ) -> Schema:
        partitions = [union([consumer], low, high) for consumer in consumers]
        names = [
            name if len(consumers) == 1 else f"{name}: {consumer.name}" for consumer in consumers
        ]
        return Schema(tuple(map(numeric_attribute, names, partitions)))

    def __init__(self, campaign: Campaign, parameters: HistogramParameters) -> None:
        super().__init__(campaign, parameters)
        if len(campaign.schema) != len(self.consumers):
            raise SchemaError(
                f"method 'split' needs one attribute per consumer: {len(self.consumers)}, not {len(campaign.schema)}"
            )
        self._partitions = [Partition(attribute.edges) for attribute in campaign.schema]
        for partition, consumer in zip(self._partitions, self.consumers, strict=True):
            partition.spans(consumer)

    @cached_property
    def _questions(self) -> tuple[Question, ...]:
        share = (
            self.campaign.epsilon
            / len(self.consumers)
            * (_ROUNDING if len(self.consumers) > 1 else 1)
        )
        return tuple(
            Question(
                (name,),
                build(self.parameters.mechanism, partition.cells, smallest([consumer], share)),
            )
            for name, partition, consumer in zip(
                self.campaign.schema.names, self._partitions, self.consumers, strict=True
            )
            if union([consumer], self.low, self.high).cells > 1
        )

    def _asked(self) -> dict[str, PureCells]:
        """The cells of each attribute that was asked."""
        tally = self._tally()
        if tally is None:
            return {}
        found = {}
        for i, question in enumerate(self._questions):
            name, n = question.attributes[0], tally.participants
            frequencies = kernels.estimate(question.mechanism, tally.counts[i], n).frequencies
            partition = self._partitions[self.campaign.schema.index(name)]
            found[name] = PureCells(partition, question.mechanism, frequencies, n, self.population)
        return found

    def answer(self) -> ConsumerCounts:
        counts: list[Floats] = []
        variances: list[Floats] = []
        asked = self._asked()
        for name, consumer in zip(self.campaign.schema.names, self.consumers, strict=True):
            if name in asked:
                (count,), (variance,) = read_off(asked[name], [consumer])
            else:
                count, variance = (
                    np.full(consumer.bins, float(self.population)),
                    np.zeros(consumer.bins),
                )
            counts.append(count)
            variances.append(variance)
        # Later questions are answered from the cells of the consumer with the most bins.
        finest = max(asked.values(), key=lambda cells: cells.partition.cells, default=None)
        return ConsumerCounts(tuple(counts), tuple(variances), finest)

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        return [_marginal(name, cells, cells.asked) for name, cells in self._asked().items()]
