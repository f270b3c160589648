"""`effort=thorough`: a smaller error from the same reports, said in the release, and left out where it does not pay."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import ParameterError
from dither.evaluation import marginal
from dither.methods import restore, start
from dither.simulate import simulate


def pair_error(
    model: object, codes: np.ndarray, sizes: tuple[int, ...], names: tuple[str, ...]
) -> float:
    found = [
        np.abs(model.marginal([names[i], names[j]]) - marginal(codes, sizes, (i, j))).sum() / 2  # type: ignore[attr-defined]
        for i, j in combinations(range(len(sizes)), 2)
    ]
    return float(np.mean(found))


@pytest.mark.slow
def test_thorough_errs_less_on_the_same_reports() -> None:
    network = generate_network([4] * 8, parents=1, strength=0.8, seed=3)
    codes = network.sample_codes(60_000, np.random.default_rng(1))
    parameters = {"screen": "never", "edges": "none"}
    machine = start("mixture", network.schema, 2.0, len(codes), parameters, seed=4)
    simulate(machine, codes, np.random.default_rng(2))
    thorough = start(
        "mixture", network.schema, 2.0, len(codes), {**parameters, "effort": "thorough"}, seed=4
    )
    thorough.close(machine.closed[0])
    sizes, names = tuple(network.schema.cardinalities), tuple(network.schema.names)
    quick, slow = (pair_error(m.model(), codes, sizes, names) for m in (machine, thorough))
    assert slow < 0.97 * quick
    said = thorough.diagnostics().to_json()["fit"]["bayesian_member"]
    assert 0.25 <= said["share"] <= 0.75
    assert said["mixing"] < 1.3
    assert "bayesian_member" not in machine.diagnostics().to_json()["fit"]
    again = restore(thorough.state())
    assert again.machine.parameters == thorough.machine.parameters


def test_where_sets_are_asked_the_member_is_left_out_with_a_reason() -> None:
    network = generate_network([2] * 6, parents=1, strength=1.5, seed=1)
    codes = network.sample_codes(20_000, np.random.default_rng(1))
    machine = start(
        "mixture", network.schema, 4.0, len(codes), {"effort": "thorough", "total": 60}, seed=4
    )
    simulate(machine, codes, np.random.default_rng(2))
    assert any(len(q.attributes) > 2 for plan in machine.plans for q in plan.questions)
    said = machine.diagnostics().to_json()["fit"]["bayesian_member"]
    assert said["share"] == 0.0
    assert "sets of three" in said["left_out"]


def test_an_effort_that_does_not_exist_is_refused_by_name() -> None:
    schema = generate_network([2] * 3, seed=1).schema
    with pytest.raises(ParameterError, match="effort=hard: must be one of quick, thorough"):
        start("mixture", schema, 1.0, 100, {"effort": "hard"})
