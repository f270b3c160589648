"""Finished points on disk, so that an interrupted benchmark goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import dither
from benchmarks.harness.study import Bench, Point

# What a published number can depend on. The command line, the report and the collector cannot change one.
MEASURED = (
    *("schema", "mechanisms", "reports", "tally", "estimate", "structure", "models", "protocols", "simulate.py"),
    *("evaluation/metrics.py", "uncertainty", "planner.py", "_histogram.py", "central", "datasets"),
)


def fingerprint(bench: Bench) -> str:
    """A hash of the code behind the numbers: the measured packages and the benchmarks themselves."""
    source, here = Path(dither.__file__).parent, Path(__file__).resolve().parents[1]
    files = [
        f for name in MEASURED for f in ([source / name] if name.endswith(".py") else (source / name).rglob("*.py"))
    ]
    files += [f for f in here.glob("*.py") if f.stem in (bench.name, "rivals", "tables", "tasks", "workload")] + list(
        (here / bench.name).rglob("*.py")
    )
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class Journal:
    """Lines of JSON, one per finished point, after a first line that says which code and size they belong to."""

    def __init__(self, path: Path, bench: Bench, fresh: bool = False) -> None:
        self.path = path
        self.head = {"bench": bench.name, "size": bench.size, "code": fingerprint(bench)}
        self.stale = False  # there was a journal, but of other code or another size
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
        entries = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:  # half a line: the run was killed while it wrote
                break
        return entries

    def __len__(self) -> int:
        return len(self._done)

    def find(self, study: str, point: Point) -> dict[str, Any] | None:
        """The entry of a point that was measured before."""
        return self._done.get(_key(study, point))

    def add(self, study: str, point: Point, rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """Keep a point; it is on disk when this returns."""
        entry = {"key": _key(study, point), "rows": rows, "seconds": round(seconds, 3)}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._done[entry["key"]] = entry
        return entry


def _key(study: str, point: Point) -> str:
    return json.dumps([study, point], sort_keys=True)
