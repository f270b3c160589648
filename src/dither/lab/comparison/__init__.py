"""Methods beside each other on one's own table."""

from dither.lab.comparison.peers import Peer
from dither.lab.comparison.results import Comparison
from dither.lab.comparison.run import compare

__all__ = ["Comparison", "Peer", "compare"]
