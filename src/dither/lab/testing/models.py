"""The contract of a model: marginals are distributions that agree with each other and with samples; archives are exact."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dither.errors import ParameterError, SchemaError
from dither.fit import Model, model_from_bytes


class ModelContract:
    """Subclass it with a fixture `model` that gives a model of two to four small attributes."""

    @pytest.fixture
    def model(self) -> Model:
        """The model under test."""
        raise NotImplementedError("give a fixture `model`")

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
