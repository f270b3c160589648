"""6. Tallies: the only thing that storage, clusters and estimators exchange."""

from dither.tally.tally import CountTally, GramTally, PatternTally, RoundTally, report_bits, tally_from_bytes, zero

__all__ = ["CountTally", "GramTally", "PatternTally", "RoundTally", "report_bits", "tally_from_bytes", "zero"]
