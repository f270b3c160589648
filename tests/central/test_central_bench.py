"""The benchmark's parts on its generated table: shapes, labels, one page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dither.central.domain import flat_counts

PLACE = Path(__file__).parents[2] / "benchmarks" / "csm.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_csm", PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_have_the_sizes_asked_for(bench: ModuleType, tmp_path: Path) -> None:
    tables = bench.load_tables(tmp_path)
    assert list(tables) == ["Adult", "TPC-E (generated)"]  # nothing beside the repository: the bundled copy of Adult
    for cut in tables.values():
        for cells in bench.SIZES:
            codes, shape = cut(cells)
            assert np.prod(shape) == cells
            assert flat_counts(codes, shape).sum() == len(codes)


def test_measuring_tells_better_from_worse(bench: ModuleType) -> None:
    codes, shape = bench._tpce()(128)
    counts = flat_counts(codes, shape)
    names = ("csm", "laplace", "privbayes", "uniform", "csm, paper's noise (not private)")
    rows, raw = bench.measure(names, counts, shape, 1.0, 0.4, 2, 200)
    assert set(rows) == set(names)
    assert raw["csm"].shape == (200, 2)
    assert rows["laplace"]["all"]["mean"] < rows["uniform"]["all"]["mean"]
    again, _ = bench.measure(names, counts, shape, 1.0, 0.4, 2, 200)
    assert again["csm"]["all"] == rows["csm"]["all"]
    assert bench._paper_noise(counts, 1.0, 0.4, np.random.default_rng(0))[1] > 5


def test_the_page_holds_every_chart(bench: ModuleType) -> None:
    tables = {"TPC-E (generated)": bench._tpce()}
    result = {"runs": 2, "queries": 100}
    result["figure2"] = bench.figure2(tables, 2, 100, 128, (0.2, 0.6))
    result["figure3"] = bench.figure3(tables, 2, 100, (128,))
    result["figure4"] = bench.figure4(tables, 2, 100)
    result["figure5"] = bench.figure5(tables, 2, 100, (0.5,))
    result["figure6"] = bench.figure6({"Adult": tables["TPC-E (generated)"]}, (128,), 1)
    page = bench.page(result)
    assert page.count("<svg") == 5
    assert "known privacy breach" in page
    assert "<script" not in page
