"""NoIncremental: PrivIncr with one round of pairs instead of T, the baseline of its paper (section 6.1).

Everything else is PrivIncr's, so that the two differ in the rounds alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from dither.checks import check_whole
from dither.protocols.privincr.machine import PrivIncr
from dither.protocols.privincr.plan import PrivIncrParameters


@dataclass(frozen=True)
class NoIncrementalParameters(PrivIncrParameters):
    """PrivIncr's parameters, with one round; see there."""

    rounds: int | None = 1

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds, 1, 1)
        super().__post_init__()


class NoIncremental(PrivIncr):
    """One round about all pairs, one about cliques."""

    method = "noincremental"
    parameters_class = NoIncrementalParameters
