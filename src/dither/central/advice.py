"""Which method to take, by public facts only: columns, cells, epsilon, what will be asked, and a public number of records.

The choice must not look at the table, or it would cost epsilon and tell something. The rules are those that the benchmark shows
(docs/explanation/central-release.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dither.central.grid import COARSEST
from dither.central.measurement import MOST_CELLS
from dither.checks import check_choice

Workload = Literal["cells", "ranges"]
WORKLOADS: tuple[Workload, ...] = ("cells", "ranges")
SUPPOSED_RECORDS = 10_000
# Below this many units of noise on an average cell the table is more noise than counts, and a method that models it gains.
FAINT = 1.0


@dataclass(frozen=True)
class Advice:
    """A method's name and why it was taken, in one sentence."""

    method: str
    why: str


def check_workload(workload: str) -> Workload:
    """One of the kinds of questions."""
    check_choice("workload", workload, WORKLOADS)
    return "ranges" if workload == "ranges" else "cells"


def advise(
    shape: Sequence[int], epsilon: float, records: int | None = None, workload: Workload = "cells"
) -> Advice:
    """The method for a table over this product of columns; `records` is public or a public guess."""
    cells = math.prod(shape)
    if cells > MOST_CELLS:
        return Advice(
            "privbayes", f"{cells:,} cells are too many for a histogram, and a network needs none"
        )
    supposed = SUPPOSED_RECORDS if records is None else max(1, records)
    guessed = " supposed" if records is None else ""
    mean = supposed / cells * epsilon
    if workload == "ranges":
        if len(shape) == 2 and min(shape) > COARSEST:
            return Advice(
                "agrid", "ranges over two columns: grids that are finer where more records are"
            )
        return Advice(
            "hierarchical", "ranges: a tree of counts with the best fan-out of each column"
        )
    if mean >= FAINT:
        return Advice(
            "laplace", f"with {supposed:,} records{guessed} an average cell stands above the noise"
        )
    if len(shape) > 2:
        return Advice(
            "privbayes",
            f"with {supposed:,} records{guessed} an average cell is noise: a network of small tables",
        )
    return Advice(
        "csm",
        f"with {supposed:,} records{guessed} an average cell is noise: few atoms stand above it",
    )
