"""DAWA, AGrid and thresholded noise: each private part over all neighbours of small tables, and each against a slow reference."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.central.running import run
from tests.central.test_central_privacy import NOTIONS, neighbours_of, small_tables

from dither.central import dawa, grid
from dither.central.linear import Cells
from dither.central.measurement import Neighbours, observe
from dither.central.noise import calibrate, discrete_laplace, seeded_source
from dither.errors import ParameterError


def all_cuts(runs: dawa.Runs, size: int) -> list[tuple[int, ...]]:
    """Every way to cut the domain into candidate runs, as their positions."""
    found: list[tuple[int, ...]] = []

    def grow(at: int, chosen: tuple[int, ...]) -> None:
        if at == size:
            found.append(chosen)
        for place in np.flatnonzero(runs.starts == at):
            grow(int(runs.ends[place]), (*chosen, int(place)))

    grow(0, ())
    return found


def test_deviations_are_those_of_the_definition() -> None:
    counts = np.random.default_rng(0).integers(0, 30, 13)
    runs = dawa.candidate_runs(counts)
    assert (np.diff(runs.ends) >= 0).all()
    assert {(0, 8), (4, 12), (2, 4), (12, 13)} <= set(zip(runs.starts.tolist(), runs.ends.tolist(), strict=True))
    for start, end, cost in zip(runs.starts, runs.ends, runs.costs, strict=True):
        cells = counts[start:end]
        exact = sum(abs(Fraction(int(c)) - Fraction(int(cells.sum()), cells.size)) for c in cells)
        assert cost == math.floor(dawa.GRID * exact)


@pytest.mark.parametrize("size", [4, 7, 8])
def test_the_cheapest_cut_is_the_cheapest_of_all(size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(30):
        runs = dawa.candidate_runs(rng.integers(0, 9, size))
        costs = rng.integers(-60, 60, runs.costs.size)
        cut = min(all_cuts(runs, size), key=lambda places: int(costs[list(places)].sum()))
        assert dawa.cheapest_cut(runs, costs, size).tolist() == runs.ends[list(cut)].tolist()


@pytest.mark.parametrize("neighbours", NOTIONS)
def test_one_record_moves_the_cost_of_a_cut_no_further_than_claimed(neighbours: Neighbours) -> None:
    worst = 0
    for table in small_tables(4, 2):
        runs = dawa.candidate_runs(table)
        cuts = all_cuts(runs, 4)
        for other in neighbours_of(table, neighbours):
            moved = dawa.candidate_runs(other).costs - runs.costs
            worst = max(worst, *(abs(int(moved[list(cut)].sum())) for cut in cuts))
    claimed = dawa.cost_sensitivity(neighbours)
    assert claimed / 2 <= worst <= claimed


PRICE = 190  # of a bucket: about where joining the first two cells of (3, 0, 0, 0) begins to pay


def cut_shares(table: np.ndarray, scale: Fraction, draws: int, seed: int) -> dict[tuple[int, ...], float]:
    """How often each cut comes out cheapest, by the law of the noise and all cuts."""
    runs = dawa.candidate_runs(table)
    cuts = all_cuts(runs, table.size)
    several = np.flatnonzero(runs.ends - runs.starts > 1)
    noisy = np.tile(runs.costs + PRICE, (draws, 1))
    noisy[:, several] += discrete_laplace(scale, draws * several.size, seeded_source(seed)).reshape(draws, -1)
    sums = np.stack([noisy[:, list(cut)].sum(axis=1) for cut in cuts], axis=1)
    counts = np.bincount(sums.argmin(axis=1), minlength=len(cuts))
    return dict(zip(cuts, counts / draws, strict=True))


@pytest.mark.slow
def test_the_choice_of_buckets_keeps_its_share() -> None:
    """Two tables that differ by the record that moves most: no cut's probability changes by more than e^epsilon."""
    epsilon, draws = 1.0, 120_000
    table, other = np.array([3, 0, 0, 0]), np.array([4, 0, 0, 0])

    def loss(scale: Fraction) -> tuple[float, float]:
        mine, theirs = (cut_shares(t, scale, draws, seed) for seed, t in ((1, table), (2, other)))
        common = [cut for cut in mine if min(mine[cut], theirs[cut]) * draws > 300]
        ratios = [abs(math.log(mine[cut] / theirs[cut])) for cut in common]
        return max(ratios), 5 * math.sqrt(2 / 300)

    scale = calibrate(2 * dawa.cost_sensitivity("add-remove"), epsilon)
    measured, slack = loss(scale)
    assert measured <= epsilon + slack
    measured, slack = loss(scale / 16)
    assert measured > epsilon + slack  # a mutant: a sixteenth of the noise


@pytest.mark.parametrize("neighbours", NOTIONS)
@pytest.mark.parametrize(("name", "shape"), [("dawa", ()), ("agrid", (16, 16))])
def test_the_parts_of_epsilon_add_up(name: str, shape: tuple[int, ...], neighbours: Neighbours) -> None:
    counts = np.random.default_rng(0).integers(0, 20, 256)
    for epsilon in (0.1, 0.7, 2.3):
        made = run(name, counts, epsilon, seeded_source(1), neighbours=neighbours, shape=shape)
        parts = [Fraction(value) for key, value in made.notes.items() if key.startswith("epsilon_")]
        assert Fraction(epsilon) * Fraction(999, 1000) < sum(parts) <= Fraction(epsilon)
        assert made.epsilon <= epsilon
    if name == "agrid":
        assert (made.notes["epsilon_records"] == 0) == (neighbours == "replace")


def test_buckets_join_what_is_alike() -> None:
    steps = np.repeat([0, 900, 0, 300], 64)
    made = run("dawa", steps, 1.0, seeded_source(1))
    plain = run("laplace", steps, 1.0, seeded_source(1))
    assert made.notes["buckets"] < 40
    assert np.abs(made.estimate - steps).mean() < np.abs(plain.estimate - steps).mean() / 2
    with pytest.raises(ParameterError, match="share"):
        run("dawa", steps, 1.0, seeded_source(1), share=1.0)


def test_blocks_cover_the_grid_once() -> None:
    for cells, blocks in ((16, 10), (16, 40), (7, 3), (1, 10)):
        ends = grid.edges(cells, blocks)
        assert ends[0] == 0
        assert ends[-1] == cells
        assert (np.diff(ends) > 0).all()
    table = np.arange(35).reshape(5, 7)
    sums = grid.block_sums(table, np.array([0, 2, 5]), np.array([0, 3, 4, 7]))
    wanted = [[table[a:b, c:d].sum() for c, d in ((0, 3), (3, 4), (4, 7))] for a, b in ((0, 2), (2, 5))]
    assert sums.tolist() == wanted


def test_two_levels_are_reconciled_by_least_squares() -> None:
    parts, rng = np.array([3.0, 5.0, 9.0]), np.random.default_rng(0)
    whole, v, w = float(rng.normal(20)), 4.0, 2.5
    design = np.vstack([np.ones(3) / math.sqrt(v), np.eye(3) / math.sqrt(w)])
    seen = np.append(whole / math.sqrt(v), parts / math.sqrt(w))
    assert np.allclose(grid.reconciled(whole, v, parts, w), np.linalg.lstsq(design, seen, rcond=None)[0])


def test_a_grid_finds_where_the_records_are() -> None:
    rng = np.random.default_rng(1)
    table = np.zeros((64, 64), dtype=np.int64)
    np.add.at(table, (rng.normal(20, 3, 20_000).astype(int), rng.normal(40, 3, 20_000).astype(int)), 1)
    errors = {
        name: np.mean([
            (run(name, table.ravel(), 0.1, seeded_source(s), shape=(64, 64)).estimate.reshape(64, 64)[:32, 16:48]
             - table[:32, 16:48]).sum() ** 2
            for s in range(12)
        ])
        for name in ("agrid", "laplace")
    }  # fmt: skip
    assert errors["agrid"] < errors["laplace"] / 2
    with pytest.raises(ParameterError, match="agrid takes two columns, not 3"):
        run("agrid", np.zeros(8, dtype=np.int64), 1.0, seeded_source(1), shape=(2, 2, 2))


def test_a_threshold_lets_little_noise_through() -> None:
    empty = np.zeros(2000, dtype=np.int64)
    through = [np.count_nonzero(run("threshold", empty, 0.5, seeded_source(s)).estimate) for s in range(60)]
    # each cell passes with probability near 1 / (2 cells)
    assert abs(np.mean(through) - 0.5) < 5 * math.sqrt(0.5 / 60)
    heavy = empty.copy()
    heavy[7] = 5000
    made = run("threshold", heavy, 0.5, seeded_source(3))
    assert made.estimate[7] == observe(Cells(2000), heavy, 0.5, seeded_source(3)).values[7]


def test_every_pair_of_small_tables_is_looked_at() -> None:
    """The neighbours that the checks rest on: 4 more records, or every move of one."""
    table = np.array([1, 0, 2])
    assert len(neighbours_of(table, "add-remove")) == 3
    assert len(neighbours_of(table, "replace")) == 4
    assert len(small_tables(2, 2)) == len(list(itertools.product(range(3), repeat=2))) - 1
