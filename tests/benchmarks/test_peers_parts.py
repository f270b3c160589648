"""The parts of the comparison with other libraries that need none of them."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from math import exp, log
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.peers import child, defects, environments, frequency, synthesisers
from benchmarks.peers.defects import Finding
from benchmarks.peers.frequency_worker import _errors, _run, _size, population
from benchmarks.peers.libraries import ORACLES, inverted, textbook
from dither.lab.harness import NotAvailable
from dither.mechanisms import mechanism


@pytest.mark.parametrize("name", frequency.MECHANISMS)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_textbook_agrees_with_our_mechanisms(name: str, epsilon: float) -> None:
    built = mechanism(name, 20, epsilon)
    p, q = textbook(name, 20, epsilon)
    assert float(built.p) == pytest.approx(p, rel=1e-5)
    assert float(built.q) == pytest.approx(q, rel=1e-5)


@pytest.mark.parametrize("library", ["dither", "dither, one by one"])
@pytest.mark.parametrize("name", ["grr", "sue"])
def test_error_over_theory_is_one_and_a_wrong_theory_is_rejected(library: str, name: str) -> None:
    oracle = ORACLES[library](name, 16, 1.0)
    right, wrong = [], []
    for seed in range(40):
        values = population(500, 16, seed)
        estimate = _run(oracle, values, raw=True)[2]
        right.append(_errors(oracle, name, 16, 1.0, values, estimate, None)[0])
        wrong.append(_errors(oracle, name, 16, 1.5, values, estimate, None)[0])
    # Chi-squared with 40 x 15 degrees of freedom or so: six standard deviations are 0.35.
    assert np.mean(right) == pytest.approx(1, abs=0.35)
    assert np.mean(wrong) > 1.5


def test_clipping_shows_as_bias_of_its_own_estimate_only() -> None:
    """A server like multi-freq-ldpy's: the raw estimate is taken from the counts, the bias from what the server says."""
    n, cells = 1000, 200
    values = np.zeros(n, dtype=np.int64)
    p, q = textbook("oue", cells, 1.0)
    rng = np.random.default_rng(3)
    support = rng.binomial(n, np.r_[p, np.full(cells - 1, q)])
    clipped = inverted(support, n, p, q).clip(0)
    raw, _, bias = _errors(None, "oue", cells, 1.0, values, clipped / clipped.sum(), support)  # type: ignore[arg-type]
    assert raw == pytest.approx(1, abs=0.6)
    assert bias < -5


def test_report_sizes() -> None:
    assert _size(SimpleNamespace(rows=np.zeros((3, 8), np.uint8))) == 8
    assert _size([b"abc"]) == 3
    assert _size([(1, 2)]) == 16
    assert _size([np.zeros(10)]) == 80


def test_record_wide_epsilon_of_rs_fd_by_enumeration() -> None:
    epsilon, sizes = 1.0, (2, 3, 2)
    spent = log(len(sizes) * (exp(epsilon) - 1) + 1)

    def chance(report: tuple[int, ...], record: tuple[int, ...]) -> float:
        total = 0.0
        for sampled in range(len(sizes)):
            each = 1 / len(sizes)
            for i, k in enumerate(sizes):
                p, q = textbook("grr", k, spent)
                each *= (p if report[i] == record[i] else q) if i == sampled else 1 / k
            total += each
        return total

    records = list(product(*(range(k) for k in sizes)))
    worst = max(log(chance(y, a) / chance(y, b)) for y in records for a in records for b in records)
    assert worst == pytest.approx(defects.rs_fd_exact(epsilon, len(sizes)))
    assert worst > 1.5 * epsilon


def test_a_finding_tells_a_defect_from_what_is_right() -> None:
    assert Finding("x", "share", 1.0, 0.75).shown()
    assert not Finding("x", "share", 0.76, 0.75).shown()
    assert Finding("x", "epsilon", 2.2, 1.0, at_most=True).shown()
    assert not Finding("x", "epsilon", 0.4, 1.0, at_most=True).shown()
    assert "expected at most 1" in str(Finding("x", "epsilon", 2.2, 1.0, at_most=True))


def test_a_missing_library_is_named() -> None:
    def needs() -> Finding:
        import no_such_library  # noqa: F401

        raise AssertionError

    with pytest.raises(NotAvailable, match="no_such_library"):
        defects.look(needs)


def test_a_child_that_fails_or_lacks_a_library_says_so() -> None:
    with pytest.raises(child.ChildFailedError, match="TypeError"):
        child.run("benchmarks.peers.rounding_worker", {"nothing": 1})
    with pytest.raises(child.MissingError, match="mbi"):
        child.run("benchmarks.peers.rounding_worker", {"rows": 10, "seed": 0})


def test_peak_sees_memory_that_was_given_back(tmp_path: Path) -> None:
    code = (
        "from benchmarks.peers.peak import Peak\n"
        "a = bytearray(100 << 20); del a\n"  # before the mark: must not count
        "p = Peak(); b = bytearray(40 << 20); del b\nprint(p.extra_mb())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=child.ROOT, capture_output=True, text=True, check=True
    )
    assert 35 < float(done.stdout) < 60


def test_environments_are_found_kept_or_excused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DITHER_PEERS", str(tmp_path))
    assert {"dpmm", "smartnoise", "diffprivlib"} <= set(environments.NAMES)
    with pytest.raises(NotAvailable, match="is not there"):
        environments.interpreter("dpmm", build=False)

    def fake(place: Path, with_pip: bool) -> None:
        (place / environments.BIN).mkdir(parents=True)
        (place / environments.BIN / "python").touch()

    def refuse(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(
            1, command, stderr="noise\nERROR: No matching distribution found for dpmm\n"
        )

    monkeypatch.setattr(environments.venv, "create", fake)
    monkeypatch.setattr(environments.subprocess, "run", refuse)
    with pytest.raises(
        NotAvailable, match="could not be made: ERROR: No matching distribution"
    ) as excuse:
        environments.interpreter("dpmm")
    assert "\n" not in str(excuse.value)
    assert not list(tmp_path.glob("venv-dpmm*"))  # nothing half made is left behind

    monkeypatch.setattr(environments.subprocess, "run", lambda *a, **k: None)
    made = environments.interpreter("dpmm")
    assert made == tmp_path / "venv-dpmm" / environments.BIN / "python"
    assert environments.interpreter("dpmm", build=False) == made
    (tmp_path / "venv-dpmm" / "made-from").write_text("another list")
    with pytest.raises(NotAvailable, match="is not there"):
        environments.interpreter("dpmm", build=False)


@pytest.mark.parametrize("name", environments.NAMES)
def test_requirements_are_pinned_and_name_no_host(name: str) -> None:
    lines = (environments.HERE / f"requirements-{name}.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert all(line.count("==") == 1 and "/" not in line and "@" not in line for line in pins)


def test_rows_of_the_table_are_nearer_than_rows_of_independent_columns() -> None:
    table = tables.part("Adult", 4000, Path("nowhere"))
    product_rows = synthesisers.measure(tables.PRODUCT, 1.0, 0, 4000, Path("nowhere"))[0]
    resampled = synthesisers.measure(synthesisers.RESAMPLED, 1.0, 0, 4000, Path("nowhere"))[0]
    assert resampled["tvd_2"] < product_rows["tvd_2"]
    assert synthesisers.errors(table, table.codes) == {"tvd_2": 0.0, "tvd_3": 0.0}
