"""The process that runs pure-ldp's prefix extending method; see `benchmarks.discover`."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from benchmarks.peers.child import serve
from benchmarks.peers.peak import Peak

# Its default oracle hashes every cell for every report, which is too slow for any of our sizes.
# Its fast oracle draws one of so many hash functions.
HASHES = 500
# Of steps of 2, 4 and 8 bits, steps of 2 gave it the largest F1 at epsilon 1 to 4.
START, FRAGMENT = 6, 2


def work(counts: list[int], bits: int, top: int, epsilon: float, seed: int) -> dict[str, Any]:
    """The frequent codes among people, `counts[code]` of them with each code."""
    from pure_ldp.frequency_oracles.local_hashing import FastLHClient, FastLHServer
    from pure_ldp.heavy_hitters.prefix_extending import PEMClient, PEMServer

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (it draws from the global state)
    peak, begin = Peak(), time.process_time()
    oracle = {"k": HASHES, "use_olh": True}
    shape = {"start_length": START, "max_string_length": bits, "fragment_length": FRAGMENT}
    client = PEMClient(epsilon, fo_client=FastLHClient(epsilon, 2, **oracle), **shape)
    server = PEMServer(epsilon, fo_server=FastLHServer(epsilon, 2, **oracle), **shape)
    people = 0
    for code, count in enumerate(counts):
        text = f"{code:0{bits}b}"
        people += count
        for _ in range(count):
            server.aggregate(client.privatise(text))
    found, numbers = server.find_heavy_hitters(k=top)
    return {
        "codes": [int(text, 2) for text in found],
        "shares": [float(number) / people for number in numbers],
        "cpu_s": time.process_time() - begin,
        "peak_extra_mb": peak.extra_mb(),
    }


if __name__ == "__main__":
    serve(work)
