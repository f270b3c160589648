"""docs/errata.md: every erratum names a test that shows it, and the arithmetic of the papers redone."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import dither
from benchmarks import results, tables
from dither.evaluation import marginal
from dither.fit import mutual_information, norm_sub
from dither.mechanisms import kernels, oue, sue_from_flip
from dither.methods.privincr import relaxed_threshold
from dither.randomness import RandomStream

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| (\d+) \|.*\| `(tests/[\w/]+\.py)::(\w+)` \|$")


def _rows() -> list[tuple[int, str, str]]:
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    found = [ROW.match(line) for line in text.splitlines() if line.startswith("| ")]
    return [(int(m[1]), m[2], m[3]) for m in found[1:] if m is not None]


def test_every_erratum_names_a_test_that_exists() -> None:
    rows = _rows()
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    numbers = [number for number, _, _ in rows]
    assert numbers == list(range(1, len(re.findall(r"^\| \d+ \|", text, re.MULTILINE)) + 1))
    for number, file, name in rows:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert f"\ndef {name}(" in source, (number, file, name)


# LoPub's example: tables 5 and 6, f = 1/2.
GENDER = {"M": "01", "F": "10"}
EDUCATION = {"college": "0101", "master": "0110", "phd": "1100"}
REPORTS = [("10", "0111"), ("00", "1110"), ("10", "0100"), ("00", "0110")]


def _likelihood(received: str, sent: str, f: float = 0.5) -> float:
    same = [a == b for a, b in zip(received, sent, strict=True)]
    return math.prod(1 - f / 2 if equal else f / 2 for equal in same)


def test_the_likelihood_compares_bits_with_the_candidates_filter() -> None:
    """Erratum 2: the text of example 3 does so, line 4 of algorithm 1 does not."""
    assert _likelihood("0111", EDUCATION["college"]) == 27 / 256
    by_bits_alone = math.prod(3 / 4 if bit == "1" else 1 / 4 for bit in "0111")
    assert by_bits_alone == pytest.approx(27 / 256)
    # The received bits alone give the same figure for every candidate.
    assert _likelihood("0111", EDUCATION["phd"]) != by_bits_alone


def test_example_6_is_0_1574() -> None:
    posteriors = []
    for gender, education in REPORTS:
        joint = {
            (g, e): _likelihood(gender, GENDER[g]) * _likelihood(education, EDUCATION[e])
            for g, e in product(GENDER, EDUCATION)
        }
        posteriors.append(joint["F", "phd"] / sum(joint.values()))
    assert np.mean(posteriors) == pytest.approx(0.1574, abs=5e-5)


def test_small_flips_have_a_large_epsilon() -> None:
    """Erratum 8: f = 0.1, 0.5, 0.9 of 15 attributes with five hashes are epsilon 442, 165, 30."""
    epsilons = [15 * 2 * 5 * math.log((2 - f) / f) for f in (0.1, 0.5, 0.9)]
    assert [round(e) for e in epsilons] == [442, 165, 30]


def test_table_9_prints_0_512_for_0_542() -> None:
    pruned, printed = (91, 91, 78, 66, 55), (0.242, 0.242, 0.350, 0.450, 0.512)
    ratios = [round(1 - pairs / 120, 3) for pairs in pruned]
    assert ratios[:4] == pytest.approx(printed[:4], abs=0.001)
    assert ratios[4] == 0.542 != printed[4]


def test_joined_filters_collide_as_often_as_single_ones() -> None:
    """Erratum 20: combinations that differ in one attribute collide with p, not with p^k."""
    rng, filters = np.random.default_rng(1), 2_000
    first = rng.integers(0, 10, (filters, 2))
    same = first[:, 0] == first[:, 1]
    rate = same.mean()
    # Values (a, c) and (b, c): the second filters are equal, so only the first ones can differ.
    second = rng.integers(0, 10, filters)
    left = list(zip(first[:, 0], second, strict=True))
    right = list(zip(first[:, 1], second, strict=True))
    together = np.mean([a == b for a, b in zip(left, right, strict=True)])
    assert together == rate > 5 * rate**2


def test_unary_bits_are_fewer_than_theorem_1_calls_minimal() -> None:
    sizes, p = (2, 5, 16, 105), 0.05
    bloom = math.log(1 / p) / math.log(2) ** 2 * sum(sizes)
    assert sum(sizes) < bloom
    assert sum(math.ceil(math.log2(k)) for k in sizes) < sum(sizes)


def test_theorem_5_2_does_not_cover_the_noise_of_reports() -> None:
    """Erratum 23: independent attributes exceed its bound by the noise of OUE alone."""
    rows, n, epsilon = 8, 1_000_000, 0.1
    reach = 0.0 - relaxed_threshold(rows, rows, n, 0.0, 0.05)
    chosen = oue(rows * rows, epsilon)
    counts = np.full(rows * rows, n // (rows * rows))
    support = kernels.simulate(chosen, counts, np.random.default_rng(2))
    noisy = kernels.estimate(chosen, support, int(counts.sum())).frequencies
    found = mutual_information(norm_sub(noisy).reshape(rows, rows))
    exact = mutual_information(
        marginal(np.indices((rows, rows)).reshape(2, -1).T, (rows,) * 2, (0, 1))
    )
    assert exact == pytest.approx(0, abs=1e-12)
    assert found > reach


def test_the_printed_isometry_fails_for_an_isometry() -> None:
    """Erratum 26: definition 4 compares a length with squared lengths."""
    x = np.array([3.0, 4.0])
    measured = np.eye(2) @ x
    squared, length = float(x @ x), float(np.linalg.norm(measured))
    assert not 0.5 * squared <= length <= 1.5 * squared
    assert 0.5 * squared <= length**2 <= 1.5 * squared


def test_projecting_coefficients_or_data_is_decoded_differently() -> None:
    """Erratum 27: with I = Psi X the dictionary does not enter Omega; with eq. 5 it does."""
    rng = np.random.default_rng(3)
    psi, basis = rng.normal(size=(6, 8)), np.linalg.qr(rng.normal(size=(8, 8)))[0]
    data = rng.normal(size=8)
    x = basis.T @ data
    assert np.allclose(psi @ data, (psi @ basis) @ x)
    assert not np.allclose(psi @ x, (psi @ basis) @ x)


def test_every_report_changes_the_curators_sum() -> None:
    """Erratum 29: the curator reads all N reports, so the time in section 4.2 needs an N."""
    chosen = sue_from_flip(13, 0.5)
    stream = RandomStream.from_generator(np.random.default_rng(4))
    reports = kernels.randomise(chosen, np.arange(40) % 13, stream)
    whole = kernels.support(chosen, reports)
    for person in range(40):
        changed = reports.rows.copy()
        changed[person] ^= 1
        assert (kernels.support(chosen, replace(reports, rows=changed)) != whole).any()


def test_the_tables_have_the_sizes_of_the_text() -> None:
    """Errata 24, 25 and 28: TPC-E has 24 attributes, NLTCS 21,574 rows, Adult 45,222 by 15."""
    assert len(tables.TPCE) == 24
    stored = results.load()["privincr"]["figures"]
    assert {
        f["labels"].get("participants") for f in stored if f["labels"].get("dataset") == "NLTCS"
    } == {21_574}
    adult = dither.load_dataset("adult").table
    assert (adult.num_rows, adult.num_columns) == (45_222, 15)


def test_the_entropy_root_gains_little_and_cached_candidates_lose_more() -> None:
    """Erratum 12: exact networks of in-degree 2, from the stored results."""
    stored = results.load()
    for dataset in ("Adult", "NLTCS"):
        sums = {
            search: results.find(
                stored,
                "bayesnet",
                "networks",
                "sum_of_mutual_information",
                dataset=dataset,
                f=0.0,
                degree=2,
                search=search,
            )
            for search in (
                "entropy root, cached (algorithm 4)",
                "entropy root, all candidates",
                "random root, all candidates (algorithm 3)",
            )
        }
        cached, entropy, random = sums.values()
        assert 0 < entropy - random < 0.03
        assert entropy - cached > entropy - random
