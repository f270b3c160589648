"""The comparison without privacy: exact, and never by accident."""

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import InputError, ParameterError, PrivacyError
from dither.methods import METHODS
from dither.methods.jtree_nonprivate import (
    EPSILON,
    METHOD,
    TrueTreeParameters,
    publish_nonprivate,
    release_notes,
)

NETWORK = generate_network((3, 2, 4, 3), parents=1, strength=2.0, seed=4)
SCHEMA = NETWORK.schema
CODES = NETWORK.sample_codes(20_000, np.random.default_rng(0))


def exact(names):
    positions = [SCHEMA.index(n) for n in names]
    counts = np.zeros([SCHEMA.cardinalities[p] for p in positions])
    np.add.at(counts, tuple(CODES[:, p] for p in positions), 1)
    return counts / len(CODES)


def test_without_the_switch_it_refuses_and_names_it():
    with pytest.raises(PrivacyError, match="no_privacy"):
        publish_nonprivate(CODES, SCHEMA)
    with pytest.raises(InputError):
        publish_nonprivate(CODES, SCHEMA, TrueTreeParameters(), no_privacy=False)


def test_it_is_no_protocol_machine_and_says_what_it_is():
    model = publish_nonprivate(CODES, SCHEMA, TrueTreeParameters(phi=0.1), no_privacy=True)
    notes = release_notes(model)
    assert notes["private"] is False
    assert "not to be published" in notes["warning"]
    assert np.isinf(EPSILON)
    listed = METHODS.get(METHOD)
    assert listed is None or not hasattr(listed.load(), "plan"), (
        "nothing without privacy may pass for a machine"
    )


def test_cliques_have_the_tables_own_distributions():
    model = publish_nonprivate(CODES, SCHEMA, TrueTreeParameters(phi=0.05), no_privacy=True)
    for clique in model.tree.cliques:
        names = [SCHEMA.names[a] for a in clique]
        np.testing.assert_allclose(model.marginal(names), exact(names), atol=1e-12)
    assert len(model.tree.kept) >= 3
    independent = publish_nonprivate(CODES, SCHEMA, TrueTreeParameters(phi=1.0), no_privacy=True)
    assert independent.tree.kept == ()


def test_the_cap_drops_the_weakest_and_bad_input_is_named():
    model = publish_nonprivate(
        CODES, SCHEMA, TrueTreeParameters(phi=0.0, max_clique_cells=12), no_privacy=True
    )
    assert max(model.tree.cells(SCHEMA.cardinalities)) <= 12
    assert model.tree.dropped
    with pytest.raises(ParameterError, match="phi"):
        TrueTreeParameters(phi=2.0)
    with pytest.raises(ParameterError, match="row"):
        publish_nonprivate(CODES[:0], SCHEMA, no_privacy=True)
