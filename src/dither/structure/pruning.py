"""LoPub's entropy pruning: leave out attributes of little entropy before any pair is estimated (algorithm 5).

Reference: Ren et al., "LoPub", IEEE TIFS 2018, section 5.5.2. Non-binary tables start with no dependence and look for
some among the attributes of largest relative entropy; binary tables start with all pairs dependent and look for
independence among the attributes of least relative entropy. The relative entropy is H(A)/|domain|, as printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError
from dither.structure.dependence import entropy

Pair = tuple[int, int]
Variant = Literal["none", "empty", "full"]
VARIANTS: tuple[Variant, ...] = ("none", "empty", "full")


@dataclass(frozen=True)
class Pruned:
    """The dependences found and what finding them cost; each pair is counted once (erratum 10)."""

    dependent: frozenset[Pair]
    examined: tuple[Pair, ...]
    pairs: int

    @property
    def reduction(self) -> float:
        """The share of pairs that were never estimated."""
        return 1 - len(self.examined) / self.pairs if self.pairs else 0.0

    def against(self, truth: Iterable[Pair]) -> dict[str, float]:
        """Dependences kept, added and lost against the ones that estimating every pair gives."""
        reference = frozenset(truth)
        kept = len(self.dependent & reference)
        return {
            "dependences": len(self.dependent),
            "dependences_unpruned": len(reference),
            "kept": kept,
            "added": len(self.dependent - reference),
            "lost": len(reference) - kept,
            "loss_ratio": (len(reference) - kept) / len(reference) if reference else 0.0,
            "pairs_computed": len(self.examined),
            "pairs": self.pairs,
            "reduction_ratio": self.reduction,
        }


def relative_entropy(marginals: Sequence[npt.NDArray[Any]]) -> list[float]:
    """H(A)/|domain| of each attribute (algorithm 5, line 4)."""
    return [entropy(np.clip(m, 0, None)) / len(m) for m in marginals]


def prune_by_entropy(
    marginals: Sequence[npt.NDArray[Any]], phi: float, variant: Variant, depends: Callable[[int, int], bool]
) -> Pruned:
    """Ask `depends(i, j)`, i < j, only for the pairs that the variant examines.

    d (1-phi) attributes, rounded half up, are examined: the ones of largest relative entropy for `empty`, of least for
    `full`, where every pair not examined counts as dependent. `none` examines all pairs. (Line 7 reads as rounding down,
    but the pair counts of tables 7 and 9 are those of rounding to nearest.)
    """
    if variant not in VARIANTS:
        raise ParameterError(f"pruning {variant!r} is not one of {', '.join(VARIANTS)}", where="pruning", value=variant)
    if not 0 <= phi <= 1:
        raise ParameterError(f"phi must lie between 0 and 1, not {phi!r}", where="phi", value=phi)
    d = len(marginals)
    every = [(i, j) for i in range(d) for j in range(i + 1, d)]
    examined = every
    if variant != "none":
        ranked = sorted(range(d), key=_order(relative_entropy(marginals), -1.0 if variant == "empty" else 1.0))
        # A hair more than a half, so that 15 * (1 - 0.3) = 10.499.. counts as the ten and a half that was meant.
        chosen = set(ranked[: math.floor(d * (1 - phi) + 0.5 + 1e-9)])
        examined = [(i, j) for i, j in every if i in chosen and j in chosen]
    found = {pair for pair in examined if depends(*pair)}
    if variant == "full":
        found |= set(every) - set(examined)
    return Pruned(frozenset(found), tuple(examined), len(every))


def _order(values: Sequence[float], sign: float) -> Callable[[int], tuple[float, int]]:
    return lambda i: (sign * values[i], i)
