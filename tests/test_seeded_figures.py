"""Every method, every kind of histogram and every central method gives the figures it gave before, with the same seed.

`tests/seeded_figures.json` holds them. A change that is meant to move figures writes the file anew, and says so:

    python -m tests.test_seeded_figures

Libraries add up in an order that fits the processor, and a fit that stops at a tolerance, or a design found by descent, turns
the last digit of a sum into the fourth of a figure. So the figures are computed in a process of their own whose libraries keep
to instructions that every x86-64 processor of the last fifteen years has.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dither
from dither import several_values
from dither.central.curator import central_release

STORED = Path(__file__).with_name("seeded_figures.json")
ANY_PROCESSOR = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    "NUMBA_CPU_NAME": "x86-64",
    "NUMBA_CPU_FEATURES": "",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F",
}
COLUMNS = ["age", "workclass", "education", "sex", "income"]


def adult(rows: int = 20_000) -> Any:
    bundled = dither.load_dataset("adult")
    kept = dither.Schema(tuple(bundled.schema[name] for name in COLUMNS))
    return bundled.table.select(COLUMNS).slice(0, rows), kept


def publication(method: str, **options: Any) -> dict[str, Any]:
    table, schema = adult()
    release = dither.publish(
        table, epsilon=3.0, method=method, schema=schema, rows=500, seed=11, **options
    )
    first = {
        str(k): int(v)
        for k, v in zip(
            *np.unique(release.synthetic["education"].to_pylist(), return_counts=True), strict=True
        )
    }
    return {
        "epsilon": release.epsilon_achieved,
        "asked": [entry.to_json() for entry in release.asked],
        "pair": release.marginal(["age", "income"]).frequencies.ravel().tolist(),
        "single": release.marginal(["education"]).frequencies.tolist(),
        "synthetic": first,
    }


def interval(method: str) -> dict[str, Any]:
    table, schema = adult(4_000)
    release = dither.publish(table, epsilon=4.0, method=method, schema=schema, rows=10, seed=5)
    found = dither.bootstrap(release, [["sex", "income"]], replicates=5, seed=3)[0]
    return {"low": found.low.ravel().tolist(), "high": found.high.ravel().tolist()}


def salaries() -> Any:
    return np.random.default_rng(2).gamma(2.0, 20.0, 5_000).clip(0, 200)


def histogram(method: str, **options: Any) -> dict[str, Any]:
    release = dither.histogram(
        salaries(),
        consumers=[8] if method == "shp" else [3, 8],
        epsilon=2.0,
        low=0,
        high=200,
        method=method,
        seed=4,
        **options,
    )
    return {
        "epsilon": release.epsilon_achieved,
        "bits": release.number.bits_per_report,
        "estimates": [c.estimates.tolist() for c in release.consumers],
        "errors": [c.standard_errors.tolist() for c in release.consumers],
    }


def several(strategy: str) -> dict[str, Any]:
    values = salaries()[:3_000].reshape(1_000, 3).tolist()
    release = several_values(
        values, consumers=[4], epsilon=3.0, low=0, high=200, most=3, method=strategy, seed=8
    )
    return {
        "epsilon": release.epsilon_achieved,
        "estimates": [c.estimates.tolist() for c in release.consumers],
    }


def central(method: str) -> dict[str, Any]:
    table, schema = adult()
    release = central_release(
        table,
        epsilon=1.0,
        method=method,
        columns=["education", "sex", "income"],
        schema=schema,
        seed=9,
        replicates=2,
    )
    out: dict[str, Any] = {"epsilon": release.epsilon_achieved, "rows": release.rows}
    if release.cells.estimate is not None:
        out["estimate"] = release.cells.estimate.tolist()
    else:
        out["synthetic"] = [int((np.array(release.synthetic["sex"].to_pylist()) == "Female").sum())]
    return out


LOCAL = (
    "mixture",
    "independent",
    "lopub",
    "privincr",
    "noincremental",
    "calm",
    "fourier",
    "bayesnet",
)
CENTRAL = (
    "laplace",
    "threshold",
    "csm",
    "projection",
    "fourier",
    "hierarchical",
    "dawa",
    "privbayes",
    "privelet",
    "csm-records",
)
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    **{f"publish {m}": lambda m=m: publication(m) for m in LOCAL},
    "publish jtree-nonprivate": lambda: (
        publication("jtree-nonprivate", no_privacy=True) | {"epsilon": None}
    ),
    "publish mixture, reports": lambda: publication("mixture", path="reports"),
    "publish mixture, 5 % held out": lambda: publication("mixture", holdout=0.05),
    "publish bayesnet, split": lambda: publication("bayesnet", parameters={"plan": "split"}),
    **{f"intervals {m}": lambda m=m: interval(m) for m in ("mixture", "privincr")},
    **{
        f"histogram {m}": lambda m=m: histogram(m)
        for m in ("chp", "shp", "split", "sampled", "smart")
    },
    "histogram chp, reports": lambda: histogram("chp", path="reports", consistent=True),
    **{f"several {s}": lambda s=s: several(s) for s in ("independent", "summed")},
    **{f"central {m}": lambda m=m: central(m) for m in CENTRAL},
}


def same(found: Any, stored: Any) -> bool:
    """Whether two figures, lists or tables of figures agree; the last digits of a sum may differ between processors."""
    if isinstance(stored, dict):
        return found.keys() == stored.keys() and all(
            same(found[key], stored[key]) for key in stored
        )
    if isinstance(stored, list):
        return len(found) == len(stored) and all(map(same, found, stored))
    if isinstance(stored, float):
        return bool(np.isclose(found, stored, rtol=1e-6, atol=1e-9))
    return bool(found == stored)


@cache
def figures() -> dict[str, Any]:
    """The figures of all cases as any x86-64 processor computes them."""
    asked = [sys.executable, "-m", "tests.test_seeded_figures", "print"]
    done = subprocess.run(
        asked,
        env=os.environ | ANY_PROCESSOR,
        cwd=STORED.parent.parent,
        stdout=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="the stored figures are of x86-64 processors",
)
@pytest.mark.parametrize("case", CASES)
def test_figures_do_not_move(case: str) -> None:
    stored = json.loads(STORED.read_text())[case]
    found = figures()[case]
    assert same(found, stored), f"{case}: {found} instead of {stored}"


def test_every_case_is_stored_and_another_figure_is_noticed() -> None:
    stored = json.loads(STORED.read_text())
    assert stored.keys() == CASES.keys()
    moved = json.loads(STORED.read_text())
    moved["publish mixture"]["pair"][0] *= 1.0001
    assert not same(stored, moved)


if __name__ == "__main__":
    if sys.argv[1:] == ["print"]:
        print(json.dumps({case: make() for case, make in CASES.items()}))
    else:
        STORED.write_text(json.dumps(figures(), indent=1) + "\n")
