"""Utility of synthetic rows: classifiers trained on them and tested on real rows, and dependences found.

References: LoPub section 6.2 (correlation identification) and 6.3 (SVM on binary attributes, random forest on all);
PrivIncr and BayesNet (SVM). Each score is compared with the same classifier trained on real rows, and with always
guessing the most frequent value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.tables import Table
from dither.errors import ParameterError
from dither.lab.comparison.measure import Classifier, split_rows, train_and_test
from dither.mechanisms import MultiMean, kernels
from dither.randomness import RandomStream
from dither.schema import Schema
from dither.types import Codes

__all__ = [
    "binary_attributes",
    "classification",
    "correlation_identification",
    "reported_accuracy",
    "split_rows",
    "train_and_test",
]


@dataclass(frozen=True)
class TaskScore:
    """Accuracy on real test rows of one classifier that predicts one attribute from all others."""

    target: str
    classifier: str
    synthetic: float
    real: float | None
    majority: float


def binary_attributes(schema: Schema) -> list[str]:
    """The attributes with two codes, which the papers give to an SVM."""
    return [a.name for a in schema if a.cardinality == 2]


def classification(
    schema: Schema,
    synthetic: Codes,
    test: Codes,
    *,
    classifier: Classifier,
    real: Codes | None = None,
    targets: Sequence[str] | None = None,
    seed: int = 0,
    rows: int = 10_000,
) -> list[TaskScore]:
    """Train on synthetic rows and, for comparison, on real ones; test both on real rows that neither has seen.

    Targets are all attributes for the forest and the binary ones for the SVM, as in LoPub, unless named.
    """
    chosen = (
        targets
        if targets is not None
        else (binary_attributes(schema) if classifier == "svm" else schema.names)
    )
    out = []
    for target in chosen:
        values = test[:, schema.index(target)]
        majority = float(np.bincount(values).max() / len(values))
        scores = [
            None
            if table is None
            else train_and_test(schema, table, test, target, classifier, seed=seed, rows=rows)
            for table in (synthetic, real)
        ]
        assert scores[0] is not None
        out.append(TaskScore(target, classifier, scores[0], scores[1], majority))
    return out


def correlation_identification(
    truth: Iterable[tuple[int, int]], found: Iterable[tuple[int, int]], pairs: int
) -> dict[str, float]:
    """LoPub's figures 19 to 21: the share of pairs judged rightly, wrongly added and lost; each pair counted once."""
    real, guess = ({(min(p), max(p)) for p in edges} for edges in (truth, found))
    if pairs < len(real | guess) or pairs < 1:
        raise ParameterError(
            f"{len(real | guess)} pairs are named, more than the {pairs} there are", where="pairs"
        )
    added, lost = len(guess - real), len(real - guess)
    return {
        "accurate": (pairs - added - lost) / pairs,
        "added": added / pairs,
        "lost": lost / pairs,
    }


def reported_accuracy(
    table: Table,
    test: np.ndarray,
    targets: Sequence[str],
    mechanism: str,
    epsilon: float,
    rows: int,
    seed: Sequence[int],
) -> float:
    """A linear SVM trained on the reports themselves: every attribute at epsilon/d (MeanEST), or a few drawn (Multi-HM)."""
    from sklearn.svm import LinearSVC

    d = len(table.schema)
    top = np.array(table.schema.cardinalities) - 1
    chosen = MultiMean.for_epsilon(d, epsilon, mechanism, d if mechanism == "duchi" else None)
    rng = np.random.default_rng(seed)
    people = table.codes[rng.choice(len(table.codes), min(rows, len(table.codes)), replace=False)]
    reports = kernels.randomise(chosen, 2 * people / top - 1, RandomStream.from_generator(rng))
    noisy = kernels.numbers(chosen, reports)
    asked = ~np.isnan(noisy)
    noisy[~asked] = 0.0
    scores = []
    for target in targets:
        column = table.schema.index(target)
        known = asked[:, column]
        labels = (noisy[known, column] > 0).astype(int)
        truth = test[:, column]
        if len(set(labels.tolist())) < 2:
            guess = int(labels[0]) if len(labels) else 0
            scores.append(float((truth == guess).mean()))
            continue
        model = LinearSVC(dual=False, tol=1e-3, max_iter=2_000).fit(
            np.delete(noisy[known], column, 1), labels
        )
        scores.append(
            float((model.predict(np.delete(2 * test / top - 1, column, 1)) == truth).mean())
        )
    return float(np.mean(scores))
