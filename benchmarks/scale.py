"""How the house method's cost grows with the number of attributes: 15, 50, 100 and 200 attributes of 10 values.

    python -m benchmarks.scale [--quick] [-o FOLDER]

Tallies are drawn from the exact pair marginals of a generated network, so no population has to be held; what is timed is
pooling, fitting and sampling. `seconds_per_million_pair_cells` divides the fit by its steps, starts and pair cells. One more
line (not in --quick) puts 10 million simulated participants of 100 attributes through a whole campaign, row by row.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from dither.datasets.generated import generate_network
from dither.estimate import answered
from dither.estimate.mixture_fit import FitOptions, fit_mixture
from dither.estimate.pair_targets import pair_targets
from dither.protocols import start
from dither.reports import Plan, question
from dither.simulate import simulate
from dither.tally import CountTally, zero

VALUES, EPSILON = 10, 4.0


def drawn(attributes: int, participants: int, rng: np.random.Generator) -> tuple[Any, CountTally]:
    """The tally of a campaign that asks all pairs equally often; neighbours depend on each other, the rest is independent."""
    network = generate_network([VALUES] * attributes, parents=1, strength=2.0, seed=3)
    names = network.schema.names
    one = [network.marginal([name]) for name in names]
    pairs = list(combinations(range(attributes), 2))
    questions = tuple(question(network.schema, [names[i], names[j]], EPSILON) for i, j in pairs)
    tally = zero(Plan(0, questions, (1.0 / len(pairs),) * len(pairs)))
    assert isinstance(tally, CountTally)
    people = participants // len(pairs)
    for number, (i, j) in enumerate(pairs):
        near = network.marginal([names[i], names[j]]) if j == i + 1 else np.outer(one[i], one[j])
        truth = rng.multinomial(people, near.ravel() / near.sum())
        tally.add_counts(number, questions[number].mechanism.simulate(truth, rng), people)
    return network.schema, tally


def measure(attributes: int, participants: int) -> dict[str, float]:
    """CPU seconds of pooling and fitting, and the fit's cost a pair cell."""
    rng = np.random.default_rng(0)
    schema, tally = drawn(attributes, participants, rng)
    begin = time.process_time()
    targets = pair_targets(schema, answered([tally]))
    pooled = time.process_time()
    # A fixed number of steps makes the sizes comparable.
    fitted = fit_mixture(targets, rng, FitOptions(components=60, iterations=20, pilot_iterations=20))
    done = time.process_time()
    descents = fitted.diagnostics["starts"] + FitOptions().twins
    work = 20 * descents + 20
    return {
        "attributes": attributes,
        "pair_cells": targets.cells,
        "pool_s": pooled - begin,
        "fit_s": done - pooled,
        "starts": fitted.diagnostics["starts"],
        "seconds_per_million_pair_cells": (done - pooled) / work / (targets.cells / 1e6),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def campaign(attributes: int, participants: int) -> dict[str, float]:
    """A whole campaign over a generated population, row by row."""
    network = generate_network([VALUES] * attributes, strength=2.0, seed=3)
    rng = np.random.default_rng(0)
    codes = network.sample_codes(participants, rng)
    machine = start("mixture", network.schema, EPSILON, participants)
    begin = time.process_time()
    simulate(machine, codes, rng)
    asked = time.process_time()
    model = machine.model()
    fitted = time.process_time()
    model.sample(1_000_000, rng)
    return {
        "attributes": attributes,
        "participants": participants,
        "simulate_s": asked - begin,
        "fit_s": fitted - asked,
        "sample_million_rows_s": time.process_time() - fitted,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run(quick: bool = False, out: Path | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Measure; with `out` write results.json there. No table is read, so `data_dir` is not used."""
    sizes = (15, 30, 50) if quick else (15, 50, 100, 200)
    results: dict[str, Any] = {"lines": [measure(d, 1_000_000 if quick else 10_000_000) for d in sizes]}
    results["campaign"] = campaign(30, 100_000) if quick else campaign(100, 10_000_000)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench-out/scale"))
    given = parser.parse_args()
    print(json.dumps(run(given.quick, given.output), indent=1))
