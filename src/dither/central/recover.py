"""Orthogonal matching pursuit over an implicit sensing matrix, stopped by the known noise level.

Guarantee: with the same matrix and the same number of atoms it selects the same atoms and coefficients as
scikit-learn's `orthogonal_mp` (tested). The matrix is never formed: one step costs one fast transform and one
projection. How many atoms are kept follows from the variance of the noise that was added, which is public, and never
from the private table; what is recovered is computed from the noisy measurement alone.

References: Tropp, Gilbert, "Signal recovery from random measurements via orthogonal matching pursuit", 2007; the
universal threshold sigma sqrt(2 ln N): Donoho, Johnstone, "Ideal spatial adaptation by wavelet shrinkage", 1994.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dither.types import Floats

MOST_ATOMS = 256
_ATOM_WORK = 2**18  # atoms times rows: keeps a recovery near a second where the signal would let it run on


def most_atoms(rows: int) -> int:
    """The most atoms that so many measurements are asked for: a quarter of them, within a limit of work."""
    return max(1, min(rows // 4, MOST_ATOMS, _ATOM_WORK // rows))


def matching_pursuit(
    observed: Floats,
    atom: Callable[[int], Floats],
    correlate: Callable[[Floats], Floats],
    *,
    atoms: int,
    stop: float = 0.0,
    norms: Floats | float = 1.0,
) -> tuple[np.ndarray, Floats]:
    """Indices and coefficients of at most `atoms` atoms.

    Ends when no correlation of an atom with the residual, over the atom's norm, exceeds `stop`.
    """
    rows = observed.size
    basis = np.empty((min(atoms, rows), rows))
    triangle = np.zeros((min(atoms, rows), min(atoms, rows)))
    residual = observed.astype(np.float64)
    picked: list[int] = []
    taken = np.zeros(0)
    while len(picked) < basis.shape[0]:
        scores = np.abs(correlate(residual)) / norms
        scores[picked] = 0.0
        best = int(scores.argmax())
        if scores[best] <= stop:
            break
        k = len(picked)
        direction, projections, length = _orthogonalise(atom(best), basis[:k])
        if length == 0.0:
            break
        basis[k] = direction
        triangle[:k, k] = projections
        triangle[k, k] = length
        weight = float(direction @ residual)
        residual -= weight * direction
        picked.append(best)
        taken = np.append(taken, weight)
    if not picked:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    from scipy.linalg import solve_triangular

    coefficients = solve_triangular(triangle[: len(picked), : len(picked)], taken)
    return np.array(picked, dtype=np.int64), np.asarray(coefficients)


def _orthogonalise(vector: Floats, basis: Floats) -> tuple[Floats, Floats, float]:
    """The part of a vector outside a basis, normalised; twice is enough to keep it orthogonal to rounding error."""
    full = float(np.linalg.norm(vector))
    projections = basis @ vector
    rest = vector - projections @ basis
    again = basis @ rest
    rest -= again @ basis
    length = float(np.linalg.norm(rest))
    if length <= 1e-9 * full:
        return rest, projections + again, 0.0
    return rest / length, projections + again, length
