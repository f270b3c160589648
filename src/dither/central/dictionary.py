"""Orthonormal dictionaries in which a histogram may be sparse: discrete cosine, Haar wavelet, identity.

Guarantee: `synthesise` is an orthogonal map R^size -> R^size and `analyse` its transpose and inverse, along the last
axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError

Floating = npt.NDArray[np.floating[Any]]
DICTIONARIES = ("dct", "haar", "identity")


@dataclass(frozen=True)
class Dictionary:
    """An orthonormal basis by its two fast transforms."""

    name: str
    analyse: Callable[[Floating], Floating]
    synthesise: Callable[[Floating], Floating]
    power_of_two: bool = False


def dictionary(name: str) -> Dictionary:
    """The dictionary of this name."""
    makers = {"dct": _dct, "haar": _haar, "identity": _identity}
    if name not in makers:
        raise ParameterError(
            f"dictionary {name!r} is not known; use one of {', '.join(DICTIONARIES)}", where="dictionary", value=name
        )
    return makers[name]()


def _dct() -> Dictionary:
    from scipy import fft

    return Dictionary("dct", lambda x: fft.dct(x, norm="ortho", axis=-1), lambda c: fft.idct(c, norm="ortho", axis=-1))


def _identity() -> Dictionary:
    return Dictionary("identity", lambda x: x, lambda c: c)


def _haar() -> Dictionary:
    import pywt

    def analyse(x: Floating) -> Floating:
        levels = _levels(x.shape[-1])
        return np.concatenate(pywt.wavedec(x, "haar", mode="periodization", level=levels, axis=-1), axis=-1)

    def synthesise(c: Floating) -> Floating:
        levels = _levels(c.shape[-1])
        parts = [c[..., :1]] + [c[..., 2**j : 2 ** (j + 1)] for j in range(levels)]
        return np.asarray(pywt.waverec(parts, "haar", mode="periodization", axis=-1))

    return Dictionary("haar", analyse, synthesise, power_of_two=True)


def _levels(size: int) -> int:
    if size & (size - 1):
        raise ParameterError(
            f"the Haar dictionary needs a power of two, not {size} cells", where="dictionary", value=size
        )
    return size.bit_length() - 1
