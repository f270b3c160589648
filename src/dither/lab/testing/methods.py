"""The contract of a method: a pure machine that keeps epsilon, never asks anyone twice, and can stop and go on anywhere."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from dither.errors import InputError, ParameterError, StateError, TooFewAnswers
from dither.fit import Model
from dither.fit.project import apportion
from dither.mechanisms import PackedReports
from dither.mechanisms.kernels.stream import RandomStream
from dither.methods import MethodRun, ProtocolMachine, restore, start
from dither.reports import Plan
from dither.schema import Attribute, Schema
from dither.simulate import PATHS, question_cells, simulate
from dither.tally import CountTally, RoundTally, zero
from dither.types import Codes, JsonObject

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True), missing=True),
        Attribute("c", "ordinal", (1, 2, 3, 4)),
        Attribute("d", "numeric", edges=(0.0, 1.0, 5.0)),
    )
)


class MethodContract:
    """Subclass it, set `name` to the method's, and pytest runs all of this on it.

    `schema`, `people` and `settings` may be overridden by a method that needs another table or has parameters without defaults.
    """

    name: ClassVar[str] = ""
    epsilon: ClassVar[float] = 2.0
    participants: ClassVar[int] = 20_000

    @pytest.fixture
    def method(self) -> str:
        """The method under test."""
        return self.name

    def schema(self, method: str) -> Schema:
        """What the method is tried on."""
        return SCHEMA

    def settings(self, method: str) -> JsonObject:
        """Its parameters."""
        return {}

    def tolerance(self, method: str) -> float:
        """How far a single attribute may be from the truth, in total variation."""
        return 0.1

    def people(self, method: str, n: int | None = None, seed: int = 0) -> Codes:
        """Rows in which b, c and d depend on a."""
        rng, n = np.random.default_rng(seed), self.participants if n is None else n
        a = rng.choice(3, n, p=[0.5, 0.3, 0.2])
        b = (a + rng.choice(3, n, p=[0.8, 0.1, 0.1])) % 3
        c = (a + rng.choice(4, n, p=[0.7, 0.1, 0.1, 0.1])) % 4
        d = (rng.random(n) < 0.2 + 0.3 * a).astype(int)
        return np.asfortranarray(np.column_stack([a, b, c, d]).astype(np.int32))

    def begin(self, method: str, **more: object) -> MethodRun:
        """A campaign before its first round."""
        given = self.settings(method) | more
        return start(method, self.schema(method), self.epsilon, self.participants, given, seed=3)

    def test_a_whole_campaign_keeps_epsilon_and_gives_a_model(self, method: str) -> None:
        machine, schema, codes = self.begin(method), self.schema(method), self.people(method)
        assert isinstance(machine.machine, ProtocolMachine)
        plans = simulate(machine, codes, np.random.default_rng(1))
        assert all(p.epsilon <= self.epsilon for p in plans)
        assert sum(p.population for p in plans) <= 1 + 1e-9, "rounds must share the people out"
        assert [p.round for p in plans] == list(range(len(plans)))
        assert machine.plan() is None
        model = machine.model()
        assert isinstance(model, Model)
        truth = np.bincount(codes[:, 0], minlength=schema.cardinalities[0]) / len(codes)
        assert np.abs(model.marginal(schema.names[:1]) - truth).sum() / 2 < self.tolerance(method)
        for measured in machine.measured():
            assert measured.standard_errors is not None
            assert measured.frequencies.shape == tuple(
                schema[a].cardinality for a in measured.attributes
            )
            assert measured.frequencies.shape == measured.standard_errors.shape
            assert (measured.standard_errors > 0).all()
        assert {m.attributes for m in machine.measured()} >= {(n,) for n in schema.names}

    def test_the_machine_is_pure_and_can_stop_and_go_on_anywhere(self, method: str) -> None:
        straight, stopped = self.begin(method), self.begin(method)
        rng = np.random.default_rng(2)
        while (plan := straight.plan()) is not None:
            assert straight.plan() == plan
            again = stopped.plan()
            assert again is not None
            assert again.to_json() == plan.to_json()
            tally = self._answers(method, plan, rng)
            straight.close(tally)
            stopped.close(tally)
            stopped = restore(stopped.state())
            assert stopped.state() == straight.state()
        assert stopped.model().to_bytes() == straight.model().to_bytes()

    def _answers(self, method: str, plan: Plan, rng: np.random.Generator) -> RoundTally:
        schema, codes, tally = self.schema(method), self.people(method), zero(plan)
        if plan.split:
            stream = RandomStream.from_generator(rng)
            rows = [
                q.mechanism.randomise_many(question_cells(schema, q, codes), stream).rows
                for q in plan.questions
            ]
            tally.add(-1, PackedReports(np.concatenate(rows, axis=1)))
            return tally
        assert isinstance(tally, CountTally)
        for i, (q, n) in enumerate(zip(plan.questions, apportion(5_000, plan.shares), strict=True)):
            counts = np.bincount(question_cells(schema, q, codes[:n]), minlength=q.mechanism.cells)
            tally.add_counts(i, q.mechanism.simulate(counts, rng), int(n))
        return tally

    def test_calls_out_of_order_are_refused(self, method: str) -> None:
        machine = self.begin(method)
        plan = machine.plan()
        assert plan is not None
        with pytest.raises(StateError):
            machine.model()
        with pytest.raises(TooFewAnswers, match="without a single report"):
            machine.close(zero(plan))
        other = start(
            method, self.schema(method), self.epsilon / 2, self.participants, self.settings(method)
        ).plan()
        assert other is not None
        with pytest.raises(StateError, match="another plan"):
            machine.close(zero(other))
        simulate(machine, self.people(method), np.random.default_rng(1))
        with pytest.raises(StateError, match="finished"):
            machine.close(zero(plan))

    def test_an_attribute_that_nobody_answers_is_one_error(self, method: str) -> None:
        """Raised at a closing, before the machine has changed, so that the round can stay open; never later by the fit."""
        schema, codes = self.schema(method), self.people(method)
        for silent in schema.names:
            machine, rng = self.begin(method), np.random.default_rng(5)
            while (plan := machine.plan()) is not None:
                if plan.split:  # everybody answers about everything
                    return
                tally, before = zero(plan), machine.state()
                assert isinstance(tally, CountTally)
                for i, q in enumerate(plan.questions):
                    if silent not in q.attributes:
                        counts = np.bincount(
                            question_cells(schema, q, codes[:3_000]), minlength=q.mechanism.cells
                        )
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

    def test_a_method_without_people_left_says_the_same(self, method: str) -> None:
        with pytest.raises(TooFewAnswers, match="nobody left to ask"):
            simulate(self.begin(method), self.people(method, 0), np.random.default_rng(1))

    def test_bad_parameters_are_named(self, method: str) -> None:
        with pytest.raises(ParameterError, match="nonsense"):
            self.begin(method, nonsense=1)
        with pytest.raises(InputError, match="epsilon"):
            start(method, self.schema(method), 0.0, self.participants, self.settings(method))
        with pytest.raises(ParameterError, match="participant"):
            start(method, self.schema(method), 1.0, 0, self.settings(method))

    @pytest.mark.parametrize("seed", [1, 2])
    def test_both_paths_agree_in_distribution(self, method: str, seed: int) -> None:
        """The same estimates up to noise whether tallies are drawn or every report is made."""
        codes, names = self.people(method), self.schema(method).names
        frequencies, errors = [], []
        for path in PATHS:
            machine = self.begin(method)
            simulate(machine, codes, np.random.default_rng(seed), path=path)
            single = {m.attributes: m for m in machine.measured() if len(m.attributes) == 1}
            frequencies.append(np.concatenate([single[(n,)].frequencies for n in names]))
            errors.append(np.concatenate([np.asarray(single[(n,)].standard_errors) for n in names]))
        # Different people answer in the two runs, so sampling adds to the noise: f(1-f)/n with n an eighth of all at least.
        spread = np.sqrt(errors[0] ** 2 + errors[1] ** 2 + 2 * 0.25 / (self.participants / 8))
        assert np.abs((frequencies[0] - frequencies[1]) / spread).max() < 4.5
