"""Frequency mechanisms against other libraries, in one run: CPU time and memory, as ratios.

    python -m benchmarks.mechanisms [--quick] [-o FILE]

Each measurement runs in a process of its own, compiles and warms up first, and counts CPU time (all threads). A peer may get fewer
people than we do; costs are then compared per person. Peers: multi-freq-ldpy and pure-ldp, installed by the extra `bench`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EPSILON = 1.0


def _values(n: int, cells: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, cells, n)


def ours(name: str, n: int, cells: int) -> tuple[float, float]:
    """Client and server CPU seconds of Dither, person by person, reports packed."""
    from dither.mechanisms import mechanism
    from dither.mechanisms.fleet.stream import RandomStream

    built, stream = mechanism(name, cells, EPSILON), RandomStream.from_system()
    built.estimate(built.support(built.randomise_many(_values(1000, cells), stream)), 1000)
    values = _values(n, cells)
    start = time.process_time()
    reports = built.randomise_many(values, stream)
    middle = time.process_time()
    built.estimate(built.support(reports), n)
    return middle - start, time.process_time() - middle


def ours_plain_numpy(name: str, n: int, cells: int) -> tuple[float, float]:
    """The same unary reports without Numba: 32-bit draws against thresholds, packed in blocks."""
    from dither.mechanisms import mechanism
    from dither.mechanisms.fleet.stream import RandomStream

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
    built.estimate(counts, n)
    return middle - start, time.process_time() - middle


def ours_counts(name: str, n: int, cells: int) -> tuple[float, float]:
    """Count-only simulation."""
    from dither.mechanisms import mechanism

    built, rng = mechanism(name, cells, EPSILON), np.random.default_rng(1)
    truth = np.bincount(_values(n, cells), minlength=cells)
    built.simulate(truth, rng)
    start = time.process_time()
    for _ in range(10):
        built.simulate(truth, rng)
    return (time.process_time() - start) / 10, 0.0


def multi_freq(name: str, n: int, cells: int) -> tuple[float, float]:
    """multi-freq-ldpy as its documentation shows: a client call a person, a list of reports, one aggregator call."""
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    calls: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "oue": (lambda v: UE_Client(v, cells, EPSILON, True), lambda r: UE_Aggregator_MI(r, EPSILON, True)),
        "grr": (lambda v: GRR_Client(v, cells, EPSILON), lambda r: GRR_Aggregator_MI(r, cells, EPSILON)),
        "olh": (lambda v: LH_Client(v, cells, EPSILON, True), lambda r: LH_Aggregator_MI(r, cells, EPSILON, True)),
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
        "oue": lambda: (UEClient(EPSILON, cells, True, shift), UEServer(EPSILON, cells, True, shift)),
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


def _best_of(
    runner: Callable[[str, int, int], tuple[float, float]], name: str, n: int, cells: int
) -> tuple[float, float]:
    """The quickest of up to three runs, for every library alike: the others on this machine only ever add time."""
    runs = [runner(name, n, cells)]
    while len(runs) < 3 and sum(map(sum, runs)) < 10:
        runs.append(runner(name, n, cells))
    return min(runs, key=sum)


def _child(library: str, name: str, n: int, cells: int, pipe: Any) -> None:
    import warnings

    warnings.simplefilter("ignore")
    try:
        # Imports and a first small run belong to the start-up, not to the work.
        RUNNERS[library](name, min(n, 200), cells)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        client, server = _best_of(RUNNERS[library], name, n, cells)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pipe.send({"client_seconds": client, "server_seconds": server, "peak_extra_mb": (after - before) / 1024})
    except ImportError as error:
        pipe.send({"error": f"not installed: {error.name}"})


def measure(library: str, name: str, n: int, cells: int) -> dict[str, Any]:
    """One measurement in a fresh process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(library, name, n, cells, sender))
    process.start()
    sender.close()  # so that a child that dies is noticed instead of waited for
    try:
        row = receiver.recv()
    except EOFError:
        row = {"error": "failed; its message stands above"}
    process.join()
    row |= {"library": library, "mechanism": name, "n": n, "cells": cells}
    if "error" not in row:
        row["microseconds_per_person"] = 1e6 * (row["client_seconds"] + row["server_seconds"]) / n
    return row


def cases(quick: bool) -> list[tuple[str, str, int, int]]:
    scale = 10 if quick else 1
    return [
        ("dither", "oue", 1_000_000 // scale, 256),
        ("dither, plain NumPy", "oue", 1_000_000 // scale, 256),
        ("multi-freq-ldpy", "oue", 1_000_000 // scale, 256),
        ("pure-ldp", "oue", 200_000 // scale, 256),
        ("dither, count-only", "oue", 1_000_000, 256),
        ("dither", "oue", 1_000_000 // scale, 1024),
        ("multi-freq-ldpy", "oue", 1_000_000 // scale, 1024),
        ("dither", "grr", 1_000_000 // scale, 1024),
        ("multi-freq-ldpy", "grr", 100_000 // scale, 1024),
        ("pure-ldp", "grr", 100_000 // scale, 1024),
        ("dither", "olh", 1_000_000 // scale, 1024),
        ("multi-freq-ldpy", "olh", 4_000 // scale, 1024),
        ("pure-ldp", "olh", 4_000 // scale, 1024),
    ]


def run(quick: bool = False, out: Path | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """All measurements with ratios to Dither's cost per person."""
    rows = [measure(*case) for case in cases(quick)]
    base = {(r["mechanism"], r["cells"]): r for r in rows if r["library"] == "dither"}
    for row in rows:
        if "error" not in row and row["library"] != "dither":
            mine = base[row["mechanism"], row["cells"]]
            row["times_dither"] = row["microseconds_per_person"] / mine["microseconds_per_person"]
            if mine["server_seconds"] and row["server_seconds"]:
                row["server_times_dither"] = (row["server_seconds"] / row["n"]) / (mine["server_seconds"] / mine["n"])
    result = {"benchmark": "mechanisms", "epsilon": EPSILON, "quick": quick, "rows": rows}
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "mechanisms.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def show(result: dict[str, Any]) -> None:
    titles = (("mechanism", 10), ("cells", 7), ("people", 11), ("us/person", 11), ("x dither", 10), ("server x", 10))
    print(f"{'library':22}" + "".join(f"{t:>{w}}" for t, w in titles) + f"{'extra MB':>10}")
    for r in result["rows"]:
        if "error" in r:
            print(f"{r['library']:22}{r['mechanism']:>10}{r['cells']:>7}  {r['error']}")
            continue
        ratio = f"{r['times_dither']:.1f}" if "times_dither" in r else ""
        server = f"{r['server_times_dither']:.0f}" if "server_times_dither" in r else ""
        print(
            f"{r['library']:22}{r['mechanism']:>10}{r['cells']:>7}{r['n']:>11,}{r['microseconds_per_person']:>11.4f}"
            f"{ratio:>10}{server:>10}{r['peak_extra_mb']:>10.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the people")
    parser.add_argument("-o", "--out", type=Path, help="folder for mechanisms.json")
    arguments = parser.parse_args()
    show(run(arguments.quick, arguments.out))


if __name__ == "__main__":
    main()
