"""What a collector counts about itself, for Prometheus. With several workers each shows the sums over all of them."""

from __future__ import annotations

import os
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from dither.collector.store import Outcome

LIVE, ENDED = ".live", ".ended"  # how the names of the files of workers end
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
disable_created_metrics()  # type: ignore[no-untyped-call] # a counter's birthday would tell when the first report of its outcome came


class Metrics:
    """Counters and gauges. They name no campaign and nobody: outcomes and statuses only.

    `folder` is where the workers of one machine put what they have counted; what one that has ended counted stays.
    """

    def __init__(self, waiting: Callable[[], int] = lambda: 0, folder: Path | None = None) -> None:
        self._folder = folder
        own = self._registry = CollectorRegistry()
        reports = Counter(
            "dither_reports", "Reports received, by outcome.", ["outcome"], registry=own
        )
        responses = Counter(
            "dither_responses", "Requests answered, by status.", ["status"], registry=own
        )
        self._of_outcome, self._of_status = cache(reports.labels), cache(responses.labels)
        self._seconds = Histogram(
            "dither_upload_seconds",
            "From a body read to its reports committed.",
            buckets=_BUCKETS,
            registry=own,
        )
        queue = Gauge("dither_queue_reports", "Reports that wait to be written.", registry=own)
        queue.set_function(waiting)
        self.mismatches = Counter(
            "dither_tally_mismatches",
            "Running tallies that differed from the stored reports.",
            registry=own,
        )
        self.connections = Gauge(
            "dither_connections_open", "Connections that are open.", registry=own
        )
        self._refused = Counter(
            "dither_connections_refused",
            "Connections closed to make room for others, or refused for want of it.",
            ["reason"],
            registry=own,
        )
        for reason in ("evicted", "full"):
            self._refused.labels(reason)  # shown from the start

    def response(self, status: int) -> None:
        """A request was answered."""
        self._of_status(status).inc()

    def upload(self, seconds: float, outcomes: list[Outcome]) -> None:
        """An upload was written, this long after it was read."""
        self._seconds.observe(seconds)
        for outcome, count in Counts(outcomes).items():
            self._of_outcome(outcome.value).inc(count)

    def refused(self, reason: str) -> None:
        """A connection was closed to make room, or refused because there was none."""
        self._refused.labels(reason).inc()

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        if self._folder is None:
            return generate_latest(self._registry).decode()
        texts = [generate_latest(self._registry).decode()]
        mine = self._file(self._folder).name
        for path in sorted(self._folder.iterdir()):
            if path.name != mine and path.suffix in (LIVE, ENDED):
                texts.append(_text_of(path))
        merged = CollectorRegistry()
        merged.register(_Sums(texts))
        return generate_latest(merged).decode()

    def share(self) -> None:
        """Show the other workers what this one has counted."""
        if self._folder is not None:
            path = self._file(self._folder)
            beside = path.with_suffix(".new")
            beside.write_bytes(generate_latest(self._registry))
            beside.replace(path)

    def _file(self, folder: Path) -> Path:
        return folder / f"{os.getpid()}{LIVE}"


def retire(folder: Path, process: int) -> None:
    """A worker has ended: what it had counted stays, what it had open or waiting is gone."""
    path = folder / f"{process}{LIVE}"
    if path.exists():
        path.replace(path.with_suffix(ENDED))


def _text_of(path: Path) -> str:
    """What a worker has counted; of one that has ended, what only grows."""
    try:
        text = path.read_text(encoding="utf-8")
    except (
        FileNotFoundError
    ):  # it ended this very moment, and the next look finds it under its other name
        return ""
    if path.suffix == LIVE:
        return text
    grown = CollectorRegistry()
    grown.register(_Sums([text], ("counter", "histogram")))
    return generate_latest(grown).decode()


class _Sums:
    """Metrics of several texts, samples of the same name and labels added up."""

    def __init__(
        self, texts: Iterable[str], kinds: tuple[str, ...] = ("counter", "histogram", "gauge")
    ) -> None:
        self._texts, self._kinds = list(texts), kinds

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for text in self._texts:
            for family in text_string_to_metric_families(text):
                if family.type not in self._kinds:
                    continue
                families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                held = sums.setdefault(family.name, {})
                for sample in family.samples:
                    key = (sample.name, tuple(sample.labels.items()))
                    held[key] = held.get(key, 0.0) + sample.value
        for name, family in families.items():
            for (sample_name, labels), value in sums[name].items():
                family.add_sample(sample_name, dict(labels), value)
            yield family
