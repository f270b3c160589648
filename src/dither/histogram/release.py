"""What a histogram collection publishes: each consumer's counts and errors, and what it cost a participant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dither.errors import ParameterError, PrivacyError
from dither.estimate.intervals import normal_interval
from dither.histogram.cells import CellEstimates
from dither.histogram.consumer import Consumer, read_consumers
from dither.histogram.late import LateAnswer, late_answer
from dither.notice import REPLAYABLE, Notice
from dither.release.guarantee import noise_sentence
from dither.types import Floats

FORMAT = "dither-histogram-1"


@dataclass(frozen=True)
class ConsumerHistogram:
    """One consumer's counts.

    `raw` is unbiased and may be negative; `estimates` is the same, or the consistent, non-negative version if that
    was asked for. Standard errors and intervals are those of the raw counts: noise and, where only some people were
    asked, who was drawn.
    """

    name: str
    edges: Floats
    estimates: Floats
    standard_errors: Floats
    raw: Floats

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Two-sided intervals for each bin on its own, around the raw counts."""
        return normal_interval(self.raw, self.standard_errors, level)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        out = {
            "name": self.name,
            "edges": self.edges.tolist(),
            "estimates": self.estimates.tolist(),
            "standard_errors": self.standard_errors.tolist(),
        }
        if self.raw is not self.estimates:
            out["raw"] = self.raw.tolist()
        return out


@dataclass(frozen=True)
class HistogramRelease:
    """All consumers' histograms of one simulated collection; `seed` is what the caller gave, if anything.

    `moved` is how many values lay outside the range: a true count, for whoever holds the values, and written nowhere.
    """

    consumers: tuple[ConsumerHistogram, ...]
    epsilon_asked: float
    epsilon_achieved: float
    bits_per_report: int
    mechanism: str
    frequency_mechanisms: tuple[str, ...]
    participants: int
    low: float
    high: float
    partition: tuple[float, ...]
    seed: int | None = None
    consistent: bool = False
    path: str = "counts"
    cells: CellEstimates | None = field(default=None, repr=False, compare=False)
    notes: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()
    moved: int = field(default=0, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.epsilon_achieved > self.epsilon_asked:
            raise PrivacyError(
                f"the collection spent epsilon {self.epsilon_achieved!r}, more than the {self.epsilon_asked!r} asked for",
                where="epsilon_achieved",
                value=self.epsilon_achieved,
            )
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

    def late(self, consumer: Consumer | Any, level: float = 0.95) -> LateAnswer:
        """Answer somebody who comes afterwards, from the same reports: a count of bins, edges or a `Consumer`."""
        if self.cells is None:
            raise ParameterError(
                f"{self.mechanism} keeps no common partition to answer late queries from; collect with chp or smart",
                where="mechanism",
                value=self.mechanism,
            )
        (wanted,) = read_consumers([consumer], self.low, self.high)
        return late_answer(self.cells, wanted, level)

    def save(self, directory: str | Path) -> Path:
        """Write histogram.json and histogram.html, each in one step."""
        from dither.histogram.page import save_release

        return save_release(self, directory)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; counts are estimated numbers of participants."""
        return {
            "format": FORMAT,
            "consumers": [c.to_json() for c in self.consumers],
            "epsilon_asked": self.epsilon_asked,
            "epsilon_achieved": self.epsilon_achieved,
            "bits_per_report": self.bits_per_report,
            "mechanism": self.mechanism,
            "frequency_mechanisms": list(self.frequency_mechanisms),
            "participants": self.participants,
            "range": [self.low, self.high],
            "partition": list(self.partition),
            "consistent": self.consistent,
            "private": self.seed is None,
            "seed": self.seed,
            "noise": self.noise,
            "path": self.path,
            "notes": self.notes,
            "warnings": [warning.to_json() for warning in self.warnings],
        }
