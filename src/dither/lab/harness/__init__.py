"""The declarative harness that every benchmark is written in.

A `Bench` is a list of `Study`s. A study names its axes (datasets x methods x epsilons x seeds, or whatever it varies) and a
function that measures one point of that grid. The harness walks the grid with a progress bar, keeps every finished point in
a journal so that an interrupted run goes on where it stopped, averages over seeds, and writes

    rows.parquet      one line per measured number: study, labels, seed, measure, value
    summary.parquet   the same without seeds: mean, spread (standard deviation over seeds), runs
    index.html        charts and tables in one file, nothing fetched

A benchmark module offers `bench(size, data_dir) -> Bench`, where size is "full", "quick" (under a minute) or "smoke" (a few
seconds, for the test suite).
"""

from dither.lab.harness.run import Outcome, execute, write_contents
from dither.lab.harness.study import Bench, Chart, NotAvailable, Size, Study

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
