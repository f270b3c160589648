"""DAWA, AGrid and thresholded noise: each private part over all neighbours of small tables, and each against a slow reference."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.central.running import run
from tests.central.test_central_privacy import NOTIONS, neighbours_of, small_tables

from dither.central import (
    Cells,
    Neighbours,
    calibrate,
    dawa,
    discrete_laplace,
    grid,
    observe,
    seeded_source,
)
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
    assert {(0, 8), (4, 12), (2, 4), (12, 13)} <= set(
        zip(runs.starts.tolist(), runs.ends.tolist(), strict=True)
    )
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


@pytest.mark.parametrize("neighbours", NOTIONS)
def test_less_noise_on_the_runs_that_hold_the_record_keeps_the_cut(neighbours: Neighbours) -> None:
    """The argument of the guarantee, run by run: every run has noise of its own, and this much less keeps the cut cheapest."""
    rng = np.random.default_rng(5)
    kept = {1: True, 4: True}
    cuts = all_cuts(dawa.candidate_runs(np.zeros(8, dtype=np.int64)), 8)
    for _ in range(40):
        table = rng.integers(0, 4, 8)
        runs = dawa.candidate_runs(table)
        noise = rng.integers(-300, 300, runs.costs.size)
        ends = dawa.cheapest_cut(runs, runs.costs + noise, 8).tolist()
        starts = [0, *ends[:-1]]
        for other in neighbours_of(table, neighbours)[:: 1 if neighbours == "add-remove" else 5]:
            moved = dawa.candidate_runs(other).costs
            for part in kept:
                lowered, spent = noise.copy(), 0
                for cell in np.flatnonzero(table != other):
                    at = next(i for i, end in enumerate(ends) if cell < end)
                    run_of_it = (runs.starts == starts[at]) & (runs.ends == ends[at])
                    single = (
                        ends[at] - starts[at] == 1
                    )  # has half the noise, and is lowered by half as much
                    lowered[run_of_it] -= (2 if single else 4) * dawa.GRID // part
                    spent += 4 * dawa.GRID
                assert spent <= 2 * dawa.cost_sensitivity(neighbours)
                sums = moved + lowered
                cheapest = min(int(sums[list(cut)].sum()) for cut in cuts)
                mine = sum(
                    int(sums[(runs.starts == a) & (runs.ends == b)].sum())
                    for a, b in zip(starts, ends, strict=True)
                )
                kept[part] &= mine == cheapest
    assert kept == {1: True, 4: False}  # a quarter of it is too little


def test_every_run_has_noise_single_cells_too() -> None:
    runs, scale = dawa.candidate_runs(np.arange(8)), Fraction(300)
    source = seeded_source(1)
    drawn = np.stack([dawa.noisy_costs(runs, 10, scale, source) for _ in range(400)])
    noise = drawn - np.median(drawn, axis=0)
    expected = np.where(runs.ends - runs.starts > 1, 300, 150)
    assert (np.abs(np.abs(noise).mean(axis=0) / expected - 1) < 0.3).all()  # six standard errors


@pytest.mark.parametrize(("cells", "share"), [(8, 0.9), (64, 0.25), (1024, 0.25)])
def test_without_noise_on_single_cells_the_choice_costs_more_than_its_share(
    cells: int, share: float
) -> None:
    """All cells alone is the cheapest cut where every longer run costs more by itself, so its probability is a product."""
    scale = calibrate(2 * dawa.cost_sensitivity("add-remove"), share)
    price = math.ceil(dawa.GRID / (1 - share))
    p = math.exp(-1 / float(scale))

    def log_probability(table: np.ndarray) -> float:
        runs = dawa.candidate_runs(table)
        lengths = runs.ends - runs.starts
        longer = lengths > 1
        charges = np.ceil(float(scale) * np.log(2 * cells / lengths)).astype(np.int64)
        least = (lengths * price - runs.costs - price - charges)[longer]
        above = np.where(
            least > 0,
            -least / float(scale) - math.log1p(p),
            np.log1p(-(p ** (1 - least.clip(None, 0))) / (1 + p)),
        )
        return float(above.sum())

    alone = np.zeros(cells, dtype=np.int64)
    alone[cells // 2 - 1] = 1
    assert log_probability(alone) - log_probability(np.zeros(cells, dtype=np.int64)) > 1.5 * share


PRICE = 190  # of a bucket: about where joining the first two cells of (3, 0, 0, 0) begins to pay


def cut_shares(
    table: np.ndarray, scale: Fraction, draws: int, seed: int
) -> dict[tuple[int, ...], float]:
    """How often each cut comes out cheapest, by the law of the noise and all cuts."""
    runs = dawa.candidate_runs(table)
    cuts = all_cuts(runs, table.size)
    source = seeded_source(seed)
    noisy = np.tile(runs.costs + PRICE, (draws, 1))
    single = runs.ends - runs.starts == 1
    for some, wide in ((~single, scale), (single, scale / 2)):
        noisy[:, some] += discrete_laplace(wide, draws * int(some.sum()), source).reshape(draws, -1)
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
def test_the_parts_of_epsilon_add_up(
    name: str, shape: tuple[int, ...], neighbours: Neighbours
) -> None:
    counts = np.random.default_rng(0).integers(0, 20, 256)
    for epsilon in (0.1, 0.7, 2.3):
        made = run(name, counts, epsilon, seeded_source(1), neighbours=neighbours, shape=shape)
        parts = [Fraction(value) for key, value in made.notes.items() if key.startswith("epsilon_")]
        assert Fraction(epsilon) * Fraction(999, 1000) < sum(parts) <= Fraction(epsilon)
        assert made.epsilon <= epsilon
    if name == "agrid":
        assert (made.notes["epsilon_records"] == 0) == (neighbours == "replace")


def test_buckets_join_what_is_alike() -> None:
    steps = np.repeat([0, 900, 0, 300], 512)
    made = [run("dawa", steps, 1.0, seeded_source(seed)) for seed in range(1, 6)]
    plain = run("laplace", steps, 1.0, seeded_source(1))
    assert np.mean([one.notes["buckets"] for one in made]) < 512  # of 2,048 cells
    assert (
        np.mean([np.abs(one.estimate - steps).mean() for one in made])
        < 0.75 * np.abs(plain.estimate - steps).mean()
    )
    with pytest.raises(ParameterError, match="share"):
        run("dawa", steps, 1.0, seeded_source(1), share=1.0)


def test_blocks_cover_the_grid_once() -> None:
    for cells, blocks in ((16, 10), (16, 40), (7, 3), (1, 10)):
        ends = grid.edges(cells, blocks)
        assert ends[0] == 0
        assert ends[-1] == cells
        assert (np.diff(ends) > 0).all()


def test_two_levels_are_reconciled_by_least_squares() -> None:
    parts, rng = np.array([3.0, 5.0, 9.0]), np.random.default_rng(0)
    whole, v, w = float(rng.normal(20)), 4.0, 2.5
    design = np.vstack([np.ones(3) / math.sqrt(v), np.eye(3) / math.sqrt(w)])
    seen = np.append(whole / math.sqrt(v), parts / math.sqrt(w))
    assert np.allclose(
        grid.reconciled(whole, v, parts, w), np.linalg.lstsq(design, seen, rcond=None)[0]
    )


def test_a_grid_finds_where_the_records_are() -> None:
    rng = np.random.default_rng(1)
    table = np.zeros((64, 64), dtype=np.int64)
    np.add.at(
        table, (rng.normal(20, 3, 20_000).astype(int), rng.normal(40, 3, 20_000).astype(int)), 1
    )
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
    through = [
        np.count_nonzero(run("threshold", empty, 0.5, seeded_source(s)).estimate) for s in range(60)
    ]
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
