"""How often the 95 % intervals hold the truth: generated populations with known joint distribution.

    python benchmarks/interval_coverage.py [--quick] [-o FOLDER]

For each setting several random networks are collected once each; the intervals of all single attributes, of pairs and of
triples are compared with the networks' exact marginals. `cells` counts every cell once, `frequency` weighs it by its true
frequency; `half` is what intervals of half the standard error would give. Where a method takes
attributes as independent the intervals of several attributes say that they assume so; `cautions` is their share, and they are
left out unless the population is independent.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from dither.datasets.generated import generate_network
from dither.evaluate.bootstrap import prepare_bootstrap
from dither.evaluate.redraw import redraw
from dither.protocols import start


@dataclass(frozen=True)
class Setting:
    """A kind of population and a collection on it."""

    name: str
    cardinalities: tuple[int, ...]
    participants: int
    epsilon: float
    strength: float = 1.5
    method: str = "mixture"


MIXED, BINARY, WIDE = (2, 3, 4, 5, 6, 3, 2, 4), (2,) * 8 + (3, 3), (4, 8, 10, 6, 12, 5, 8)
SETTINGS = (
    Setting("mixed", MIXED, 100_000, 2.0),
    Setting("mixed", MIXED, 1_000_000, 1.0),
    Setting("mixed", MIXED, 1_000_000, 4.0),
    Setting("mixed, weak", MIXED, 300_000, 2.0, 0.5),
    Setting("binary", BINARY, 100_000, 1.0),
    Setting("binary", BINARY, 500_000, 4.0),
    Setting("wide", WIDE, 1_000_000, 2.0),
    Setting("mixed", MIXED, 20_000, 1.0, 0.0, "independent"),
    Setting("mixed", MIXED, 500_000, 4.0, 0.0, "independent"),
)


def cover(setting: Setting, seed: int, replicates: int) -> tuple[dict[int, dict[str, tuple[float, float]]], float]:
    """Hits and cells for each number of attributes of one population collected once, and the share of cautions."""
    network = generate_network(setting.cardinalities, strength=setting.strength, seed=seed)
    names = network.schema.names
    machine = start(setting.method, network.schema, setting.epsilon, setting.participants, {}, seed)
    redraw(machine, network, np.random.default_rng([seed, 1]))
    prepared = prepare_bootstrap(machine, replicates=replicates, seed=seed)
    out: dict[int, dict[str, tuple[float, float]]] = {}
    cautions = np.zeros(2)
    for ways in (1, 2, 3):
        sums = {key: np.zeros(2) for key in ("cells", "frequency", "half")}
        for chosen in list(combinations(names, ways))[:60]:
            found, truth = prepared.interval(chosen), network.marginal(chosen)
            cautions += (bool(found.caution), 1)
            if found.caution and setting.strength > 0:
                continue
            inside = (found.low <= truth) & (truth <= found.high)
            half = np.abs(truth - found.frequencies) <= 1.96 * found.standard_errors / 2
            sums["cells"] += (inside.sum(), truth.size)
            sums["frequency"] += (float((inside * truth).sum()), 1.0)
            sums["half"] += (half.sum(), truth.size)
        out[ways] = {key: (float(a), float(b)) for key, (a, b) in sums.items()}
    return out, float(cautions[0] / cautions[1])


def measure(setting: Setting, seeds: int, replicates: int) -> dict[str, Any]:
    """Coverage over several populations."""
    begin = time.process_time()
    collected = [cover(setting, seed, replicates) for seed in range(seeds)]
    found = [hits for hits, _ in collected]
    coverage = {
        str(ways): {
            key: sum(f[ways][key][0] for f in found) / max(sum(f[ways][key][1] for f in found), 1)
            for key in ("cells", "frequency", "half")
        }
        for ways in (1, 2, 3)
    }
    shown = "  ".join(
        f"{w}-way {c['cells']:.3f} ({c['frequency']:.3f}, half {c['half']:.3f})" for w, c in coverage.items()
    )
    facts = {
        "population": setting.name,
        "method": setting.method,
        "participants": setting.participants,
        "epsilon": setting.epsilon,
        "strength": setting.strength,
        "cautions": round(sum(share for _, share in collected) / seeds, 3),
    }
    print(*facts.values(), shown, sep="  ", flush=True)
    return {
        **facts,
        "seeds": seeds,
        "replicates": replicates,
        "coverage": coverage,
        "seconds": time.process_time() - begin,
    }


def run(quick: bool = False, out: Path = Path("bench-out/interval_coverage"), data_dir: Path | None = None) -> None:
    """Measure the coverage and write it as JSON; the populations are generated, so no data folder is read."""
    settings = SETTINGS[::3] if quick else SETTINGS
    rows = [measure(setting, 2 if quick else 4, 10 if quick else 20) for setting in settings]
    out.mkdir(parents=True, exist_ok=True)
    (out / "coverage.json").write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench-out/interval_coverage"))
    given = parser.parse_args()
    run(given.quick, given.output)
