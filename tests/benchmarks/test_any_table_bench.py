"""Public tables without a schema: the list, the smallest run, and the option that is pasted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import any_table
from dither.lab.harness import NotAvailable, execute


def test_thirty_tables_are_named_once() -> None:
    assert len(any_table.NAMES) == len(set(any_table.NAMES)) == 30
    # Index, archive, packed file, JSON: every kind of file is among them.
    assert {Path(file).suffix for _, file in any_table.TABLES} == {"", ".csv", ".json", ".gz"}


@pytest.mark.slow
def test_the_bench_runs(tmp_path: Path) -> None:
    outcome = execute(any_table.bench("smoke"), tmp_path)
    assert outcome.mean("published", "published at the first try", table="sklearn iris") == 1


def test_the_option_of_the_first_error_is_pasted(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "people.csv"
    path.write_text("id,a b,x\n" + "".join(f"{7 * i},text {i},{i % 3}\n" for i in range(100)))
    monkeypatch.setattr(any_table, "TABLES", (("mine", "people.csv"),))
    monkeypatch.setattr(any_table, "NAMES", ("mine people.csv",))
    monkeypatch.setattr(any_table, "package_folder", lambda package: tmp_path)
    found = any_table.publish_any("mine people.csv", "independent")
    assert (found["outcome"], found["columns dropped"]) == ("after the pasted option", 2)
    path.write_text("a,b\n1,2\n3\n")
    assert any_table.publish_any("mine people.csv", "independent")["outcome"] == "stopped"


def test_an_absent_package_is_named() -> None:
    with pytest.raises(NotAvailable, match=r"pip install --no-deps nothing_such"):
        any_table.package_folder("nothing_such")
