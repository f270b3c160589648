"""The contract of methods (`dither.lab.testing.MethodContract`) on every method there is."""

from __future__ import annotations

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import apportion
from dither.lab.testing import SCHEMA, MethodContract
from dither.methods import HISTOGRAMS, METHODS, start
from dither.methods.histogram import HistogramMachine, consumers_from_text
from dither.schema import Schema
from dither.types import Codes, JsonObject

LOW, HIGH = 0.0, 60.0
# Who wants which bins of a number. With these `smart` makes a report of its own.
CONSUMERS = {name: "4" if name == "shp" else "3,5,7" for name in HISTOGRAMS}


class TestEveryMethod(MethodContract):
    """Tables for the methods that publish tables, a number for those that make histograms."""

    @pytest.fixture(params=METHODS | HISTOGRAMS)
    def method(self, request: pytest.FixtureRequest) -> str:
        return request.param

    def schema(self, method: str) -> Schema:
        if method not in HISTOGRAMS:
            return SCHEMA
        machine = HISTOGRAMS[method].load()
        assert issubclass(machine, HistogramMachine)
        return machine.schema_of(
            "minutes", consumers_from_text(CONSUMERS[method], LOW, HIGH), LOW, HIGH
        )

    def settings(self, method: str) -> JsonObject:
        return {"consumers": CONSUMERS[method]} if method in CONSUMERS else {}

    def people(self, method: str, n: int | None = None, seed: int = 0) -> Codes:
        """For histograms numbers of which small ones are frequent, in the bins of each attribute."""
        if method not in HISTOGRAMS:
            return super().people(method, n, seed)
        values = (
            HIGH * np.random.default_rng(seed).random(self.participants if n is None else n) ** 2
        )
        codes = [
            np.searchsorted(attribute.edges, values, "right") - 1
            for attribute in self.schema(method)
        ]
        return np.asfortranarray(np.column_stack(codes).astype(np.int32))

    def tolerance(self, method: str) -> float:
        """A square wave's estimate is smooth, and these people are not."""
        return 0.15 if method == "square-wave" else super().tolerance(method)

    def test_smart_is_tried_with_a_report_of_its_own(self) -> None:
        plan = self.begin("smart").plan()
        assert plan is not None
        assert plan.questions[0].mechanism.name == "strategy"


def test_unknown_method_lists_the_known() -> None:
    with pytest.raises(ParameterError, match="independent"):
        start("guess", SCHEMA, 1.0, 10)


def test_apportion_adds_up() -> None:
    assert apportion(10, [0.25, 0.25, 0.5]).tolist() in ([3, 2, 5], [2, 3, 5])
    assert apportion(7, [1 / 3] * 3).sum() == 7
    assert apportion(0, [0.5, 0.5]).tolist() == [0, 0]
