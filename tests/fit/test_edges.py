"""Strong pairs: their tables by enumeration, where their potentials start, which pairs are chosen and what that brings."""

from __future__ import annotations

from functools import partial
from itertools import combinations, permutations, product

import numpy as np
import pytest
from small_mixture import CARDINALITIES, COLUMNS, sparse

from dither.fit import AnswerCounts, norm_sub
from dither.fit.mixture import fit as mixture_fit
from dither.fit.mixture.descent import Descent
from dither.fit.mixture.edges import (
    Marginals,
    Matched,
    best_warming,
    block,
    chance_of,
    determined,
    drawn_tables,
    information,
    local_chi2,
    match_gain,
    matching_chances,
    own_tables,
    own_warm,
    pair_cells,
    raked,
    strong_pairs,
    warm_potentials,
)
from dither.fit.mixture.fit import FitOptions, MixtureFit, fit_mixture
from dither.fit.mixture.targets import (
    Columns,
    Edges,
    PairTargets,
    disjoint,
    links,
    pair_targets,
    trees,
)
from dither.mechanisms import kernels, mechanism
from dither.reports import question
from dither.schema import Attribute, Schema

EDGES: Edges = ((0, 2), (1, 4))
FEW = 250
# The second attribute is the first under other names, the others follow a hidden class a little.
WIDE = (12, 12, 3, 4, 2, 5, 6, 4, 3, 5)
WIDE_SCHEMA = Schema(
    tuple(
        Attribute(f"w{i}", "categorical", tuple(f"v{v}" for v in range(k)))
        for i, k in enumerate(WIDE)
    )
)


def doubled(people: int, epsilon: float, seed: int, copies: bool = True) -> PairTargets:
    """All pairs of people whose second attribute copies the first, or who have no dependence at all."""
    rng = np.random.default_rng(seed)
    answers = []
    for i, j in combinations(range(len(WIDE)), 2):
        q = question(WIDE_SCHEMA, [WIDE_SCHEMA.names[i], WIDE_SCHEMA.names[j]], epsilon)
        hidden = rng.integers(0, 2, people) * copies
        codes = [np.minimum(rng.binomial(k - 1, 0.35 + 0.25 * hidden), k - 1) for k in WIDE]
        if copies:
            codes[1] = (codes[0] * 5) % WIDE[1]
        truth = np.bincount(codes[i] * WIDE[j] + codes[j], minlength=WIDE[i] * WIDE[j])
        answers.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), people))
    return pair_targets(WIDE_SCHEMA, answers)


@pytest.mark.parametrize(
    "edges",
    [EDGES, ((1, 4), (0, 2), (2, 3)), ((0, 2), (1, 4), (2, 4))],
    ids=["pairs", "a tree", "a row of four"],
)
def test_every_pair_of_a_tied_mixture_is_a_sum_over_whole_records(edges: Edges) -> None:
    rng = np.random.default_rng(0)
    tied = [link for tree in trees(edges) for link in links(tree)]
    potentials = [rng.standard_normal((CARDINALITIES[i], CARDINALITIES[j])) for i, j in tied]
    start = Descent(COLUMNS, rng.standard_normal((3, COLUMNS.width)), edges, potentials)
    start.weight_logits = rng.standard_normal(3)
    state = start.model()
    slow = np.zeros((COLUMNS.width, COLUMNS.width))
    for weight, factors in zip(state.weights, state.factors, strict=True):
        chances = {}
        for record in product(*map(range, CARDINALITIES)):
            chance = np.prod([factors[COLUMNS.starts[i] + code] for i, code in enumerate(record)])
            for (i, j), potential in zip(tied, potentials, strict=True):
                chance *= np.exp(potential[record[i], record[j]])
            chances[record] = chance
        total = sum(chances.values())
        for record, chance in chances.items():
            places = COLUMNS.starts + np.array(record)
            slow[np.ix_(places, places)] += weight * chance / total
    blocks = np.repeat(np.arange(len(CARDINALITIES)), CARDINALITIES)
    apart = blocks[:, None] != blocks[None, :]
    np.testing.assert_allclose(start.pairs(state)[apart], slow[apart], atol=1e-12)
    np.testing.assert_allclose(state.one, np.diag(slow), atol=1e-12)


def test_a_potential_starts_at_what_the_pair_says_of_itself() -> None:
    rng = np.random.default_rng(1)
    one = np.concatenate([rng.dirichlet(np.ones(k) * 3) for k in CARDINALITIES])
    first, second = one[COLUMNS.of(0)], one[COLUMNS.of(2)]
    raw = raked(rng.dirichlet(np.ones(12) * 0.5).reshape(3, 4) + 1e-3, first, second)
    start = Marginals(
        one,
        {(0, 2): raw + rng.normal(0, 1e-9, raw.shape)},
        {(0, 2): partial(own_warm, sharpness=1.0)},
    )
    (potential,) = warm_potentials(COLUMNS, ((0, 2),), start)
    table = np.exp(potential) * np.outer(first, second)
    np.testing.assert_allclose(table.sum(axis=1), first, atol=1e-6)
    np.testing.assert_allclose(table.sum(axis=0), second, atol=1e-6)
    np.testing.assert_allclose(table, 0.99 * raw + 0.01 * np.outer(first, second), atol=1e-6)
    assert np.isfinite(potential).all()


def test_a_pair_that_determines_each_other_is_sharpened_or_matched_and_one_that_does_not_is_left() -> (
    None
):
    """The way is chosen by estimated risk: it must lower the true one where it is used, and leave a smooth table."""
    targets, columns = doubled(3_000, 2.0, 11), Columns(WIDE)
    left, sharp = best_warming(targets, 3, 6), best_warming(chained(12_000, 2.0, 5), 1, 6)
    assert isinstance(left, partial)
    assert left.keywords == {"sharpness": 1.0}
    assert isinstance(sharp, partial)
    assert sharp.keywords["sharpness"] > 1.0
    matched = best_warming(targets, 0, 1)
    assert isinstance(matched, Matched)
    first, second = (targets.one[columns.of(a)] for a in (0, 1))
    first, second = ((np.maximum(f, 1e-6) / np.maximum(f, 1e-6).sum()) for f in (first, second))
    raw = targets.pairs[columns.of(0), columns.of(1)]
    right = np.zeros((12, 12), dtype=bool)
    right[np.arange(12), np.arange(12) * 5 % 12] = True
    wrong = [
        way(raw, first, second)[~right].sum()
        for way in (matched, *(partial(own_warm, sharpness=s) for s in (5.0, 1.0)))
    ]
    assert wrong[0] < 0.5 * wrong[1] < 0.5 * 0.9 * wrong[2]
    for power in (1.0, 2.0):
        table = own_warm(raw, first, second, power)
        np.testing.assert_allclose(table.sum(axis=0), second, atol=1e-6)


def test_chances_of_a_match_are_about_those_of_all_matchings() -> None:
    rng = np.random.default_rng(0)
    for scale in (0.0, 1.0, 4.0):
        log_odds = scale * rng.standard_normal((5, 5))
        slow = np.zeros((5, 5))
        for columns in permutations(range(5)):
            slow[np.arange(5), columns] += np.exp(log_odds[np.arange(5), columns].sum())
        np.testing.assert_allclose(matching_chances(log_odds), slow / slow[0].sum(), atol=0.08)


def test_matched_values_lend_each_other_their_frequencies() -> None:
    """Where two attributes are one, both one-way marginals speak of the same numbers: half the variance."""
    columns, before, after = Columns(WIDE), 0.0, 0.0
    rng = np.random.default_rng(0)
    first = (
        np.bincount(rng.binomial(11, 0.35 + 0.25 * rng.integers(0, 2, 400_000)), minlength=12)
        / 400_000
    )
    second = first[np.argsort(np.arange(12) * 5 % 12)]
    for seed in range(4):
        targets = doubled(3_000, 2.0, seed)
        lines = [np.maximum(targets.one[columns.of(a)], 1e-6) for a in (0, 1)]
        matched = best_warming(targets, 0, 1)
        table = matched(
            targets.pairs[columns.of(0), columns.of(1)], *(line / line.sum() for line in lines)
        )
        for true, line, axis in ((first, lines[0], 1), (second, lines[1], 0)):
            before += ((line - true) ** 2).sum()
            after += ((table.sum(axis=axis) - true) ** 2).sum()
    assert after < 0.7 * before


def test_a_copy_is_found_from_so_few_reports_that_its_cells_are_noise() -> None:
    """The test of its matched table sees it where the others do not; among independent attributes nothing is matched."""
    found = 0
    for seed in range(20):
        targets = doubled(FEW, 2.0, seed)
        flat = np.outer(targets.one, targets.one)
        found += (0, 1) in strong_pairs(targets, flat, (), np.random.default_rng(0))
        loose = doubled(FEW, 2.0, seed, copies=False)
        table = np.outer(*(loose.one[loose.columns.of(a)] for a in (0, 1)))
        assert match_gain(loose, 0, 1, table, np.random.default_rng(0))[0] < 0
    assert found >= 10, "4 of 20 without the third test, 13 with it"


@pytest.mark.parametrize(
    ("people", "epsilon"), [(100, 4.0), pytest.param(60, 8.0, marks=pytest.mark.slow)]
)
def test_independent_attributes_with_hardly_anybody_in_a_cell_are_not_taken_for_copies(
    people: int, epsilon: float
) -> None:
    """256 cells with less than half a person each: a normal law took all 15 tables to have copies in them."""
    wrong = 0
    for seed in range(15):
        targets = sparse(4, np.full((16, 16), 1 / 256), people, epsilon, seed)
        rng, flat = np.random.default_rng(seed), np.outer(targets.one, targets.one)
        chances = [
            match_gain(targets, i, j, block(targets.columns, flat, i, j), rng)
            for i, j in combinations(range(4), 2)
        ]
        wrong += any(gain > 0 and chance < 0.1 / 6 for gain, chance in chances)
    # Level 0.1 for a table: more than four of 15 come up once in a hundred.
    assert wrong <= 4


def test_drawn_tables_have_the_mean_and_variance_of_reports() -> None:
    fitted = np.random.default_rng(0).dirichlet(np.ones(12)).reshape(3, 4)
    for asked in (mechanism("best", 12, 1.0), mechanism("grr", 12, 6.0)):
        people, draws = 500, 4_000
        base = float(
            asked.variance(0.0, people)
        )  # of the mechanism, linear in the frequency; who was asked adds f (1 - f) / n
        noise = (base, float(asked.variance(1.0, people)) - base + 1.0 / people, 1.0 / people)
        tables = drawn_tables(fitted, noise, draws, np.random.default_rng(1))
        variance = noise[0] + fitted * (noise[1] - noise[2] * fitted)
        assert np.abs((tables.mean(axis=0) - fitted) / np.sqrt(variance / draws)).max() < 4.0
        # The variance of a variance: two over the draws, and the kurtosis of counts of a few.
        np.testing.assert_allclose(tables.var(axis=0), variance, rtol=0.2)
        wrong = drawn_tables(fitted, (2 * noise[0], *noise[1:]), draws, np.random.default_rng(1))
        assert not np.allclose(wrong.var(axis=0), variance, rtol=0.2)


def test_tables_are_projected_as_one_by_one() -> None:
    rng = np.random.default_rng(2)
    raw, fitted, noise = rng.normal(0.05, 0.1, (6, 20)), np.full(20, 0.05), (0.01, 0.002, 1e-4)
    found = own_tables(raw, fitted, noise)
    for table, closer, free in zip(raw, found.closer, found.free, strict=True):
        own = norm_sub(table)
        variance = noise[0] + own * (noise[1] - noise[2] * own)
        assert closer == pytest.approx(
            (((fitted - table) ** 2 - (own - table) ** 2) / variance).sum()
        )
        assert free == (own > 0).sum() - 1


def test_the_chance_of_a_contradiction_is_what_it_says() -> None:
    """Tables drawn from the fit: a chance below 5 % comes up in at most 5 %, in half of that at least, since one of the two tests
    may well imply the other; with noise a quarter larger it comes up in far more."""
    rng = np.random.default_rng(3)
    fitted, noise, runs = rng.dirichlet(np.ones(60)), (4e-4, 1e-3, 1e-5), 400
    deviation = np.sqrt(noise[0] + fitted * (noise[1] - noise[2] * fitted))

    def rate(scale: float) -> float:
        raw = fitted + scale * deviation * rng.standard_normal((runs, 60))
        closer = own_tables(raw, fitted, noise).closer
        return float(
            np.mean(
                [
                    chance_of(r, c, fitted, noise, rng) < 0.05
                    for r, c in zip(raw, closer, strict=True)
                ]
            )
        )

    deviations = 4 * np.sqrt(0.05 * 0.95 / runs)
    assert 0.025 - deviations < rate(1.0) < 0.05 + deviations
    assert rate(1.25) > 0.05 + 2 * deviations


def test_a_copied_attribute_is_an_edge_and_its_pair_is_learnt() -> None:
    targets = doubled(5_000, 2.0, 4)
    auto = fit_mixture(targets, np.random.default_rng(0), FitOptions(total=100))
    plain = fit_mixture(targets, np.random.default_rng(0), FitOptions(total=100, edges=()))
    assert auto.edges == ((0, 1),)
    assert plain.edges == ()
    columns = Columns(WIDE)
    impossible = np.ones((12, 12), dtype=bool)
    impossible[np.arange(12), np.arange(12) * 5 % 12] = False
    broken = [fit.pairs[columns.of(0), columns.of(1)][impossible].sum() for fit in (auto, plain)]
    assert broken[0] < 0.4 * broken[1]
    chi2 = [local_chi2(targets, fit.pairs, fit.one)[0, 1] for fit in (auto, plain)]
    assert chi2[0] < pair_cells(columns)[0, 1] + 4 * np.sqrt(2 * 144) < chi2[1]


def test_independent_attributes_have_no_edges() -> None:
    options = FitOptions(total=30, components=10)
    data = [doubled(1_000, 1.5, seed, copies=False) for seed in range(10)]
    found = [fit_mixture(targets, np.random.default_rng(0), options).edges for targets in data]
    assert sum(map(bool, found)) <= 4, (
        "noise makes any pair strong in a tenth of tables: five of ten are one in six hundred"
    )


def test_edges_never_share_an_attribute() -> None:
    targets = doubled(5_000, 3.0, 6)
    product_of_ones = np.outer(targets.one, targets.one)
    edges = strong_pairs(targets, product_of_ones, (), np.random.default_rng(0))
    assert (0, 1) in edges
    ends = [end for edge in edges for end in edge]
    assert len(set(ends)) == len(ends)
    assert strong_pairs(targets, product_of_ones, ((0, 2),), np.random.default_rng(0))[0] == (0, 2)


def test_edges_form_rows_of_at_most_four_attributes() -> None:
    assert trees(((0, 5), (1, 2))) == ((0, 5), (1, 2))
    assert trees(((0, 5), (1, 2), (2, 3))) == ((0, 5), (1, 2, 3))
    assert trees(((1, 2), (0, 1))) == ((2, 1, 0),)
    assert trees(((0, 1), (1, 2), (2, 3))) == ((0, 1, 2, 3),)
    assert trees(((4, 5), (0, 1), (2, 3), (1, 2))) == ((4, 5), (0, 1, 2, 3))
    assert trees(((1, 2), (4, 5), (2, 3), (0, 1))) == ((3, 2, 1, 0), (4, 5))
    assert links((2, 1, 0)) == ((2, 1), (1, 0))
    assert disjoint(((1, 2), (0, 1), (3, 4))) == ((1, 2), (3, 4))
    for wrong in (
        ((0, 1), (1, 2), (2, 3), (3, 4)),
        ((0, 1), (1, 2), (1, 3)),
        ((0, 1), (0, 1)),
        ((0, 1), (1, 2), (0, 2)),
        ((0, 0),),
    ):
        with pytest.raises(ValueError, match="tie"):
            trees(wrong)


def chained(people: int, epsilon: float, seed: int) -> PairTargets:
    """The second attribute is a function of the first, the seventh one of the second; the others follow a hidden class a little."""
    rng, answers = np.random.default_rng(seed), []
    for i, j in combinations(range(len(WIDE)), 2):
        q = question(WIDE_SCHEMA, [WIDE_SCHEMA.names[i], WIDE_SCHEMA.names[j]], epsilon)
        codes = chain_of(rng, people)
        truth = np.bincount(codes[i] * WIDE[j] + codes[j], minlength=WIDE[i] * WIDE[j])
        answers.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), people))
    return pair_targets(WIDE_SCHEMA, answers)


def chain_of(rng: np.random.Generator, people: int) -> list[np.ndarray]:
    hidden = rng.integers(0, 2, people)
    codes = [np.minimum(rng.binomial(k - 1, 0.35 + 0.25 * hidden), k - 1) for k in WIDE]
    codes[0] = rng.integers(0, 12, people)
    codes[1] = np.minimum(codes[0] * 5 % 12, 10)
    codes[6] = codes[1] * 7 % 11 % 6
    return codes


@pytest.mark.parametrize(
    ("people", "epsilon", "seed"),
    [pytest.param(30_000, 2.0, 3, marks=pytest.mark.slow), (12_000, 3.0, 4)],
)
def test_a_chain_is_tied_along_its_whole_length(people: int, epsilon: float, seed: int) -> None:
    """Every pair of the chain is nearer the truth than its own reports are, than without edges and, its second link, than with one
    edge only; that a fit has learnt the chain without edges, at a price, does not keep them away."""
    targets, columns = chained(people, epsilon, seed), Columns(WIDE)
    auto, plain, one = (
        fit_mixture(targets, np.random.default_rng(0), FitOptions(total=100, edges=e))
        for e in (None, (), ((0, 1),))
    )
    assert (0, 1, 6) in trees(auto.edges)
    codes = chain_of(np.random.default_rng(0), 400_000)

    def error(table: np.ndarray, i: int, j: int) -> float:
        true = np.bincount(codes[i] * WIDE[j] + codes[j], minlength=WIDE[i] * WIDE[j]) / 400_000
        return float(np.abs(table.ravel() - true).sum() / 2)

    ratios = []
    for i, j in combinations((0, 1, 6), 2):
        cut = columns.of(i), columns.of(j)
        own = norm_sub(targets.pairs[cut].ravel())
        ratios.append(
            error(auto.pairs[cut], i, j) / min(error(plain.pairs[cut], i, j), error(own, i, j))
        )
    assert max(ratios) < 1.0
    assert np.mean(ratios) < 0.7
    link = columns.of(1), columns.of(6)
    assert error(auto.pairs[link], 1, 6) < 0.6 * error(one.pairs[link], 1, 6)


def test_a_pair_is_determined_where_one_end_is_a_function_of_the_other() -> None:
    copy = np.zeros((12, 6))
    copy[np.arange(12), np.arange(12) % 6] = 1 / 12
    assert determined(copy)
    assert information(copy) == pytest.approx(np.log(6))
    half = 0.5 * copy + 0.5 / 72
    assert not determined(half)
    assert information(np.full((3, 4), 1 / 12)) == pytest.approx(0, abs=1e-12)


def test_edges_are_kept_only_while_the_estimated_risk_falls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two edges raise the risk, the stronger of them alone lowers it, and a third that is proposed next raises it again."""
    risks = {(): 3.0, ((0, 3), (1, 5)): 4.0, ((0, 3),): 2.0, ((0, 3), (2, 4)): 2.5}
    tried: list[Edges] = []

    def risk(fit: MixtureFit, options: FitOptions) -> float:
        tried.append(fit.edges)
        return risks[fit.edges]

    def proposed(
        targets: PairTargets,
        pairs: np.ndarray,
        already: Edges,
        rng: np.random.Generator,
        grow: bool = False,
    ) -> Edges:
        return ((0, 3), (1, 5)) if not already else (*already, (2, 4))

    monkeypatch.setattr(mixture_fit, "strong_pairs", proposed)
    monkeypatch.setattr(mixture_fit, "_penalised", risk)
    options = FitOptions(total=12, components=4, iterations=10)
    fitted = fit_mixture(doubled(600, 0.5, 7, copies=False), np.random.default_rng(0), options)
    assert fitted.edges == ((0, 3),)
    assert set(tried) == set(risks)


def test_pairs_that_nobody_was_asked_are_left_out() -> None:
    targets = doubled(2_000, 2.0, 8)
    targets.pair_noise[1][0, 1] = targets.pair_noise[1][1, 0] = 0.0
    fitted = fit_mixture(
        targets, np.random.default_rng(0), FitOptions(total=30, edges=((0, 1), (2, 3)))
    )
    assert fitted.edges == ((2, 3),)


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_what_is_left_of_dependence_keeps_the_edges_tables(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product that takes the place of dependence has the same one-way marginals and the same edge."""
    targets, options = doubled(8_000, 2.0, 9), FitOptions(total=40, edges=((0, 1),))
    whole = fit_mixture(
        targets, np.random.default_rng(0), FitOptions(total=40, edges=((0, 1),), shrink=False)
    )
    monkeypatch.setattr(mixture_fit, "_dependence_kept", lambda *_: share)
    shrunk = fit_mixture(targets, np.random.default_rng(0), options)
    columns = Columns(WIDE)
    edge = columns.of(0), columns.of(1)
    np.testing.assert_allclose(shrunk.pairs[edge], whole.pairs[edge], atol=1e-12)
    other = columns.of(2), columns.of(3)
    flat = np.outer(whole.one[other[0]], whole.one[other[1]])
    np.testing.assert_allclose(
        shrunk.pairs[other], share * whole.pairs[other] + (1 - share) * flat, atol=1e-12
    )
    assert shrunk.potentials[0].shape[0] == shrunk.groups.max() + 1
