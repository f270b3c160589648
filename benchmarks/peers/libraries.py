"""One frequency oracle of each library as its documentation shows it, behind one small interface.

Only the process that measures imports this module, and each library only when asked for. No tuning either way: Dither's
`kernels.randomise` simulates many people in one call, the others have one call per person, and so has `dither, one by one`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

OWN, INVERSION = "its own", "none; inverted here"


@dataclass(frozen=True)
class Oracle:
    """What a library offers for one mechanism: people's values become reports, reports become frequencies."""

    client: Callable[[np.ndarray], Any]
    server: Callable[[Any, int], np.ndarray]  # frequencies, as the library gives them
    support: (
        Callable[[Any], np.ndarray] | None
    )  # counts to invert, where the server gives no raw estimate
    server_is: str = OWN


def textbook(mechanism: str, cells: int, epsilon: float) -> tuple[float, float]:
    """p and q of a mechanism (Wang et al., USENIX Security 2017; Ye and Barg, 2018, for subsets)."""
    e = math.exp(epsilon)
    if mechanism == "grr":
        return e / (e + cells - 1), 1 / (e + cells - 1)
    if mechanism == "sue":
        half = math.exp(epsilon / 2)
        return half / (half + 1), 1 / (half + 1)
    if mechanism == "oue":
        return 0.5, 1 / (e + 1)
    if mechanism == "olh":
        g = round(e) + 1
        return e / (e + g - 1), 1 / g
    if mechanism == "subset":
        w = max(1, round(cells / (e + 1)))
        p = w * e / (w * e + cells - w)
        return p, (p * (w - 1) + (1 - p) * w) / (cells - 1)
    raise ValueError(mechanism)


def inverted(counts: np.ndarray, n: int, p: float, q: float) -> np.ndarray:
    """Raw unbiased frequencies."""
    return (np.asarray(counts, dtype=np.float64) / n - q) / (p - q)


def dither(name: str, cells: int, epsilon: float) -> Oracle:
    from dither.mechanisms import kernels, mechanism
    from dither.randomness import RandomStream

    built, stream = mechanism(name, cells, epsilon), RandomStream.from_system()
    return Oracle(
        lambda values: kernels.randomise(built, values, stream),
        lambda reports, n: kernels.estimate(built, kernels.support(built, reports), n).frequencies,
        None,
    )


def dither_one_by_one(name: str, cells: int, epsilon: float) -> Oracle:
    """The device kit's path: standard library, one call per person, the system's randomness."""
    import secrets

    from dither.mechanisms import PackedReports, kernels, mechanism

    built = mechanism(name, cells, epsilon)

    def server(reports: list[bytes], n: int) -> np.ndarray:
        rows = np.frombuffer(b"".join(reports), np.uint8).reshape(n, built.report_bytes)
        return kernels.estimate(built, kernels.support(built, PackedReports(rows)), n).frequencies

    return Oracle(
        lambda values: [built.randomise(v, secrets.token_bytes) for v in values.tolist()],
        server,
        None,
    )


def multi_freq(name: str, cells: int, epsilon: float) -> Oracle:
    """Its aggregators clip at zero and rescale to one; it does not return raw estimates, so the reports are also inverted here."""
    import xxhash
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Aggregator_MI, SS_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    g = round(math.exp(epsilon)) + 1

    def hashed(reports: Any) -> np.ndarray:
        agree = [
            [xxhash.xxh32(str(v), seed=s).intdigest() % g == y for v in range(cells)]
            for y, s in reports
        ]
        return np.sum(agree, axis=0)

    def counted(reports: Any) -> np.ndarray:
        return np.bincount(np.ravel(reports), minlength=cells)

    client, server, support = {
        "grr": (
            lambda v: GRR_Client(v, cells, epsilon),
            lambda r, n: GRR_Aggregator_MI(r, cells, epsilon),
            counted,
        ),
        "sue": (
            lambda v: UE_Client(v, cells, epsilon, False),
            lambda r, n: UE_Aggregator_MI(r, epsilon, False),
            sum,
        ),
        "oue": (
            lambda v: UE_Client(v, cells, epsilon, True),
            lambda r, n: UE_Aggregator_MI(r, epsilon, True),
            sum,
        ),
        "olh": (
            lambda v: LH_Client(v, cells, epsilon),
            lambda r, n: LH_Aggregator_MI(r, cells, epsilon),
            hashed,
        ),
        "subset": (
            lambda v: SS_Client(v, cells, epsilon),
            lambda r, n: SS_Aggregator_MI(r, cells, epsilon),
            counted,
        ),
    }[name]
    return Oracle(lambda values: [client(v) for v in values.tolist()], server, support)


def pure_ldp(name: str, cells: int, epsilon: float) -> Oracle:
    from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
    from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    def same(x: int) -> int:  # cells are numbered from zero here, from one there
        return x

    made: dict[str, Callable[[type], Any]] = {
        "grr": lambda c: c(epsilon, cells, index_mapper=same),
        "sue": lambda c: c(epsilon, cells, use_oue=False, index_mapper=same),
        "oue": lambda c: c(epsilon, cells, use_oue=True, index_mapper=same),
        "olh": lambda c: c(epsilon, cells, use_olh=True, index_mapper=same),
    }
    pairs = {"grr": (DEClient, DEServer), "sue": (UEClient, UEServer), "oue": (UEClient, UEServer)}
    pairs["olh"] = (LHClient, LHServer)
    client = made[name](pairs[name][0])

    def server(reports: Any, n: int) -> np.ndarray:
        collector = made[name](pairs[name][1])
        for report in reports:
            collector.aggregate(report)
        return np.asarray(collector.estimate_all(range(cells), suppress_warnings=True)) / n

    return Oracle(lambda values: [client.privatise(v) for v in values.tolist()], server, None)


def opendp(name: str, cells: int, epsilon: float) -> Oracle:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    p, q = textbook(name, cells, epsilon)
    if name == "grr":
        respond = dp.m.make_randomized_response(list(range(cells)), p, T=int)
        return Oracle(
            lambda values: [respond(v) for v in values.tolist()],
            lambda reports, n: inverted(np.bincount(reports, minlength=cells), n, p, q),
            None,
            INVERSION,
        )
    f = 2 * q
    flip = dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=1), dp.discrete_distance(), f=f
    )
    # Its server reads the lowest bit first, unlike its documentation's example: see `defects.opendp_bits_in_another_order`.
    one_hot = [
        np.packbits(np.arange(cells) == v, bitorder="little").tobytes() for v in range(cells)
    ]

    def server(reports: Any, n: int) -> np.ndarray:
        return np.asarray(dp.m.debias_randomized_response_bitvec(reports, f))[:cells] / n

    return Oracle(lambda values: [flip(one_hot[v]) for v in values.tolist()], server, None)


def diffprivlib(name: str, cells: int, epsilon: float) -> Oracle:
    """`Binary` for two cells; otherwise `ExponentialCategorical` with equal distances, which is the same law as GRR."""
    from diffprivlib.mechanisms import Binary, ExponentialCategorical

    p, q = textbook(name, cells, epsilon)
    labels = [str(v) for v in range(cells)]
    built = (
        Binary(epsilon=epsilon, value0="0", value1="1")
        if cells == 2
        else ExponentialCategorical(
            epsilon=epsilon,
            utility_list=[(labels[a], labels[b], 1) for a in range(cells) for b in range(a)],
        )
    )
    return Oracle(
        lambda values: [built.randomise(labels[v]) for v in values.tolist()],
        lambda reports, n: inverted(
            np.bincount([int(r) for r in reports], minlength=cells), n, p, q
        ),
        None,
        INVERSION,
    )


ORACLES: dict[str, Callable[[str, int, float], Oracle]] = {
    "dither": dither,
    "dither, one by one": dither_one_by_one,
    "multi-freq-ldpy": multi_freq,
    "pure-ldp": pure_ldp,
    "OpenDP": opendp,
    "diffprivlib": diffprivlib,
}
