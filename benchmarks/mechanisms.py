"""Frequency mechanisms against other libraries, in one run: CPU time and memory, as ratios.

Each measurement runs in a separate process, compiles and warms up first, and counts CPU time (all threads). A peer may get fewer
people than we do; costs are then compared per person. Peers: multi-freq-ldpy and pure-ldp, installed by the extra `bench`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from dither.lab.harness import Bench, NotAvailable, Size, Study, peak_megabytes, run_isolated
from dither.mechanisms import kernels

EPSILON = 1.0


def _values(n: int, cells: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, cells, n)


def ours(name: str, n: int, cells: int) -> tuple[float, float]:
    """Client and server CPU seconds of Dither, person by person, reports packed."""
    from dither.mechanisms import mechanism
    from dither.randomness import RandomStream

    built, stream = mechanism(name, cells, EPSILON), RandomStream.from_system()
    kernels.estimate(
        built, kernels.support(built, kernels.randomise(built, _values(1000, cells), stream)), 1000
    )
    values = _values(n, cells)
    start = time.process_time()
    reports = kernels.randomise(built, values, stream)
    middle = time.process_time()
    kernels.estimate(built, kernels.support(built, reports), n)
    return middle - start, time.process_time() - middle


def ours_plain_numpy(name: str, n: int, cells: int) -> tuple[float, float]:
    """The same unary reports without Numba: 32-bit draws against thresholds, packed in blocks."""
    from dither.mechanisms import mechanism
    from dither.randomness import RandomStream

    built: Any = mechanism(name, cells, EPSILON)
    stream, values = RandomStream.from_system(), _values(n, cells)
    start = time.process_time()
    rows = []
    for begin in range(0, n, 4096):
        part = values[begin : begin + 4096]
        draws = stream.words(len(part) * cells, np.uint32).reshape(-1, cells)
        bits = draws < built.other_set
        index = np.arange(len(part))
        bits[index, part] = draws[index, part] < built.true_set
        rows.append(np.packbits(bits, axis=1, bitorder="little"))
    reports = np.concatenate(rows)
    middle = time.process_time()
    counts = np.zeros(cells, np.int64)
    for begin in range(0, n, 16384):
        bits = np.unpackbits(reports[begin : begin + 16384], axis=1, bitorder="little", count=cells)
        counts += bits.sum(axis=0, dtype=np.int64)
    kernels.estimate(built, counts, n)
    return middle - start, time.process_time() - middle


def ours_counts(name: str, n: int, cells: int) -> tuple[float, float]:
    """Count-only simulation."""
    from dither.mechanisms import mechanism

    built, rng = mechanism(name, cells, EPSILON), np.random.default_rng(1)
    truth = np.bincount(_values(n, cells), minlength=cells)
    kernels.simulate(built, truth, rng)
    start = time.process_time()
    for _ in range(10):
        kernels.simulate(built, truth, rng)
    return (time.process_time() - start) / 10, 0.0


def multi_freq(name: str, n: int, cells: int) -> tuple[float, float]:
    """multi-freq-ldpy as its documentation shows: a client call a person, a list of reports, one aggregator call."""
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    calls: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "oue": (
            lambda v: UE_Client(v, cells, EPSILON, True),
            lambda r: UE_Aggregator_MI(r, EPSILON, True),
        ),
        "grr": (
            lambda v: GRR_Client(v, cells, EPSILON),
            lambda r: GRR_Aggregator_MI(r, cells, EPSILON),
        ),
        "olh": (
            lambda v: LH_Client(v, cells, EPSILON, True),
            lambda r: LH_Aggregator_MI(r, cells, EPSILON, True),
        ),
    }
    client, server = calls[name]
    server([client(int(v)) for v in _values(20, cells)])
    values = [int(v) for v in _values(n, cells)]
    start = time.process_time()
    reports = [client(v) for v in values]
    middle = time.process_time()
    server(reports)
    return middle - start, time.process_time() - middle


def pure(name: str, n: int, cells: int) -> tuple[float, float]:
    """pure-ldp as its documentation shows: privatise and aggregate, one person at a time."""
    from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
    from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    shift = lambda x: x  # noqa: E731  (cells are numbered from zero)
    pairs: dict[str, Callable[[], tuple[Any, Any]]] = {
        "oue": lambda: (
            UEClient(EPSILON, cells, True, shift),
            UEServer(EPSILON, cells, True, shift),
        ),
        "grr": lambda: (DEClient(EPSILON, cells, shift), DEServer(EPSILON, cells, shift)),
        "olh": lambda: (
            LHClient(EPSILON, cells, use_olh=True, index_mapper=shift),
            LHServer(EPSILON, cells, use_olh=True, index_mapper=shift),
        ),
    }
    client, server = pairs[name]()
    values = [int(v) for v in _values(n, cells)]
    start = time.process_time()
    reports = [client.privatise(v) for v in values]
    middle = time.process_time()
    for report in reports:
        server.aggregate(report)
    return middle - start, time.process_time() - middle


RUNNERS: dict[str, Callable[[str, int, int], tuple[float, float]]] = {
    "dither": ours,
    "dither, plain NumPy": ours_plain_numpy,
    "dither, count-only": ours_counts,
    "multi-freq-ldpy": multi_freq,
    "pure-ldp": pure,
}


PEOPLE = {  # of a full run
    ("oue", 256): {
        "dither": 1_000_000,
        "dither, plain NumPy": 1_000_000,
        "dither, count-only": 1_000_000,
        "multi-freq-ldpy": 1_000_000,
        "pure-ldp": 200_000,
    },
    ("oue", 1024): {"dither": 1_000_000, "multi-freq-ldpy": 1_000_000},
    ("grr", 1024): {"dither": 1_000_000, "multi-freq-ldpy": 100_000, "pure-ldp": 100_000},
    ("olh", 1024): {"dither": 1_000_000, "multi-freq-ldpy": 4_000, "pure-ldp": 4_000},
}


def _best_of(
    runner: Callable[[str, int, int], tuple[float, float]], name: str, n: int, cells: int
) -> tuple[float, float]:
    """The quickest of up to three runs, for every library alike: the others on this machine only ever add time."""
    runs = [runner(name, n, cells)]
    while len(runs) < 3 and sum(map(sum, runs)) < 10:
        runs.append(runner(name, n, cells))
    return min(runs, key=sum)


def work(library: str, name: str, n: int, cells: int) -> dict[str, float]:
    """CPU seconds and extra memory of one library, in this process."""
    # Imports and a first small run belong to the start-up, not to the work.
    RUNNERS[library](name, min(n, 200), cells)
    before = peak_megabytes()
    client, server = _best_of(RUNNERS[library], name, n, cells)
    return {
        "client_seconds": client,
        "server_seconds": server,
        "peak_extra_mb": peak_megabytes() - before,
    }


def measure(library: str, name: str, n: int, cells: int) -> dict[str, float]:
    """`work` in a separate process, and its cost per person; `NotAvailable` where the library is not installed."""
    row = run_isolated(work, library, name, n, cells)
    return row | {
        "microseconds_per_person": 1e6 * (row["client_seconds"] + row["server_seconds"]) / n
    }


@lru_cache(maxsize=1)
def _dither(name: str, n: int, cells: int) -> dict[str, float]:
    return measure("dither", name, n, cells)


def compared(mechanism: str, cells: int, library: str, divisor: int = 1) -> dict[str, Any]:
    """One library's cost and Dither's, measured in the same run."""
    people = {name: n // divisor for name, n in PEOPLE[mechanism, cells].items()}
    ours = _dither(mechanism, people["dither"], cells)
    try:
        row = ours if library == "dither" else measure(library, mechanism, people[library], cells)
    except NotAvailable as missing:
        raise NotAvailable(f"{library}: {missing}; pip install 'dither[bench]'") from None
    out = {
        "people": people[library],
        "microseconds_per_person": row["microseconds_per_person"],
        "times_dither": row["microseconds_per_person"] / ours["microseconds_per_person"],
        "client_us": 1e6 * row["client_seconds"] / people[library],
        "server_us": 1e6 * row["server_seconds"] / people[library],
        "peak_extra_mb": row["peak_extra_mb"],
    }
    if row["server_seconds"] and ours["server_seconds"]:
        mine = ours["server_seconds"] / people["dither"]
        out["server_times_dither"] = row["server_seconds"] / people[library] / mine
    return out


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The study of one size; values are generated, so no folder is read."""
    cases = tuple(PEOPLE)[:1] if size == "smoke" else tuple(PEOPLE)
    study = Study(
        name="cost",
        title="CPU time and memory a person",
        axes={
            "mechanism": tuple(dict.fromkeys(name for name, _ in cases)),
            "cells": tuple(dict.fromkeys(cells for _, cells in cases)),
            "library": tuple(RUNNERS),
        },
        measure=partial(compared, divisor={"full": 1, "quick": 10, "smoke": 500}[size]),
        labels=("people",),
        skip=lambda mechanism, cells, library: library not in PEOPLE.get((mechanism, cells), ()),
        note=f"Epsilon {EPSILON:g}, a report for every person, client and server together; the quickest of up to three runs. "
        "Extra memory is what the work adds to the peak of a process that has warmed up.",
    )
    about = (
        "The same work by Dither and by other libraries as their documentation shows it, each in a process of its own. Ratios "
        "compare costs per person, since a slow peer gets fewer people."
    )
    return Bench("mechanisms", "Frequency mechanisms beside other libraries", about, (study,), size)
