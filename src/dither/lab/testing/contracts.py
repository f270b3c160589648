"""The contracts of mechanisms, methods and models, as pytest classes to subclass."""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from fractions import Fraction
from itertools import combinations
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import chi2

from dither.errors import (
    DitherError,
    InputError,
    ParameterError,
    ReportError,
    SchemaError,
    StateError,
    TooFewAnswers,
)
from dither.fit import Model, apportion, model_from_bytes
from dither.mechanisms import Mechanism, PackedReports, kernels, log_up
from dither.methods import Diagnostics, MethodRun, ProtocolMachine, restore, start
from dither.randomness import RandomStream
from dither.reports import Plan
from dither.schema import Attribute, Schema
from dither.simulate import PATHS, question_cells, simulate
from dither.tally import CountTally, RoundTally, zero
from dither.types import Codes, JsonObject

DRAWS = 4_000
# Probability that a correct mechanism fails a statistical test.
_UNLIKELY = 1e-6
SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True), missing=True),
        Attribute("c", "ordinal", (1, 2, 3, 4)),
        Attribute("d", "numeric", edges=(0.0, 1.0, 5.0)),
    )
)


class MechanismContract:
    """The contract of a mechanism.

    The exact law gives the epsilon, devices and batches follow the law, and estimates are
    unbiased. Subclass it with a fixture `mechanism` that returns a mechanism of few cells, so
    that its whole law can be written out.
    """

    @pytest.fixture
    def mechanism(self) -> Mechanism:
        """The mechanism under test."""
        raise NotImplementedError("define a fixture `mechanism`")

    def test_the_law_adds_up_to_one_and_gives_the_stated_epsilon(
        self, mechanism: Mechanism
    ) -> None:
        laws = [mechanism.law(value) for value in range(mechanism.cells)]
        assert all(sum(law.values()) == 1 for law in laws)
        assert all(set(law) == set(laws[0]) for law in laws), (
            "a report that only one value can send would identify it"
        )
        worst = max(max(law[r] for law in laws) / min(law[r] for law in laws) for r in laws[0])
        assert worst <= mechanism.ratio
        assert mechanism.epsilon >= log_up(Fraction(worst)) - 1e-12, (
            "epsilon must not be understated"
        )

    def test_length_and_randomness_do_not_depend_on_the_value(self, mechanism: Mechanism) -> None:
        for value in range(mechanism.cells):
            taken: list[int] = []

            def source(count: int, taken: list[int] = taken) -> bytes:
                taken.append(count)
                return secrets.token_bytes(count)

            report = mechanism.randomise(value, source)
            assert taken == [mechanism.draw_bytes]
            assert len(report) == mechanism.report_bytes == math.ceil(mechanism.report_bits / 8)
            mechanism.check_report(report)

    def test_devices_and_batches_follow_the_law(self, mechanism: Mechanism) -> None:
        stream = RandomStream.from_generator(np.random.default_rng(1))
        source = np.random.default_rng(2).bytes
        for value in (0, mechanism.cells - 1):
            law = mechanism.law(value)
            one = Counter(mechanism.randomise(value, source) for _ in range(DRAWS))
            batch = kernels.randomise(mechanism, np.full(DRAWS, value), stream)
            many = Counter(row.tobytes() for row in batch.rows)
            for seen in (one, many):
                assert set(seen) <= set(law), "a report that the law does not have"
                assert _distance(seen, law) < chi2.isf(_UNLIKELY, max(len(law) - 1, 1))

    def test_estimates_are_unbiased(self, mechanism: Mechanism) -> None:
        """The expected estimate under the law is the frequency of the value."""
        for value in range(mechanism.cells):
            law = mechanism.law(value)
            reports = list(law)
            rows = np.frombuffer(b"".join(reports), np.uint8).reshape(
                len(reports), mechanism.report_bytes
            )
            estimates = [
                kernels.estimate(
                    mechanism, kernels.support(mechanism, PackedReports(row[None])), 1
                ).frequencies
                for row in rows
            ]
            mean = np.asarray([float(law[r]) for r in reports]) @ np.asarray(estimates)
            np.testing.assert_allclose(mean, np.arange(mechanism.cells) == value, atol=1e-9)

    def test_simulated_counts_have_the_law_of_reports(self, mechanism: Mechanism) -> None:
        rng, n = np.random.default_rng(3), 20_000
        truth = np.bincount(rng.integers(0, mechanism.cells, n), minlength=mechanism.cells)
        estimate = kernels.estimate(mechanism, kernels.simulate(mechanism, truth, rng), n)
        assert np.abs((estimate.frequencies - truth / n) / estimate.standard_errors).max() < 5

    def test_json_survives_and_foreign_bytes_are_refused(self, mechanism: Mechanism) -> None:
        again = type(mechanism).from_json(mechanism.to_json())
        assert again == mechanism
        assert again.epsilon == mechanism.epsilon
        with pytest.raises(ReportError):
            mechanism.check_report(bytes(mechanism.report_bytes + 1))
        with pytest.raises(DitherError):
            mechanism.randomise(mechanism.cells, secrets.token_bytes)


def _distance(seen: Counter[bytes], law: dict[bytes, Fraction]) -> float:
    """Pearson's chi-square of counts against a law."""
    total = sum(seen.values())
    return float(
        sum((seen[r] - total * float(p)) ** 2 / (total * float(p)) for r, p in law.items() if p)
    )


class MethodContract:
    """The contract of a method.

    It is a pure machine that keeps epsilon, asks each participant at most once, and can be
    stopped and restored at any round. Subclass it and set `name` to the name of the method.
    Override `schema`, `people` and `settings` for a method that needs another table or has
    parameters without defaults.
    """

    name: ClassVar[str] = ""
    epsilon: ClassVar[float] = 2.0
    participants: ClassVar[int] = 20_000

    @pytest.fixture
    def method(self) -> str:
        """The method under test."""
        return self.name

    def schema(self, method: str) -> Schema:
        """The schema of the test table."""
        return SCHEMA

    def settings(self, method: str) -> JsonObject:
        """Its parameters."""
        return {}

    def tolerance(self, method: str) -> float:
        """Largest total variation distance of a single attribute from the truth."""
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
        stated = machine.diagnostics().to_json()
        assert json.loads(json.dumps(stated)) == stated
        stored = Diagnostics.from_json(stated)
        assert stored.to_json() == stated
        assert stored.fell_back == machine.diagnostics().fell_back

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
        assert stopped.diagnostics() == straight.diagnostics()

    def _answers(self, method: str, plan: Plan, rng: np.random.Generator) -> RoundTally:
        schema, codes, tally = self.schema(method), self.people(method), zero(plan)
        if plan.split:
            stream = RandomStream.from_generator(rng)
            rows = [
                kernels.randomise(q.mechanism, question_cells(schema, q, codes), stream).rows
                for q in plan.questions
            ]
            tally.add(-1, PackedReports(np.concatenate(rows, axis=1)))
            return tally
        assert isinstance(tally, CountTally)
        for i, (q, n) in enumerate(zip(plan.questions, apportion(5_000, plan.shares), strict=True)):
            counts = np.bincount(question_cells(schema, q, codes[:n]), minlength=q.mechanism.cells)
            tally.add_counts(i, kernels.simulate(q.mechanism, counts, rng), int(n))
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
        """Closing a round raises before the machine changes, so that the round can stay open."""
        schema, codes = self.schema(method), self.people(method)
        for silent in schema.names:
            machine, rng = self.begin(method), np.random.default_rng(5)
            while (plan := machine.plan()) is not None:
                if plan.split:
                    # Each participant answers about each attribute.
                    return
                tally, before = zero(plan), machine.state()
                assert isinstance(tally, CountTally)
                for i, q in enumerate(plan.questions):
                    if silent not in q.attributes:
                        counts = np.bincount(
                            question_cells(schema, q, codes[:3_000]), minlength=q.mechanism.cells
                        )
                        tally.add_counts(i, kernels.simulate(q.mechanism, counts, rng), 3_000)
                try:
                    machine.close(tally)
                except TooFewAnswers:
                    break
            assert plan is not None, f"{method} accepted rounds without an answer about {silent}"
            with pytest.raises(TooFewAnswers, match=rf"\b{silent}\b|without a single report"):
                machine.close(tally)
            assert machine.plan() == plan
            assert machine.state() == before

    def test_a_method_without_people_left_says_the_same(self, method: str) -> None:
        with pytest.raises(TooFewAnswers, match="no participants left"):
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
        """Drawing tallies and making each report give the same estimates up to noise."""
        codes, names = self.people(method), self.schema(method).names
        frequencies, errors = [], []
        for path in PATHS:
            machine = self.begin(method)
            simulate(machine, codes, np.random.default_rng(seed), path=path)
            single = {m.attributes: m for m in machine.measured() if len(m.attributes) == 1}
            frequencies.append(np.concatenate([single[(n,)].frequencies for n in names]))
            errors.append(np.concatenate([np.asarray(single[(n,)].standard_errors) for n in names]))
        # Different people answer in the two runs, which adds sampling noise: f(1-f)/n with n
        # at least an eighth of the participants.
        spread = np.sqrt(errors[0] ** 2 + errors[1] ** 2 + 2 * 0.25 / (self.participants / 8))
        assert np.abs((frequencies[0] - frequencies[1]) / spread).max() < 4.5


class ModelContract:
    """The contract of a model.

    Marginals are distributions that agree with each other and with samples, and archives
    are exact. Subclass it with a fixture `model` that returns a model of two to four small
    attributes.
    """

    @pytest.fixture
    def model(self) -> Model:
        """The model under test."""
        raise NotImplementedError("define a fixture `model`")

    def test_marginals_are_distributions_and_agree(self, model: Model) -> None:
        assert isinstance(model, Model)
        names, count = model.schema.names, len(model.schema)
        whole = model.marginal(names)
        assert whole.shape == model.schema.cardinalities
        assert (whole >= 0).all()
        assert whole.sum() == pytest.approx(1)
        for size in range(1, count):
            for positions in combinations(range(count), size):
                other = tuple(i for i in range(count) if i not in positions)
                marginal = model.marginal([names[i] for i in positions])
                np.testing.assert_allclose(marginal, whole.sum(axis=other), atol=1e-9)
        first, last = names[0], names[-1]
        np.testing.assert_allclose(
            model.marginal([last, first]), model.marginal([first, last]).T, atol=1e-12
        )

    def test_samples_follow_the_joint_distribution(self, model: Model) -> None:
        n, names = 200_000, model.schema.names
        rows = model.sample(n, np.random.default_rng(1))
        assert rows.shape == (n, len(names))
        assert rows.dtype == np.int32
        counts = np.zeros(model.schema.cardinalities)
        np.add.at(counts, tuple(rows.T), 1)
        expected = model.marginal(names)
        z = (counts / n - expected) / np.sqrt(np.maximum(expected * (1 - expected), 1e-12) / n)
        assert np.abs(z[expected * n > 10]).max() < 5
        np.testing.assert_array_equal(rows, model.sample(n, np.random.default_rng(1)))
        assert (rows != model.sample(n, np.random.default_rng(2))).any()
        assert model.sample(0, np.random.default_rng(1)).shape == (0, len(names))

    def test_archive_round_trip_is_exact(self, model: Model) -> None:
        again, pair = model_from_bytes(model.to_bytes()), model.schema.names[-2:]
        assert again.to_bytes() == model.to_bytes()
        assert again.schema == model.schema
        np.testing.assert_array_equal(again.marginal(pair), model.marginal(pair))
        np.testing.assert_array_equal(
            again.sample(50, np.random.default_rng(3)), model.sample(50, np.random.default_rng(3))
        )

    def test_marginals_that_make_no_sense_are_refused(self, model: Model) -> None:
        first = model.schema.names[0]
        with pytest.raises(ParameterError, match="twice"):
            model.marginal([first, first])
        with pytest.raises(ParameterError, match="at least one"):
            model.marginal([])
        with pytest.raises(SchemaError, match="no such name"):
            model.marginal(["no such name"])
