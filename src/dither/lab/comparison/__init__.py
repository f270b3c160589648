"""Compare methods, and synthesisers of other libraries, on one table."""

from dither.lab.comparison.peers import Peer
from dither.lab.comparison.run import Comparison, compare

__all__ = ["Comparison", "Peer", "compare"]
