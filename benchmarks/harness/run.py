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

from benchmarks.harness import frames, page
from benchmarks.harness.journal import Journal
from benchmarks.harness.study import Bench, NotAvailable, Point, Row, Study
from dither.schema.files import write_atomically


@dataclass
class Outcome:
    """What a benchmark measured: every number, the means over seeds, notes on what could not be measured."""

    bench: Bench
    rows: list[frames.Long] = field(default_factory=list)
    summary: list[frames.Mean] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
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


def execute(bench: Bench, out: Path, fresh: bool = False, show: Callable[[str], None] | None = None) -> Outcome:
    """Measure every point that the journal in `out` does not hold yet, then write Parquet and the page.

    Interrupting loses the point in work, nothing else. A journal of other code or another size is not used.
    """
    out.mkdir(parents=True, exist_ok=True)
    journal = Journal(out / "journal.jsonl", bench, fresh)
    outcome = Outcome(bench, code=journal.head["code"], resumed=len(journal))
    say = show or (lambda text: print(text, file=sys.stderr, flush=True))
    if journal.stale:
        say(f"{bench.name}: the code or the size changed since the last run; measuring anew")
    elif outcome.resumed:
        say(f"{bench.name}: {outcome.resumed} points were measured before; going on from there (--fresh measures anew)")
    points = [(study, point) for study in bench.studies for point in study.points()]
    with _progress(bench.name, len(points), say) as advance:
        for study, point in points:
            advance(study.name, point)
            _measure(study, point, journal, outcome)
    for study in bench.studies:
        outcome.rows += frames.long_rows(study, [{"source": "published", **row} for row in study.known])
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
            note = f"{study.name}: {reason}"
            if note not in outcome.notes:
                outcome.notes.append(note)
            return
        rows = [{**point, **_plain(row)} for row in ([found] if isinstance(found, Mapping) else found)]
        entry = journal.add(study.name, point, rows, time.perf_counter() - begin)
    outcome.seconds += entry["seconds"]
    outcome.rows += frames.long_rows(study, entry["rows"])


def _plain(row: Row) -> dict[str, Any]:
    """NumPy's numbers as Python's, so that a resumed run reads back what a first run saw."""
    return {k: v.item() if hasattr(v, "item") else v for k, v in row.items()}


@contextmanager
def _progress(name: str, total: int, say: Callable[[str], None]) -> Iterator[Callable[[str, Point], None]]:
    """A bar with the remaining time on a terminal; elsewhere a line every half minute."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=total, completed=-1)
            yield lambda study, point: bar.update(task, advance=1, description=f"{name} {study} {_short(point)}"[:70])
        return
    last, done = time.monotonic(), 0

    def advance(study: str, point: Point) -> None:
        nonlocal last, done
        if time.monotonic() - last > 30:
            say(f"{name}: {done} of {total} points; now {study} {_short(point)}")
            last = time.monotonic()
        done += 1

    yield advance


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
        names = [line for line in information.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "dither": version("dither"),
        **{name: version(name) for name in packages},
    }
