"""Classification tasks and correlation identification on tables with known answers."""

import numpy as np
import pytest

from benchmarks.tasks import (
    binary_attributes,
    classification,
    correlation_identification,
    split_rows,
    train_and_test,
)
from dither.errors import ParameterError
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True)),
        Attribute("c", "categorical", (0, 1, 2, 3)),
    )
)


def table(n, seed):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    b = np.where(rng.random(n) < 0.9, a == 1, rng.random(n) < 0.5).astype(int)
    return np.column_stack([a, b, rng.integers(0, 4, n)]).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("classifier", ["svm", "forest"])
def test_a_good_table_scores_as_real_rows_and_a_shuffled_one_as_guessing(classifier):
    train, test, good = table(1_500, 0), table(1_500, 1), table(1_500, 2)
    shuffled = np.column_stack([np.random.default_rng(i).permutation(good[:, i]) for i in range(3)])
    for rows, low, high in ((good, 0.92, 0.98), (shuffled, 0.5, 0.7)):
        score = classification(
            SCHEMA, rows, test, classifier=classifier, real=train, targets=["b"]
        )[0]
        assert low < score.synthetic < high
        assert 0.92 < score.real < 0.98
        assert score.majority == pytest.approx(0.65, abs=0.05)


def test_targets_are_those_of_the_paper():
    rows = table(300, 0)
    assert binary_attributes(SCHEMA) == ["b"]
    assert [s.target for s in classification(SCHEMA, rows, rows, classifier="svm")] == ["b"]
    forest = classification(SCHEMA, rows, rows, classifier="forest")
    assert [s.target for s in forest] == ["a", "b", "c"]
    assert all(s.real is None for s in forest)


def test_one_class_predicts_itself():
    rows, test = table(200, 0), table(500, 1)
    rows[:, 1] = 1
    assert train_and_test(SCHEMA, rows, test, "b", "svm") == pytest.approx((test[:, 1] == 1).mean())


def test_split_keeps_every_row_once():
    rows = np.arange(100)[:, None]
    train, test = split_rows(rows, 0.2, np.random.default_rng(0))
    assert len(test) == 20
    assert sorted(np.concatenate([train, test]).ravel()) == list(range(100))
    with pytest.raises(ParameterError, match="share"):
        split_rows(rows, 1.0, np.random.default_rng(0))


def test_identification_counts_each_pair_once():
    rates = correlation_identification({(0, 1), (2, 1)}, {(1, 0), (0, 3)}, 6)
    assert rates == pytest.approx({"accurate": 4 / 6, "added": 1 / 6, "lost": 1 / 6})
    with pytest.raises(ParameterError, match="pairs"):
        correlation_identification({(0, 1), (1, 2)}, set(), 1)


def test_unknown_classifier_is_refused():
    with pytest.raises(ParameterError, match="classifier"):
        train_and_test(SCHEMA, table(10, 0), table(10, 1), "b", "tree")
    with pytest.raises(ParameterError, match="rows"):
        train_and_test(SCHEMA, table(0, 0), table(10, 1), "b", "svm")
