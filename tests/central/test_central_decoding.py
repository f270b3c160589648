"""Decoders and fast transforms against slow, obvious references."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.linalg import hadamard
from tests.central.running import run

from dither.central import (
    Axis,
    Each,
    Product,
    csm,
    fourier,
    linear,
    privbayes,
    projection,
    seeded_source,
)
from dither.central.sensing import (
    DenseSensing,
    HadamardSensing,
    exact_product,
    matrix_sensitivity,
    rows_for,
    sensing,
    walsh_hadamard,
)
from dither.central.sparse import MAX_ATOMS, dictionary, matching_pursuit, most_atoms
from dither.errors import ParameterError


def test_walsh_hadamard_is_the_matrix() -> None:
    x = np.random.default_rng(0).integers(-9, 9, 32)
    assert np.array_equal(walsh_hadamard(x), hadamard(32) @ x)


@pytest.mark.parametrize("size", [8, 11, 16])
@pytest.mark.parametrize("total", [True, False])
def test_hadamard_sensing_is_its_matrix(size: int, total: bool) -> None:
    for seed in range(4):
        drawn = sensing("hadamard", 6, size, np.random.default_rng(seed), total=total)
        assert isinstance(drawn, HadamardSensing)
        full = hadamard(16 if size > 8 else 8)[:, :size] * drawn.signs
        matrix = (
            np.concatenate([np.ones((1, size), dtype=np.int64), full[drawn.chosen]])
            if total
            else full[drawn.chosen]
        )
        assert drawn.rows == 6 == matrix.shape[0]
        x = np.random.default_rng(1).integers(0, 50, size)
        assert np.array_equal(drawn.apply(x), matrix @ x)
        r = np.random.default_rng(2).normal(size=6)
        assert np.allclose(drawn.correlate(r), matrix.T @ r)
        assert np.allclose(drawn.forward(x / 3), matrix @ (x / 3))
        for notion in ("add-remove", "replace"):
            assert drawn.sensitivity(notion) == matrix_sensitivity(matrix.astype(np.int64), notion)


def test_column_distance_is_brute_force() -> None:
    matrix = np.random.default_rng(3).integers(-300, 300, size=(5, 20))
    pairs = itertools.combinations(range(20), 2)
    assert matrix_sensitivity(matrix, "replace") == max(
        int(np.abs(matrix[:, i] - matrix[:, j]).sum()) for i, j in pairs
    )
    with pytest.raises(TypeError, match="integer matrices only"):
        matrix_sensitivity(matrix / 2, "add-remove")  # type: ignore[arg-type]


def test_dense_sensing_is_exact_and_bounded() -> None:
    drawn = sensing("gaussian", 20, 50, np.random.default_rng(0), total=True)
    assert isinstance(drawn, DenseSensing)
    assert (drawn.matrix[0] == 256).all()
    assert 230 < drawn.matrix[1:].std() < 280
    x = np.random.default_rng(1).integers(0, 10**9, 50)
    assert drawn.apply(x).tolist() == [
        sum(int(a) * int(b) for a, b in zip(row, x, strict=True)) for row in drawn.matrix
    ]
    with pytest.raises(ParameterError, match="too many records"):
        exact_product(drawn.matrix, np.full(50, 2**45))
    with pytest.raises(ParameterError, match="use the hadamard measurement"):
        sensing("gaussian", 2**13, 2**13, np.random.default_rng(0))
    with pytest.raises(ParameterError, match="sparse, hadamard, gaussian, bernoulli, fourier"):
        sensing("wavelet", 2, 4, np.random.default_rng(0))
    for tau in (0, 1.5, math.nan):
        with pytest.raises(ParameterError, match="tau"):
            rows_for(tau, 8)


@pytest.mark.parametrize("name", ["dct", "haar", "walsh", "identity"])
def test_dictionaries_are_orthonormal(name: str) -> None:
    basis = dictionary(name)
    phi = np.stack([basis.synthesise(row) for row in np.eye(16)], axis=1)
    assert np.allclose(phi.T @ phi, np.eye(16))
    x = np.random.default_rng(0).normal(size=16)
    assert np.allclose(basis.analyse(x), phi.T @ x)
    batch = np.random.default_rng(1).normal(size=(3, 16))
    assert np.allclose(basis.analyse(batch), batch @ phi)
    assert (
        np.allclose(
            basis.heights(16), np.abs(phi).max(axis=0), rtol=0.02 if name == "dct" else 1e-9
        )
        or name == "dct"
    )
    assert (basis.heights(16) >= np.abs(phi).max(axis=0) - 1e-12).all()


def test_unknown_dictionary_and_odd_haar() -> None:
    with pytest.raises(ParameterError, match="dct, haar, walsh, identity"):
        dictionary("wavelet")
    with pytest.raises(ParameterError, match="power of two"):
        dictionary("haar").analyse(np.ones(6))


@pytest.mark.parametrize("seed", range(5))
def test_matching_pursuit_agrees_with_scikit_learn(seed: int) -> None:
    from sklearn.linear_model import orthogonal_mp

    rng = np.random.default_rng(seed)
    atoms = rng.normal(size=(40, 100))
    atoms /= np.linalg.norm(atoms, axis=0)
    observed = atoms[:, rng.choice(100, 8, replace=False)] @ rng.normal(size=8) + 0.05 * rng.normal(
        size=40
    )
    picked, values = matching_pursuit(
        observed, lambda j: atoms[:, j], lambda r: atoms.T @ r, atoms=10
    )
    mine = np.zeros(100)
    mine[picked] = values
    assert np.allclose(mine, orthogonal_mp(atoms, observed, n_nonzero_coefs=10), atol=1e-10)


def test_matching_pursuit_stops() -> None:
    atoms = np.eye(4)[:, [0, 1, 1]]  # a repeated atom adds nothing
    picked, values = matching_pursuit(
        np.array([3.0, 2, 0, 0]), lambda j: atoms[:, j], lambda r: atoms.T @ r, atoms=3
    )
    assert picked.tolist() == [0, 1]
    assert values.tolist() == [3, 2]
    picked, _ = matching_pursuit(
        np.array([3.0, 2, 0, 0]), lambda j: atoms[:, j], lambda r: atoms.T @ r, atoms=3, stop=2.5
    )
    assert picked.tolist() == [0]
    assert most_atoms(2) == 1
    assert most_atoms(40) == 10
    assert most_atoms(1024) == MAX_ATOMS
    assert most_atoms(10**6) == 1


@pytest.mark.parametrize("measurement", ["gaussian", "bernoulli", "hadamard", "sparse"])
@pytest.mark.parametrize("basis", ["dct", "haar"])
def test_csm_recovers_a_sparse_histogram_when_noise_is_small(measurement: str, basis: str) -> None:
    coefficients = np.zeros(256)
    coefficients[[0, 1, 3, 6]] = [64000, 9000, -7000, 5000]
    counts = np.rint(dictionary(basis).synthesise(coefficients)).astype(np.int64)
    assert (counts >= 0).all()
    made = run(
        "csm",
        counts,
        20.0,
        seeded_source(1),
        rng=np.random.default_rng(4),
        tau=0.4,
        measurement=measurement,
        dictionary=basis,
    )
    assert np.abs(made.estimate - counts).max() < 0.02 * counts.max()


def test_automatic_tau_uses_public_figures_only() -> None:
    assert csm.automatic_tau(8192, 0.1) < csm.automatic_tau(8192, 10.0)
    assert csm.automatic_tau(1024, 1.0, 1000) <= csm.automatic_tau(1024, 1.0, 10**6)
    few, many = np.zeros(1024, dtype=np.int64), np.full(1024, 500)
    for measurement in ("sparse", "hadamard"):
        told = [
            run(
                "csm",
                x,
                0.5,
                seeded_source(1),
                rng=np.random.default_rng(1),
                measurement=measurement,
            ).notes["tau"]
            for x in (few, many)
        ]
        assert told[0] == told[1]
    with pytest.raises(ParameterError, match="records"):
        csm.automatic_tau(64, 1.0, 0)


def test_privelet_is_weighted_haar_and_inverts() -> None:
    x = np.random.default_rng(0).integers(0, 99, 13)
    wave = linear.Wavelet(13)
    assert np.allclose(wave.inverse(wave.forward(x)), x)
    # Xiao et al.: coefficient = (mean left - mean right) / 2, weight = leaves below, base = mean with weight N
    padded = np.append(x, [0, 0, 0])
    y = wave.forward(x)
    assert y[0] == 16 * padded.mean()
    assert y[1] == 16 * (padded[:8].mean() - padded[8:].mean()) / 2
    assert y[2] == 8 * (padded[:4].mean() - padded[4:8].mean()) / 2


@pytest.mark.parametrize("rooted", [True, False])
@pytest.mark.parametrize("branching", [2, 3])
def test_consistency_is_least_squares(branching: int, rooted: bool) -> None:
    cells = branching**3
    tree = linear.Tree(cells, branching, rooted)
    matrix = np.stack([tree.forward(row) for row in np.eye(cells, dtype=np.int64)], axis=1)
    noisy = np.random.default_rng(1).integers(-50, 50, matrix.shape[0])
    wanted = np.linalg.lstsq(matrix.astype(float), noisy.astype(float), rcond=None)[0]
    assert np.allclose(tree.inverse(noisy.astype(float)), wanted)
    with pytest.raises(ParameterError, match="branching"):
        run("hierarchical", np.arange(4), 1.0, seeded_source(1), branching=1)


def test_a_product_is_least_squares_of_the_kronecker_product() -> None:
    product = Product((linear.Tree(4, 2), Each(3), linear.Wavelet(4)))
    parts = [
        np.stack([axis.forward(row) for row in np.eye(axis.cells, dtype=np.int64)], axis=1)
        for axis in product.axes
    ]
    matrix = np.kron(np.kron(parts[0], parts[1]), parts[2])
    x = np.random.default_rng(0).integers(0, 9, 48)
    assert np.array_equal(product.measure(x), matrix @ x)
    noisy = np.random.default_rng(1).integers(-50, 50, matrix.shape[0])
    wanted = np.linalg.lstsq(matrix.astype(float), noisy.astype(float), rcond=None)[0]
    assert np.allclose(product.decode(noisy, 1.0), wanted)


def range_variance(axis: Axis) -> float:
    """The mean variance of all ranges of an axis, over that of one count: exactly, from the matrices."""
    cells = axis.cells
    matrix = np.stack([axis.forward(row) for row in np.eye(cells, dtype=np.int64)], axis=1).astype(
        float
    )
    sums = np.zeros((cells + 1, cells + 1))
    sums[1:, 1:] = np.linalg.inv(matrix.T @ matrix).cumsum(axis=0).cumsum(axis=1)
    ends = np.diag(sums)
    variances = ends[:, None] + ends - sums - sums.T
    return float(variances[np.triu_indices(cells + 1, 1)].mean()) * axis.shared()[0][0] ** 2


def test_the_chosen_fan_out_is_nearly_the_best_for_ranges() -> None:
    for cells in (64, 81, 256):
        found = {
            b: range_variance(linear.Tree(cells, b, rooted=False))
            for b in (2, 3, 4, 8, 9, 16, cells)
        }
        chosen = range_variance(linear.tree_axis(cells))
        assert chosen <= 1.25 * min(found.values())  # the rule leaves consistency out
        assert found[2] > 1.5 * chosen
    assert isinstance(linear.tree_axis(16), Each)


def test_wavelets_are_left_to_axes_that_gain_by_them() -> None:
    assert run("privelet", np.arange(256), 1.0, seeded_source(1)).notes["sensitivity"] == 1
    assert run("privelet", np.arange(1024), 1.0, seeded_source(1)).notes["sensitivity"] == 11
    shaped = run("privelet", np.arange(4096), 1.0, seeded_source(1), shape=(1024, 2, 2))
    assert shaped.notes["sensitivity"] == 11
    assert (
        run("privelet", np.arange(4096), 1.0, seeded_source(1), shape=(64, 64)).notes["sensitivity"]
        == 1
    )
    flat = run("privelet", np.arange(4096), 1.0, seeded_source(1), shape=(64, 64), flatten=True)
    assert flat.notes["sensitivity"] == 13


@pytest.mark.parametrize("cells", [16, 15])
def test_fourier_keeps_low_frequencies(cells: int) -> None:
    everything = fourier.LowFrequencies(cells, cells // 2 + 1)
    x = np.random.default_rng(0).integers(0, 1000, cells)
    assert everything.matrix.shape[0] == cells
    assert np.allclose(everything.decode(everything.measure(x), 1.0), x, atol=1.0)
    low = fourier.LowFrequencies(cells, 3)
    spectrum = np.fft.rfft(x)
    spectrum[3:] = 0
    assert np.allclose(low.decode(low.measure(x), 1.0), np.fft.irfft(spectrum, cells), atol=1.0)
    with pytest.raises(ParameterError, match="frequencies must be"):
        run("fourier", x, 1.0, seeded_source(1), frequencies=500)


def test_fourier_score_is_the_energy_left_out() -> None:
    x = np.random.default_rng(0).integers(0, 1000, 20)
    spectrum = np.fft.fft(x) / math.sqrt(20)
    candidates = np.array([1, 3, 11])
    scores, _ = fourier.frequency_scores(x, candidates, 1e9, "add-remove")
    for k, score in zip(candidates, scores, strict=True):
        left = [abs(spectrum[f]) ** 2 for f in range(20) if min(f, 20 - f) >= k]
        assert score == pytest.approx(fourier.SCORE_GRID * math.sqrt(sum(left)), abs=1)


def test_projection_decoders() -> None:
    rng = np.random.default_rng(0)
    matrix = sensing("gaussian", 10, 40, rng, total=True)
    noisy = rng.integers(-10_000, 10_000, 10)
    full = np.asarray(matrix.matrix, dtype=float)  # type: ignore[union-attr]
    even = noisy[0] / (256 * 40)
    residual = (noisy - full @ np.full(40, even))[1:]
    plain = projection.Projection(matrix, "transpose").decode(noisy, 1.0)
    assert np.allclose(plain, even + full[1:].T @ residual / (256**2 * 9), rtol=1e-4, atol=1e-3)
    # ridge: the posterior mean for energy e and rows that are nearly orthogonal
    energy = ((residual**2).mean() - 50.0) / 256**2
    ridge = projection.Projection(matrix, "ridge").decode(noisy, 50.0)
    shrunk = full[1:].T @ residual / (40 * (256**2 + 50.0 / energy))
    assert np.allclose(ridge, even + shrunk - shrunk.mean(), rtol=1e-4, atol=1e-3)
    assert np.allclose(projection.Projection(matrix, "ridge").decode(noisy, 1e12), even)
    x = np.random.default_rng(1).integers(0, 100, 40)
    runs = [
        run(
            "projection",
            x,
            50.0,
            seeded_source(s),
            rng=np.random.default_rng(s),
            tau=0.5,
            decode="transpose",
        ).estimate
        for s in range(120)
    ]
    # unbiased: a cell's variance over matrices is about ||x||^2 / rows
    assert np.abs(np.mean(runs, axis=0) - x).max() < 5 * math.sqrt((x**2).sum() / 20 / 120)
    with pytest.raises(ParameterError, match="decode"):
        run("projection", x, 1.0, seeded_source(1), rng=rng, decode="guess")


def test_a_projection_keeps_the_number_of_records_and_gains_from_epsilon() -> None:
    x = np.random.default_rng(1).integers(0, 400, 256)
    errors = []
    for epsilon in (0.3, 3.0, 30.0):
        made = [
            run("projection", x, epsilon, seeded_source(s), rng=np.random.default_rng(s)).estimate
            for s in range(6)
        ]
        errors.append(float(np.mean([(one - x) ** 2 for one in made])))
        rows = [one.sum() for one in made]
        assert np.abs(np.mean(rows) - x.sum()) < 5 * math.sqrt(2) * 257 / epsilon / math.sqrt(6)
    assert errors[0] > 4 * errors[1] > 4 * 1.5 * errors[2]


def test_privbayes_marginals_joint_and_sampling_agree() -> None:
    rng = np.random.default_rng(5)
    sizes = (2, 3, 2)
    a = rng.integers(0, 2, 3000)
    codes = np.stack(
        [a, (a + rng.integers(0, 2, 3000)) % 3, np.where(rng.random(3000) < 0.9, a, 1 - a)], axis=1
    )
    counts = np.bincount(np.ravel_multi_index(tuple(codes.T), sizes), minlength=12)
    rows, cells = privbayes.table_counts(codes, sizes), privbayes.histogram_counts(counts, sizes)
    for attributes in [(0,), (2, 0), (1, 2), (2, 1, 0)]:
        assert np.array_equal(rows(attributes), cells(attributes))
    net = privbayes.learn(
        rows, sizes, 50.0, seeded_source(1), rng, "add-remove", privbayes.PrivBayesParameters()
    )
    joint = net.joint()
    assert joint.sum() == pytest.approx(1.0)
    assert (
        np.abs(joint.ravel() - counts / 3000).sum() < 0.05
    )  # degree 2 holds any law of three columns
    drawn = net.sample(40_000, rng)
    seen = np.bincount(np.ravel_multi_index(tuple(drawn.T), sizes), minlength=12) / 40_000
    assert np.abs(seen - joint.ravel()).sum() < 12 * 4 * math.sqrt(0.25 / 40_000)
    made = run(
        "privbayes", counts, 50.0, seeded_source(1), rng=np.random.default_rng(0), shape=sizes
    )
    assert np.abs(made.estimate - counts).sum() < 150
    flat = run("privbayes", counts, 1.0, seeded_source(1), rng=rng)
    assert flat.notes["parents"] == {}
    with pytest.raises(ParameterError, match="does not have 12 cells"):
        run("privbayes", counts, 1.0, seeded_source(1), rng=rng, shape=(2, 2))


def test_parent_sets_are_maximal_and_fit() -> None:
    assert privbayes.parent_sets(3, [0, 1, 2], (2, 3, 4, 2), 2, 12) == [(0, 1), (2,)]
    assert privbayes.parent_sets(3, [0, 1, 2], (2, 3, 4, 2), 2, 1) == [()]
    assert privbayes.parent_sets(3, [0, 1], (2, 3, 4, 2), 3, 10**6) == [(0, 1)]


def all_parent_sets(
    node: int, placed: list[int], sizes: tuple[int, ...], degree: int, most: float
) -> list[tuple]:
    """Every set that fits, and of them those that no other holds."""
    sets = [p for count in range(degree + 1) for p in itertools.combinations(sorted(placed), count)]
    fitting = [p for p in sets if not p or math.prod(sizes[a] for a in (*p, node)) <= most]
    return sorted(p for p in fitting if not any(set(p) < set(other) for other in fitting))


def test_parent_sets_are_those_of_an_exhaustive_search() -> None:
    rng = np.random.default_rng(3)
    for _ in range(150):
        d = int(rng.integers(2, 8))
        sizes = tuple(int(k) for k in rng.choice([1, 2, 3, 5], d))
        node, *others = (int(a) for a in rng.permutation(d))
        placed, degree = others[: int(rng.integers(1, d))], int(rng.integers(0, 6))
        most = float(rng.choice([0, 1, 4, 10, 30, 100, 1000]))
        found = privbayes.parent_sets(node, placed, sizes, degree, most)
        assert sorted(found) == all_parent_sets(node, placed, sizes, degree, most)


def test_the_degree_is_limited_by_the_number_of_columns_alone() -> None:
    assert [privbayes.affordable_degree(d, None) for d in (1, 2, 3, 13, 50)] == [1, 1, 2, 12, 2]
    assert privbayes.affordable_degree(50, 2) == 2
    with pytest.raises(ParameterError, match="degree 5 can make"):
        privbayes.affordable_degree(50, 5)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_tables_are_theta_useful_and_no_smaller_than_need_be(neighbours: str) -> None:
    """Twelve yes-or-no columns that all depend on the first: as many parents as n epsilon / (sensitivity theta) cells allow."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 20_000)
    codes = np.stack([first ^ (rng.random(20_000) < 0.1) for _ in range(6)], axis=1).astype(int)
    counts = privbayes.table_counts(codes, (2,) * 6)
    learnt = privbayes.learn(
        counts,
        (2,) * 6,
        1.0,
        seeded_source(1),
        rng,
        neighbours,
        privbayes.PrivBayesParameters(theta=60.0),
    )
    sensitivity = 6 if neighbours == "add-remove" else 12
    most = learnt.records * learnt.budget.tables / (sensitivity * 60.0)
    largest = max(node.conditional.size for node in learnt.nodes)
    assert largest <= most < 2 * largest
    assert largest == (32 if neighbours == "add-remove" else 16)


def test_more_parents_than_two_are_taken_where_they_are_useful() -> None:
    rng = np.random.default_rng(2)
    three = rng.integers(0, 2, (30_000, 3))
    codes = np.concatenate([three, three.sum(axis=1, keepdims=True) % 2], axis=1)
    counts = np.bincount(np.ravel_multi_index(tuple(codes.T), (2,) * 4), minlength=16)
    wide = run("privbayes", counts, 2.0, seeded_source(1), shape=(2,) * 4).estimate
    capped = run("privbayes", counts, 2.0, seeded_source(1), shape=(2,) * 4, degree=2).estimate
    assert np.abs(wide - counts).sum() < 0.02 * counts.sum()
    assert (
        np.abs(capped - counts).sum() > 0.5 * counts.sum()
    )  # parity shows in no three of the four
