"""The parameters of the Bayes-network method.

Reference: Ju, Gu, Wu, Zhang, Sensors 2020, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dither.errors import ParameterError


@dataclass(frozen=True)
class Parameters:
    """`plan=split` is the paper's: every participant reports every attribute, epsilon split over them, joints by EM.
    `plan=sample` learns the same network from one full-epsilon question a participant, in two rounds.

    `root=entropy` is algorithm 4 (root of largest entropy, cached candidates), `root=random` algorithm 3. `degree` is
    the largest number of parents, 1 to 4; a candidate whose joint exceeds `max_cells` gives way to smaller ones. For
    `split`: `flip` (the paper's f) instead of what epsilon gives, EM's `tolerance` and `steps`. For `sample`:
    `significance` of a parent, `omega` (the share of the first round), `singles` and `factor_cells` as in PrivIncr.
    """

    plan: Literal["split", "sample"] = "split"
    root: Literal["entropy", "random"] = "entropy"
    degree: int = 2
    max_cells: int = 2_000
    flip: float | None = None
    tolerance: float = 1e-4
    steps: int = 500
    mechanism: Literal["best", "oue", "grr", "sue", "olh", "subset"] = "best"
    significance: float = 2.0
    omega: float = 0.5
    singles: float = 0.3
    factor_cells: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= 4:
            raise ParameterError(f"degree must be from 1 to 4, not {self.degree!r}", where="degree", value=self.degree)
        if not 0 < self.omega < 1:
            raise ParameterError(
                f"omega must lie strictly between 0 and 1, not {self.omega!r}", where="omega", value=self.omega
            )
        if self.flip is not None and (self.plan == "sample" or not 0 < self.flip < 1):
            raise ParameterError(
                f"flip must lie strictly between 0 and 1 and belongs to plan=split, not {self.flip!r}",
                where="flip",
                value=self.flip,
            )
        for name, least in (("max_cells", 4), ("steps", 1), ("factor_cells", 2)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ParameterError(f"{name} must be at least {least}, not {value!r}", where=name, value=value)
        if not 0 <= self.singles < 1 or not self.tolerance > 0 or not math.isfinite(self.significance):
            raise ParameterError(
                "singles must lie in [0, 1), tolerance above 0, significance be finite", where="singles"
            )
