from __future__ import annotations

import math

import numpy as np
import pytest

from dither.errors import ParameterError, PrivacyError
from dither.mechanisms import (
    GRR,
    BloomRappor,
    LocalHash,
    SubsetSelection,
    best,
    bloom_size,
    exp_down,
    independent_filter_seed,
    kernels,
    log_up,
    mechanism,
    oue,
    sue_from_flip,
)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("cells", [2, 3, 8, 16, 64, 256, 1000, 4096])
def test_best_has_the_least_total_variance_up_to_the_margin_for_subsets(
    cells: int, epsilon: float
) -> None:
    chosen = best(cells, epsilon)
    assert chosen.epsilon <= epsilon
    error = chosen.total_variance
    for name in ("grr", "sue", "oue"):
        rival = mechanism(name, cells, epsilon)
        assert error <= rival.total_variance * (1 + 1e-9)
    subset = mechanism("subset", cells, epsilon)
    assert error * 0.95 <= subset.total_variance * (1 + 1e-9)


def test_local_hashing_takes_over_beyond_4096_cells() -> None:
    assert best(4096, 1.0).name == "oue"
    assert best(4097, 1.0).name == "olh"
    assert best(4097, 1.0).report_bytes == 9
    assert best(20_000, 12.0).name == "grr"


def test_best_subset_size_is_the_best_of_all_sizes() -> None:
    for cells, epsilon in ((5, 0.5), (16, 1.0), (40, 2.0), (9, 0.1), (64, 3.0)):
        chosen = SubsetSelection.for_epsilon(cells, epsilon)
        errors = {
            w: m.total_variance
            for w in range(1, cells)
            for m in [SubsetSelection.for_epsilon(cells, epsilon, w)]
        }
        assert errors[chosen.size] == min(errors.values())


def test_variances_match_the_published_formulas() -> None:
    for epsilon in (0.5, 1.0, 3.0):
        e = math.exp(epsilon)
        assert GRR.for_epsilon(20, epsilon).variance(0.0, 100) == pytest.approx(
            (e + 18) / ((e - 1) ** 2 * 100), rel=1e-6
        )
        assert oue(20, epsilon).variance(0.0, 100) == pytest.approx(
            4 * e / ((e - 1) ** 2 * 100), rel=1e-6
        )
        root = math.exp(epsilon / 2)
        assert mechanism("sue", 20, epsilon).variance(0.0, 100) == pytest.approx(
            root / ((root - 1) ** 2 * 100), rel=1e-6
        )


def test_bloom_sizes_are_lopubs() -> None:
    bits, hashes = bloom_size(100, 0.022)
    assert bits == math.ceil(math.log(1 / 0.022) / math.log(2) ** 2 * 100)
    assert hashes == round(math.log(1 / 0.022) / math.log(2))
    built = BloomRappor.for_flip(8, 0.5, 32, 4)
    assert built.flip == pytest.approx(0.5)
    assert built.epsilon <= 2 * 4 * math.log((2 - 0.5) / 0.5) + 1e-9, (
        "LoPub's eq. 8 is an upper bound"
    )
    assert all(f.bit_count() == 4 for f in built.filters)
    with pytest.raises(ParameterError, match="false-positive"):
        bloom_size(10, 1.5)


def test_bloom_filters_are_pinned() -> None:
    """The positions come from SHA-256, so a browser finds the same ones; a change here breaks every client."""
    import hashlib

    digest = hashlib.sha256(b"dither-bloom:7:3:0").digest()
    expected = set()
    for i in range(0, 32, 4):
        if len(expected) < 3:
            expected.add(int.from_bytes(digest[i : i + 4], "little") % 40)
    built = BloomRappor.for_flip(5, 0.3, 40, 3, seed=7)
    assert {i for i in range(40) if built.filters[3] >> i & 1} == expected


def test_too_few_bloom_bits_to_tell_values_apart() -> None:
    built = BloomRappor.for_flip(20, 0.5, 6, 2)
    with pytest.raises(ParameterError, match="more bits"):
        kernels.estimate(built, np.zeros(6, np.int64), 10)


@pytest.mark.parametrize(
    ("cells", "bits", "hashes"),
    [(2, 4, 1), (4, 4, 1), (7, 8, 1), (16, 32, 4), (9, 10, 2), (30, 31, 4)],
)
def test_a_hash_seed_is_found_whose_filters_tell_all_values_apart(
    cells: int, bits: int, hashes: int
) -> None:
    def rank(seed: int) -> int:
        return int(
            np.linalg.matrix_rank(
                BloomRappor(cells, bits, hashes, 1, seed).filter_matrix().astype(float)
            )
        )

    found = independent_filter_seed(cells, bits, hashes)
    assert rank(found) == cells
    assert all(rank(seed) < cells for seed in range(found)), "the first that does"
    assert independent_filter_seed(cells, bits, hashes, found) == found
    for seed in range(found):
        with pytest.raises(ParameterError, match=f"the hash seed {seed} does not distinguish"):
            independent_filter_seed(cells, bits, hashes, seed)


def test_values_that_no_filter_tells_apart_are_refused() -> None:
    with pytest.raises(
        ParameterError, match="16 bits cannot distinguish 20 values; use at least 20 bits"
    ):
        independent_filter_seed(20, 16, 1)
    with pytest.raises(
        ParameterError, match=r"none of 1,000 hash seeds distinguishes 16 values.*use more bits"
    ):
        independent_filter_seed(16, 16, 1)
    assert BloomRappor.for_cells(2, 1.0).seed == independent_filter_seed(2, *bloom_size(2, 0.022))


def test_sue_from_flip_rounds_towards_privacy() -> None:
    built = sue_from_flip(4, 0.1)
    assert float(built.q) >= 0.05
    assert built.epsilon <= 2 * math.log(1.9 / 0.1)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), True, "1"])
def test_epsilon_must_be_a_positive_number(epsilon: object) -> None:
    with pytest.raises(PrivacyError, match="epsilon"):
        mechanism("oue", 4, epsilon)  # type: ignore[arg-type]


def test_limits_are_stated() -> None:
    with pytest.raises(ParameterError, match="131,072"):
        LocalHash.for_epsilon(131_073, 1.0)
    with pytest.raises(ParameterError, match="at least 2"):
        mechanism("grr", 1, 1.0)
    with pytest.raises(ParameterError, match="grr, sue"):
        mechanism("magic", 4, 1.0)
    with pytest.raises(PrivacyError):
        GRR.for_epsilon(60_000, 1e-9)


def test_logarithm_and_exponential_are_rounded_to_the_safe_side() -> None:
    from decimal import Decimal, localcontext
    from fractions import Fraction

    rng = np.random.default_rng(0)
    with localcontext() as context:
        context.prec = 80
        for _ in range(200):
            epsilon = float(rng.uniform(0.001, 20))
            assert exp_down(epsilon) < Fraction(Decimal(epsilon).exp())
            ratio = Fraction(int(rng.integers(2**31, 2**32)), int(rng.integers(1, 2**31)))
            exact = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
            assert Decimal(log_up(ratio)) >= exact
            assert Decimal(math.nextafter(log_up(ratio), 0)) < exact * (1 + Decimal(10) ** -20)
    assert log_up(Fraction(1)) == 0.0
