"""The harness of the benchmarks: declare a grid of points, and it measures and shows them.

A `Bench` is a list of `Study`s. A study names its axes (datasets, methods, epsilons, seeds)
and a function that measures one point of that grid. The harness measures the points with a
progress bar, keeps each in a journal so that an interrupted run can be resumed, averages
over seeds, and writes

    rows.parquet      a line per measured number: study, labels, seed, measure, value
    summary.parquet   the same without seeds: mean, spread (standard deviation), runs
    index.html        charts and tables in one file that loads no other

A benchmark module has a function `bench(size, data_dir) -> Bench`. The size is "full",
"quick" (under a minute) or "smoke" (a few seconds, for the test suite).
"""

from dither.lab.harness.process import peak_megabytes, run_isolated
from dither.lab.harness.run import MEASURED, execute, write_contents
from dither.lab.harness.study import Bench, Chart, NotAvailable, Outcome, Size, Study

__all__ = [
    "MEASURED",
    "Bench",
    "Chart",
    "NotAvailable",
    "Outcome",
    "Size",
    "Study",
    "execute",
    "peak_megabytes",
    "run_isolated",
    "write_contents",
]
