"""Methods beside each other on one's own table."""

from dither.comparison.peers import Peer
from dither.comparison.results import Comparison
from dither.comparison.run import compare

__all__ = ["Comparison", "Peer", "compare"]
