"""One point of a comparison: a method on the rows of a table at one epsilon.

A point runs in a separate process, which isolates its memory and its failures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import LinearSVC

from dither.errors import DitherError, ParameterError
from dither.evaluation.metrics import attribute_sets, evaluate_codes, marginal
from dither.lab.comparison.peers import Draw, Drawn, find_peer
from dither.lab.harness.process import PeakMemory
from dither.methods import MethodRun, published_parameters, start
from dither.methods.published import SUFFIX
from dither.release.intervals import Bootstrap
from dither.release.replicates import prepare_bootstrap
from dither.schema import Schema, schema_from_json
from dither.simulate import simulate
from dither.types import AnyArray, Codes, JsonObject

# Baselines. The first is the best that a sample of this size can be, the second a
# model without any dependence. The texts are labels of the page.
REDRAWN = "real rows, resampled"
PRODUCT = "exact single columns, no dependence"
BASELINES = (REDRAWN, PRODUCT)
LOCAL, OPEN = "local", "none"
WAYS = (1, 2, 3)
MAX_SETS = 200
# Coverage is measured over this many pairs, and over cells with at least this share:
# intervals of rarer cells say little about the truth.
_COVERED_SETS = 60
MIN_SHARE = 0.01
_TRAINED_ROWS = _TESTED_ROWS = 10_000
_ARRAYS = "rows.npz"


@dataclass(frozen=True)
class Task:
    """What all points of a comparison share.

    Attributes:
        schema: The schema of the table.
        people: Codes of the rows that are simulated participants.
        test: Codes of the rows that test a classifier and are asked nothing.
        target: Column that the classifier predicts; None for no classifier.
        population: Participants to draw from `people` with replacement; None for each once.
        replicates: Refits for the intervals whose coverage is measured; 0 for none.
    """

    schema: Schema
    people: Codes
    test: Codes
    target: str | None
    population: int | None = None
    replicates: int = 0

    def save(self, folder: Path) -> None:
        """Write the task for other processes; `folder` must be private to this user."""
        options = {
            "target": self.target,
            "population": self.population,
            "replicates": self.replicates,
        }
        np.savez(folder / _ARRAYS, people=self.people, test=self.test)
        (folder / "task.json").write_text(
            json.dumps({"schema": self.schema.to_json(), **options}), encoding="utf-8"
        )

    def participants(self, seed: int) -> Codes:
        """The rows that are asked: all, or a population drawn with replacement."""
        if self.population is None:
            return self.people
        drawn = np.random.default_rng([seed, 0x706F70]).integers(
            0, len(self.people), self.population
        )
        return np.asfortranarray(self.people[drawn])


def _load_task(folder: Path) -> Task:
    """The inverse of `Task.save`."""
    options = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    schema = schema_from_json(options.pop("schema"))
    with np.load(folder / _ARRAYS) as arrays:
        return Task(schema, arrays["people"], arrays["test"], **options)


def measure_saved(folder: str, method: str, epsilon: float, seed: int) -> JsonObject:
    """`measure` on a saved task, for a separate process.

    Returns:
        The figures, or {"reason": ...} if the point cannot be measured.
    """
    try:
        return measure(_load_task(Path(folder)), method, epsilon, seed)
    except MemoryError:
        return {"reason": "there is not enough memory"}
    except DitherError as error:
        return {"reason": " ".join(str(error).split())}


def measure(task: Task, method: str, epsilon: float, seed: int) -> JsonObject:
    """Run one method and measure its synthetic rows.

    There are as many synthetic rows as participants. Distances are measured against the
    participants' records, accuracy on the rows of `task.test`.

    Returns:
        Distances of one, two and three attributes, the worst pair, coverage of 95 %
        intervals, accuracy of a classifier, CPU seconds and megabytes.
    """
    people = task.participants(seed)
    memory = PeakMemory()
    begun = time.process_time()
    rows, trust, source = _synthesise(task, method, people, epsilon, seed)
    cpu_seconds = time.process_time() - begun
    megabytes = memory.extra()
    if isinstance(source, Drawn):
        # The library ran in another process, which measured itself.
        cpu_seconds, megabytes = source.cpu_seconds, source.peak_megabytes
    schema = task.schema
    ways = [k for k in WAYS if k <= len(schema)]
    distances = evaluate_codes(people, rows, schema, ways, MAX_SETS, np.random.default_rng(0))
    figures: JsonObject = {"trust": trust, **{f"tvd_{k}": distances[k].tvd for k in ways}}
    if 2 in distances:
        figures["worst_pair"] = distances[2].worst_tvd
        figures["worst_names"] = list(distances[2].worst)
    if isinstance(source, MethodRun) and task.replicates:
        figures |= _coverage(task, source, people, seed)
    if task.target is not None and len(task.test):
        figures["accuracy"] = train_and_test(
            schema,
            rows,
            task.test[:_TESTED_ROWS],
            task.target,
            "forest",
            seed=seed,
            rows=_TRAINED_ROWS,
        )
    if method not in BASELINES:
        figures |= {"cpu_seconds": cpu_seconds, "peak_megabytes": megabytes}
    return figures


def _synthesise(
    task: Task, method: str, people: Codes, epsilon: float, seed: int
) -> tuple[Codes, str, MethodRun | Draw | None]:
    """Synthetic rows, the trust model of epsilon, and the run or peer that made them."""
    rng = np.random.default_rng([seed, 1])
    if method == REDRAWN:
        return people[rng.integers(0, len(people), len(people))], OPEN, None
    if method == PRODUCT:
        shuffled = [rng.permutation(people[:, i]) for i in range(people.shape[1])]
        return np.stack(shuffled, axis=1), OPEN, None
    peer = find_peer(method)
    if peer is not None:
        sizes = task.schema.cardinalities
        domain = dict(zip(task.schema.names, sizes, strict=True))
        draw = peer.fit(people, domain, epsilon, seed)
        rows = np.asarray(draw(len(people)))
        return _checked(rows, people.shape, sizes, method), peer.trust, draw
    name, parameters = method.removesuffix(SUFFIX), None
    if method.endswith(SUFFIX):
        parameters = published_parameters(name, None, task.schema.cardinalities)
    machine = start(name, task.schema, epsilon, len(people), parameters, seed=seed)
    simulate(machine, people, rng)
    return machine.model().sample(len(people), rng), LOCAL, machine


def _checked(
    rows: AnyArray, shape: tuple[int, ...], cardinalities: Sequence[int], method: str
) -> Codes:
    """The rows of a peer if they are valid codes; otherwise the point fails with a reason."""
    valid = (
        rows.shape == shape
        and rows.dtype.kind in "iu"
        and rows.min(initial=0) >= 0
        and bool((rows < np.asarray(cardinalities)).all())
    )
    if not valid:
        raise ParameterError(f"{method} did not return {shape[0]:,} rows of codes", where="methods")
    return rows.astype(np.int32, copy=False)


def _coverage(task: Task, machine: MethodRun, people: Codes, seed: int) -> JsonObject:
    try:
        intervals = prepare_bootstrap(machine, replicates=task.replicates, seed=seed)
    except DitherError as error:
        # Some methods have no intervals. That is a result, not a failure.
        return {"no_intervals": " ".join(str(error).split())}
    return coverage(task.schema, intervals, people)


def coverage(schema: Schema, intervals: Bootstrap, people: Codes) -> JsonObject:
    """How often 95 % intervals contain the share among the participants.

    Returns:
        `coverage` over cells of one and two attributes with a share above `MIN_SHARE`, and
        `without_interval`, the share of those cells that have no interval.
    """
    covered = without = cells = 0
    for ways in (1, 2) if len(schema) > 1 else (1,):
        max_sets = len(schema) if ways == 1 else _COVERED_SETS
        for positions in attribute_sets(len(schema), ways, max_sets, np.random.default_rng(0)):
            truth = marginal(people, schema.cardinalities, positions)
            interval = intervals.interval([schema.names[i] for i in positions])
            large = truth > MIN_SHARE
            bounded = large & ~np.isnan(interval.low)
            inside = (interval.low <= truth + 1e-12) & (truth <= interval.high + 1e-12)
            covered += int(inside[bounded].sum())
            cells += int(bounded.sum())
            without += int((large & ~bounded).sum())
    figures: JsonObject = {"without_interval": without / max(cells + without, 1)}
    if cells:
        figures["coverage"] = covered / cells
    return figures


def majority(task: Task) -> float:
    """Accuracy on the test rows of always predicting the most frequent value."""
    assert task.target is not None
    values = task.test[:, task.schema.index(task.target)]
    return float(np.bincount(values).max() / len(values))


Classifier = Literal["svm", "forest"]
_CLASSIFIERS: tuple[Classifier, ...] = ("svm", "forest")


def train_and_test(
    schema: Schema,
    train: Codes,
    test: Codes,
    target: str,
    classifier: Classifier,
    *,
    seed: int = 0,
    rows: int = 10_000,
) -> float:
    """The accuracy on `test` of a classifier trained on at most `rows` rows of `train`.

    Rows are drawn without replacement. The SVM is linear on one-hot features, the forest has 50
    trees on codes; a training set with one class predicts it.
    """
    if classifier not in _CLASSIFIERS:
        raise ParameterError(
            f"classifier {classifier!r} is not one of {', '.join(_CLASSIFIERS)}", where="classifier"
        )
    if not len(train) or not len(test):
        raise ParameterError("a classifier needs rows to train on and rows to test on")
    rng = np.random.default_rng(seed)
    chosen = train if len(train) <= rows else train[rng.choice(len(train), rows, replace=False)]
    position = schema.index(target)
    labels, wanted = chosen[:, position], test[:, position]
    if (labels == labels[0]).all():
        return float((wanted == labels[0]).mean())
    model = _model(classifier, seed)
    encode = _one_hot if classifier == "svm" else _plain
    model.fit(encode(schema, chosen, position), labels)
    return float((model.predict(encode(schema, test, position)) == wanted).mean())


def split_rows(codes: Codes, share: float, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Shuffled rows for training and testing; published tables are often sorted."""
    if not 0 < share < 1:
        raise ParameterError(
            f"the share of test rows must lie between 0 and 1, not {share!r}",
            where="share",
            value=share,
        )
    order = rng.permutation(len(codes))
    cut = max(1, round(share * len(codes)))
    return codes[order[cut:]], codes[order[:cut]]


def _model(classifier: Classifier, seed: int) -> Any:
    if classifier == "svm":
        return LinearSVC(dual=False, tol=1e-3, max_iter=2_000)
    return RandomForestClassifier(n_estimators=50, min_samples_leaf=2, random_state=seed, n_jobs=1)


def _one_hot(schema: Schema, codes: Codes, left_out: int) -> Any:
    """All attributes but one as indicator columns; the first code of each is the reference."""
    sizes = [0 if i == left_out else k - 1 for i, k in enumerate(schema.cardinalities)]
    starts = np.cumsum([0, *sizes])
    kept = [i for i in range(len(schema)) if i != left_out]
    values = codes[:, kept].astype(np.int64)
    present = values > 0
    rows = np.repeat(np.arange(len(codes)), present.sum(axis=1))
    columns = (values - 1 + starts[kept])[present]
    return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(codes), int(starts[-1])))


def _plain(schema: Schema, codes: Codes, left_out: int) -> Any:
    return np.delete(np.asarray(codes), left_out, axis=1).astype(np.float32)
