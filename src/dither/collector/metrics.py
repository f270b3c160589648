"""Metrics for Prometheus.

With several workers, each shows the sums over all of them; of the gauges that are no amounts
it shows the worst.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

import dither
from dither.collector.store import Outcome

_LIVE, _ENDED = ".live", ".ended"  # suffixes of the files of running and ended workers
# Seconds; an upload waits for its commit at most ten.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CLOSING_BUCKETS = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
# The age of the last stored report is rounded up to this many seconds, so that a scrape does
# not show when a single report came.
_AGE_STEP = 60
# A counter's creation time would reveal when the first report of its outcome came.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counters and gauges by outcome and status; they name no campaign and no person.

    Args:
        waiting: Returns the number of reports that wait to be written.
        folder: Where the workers of one machine share their metrics.
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
        self.deleted = Counter(
            "dither_reports_deleted", "Reports that participants deleted.", registry=own
        )
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
        self._closing = Histogram(
            "dither_closing_seconds",
            "From the end of a round's intake to its tally taken.",
            buckets=_CLOSING_BUCKETS,
            registry=own,
        )
        self.store_ready = Gauge(
            "dither_store_ready",
            "1 if the store could take reports when last checked.",
            registry=own,
        )
        self.untidied = Gauge(
            "dither_untidied_rounds",
            "Closed rounds whose files may show the order of arrival.",
            registry=own,
        )
        self.clock_skew = Gauge(
            "dither_clock_skew_seconds",
            "This machine's clock minus the database's time.",
            registry=own,
        )
        age = Gauge(
            "dither_last_report_age_seconds",
            "Since this process last stored a report, in whole minutes; NaN before the first.",
            registry=own,
        )
        age.set_function(self._last_report_age)
        self._last_report: float | None = None
        build = Gauge("dither_build_info", "The version of Dither.", ["version"], registry=own)
        build.labels(dither.__version__).set(1)
        # Memory, CPU and descriptors of this process, under Prometheus' usual names.
        ProcessCollector(registry=own)

    def response(self, status: int) -> None:
        """Count a response."""
        self._of_status(status).inc()

    def upload(self, seconds: float, outcomes: list[Outcome]) -> None:
        """Count an upload, and the seconds from its body to its commit."""
        self._seconds.observe(seconds)
        if Outcome.STORED in outcomes:
            self._last_report = time.monotonic()
        for outcome, count in Counts(outcomes).items():
            self._of_outcome(outcome.value).inc(count)

    def closing(self, seconds: float) -> None:
        """Count the closing of a round."""
        self._closing.observe(seconds)

    def _last_report_age(self) -> float:
        if self._last_report is None:
            return math.nan
        minutes = math.ceil((time.monotonic() - self._last_report) / _AGE_STEP)
        return float(_AGE_STEP * minutes)

    def refused(self, reason: str) -> None:
        """Count a connection that was evicted or refused."""
        self._refused.labels(reason).inc()

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        if self._folder is None:
            return generate_latest(self._registry).decode()
        texts = [generate_latest(self._registry).decode()]
        mine = self._file(self._folder).name
        for path in sorted(self._folder.iterdir()):
            if path.name != mine and path.suffix in (_LIVE, _ENDED):
                texts.append(_text_of(path))
        merged = CollectorRegistry()
        merged.register(_Sums(texts))
        return generate_latest(merged).decode()

    def share(self) -> None:
        """Write this worker's metrics for the others."""
        if self._folder is not None:
            path = self._file(self._folder)
            new = path.with_suffix(".new")
            new.write_bytes(generate_latest(self._registry))
            new.replace(path)

    def _file(self, folder: Path) -> Path:
        return folder / f"{os.getpid()}{_LIVE}"

    @staticmethod
    def retire(folder: Path, process: int) -> None:
        """Keep the counters of a worker that has ended, not its gauges."""
        path = folder / f"{process}{_LIVE}"
        if path.exists():
            path.replace(path.with_suffix(_ENDED))


def _text_of(path: Path) -> str:
    """Return the metrics of a worker; of an ended one, only counters and histograms."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:  # the worker has just ended; the next read finds the new name
        return ""
    if path.suffix == _LIVE:
        return text
    grown = CollectorRegistry()
    grown.register(_Sums([text], ("counter", "histogram")))
    return generate_latest(grown).decode()


def _sum(a: float, b: float) -> float:
    return a + b


def _larger(a: float, b: float) -> float:
    return max(a, b, key=abs)


def _smaller_known(a: float, b: float) -> float:
    return min((value for value in (a, b) if not math.isnan(value)), default=math.nan)


# How gauges of several workers are combined that are no amounts.
_COMBINED: dict[str, Callable[[float, float], float]] = {
    "dither_store_ready": min,
    "dither_untidied_rounds": max,
    "dither_clock_skew_seconds": _larger,
    "dither_last_report_age_seconds": _smaller_known,
    "dither_build_info": max,
    "process_start_time_seconds": min,
    "process_max_fds": min,
}


class _Sums:
    """Combines the samples of several texts by name and labels, most by adding them up."""

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
                combine = _COMBINED.get(family.name, _sum)
                for sample in family.samples:
                    key = (sample.name, tuple(sample.labels.items()))
                    before = held.get(key)
                    held[key] = sample.value if before is None else combine(before, sample.value)
        for name, family in families.items():
            for (sample_name, labels), value in sums[name].items():
                family.add_sample(sample_name, dict(labels), value)
            yield family
