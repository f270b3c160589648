"""The parameter `edges` of the house method: what it takes, what it refuses, and what a release says of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dither.errors import DitherError, ParameterError, SchemaError
from dither.fit.mixture.model import Mixture
from dither.methods import MethodRun, restore, start
from dither.schema import Attribute, Schema
from dither.simulate import simulate

SIZES = (10, 10, 3, 4, 2, 5, 4)
NAMES = ("code", "label", "c", "d", "e", "f", "g")
SCHEMA = Schema(
    tuple(
        Attribute(n, "categorical", tuple(f"v{v}" for v in range(k)))
        for n, k in zip(NAMES, SIZES, strict=True)
    )
)


def people(n: int, seed: int) -> np.ndarray:
    """`label` is `code` by another name; the rest follows a hidden class a little."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 2, n)
    codes = np.stack([rng.binomial(k - 1, 0.35 + 0.25 * hidden) for k in SIZES], axis=1).astype(
        np.int32
    )
    codes[:, 1] = codes[:, 0] * 3 % 10
    return np.asfortranarray(codes)


def finished(edges: Any = "auto", n: int = 60_000, epsilon: float = 2.0) -> MethodRun:
    machine = start(
        "mixture", SCHEMA, epsilon, n, {"edges": edges, "screen": "never", "total": 60}, seed=1
    )
    simulate(machine, people(n, 2), np.random.default_rng(3))
    return machine


def broken(model: Mixture) -> float:
    """The share of rows whose label is not that of their code."""
    table = model.marginal(["code", "label"])
    return float(1.0 - table[np.arange(10), np.arange(10) * 3 % 10].sum())


def test_the_fit_finds_the_pair_and_says_so() -> None:
    machine, plain = finished(), finished("none")
    fit = machine.diagnostics().to_json()["fit"]
    assert fit["edges"] == [["code", "label"]]
    assert fit["local"][0]["pair"] == ["code", "label"]
    assert fit["local"][0]["cells"] == 100
    worst = plain.diagnostics().to_json()["fit"]["local"][0]
    assert worst["pair"] == ["code", "label"]
    assert fit["local"][0]["chi2"] < worst["chi2"] - np.sqrt(200)
    assert {"chi2", "degrees_of_freedom", "sure", "cells"} <= fit.keys()
    assert (
        json.loads(json.dumps(machine.diagnostics().to_json())) == machine.diagnostics().to_json()
    )
    assert plain.diagnostics().to_json()["fit"]["edges"] == []
    model, loose = machine.model(), plain.model()
    assert isinstance(model, Mixture)
    assert isinstance(loose, Mixture)
    assert not loose.edges
    assert broken(model) < 0.5 * broken(loose)
    rows = model.sample(50_000, np.random.default_rng(0))
    share = float((rows[:, 1] != rows[:, 0] * 3 % 10).mean())
    assert abs(share - broken(model)) < 5 * np.sqrt(broken(model) / 50_000)


def test_given_edges_are_fitted_without_looking_for_others() -> None:
    as_chosen = finished([["label", "code"]])
    assert as_chosen.diagnostics().to_json()["fit"]["edges"] == [["code", "label"]]
    assert broken(as_chosen.model()) < 0.1
    assert finished([["c", "g"]]).diagnostics().to_json()["fit"]["edges"] == [["c", "g"]]
    again = restore(as_chosen.state())
    assert again.model().to_bytes() == as_chosen.model().to_bytes()
    text = start("mixture", SCHEMA, 1.0, 1000, {"edges": '[["code", "label"], ["c", "d"]]'})
    assert text.machine.parameters.edges == (("code", "label"), ("c", "d"))


def test_whole_tables_are_fitted_with_edges_too() -> None:
    machine = start(
        "mixture",
        SCHEMA,
        8.0,
        20_000,
        {"edges": [["code", "label"]], "screen": "never", "total": 60},
        seed=1,
    )
    simulate(machine, people(20_000, 2), np.random.default_rng(3))
    assert any(len(q.attributes) > 2 for plan in machine.plans for q in plan.questions)
    model = machine.model()
    assert isinstance(model, Mixture)
    assert broken(model) < 0.05
    assert machine.diagnostics().to_json()["fit"]["edges"] == [["code", "label"]]


def test_two_edges_may_share_an_attribute() -> None:
    machine = finished([["code", "label"], ["c", "label"]])
    assert machine.diagnostics().to_json()["fit"]["edges"] == [["code", "label"], ["label", "c"]]
    model = machine.model()
    assert isinstance(model, Mixture)
    assert [len(edge.attributes) for edge in model.edges] == [3]
    fitted = machine.machine._fitted.pairs  # type: ignore[attr-defined]
    for first, second in (("code", "label"), ("label", "c"), ("code", "c"), ("c", "d")):
        i, j = (machine.machine._targets.columns.of(SCHEMA.index(name)) for name in (first, second))  # type: ignore[attr-defined]
        np.testing.assert_allclose(model.marginal([first, second]), fitted[i, j], atol=1e-9)


@pytest.mark.parametrize(
    ("edges", "error", "words"),
    [
        ("always", ParameterError, "auto, none"),
        ([["code", "nothing"]], SchemaError, "nothing"),
        (
            [["code", "label"], ["label", "c"], ["c", "d"], ["d", "e"]],
            ParameterError,
            "'d' too often",
        ),
        ([["code", "label"], ["label", "c"], ["label", "d"]], ParameterError, "'label' too often"),
        ([["code", "label"], ["label", "code"]], ParameterError, "'label' too often"),
        ([["code", "code"]], ParameterError, "'code' too often"),
        ([["code"]], ParameterError, "list of pairs"),
        ([[1, 2]], ParameterError, "list of pairs"),
        ("[[", ParameterError, "list of pairs"),
        (3, ParameterError, "list of pairs"),
    ],
)
def test_what_is_no_set_of_edges_is_refused_before_anybody_is_asked(
    edges: object, error: type[DitherError], words: str
) -> None:
    with pytest.raises(error, match=words):
        start("mixture", SCHEMA, 1.0, 1000, {"edges": edges})
