"""One point of a comparison: a method on the rows of a table at one epsilon, judged by the rows that come out.

Runs in a process of its own, so that memory is its own and a method that fails harms nothing else.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dither.errors import DitherError, ParameterError
from dither.evaluation.downstream import train_and_test
from dither.evaluation.metrics import attribute_sets, evaluate_codes, marginal
from dither.lab.comparison.peers import Draw, Drawn, find_peer
from dither.lab.harness.apart import Peak
from dither.methods import MethodRun, start
from dither.release.intervals import Bootstrap
from dither.release.replicates import prepare_bootstrap
from dither.schema import Schema, schema_from_json
from dither.simulate import simulate
from dither.types import AnyArray, Codes, JsonObject

REDRAWN = "real rows, drawn anew"  # what so many rows of the truth itself would give
PRODUCT = "exact single columns, no dependence"
BASELINES = (REDRAWN, PRODUCT)
LOCAL, OPEN = "local", "none"
WAYS, MAX_SETS = (1, 2, 3), 200
COVERED_SETS, MIN_SHARE = (
    60,
    0.01,
)  # pairs whose intervals are looked at, and the share from which a cell counts
TRAINED_ROWS = TESTED_ROWS = 10_000
FILE = "rows.npz"


@dataclass(frozen=True)
class Task:
    """What is compared, on disk for the processes that measure: people, rows nobody is asked about, schema and settings."""

    schema: Schema
    people: Codes
    test: Codes
    target: str | None
    population: int | None = None
    replicates: int = 0

    def save(self, folder: Path) -> None:
        """Into a folder that only this user can read."""
        about = {
            "target": self.target,
            "population": self.population,
            "replicates": self.replicates,
        }
        np.savez(folder / FILE, people=self.people, test=self.test)
        (folder / "task.json").write_text(
            json.dumps({"schema": self.schema.to_json(), **about}), encoding="utf-8"
        )

    def participants(self, seed: int) -> Codes:
        """Everybody who is asked: the rows themselves, or a population drawn from them with replacement."""
        if self.population is None:
            return self.people
        drawn = np.random.default_rng([seed, 0x706F70]).integers(
            0, len(self.people), self.population
        )
        return np.asfortranarray(self.people[drawn])


def _load_task(folder: Path) -> Task:
    """The inverse of `Task.save`."""
    about = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    schema = schema_from_json(about.pop("schema"))
    with np.load(folder / FILE) as arrays:
        return Task(schema, arrays["people"], arrays["test"], **about)


def measure_saved(folder: str, method: str, epsilon: float, seed: int) -> JsonObject:
    """`measure` of a saved task, for a process of its own; what cannot be measured comes back as {"reason": ...}."""
    try:
        return measure(_load_task(Path(folder)), method, epsilon, seed)
    except MemoryError:
        return {"reason": "there is not enough memory"}
    except DitherError as error:
        return {"reason": " ".join(str(error).split())}


def measure(task: Task, method: str, epsilon: float, seed: int) -> JsonObject:
    """Distances of one, two and three attributes, the worst pair, coverage, accuracy, CPU seconds and megabytes.

    Everything is judged by as many synthetic rows as there are participants, against the participants' own records; accuracy is
    that of a classifier trained on the synthetic rows, on rows of the table that nobody was asked about.
    """
    people = task.participants(seed)
    peak, begun = Peak(), time.process_time()
    rows, trust, maker = _made(task, method, people, epsilon, seed)
    spent, held = time.process_time() - begun, peak.extra()
    machine = maker if isinstance(maker, MethodRun) else None
    if isinstance(maker, Drawn):  # it worked elsewhere: what counts is what was spent there
        spent, held = maker.cpu_seconds, maker.peak_megabytes
    schema = task.schema
    ways = [k for k in WAYS if k <= len(schema)]
    found = evaluate_codes(people, rows, schema, ways, MAX_SETS, np.random.default_rng(0))
    out: JsonObject = {"trust": trust, **{f"tvd_{k}": found[k].tvd for k in ways}}
    if 2 in found:
        out |= {"worst_pair": found[2].worst_tvd, "worst_names": list(found[2].worst)}
    if machine is not None and task.replicates:
        out |= _coverage(task, machine, people, seed)
    if task.target is not None and len(task.test):
        test = task.test[:TESTED_ROWS]
        out["accuracy"] = train_and_test(
            schema, rows, test, task.target, "forest", seed=seed, rows=TRAINED_ROWS
        )
    if method not in BASELINES:
        out |= {"cpu_seconds": spent, "peak_megabytes": held}
    return out


def _made(
    task: Task, method: str, people: Codes, epsilon: float, seed: int
) -> tuple[Codes, str, MethodRun | Draw | None]:
    """Synthetic rows, what epsilon promises, and the finished campaign or the peer they come from."""
    rng = np.random.default_rng([seed, 1])
    if method == REDRAWN:
        return people[rng.integers(0, len(people), len(people))], OPEN, None
    if method == PRODUCT:
        return (
            np.stack([rng.permutation(people[:, i]) for i in range(people.shape[1])], axis=1),
            OPEN,
            None,
        )
    peer = find_peer(method)
    if peer is not None:
        domain = dict(zip(task.schema.names, task.schema.cardinalities, strict=True))
        draw = peer.fit(people, domain, epsilon, seed)
        return (
            _checked(
                np.asarray(draw(len(people))), people.shape, task.schema.cardinalities, method
            ),
            peer.trust,
            draw,
        )
    machine = start(method, task.schema, epsilon, len(people), seed=seed)
    simulate(machine, people, rng)
    return machine.model().sample(len(people), rng), LOCAL, machine


def _checked(
    rows: AnyArray, shape: tuple[int, ...], cardinalities: Sequence[int], method: str
) -> Codes:
    """Rows that are as many and of the kind asked for; a peer's mistake is a finding about it, not a figure."""
    sizes = np.asarray(cardinalities)
    if (
        rows.shape != shape
        or rows.dtype.kind not in "iu"
        or rows.min(initial=0) < 0
        or (rows >= sizes).any()
    ):
        raise ParameterError(
            f"{method} gave something else than {shape[0]:,} rows of codes", where="methods"
        )
    return rows.astype(np.int32, copy=False)


def _coverage(task: Task, machine: MethodRun, people: Codes, seed: int) -> JsonObject:
    """The share of 95 % intervals that hold the participants' own share, over cells of one and two attributes above 1 %."""
    try:
        intervals = prepare_bootstrap(machine, replicates=task.replicates, seed=seed)
    except (
        DitherError
    ) as error:  # such methods have no intervals, which is a finding and no failure
        return {"no_intervals": " ".join(str(error).split())}
    return coverage(task.schema, intervals, people)


def coverage(schema: Schema, intervals: Bootstrap, people: Codes) -> JsonObject:
    """How many cells have an interval that holds the truth, and how many have none at all."""
    held, without, cells = 0, 0, 0
    for ways in (1, 2) if len(schema) > 1 else (1,):
        most = math.comb(len(schema), 1) if ways == 1 else COVERED_SETS
        for positions in attribute_sets(len(schema), ways, most, np.random.default_rng(0)):
            exact = marginal(people, schema.cardinalities, positions)
            told = intervals.interval([schema.names[i] for i in positions])
            large = exact > MIN_SHARE
            known = large & ~np.isnan(told.low)
            held += int(((told.low <= exact + 1e-12) & (exact <= told.high + 1e-12))[known].sum())
            cells += int(known.sum())
            without += int((large & ~known).sum())
    out: JsonObject = {"without_interval": without / max(cells + without, 1)}
    return out | ({"coverage": held / cells} if cells else {})


def majority(task: Task) -> float:
    """How often always guessing the most frequent value is right on the rows that nobody was asked about."""
    assert task.target is not None
    values = task.test[:, task.schema.index(task.target)]
    return float(np.bincount(values).max() / len(values))
