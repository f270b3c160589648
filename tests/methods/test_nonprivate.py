"""The comparison without privacy: exact, and never by accident."""

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import InputError, ParameterError, PrivacyError
from dither.methods import METHODS, NONPRIVATE

NETWORK = generate_network((3, 2, 4, 3), parents=1, strength=2.0, seed=4)
SCHEMA = NETWORK.schema
CODES = NETWORK.sample_codes(20_000, np.random.default_rng(0))


def exact(names):
    positions = [SCHEMA.index(n) for n in names]
    counts = np.zeros([SCHEMA.cardinalities[p] for p in positions])
    np.add.at(counts, tuple(CODES[:, p] for p in positions), 1)
    return counts / len(CODES)


def true_tree(**parameters):
    return NONPRIVATE.fit(CODES, SCHEMA, parameters, no_privacy=True).model


def test_without_the_switch_it_refuses_and_names_it():
    with pytest.raises(PrivacyError, match="no_privacy"):
        NONPRIVATE.fit(CODES, SCHEMA, {})
    with pytest.raises(InputError):
        NONPRIVATE.fit(CODES, SCHEMA, {}, no_privacy=False)


def test_it_is_no_protocol_machine_and_says_what_it_is():
    notes = NONPRIVATE.fit(CODES, SCHEMA, {}, no_privacy=True).diagnostics.to_json()
    assert notes["private"] is False
    assert "not to be published" in notes["warning"]
    assert NONPRIVATE.name not in METHODS, "nothing without privacy may pass for a machine"


def test_cliques_have_the_tables_own_distributions():
    model = true_tree(phi=0.05)
    for clique in model.tree.cliques:
        names = [SCHEMA.names[a] for a in clique]
        np.testing.assert_allclose(model.marginal(names), exact(names), atol=1e-12)
    assert len(model.tree.kept) >= 3
    independent = true_tree(phi=1.0)
    assert independent.tree.kept == ()


def test_the_cap_drops_the_weakest_and_bad_input_is_named():
    model = true_tree(phi=0.0, max_clique_cells=12)
    assert max(model.tree.cells(SCHEMA.cardinalities)) <= 12
    assert model.tree.dropped
    with pytest.raises(ParameterError, match="phi"):
        true_tree(phi=2.0)
    with pytest.raises(ParameterError, match="row"):
        NONPRIVATE.fit(CODES[:0], SCHEMA, {}, no_privacy=True)
