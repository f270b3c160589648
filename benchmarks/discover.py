"""Frequent values that no list names: Dither, pure-ldp's PEM, and an oracle that has the list.

All methods see the same people, whose values follow a Zipf law over 10,000 or 1,000,000 possible
strings. PEM is given 14-bit codes of them, the form that its oracle can handle; Dither is measured
on the same codes and on words of six letters.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import Any

import numpy as np

import dither
from benchmarks.peers import child, environments
from benchmarks.peers.peak import Peak
from dither.lab.harness import Bench, NotAvailable, Size, Study
from dither.mechanisms import LocalHash, kernels, mechanism
from dither.types import Counts, Floats

LETTERS = "abcdefghijklmnopqrstuvwxyz"
EXPONENT = 1.5
TOPS = (20, 50)
# Prime to all powers of 2 and of 26: neighbouring ranks share no prefix.
SCATTER = 0x9E3779B1
METHODS = ("dither, words", "dither, bits", "pure-ldp PEM", "fixed list")


@lru_cache(maxsize=2)
def law_of(strings: int) -> Floats:
    """The chance of the string of each rank."""
    weights = np.arange(1, strings + 1) ** -EXPONENT
    return np.asarray(weights / weights.sum(), dtype=np.float64)


@lru_cache(maxsize=4)
def people_of(strings: int, people: int, seed: int) -> Counts:
    """How many people hold the string of each rank."""
    return np.random.default_rng([seed, strings]).multinomial(people, law_of(strings))


def bits_of(strings: int) -> int:
    """Bits that number all strings."""
    return (strings - 1).bit_length()


def code(rank: int, strings: int) -> int:
    """A number of the rank's string, with all numbers of so many bits in use."""
    return rank * SCATTER % (1 << bits_of(strings))


def word(rank: int) -> str:
    """Six letters for each rank."""
    number = rank * SCATTER % len(LETTERS) ** 6
    letters = []
    for _ in range(6):
        number, place = divmod(number, len(LETTERS))
        letters.append(LETTERS[place])
    return "".join(letters)


def measure(strings: int, people: int, epsilon: float, method: str, seed: int) -> dict[str, Any]:
    """F1 of the top, errors of the shares, coverage, false discoveries and costs of one run."""
    counts = people_of(strings, people, seed)
    run = {
        "dither, words": partial(_ours, bits=False),
        "dither, bits": partial(_ours, bits=True),
        "pure-ldp PEM": _pem,
        "fixed list": _fixed_list,
    }[method]
    found = run(counts, epsilon, seed)
    row = _scores(found["ranks"], found["shares"], counts)
    if "low" in found:
        law = law_of(strings)
        truth = np.array([0.0 if rank is None else law[rank] for rank in found["ranks"]])
        held = (found["low"] <= truth) & (truth <= found["high"])
        row |= {"coverage": float(held.mean())} if len(held) else {}
    return row | {"cpu_s": found["cpu_s"], "peak_extra_mb": found["peak_extra_mb"]}


def _share(rank: int | None, counts: Counts) -> float:
    return 0.0 if rank is None else float(counts[rank] / counts.sum())


def _scores(ranks: list[int | None], shares: list[float], counts: Counts) -> dict[str, Any]:
    """Found ranks are in order of their estimates; None is a string that no rank has."""
    order = np.argsort(-counts, kind="stable")
    row: dict[str, Any] = {"found": float(len(ranks))}
    for top in TOPS:
        hits = len(set(ranks[:top]) & set(order[:top].tolist()))
        row[f"f1_top_{top}"] = 2 * hits / (min(len(ranks), top) + top)
    false = sum(rank is None or not counts[rank] for rank in ranks)
    errors = [abs(share - _share(rank, counts)) for rank, share in zip(ranks, shares, strict=True)]
    row["false"] = float(false)
    row["runs_with_false"] = float(false > 0)
    if errors:
        row["error_of_shares"] = float(np.mean(errors))
    return row


def _ours(counts: Counts, epsilon: float, seed: int, *, bits: bool) -> dict[str, Any]:
    strings = len(counts)
    ranks = np.flatnonzero(counts)
    width = bits_of(strings)
    texts = [f"{code(int(r), strings):0{width}b}" if bits else word(int(r)) for r in ranks]
    rank_of = dict(zip(texts, ranks.tolist(), strict=True))
    values = np.repeat(np.array(texts, dtype=object), counts[ranks])
    peak, begin = Peak(), time.process_time()
    release = dither.discover(
        values,
        epsilon=epsilon,
        top=max(TOPS),
        max_bytes=width if bits else 6,
        alphabet="01" if bits else LETTERS,
        seed=seed,
    )
    rows = sorted(release.table("value").rows[:-2], key=lambda row: -row.estimate)
    return {
        "ranks": [rank_of.get(str(row.values[0])) for row in rows],
        "shares": [row.estimate for row in rows],
        "low": np.array([row.low for row in rows]),
        "high": np.array([row.high for row in rows]),
        "cpu_s": time.process_time() - begin,
        "peak_extra_mb": peak.extra_mb(),
    }


def _fixed_list(counts: Counts, epsilon: float, seed: int) -> dict[str, Any]:
    """All people are asked about the whole list at once: what knowing it is worth."""
    if len(counts) > LocalHash.max_cells:
        raise NotAvailable(f"no oracle has {len(counts):,} cells")
    peak, begin = Peak(), time.process_time()
    asked = mechanism("best", len(counts), epsilon)
    support = kernels.simulate(asked, counts, np.random.default_rng([seed, 1]))
    shares = kernels.estimate(asked, support, int(counts.sum())).frequencies
    best = np.argsort(-shares)[: max(TOPS)]
    return {
        "ranks": best.tolist(),
        "shares": shares[best].tolist(),
        "cpu_s": time.process_time() - begin,
        "peak_extra_mb": peak.extra_mb(),
    }


def _pem(counts: Counts, epsilon: float, seed: int) -> dict[str, Any]:
    strings, width = len(counts), bits_of(len(counts))
    if width > 14:
        raise NotAvailable(f"pure-ldp's oracle would hash {1 << width:,} cells 500 times in Python")
    by_code = np.zeros(1 << width, np.int64)
    rank_of = {code(rank, strings): rank for rank in range(strings)}
    for number, rank in rank_of.items():
        by_code[number] = counts[rank]
    request = {"counts": by_code.tolist(), "bits": width, "top": max(TOPS)}
    request |= {"epsilon": epsilon, "seed": seed}
    try:
        found = child.run(
            "benchmarks.peers.pem_worker", request, environments.interpreter("pure-ldp")
        )
    except child.MissingError as missing:
        raise NotAvailable(f"pure-ldp cannot be measured: no module {missing}") from None
    except child.ChildFailedError as failure:
        raise NotAvailable(f"pure-ldp's PEM: {failure}") from None
    order = np.argsort(-np.array(found["shares"]), kind="stable")
    found["ranks"] = [rank_of.get(found["codes"][i]) for i in order]
    found["shares"] = [found["shares"][i] for i in order]
    return found


def bench(size: Size = "full", data_dir: object = None) -> Bench:
    """The study of one size."""
    study = Study(
        name="zipf",
        title="Frequent values of a Zipf law",
        axes={
            "strings": (10_000, 1_000_000) if size == "full" else (10_000,),
            "people": {"full": (100_000, 1_000_000), "quick": (100_000,), "smoke": (20_000,)}[size],
            "epsilon": {"full": (1.0, 2.0, 4.0), "quick": (1.0, 2.0, 4.0), "smoke": (4.0,)}[size],
            "method": METHODS if size == "full" else tuple(m for m in METHODS if "PEM" not in m),
            "seed": tuple(range({"full": 5, "quick": 3, "smoke": 1}[size])),
        },
        measure=measure,
        labels=("strings", "people", "epsilon"),
        skip=_left_out,
        note="`f1_top_20` compares the first 20 values found with the 20 most frequent; a method that "
        "finds fewer is judged by those. `error_of_shares` is the mean distance of the shares of "
        "the values found from those among the people asked, `coverage` that of the shares of the law "
        "which they were drawn from by 95 % intervals, `false` the number of values found that no one holds.",
    )
    about = (
        "Values follow a Zipf law with exponent 1.5. PEM takes the best 50 of every round, without a "
        "threshold, by its fast local hashing with 500 hash functions."
    )
    return Bench("discover", "Values that no schema lists", about, (study,), size)


def _left_out(strings: int, people: int, method: str, seed: int, **_: object) -> bool:
    """PEM draws every report in Python, so it has fewer collections."""
    slow = method == "pure-ldp PEM" and (people > 100_000 or seed > 2)
    listed = method in {"fixed list", "pure-ldp PEM"} and strings > LocalHash.max_cells
    return slow or listed or (people > 100_000 and seed > 1)
