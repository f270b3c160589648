"""CSM's parts as its paper has them: Fourier rows, a non-orthogonal dictionary, algorithm 1."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import dither
from dither.central.csm import CsmParameters, pursue
from dither.central.records import RecordParameters, code_sensitivity, record_sensing
from dither.central.sensing import DenseSensing, sensing
from dither.central.sparse import UNION, dictionary
from dither.schema import Attribute, Schema


def test_fourier_rows_are_nearly_orthogonal_and_rounded_to_the_grid():
    drawn = sensing("fourier", 16, 16, np.random.default_rng(1))
    assert isinstance(drawn, DenseSensing)
    gram = drawn.matrix.astype(float) @ drawn.matrix.T / drawn.unit**2
    assert np.abs(gram - 16 * np.eye(16)).max() < 0.1


def test_the_sensitivity_of_fourier_rows_is_that_of_their_integers():
    drawn = sensing("fourier", 5, 9, np.random.default_rng(2))
    columns = drawn.matrix.astype(np.int64).T
    assert drawn.sensitivity("add-remove") == np.abs(columns).sum(axis=1).max()
    distances = [np.abs(a - b).sum() for a, b in product(columns, repeat=2)]
    assert drawn.sensitivity("replace") == max(distances)


def test_the_union_of_two_bases_is_analysed_by_its_transpose():
    basis, rng = dictionary(UNION), np.random.default_rng(3)
    x, c = rng.normal(size=8), rng.normal(size=basis.atoms(8))
    assert basis.analyse(x) @ c == pytest.approx(x @ basis.synthesise(c))
    assert not basis.orthonormal


def test_a_step_and_a_wave_are_sparse_only_in_the_union():
    """Eq. 4: in a non-orthogonal dictionary few atoms suffice where neither basis is sparse."""
    size = 64
    wave = dictionary("dct").synthesise(5.0 * np.eye(size)[7])
    step = dictionary("haar").synthesise(4.0 * np.eye(size)[1])
    cells = 100 * np.asarray(wave + step)
    matrix = sensing("fourier", 40, size, np.random.default_rng(4))
    errors = {}
    for name in ("dct", "haar", UNION):
        found, atoms = pursue(matrix, dictionary(name), matrix.forward(cells), 0.0, 2)
        assert atoms == 2
        errors[name] = np.abs(found - cells).max()
    assert errors[UNION] < 1 < min(errors["dct"], errors["haar"])


@pytest.mark.parametrize("measurement", ["gaussian", "bernoulli", "hadamard", "fourier"])
def test_csm_releases_with_every_matrix_of_the_paper(measurement):
    table = dither.load_dataset("adult").table.select(["sex", "race"]).slice(0, 2000)
    given = {"measurement": measurement, "dictionary": UNION}
    release = dither.central_release(
        table, epsilon=1.0, method="csm", as_published=True, parameters=given, seed=1
    )
    assert release.epsilon_achieved <= 1.0
    assert release.parameters["measurement"] == measurement


@pytest.mark.parametrize(
    ("basis", "recovered"), [("dct", True), ("haar", True), ("identity", False)]
)
def test_algorithm_1_recovers_all_ones_records_without_noise(basis, recovered):
    """Erratum 15: what failed in an earlier version was our own centring, not the algorithm."""
    parameters = RecordParameters(tau=0.5, form="paper", dictionary=basis)
    drawn = record_sensing(16, parameters, np.random.default_rng(5))
    ones = np.ones((3, 16), dtype=np.int64)
    found = np.rint(drawn.decode((ones @ drawn.matrix.T).astype(float)))
    assert bool((found == ones).all()) is recovered


def test_the_sensitivity_of_algorithm_1_is_the_largest_over_all_pairs_of_records():
    sizes = (2, 3, 4)
    matrix = record_sensing(3, RecordParameters(tau=0.7), np.random.default_rng(6)).matrix
    records = [np.array(record) for record in product(*map(range, sizes))]
    largest = max(np.abs(matrix @ (a - b)).sum() for a in records for b in records)
    assert code_sensitivity(matrix, sizes) == (largest, True)
    bound, exact = code_sensitivity(np.ones((1, 20), dtype=np.int64), (2,) * 20)
    assert (bound, exact) == (20, False)


def test_records_as_published_are_far_off_at_an_ordinary_epsilon():
    rng = np.random.default_rng(7)
    names = [f"a{i}" for i in range(8)]
    schema = Schema(tuple(Attribute(n, "categorical", ("no", "yes")) for n in names))
    table = {n: np.where(rng.random(4000) < 0.1, "yes", "no") for n in names}
    pandas = pytest.importorskip("pandas")
    errors = []
    for as_published in (True, False):
        release = dither.central_release(
            pandas.DataFrame(table),
            schema=schema,
            epsilon=4.0,
            method="csm-records",
            as_published=as_published,
            seed=1,
        )
        assert release.epsilon_achieved <= 4.0
        shares = [(release.synthetic[n] == "yes").mean() for n in names]
        errors.append(np.abs(np.array(shares) - 0.1).mean())
    assert errors[0] > 0.2 > 4 * errors[1]


def test_the_automatic_dictionary_stays_orthonormal():
    assert CsmParameters().dictionary == "automatic"
    with pytest.raises(dither.errors.ParameterError):
        CsmParameters(dictionary="fourier")  # type: ignore[arg-type]
