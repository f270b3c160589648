"""Mechanisms by themselves: value to report on a device, reports to an estimate on a server."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.errors import ParameterError, ReportError
from dither.evaluation.auditing import audited_mechanism
from dither.mechanisms import Estimate, MeanMechanism, Mechanism, PackedReports, kernels
from dither.mechanisms.means import MeanEstimate
from dither.randomness import RandomStream


@dataclass(frozen=True, repr=False)
class LocalMechanism:
    """A mechanism with both ends: the device's `randomise` and the server's `estimate`.

    `dither.mechanism` makes it.

    Attributes:
        law: The mechanism of `dither.mechanisms`: its exact law, variances and JSON form.

    >>> import dither
    >>> oue = dither.mechanism("oue", cells=4, epsilon=1.0)
    >>> len(oue.randomise(2)), oue.epsilon <= 1.0
    (1, True)
    """

    law: Mechanism | MeanMechanism

    @property
    def name(self) -> str:
        """The mechanism's name."""
        return self.law.name

    @property
    def epsilon(self) -> float:
        """The guarantee of one report, computed from the integers of its law."""
        return self.law.epsilon

    def randomise(self, value: Any) -> bytes:
        """Draw the report of one participant with the operating system's random numbers.

        Args:
            value: A cell from 0 to `cells - 1`. For a mean a number from -1 to 1, or a list
                of them if there are several attributes.

        Returns:
            The report, of the same length for every value.

        Raises:
            ParameterError: The value is out of range.
        """
        if isinstance(self.law, Mechanism):
            return self.law.randomise(value, secrets.token_bytes)
        values = [value] if np.ndim(value) == 0 else value
        return self.law.randomise(values, secrets.token_bytes)

    def randomise_all(self, values: Any) -> list[bytes]:
        """Draw one report for each of many participants, in compiled code.

        Args:
            values: One value for each participant, as `randomise` takes them.

        Returns:
            The reports in the same order.
        """
        given = np.asarray(values)
        if isinstance(self.law, MeanMechanism) and given.ndim == 1:
            given = given[:, None]
        packed = kernels.randomise(self.law, given, RandomStream.from_system())
        return [row.tobytes() for row in packed.rows]

    def estimate(self, reports: Sequence[bytes]) -> Estimate | MeanEstimate | list[MeanEstimate]:
        """Estimate from reports, without bias.

        Args:
            reports: Reports of `randomise` or `randomise_all`.

        Returns:
            `frequencies` and `standard_errors` of the cells; they may be negative and need not
            add up to one. For numbers a `mean` with its `standard_error`, or a list of them if
            there are several attributes.

        Raises:
            ParameterError: There is no report.
            ReportError: A report is not one of this mechanism.
        """
        packed = self._pack(reports)
        if isinstance(self.law, Mechanism):
            counts = kernels.support(self.law, packed)
            return kernels.estimate(self.law, counts, len(packed))
        means = kernels.estimate_means(self.law, packed)
        return means[0] if self.law.attributes == 1 else means

    def _pack(self, reports: Sequence[bytes]) -> PackedReports:
        if not len(reports):
            raise ParameterError("an estimate needs at least one report", where="reports")
        width = self.law.report_bytes
        if any(len(report) != width for report in reports):
            raise ReportError(f"a report of this {self.name} mechanism has {width} bytes")
        rows = np.frombuffer(b"".join(reports), np.uint8).reshape(len(reports), width)
        return PackedReports(rows)

    def __repr__(self) -> str:
        size = f"attributes={getattr(self.law, 'attributes', 1)}"
        if isinstance(self.law, Mechanism):
            size = f"cells={self.law.cells}"
        return f"LocalMechanism({self.name!r}, {size}, epsilon={self.epsilon:.6g})"


def mechanism(
    name: str, *, epsilon: float, cells: int | None = None, attributes: int | None = None
) -> LocalMechanism:
    """A randomiser with its estimator, for users who bring their own protocol.

    Names for frequencies of cells: `grr`, `sue`, `oue`, `olh`, `subset`, `bloom`, `hadamard`,
    `square-wave`, `strategy`, and `best`, the one with the least variance. Names for means of
    numbers from -1 to 1: `duchi`, `piecewise`, `hybrid`; of several numbers `duchi-vector` and
    `several-means`. Installed plug-ins have their own names.

    Args:
        name: The mechanism.
        epsilon: The largest epsilon of one report.
        cells: The number of values of a person; for frequencies only.
        attributes: How many numbers a person has; for `duchi-vector` and `several-means` only.

    Returns:
        The mechanism, with `randomise`, `randomise_all`, `estimate` and `epsilon`.

    Raises:
        ParameterError: The name is unknown, or `cells` or `attributes` do not belong to it.

    >>> import dither
    >>> oue = dither.mechanism("oue", cells=4, epsilon=2.0)
    >>> reports = oue.randomise_all([0] * 3000 + [3] * 1000)
    >>> bool(0.6 < oue.estimate(reports).frequencies[0] < 0.9)
    True
    """
    several = name in ("duchi-vector", "several-means")
    if several != (attributes is not None):
        need = "needs attributes" if several else "takes no attributes"
        raise ParameterError(f"mechanism {name!r} {need}", where="attributes", value=attributes)
    law = audited_mechanism(name, epsilon, 2 if cells is None else cells, attributes or 1)
    frequencies = isinstance(law, Mechanism)
    if frequencies != (cells is not None):
        need = "needs cells" if frequencies else "takes no cells"
        raise ParameterError(f"mechanism {name!r} {need}", where="cells", value=cells)
    assert isinstance(law, Mechanism | MeanMechanism)
    return LocalMechanism(law)
