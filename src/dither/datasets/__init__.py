"""Bundled and generated tables, and the one place that opens what a user names as a table."""

from dither.datasets.bundled import NAMES, Dataset, load_dataset
from dither.datasets.generated import Network, generate_network
from dither.datasets.opening import open_table, published_layout, read_named

__all__ = [
    "NAMES",
    "Dataset",
    "Network",
    "generate_network",
    "load_dataset",
    "open_table",
    "published_layout",
    "read_named",
]
