"""A marginal: the frequencies of some attributes taken together, however they were found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dither.display.bars import Bar, bar_chart
from dither.display.show import Picture, as_pandas, as_polars, html_table, stand_alone
from dither.errors import StateError
from dither.estimate.project import normal_interval
from dither.types import Floats, NativeTable

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_SHOWN = 12
_CELLS_DRAWN = 40


@dataclass(frozen=True, repr=False)
class Marginal:
    """Frequencies with one axis per attribute, and their standard errors where they are known.

    A measured marginal is raw and unbiased; `n` reports went into it and its standard errors are those of the devices' noise.
    A released one is read off a model: `labels` names the codes along each axis, and the standard errors, of noise and of who
    was asked, are None unless just these attributes were measured together.
    """

    attributes: tuple[str, ...]
    frequencies: Floats
    standard_errors: Floats | None = None
    n: int = 0
    labels: tuple[tuple[str, ...], ...] = ()

    @property
    def variances(self) -> Floats:
        """The squares of the standard errors; an error if there are none."""
        if self.standard_errors is None:
            raise StateError(f"the marginal of {', '.join(self.attributes)} was not measured")
        return self.standard_errors**2

    def to_arrow(self) -> pa.Table:
        """A PyArrow table: one column of labels per attribute, `frequency`, `standard_error`; the last attribute fastest."""
        import pyarrow as pa

        codes = np.indices(self.frequencies.shape).reshape(len(self.attributes), -1)
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(axis.astype(np.int32)), pa.array(labels, pa.string())).cast(
                pa.string()
            )
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
        """The frequencies with their 95 % intervals, a picture for a notebook; of many cells the largest."""
        shown = self._largest(_CELLS_DRAWN)
        bars = [Bar(" | ".join(names), frequency, *self._reach(at)) for at, names, frequency in shown]
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
        caption = f"{self.frequencies.size:,} cells" + (f", the {left:,} smaller ones not shown" if left else "")
        return html_table((*self.attributes, "frequency", "95 % interval"), rows, caption, 2)

    def _largest(self, most: int) -> list[tuple[tuple[int, ...], tuple[str, ...], float]]:
        """The cells in order, or the largest of them: where each is, its labels and its frequency."""
        order = np.arange(self.frequencies.size)
        if len(order) > most:
            order = np.argsort(-self.frequencies, axis=None, kind="stable")[:most]
        places = [tuple(int(i) for i in np.unravel_index(int(flat), self.frequencies.shape)) for flat in order]
        named = self._labels()
        return [
            (at, tuple(labels[i] for labels, i in zip(named, at, strict=True)), float(self.frequencies[at]))
            for at in places
        ]

    def _reach(self, at: tuple[int, ...]) -> tuple[float | None, float | None]:
        """The ends of a cell's 95 % interval, where its standard error is known."""
        if self.standard_errors is None or np.isnan(self.standard_errors[at]):
            return None, None
        low, high = normal_interval(self.frequencies[at], self.standard_errors[at])
        return max(float(low), 0.0), min(float(high), 1.0)

    def __repr__(self) -> str:
        order = np.argsort(-self.frequencies, axis=None, kind="stable")[:_ROWS_SHOWN]
        if len(self.attributes) == 1 and self.frequencies.size <= _ROWS_SHOWN:
            order = np.arange(self.frequencies.size)
        lines = [f"Marginal({' x '.join(self.attributes)}, {self.frequencies.size:,} cells)"]
        shown = [np.unravel_index(int(flat), self.frequencies.shape) for flat in order]
        texts = [" | ".join(labels[i] for labels, i in zip(self._labels(), at, strict=True)) for at in shown]
        width = max(len(text) for text in texts)
        for at, text in zip(shown, texts, strict=True):
            error = "" if self.standard_errors is None else f" ± {self.standard_errors[at]:.4f}"
            lines.append(f"  {text:<{width}}  {self.frequencies[at]:.4f}{error}")
        if self.frequencies.size > len(order):
            lines.append(f"  … and {self.frequencies.size - len(order):,} smaller cells")
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
