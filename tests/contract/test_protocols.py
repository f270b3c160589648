"""One contract for all methods: pure machines that keep epsilon, never ask anyone twice, and can stop and go on anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from dither.errors import InputError, ParameterError, StateError, TooFewAnswers
from dither.estimate.project import apportion
from dither.models import Model
from dither.protocols import HISTOGRAMS, METHODS, ProtocolMachine, restore, start
from dither.protocols.histogram.machine import HistogramMachine, consumers_from_text
from dither.schema import Attribute, Schema
from dither.simulate import question_cells, simulate
from dither.tally import zero

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True), missing=True),
        Attribute("c", "ordinal", (1, 2, 3, 4)),
        Attribute("d", "numeric", edges=(0.0, 1.0, 5.0)),
    )
)
EPSILON = 2.0
N = 20_000
LOW, HIGH = 0.0, 60.0
# Who wants which bins of a number. With these `smart` makes a report of its own.
CONSUMERS = {name: "4" if name == "shp" else "3,5,7" for name in HISTOGRAMS}


def schema_of(method: str) -> Schema:
    """What a method is tried on: a small table, or a number."""
    if method not in HISTOGRAMS:
        return SCHEMA
    machine = HISTOGRAMS[method].load()
    assert issubclass(machine, HistogramMachine)
    return machine.schema_of("minutes", consumers_from_text(CONSUMERS[method], LOW, HIGH), LOW, HIGH)


def people(method: str, n: int = N, seed: int = 0) -> np.ndarray:
    """Rows in which b, c and d depend on a; or numbers of which small ones are frequent, in the bins of each attribute."""
    rng = np.random.default_rng(seed)
    if method in HISTOGRAMS:
        values = HIGH * rng.random(n) ** 2
        codes = [np.searchsorted(attribute.edges, values, "right") - 1 for attribute in schema_of(method)]
        return np.asfortranarray(np.column_stack(codes).astype(np.int32))
    a = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    b = (a + rng.choice(3, n, p=[0.8, 0.1, 0.1])) % 3
    c = (a + rng.choice(4, n, p=[0.7, 0.1, 0.1, 0.1])) % 4
    d = (rng.random(n) < 0.2 + 0.3 * a).astype(int)
    return np.asfortranarray(np.column_stack([a, b, c, d]).astype(np.int32))


@pytest.fixture(params=METHODS | HISTOGRAMS)
def method(request: pytest.FixtureRequest) -> str:
    return request.param


def begin(method: str, **more: object) -> ProtocolMachine:
    return start(method, schema_of(method), EPSILON, N, settings_of(method) | more, seed=3)


def settings_of(method: str) -> dict[str, object]:
    return {"consumers": CONSUMERS[method]} if method in CONSUMERS else {}


def test_a_whole_campaign_keeps_epsilon_and_gives_a_model(method: str) -> None:
    machine, schema, codes = begin(method), schema_of(method), people(method)
    assert isinstance(machine, ProtocolMachine)
    plans = simulate(machine, codes, np.random.default_rng(1))
    assert all(p.epsilon <= EPSILON for p in plans)
    assert sum(p.population for p in plans) <= 1 + 1e-9, "rounds must share the people out"
    assert [p.round for p in plans] == list(range(len(plans)))
    assert machine.plan() is None
    model = machine.model()
    assert isinstance(model, Model)
    truth = np.bincount(codes[:, 0], minlength=schema.cardinalities[0]) / N
    smooth = 0.05 if method == "square-wave" else 0.0  # its estimate is smooth, and these people are not
    assert np.abs(model.marginal(schema.names[:1]) - truth).sum() / 2 < 0.1 + smooth
    for measured in machine.measured():
        assert measured.frequencies.shape == tuple(schema[a].cardinality for a in measured.attributes)
        assert measured.frequencies.shape == measured.standard_errors.shape
        assert (measured.standard_errors > 0).all()
    assert {m.attributes for m in machine.measured()} >= {(n,) for n in schema.names}


def test_smart_is_tried_with_a_report_of_its_own() -> None:
    plan = begin("smart").plan()
    assert plan is not None
    assert plan.questions[0].mechanism.name == "strategy"


def test_the_machine_is_pure_and_can_stop_and_go_on_anywhere(method: str) -> None:
    straight, stopped = begin(method), begin(method)
    rng = np.random.default_rng(2)
    schema, codes = schema_of(method), people(method)
    while (plan := straight.plan()) is not None:
        assert straight.plan() == plan
        assert stopped.plan() is not None
        assert stopped.plan().to_json() == plan.to_json()
        tally = zero(plan)
        if plan.split:
            from dither.mechanisms import PackedReports
            from dither.mechanisms.kernels.stream import RandomStream

            stream = RandomStream.from_generator(rng)
            rows = [q.mechanism.randomise_many(question_cells(schema, q, codes), stream).rows for q in plan.questions]
            tally.add(-1, PackedReports(np.concatenate(rows, axis=1)))
        else:
            for i, (q, n) in enumerate(zip(plan.questions, apportion(5_000, plan.shares), strict=True)):
                counts = np.bincount(question_cells(schema, q, codes[:n]), minlength=q.mechanism.cells)
                tally.add_counts(i, q.mechanism.simulate(counts, rng), int(n))
        straight.close(tally)
        stopped.close(tally)
        stopped = restore(stopped.state())
        assert stopped.state() == straight.state()
    assert stopped.model().to_bytes() == straight.model().to_bytes()


def test_calls_out_of_order_are_refused(method: str) -> None:
    machine = begin(method)
    plan = machine.plan()
    assert plan is not None
    with pytest.raises(StateError):
        machine.model()
    with pytest.raises(TooFewAnswers, match="without a single report"):
        machine.close(zero(plan))
    other = start(method, schema_of(method), EPSILON / 2, N, settings_of(method)).plan()
    assert other is not None
    with pytest.raises(StateError, match="another plan"):
        machine.close(zero(other))
    simulate(machine, people(method), np.random.default_rng(1))
    with pytest.raises(StateError, match="finished"):
        machine.close(zero(plan))


@pytest.mark.parametrize(("method", "silent"), [(m, n) for m in METHODS | HISTOGRAMS for n in schema_of(m).names])
def test_an_attribute_that_nobody_answers_is_one_error_whatever_the_method(method: str, silent: str) -> None:
    """Raised at a closing, before the machine has changed, so that the round can stay open; never later by the fit."""
    machine, rng, codes = begin(method), np.random.default_rng(5), people(method)
    schema = schema_of(method)
    while (plan := machine.plan()) is not None:
        if plan.split:  # everybody answers about everything
            return
        tally, before = zero(plan), machine.state()
        for i, q in enumerate(plan.questions):
            if silent not in q.attributes:
                counts = np.bincount(question_cells(schema, q, codes[:3_000]), minlength=q.mechanism.cells)
                tally.add_counts(i, q.mechanism.simulate(counts, rng), 3_000)
        try:
            machine.close(tally)
        except TooFewAnswers:
            break
    assert plan is not None, f"{method} took rounds in which nobody answered about {silent}"
    with pytest.raises(TooFewAnswers, match=rf"\b{silent}\b|without a single report"):
        machine.close(tally)
    assert machine.plan() == plan
    assert machine.state() == before


def test_a_method_without_people_left_says_the_same(method: str) -> None:
    with pytest.raises(TooFewAnswers, match="nobody left to ask"):
        simulate(begin(method), people(method, 0), np.random.default_rng(1))


def test_bad_parameters_are_named(method: str) -> None:
    with pytest.raises(ParameterError, match="nonsense"):
        begin(method, nonsense=1)
    with pytest.raises(InputError, match="epsilon"):
        start(method, schema_of(method), 0.0, N, settings_of(method))
    with pytest.raises(ParameterError, match="participant"):
        start(method, schema_of(method), 1.0, 0, settings_of(method))


def test_unknown_method_lists_the_known() -> None:
    with pytest.raises(ParameterError, match="independent"):
        start("guess", SCHEMA, 1.0, 10)


@pytest.mark.parametrize("seed", [1, 2])
def test_both_paths_agree_in_distribution(method: str, seed: int) -> None:
    """The same estimates up to noise whether tallies are drawn or every report is made."""
    codes, names = people(method), schema_of(method).names
    frequencies, errors = [], []
    for path in ("counts", "reports"):
        machine = begin(method)
        simulate(machine, codes, np.random.default_rng(seed), path=path)
        single = {m.attributes: m for m in machine.measured() if len(m.attributes) == 1}
        frequencies.append(np.concatenate([single[(n,)].frequencies for n in names]))
        errors.append(np.concatenate([single[(n,)].standard_errors for n in names]))
    # Different people answer in the two runs, so sampling adds to the noise: f(1-f)/n with n a quarter of all at least.
    spread = np.sqrt(errors[0] ** 2 + errors[1] ** 2 + 2 * 0.25 / (N / 8))
    assert np.abs((frequencies[0] - frequencies[1]) / spread).max() < 4.5


def test_apportion_adds_up() -> None:
    assert apportion(10, [0.25, 0.25, 0.5]).tolist() in ([3, 2, 5], [2, 3, 5])
    assert apportion(7, [1 / 3] * 3).sum() == 7
    assert apportion(0, [0.5, 0.5]).tolist() == [0, 0]
