"""Draws rows from a hand-made mbi model in smartnoise's environment; see `defects.mbi_rounding_ties_siblings`."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers.child import serve


def work(rows: int, seed: int) -> dict[str, Any]:
    """Three fair bits that the model says are independent: how often the second equals the third, for each sampler."""
    import mbi

    domain = mbi.Domain(("a", "b", "c"), (2, 2, 2))
    potentials = mbi.CliqueVector.zeros(domain, [("a", "b"), ("a", "c")])
    marginals = mbi.marginal_oracles.message_passing_stable(potentials, float(rows))
    model = mbi.MarkovRandomField(potentials=potentials, marginals=marginals, total=rows)
    np.random.seed(seed)  # noqa: NPY002  (it draws from the global state)
    result = {}
    for sampler in ("round", "sample"):
        data = model.synthetic_data(rows=rows, method=sampler).df
        result[sampler] = float((data["b"] == data["c"]).mean())
    return result


if __name__ == "__main__":
    serve(work)
