"""What the benchmarks here are written in: the package's own harness, which runs benchmarks from elsewhere too."""

from dither.lab.harness import (
    Bench,
    Chart,
    NotAvailable,
    Outcome,
    Size,
    Study,
    execute,
    write_contents,
)

__all__ = [
    "Bench",
    "Chart",
    "NotAvailable",
    "Outcome",
    "Size",
    "Study",
    "execute",
    "write_contents",
]
