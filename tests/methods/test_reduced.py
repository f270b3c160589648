"""Wide attributes and rules around every method: they run, keep what groups can tell, and restore from their state."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import dither
from dither.errors import SchemaError
from dither.fit import Ruled
from dither.methods import METHODS, restore, start
from dither.methods.reduction import (
    SETTINGS,
    coarse_groups,
    reduce_schema,
    smoothed,
)
from dither.schema import Attribute, Determines, Order, Schema, schema_from_json
from dither.simulate import simulate

RNG = np.random.default_rng


def people(values: int, rows: int, seed: int = 0) -> tuple[Schema, np.ndarray]:
    """A city, the region it lies in deciding how often somebody has a boat, and a third attribute of no interest."""
    rng = RNG(seed)
    city = np.minimum(rng.geometric(4 / values, rows) - 1, values - 1)
    boat = rng.random(rows) < np.where(city < values // 4, 0.9, 0.1)
    schema = Schema(
        (
            Attribute("city", "categorical", tuple(f"c{i}" for i in range(values))),
            Attribute("boat", "boolean", (False, True)),
            Attribute("job", "ordinal", (1, 2, 3, 4, 5)),
        )
    )
    return schema, np.stack([city, boat, rng.integers(0, 5, rows)], axis=1).astype(np.int32)


@pytest.mark.parametrize("values", [257, 300, 3000, 100_000])
def test_many_values_run_with_the_house_method(values: int) -> None:
    schema, codes = people(values, 20_000)
    machine = start("mixture", schema, 4.0, len(codes))
    simulate(machine, codes, RNG(1))
    model = machine.model()
    assert isinstance(model, Ruled) == (values > SETTINGS.wide)
    assert model.marginal(["city"]).shape == (values,)
    assert model.sample(100, RNG(2)).max() < values
    assert all(plan.epsilon <= 4.0 for plan in machine.plans)


@pytest.mark.parametrize(
    "method", [name for name in METHODS if name not in ("mixture", "independent")]
)
def test_many_values_run_with_every_method(method: str) -> None:
    schema, codes = people(3000, 8000)
    machine = start(method, schema, 4.0, len(codes))
    simulate(machine, codes, RNG(1))
    found = machine.model().marginal(["city", "boat"])
    assert found.shape == (3000, 2)
    assert found.sum() == pytest.approx(1)


def test_dependence_between_groups_is_learnt() -> None:
    """The first quarter of the cities has boats; asked alone, the city would say nothing about them."""
    schema, codes = people(2000, 60_000)
    machine = start("mixture", schema, 4.0, len(codes))
    simulate(machine, codes, RNG(1))
    table = machine.model().marginal(["city", "boat"])
    near, far = table[:500].sum(axis=0), table[500:].sum(axis=0)
    assert near[1] / near.sum() > 0.8
    assert far[1] / far.sum() < 0.2


def test_two_wide_attributes_and_groups_of_the_schemas_own() -> None:
    regions = tuple("north" if i % 2 else "south" for i in range(40))
    city = Attribute(
        "city", "categorical", tuple(f"c{i}" for i in range(40)), missing=True, groups=regions
    )
    shop = Attribute("shop", "ordinal", tuple(range(5000)))
    reduction = reduce_schema(
        Schema((city, shop, Attribute("x", "boolean", (False, True)))), pairs=True
    )
    assert reduction is not None
    assert reduction.wide == ("city", "shop")
    assert reduction.asked.cardinalities == (3, SETTINGS.groups, 2)
    assert reduction.asked["shop"].kind == "ordinal"
    assert reduction.asked["city"].kind == "categorical"
    assert reduction.asked["city"].values == ("south", "north")
    assert len(reduction.schema["shop"].groups) == 5000
    assert reduction.asked["shop"].values[0] == "0 to 156"


def test_pairs_beyond_every_mechanism_are_grouped_widest_first() -> None:
    plain = [
        Attribute(name, "ordinal", tuple(range(k)))
        for name, k in (("a", 900), ("b", 800), ("c", 100))
    ]
    reduction = reduce_schema(Schema(tuple(plain)), pairs=True)
    assert reduction is not None
    assert reduction.wide == ("a",)
    assert reduce_schema(Schema(tuple(plain[1:])), pairs=True) is None
    assert reduce_schema(Schema(tuple(plain)), pairs=False) is None


def test_state_and_reports_pass_through() -> None:
    """The same tallies from the saved state, and reports made one by one (with whole reports held out) tell the same."""
    schema, codes = people(1500, 3000)
    ruled = Schema(
        (*schema.attributes, Attribute("twice", "ordinal", (2, 4, 6, 8, 10))),
        (Determines("job", "twice", (2, 4, 6, 8, 10)),),
    )
    wide = np.concatenate([codes, codes[:, 2:]], axis=1)
    machine = start("mixture", ruled, 2.0, len(wide), holdout=0.1)
    assert machine.holdout == 0.1
    assert machine.reduction is not None
    simulate(machine, wide, RNG(3), path="reports")
    again = restore(machine.state())
    np.testing.assert_array_equal(
        again.model().marginal(["city", "twice"]), machine.model().marginal(["city", "twice"])
    )
    assert machine.diagnostics().to_json()["not_asked"] == ["twice"]
    assert machine.diagnostics().to_json()["asked_in_groups"] == ["city"]
    measured = {m.attributes: m for m in machine.measured()}
    assert measured["city",].frequencies.shape == (1500,)
    np.testing.assert_allclose(measured["twice",].frequencies, measured["job",].frequencies)
    asked = {
        name
        for plan in machine.plans
        for question in plan.questions
        for name in question.attributes
    }
    assert "twice" not in asked


@pytest.mark.parametrize("method", ["mixture", "independent"])
@pytest.mark.parametrize("holdout", [0.0, 0.1])
def test_a_finished_run_without_separate_round_keeps_its_marginals(
    method: str, holdout: float
) -> None:
    """With a stated map nothing is asked separately, and a finished run has no plan either."""
    schema = Schema(
        (Attribute("job", "ordinal", (1, 2, 3)), Attribute("high", "boolean", (False, True))),
        (Determines("job", "high", (False, False, True)),),
    )
    run = start(method, schema, 4.0, 4000, holdout=holdout)
    job = RNG(0).integers(0, 3, 4000)
    simulate(run, np.stack([job, job == 2], axis=1).astype(np.int32), RNG(1))
    assert run.plan() is None
    measured = {marginal.attributes: marginal for marginal in run.measured()}
    assert measured["job",].frequencies == pytest.approx(np.bincount(job) / 4000, abs=0.1)
    assert measured["high",].frequencies[1] == pytest.approx(measured["job",].frequencies[2])


def test_a_map_that_cannot_be_learnt_must_be_stated() -> None:
    a, b = (Attribute(name, "ordinal", tuple(range(2000))) for name in "ab")
    with pytest.raises(SchemaError, match="state the map"):
        reduce_schema(Schema((a, b), (Determines("a", "b"),)), pairs=True)


def test_contradicting_orders_are_said_before_anybody_is_asked() -> None:
    a, b = (Attribute(name, "ordinal", (1, 2)) for name in "ab")
    with pytest.raises(SchemaError, match="before itself"):
        start("mixture", Schema((a, b), (Order("a", "b"), Order("b", "a", True))), 1.0, 100)


def test_intervals_of_a_release_with_a_wide_attribute() -> None:
    schema, codes = people(1200, 4000)
    frame = pd.DataFrame(
        {
            "city": [f"c{i}" for i in codes[:, 0]],
            "boat": codes[:, 1].astype(bool),
            "job": codes[:, 2] + 1,
        }
    )
    release = dither.publish(frame, epsilon=4.0, schema=schema, seed=1, rows=500)
    assert set(release.synthetic["city"]) <= set(schema["city"].values)
    (interval,) = dither.bootstrap(release, [["boat", "job"]], replicates=5)
    assert np.isfinite(interval.standard_errors).all()


@pytest.mark.parametrize("holdout", [0.0, 0.3])
def test_a_stated_map_is_released(holdout: float) -> None:
    """Nobody is asked about what is determined, and no check of the finished release may look for such answers."""
    rng = RNG(3)
    grade, boat = rng.integers(0, 3, 4000), rng.integers(0, 2, 4000)
    schema = Schema(
        (
            Attribute("grade", "categorical", ("A", "B", "C")),
            Attribute("points", "ordinal", (1, 2, 3)),
            Attribute("boat", "boolean", (False, True)),
        ),
        (Determines("grade", "points", (1, 2, 3)),),
    )
    frame = pd.DataFrame(
        {"grade": np.array(["A", "B", "C"])[grade], "points": grade + 1, "boat": boat == 1}
    )
    release = dither.publish(
        frame,
        epsilon=6.0,
        schema=schema,
        rows=200,
        holdout=holdout,
        parameters={"total": 40, "rounds": 1},
        seed=1,
    )
    assert (
        release.synthetic["points"] == release.synthetic["grade"].map({"A": 1, "B": 2, "C": 3})
    ).all()
    assert release.query("points == 2").estimate == pytest.approx(
        release.query("grade == 'B'").estimate
    )


def test_values_of_one_group_are_not_told_apart_with_other_attributes() -> None:
    """Every second city has boats, which groups of neighbours hide: no interval may stand beside a figure that is far off."""
    rng, cities = RNG(4), 40
    city = rng.integers(0, cities, 20_000)
    boat = rng.random(len(city)) < np.where(city % 2 == 0, 0.9, 0.1)
    job = np.where(boat, rng.integers(1, 3, len(city)), rng.integers(3, 6, len(city)))
    names = tuple(f"c{i}" for i in range(cities))
    regions = tuple(f"r{i // 10}" for i in range(cities))
    schema = Schema(
        (
            Attribute("city", "categorical", names, groups=regions),
            Attribute("boat", "boolean", (False, True)),
            Attribute("job", "ordinal", (1, 2, 3, 4, 5)),
        )
    )
    frame = pd.DataFrame({"city": np.array(names)[city], "boat": boat, "job": job})
    options = {
        "parameters": {"total": 40, "rounds": 1},
        "seed": 1,
        "replicates": 5,
        "rows": 20,
    }
    release = dither.publish(frame, epsilon=6.0, schema=schema, **options)
    even = list(names[::2])
    for answer in (
        release.query({"boat": True, "city": even}),
        release.query({"boat": True}, given={"city": even}),
        release.mean("job", {"city": even}),
    ):
        assert answer.low is answer.high is answer.standard_error is None
        assert any("asked in groups" in warning.message for warning in answer.warnings)
    assert release.table(["boat"], given={"city": even}).rows[0].low is None
    joint = release.marginal(["city", "boat"])
    assert joint.standard_errors is None
    assert "asked in groups" in joint.reason
    # Alone a city is known, and with other attributes a whole region.
    alone, region = (
        release.query({"city": even}),
        release.query({"boat": True, "city": list(names[:10])}),
    )
    assert alone.low is not None
    assert region.low is not None
    assert region.low <= float((boat & (city < 10)).mean()) <= region.high
    assert release.marginal(["boat", "job"]).standard_errors is not None


@pytest.mark.parametrize(
    ("method", "told"),
    [
        pytest.param("mixture", True, marks=pytest.mark.slow),
        ("privincr", True),
        ("lopub", False),
    ],
)
def test_a_release_with_an_attribute_that_is_not_asked_is_finished(method: str, told: bool) -> None:
    city = np.random.default_rng(0).integers(0, 3, 12_000)
    table = pd.DataFrame(
        {"city": city, "state": np.array([0, 1, 1])[city], "same": city, "other": city}
    )
    rule = {"determines": "state", "by": "city", **({"outcomes": [0, 1, 1]} if told else {})}
    attributes = [
        {"name": name, "kind": "ordinal", "values": [0, 1] if name == "state" else [0, 1, 2]}
        for name in table.columns
    ]
    made = schema_from_json({"attributes": attributes, "rules": [rule]})
    release = dither.publish(table, epsilon=4, schema=made, method=method, seed=1)
    assert release.notes["not_asked"] == ["state"]
    shown = release.synthetic
    assert (np.array([0, 1, 1])[shown["city"]] == shown["state"]).all()


# Coarse grids for ordered attributes.


def fine_schema(values: int, attributes: int = 4, kind: str = "ordinal") -> Schema:
    return Schema(tuple(Attribute(f"x{i}", kind, tuple(range(values))) for i in range(attributes)))


def correlated(people: int, values: int, seed: int) -> np.ndarray:
    """Four ordered attributes with correlation 0.8, three standard deviations on each side."""
    rng = RNG([seed, 3])
    common, own = rng.standard_normal((people, 1)), rng.standard_normal((people, 4))
    line = np.sqrt(0.8) * common + np.sqrt(0.2) * own
    return np.clip((line + 3.0) / 6.0 * values, 0, values - 1).astype(np.int32)


def test_grids_follow_people_epsilon_and_order() -> None:
    schema = fine_schema(64)
    few, many, strong = (
        coarse_groups(schema, n, epsilon)["x0"]
        for n, epsilon in ((20_000, 1.0), (500_000, 1.0), (20_000, 2.5))
    )
    assert few < many
    assert few < strong
    assert coarse_groups(fine_schema(64, kind="categorical"), 20_000, 1.0) == {}
    assert coarse_groups(fine_schema(16), 20_000, 1.0) == {}
    assert coarse_groups(schema, 10**9, 4.0) == {}, "fine enough to be asked in full"


def test_ranges_of_fine_ordered_attributes_are_learnt() -> None:
    """Pairs of 4,096 cells drown in noise; on coarse grids they do not."""
    schema, codes = fine_schema(64), correlated(100_000, 64, 0)
    run = start("mixture", schema, 1.0, len(codes), {}, 1)
    simulate(run, codes, RNG(2))
    model = run.model()
    ours, product = [], []
    for i, j in combinations(range(4), 2):
        pair = [f"x{i}", f"x{j}"]
        inside = ((codes[:, i] < 32) & (codes[:, j] < 32)).mean()
        apart = (codes[:, i] < 32).mean() * (codes[:, j] < 32).mean()
        ours.append(abs(model.marginal(pair)[:32, :32].sum() - inside))
        product.append(abs(apart - inside))
    assert np.mean(ours) < 0.5 * np.mean(product)
    for question in (q for plan in run.plans for q in plan.questions):
        alone = len(question.attributes) == 1
        assert question.grouped == (() if alone else question.attributes)
    again = restore(run.state())
    assert again.model().to_bytes() == model.to_bytes()


def test_without_dependence_people_are_asked_values_in_full() -> None:
    codes = RNG(5).integers(0, 64, (60_000, 4)).astype(np.int32)
    run = start("mixture", fine_schema(64), 1.0, len(codes), {}, 1)
    simulate(run, codes, RNG(2))
    in_full = sum(
        int(n)
        for tally in run.counted
        for q, n in zip(tally.plan.questions, tally.n, strict=True)
        if not q.grouped
    )
    assert in_full > 0.6 * len(codes)


def test_smoothing_follows_the_noise_and_not_the_values() -> None:
    """A bell is smoothed; spikes are kept; the error of both is at most that of raw values."""
    rng = RNG(3)
    bell = np.exp(-0.5 * ((np.arange(64) - 30) / 9.0) ** 2)
    spikes = rng.random(64) ** 6
    for shape, gain in ((bell, 0.4), (spikes, 1.1)):
        true = shape / shape.sum()
        errors = []
        for _ in range(50):
            raw = true + 0.004 * rng.standard_normal(64)
            found = smoothed(raw, 0.004**2)
            errors.append(((found - true) ** 2).sum() / ((raw - true) ** 2).sum())
            assert found.sum() == pytest.approx(raw.sum())
        assert np.mean(errors) < gain
