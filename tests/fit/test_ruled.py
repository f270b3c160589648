"""Models that keep rules: marginals against brute force over every record, and rows that never break one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import StateError
from dither.fit import BayesNet, Independent, Model, Ruled, model_from_bytes
from dither.schema import Attribute, Determines, Impossible, Order, Schema, Sum, all_orders, broken

RNG = np.random.default_rng


def network(schema: Schema, seed: int) -> BayesNet:
    made = generate_network(list(schema.cardinalities), seed=seed)
    return BayesNet(schema, made.parents, made.conditionals)


def listed(name: str, count: int, missing: bool = False, **more: object) -> Attribute:
    return Attribute(name, "ordinal", tuple(range(count)), missing=missing, **more)  # type: ignore[arg-type]


def wide_case() -> Ruled:
    """Six attributes: one determined by another, one by that in turn, one asked in groups, orders, a sum, what is impossible."""
    city = listed("city", 7, groups=("N", "N", "S", "S", "S", "N", "W"))
    attributes = (
        listed("a", 4),
        listed("b", 4, missing=True),
        listed("c", 6),
        listed("d", 3),
        listed("e", 2),
        city,
    )
    rules = (
        Determines("a", "d", (2, 0, 1, 0)),
        Determines("d", "e", (1, 0, 1)),
        Order("a", "b"),
        Sum(("a", "d"), "c"),
        Impossible((("city", (0, 6)), ("a", (3,)))),
    )
    schema = Schema(attributes, rules)
    groups = Attribute("city", "categorical", city.group_names)
    core = network(Schema((attributes[0], attributes[1], attributes[2], groups)), 3)
    share = RNG(1).random(7)
    of = np.asarray(city.group_codes)
    within = share / np.bincount(of, share)[of]
    return Ruled(
        schema, core, {"city": within}, {"d": np.array([2, 0, 1, 0]), "e": np.array([1, 0, 1])}
    )


def brute(model: Ruled) -> np.ndarray:
    """The probability of every record: the core's times the share within the group, zero where a rule is broken."""
    schema = model.schema
    joint = model.core.marginal(model.core.schema.names)
    out = np.zeros(schema.cardinalities)
    groups = schema["city"].group_codes
    d_of, e_of = model.outcomes["d"], model.outcomes["e"]
    for a, b, c, city in product(*(range(schema[n].cardinality) for n in ("a", "b", "c", "city"))):
        d = int(d_of[a])
        keeps = (b == 4 or a <= b) and a + d == c and not (city in (0, 6) and a == 3)
        out[a, b, c, d, e_of[d], city] = (
            keeps * joint[a, b, c, groups[city]] * model.within["city"][city]
        )
    return out / out.sum()


@pytest.mark.parametrize(
    "names",
    [
        ["a"],
        ["b"],
        ["c"],
        ["d"],
        ["e"],
        ["city"],
        ["city", "a"],
        ["e", "d"],
        ["d", "b", "city"],
        ["c", "e"],
        ["b", "a"],
    ],
)
def test_marginals_are_those_of_brute_force(names: list[str]) -> None:
    model = wide_case()
    whole = brute(model)
    axes = [model.schema.index(name) for name in names]
    expected = np.transpose(
        whole.sum(axis=tuple(i for i in range(6) if i not in axes)), np.argsort(np.argsort(axes))
    )
    np.testing.assert_allclose(model.marginal(names), expected, atol=1e-12)


def test_rows_follow_the_same_law_and_break_no_rule() -> None:
    model = wide_case()
    rows = model.sample(20_000, RNG(5))
    assert not broken(model.schema, rows).any()
    for names in (["a", "b"], ["city"], ["e", "c"]):
        expected = model.marginal(names)
        found = np.zeros_like(expected)
        np.add.at(found, tuple(rows[:, model.schema.index(n)] for n in names), 1 / len(rows))
        # Each cell is binomial: five standard deviations, and a little for cells that are hardly ever hit.
        assert (np.abs(found - expected) < 5 * np.sqrt(expected / len(rows)) + 1e-4).all()
    assert broken(model.schema, RNG(6).integers(0, 2, rows.shape)).any(), (
        "the check sees rows that do break them"
    )
    np.testing.assert_array_equal(rows, wide_case().sample(20_000, RNG(5)))


def test_a_saved_model_is_the_same() -> None:
    model = wide_case()
    again = model_from_bytes(model.to_bytes())
    assert isinstance(again, Model)
    assert isinstance(again, Ruled)
    assert again.schema.fingerprint == model.schema.fingerprint
    np.testing.assert_array_equal(again.marginal(["city", "e"]), model.marginal(["city", "e"]))
    np.testing.assert_array_equal(again.sample(50, RNG(0)), model.sample(50, RNG(0)))


def test_impossible_cells_are_exactly_zero() -> None:
    model = wide_case()
    assert (model.marginal(["a", "city"])[3, [0, 6]] == 0).all()
    assert (model.marginal(["a", "b"])[np.tril_indices(4, -1)] == 0).all()


def test_rules_that_leave_nothing_are_said() -> None:
    schema = Schema((listed("a", 2), listed("b", 2)), (Impossible((("a", (0, 1)), ("b", (0, 1)))),))
    core = Independent(Schema(schema.attributes), (np.array([0.5, 0.5]), np.array([0.5, 0.5])))
    with pytest.raises(StateError, match="rules"):
        Ruled(schema, core).marginal(["a"])
    with pytest.raises(StateError, match="rules"):
        Ruled(schema, core).sample(5, RNG(0))


def test_too_many_cells_condition_on_the_near_rules_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wide_case()
    monkeypatch.setattr("dither.fit.ruled.MAX_CELLS", 30)
    found = model.marginal(["a", "city"])
    assert (found[3, [0, 6]] == 0).all()
    assert found.sum() == pytest.approx(1)


def test_orders_that_follow_are_found() -> None:
    found = {
        (o.low, o.high): o.strict
        for o in all_orders((Order("a", "b"), Order("b", "c", True), Order("c", "d")))
    }
    assert found == {
        ("a", "b"): False,
        ("b", "c"): True,
        ("c", "d"): False,
        ("a", "c"): True,
        ("b", "d"): True,
        ("a", "d"): True,
    }
