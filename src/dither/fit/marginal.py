"""A marginal: the frequencies of some attributes taken together, however they were found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dither.display import (
    Bar,
    Picture,
    as_pandas,
    as_polars,
    bar_chart,
    html_list,
    html_table,
    stand_alone,
)
from dither.errors import StateError
from dither.types import Floats, NativeTable

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_SHOWN = 12
_CELLS_DRAWN = 40
HALF_WIDTH = 1.96  # standard errors that a 95 % interval reaches each way


@dataclass(frozen=True, repr=False)
class Marginal:
    """Frequencies with one axis per attribute, and their standard errors where they are known.

    A measured marginal is raw and unbiased, from `n` reports, and its standard errors are those
    of the devices' noise. `effective_n` is its effective sample size, below n if answers of
    unequal precision were pooled (0: it is n). A released marginal is computed from a model:
    `labels` has the labels of the codes along each axis, and the standard errors include noise,
    sampling and, with replicates, model error. If they are None, `reason` says why. Its text
    shows the half-width of a 95 % interval, `reach` standard errors, after a plus-minus sign.
    """

    attributes: tuple[str, ...]
    frequencies: Floats
    standard_errors: Floats | None = None
    n: int = 0
    labels: tuple[tuple[str, ...], ...] = ()
    reason: str = ""
    effective_n: float = 0.0
    reach: float = HALF_WIDTH

    @property
    def sample_size(self) -> float:
        """The effective sample size, at least one."""
        return max(self.effective_n or float(self.n), 1.0)

    @property
    def variances(self) -> Floats:
        """The squares of the standard errors; an error if there are none."""
        if self.standard_errors is None:
            why = self.reason or "was not measured"
            raise StateError(
                f"the marginal of {', '.join(self.attributes)} has no standard errors: {why}"
            )
        return self.standard_errors**2

    def to_arrow(self) -> pa.Table:
        """A PyArrow table with a column of labels per attribute, `frequency`, `standard_error`."""
        import pyarrow as pa

        codes = np.indices(self.frequencies.shape).reshape(len(self.attributes), -1)
        arrays = [
            pa.DictionaryArray.from_arrays(
                pa.array(axis.astype(np.int32)), pa.array(labels, pa.string())
            ).cast(pa.string())
            for axis, labels in zip(codes, self._labels(), strict=True)
        ]
        errors = pa.nulls(self.frequencies.size, pa.float64())
        if self.standard_errors is not None:
            errors = pa.array(self.standard_errors.ravel())
        names = [*self.attributes, *_figure_names(self.attributes)]
        return pa.table([*arrays, pa.array(self.frequencies.ravel()), errors], names=names)

    def to_pandas(self) -> NativeTable:
        """A pandas DataFrame; see `to_arrow`."""
        return as_pandas(self.to_arrow())

    def to_polars(self) -> NativeTable:
        """A polars DataFrame; see `to_arrow`."""
        return as_polars(self.to_arrow())

    def plot(self) -> Picture:
        """A picture of the frequencies with 95 % intervals; the largest cells if there are many."""
        shown = self._largest(_CELLS_DRAWN)
        bars = [
            Bar(" | ".join(names), frequency, *self._reach(at)) for at, names, frequency in shown
        ]
        words = f"Frequencies of {' x '.join(self.attributes)}: {len(bars)} of {self.frequencies.size:,} cells."
        return stand_alone(bar_chart(bars, words))

    def _repr_html_(self) -> str:
        shown = self._largest(_CELLS_DRAWN)
        rows = []
        for at, names, frequency in shown:
            low, high = self._reach(at)
            ends = "none" if low is None or high is None else f"{low:.4f} to {high:.4f}"
            rows.append((*names, f"{frequency:.4f}", ends))
        left = self.frequencies.size - len(rows)
        caption = f"{self.frequencies.size:,} cells" + (
            f", the {left:,} smaller ones not shown" if left else ""
        )
        table = html_table((*self.attributes, "frequency", "95 % interval"), rows, caption, 2)
        return table + html_list([self.reason] if self.reason else [], "No standard errors:")

    def _largest(self, most: int) -> list[tuple[tuple[int, ...], tuple[str, ...], float]]:
        """The cells in order, or the largest ones: position, labels and frequency."""
        order = np.arange(self.frequencies.size)
        if len(order) > most:
            order = np.argsort(-self.frequencies, axis=None, kind="stable")[:most]
        places = [
            tuple(int(i) for i in np.unravel_index(int(flat), self.frequencies.shape))
            for flat in order
        ]
        named = self._labels()
        return [
            (
                at,
                tuple(labels[i] for labels, i in zip(named, at, strict=True)),
                float(self.frequencies[at]),
            )
            for at in places
        ]

    def _reach(self, at: tuple[int, ...]) -> tuple[float | None, float | None]:
        """The ends of a cell's 95 % interval, where its standard error is known."""
        if self.standard_errors is None or np.isnan(self.standard_errors[at]):
            return None, None
        frequency, half = float(self.frequencies[at]), self.reach * float(self.standard_errors[at])
        return max(frequency - half, 0.0), min(frequency + half, 1.0)

    def __repr__(self) -> str:
        order = np.argsort(-self.frequencies, axis=None, kind="stable")[:_ROWS_SHOWN]
        if len(self.attributes) == 1 and self.frequencies.size <= _ROWS_SHOWN:
            order = np.arange(self.frequencies.size)
        told = "" if self.standard_errors is None else "; ± is the half-width of a 95 % interval"
        lines = [f"Marginal({' x '.join(self.attributes)}, {self.frequencies.size:,} cells{told})"]
        shown = [np.unravel_index(int(flat), self.frequencies.shape) for flat in order]
        texts = [
            " | ".join(labels[i] for labels, i in zip(self._labels(), at, strict=True))
            for at in shown
        ]
        width = max(len(text) for text in texts)
        for at, text in zip(shown, texts, strict=True):
            error = (
                ""
                if self.standard_errors is None
                else f" ± {self.reach * self.standard_errors[at]:.4f}"
            )
            lines.append(f"  {text:<{width}}  {self.frequencies[at]:.4f}{error}")
        if self.frequencies.size > len(order):
            lines.append(f"  … and {self.frequencies.size - len(order):,} smaller cells")
        if self.standard_errors is None and self.reason:
            lines.append(f"  no errors: {self.reason}")
        return "\n".join(lines)

    def _labels(self) -> tuple[tuple[str, ...], ...]:
        return self.labels or tuple(tuple(map(str, range(size))) for size in self.frequencies.shape)


def _figure_names(attributes: Sequence[str]) -> list[str]:
    """`frequency` and `standard_error`, with underscores added if an attribute has that name."""
    names = []
    for name in ("frequency", "standard_error"):
        while name in attributes:
            name = f"{name}_"  # noqa: PLW2901
        names.append(name)
    return names
