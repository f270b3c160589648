"""Walk a benchmark's grid, resuming what was measured, and write what came out."""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dither
from dither.lab.harness import frames, page
from dither.lab.harness.study import Bench, NotAvailable, Point, Study
from dither.progress import in_notebook, progress_bar, time_left
from dither.schema.files import write_atomically

# What a published number can depend on. The command line, the report and the collector cannot change one.
MEASURED = (
    *(
        "schema",
        "mechanisms",
        "reports",
        "tally",
        "estimate",
        "structure",
        "models",
        "protocols",
        "simulate.py",
    ),
    *(
        "evaluation/metrics.py",
        "uncertainty",
        "planner",
        "_histogram.py",
        "central",
        "datasets",
        "comparison",
    ),
)


def fingerprint(bench: Bench) -> str:
    """A hash of the code behind the numbers: the measured packages, and the modules that measure with what they import beside."""
    source = Path(dither.__file__).parent
    files = {
        f
        for name in MEASURED
        for f in ([source / name] if (source / name).is_file() else (source / name).rglob("*.py"))
    }
    for study in bench.studies:
        measure: Any = study.measure
        while isinstance(measure, partial):
            measure = measure.func
        module = sys.modules.get(getattr(measure, "__module__", None) or type(measure).__module__)
        file = getattr(module, "__file__", None)
        if file is not None and not Path(file).resolve().is_relative_to(source):
            files |= _imported_beside(Path(file).resolve())
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _imported_beside(file: Path) -> set[Path]:
    """A module and every other of its package or folder that it imports, directly or not."""
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        here = waiting.pop()
        if here in found:
            continue
        found.add(here)
        waiting += [
            path for name in _imports(here) if (path := _module_file(root, name)) is not None
        ]
    return found


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
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)


class _Journal:
    """Lines of JSON, one per finished point, after a first line that says which code, size and data they belong to."""

    def __init__(self, path: Path, bench: Bench, fresh: bool = False) -> None:
        self.path = path
        self.head: dict[str, Any] = {
            "bench": bench.name,
            "size": bench.size,
            "code": fingerprint(bench),
        }
        self.head |= {"data": bench.data} if bench.data else {}
        self.stale = False  # there was a journal, but of other code, size or data
        self._done: dict[str, dict[str, Any]] = {}
        entries = self._read()
        if entries and entries[0] == self.head and not fresh:
            self._done = {entry["key"]: entry for entry in entries[1:]}
        else:
            self.stale = bool(entries) and not fresh
        # Written anew either way: a run that was killed may have left half a line.
        lines = [json.dumps(entry) + "\n" for entry in (self.head, *self._done.values())]
        path.write_text("".join(lines), encoding="utf-8")

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        entries: list[dict[str, Any]] = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:  # half a line: the run was killed while it wrote
                break
            if not isinstance(entry, dict) or (
                entries and not {"key", "rows", "seconds"} <= set(entry)
            ):
                break  # not a line of ours: what follows is not trusted either
            entries.append(entry)
        return entries

    def __len__(self) -> int:
        return len(self._done)

    def find(self, study: str, point: Point) -> dict[str, Any] | None:
        """The entry of a point that was measured before."""
        return self._done.get(_key(study, point))

    def add(
        self, study: str, point: Point, rows: list[dict[str, Any]], seconds: float
    ) -> dict[str, Any]:
        """Keep a point; it is on disk when this returns."""
        entry: dict[str, Any] = {
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
    journal = _Journal(out / "journal.jsonl", bench, fresh)
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


def _measure(study: Study, point: Point, journal: _Journal, outcome: Outcome) -> None:
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
    name: str, points: Sequence[tuple[Study, Point]], journal: _Journal, quiet: bool, say: Say
) -> Iterator[Advance]:
    """A bar with the remaining time on a terminal or in a notebook; elsewhere a line every half minute."""
    pace, last = _Pace(points, journal), time.monotonic()
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


class _Pace:
    """How long the rest will take: each point as long as those did that share its first label, such as the method."""

    def __init__(self, points: Sequence[tuple[Study, Point]], journal: _Journal) -> None:
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
