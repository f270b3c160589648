"""Named steps that turn raw estimates into distributions. Each is a separate choice, never hidden in an estimator.

Reference: Wang, Lopuhaä-Zwakenberg, Li, Skoric, Li, "Locally differentially private frequency estimation with consistency",
NDSS 2020. Names as there: Base-Pos (`clip`), Base-Cut, Norm, Norm-Mul, Norm-Cut, Norm-Sub.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from dither.errors import ParameterError
from dither.types import Floats


def clip(raw: Floats) -> Floats:
    """Negative frequencies become zero; the sum is left as it falls."""
    return np.maximum(raw, 0.0)


def norm(raw: Floats) -> Floats:
    """Add the same amount to every cell so that they add up to one; some may stay negative. Unbiased."""
    return raw + (1.0 - raw.sum()) / raw.size


def norm_mul(raw: Floats) -> Floats:
    """Negative frequencies become zero, the rest is scaled to add up to one."""
    kept = np.maximum(raw, 0.0)
    total = kept.sum()
    return kept / total if total > 0 else np.full_like(raw, 1.0 / raw.size)


def norm_sub(raw: Floats) -> Floats:
    """The nearest distribution in Euclidean distance: subtract one amount from all cells and clip at zero.

    Closed form by sorting (Duchi et al., ICML 2008); for estimates of equal variance it is the constrained maximum of the
    Gaussian likelihood.
    """
    flat = np.asarray(raw, dtype=np.float64).ravel()
    descending = np.sort(flat)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, flat.size + 1)
    last = np.flatnonzero(descending - excess > 0)[-1]
    out: Floats = np.maximum(flat - excess[last], 0.0).reshape(np.shape(raw))
    return out / out.sum()


def norm_cut(raw: Floats) -> Floats:
    """Keep the largest estimates while they add up to at most one; the rest become zero, what is left of one stays."""
    flat = np.maximum(np.asarray(raw, dtype=np.float64).ravel(), 0.0)
    order = np.argsort(-flat, kind="stable")
    kept = np.cumsum(flat[order]) <= 1.0
    out = np.zeros_like(flat)
    out[order[kept]] = flat[order[kept]]
    return out.reshape(np.shape(raw))


def base_cut(raw: Floats, standard_errors: Floats, level: float = 0.05) -> Floats:
    """Zero unless a cell stands out from noise at the level, corrected for the number of cells (Bonferroni)."""
    threshold = NormalDist().inv_cdf(1 - level / np.size(raw)) * np.asarray(standard_errors)
    return np.where(raw > threshold, raw, 0.0)


PROJECTIONS: dict[str, Callable[[Floats], Floats]] = {
    "norm-sub": norm_sub,
    "norm-mul": norm_mul,
    "norm-cut": norm_cut,
    "norm": norm,
    "clip": clip,
    "none": lambda raw: np.asarray(raw, dtype=np.float64),
}


def projection(name: str) -> Callable[[Floats], Floats]:
    """A projection by name."""
    try:
        return PROJECTIONS[name]
    except KeyError:
        raise ParameterError(
            f"no projection {name!r}; there are {', '.join(PROJECTIONS)}", where="projection", value=name
        ) from None
