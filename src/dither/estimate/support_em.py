"""Maximum likelihood for one question from reports that support sets of cells, whatever the mechanism.

For GRR, unary encodings, subset selection and local hashing P(report | x) is proportional to 1 + (ratio - 1) [x in S] with S the
set of cells the report supports, so one likelihood matrix and one EM serve them all. The estimate is a distribution; it is
biased near zero like every constrained one, and at small n it is closer to the truth than inversion with projection.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError
from dither.estimate.em import EMResult, expectation_maximisation
from dither.mechanisms import GRR, LocalHash, Mechanism, PackedReports, SubsetSelection, Unary

Likelihood = npt.NDArray[np.float32]

MOST_ENTRIES = 1 << 28  # one gigabyte of 32-bit likelihoods


def supported(mechanism: Mechanism, reports: PackedReports) -> npt.NDArray[np.bool_]:
    """Which cells each report supports, one row a report."""
    rows, cells = reports.rows, mechanism.cells
    if isinstance(mechanism, (Unary, SubsetSelection)):
        return np.unpackbits(rows, axis=1, bitorder="little", count=cells).astype(np.bool_)
    if isinstance(mechanism, GRR):
        padded = np.zeros((len(rows), 4), np.uint8)
        padded[:, : rows.shape[1]] = rows
        return np.asarray(padded.view("<u4") == np.arange(cells, dtype=np.uint32))
    if isinstance(mechanism, LocalHash):
        words = np.ascontiguousarray(rows[:, :8]).view("<u4")
        hashed = (words[:, :1] * np.arange(cells, dtype=np.uint32) + words[:, 1:]) >> np.uint32(16)
        buckets = (hashed.astype(np.uint64) * np.uint64(mechanism.buckets)) >> np.uint64(16)
        answers = rows[:, 8].astype(np.uint64)
        if rows.shape[1] == 10:
            answers |= rows[:, 9].astype(np.uint64) << np.uint64(8)
        return np.asarray(buckets == answers[:, None])
    raise ParameterError(
        f"reports of {mechanism.name} do not support sets of cells", where="mechanism", value=mechanism.name
    )


def support_likelihood(mechanism: Mechanism, reports: PackedReports) -> Likelihood:
    """P(report | cell), each row up to a factor: the likelihood ratio for supported cells, one for the others."""
    if len(reports) * mechanism.cells > MOST_ENTRIES:
        raise ParameterError(
            f"{len(reports):,} reports of {mechanism.cells:,} cells need more than a gigabyte of likelihoods; use inversion, or "
            "fewer reports",
            where="reports",
        )
    ratio = np.float32(np.exp(mechanism.epsilon))
    return np.where(supported(mechanism, reports), ratio, np.float32(1)).astype(np.float32)


def em_frequencies(
    mechanism: Mechanism, reports: PackedReports, tolerance: float = 1e-6, steps: int = 2000
) -> EMResult:
    """The distribution of the cells under which the reports are most likely."""
    if len(reports) == 0:
        raise ParameterError("an estimate needs at least one report", where="reports")
    return expectation_maximisation([support_likelihood(mechanism, reports)], tolerance=tolerance, steps=steps)
