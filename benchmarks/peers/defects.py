"""Defects of other libraries, each with the smallest program that shows it.

    python -m benchmarks.peers.defects

Every function runs the library as installed and returns the observed and the expected result. A library that is not installed is
named and passed over.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.peers import child, environments
from dither.lab.harness import NotAvailable


@dataclass(frozen=True)
class Finding:
    """A quantity as a library gives it, and as it should be."""

    library: str
    what: str
    observed: float
    expected: float
    at_most: bool = False  # `expected` is an upper limit rather than the value

    def shown(self, tolerance: float = 0.05) -> bool:
        """Whether the defect is there: the two differ by more than chance could explain."""
        if self.at_most:
            return self.observed > self.expected * (1 + tolerance)
        return abs(self.observed - self.expected) > tolerance

    def __str__(self) -> str:
        limit = "at most " if self.at_most else ""
        return (
            f"{self.library}: {self.what}: {self.observed:.4g}, expected {limit}{self.expected:.4g}"
        )


def pure_ldp_rappor_never_clears() -> Finding:
    """`RAPPORClient._perturb` sets bits but has no branch that clears one, so a zero bit is a certain 'not this value'.

    Erlingsson, Pihur, Korolova (2014), step 2: a set bit stays set with probability 1 - f/2.
    """
    from pure_ldp.frequency_oracles.rappor import RAPPORClient

    f, n = 0.5, 20_000
    client = RAPPORClient(f, 2, [[lambda text: 0]], num_of_cohorts=1, index_mapper=lambda x: x)
    kept = np.mean([client.privatise(0)[0][0] for _ in range(n)])
    return Finding(
        _named("pure-ldp"),
        f"RAPPOR, f = {f}: share of set bits that stay set",
        float(kept),
        1 - f / 2,
    )


def pure_ldp_rappor_epsilon_ignores_hashes() -> Finding:
    """`convert_eps_to_f` does not know the number of hash functions, and rounds f to two places, down as often as up."""
    from pure_ldp.frequency_oracles.rappor import RAPPORClient

    client = RAPPORClient(0.5, 16, [], index_mapper=lambda x: x)
    spent = client.convert_f_to_eps(client.convert_eps_to_f(3.0), k=2)
    return Finding(
        _named("pure-ldp"),
        "RAPPOR, 2 hashes: epsilon of the f it gives for epsilon 3",
        spent,
        3.0,
        True,
    )


def multi_freq_rs_fd_epsilon() -> Finding:
    """RS+FD raises epsilon as if sampling an attribute amplified privacy, but two records may differ in every attribute.

    With d attributes the chance of reporting (0, .., 0) is p / prod(k) for the record (0, .., 0) and q / prod(k) for one that
    differs everywhere, whichever attribute was sampled, so the exact log ratio is ln(d (e^epsilon - 1) + 1).
    """
    from multi_freq_ldpy.mdim_freq_est.RSpFD_solution import RSpFD_GRR_Client

    epsilon, d, n = 1.0, 5, 100_000
    hits = [
        sum(
            all(v == 0 for v in RSpFD_GRR_Client([value] * d, [2] * d, d, epsilon))
            for _ in range(n)
        )
        for value in (0, 1)
    ]
    return Finding(
        _named("multi-freq-ldpy"),
        f"RS+FD, {d} binary attributes: log ratio for two records (exactly {rs_fd_exact(epsilon, d):.4f})",
        math.log(hits[0] / hits[1]),
        epsilon,
        True,
    )


def rs_fd_exact(epsilon: float, d: int) -> float:
    """What RS+FD[GRR] really spends on a whole record: the epsilon that it gives to the one attribute it samples."""
    return math.log(d * (math.exp(epsilon) - 1) + 1)


def multi_freq_estimates_shrink() -> Finding:
    """Every aggregator clips at zero and rescales; over many cells the clipped noise adds up, and true counts shrink.

    The raw estimate, which is unbiased, is not to be had.
    """
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    cells, n = 1000, 10_000
    estimate = UE_Aggregator_MI([UE_Client(0, cells, 1.0, True) for _ in range(n)], 1.0, True)
    what = f"OUE, {cells} cells, {n:,} people who all hold cell 0: its frequency"
    return Finding(_named("multi-freq-ldpy"), what, float(estimate[0]), 1.0)


def mbi_rounding_ties_siblings(build: bool = True) -> Finding:
    """The rounding sampler (the default, and smartnoise's only one) ranks rows in the same order for every child column.

    Two columns that share a parent then move together, though the model says they are independent given it.
    """
    seen = _elsewhere(
        "smartnoise", "benchmarks.peers.rounding_worker", {"rows": 20_000, "seed": 0}, build
    )
    what = f"rows of three independent fair bits: share with b = c (drawn row by row: {seen['sample']:.3f})"
    return Finding("mbi 1.1.0 in smartnoise-synth 1.0.8", what, seen["round"], 0.5)


def opendp_bits_in_another_order() -> Finding:
    """A value packed as the documentation of the client shows (`numpy.packbits`) is counted elsewhere by the server.

    `debias_randomized_response_bitvec` reads each byte from its lowest bit, `packbits` fills it from its highest.
    """
    dp = _opendp()
    f = 1e-9  # next to no noise
    client = dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=1), dp.discrete_distance(), f=f
    )
    report = client(np.packbits([1, 0, 0, 0, 0, 0, 0, 0]).tobytes())
    counted = np.argmax(dp.m.debias_randomized_response_bitvec([report], f))
    return Finding(
        _named("opendp"),
        "RAPPOR bits: cell that a holder of cell 0 is counted in",
        float(counted),
        0.0,
    )


def opendp_flips_half_as_often_as_documented() -> Finding:
    """`f` is documented as the 'per-bit flipping probability'; a bit is flipped with probability f/2, as in RAPPOR's paper.

    The code and its stated epsilon agree with each other; a reader who follows the sentence gets less noise than intended.
    """
    dp = _opendp()
    f = 0.5
    client = dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=1), dp.discrete_distance(), f=f
    )
    reports = b"".join(client(bytes(64)) for _ in range(40))
    flipped = np.unpackbits(np.frombuffer(reports, np.uint8)).mean()
    return Finding(_named("opendp"), f"share of bits flipped at f = {f}", float(flipped), f)


def _opendp() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


def diffprivlib_does_not_import() -> Finding:
    """`import diffprivlib` loads its decision trees, which need a name that scikit-learn 1.9 no longer has."""
    from sklearn import __version__

    name = _named("diffprivlib")
    try:
        import diffprivlib  # noqa: F401

        loaded = 1.0
    except ImportError:
        loaded = 0.0
    return Finding(
        name, f"imports beside scikit-learn {__version__} (it asks for 1.4 or later)", loaded, 1.0
    )


ELSEWHERE: tuple[Callable[..., Finding], ...] = (mbi_rounding_ties_siblings,)
DEFECTS: tuple[Callable[..., Finding], ...] = (
    pure_ldp_rappor_never_clears,
    pure_ldp_rappor_epsilon_ignores_hashes,
    multi_freq_rs_fd_epsilon,
    multi_freq_estimates_shrink,
    mbi_rounding_ties_siblings,
    opendp_bits_in_another_order,
    opendp_flips_half_as_often_as_documented,
    diffprivlib_does_not_import,
)


def look(defect: Callable[..., Finding], build: bool = True) -> Finding:
    """One finding; `NotAvailable` where the library is not installed. `build` makes an environment that is not there yet."""
    try:
        return defect(build) if defect in ELSEWHERE else defect()
    except ModuleNotFoundError as missing:
        raise NotAvailable(f"{defect.__name__}: no module {missing.name} here") from None


def measure(defect: str, build: bool = True) -> dict[str, Any]:
    """A finding by its function's name, as a row."""
    found = look({d.__name__: d for d in DEFECTS}[defect], build)
    return {
        "library": found.library, "what": found.what, "observed": found.observed, "expected": found.expected,
        "shown": "yes" if found.shown() else "no",
    }  # fmt: skip


def _named(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"no package {package}", name=package) from error


def _elsewhere(
    environment: str, module: str, request: dict[str, Any], build: bool
) -> dict[str, Any]:
    try:
        return child.run(module, request, environments.interpreter(environment, build))
    except child.MissingError as missing:
        raise NotAvailable(f"the environment for {environment} has no module {missing}") from None


def main() -> int:
    import warnings

    warnings.simplefilter("ignore")
    for defect in DEFECTS:
        try:
            found = look(defect)
        except NotAvailable as reason:
            print(f"not looked at: {reason}")
            continue
        print(f"{'' if found.shown() else 'NOT SEEN ANY MORE: '}{found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
