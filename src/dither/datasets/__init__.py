"""Bundled and generated tables, and `open_table` for everything a user can name as a table."""

from dither.datasets.bundled import (
    NAMES,
    Dataset,
    load_dataset,
    named_schema,
    open_table,
    published_layout,
    read_named,
    schema_of,
)
from dither.datasets.generated import RandomNetwork, generate_network

__all__ = [
    "NAMES",
    "Dataset",
    "RandomNetwork",
    "generate_network",
    "load_dataset",
    "named_schema",
    "open_table",
    "published_layout",
    "read_named",
    "schema_of",
]
