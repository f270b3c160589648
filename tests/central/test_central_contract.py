"""What every central method owes, whichever it is: a release for any table, an epsilon that does not tell what was chosen."""

from __future__ import annotations

import numpy as np
import pytest
from tests.central.running import run

from dither.central import CENTRAL, seeded_source

HISTOGRAMS = [name for name, method in CENTRAL.items() if method.release is not None]
SHAPES = {"agrid": [(4, 4), (2, 8)]}  # the others take one column or several
TABLES = {
    "empty": np.zeros(16, dtype=np.int64),
    "one record": np.eye(16, dtype=np.int64)[5],
    "all in one cell": 640 * np.eye(16, dtype=np.int64)[0],
    "all cells equal": np.full(16, 40),
    "two halves": np.repeat([0, 80], 8),
    "every other cell": np.tile([80, 0], 8),
}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("name", HISTOGRAMS)
def test_no_private_choice_changes_success_or_the_epsilon(name: str, neighbours: str) -> None:
    """A method that refuses what it chose tells what it chose: degenerate tables drive every choice to its ends.

    Where the number of records is public, a method may use it.
    """
    spent: dict[object, set[float]] = {}
    for counts in TABLES.values():
        for seed in range(6):
            for shape in SHAPES.get(name, [(), (4, 2, 2)]):
                source, rng = seeded_source(seed), np.random.default_rng(0)
                made = run(name, counts, 0.9, source, rng=rng, neighbours=neighbours, shape=shape)
                assert np.isfinite(made.estimate).all()
                assert made.estimate.shape == (16,)
                assert made.epsilon <= 0.9
                known = int(counts.sum()) if neighbours == "replace" else None
                spent.setdefault((shape, known), set()).add(made.epsilon)
    assert all(len(found) == 1 for found in spent.values()), spent
