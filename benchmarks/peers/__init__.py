"""The same work done by other libraries in the same run: frequency estimation, synthetic Adult, and defects found in them.

Importing this package needs the standard library only, since its workers also run in the environments of other libraries.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from dither.lab.harness import Bench, Size, Study

ABOUT = (
    "Costs and errors of Dither beside other libraries, each used as its documentation shows and each measured in a fresh "
    "process, by CPU seconds. Times are ratios to Dither's in the same run; figures of different machines do not compare."
)
FREQUENCY_NOTE = (
    "Error is the mean squared error over the variance that theory gives: 1 is right. It is taken from the raw estimate; 'own' "
    "is from the estimate as the library gives it (multi-freq-ldpy clips and rescales). Where a library has no server side the "
    "obvious inversion is done here. Where a run would take too long fewer people are timed; costs are a report's, so they "
    "compare. 'one by one' is Dither's device path, one call per person, which is how the other libraries work too."
)
SYNTHESISERS_NOTE = (
    "dpmm and smartnoise are central: a curator holds all 45,222 records. The same epsilon promises far less there and is far "
    "easier to reach, so these lines are a yardstick for quality, not for privacy. Dither is local. All draw as many rows as "
    "the table has; 'the table's own rows, drawn anew' is what such a sample is off by at the very least."
)
# people, cells, mechanisms, repeats, CPU seconds that one run may take
FREQUENCY: dict[str, tuple[int, tuple[int, ...], tuple[str, ...], int, float]] = {
    "full": (1_000_000, (64, 1024), ("grr", "sue", "oue", "olh", "subset"), 5, 1.0),
    "quick": (100_000, (64,), ("grr", "sue"), 3, 0.1),
    "smoke": (2_000, (16,), ("grr",), 2, 0.05),
}
EPSILONS = {"full": (1.0, 2.0, 4.0), "quick": (4.0,), "smoke": (4.0,)}


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """Only the full size makes environments that are not there yet and fits the central synthesisers, which take minutes."""
    from dither.lab.harness import Bench

    studies = (_frequency(size), _synthesisers(size, data_dir), _defects(size))
    return Bench("peers", "Other libraries, in the same run", ABOUT, studies, size)


def _frequency(size: Size) -> Study:
    from benchmarks.peers import frequency
    from dither.lab.harness import Study

    people, cells, mechanisms, repeats, budget = FREQUENCY[size]
    axes = {"cells": cells, "mechanism": mechanisms, "library": frequency.LIBRARIES}
    axes |= {"people": (people,), "epsilon": (1.0,), "seed": (0,)}
    return Study(
        "frequency",
        "Frequencies of one attribute from people's reports",
        axes,
        partial(frequency.measure, repeats=repeats, budget=budget, build=size == "full"),
        skip=lambda **point: not frequency.offers(**point),
        note=FREQUENCY_NOTE,
    )


def _synthesisers(size: Size, data_dir: Path | None) -> Study:
    from pathlib import Path

    from benchmarks.peers import synthesisers
    from dither.lab.harness import Chart, NotAvailable, Study

    rows = 3_000 if size == "smoke" else None
    folder = Path("nowhere") if size == "smoke" else data_dir

    def at(method: str, epsilon: float, seed: int) -> list[dict[str, Any]]:
        if size != "full" and method in synthesisers.CENTRAL_METHODS:
            raise NotAvailable(f"{method} takes minutes to fit and is left to the full size")
        return synthesisers.measure(method, epsilon, seed, rows, folder)

    charts = tuple(
        Chart(
            "epsilon",
            f"tvd_{ways}",
            panels=(),
            log_x=True,
            log_y=True,
            title=f"Mean {ways}-way distance",
        )
        for ways in (2, 3)
    )
    lines = synthesisers.LINES[1:] if size == "smoke" else synthesisers.LINES
    axes = {"method": lines, "epsilon": EPSILONS[size], "seed": (0,)}
    title = "Synthetic Adult: central synthesisers as a yardstick for the local one"
    return Study("synthesisers", title, axes, at, ("records",), charts, note=SYNTHESISERS_NOTE)


def _defects(size: Size) -> Study:
    from benchmarks.peers import defects
    from dither.lab.harness import Study

    title = "Defects found in other libraries, looked for again"
    names = tuple(d.__name__ for d in defects.DEFECTS[: 2 if size == "smoke" else None])
    return Study(
        "defects", title, {"defect": names}, partial(defects.measure, build=size == "full")
    )
