"""Tallies: the only thing that storage, clusters and estimators exchange.

`dither.tally.counting` counts files of reports into them, `dither.tally.spark` on a cluster.
"""

from dither.tally.archive import decoding, pack, unpack
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
    "decoding",
    "pack",
    "report_bits",
    "tally_from_bytes",
    "unpack",
    "zero",
]
