"""The exported contracts of mechanisms and stores accept what is right, and refuse what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dither.lab.testing import MechanismContract, StoreContract
from dither.mechanisms import GRR, Estimate, Mechanism, PureMechanism, kernels, mechanism
from dither.randomness import RandomStream


class TestMechanisms(MechanismContract):
    @pytest.fixture(params=["grr", "oue", "sue", "subset"])
    def mechanism(self, request: pytest.FixtureRequest) -> Mechanism:
        return mechanism(request.param, 4, 1.2)


@dataclass(frozen=True)
class Flips(PureMechanism):
    """A mechanism of a plug-in without a kernel: one bit per cell, each flipped by `flips` of 256 draws."""

    cells: int
    flips: int
    threshold_bits: int = 8
    name = "flips"

    @property
    def p(self) -> Fraction:
        return 1 - self.q

    @property
    def q(self) -> Fraction:
        return Fraction(self.flips, 256)

    @property
    def ratio(self) -> Fraction:
        return (self.p / self.q) ** 2

    @property
    def report_bits(self) -> int:
        return self.cells

    @property
    def draw_bytes(self) -> int:
        return self.cells

    def report(self, value: int, data: bytes) -> int:
        flipped = sum((draw < self.flips) << cell for cell, draw in enumerate(data))
        return flipped ^ 1 << value

    def probabilities(self, value: int) -> dict[int, Fraction]:
        law = {}
        for report in range(1 << self.cells):
            flipped = (report ^ 1 << value).bit_count()
            law[report] = self.q**flipped * self.p ** (self.cells - flipped)
        return law


class TestMechanismWithoutKernel(MechanismContract):
    """Batches of a mechanism that registers no kernel use its scalar methods."""

    @pytest.fixture
    def mechanism(self) -> Mechanism:
        return Flips(4, 70)

    def test_batches_fall_back_to_the_scalar_methods(self, mechanism: Mechanism) -> None:
        tasks: tuple[Any, ...] = (kernels.randomise, kernels.support, kernels.simulate)
        assert not any(Flips in task.registry for task in (*tasks, kernels.estimate))
        values = np.random.default_rng(5).integers(0, mechanism.cells, 200)
        seeded = [RandomStream.from_generator(np.random.default_rng(6)) for _ in range(2)]
        batch = kernels.randomise(mechanism, values, seeded[0])
        reports = [mechanism.randomise(int(value), seeded[1]) for value in values]
        assert [row.tobytes() for row in batch.rows] == reports
        assert isinstance(mechanism, Flips)
        supports = [[mechanism.supports(r, cell) for cell in range(4)] for r in reports]
        np.testing.assert_array_equal(
            kernels.support(mechanism, batch), np.sum(supports, axis=0, dtype=np.int64)
        )


class TestSqlite(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], Any]:
        sqlite = pytest.importorskip("dither.collector.sqlite")
        return lambda: sqlite.SqliteStore(str(tmp_path / "store.db"))


@dataclass(frozen=True)
class Boasting(GRR):
    """States a third of the epsilon that it spends."""

    @property
    def epsilon(self) -> float:
        return super().epsilon / 3


@dataclass(frozen=True)
class Leaning(GRR):
    """Its estimator returns the shares of the reports, noise included."""


@kernels.estimate.register(Leaning)
def _estimate_leaning(mechanism: Leaning, support: Any, n: int) -> Estimate:
    shares = np.asarray(support) / n
    return Estimate(shares, np.zeros_like(shares), n)


def _as(cls: type, base: GRR) -> Mechanism:
    return cls(**{name: getattr(base, name) for name in (field.name for field in fields(base))})


def test_a_mechanism_that_understates_its_epsilon_or_leans_is_refused() -> None:
    built = mechanism("grr", 4, 1.2)
    assert isinstance(built, GRR)
    contract = MechanismContract()
    contract.test_the_law_adds_up_to_one_and_gives_the_stated_epsilon(built)
    with pytest.raises(AssertionError, match="understated"):
        contract.test_the_law_adds_up_to_one_and_gives_the_stated_epsilon(_as(Boasting, built))
    with pytest.raises(AssertionError):
        contract.test_estimates_are_unbiased(_as(Leaning, built))
