"""A marginal of a release: frequencies under the attributes' labels, with standard errors where they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.protocols.machine import Measured
from dither.types import Floats

_ROWS_SHOWN = 12


@dataclass(frozen=True)
class Marginal:
    """The model's distribution of some attributes, one axis each; `labels` names the codes along each axis.

    `standard_errors` is None unless these very attributes were measured together; it then holds the standard errors
    of the measurement that the model was fitted to, devices' noise and the choice of who was asked included.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    frequencies: Floats
    standard_errors: Floats | None = None

    def to_arrow(self) -> Any:
        """A PyArrow table: a label column an attribute, `frequency`, `standard_error`; the last attribute fastest."""
        import pyarrow as pa

        codes = np.indices(self.frequencies.shape).reshape(len(self.attributes), -1)
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(axis.astype(np.int32)), pa.array(labels, pa.string())).cast(
                pa.string()
            )
            for axis, labels in zip(codes, self.labels, strict=True)
        ]
        errors = pa.nulls(self.frequencies.size, pa.float64())
        if self.standard_errors is not None:
            errors = pa.array(self.standard_errors.ravel())
        names = [*self.attributes, *_figure_names(self.attributes)]
        return pa.table([*arrays, pa.array(self.frequencies.ravel()), errors], names=names)

    def __repr__(self) -> str:
        order = np.argsort(-self.frequencies, axis=None, kind="stable")[:_ROWS_SHOWN]
        if len(self.attributes) == 1 and self.frequencies.size <= _ROWS_SHOWN:
            order = np.arange(self.frequencies.size)
        lines = [f"Marginal({' x '.join(self.attributes)}, {self.frequencies.size:,} cells)"]
        shown = [np.unravel_index(int(flat), self.frequencies.shape) for flat in order]
        texts = [" | ".join(labels[i] for labels, i in zip(self.labels, at, strict=True)) for at in shown]
        width = max(len(text) for text in texts)
        for at, text in zip(shown, texts, strict=True):
            error = "" if self.standard_errors is None else f" ± {self.standard_errors[at]:.4f}"
            lines.append(f"  {text:<{width}}  {self.frequencies[at]:.4f}{error}")
        if self.frequencies.size > len(order):
            lines.append(f"  … and {self.frequencies.size - len(order):,} smaller cells")
        return "\n".join(lines)


def measured_errors(measured: Sequence[Measured], attributes: Sequence[str], participants: int) -> Floats | None:
    """The standard errors of exactly these attributes for all participants, axes in this order; None if not measured.

    A measurement's own standard error is that of the devices' noise. Where only n of N participants were asked, who
    they are adds f(1-f)/n * (1 - n/N) to the variance (sampling without replacement). Of several measurements of the
    same attributes the one with the most answers counts.
    """
    found = [m for m in measured if sorted(m.attributes) == sorted(attributes)]
    if not found:
        return None
    best = max(found, key=lambda m: m.n)
    f = np.clip(best.frequencies, 0.0, 1.0)
    unasked = max(0.0, 1 - best.n / participants) if participants else 0.0
    errors = np.sqrt(best.standard_errors**2 + f * (1 - f) / max(best.n, 1) * unasked)
    return np.transpose(errors, [best.attributes.index(name) for name in attributes])


def _figure_names(attributes: Sequence[str]) -> list[str]:
    """`frequency` and `standard_error`, with underscores added if an attribute has that name."""
    names = []
    for name in ("frequency", "standard_error"):
        while name in attributes:
            name = f"{name}_"  # noqa: PLW2901
        names.append(name)
    return names
