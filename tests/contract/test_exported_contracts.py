"""The exported contracts of mechanisms and stores accept what is right, and refuse what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dither.lab.testing import MechanismContract, StoreContract
from dither.mechanisms import GRR, Estimate, Mechanism, kernels, mechanism


class TestMechanisms(MechanismContract):
    @pytest.fixture(params=["grr", "oue", "sue", "subset"])
    def mechanism(self, request: pytest.FixtureRequest) -> Mechanism:
        return mechanism(request.param, 4, 1.2)


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
