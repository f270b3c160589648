"""Frequency estimation by Dither and by other libraries, each measurement in a fresh process, as ratios to Dither's."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.peers import child, environments
from dither.lab.harness import NotAvailable

LIBRARIES = ("dither", "dither, one by one", "multi-freq-ldpy", "pure-ldp", "OpenDP", "diffprivlib")
MECHANISMS = ("grr", "sue", "oue", "olh", "subset")
OFFERED = {
    "dither": MECHANISMS,
    "dither, one by one": MECHANISMS,
    "multi-freq-ldpy": MECHANISMS,
    "pure-ldp": ("grr", "sue", "oue", "olh"),
    "OpenDP": ("grr", "sue"),
    "diffprivlib": ("grr",),
}
MODULES = {"multi-freq-ldpy": "multi_freq_ldpy", "pure-ldp": "pure_ldp", "OpenDP": "opendp"}


def offers(library: str, mechanism: str, **_: Any) -> bool:
    """Whether a library has the mechanism at all."""
    return mechanism in OFFERED[library]


def measure(
    library: str,
    mechanism: str,
    people: int,
    cells: int,
    epsilon: float,
    seed: int,
    repeats: int = 3,
    budget: float = 1.0,
    build: bool = True,
) -> dict[str, Any]:
    """Costs per report, memory and error of one library, with ratios to Dither's batch path measured in the same run.

    A run of more than `budget` CPU seconds is done with fewer people; `build` makes an environment that a library needs.
    """
    arguments = (mechanism, people, cells, epsilon, seed, repeats, budget)
    row = dict(_alone(library, _python(library, build), *arguments))
    base = _alone("dither", None, *arguments)
    for side in ("client", "server"):
        row[f"{side}_x_dither"] = row[f"{side}_us_per_report"] / base[f"{side}_us_per_report"]
    both = [r["client_us_per_report"] + r["server_us_per_report"] for r in (row, base)]
    row["both_x_dither"] = both[0] / both[1]
    return row


def _python(library: str, build: bool) -> Path | None:
    """Where the library is installed: here, or in a separate environment."""
    if library in MODULES and find_spec(MODULES[library]) is None:
        raise NotAvailable(f"{library} is not installed here; the extra `bench` has it")
    return environments.interpreter(library, build) if library in environments.NAMES else None


@lru_cache(maxsize=256)
def _alone(library: str, python: Path | None, *arguments: Any) -> dict[str, Any]:
    names = ("mechanism", "people", "cells", "epsilon", "seed", "repeats", "budget")
    request = {"library": library, **dict(zip(names, arguments, strict=True))}
    try:
        return child.run("benchmarks.peers.frequency_worker", request, python)
    except child.MissingError as missing:
        raise NotAvailable(f"{library} cannot be measured: no module {missing}") from None
    except child.ChildFailedError as failure:
        if library.startswith("dither"):
            raise
        raise NotAvailable(f"{library}, {arguments[0]}: {failure}") from None
