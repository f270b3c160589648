"""The process that measures one library's frequency oracle; see `frequency`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.peers.child import serve
from benchmarks.peers.libraries import ORACLES, Oracle, inverted, textbook
from benchmarks.peers.peak import Peak

PILOT, FEWEST = 100, 200


def population(people: int, cells: int, seed: int) -> np.ndarray:
    """Values with frequencies that fall like one over the rank: common cells and rare ones."""
    weights = 1 / np.arange(1, cells + 1)
    return np.random.default_rng(seed).choice(cells, people, p=weights / weights.sum())


def work(
    library: str,
    mechanism: str,
    people: int,
    cells: int,
    epsilon: float,
    seed: int,
    repeats: int,
    budget: float,
) -> dict[str, Any]:
    """CPU seconds per report, memory and error; fewer people where a run would take more than `budget` seconds.

    The quickest of the repeats counts, for every library: other load only adds time.
    """
    begin = time.process_time()
    oracle = ORACLES[library](mechanism, cells, epsilon)
    oracle.server(
        oracle.client(population(PILOT, cells, seed)), PILOT
    )  # compiles and loads the rest
    setup = time.process_time() - begin
    timed = people
    pilot = FEWEST
    while pilot < people:  # grow until the clock can tell
        seconds = sum(_run(oracle, population(pilot, cells, seed), raw=False)[:2])
        if seconds > budget / 20:
            timed = min(people, max(FEWEST, int(pilot * budget / seconds)))
            break
        pilot *= 8
    peak = Peak()
    alone = _run(oracle, population(timed, cells, seed), raw=False)
    extra = peak.extra_mb()
    runs = [_run(oracle, population(timed, cells, seed + 1 + i), raw=True) for i in range(repeats)]
    client, server = (min(run[i] for run in (alone, *runs)) for i in (0, 1))
    errors = [_errors(oracle, mechanism, cells, epsilon, population(timed, cells, seed + 1 + i), run[2], run[3])
              for i, run in enumerate(runs)]  # fmt: skip
    raw, own, bias = np.mean(errors, axis=0)
    return {
        "server": oracle.server_is,
        "people_timed": timed,
        "setup_cpu_s": setup,
        "client_us_per_report": 1e6 * client / timed,
        "server_us_per_report": 1e6 * server / timed,
        "peak_extra_mb": extra,
        "peak_extra_bytes_per_person": extra * 2**20 / timed,
        "report_bytes": _size(oracle.client(population(1, cells, seed))),
        "mse_over_theory": raw,
        "own_mse_over_theory": own,
        "bias_of_largest_cell_in_sd": bias,
    }


def _run(
    oracle: Oracle, values: np.ndarray, raw: bool
) -> tuple[float, float, np.ndarray, np.ndarray | None]:
    begin = time.process_time()
    reports = oracle.client(values)
    middle = time.process_time()
    frequencies = oracle.server(reports, len(values))
    end = time.process_time()
    # Our own count of the reports, outside the clock and outside the run that memory is read from.
    support = np.asarray(oracle.support(reports)) if raw and oracle.support else None
    return middle - begin, end - middle, np.asarray(frequencies, dtype=np.float64), support


def _errors(
    oracle: Oracle,
    mechanism: str,
    cells: int,
    epsilon: float,
    values: np.ndarray,
    own: np.ndarray,
    support: Any,
) -> tuple[float, float, float]:
    """Mean squared error over the textbook's variance, of the raw estimate and of the library's own; bias of cell 0."""
    n = len(values)
    true = np.bincount(values, minlength=cells) / n
    p, q = textbook(mechanism, cells, epsilon)
    variance = (true * p * (1 - p) + (1 - true) * q * (1 - q)) / (n * (p - q) ** 2)
    raw = own if support is None else inverted(support, n, p, q)
    return (
        float(np.mean((raw - true) ** 2) / variance.mean()),
        float(np.mean((own - true) ** 2) / variance.mean()),
        float((own[0] - true[0]) / np.sqrt(variance[0])),
    )


def _size(reports: Any) -> int:
    """Bytes of the first report as the library hands it over; a Python or NumPy integer counts as eight."""
    if hasattr(reports, "rows"):
        return int(reports.rows.shape[1])

    def of(report: Any) -> int:
        if isinstance(report, tuple):
            return sum(of(part) for part in report)
        if isinstance(report, np.ndarray):
            return int(report.nbytes)
        return len(report) if isinstance(report, bytes | str) else 8

    return of(reports[0])


if __name__ == "__main__":
    serve(work)
