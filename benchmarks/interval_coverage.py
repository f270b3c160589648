"""How often the 95 % intervals hold the truth: generated populations with known joint distribution.

For each setting several random networks are collected once each; the intervals of all single attributes, of pairs and of
triples are compared with the networks' exact marginals. Where a method takes attributes as independent the intervals of several
attributes say that they assume so: `cautions` is their share, and they are left out unless the population is independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bench, Size, Study
from dither.datasets.generated import generate_network
from dither.protocols import start
from dither.uncertainty.replicates import prepare_bootstrap, redraw

WAYS = (1, 2, 3)
SETS = 60  # of pairs, and of triples


@dataclass(frozen=True)
class Setting:
    """A kind of population and a collection on it."""

    name: str
    cardinalities: tuple[int, ...]
    participants: int
    epsilon: float
    strength: float = 1.5
    method: str = "mixture"

    @property
    def key(self) -> str:
        return f"{self.name}, {self.method}, {self.participants:,}, epsilon {self.epsilon:g}"


MIXED, BINARY, WIDE = (2, 3, 4, 5, 6, 3, 2, 4), (2,) * 8 + (3, 3), (4, 8, 10, 6, 12, 5, 8)
SETTINGS = (
    Setting("mixed", MIXED, 100_000, 2.0),
    Setting("mixed", MIXED, 1_000_000, 1.0),
    Setting("mixed", MIXED, 1_000_000, 4.0),
    Setting("mixed, weak", MIXED, 300_000, 2.0, 0.5),
    Setting("binary", BINARY, 100_000, 1.0),
    Setting("binary", BINARY, 500_000, 4.0),
    Setting("wide", WIDE, 1_000_000, 2.0),
    Setting("mixed, independent attributes", MIXED, 20_000, 1.0, 0.0, "independent"),
    Setting("mixed, independent attributes", MIXED, 500_000, 4.0, 0.0, "independent"),
)
SMOKE = (
    Setting("small", (2, 3, 4), 50_000, 4.0),
    Setting("small, independent attributes", (2, 3, 4), 20_000, 1.0, 0.0, "independent"),
)
BY_KEY = {setting.key: setting for setting in SETTINGS + SMOKE}


def cover(setting: Setting, seed: int, replicates: int) -> tuple[dict[int, dict[str, np.ndarray]], float]:
    """Hits and cells for each number of attributes of one population collected once, and the share of cautions."""
    network = generate_network(setting.cardinalities, strength=setting.strength, seed=seed)
    machine = start(setting.method, network.schema, setting.epsilon, setting.participants, {}, seed)
    redraw(machine, network, np.random.default_rng([seed, 1]))
    prepared = prepare_bootstrap(machine, replicates=replicates, seed=seed)
    out: dict[int, dict[str, np.ndarray]] = {}
    cautions = np.zeros(2)
    for ways in WAYS:
        sums = {key: np.zeros(2) for key in ("cells", "frequency", "half")}
        for chosen in list(combinations(network.schema.names, ways))[:SETS]:
            found, truth = prepared.interval(chosen), network.marginal(chosen)
            cautions += (bool(found.caution), 1)
            if found.caution and setting.strength > 0:
                continue
            inside = (found.low <= truth) & (truth <= found.high)
            half = np.abs(truth - found.frequencies) <= 1.96 * found.standard_errors / 2
            sums["cells"] += (inside.sum(), truth.size)
            sums["frequency"] += (float((inside * truth).sum()), 1.0)
            sums["half"] += (half.sum(), truth.size)
        out[ways] = sums
    return out, float(cautions[0] / cautions[1])


def coverage(setting: str, populations: int, replicates: int) -> dict[str, Any]:
    """Hits over cells of all populations together, for one, two and three attributes."""
    given = BY_KEY[setting]
    collected = [cover(given, seed, replicates) for seed in range(populations)]
    row: dict[str, Any] = {
        "setting": None,  # told by the labels that follow
        "population": given.name,
        "method": given.method,
        "participants": given.participants,
        "epsilon": given.epsilon,
    }
    for key, words in (("cells", "coverage"), ("frequency", "by_frequency"), ("half", "half_the_error")):
        for ways in WAYS:
            hits, cells = sum(found[ways][key] for found, _ in collected)
            row[f"{words}_{ways}way"] = hits / cells if cells else None  # None: every interval assumes independence
    return row | {"cautions": float(np.mean([share for _, share in collected]))}


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The study of one size; populations are generated, so no folder is read."""
    settings = {"full": SETTINGS, "quick": SETTINGS[::3], "smoke": SMOKE}[size]
    populations, replicates = {"full": (4, 20), "quick": (2, 10), "smoke": (2, 6)}[size]
    study = Study(
        name="coverage",
        title="Share of cells whose 95 % interval holds the truth",
        axes={"setting": tuple(setting.key for setting in settings)},
        measure=partial(coverage, populations=populations, replicates=replicates),
        labels=("participants", "epsilon"),
        note=f"{populations} populations each, {replicates} replicates. Coverage counts every cell once, by frequency weighs it by "
        "its true frequency; half the error is what intervals of half the standard error would give. Networks have strong "
        "interactions (strength 1.5; weak: 0.5). Cautions is the share of intervals that say they assume independence; they are "
        "left out unless the population is independent.",
    )
    about = "Random networks with known joint distribution, collected once each; bootstrap intervals against exact marginals."
    return Bench("interval_coverage", "Coverage of the 95 % intervals", about, (study,), size)
