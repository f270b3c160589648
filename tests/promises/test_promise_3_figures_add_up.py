"""Promise 3: shares of a partition add up to one, a part is at most its whole, and nothing is negative.

Random questions go to releases with so much noise that raw estimates are far outside [0, 1]: tables
that fell back, numbers of few people, and a curator's cells. They are asked in Python, on the command
line and over HTTP.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from figure_laws import CommandLine, Http, Python, check_laws
from test_releases import SCHEMA as COLLECTED
from test_releases import Site

import dither
from dither.methods.histogram import late
from dither.release import Bootstrap, CellsContent, Release
from dither.release.intervals import LinearAnswer
from dither.release.misfit import Misfit, PairMisfit
from dither.schema import Attribute, Schema, schema_from_json

SCHEMA = Schema(
    (
        Attribute("a", "categorical", values=("a0", "a1", "a2", "a3")),
        Attribute("b", "categorical", values=("b0", "b1", "b2")),
        Attribute("c", "numeric", edges=(0.0, 1.0, 2.5, 10.0)),
    )
)


def rows(people: int, dependence: float, seed: int = 3) -> pa.Table:
    """A table whose first two columns depend on each other."""
    rng = np.random.default_rng(seed)
    a = rng.choice(4, people, p=[0.4, 0.3, 0.28, 0.02])
    b = np.where(rng.random(people) < dependence, a % 3, rng.choice(3, people, p=[0.7, 0.2, 0.1]))
    # Some people are exactly at the upper end.
    c = np.where(rng.random(people) < 0.1, 10.0, rng.gamma(1.0, 1.5, people).clip(0, 10))
    return pa.table({"a": [f"a{i}" for i in a], "b": [f"b{i}" for i in b], "c": c})


@cache
def release(kind: str) -> Release:
    """A release of one kind; noisy enough that raw estimates break every law."""
    if kind == "table that fell back":
        found = dither.publish(
            rows(6_000, 0.1), epsilon=1.0, schema=SCHEMA, rows=50, seed=2, replicates=5
        )
        assert found.replicates is not None
        assert found.fallbacks
        assert found.replicates.reports is not None
        assert found.replicates.reports.tell(["a", "b"])
        return found
    if kind == "table":
        return dither.publish(
            rows(60_000, 0.8), epsilon=4.0, schema=SCHEMA, rows=50, seed=2, replicates=5
        )
    if kind == "table of model and reports":
        found = release("table")
        assert found.replicates is not None
        pairs = [frozenset(pair) for pair in combinations(found.schema.names, 2)]
        rejected = Misfit(dict.fromkeys(pairs, PairMisfit(1.0, 0.5, 0.6)))
        replicates = replace(found.replicates, misfit=rejected)
        assert replicates.interval(["a", "b"]).basis == "model and reports"
        return replace(found, content=replace(found.content, replicates=replicates))
    if kind == "independent":
        return dither.publish(
            rows(6_000, 0.3), epsilon=2.0, schema=SCHEMA, rows=50, seed=2, method="independent"
        )
    way, _, method = kind.partition(" ")
    if way == "number":
        values = np.random.default_rng(2).gamma(2.0, 20.0, 400).clip(0, 100)
        return dither.histogram(
            values, consumers=[16, 3], epsilon=1.0, low=0, high=100, method=method, seed=4
        )
    return dither.central_release(
        rows(120, 0.3), epsilon=0.3, schema=SCHEMA, method=method, columns=["a", "b", "c"], seed=9
    )


KINDS = (
    *("table that fell back", "table", "table of model and reports", "independent"),
    *(
        "number chp",
        "number ranges",
        "number sampled",
        "central laplace",
        "central privbayes",
        "central csm",
    ),
)


@pytest.mark.parametrize("kind", KINDS)
def test_figures_add_up_in_python(kind: str) -> None:
    found = release(kind)
    # Each question to `ranges` is about a thousand cells.
    for seed in range(4 if kind == "number ranges" else 20):
        check_laws(Python(found), found.schema, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_not_negative_and_add_up(kind: str) -> None:
    found = release(kind)
    name = found.schema.names[0]
    attribute = found.schema.attributes[0]
    parts = [found.count({name: label}) for label in attribute.labels]
    assert all(part.estimate >= 0 for part in parts)
    assert all(part.low is None or part.low >= 0 for part in parts)
    whole = found.count(None)
    assert whole.low is None or whole.low >= 0
    assert sum(part.estimate for part in parts) == pytest.approx(whole.estimate, abs=1e-6)


@pytest.mark.parametrize("kind", ["table that fell back", "number chp", "central laplace"])
def test_figures_add_up_on_the_command_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = release(kind)
    folder = found.save(tmp_path / "out")
    for seed in range(2):
        asker = CommandLine(str(folder), capsys)
        check_laws(asker, found.schema, np.random.default_rng(seed))


@pytest.mark.slow
def test_figures_add_up_over_http(tmp_path: Path) -> None:
    site = Site(tmp_path)

    def ask(**query: Any) -> Any:
        answer = site.get(f"/v1/releases/{site.published}/query", **query)
        assert answer.status == 200, answer
        return json.loads(answer.body)

    try:
        for seed in range(5):
            check_laws(Http(ask), schema_from_json(COLLECTED), np.random.default_rng(seed))
    finally:
        site.connection.close()
        site.server.stop()


def raw_tables(self: Bootstrap, attributes: Any, groups: Any, questions: Any) -> LinearAnswer:
    """Answers about two attributes from their reports alone, as before."""
    weights = questions.reshape(len(questions), -1)
    if len(attributes) == 2 and self.reports is not None and self.reports.tell(attributes):
        raw = self.reports.sums(attributes, groups, weights, self.model.marginal(attributes))
        return LinearAnswer(raw.estimates, raw.covariance, 1000.0, "reports")
    return LINEAR(self, attributes, groups, questions)


LINEAR = Bootstrap.linear


@pytest.mark.parametrize("kind", ["table that fell back", "number chp", "central laplace"])
def test_figures_cut_cell_by_cell_are_rejected(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = release(kind)
    monkeypatch.setattr(Bootstrap, "linear", raw_tables)
    monkeypatch.setattr(
        late, "distribution", lambda cells: np.clip(cells.counts / cells.population, 0, 1)
    )

    def raw_cells(self: CellsContent, schema: Schema) -> Any:
        assert self.estimate is not None
        return np.clip(self.estimate.reshape(schema.cardinalities) / self.total, 0.0, 1.0)

    monkeypatch.setattr(CellsContent, "distribution", raw_cells)
    # An inquiry keeps its distribution, so the release asks a new one.
    asker = Python(dither.load_release(found.save(tmp_path / "out")))

    def check_all() -> None:
        for seed in range(25):
            check_laws(asker, found.schema, np.random.default_rng(seed))

    with pytest.raises(AssertionError):
        check_all()
