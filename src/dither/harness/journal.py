"""Finished points on disk, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import dither
from dither.harness.study import Bench, Point

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
            files |= imported_beside(Path(file).resolve())
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def imported_beside(file: Path) -> set[Path]:
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


class Journal:
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
