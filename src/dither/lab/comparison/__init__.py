"""Compare methods, and synthesisers of other libraries, on one table."""

from dither.lab.comparison.measure import PRODUCT, REDRAWN, Task, coverage, measure
from dither.lab.comparison.peers import PEERS, Drawn, Peer, find_peer
from dither.lab.comparison.run import Comparison, compare

__all__ = [
    "PEERS",
    "PRODUCT",
    "REDRAWN",
    "Comparison",
    "Drawn",
    "Peer",
    "Task",
    "compare",
    "coverage",
    "find_peer",
    "measure",
]
