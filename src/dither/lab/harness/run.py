"""Run a benchmark: measure the points that are missing, keep a journal, write the results."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dither
from dither.lab.harness import page
from dither.lab.harness.study import (
    REPEATED,
    Bench,
    LongRow,
    MeanRow,
    NotAvailable,
    Outcome,
    Point,
    Row,
    Study,
)
from dither.progress import in_notebook, progress_bar, time_left
from dither.schema.files import write_atomically
from dither.types import JsonObject

# Modules and packages that a published number can depend on. The command line, the pages
# and the collector cannot change one.
MEASURED = (
    "schema",
    "mechanisms",
    "reports",
    "tally",
    "fit",
    "methods",
    "simulate.py",
    "evaluation",
    "release",
    "planner",
    "_histogram.py",
    "central",
    "datasets",
    "lab/comparison",
)
# Without a terminal, progress is a line at most this often.
_SECONDS_BETWEEN_LINES = 30

Say = Callable[[str], None]
Advance = Callable[[int], None]


def fingerprint(bench: Bench) -> str:
    """A hash of the code that the numbers depend on.

    It covers `MEASURED`, and the modules of the studies with what they import from their
    own package.
    """
    source = Path(dither.__file__).parent
    files: set[Path] = set()
    for name in MEASURED:
        files |= {source / name} if name.endswith(".py") else set((source / name).rglob("*.py"))
    for study in bench.studies:
        measure: Any = study.measure
        while isinstance(measure, partial):
            measure = measure.func
        module = sys.modules.get(getattr(measure, "__module__", None) or type(measure).__module__)
        file = getattr(module, "__file__", None)
        if file is not None and not Path(file).resolve().is_relative_to(source):
            files |= _imported_neighbours(Path(file).resolve())
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _imported_neighbours(file: Path) -> set[Path]:
    """A module and all modules of its package or folder that it imports, directly or not."""
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    visited: set[Path] = set()
    waiting = [file]
    while waiting:
        current = waiting.pop()
        if current in visited:
            continue
        visited.add(current)
        for name in _imports(current):
            path = _module_file(root, name)
            if path is not None:
                waiting.append(path)
    return visited


def _imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _module_file(root: Path, name: str) -> Path | None:
    place = root.joinpath(*name.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


class _Entry(TypedDict):
    """A measured point in the journal."""

    key: str
    rows: list[dict[str, Any]]
    seconds: float


class _Journal:
    """Lines of JSON, one for each measured point, after a head with code, size and data."""

    def __init__(self, path: Path, bench: Bench, fresh: bool = False) -> None:
        self.path = path
        self.head: dict[str, str] = {
            "bench": bench.name,
            "size": bench.size,
            "code": fingerprint(bench),
        }
        if bench.data:
            self.head["data"] = bench.data
        self._done: dict[str, _Entry] = {}
        head, entries = self._read()
        usable = head == self.head and not fresh
        if usable:
            self._done = {entry["key"]: entry for entry in entries}
        # Whether there was a journal of other code, size or data.
        self.stale = head is not None and not usable and not fresh
        # Written again in any case: a run that was killed may have left half a line.
        lines = [json.dumps(entry) + "\n" for entry in (self.head, *self._done.values())]
        path.write_text("".join(lines), encoding="utf-8")

    def _read(self) -> tuple[JsonObject | None, list[_Entry]]:
        """The head, None without a journal, and the whole entries after it."""
        if not self.path.is_file():
            return None, []
        head: JsonObject | None = None
        entries: list[_Entry] = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                # Half a line: the run was killed while it wrote.
                break
            if not isinstance(entry, dict):
                break
            if head is None:
                head = entry
            elif {"key", "rows", "seconds"} <= set(entry):
                entries.append(cast(_Entry, entry))
            else:
                break
        return head, entries

    def __len__(self) -> int:
        return len(self._done)

    def find(self, study: str, point: Point) -> _Entry | None:
        """The entry of a point, if it was measured."""
        return self._done.get(_key(study, point))

    def add(self, study: str, point: Point, rows: list[dict[str, Any]], seconds: float) -> _Entry:
        """Add a point; it is in the file when this returns."""
        entry: _Entry = {
            "key": _key(study, point),
            "rows": rows,
            "seconds": round(seconds, 3),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._done[entry["key"]] = entry
        return entry


def _key(study: str, point: Point) -> str:
    return json.dumps([study, point], sort_keys=True)


def execute(
    bench: Bench, out: Path, fresh: bool = False, show: Say | None = None, quiet: bool = False
) -> Outcome:
    """Measure the points that the journal lacks, then write Parquet files and the page.

    An interruption loses only the point in work.

    Args:
        bench: The benchmark.
        out: Folder of the journal and the results.
        fresh: Ignore the journal. A journal of other code, size or data is never used.
        show: Called with messages for the user; None prints them to stderr.
        quiet: Show neither a progress bar nor messages.
    """
    out.mkdir(parents=True, exist_ok=True)
    journal = _Journal(out / "journal.jsonl", bench, fresh)
    outcome = Outcome(bench, code=journal.head["code"], resumed=len(journal))
    say = show or (lambda text: None if quiet else print(text, file=sys.stderr, flush=True))
    if journal.stale:
        say(f"{bench.name}: the code, the size or the data changed; measuring all points again")
    elif outcome.resumed:
        say(
            f"{bench.name}: {outcome.resumed} points were measured before "
            "(--fresh measures them again)"
        )
    points = [(study, point) for study in bench.studies for point in study.points()]
    with _progress(bench.name, points, journal, quiet, say) as advance:
        for done, (study, point) in enumerate(points):
            advance(done)
            _measure(study, point, journal, outcome)
        advance(len(points))
    for study in bench.studies:
        published: list[Row] = [{"source": "published", **row} for row in study.known]
        outcome.rows += _long_rows(study, published)
    outcome.summary = _means(outcome.rows)
    if outcome.rows:
        _write_parquet(outcome.rows, out / "rows.parquet")
        _write_parquet(outcome.summary, out / "summary.parquet")
    text = page.render(outcome)
    write_atomically(out / "index.html", lambda path: path.write_text(text, encoding="utf-8"))
    return outcome


def write_contents(outcomes: Mapping[str, Outcome], folder: Path) -> Path:
    """Write a page of contents for several benchmarks in one folder."""
    path = folder / "index.html"
    text = page.contents(outcomes)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def _measure(study: Study, point: Point, journal: _Journal, outcome: Outcome) -> None:
    entry = journal.find(study.name, point)
    if entry is None:
        begin = time.perf_counter()
        try:
            measured = study.measure(**point)
        except NotAvailable as reason:
            outcome.missing.append((point, str(reason)))
            note = f"{study.name}: {reason}"
            if note not in outcome.notes:
                outcome.notes.append(note)
            return
        several = [measured] if isinstance(measured, Mapping) else measured
        rows = [{**point, **_plain(row)} for row in several]
        entry = journal.add(study.name, point, rows, time.perf_counter() - begin)
    outcome.seconds += entry["seconds"]
    outcome.points += entry["rows"]
    outcome.rows += _long_rows(study, entry["rows"])


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """NumPy's numbers as Python's, so that a resumed run reads what the first one saw."""
    return {k: v.item() if hasattr(v, "item") else v for k, v in row.items()}


def _long_rows(study: Study, rows: Sequence[Row]) -> list[LongRow]:
    """An entry for each number."""
    entries: list[LongRow] = []
    for full in rows:
        row = {k: v for k, v in full.items() if v is not None and k not in study.remarks}
        labels = {k: v for k, v in row.items() if study.is_label(k, v)}
        for name, value in row.items():
            if name not in labels:
                number = float(value)
                entries.append(
                    {"study": study.name, "labels": labels, "measure": name, "value": number}
                )
    return entries


def _means(rows: Sequence[LongRow]) -> list[MeanRow]:
    """Means and standard deviations over seeds, in the order of first appearance."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        labels = tuple((k, v) for k, v in row["labels"].items() if k not in REPEATED)
        groups.setdefault((row["study"], labels, row["measure"]), []).append(row["value"])
    return [
        {
            "study": study,
            "labels": dict(labels),
            "measure": measure,
            "mean": float(np.mean(values)),
            "spread": float(np.std(values, ddof=1)) if len(values) > 1 else None,
            "runs": len(values),
        }
        for (study, labels, measure), values in groups.items()
    ]


def _write_parquet(rows: Sequence[LongRow] | Sequence[MeanRow], path: Path) -> None:
    """Write rows with a column for each label."""
    names = dict.fromkeys(name for row in rows for name in row["labels"])
    columns: dict[str, Any] = {"study": pa.array([row["study"] for row in rows], pa.string())}
    for name in names:
        columns[name] = _column([row["labels"].get(name) for row in rows])
    entries: list[Mapping[str, Any]] = [*rows]
    for name in entries[0]:
        if name not in ("study", "labels"):
            columns[name] = _column([entry[name] for entry in entries])
    table = pa.table(columns)
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def _column(values: list[Any]) -> Any:
    """Numbers if all values are numbers, else text."""
    present = [v for v in values if v is not None]
    if all(isinstance(v, int) and not isinstance(v, bool) for v in present):
        return pa.array(values, pa.int64())
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in present):
        numbers = [None if v is None or math.isnan(v) else float(v) for v in values]
        return pa.array(numbers, pa.float64())
    return pa.array([None if v is None else str(v) for v in values], pa.string())


@contextmanager
def _progress(
    name: str, points: Sequence[tuple[Study, Point]], journal: _Journal, quiet: bool, say: Say
) -> Iterator[Advance]:
    """A bar with the remaining time on a terminal or in a notebook, else a line at times."""
    lines = not quiet and not (sys.stderr.isatty() or in_notebook())
    last = time.monotonic()
    with progress_bar(quiet) as show:

        def advance(done: int) -> None:
            nonlocal last
            current = ""
            if done < len(points):
                study, point = points[done]
                current = f"{study.name} {', '.join(f'{k} {v}' for k, v in point.items())}"
            left = _seconds_left(points, done, journal)
            show(name, done, len(points), now=current, left=left)
            if lines and time.monotonic() - last > _SECONDS_BETWEEN_LINES:
                more = "" if left is None else f", about {time_left(left)} left"
                say(f"{name}: {done} of {len(points)} points; now {current}{more}")
                last = time.monotonic()

        yield advance


def _seconds_left(
    points: Sequence[tuple[Study, Point]], done: int, journal: _Journal
) -> float | None:
    """The expected time of the other points; None as long as no point was measured.

    A point takes as long as the mean of those with the same first label, such as the method.
    """
    spent: dict[tuple[str, object], list[float]] = {}
    for study, point in points:
        entry = journal.find(study.name, point)
        if entry is not None:
            spent.setdefault(_kind(study, point), []).append(entry["seconds"])
    if not spent:
        return None
    overall = float(np.mean([seconds for kind in spent.values() for seconds in kind]))
    left = 0.0
    for study, point in points[done:]:
        if journal.find(study.name, point) is None:
            same = spent.get(_kind(study, point))
            left += overall if same is None else float(np.mean(same))
    return left


def _kind(study: Study, point: Point) -> tuple[str, object]:
    return study.name, next(iter(point.values()), None)


def machine() -> dict[str, str]:
    """The processor and the versions that numbers were measured with; not the host's name."""
    model = platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    packages = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow")
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "dither": version("dither"),
        **{name: version(name) for name in packages},
    }
