"""5. Tallies: the only thing that storage, clusters and estimators exchange."""

from dither.tally.tally import (
    CountTally,
    PatternTally,
    RoundTally,
    check_tally,
    report_bits,
    tally_from_bytes,
    zero,
)

__all__ = [
    "CountTally",
    "PatternTally",
    "RoundTally",
    "check_tally",
    "report_bits",
    "tally_from_bytes",
    "zero",
]
