"""Cells on a number line: bins between edges, and atoms, exact values with a cell of their own. Standard library only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """Bins and atoms in the order of the numbers, so that neighbouring codes are neighbouring values.

    `boundaries` are all edges and atoms. `points[i]` is the code of exactly the i-th boundary, `gaps[i]` that of the numbers
    between it and the next; -1 where no cell is. Bins are half-open; an atom is cut out of the bin it lies in, and may lie
    outside all bins. `closed` says whether the last edge itself still counts.
    """

    boundaries: tuple[float, ...]
    points: tuple[int, ...]
    gaps: tuple[int, ...]
    ends: tuple[tuple[float, float], ...]  # of each code; equal for an atom

    @property
    def cells(self) -> int:
        """How many codes there are."""
        return len(self.ends)

    def code(self, number: float) -> int | None:
        """The code of a number, None where it lies in no cell."""
        at = bisect_right(self.boundaries, number) - 1
        if at < 0 or number != number:  # noqa: PLR0124 - NaN; whole numbers too large for a float have no isnan
            return None
        code = self.points[at] if self.boundaries[at] == number else self.gaps[at]
        return None if code < 0 else code

    def is_atom(self, code: int) -> bool:
        """Whether a code is one exact value."""
        low, high = self.ends[code]
        return low == high


def lay_out(edges: Sequence[float], atoms: Sequence[float] = (), *, closed: bool = True) -> Line:
    """The cells of increasing edges and of atoms."""
    exact = set(atoms)
    boundaries = tuple(sorted({*edges, *exact}))
    points: list[int] = []
    gaps: list[int] = []
    ends: list[tuple[float, float]] = []
    for i, boundary in enumerate(boundaries):
        if boundary in exact:
            points.append(len(ends))
            ends.append((boundary, boundary))
        else:
            points.append(-1)
        if edges[0] <= boundary < edges[-1]:
            gaps.append(len(ends))
            ends.append((boundary, boundaries[i + 1]))
        else:
            gaps.append(-1)
        if points[-1] < 0:
            points[-1] = gaps[-1] if boundary != edges[-1] else gaps[-2] if closed else -1
    return Line(boundaries, tuple(points), tuple(gaps), tuple(ends))
