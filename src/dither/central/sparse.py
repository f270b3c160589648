"""Dictionaries (cosine, Haar wavelet, Walsh, identity, a union of two), and matching pursuit.

Guarantee: `analyse` is the transpose of `synthesise`, along the last axis. Both are orthogonal
maps R^size -> R^size, except for the union, which has twice as many atoms as cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pywt
from scipy import fft
from scipy.linalg import solve_triangular

from dither.central.sensing import walsh_hadamard
from dither.checks import check_choice
from dither.errors import ParameterError
from dither.types import Floats, Integers, Reals

Basis = Literal["dct", "haar", "walsh", "identity"]
# Cosines and Haar wavelets together: a non-orthogonal dictionary (Zheng et al. 2020, eq. 4).
UNION = "dct+haar"


@dataclass(frozen=True)
class Dictionary:
    """Atoms by two fast transforms.

    Attributes:
        analyse: Products with all atoms.
        synthesise: The sum of atoms with some coefficients.
        heights: The largest entries of the atoms of a size.
        power_of_two: Whether the size must be one.
        orthonormal: Whether the atoms are an orthonormal basis; else there are two for a cell.
    """

    analyse: Callable[[Reals], Reals]
    synthesise: Callable[[Reals], Reals]
    heights: Callable[[int], Floats]
    power_of_two: bool = False
    orthonormal: bool = True

    def atoms(self, size: int) -> int:
        """The number of atoms over this many cells."""
        return size if self.orthonormal else 2 * size


def dictionary(name: str) -> Dictionary:
    """The dictionary of this name."""
    check_choice("dictionary", name, (*get_args(Basis), UNION))
    if name == UNION:
        return _union(dictionary("dct"), dictionary("haar"))
    if name == "dct":
        return Dictionary(
            lambda x: fft.dct(x, norm="ortho", axis=-1),
            lambda c: fft.idct(c, norm="ortho", axis=-1),
            lambda size: np.full(size, math.sqrt(2 / size)),
        )
    if name == "haar":
        return Dictionary(_haar_analyse, _haar_synthesise, _haar_heights, power_of_two=True)
    if name == "walsh":
        return Dictionary(
            _walsh, _walsh, lambda size: np.full(size, 1 / math.sqrt(size)), power_of_two=True
        )
    return Dictionary(lambda x: x, lambda c: c, np.ones)


def _union(first: Dictionary, second: Dictionary) -> Dictionary:
    """The atoms of two bases, those of the first before those of the second."""

    def analyse(x: Reals) -> Reals:
        return np.concatenate([first.analyse(x), second.analyse(x)], axis=-1)

    def synthesise(c: Reals) -> Reals:
        half = c.shape[-1] // 2
        return first.synthesise(c[..., :half]) + second.synthesise(c[..., half:])

    def heights(size: int) -> Floats:
        return np.concatenate([first.heights(size), second.heights(size)])

    return Dictionary(analyse, synthesise, heights, power_of_two=True, orthonormal=False)


def _haar_heights(size: int) -> Floats:
    return np.asarray(1 / np.sqrt(leaves_below(size)))


def leaves_below(size: int) -> Integers:
    """The number of cells of each Haar atom of a power-of-two size, in coefficient order."""
    return np.concatenate([[size], *(np.full(1 << j, size >> j) for j in range(_levels(size)))])


def _walsh(x: Reals) -> Reals:
    """Products of signs of a cell's bits: marginals and interactions of yes-or-no columns."""
    size = x.shape[-1]
    _levels(size)
    return np.asarray(walsh_hadamard(x)) / math.sqrt(size)


def _haar_analyse(x: Reals) -> Reals:
    levels = _levels(x.shape[-1])
    return np.concatenate(
        pywt.wavedec(x, "haar", mode="periodization", level=levels, axis=-1), axis=-1
    )


def _haar_synthesise(c: Reals) -> Reals:
    levels = _levels(c.shape[-1])
    parts = [c[..., :1]] + [c[..., 2**j : 2 ** (j + 1)] for j in range(levels)]
    return np.asarray(pywt.waverec(parts, "haar", mode="periodization", axis=-1))


def _levels(size: int) -> int:
    if size & (size - 1):
        raise ParameterError(
            f"this dictionary needs a power of two, not {size} cells",
            where="dictionary",
            value=size,
        )
    return size.bit_length() - 1


MAX_ATOMS = 256
# Limit of atoms times rows, which keeps a recovery near a second.
_ATOM_WORK = 2**18


def most_atoms(rows: int) -> int:
    """The maximal number of atoms: a quarter of the measurements, within a limit of work."""
    return max(1, min(rows // 4, MAX_ATOMS, _ATOM_WORK // rows))


def matching_pursuit(
    observed: Floats,
    atom: Callable[[int], Floats],
    correlate: Callable[[Floats], Floats],
    *,
    atoms: int,
    stop: float = 0.0,
    norms: Floats | float = 1.0,
) -> tuple[Integers, Floats]:
    """At most `atoms` indices and coefficients by orthogonal matching pursuit.

    It ends when no correlation of an atom with the residual, over the atom's norm,
    exceeds `stop`, which follows from the public variance of the noise, never from the
    private table. Guarantee: with the same matrix and number of atoms it selects the
    same atoms and coefficients as scikit-learn's `orthogonal_mp` (tested). The matrix
    is never formed: one step costs one fast transform and one projection.

    References: Tropp, Gilbert, "Signal recovery from random measurements via orthogonal
    matching pursuit", 2007; the universal threshold sigma sqrt(2 ln N): Donoho,
    Johnstone, "Ideal spatial adaptation by wavelet shrinkage", 1994.
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
    coefficients = solve_triangular(triangle[: len(picked), : len(picked)], taken)
    return np.array(picked, dtype=np.int64), np.asarray(coefficients)


def _orthogonalise(vector: Floats, basis: Floats) -> tuple[Floats, Floats, float]:
    """The normalised part of a vector outside a basis; two passes limit rounding error."""
    full = float(np.linalg.norm(vector))
    projections = basis @ vector
    rest = vector - projections @ basis
    again = basis @ rest
    rest -= again @ basis
    length = float(np.linalg.norm(rest))
    if length <= 1e-9 * full:
        return rest, projections + again, 0.0
    return rest / length, projections + again, length
