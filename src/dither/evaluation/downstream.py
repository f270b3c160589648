"""Accuracy of classifiers trained on synthetic rows and tested on held-out real rows.

References: LoPub (Ren et al., 2018) section 6.3 (SVM on binary attributes, random forest on
all).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import LinearSVC

from dither.errors import ParameterError
from dither.schema import Schema
from dither.types import Codes

Classifier = Literal["svm", "forest"]
CLASSIFIERS: tuple[Classifier, ...] = ("svm", "forest")


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
    if classifier not in CLASSIFIERS:
        raise ParameterError(
            f"classifier {classifier!r} is not one of {', '.join(CLASSIFIERS)}", where="classifier"
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
