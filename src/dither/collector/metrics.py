"""Counters in Prometheus' text format. They name no campaign and nobody; outcomes and statuses only."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """What a collector counts about itself."""

    def __init__(self, waiting: Callable[[], int] = lambda: 0) -> None:
        self._lock = threading.Lock()
        self._responses: Counter[int] = Counter()
        self._reports: Counter[str] = Counter()
        self._upload_buckets: Counter[float] = Counter()
        self._upload_seconds = 0.0
        self._uploads = 0
        self._mismatches = 0
        self._refused: Counter[str] = Counter({"evicted": 0, "full": 0})
        self.waiting = waiting
        self.connections: Callable[[], int] = lambda: 0

    def response(self, status: int) -> None:
        """A request was answered."""
        with self._lock:
            self._responses[status] += 1

    def upload(self, seconds: float, outcomes: list[str]) -> None:
        """An upload was written, this long after it was read."""
        with self._lock:
            self._reports.update(outcomes)
            self._uploads += 1
            self._upload_seconds += seconds
            self._upload_buckets[next((b for b in _BUCKETS if seconds <= b), float("inf"))] += 1

    def mismatch(self) -> None:
        """A running tally differed from the stored reports."""
        with self._lock:
            self._mismatches += 1

    def refused(self, reason: str) -> None:
        """A connection was closed to make room, or refused because there was none."""
        with self._lock:
            self._refused[reason] += 1

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        with self._lock:
            lines = ["# HELP dither_reports_total Reports received, by outcome.", "# TYPE dither_reports_total counter"]
            lines += [f'dither_reports_total{{outcome="{o}"}} {n}' for o, n in sorted(self._reports.items())]
            lines += [
                "# HELP dither_responses_total Requests answered, by status.",
                "# TYPE dither_responses_total counter",
            ]
            lines += [f'dither_responses_total{{status="{s}"}} {n}' for s, n in sorted(self._responses.items())]
            lines += [
                "# HELP dither_upload_seconds From a body read to its reports committed.",
                "# TYPE dither_upload_seconds histogram",
            ]
            total = 0
            for bucket in _BUCKETS:
                total += self._upload_buckets[bucket]
                lines.append(f'dither_upload_seconds_bucket{{le="{bucket}"}} {total}')
            lines += [
                f'dither_upload_seconds_bucket{{le="+Inf"}} {self._uploads}',
                f"dither_upload_seconds_sum {self._upload_seconds:.6f}",
                f"dither_upload_seconds_count {self._uploads}",
                "# HELP dither_queue_reports Reports that wait to be written.",
                "# TYPE dither_queue_reports gauge",
                f"dither_queue_reports {self.waiting()}",
                "# HELP dither_tally_mismatches_total Running tallies that differed from the stored reports.",
                "# TYPE dither_tally_mismatches_total counter",
                f"dither_tally_mismatches_total {self._mismatches}",
                "# HELP dither_connections_open Connections that are open.",
                "# TYPE dither_connections_open gauge",
                f"dither_connections_open {self.connections()}",
                "# HELP dither_connections_refused_total Connections closed to make room for others, or refused for want of it.",
                "# TYPE dither_connections_refused_total counter",
            ]
            lines += [f'dither_connections_refused_total{{reason="{r}"}} {n}' for r, n in sorted(self._refused.items())]
        return "\n".join(lines) + "\n"
