"""The harness: grids, resuming, means and spreads, files that stand alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import dither
from dither.lab.harness import MEASURED, Bench, Chart, NotAvailable, Outcome, Study, execute


class MeasureCounter:
    """A measure that notes what it was asked, and can be told to fail."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.stop_at = stop_at

    def __call__(self, **point: Any) -> dict[str, Any]:
        if self.stop_at is not None and len(self.asked) == self.stop_at:
            raise KeyboardInterrupt
        self.asked.append(point)
        return {"error": point["epsilon"] * 10 + point["seed"], "kind": "x", "k": 2}


def declared(measure: Callable[..., Any], **changes: Any) -> Bench:
    axes = {"dataset": ("A", "B"), "epsilon": (1.0, 2.0), "seed": (0, 1, 2)}
    chart = Chart("epsilon", "error", colour="kind")
    study = Study("first", "First", axes, measure, ("k",), (chart,), **changes)
    return Bench("made-up", "Made up", "Numbers that follow from their labels.", (study,), "full")


def quiet(bench: Bench, out: Path, **options: Any) -> Outcome:
    return execute(bench, out, show=lambda text: None, **options)


def test_means_and_spreads_are_over_seeds_only(tmp_path: Path) -> None:
    outcome = quiet(declared(MeasureCounter()), tmp_path)
    assert len(outcome.rows) == 12
    assert len(outcome.summary) == 4
    assert outcome.mean("first", "error", dataset="A", epsilon=2.0) == 21.0
    entry = outcome.summary[0]
    assert entry["labels"] == {"dataset": "A", "epsilon": 1.0, "kind": "x", "k": 2}
    assert (entry["mean"], entry["spread"], entry["runs"]) == (11.0, 1.0, 3)
    with pytest.raises(KeyError, match="0 rows"):
        outcome.mean("first", "error", dataset="C", epsilon=2.0)


def test_parquet_holds_every_number_with_its_labels(tmp_path: Path) -> None:
    quiet(declared(MeasureCounter()), tmp_path)
    rows = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    assert len(rows) == 12
    assert rows[5] == {
        "study": "first", "dataset": "A", "epsilon": 2.0, "seed": 2, "kind": "x", "k": 2, "measure": "error", "value": 22.0,
    }  # fmt: skip
    summary = pq.read_table(tmp_path / "summary.parquet").to_pylist()
    assert {"mean", "spread", "runs"} <= set(summary[0])
    assert "seed" not in summary[0]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    stopped = MeasureCounter(stop_at=7)
    with pytest.raises(KeyboardInterrupt):
        quiet(declared(stopped), tmp_path)
    assert not (tmp_path / "rows.parquet").exists()
    rest = MeasureCounter()
    resumed = quiet(declared(rest), tmp_path)
    assert resumed.resumed == 7
    assert len(rest.asked) == 5
    whole = quiet(declared(MeasureCounter()), tmp_path / "other")
    assert resumed.rows == whole.rows
    assert resumed.summary == whole.summary


def test_half_a_line_costs_one_point(tmp_path: Path) -> None:
    quiet(declared(MeasureCounter()), tmp_path)
    journal = tmp_path / "journal.jsonl"
    journal.write_text(journal.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    again = MeasureCounter()
    assert quiet(declared(again), tmp_path).resumed == 11
    assert len(again.asked) == 1
    assert quiet(declared(MeasureCounter()), tmp_path).resumed == 12


@pytest.mark.slow
def test_other_code_other_size_or_fresh_measures_all_points_again(tmp_path: Path) -> None:
    bench = declared(MeasureCounter())
    quiet(bench, tmp_path)
    other = Bench(bench.name, bench.title, bench.about, bench.studies, "quick")
    said: list[str] = []
    assert execute(other, tmp_path, show=said.append).resumed == 0
    assert "measuring all points again" in said[0]
    journal = tmp_path / "journal.jsonl"
    journal.write_text(
        re.sub(r'"code": "\w+"', '"code": "0000"', journal.read_text(encoding="utf-8")),
        encoding="utf-8",
    )
    assert quiet(other, tmp_path).resumed == 0
    assert quiet(other, tmp_path).resumed == 12
    assert quiet(other, tmp_path, fresh=True).resumed == 0


def test_what_cannot_be_measured_is_said_once_and_tried_again(tmp_path: Path) -> None:
    missing = {"A"}

    def measure(**point: Any) -> dict[str, Any]:
        if point["dataset"] in missing:
            raise NotAvailable("library x is not installed")
        return {"error": 1.0}

    outcome = quiet(declared(measure), tmp_path)
    assert outcome.notes == ["first: library x is not installed"]
    assert len(outcome.rows) == 6
    assert "library x is not installed" in (tmp_path / "index.html").read_text(encoding="utf-8")
    missing.clear()
    assert len(quiet(declared(measure), tmp_path).rows) == 12


def test_skipped_points_and_published_rows(tmp_path: Path) -> None:
    known = ({"dataset": "A", "epsilon": 1.0, "kind": "a paper", "error": 99.0},)
    bench = declared(
        MeasureCounter(), skip=lambda dataset, epsilon, seed: dataset == "B", known=known
    )
    outcome = quiet(bench, tmp_path)
    assert outcome.mean("first", "error", source="published") == 99.0
    assert {row["labels"]["dataset"] for row in outcome.rows} == {"A"}


def test_the_page_stands_alone_and_names_its_pictures(tmp_path: Path) -> None:
    quiet(declared(MeasureCounter(), note="A <note> & more"), tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") == page.count('role="img"') == 2  # one for each dataset
    assert page.count("<figure") == 1
    assert "<script" not in page
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert "A &lt;note&gt; &amp; more" in page
    assert "11 ± 1" in page


def test_the_fingerprint_covers_modules_that_exist() -> None:
    source = Path(dither.__file__).parent
    assert [name for name in MEASURED if not (source / name).exists()] == []
