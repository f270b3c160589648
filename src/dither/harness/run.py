"""Walk a benchmark's grid, resuming what was measured, and write what came out."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dither.display.progress import in_notebook, progress_bar, time_left
from dither.harness import frames, page
from dither.harness.journal import Journal
from dither.harness.study import Bench, NotAvailable, Point, Study
from dither.schema.files import write_atomically

Say = Callable[[str], None]
Advance = Callable[[int], None]


@dataclass
class Outcome:
    """What a benchmark measured: every number, the means over seeds, notes on what could not be measured."""

    bench: Bench
    rows: list[frames.Long] = field(default_factory=list)
    summary: list[frames.Mean] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)  # as measured, remarks included
    missing: list[tuple[Point, str]] = field(
        default_factory=list
    )  # what could not be measured, and why
    seconds: float = 0.0  # of measuring, earlier runs included
    resumed: int = 0  # points that an earlier run had measured
    code: str = ""

    def mean(self, study: str, measure: str, **labels: Any) -> float:
        """One mean by its labels; a KeyError when no or several rows fit."""
        found = [
            row
            for row in self.summary
            if row["study"] == study
            and row["measure"] == measure
            and all(row["labels"].get(k) == v for k, v in labels.items())
        ]
        if len(found) != 1:
            raise KeyError(f"{len(found)} rows of {study} have {measure} with {labels}")
        return float(found[0]["mean"])


def execute(
    bench: Bench, out: Path, fresh: bool = False, show: Say | None = None, quiet: bool = False
) -> Outcome:
    """Measure every point that the journal in `out` does not hold yet, then write Parquet and the page.

    Interrupting loses the point in work, nothing else. A journal of other code, size or data is not used. `show` is told what the
    user should know; if quiet there is no bar and nothing is told.
    """
    out.mkdir(parents=True, exist_ok=True)
    journal = Journal(out / "journal.jsonl", bench, fresh)
    outcome = Outcome(bench, code=journal.head["code"], resumed=len(journal))
    say = show or (lambda text: None if quiet else print(text, file=sys.stderr, flush=True))
    if journal.stale:
        say(
            f"{bench.name}: the code, the size or the data changed since the last run; measuring anew"
        )
    elif outcome.resumed:
        say(
            f"{bench.name}: {outcome.resumed} points were measured before; going on from there (--fresh measures anew)"
        )
    points = [(study, point) for study in bench.studies for point in study.points()]
    with _progress(bench.name, points, journal, quiet, say) as advance:
        for done, (study, point) in enumerate(points):
            advance(done)
            _measure(study, point, journal, outcome)
        advance(len(points))
    for study in bench.studies:
        outcome.rows += frames.long_rows(
            study, [{"source": "published", **row} for row in study.known]
        )
    outcome.summary = frames.means(outcome.rows)
    if outcome.rows:
        frames.write_parquet(outcome.rows, out / "rows.parquet")
        frames.write_parquet(outcome.summary, out / "summary.parquet")
    text = page.render(outcome)
    write_atomically(out / "index.html", lambda path: path.write_text(text, encoding="utf-8"))
    return outcome


def write_contents(outcomes: Mapping[str, Outcome], folder: Path) -> Path:
    """A page of contents over several benchmarks in one folder."""
    path = folder / "index.html"
    text = page.contents(outcomes)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def _measure(study: Study, point: Point, journal: Journal, outcome: Outcome) -> None:
    entry = journal.find(study.name, point)
    if entry is None:
        begin = time.perf_counter()
        try:
            found = study.measure(**point)
        except NotAvailable as reason:
            outcome.missing.append((point, str(reason)))
            note = f"{study.name}: {reason}"
            if note not in outcome.notes:
                outcome.notes.append(note)
            return
        rows = [
            {**point, **_plain(row)} for row in ([found] if isinstance(found, Mapping) else found)
        ]
        entry = journal.add(study.name, point, rows, time.perf_counter() - begin)
    outcome.seconds += entry["seconds"]
    outcome.points += entry["rows"]
    outcome.rows += frames.long_rows(study, entry["rows"])


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """NumPy's numbers as Python's, so that a resumed run reads back what a first run saw."""
    return {k: v.item() if hasattr(v, "item") else v for k, v in row.items()}


@contextmanager
def _progress(
    name: str, points: Sequence[tuple[Study, Point]], journal: Journal, quiet: bool, say: Say
) -> Iterator[Advance]:
    """A bar with the remaining time on a terminal or in a notebook; elsewhere a line every half minute."""
    pace, last = Pace(points, journal), time.monotonic()
    with progress_bar(quiet) as show:

        def advance(done: int) -> None:
            nonlocal last
            now = f"{points[done][0].name} {_short(points[done][1])}" if done < len(points) else ""
            left = pace.left(done)
            show(name, done, len(points), now=now, left=left)
            if (
                not quiet
                and time.monotonic() - last > 30
                and not (sys.stderr.isatty() or in_notebook())
            ):
                more = "" if left is None else f", about {time_left(left)} left"
                say(f"{name}: {done} of {len(points)} points; now {now}{more}")
                last = time.monotonic()

        yield advance


class Pace:
    """How long the rest will take: each point as long as those did that share its first label, such as the method."""

    def __init__(self, points: Sequence[tuple[Study, Point]], journal: Journal) -> None:
        self._points, self._journal = points, journal

    def left(self, done: int) -> float | None:
        """Seconds from this point on; None as long as nothing was measured."""
        spent: dict[tuple[str, object], list[float]] = {}
        for study, point in self._points:
            if (entry := self._journal.find(study.name, point)) is not None:
                spent.setdefault(_kind(study, point), []).append(entry["seconds"])
        if not spent:
            return None
        usual = sum(sum(s) for s in spent.values()) / sum(len(s) for s in spent.values())
        todo = [p for p in self._points[done:] if self._journal.find(p[0].name, p[1]) is None]
        means = {kind: sum(s) / len(s) for kind, s in spent.items()}
        return sum(means.get(_kind(*p), usual) for p in todo)


def _kind(study: Study, point: Point) -> tuple[str, object]:
    return study.name, next(iter(point.values()), None)


def _short(point: Point) -> str:
    return ", ".join(f"{k} {v}" for k, v in point.items())


def machine() -> dict[str, str]:
    """What the numbers were measured on, and with which versions; no name of the machine."""
    import os
    from importlib.metadata import version

    packages: Sequence[str] = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow")
    model = platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        names = [
            line
            for line in information.read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "dither": version("dither"),
        **{name: version(name) for name in packages},
    }
