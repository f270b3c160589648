"""Methods offer every mechanism of the registry that marginals can be read off, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.mechanisms import NAMES, POOLED_NAMES
from dither.methods import start
from dither.schema import Attribute, Schema
from dither.simulate import simulate

SCHEMA = Schema(
    (
        Attribute("a", "ordinal", (1, 2, 3)),
        Attribute("b", "ordinal", (1, 2)),
        Attribute("c", "ordinal", (1, 2)),
    )
)
METHODS = [
    ("independent", {}),
    ("calm", {}),
    ("privincr", {"rounds": 2}),
    ("bayesnet", {"plan": "sample"}),
]


@pytest.mark.parametrize(("method", "given"), METHODS)
@pytest.mark.parametrize("name", POOLED_NAMES)
def test_every_offered_mechanism_serves(method: str, given: dict[str, object], name: str) -> None:
    rng = np.random.default_rng(4)
    codes = np.column_stack(
        [rng.choice(3, 20_000, p=[0.6, 0.3, 0.1]), *rng.integers(0, 2, (2, 20_000))]
    )
    machine = start(method, SCHEMA, 4.0, len(codes), {**given, "mechanism": name}, 1)
    plans = simulate(machine, codes, rng)
    asked = {question.mechanism.name for plan in plans for question in plan.questions}
    assert name == "best" or asked == {name}
    truth = np.bincount(codes[:, 0], minlength=3) / len(codes)
    (measured,) = (m for m in machine.measured() if m.attributes == ("a",))
    total = measured.variances + truth * (1 - truth) / measured.n
    assert np.all(np.abs(measured.frequencies - truth) < 5 * np.sqrt(total))
    assert np.abs(machine.model().marginal(["a"]) - truth).max() < 0.1


@pytest.mark.parametrize("method", [method for method, _ in METHODS])
@pytest.mark.parametrize("name", [*(set(NAMES) - set(POOLED_NAMES)), "strategy", "nothing"])
def test_others_are_refused_with_the_list(method: str, name: str) -> None:
    with pytest.raises(ParameterError, match=f"mechanism must be one of grr, .*best, not '{name}'"):
        start(method, SCHEMA, 1.0, 1_000, {"mechanism": name})
