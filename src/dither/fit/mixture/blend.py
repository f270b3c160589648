"""Several mixtures fitted to the same data, averaged with the shares of least estimated risk.

The risk of an average sum a_k P_k of candidates is estimated by a' G a + 2 a' df up to a constant (Stein), with
G_kl = sum w (P_k - y)(P_l - y) over all cells y and df_k the degrees of freedom of candidate k. Shares are at least zero and add
up to one, so a candidate that the data contradict gets nothing. A mixture of mixtures is a mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dither.fit.mixture.fit import MixtureFit
from dither.fit.mixture.targets import PairTargets
from dither.types import Floats, Indices

MIN_SHARE = 1e-3  # a smaller one is not worth its components


@dataclass(frozen=True)
class Candidate:
    """A fit, the degrees of freedom that it took, and what to call it."""

    name: str
    fit: MixtureFit
    df: float


def gram(targets: PairTargets, w2: Floats, w1: Floats, fits: Sequence[MixtureFit]) -> Floats:
    """G: weighted products of what the fits leave of the data."""
    off = [fit.pairs - targets.pairs for fit in fits]
    off1 = [fit.one - targets.singles for fit in fits]
    out = np.empty((len(fits), len(fits)))
    for k in range(len(fits)):
        pull, pull1 = w2 * off[k], w1 * off1[k]
        for other in range(k + 1):
            out[k, other] = 0.5 * float(np.vdot(pull, off[other])) + float(pull1 @ off1[other])
            out[other, k] = out[k, other]
    return out


def best_shares(products: Floats, df: Floats) -> Floats:
    """The shares that make a' G a + 2 a' df least on the simplex: exact, by its active set.

    On a set of candidates the least is where G a + df is the same for all of them; candidates with a negative share leave the
    set, and those whose slope is lower than that of the set come back.
    """
    count = len(df)
    slope = np.diag(products) + 2.0 * df
    inside = [int(np.argmin(slope))]
    shares = np.zeros(count)
    shares[inside[0]] = 1.0
    for _ in range(10 * count + 10):
        gradient = products @ shares + df
        level = float(shares @ gradient)
        entering = int(np.argmin(gradient))
        if gradient[entering] >= level - 1e-9 * max(1.0, abs(level)) or entering in inside:
            return shares
        inside.append(entering)
        while True:
            found = _level_point(products, df, inside)
            if (found >= -1e-12).all():
                break
            # Go towards it as far as all stay positive, and leave out what has become zero.
            here = shares[inside]
            falling = found < here
            reach = float(
                np.min(here[falling & (found < 0)] / (here - found)[falling & (found < 0)])
            )
            moved = here + reach * (found - here)
            shares[:] = 0.0
            shares[inside] = np.maximum(moved, 0.0)
            zero = int(np.argmin(np.where(found < 0, moved, np.inf)))
            shares[inside[zero]] = 0.0
            inside.pop(zero)
        shares[:] = 0.0
        shares[inside] = np.maximum(found, 0.0)
        shares /= shares.sum()
        inside = [k for k in inside if shares[k] > 0.0]
    return shares


def _level_point(products: Floats, df: Floats, inside: Sequence[int]) -> Floats:
    """Where G a + df is level on some candidates and a adds up to one."""
    m = len(inside)
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = products[np.ix_(inside, inside)]
    system[:m, m], system[m, :m] = -1.0, 1.0
    return np.asarray(np.linalg.lstsq(system, np.append(-df[list(inside)], 1.0), rcond=None)[0][:m])


def blended(fits: Sequence[MixtureFit], shares: Floats) -> MixtureFit:
    """The average of fits with the same edges; diagnostics are those of the first."""
    kept = [
        (fit, float(share)) for fit, share in zip(fits, shares, strict=True) if share > MIN_SHARE
    ]
    if len(kept) == 1:
        return replace(kept[0][0], diagnostics=fits[0].diagnostics)
    total = sum(share for _, share in kept)
    tables = [len(fit.potentials[0]) if fit.potentials else 1 for fit, _ in kept]
    before = np.concatenate([[0], np.cumsum(tables)])
    return MixtureFit(
        np.concatenate([share / total * fit.weights for fit, share in kept]),
        np.concatenate([fit.components for fit, _ in kept]),
        fits[0].diagnostics,
        np.asarray(sum(share / total * fit.pairs for fit, share in kept)),
        np.asarray(sum(share / total * fit.one for fit, share in kept)),
        kept[0][0].edges,
        tuple(
            np.concatenate([fit.potentials[e] for fit, _ in kept])
            for e in range(len(kept[0][0].potentials))
        ),
        np.concatenate(
            [
                _groups(fit) + first
                for (fit, _), (first, _) in zip(kept, pairwise(before), strict=True)
            ]
        ),
    )


def _groups(fit: MixtureFit) -> Indices:
    return fit.groups if len(fit.groups) else np.zeros(len(fit.weights), dtype=np.intp)
