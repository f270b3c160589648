"""What the mixture method asks, from public facts and from a first screening round.

The plan uses public facts only (cardinalities, participants, epsilon): all pairs at full epsilon;
larger sets of attributes if one report about a set has more information on its pairs than a report
about one pair; and a share of single attributes. Pairs that would be noise are not asked.

The screening round decides whether there is dependence worth asking pairs for. Pairs teach the
one-way marginals less well than single questions do, so without dependence they lose, and public
facts cannot tell. A first round asks pairs of narrow attributes, where a test has most power, with
so few participants that its cost stays below `loss` if no dependence is found; with two attributes no
other pair adds to the evidence, and the limit is `loss_one_pair`. If even that would miss moderate
dependence of two ordered attributes, there is one round, half of it about the pair: a correlation
is learnt in far more noise than the test of single cells tolerates. The statistic of a pair is the
squared distance of its noisy table from the product of its one-way marginals, both centred (as in
`fit.dependence`), with mean and variance under independence computed from the mechanism's noise
cell by cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from scipy.special import gammaincc

from dither.fit.mixture.targets import Columns, PairTargets
from dither.mechanisms import best
from dither.methods.independent import question_shares
from dither.reports import Question
from dither.types import Floats

# Attributes asked together, and their share of the participants.
Sets = list[tuple[tuple[int, ...], float]]


@dataclass(frozen=True)
class PlanSettings:
    """Tuned constants of the mixture's questions and of its screening round."""

    # Largest product domain of a set.
    max_cells: int = 2048
    # A set grows by an attribute if this multiplies a report's information on its pairs by this.
    growth_gain: float = 1.15
    # Sets are added until each pair has the information of this many direct questions.
    covers: int = 6
    max_sets: int = 3000
    # Share of single questions. 0.08 and 0.15 measured the same error, more is worse.
    singles: float = 0.1
    # Loss of one-way accuracy that the screen may cost if there is no dependence.
    loss: float = 0.015
    # The same with two attributes, where the screen has a single pair to learn from.
    loss_one_pair: float = 0.1
    # Largest share of the participants in the screen.
    max_share: float = 0.25
    # Largest share of the attributes in the screen.
    max_attributes: float = 0.4
    # Level of the test of independence.
    level: float = 0.01
    # Ratio of dependence to noise of a pair, in squares, from which pairs measurably gain.
    min_signal: float = 0.16
    # The screen has so few attributes that it measures that ratio within this error,
    max_signal_error: float = 0.1
    # and no more participants than needed to measure it within this one.
    target_signal_error: float = 0.04
    # Standard deviations that a test detects with high probability.
    detection_z: float = 3.0
    # Share of the largest squared distance that the screen of a single pair should detect.
    moderate: float = 0.1
    # Share of the largest squared distance that every screen must be able to detect.
    strong: float = 0.5
    # Share of single questions if the only pair is asked without a screen.
    only_pair_singles: float = 0.5


SETTINGS = PlanSettings()


@lru_cache(maxsize=65536)
def marginal_variance(cells: int, kept: int, epsilon: float) -> float:
    """Variance of a cell from one report on `cells` cells, summed to `kept` equally likely ones."""
    f = 1.0 / kept
    return best(cells, epsilon).group_variance(cells // kept, f, 1) + f * (1 - f)


def _pair_worth(cells: int, kept: int, epsilon: float) -> float:
    """Information on a pair of `kept` cells of a report on `cells` cells, in pair questions."""
    return marginal_variance(kept, kept, epsilon) / marginal_variance(cells, kept, epsilon)


def _worths(
    members: Sequence[int], cardinalities: Sequence[int], epsilon: float
) -> list[tuple[int, int, float]]:
    cells = math.prod(cardinalities[a] for a in members)
    return [
        (a, b, _pair_worth(cells, cardinalities[a] * cardinalities[b], epsilon))
        for a, b in combinations(sorted(members), 2)
    ]


def attribute_sets(
    members: Sequence[int], cardinalities: Sequence[int], epsilon: float
) -> list[tuple[int, ...]]:
    """Sets that cover all pairs of `members` evenly; all pairs unless most sets have three or more."""
    every: list[tuple[int, ...]] = list(combinations(sorted(members), 2))
    narrow = sorted(members, key=lambda a: (cardinalities[a], a))[:3]
    if len(narrow) < 3 or math.prod(cardinalities[a] for a in narrow) > SETTINGS.max_cells:
        return every
    if sum(w for _, _, w in _worths(narrow, cardinalities, epsilon)) < SETTINGS.growth_gain:
        return every
    d = len(cardinalities)
    cover = np.full((d, d), np.inf)
    for a, b in every:
        cover[a, b] = 0.0
    # Breaks ties between equally covered pairs; the plan is a function of public facts.
    rng = np.random.default_rng(0)
    sets: list[tuple[int, ...]] = []
    while cover.min() < SETTINGS.covers and len(sets) < min(
        SETTINGS.covers * len(every), SETTINGS.max_sets
    ):
        first, second = divmod(int((cover + 1e-3 * rng.random((d, d))).argmin()), d)
        members_of_set = _grow([first, second], members, cardinalities, epsilon, cover, rng)
        for a, b, worth in _worths(members_of_set, cardinalities, epsilon):
            cover[a, b] += worth
        sets.append(tuple(sorted(members_of_set)))
    if 2 * sum(len(s) > 2 for s in sets) < len(sets):
        return every
    return sets + [pair for pair in every if cover[pair] == 0.0]


def _grow(
    chosen: list[int],
    members: Sequence[int],
    cardinalities: Sequence[int],
    epsilon: float,
    cover: np.ndarray,
    rng: np.random.Generator,
) -> list[int]:
    """Add attributes, least covered pairs first, while each adds enough information."""
    information, least = 1.0, float(cover.min())
    while True:
        found: tuple[float, int, float] | None = None
        cells = math.prod(cardinalities[a] for a in chosen)
        for candidate in rng.permutation(np.asarray(members))[:16].tolist():
            if candidate in chosen or cells * cardinalities[candidate] > SETTINGS.max_cells:
                continue
            worths = _worths([*chosen, candidate], cardinalities, epsilon)
            total = sum(w for _, _, w in worths)
            if total < SETTINGS.growth_gain * information:
                continue
            need = sum(w / (0.25 + cover[a, b] - least) for a, b, w in worths) * (
                1 + 1e-6 * rng.random()
            )
            if found is None or need > found[0]:
                found = (need, candidate, total)
        if found is None:
            return chosen
        chosen = [*chosen, found[1]]
        information = found[2]


def single_shares(cardinalities: Sequence[int], epsilon: float) -> Floats:
    """Shares of single questions with the least sum of one-way errors, as in `independent`."""
    questions = [Question((str(i),), best(k, epsilon)) for i, k in enumerate(cardinalities)]
    return np.asarray(question_shares(questions, "least-error"))


def one_way_precision(cardinalities: Sequence[int], epsilon: float, sets: Sets) -> Floats:
    """The mean precision of a cell of each attribute's marginal per participant of a plan."""
    precision = np.zeros(len(cardinalities))
    for members, share in sets:
        cells = math.prod(cardinalities[a] for a in members)
        for a in members:
            precision[a] += share / marginal_variance(cells, cardinalities[a], epsilon)
    return precision


def one_way_error(cardinalities: Sequence[int], precision: Floats) -> float:
    """The mean of k times the standard error of a cell, proportional to the one-way error."""
    return float((np.asarray(cardinalities) / np.sqrt(np.maximum(precision, 1e-300))).mean())


def pair_plan(
    cardinalities: Sequence[int],
    epsilon: float,
    members: Sequence[int],
    singles: float | None = None,
) -> Sets:
    """Sets of the members, some single questions, and the other attributes alone, with shares."""
    size = single_shares(cardinalities, epsilon)
    if len(members) < 2:
        return [((i,), float(s)) for i, s in enumerate(size)]
    sets = attribute_sets(members, cardinalities, epsilon)
    # Larger sets already carry the one-way marginals well.
    alone = (
        SETTINGS.singles * (1 - sum(len(s) > 2 for s in sets) / len(sets))
        if singles is None
        else singles
    )
    out: Sets = []
    for i, s in enumerate(size):
        share = float(s) * (alone if i in members else 1.0)
        if share > 0:
            out.append(((i,), share))
    rest = 1.0 - sum(share for _, share in out)
    return out + [(s, rest / len(sets)) for s in sets]


def pairs_are_free(cardinalities: Sequence[int], epsilon: float, regret: float = 0.02) -> bool:
    """Whether pairs or sets measure the one-way marginals as well as single questions."""
    alone: Sets = [((i,), float(s)) for i, s in enumerate(single_shares(cardinalities, epsilon))]
    together = pair_plan(cardinalities, epsilon, range(len(cardinalities)))
    errors = [
        one_way_error(cardinalities, one_way_precision(cardinalities, epsilon, s))
        for s in (together, alone)
    ]
    return errors[0] <= (1.0 + regret) * errors[1]


@dataclass(frozen=True)
class Screen:
    """The first round: all pairs of some attributes, and its share of the participants."""

    members: tuple[int, ...]
    share: float

    @property
    def sets(self) -> Sets:
        pairs = list(combinations(self.members, 2))
        return [(pair, 1.0 / len(pairs)) for pair in pairs]


def rest_shares(
    cardinalities: Sequence[int], epsilon: float, asked: Floats, share: float
) -> Floats:
    """Shares of single questions in the second round with the least sum of one-way errors.

    `asked` is each attribute's precision from the first round, per participant of the campaign.
    """
    base = single_shares(cardinalities, epsilon)
    alone = np.array([marginal_variance(c, c, epsilon) for c in cardinalities])
    if not (asked > 0).any():
        return base
    # The precisions of the best plan from scratch, up to a factor.
    wanted = base / alone
    low, high = 0.0, 2.0 / (1.0 - share) + float((asked / wanted).max())
    for _ in range(60):
        level = (low + high) / 2
        used = float((np.maximum(level * wanted - asked, 0.0) * alone).sum())
        low, high = (level, high) if used < 1.0 - share else (low, level)
    out = np.maximum(low * wanted - asked, 0.0) * alone
    return np.asarray(out / out.sum())


def screen_cost(cardinalities: Sequence[int], epsilon: float, screen: Screen) -> float:
    """By what part the mean one-way error grows over `independent` when the screen finds nothing."""
    asked = screen.share * one_way_precision(cardinalities, epsilon, screen.sets)
    rest = rest_shares(cardinalities, epsilon, asked, screen.share)
    alone: Sets = [((i,), float(s)) for i, s in enumerate(rest)]
    total = asked + (1.0 - screen.share) * one_way_precision(cardinalities, epsilon, alone)
    base: Sets = [((i,), float(s)) for i, s in enumerate(single_shares(cardinalities, epsilon))]
    single = one_way_precision(cardinalities, epsilon, base)
    return one_way_error(cardinalities, total) / one_way_error(cardinalities, single) - 1.0


def _screen_share(
    cardinalities: Sequence[int],
    epsilon: float,
    members: Sequence[int],
    loss: float = SETTINGS.loss,
) -> float:
    """The largest share of the participants for which a screen stays within the loss."""
    low, high = 0.0, SETTINGS.max_share
    if screen_cost(cardinalities, epsilon, Screen(tuple(members), SETTINGS.max_share)) <= loss:
        return SETTINGS.max_share
    for _ in range(12):
        middle = (low + high) / 2
        cost = screen_cost(cardinalities, epsilon, Screen(tuple(members), middle))
        low, high = (middle, high) if cost <= loss else (low, middle)
    return low


def _noise_energy(
    cardinalities: Sequence[int], epsilon: float, members: Sequence[int], people: float
) -> float:
    """The mean squared noise of a table of the members' pairs, if `people` answer them evenly."""
    k = np.asarray(cardinalities)[list(members)]
    widths, counts = np.unique(k, return_counts=True)
    total = 0.0
    for i, a in enumerate(widths.tolist()):
        for j, b in enumerate(widths.tolist()[: i + 1]):
            many = counts[i] * (counts[i] - 1) / 2 if i == j else counts[i] * counts[j]
            if many:
                total += float(many) * a * b * marginal_variance(a * b, a * b, epsilon)
    return total / people


def _width_order(cardinalities: Sequence[int]) -> list[int]:
    """The attributes from narrow to wide; ties do not depend on the order of the schema."""
    tie = np.random.default_rng(0).permutation(len(cardinalities))
    return sorted(range(len(cardinalities)), key=lambda a: (cardinalities[a], tie[a]))


def plan_screen(cardinalities: Sequence[int], n: int, epsilon: float) -> Screen:
    """The first round, from public facts: the narrowest attributes and its participants.

    Attributes are so few that `min_signal` is measured within `max_signal_error`.
    """
    order = _width_order(cardinalities)
    everything = _noise_energy(cardinalities, epsilon, order, n)
    least = min(3, len(order))
    most = max(least, round(SETTINGS.max_attributes * len(order)))
    for m in sorted({round(m) for m in np.geomspace(least, most, 9)}, reverse=True):
        members = tuple(sorted(order[:m]))
        screen = Screen(members, _screen_share(cardinalities, epsilon, members))
        sharpness = _screen_deviation(cardinalities, n, epsilon, screen) / everything
        if sharpness <= SETTINGS.max_signal_error:
            break
    planned = Screen(
        screen.members, screen.share * min(1.0, max(sharpness / SETTINGS.target_signal_error, 0.2))
    )
    return planned if len(order) > 2 else _for_one_pair(cardinalities, n, epsilon, planned)


def _for_one_pair(cardinalities: Sequence[int], n: int, epsilon: float, planned: Screen) -> Screen:
    """A screen of two attributes that detects moderate dependence, within `loss_one_pair`."""
    everybody = _screen_deviation(cardinalities, n, epsilon, Screen(planned.members, 1.0))
    needed = (
        SETTINGS.detection_z
        * everybody
        / (SETTINGS.moderate * _largest_distance(cardinalities, planned))
    )
    most = _screen_share(cardinalities, epsilon, planned.members, SETTINGS.loss_one_pair)
    return Screen(planned.members, max(planned.share, min(needed, most)))


def _largest_distance(cardinalities: Sequence[int], screen: Screen) -> float:
    """The squared distance from independence of two attributes that determine each other: (k-1)/k^2."""
    k = float(np.median([cardinalities[a] for a in screen.members]))
    return (k - 1) / k**2


def _screen_deviation(
    cardinalities: Sequence[int], n: int, epsilon: float, screen: Screen
) -> float:
    """The standard deviation, under independence, of the mean squared distance that a screen measures."""
    cells = [cardinalities[a] * cardinalities[b] for a, b in combinations(screen.members, 2)]
    squares = math.fsum(2.0 * c * marginal_variance(c, c, epsilon) ** 2 for c in cells)
    return math.sqrt(squares) / (n * screen.share)


def _is_hopeless(cardinalities: Sequence[int], n: int, epsilon: float, screen: Screen) -> bool:
    """Whether a screen would miss strong dependence, or pairs would not gain from it."""
    strong = SETTINGS.strong * _largest_distance(cardinalities, screen)
    people = n * float(single_shares(cardinalities, epsilon)[list(screen.members)].sum())
    seen = SETTINGS.detection_z * _screen_deviation(cardinalities, n, epsilon, screen)
    return strong < max(
        seen, SETTINGS.min_signal * _noise_energy(cardinalities, epsilon, screen.members, people)
    )


def _may_miss(cardinalities: Sequence[int], n: int, epsilon: float, screen: Screen) -> bool:
    """Whether a screen of a single pair may miss moderate dependence."""
    seen = SETTINGS.detection_z * _screen_deviation(cardinalities, n, epsilon, screen)
    return seen > (1 + 1e-9) * SETTINGS.moderate * _largest_distance(cardinalities, screen)


def _line_is_seen(cardinalities: Sequence[int], n: int, epsilon: float) -> bool:
    """Whether the answers about the only pair would show a full correlation of its codes.

    The noise of the correlation is computed for equally frequent codes.
    """
    cells = math.prod(cardinalities)
    people = n * (1 - SETTINGS.only_pair_singles)
    return (
        SETTINGS.detection_z * math.sqrt(cells * marginal_variance(cells, cells, epsilon) / people)
        <= 1
    )


@dataclass(frozen=True)
class ScreenEvidence:
    """The screen's results by pair.

    They are the unbiased squared distance from independence, and its standard deviation under
    independence. `p_value` tests all pairs together.
    """

    pairs: list[tuple[int, int]]
    excess: Floats
    null_deviation: Floats
    p_value: float

    @property
    def found(self) -> bool:
        return self.p_value < SETTINGS.level

    @property
    def strength(self) -> float:
        """A typical squared distance, less affected by one strong pair than the mean."""
        roots = np.sign(self.excess) * np.sqrt(np.abs(self.excess))
        return float(np.sqrt(max(self.excess.mean(), 0.0)) * max(roots.mean(), 0.0))


@dataclass(frozen=True)
class ScreenDesign:
    """How a campaign begins, from public facts: with a screen, or in one round of pairs (`pairs`) or of single attributes.

    `alone` is the share that is asked single attributes besides pairs, where that is not the usual one.
    """

    screen: Screen | None
    pairs: bool
    alone: float | None = None


def design(
    cardinalities: Sequence[int],
    n: int,
    epsilon: float,
    screen: str = "auto",
    *,
    ordered: bool = False,
) -> ScreenDesign:
    """Pairs in one round where they cost no one-way precision, singles where no screen could see dependence, else a screen.

    `ordered` says that all attributes have an order.
    """
    if len(cardinalities) < 2:
        return ScreenDesign(None, pairs=False)
    if screen == "never" or (screen == "auto" and pairs_are_free(cardinalities, epsilon)):
        return ScreenDesign(None, pairs=True)
    planned = plan_screen(cardinalities, n, epsilon)
    only_pair = screen == "auto" and ordered and len(cardinalities) == 2
    if (
        only_pair
        and _may_miss(cardinalities, n, epsilon, planned)
        and _line_is_seen(cardinalities, n, epsilon)
    ):
        return ScreenDesign(None, pairs=True, alone=SETTINGS.only_pair_singles)
    if screen == "auto" and _is_hopeless(cardinalities, n, epsilon, planned):
        return ScreenDesign(None, pairs=False)
    return ScreenDesign(planned, pairs=False)


def paying_members(
    cardinalities: Sequence[int], n: float, epsilon: float, seen: ScreenEvidence
) -> list[int]:
    """The attributes to ask in pairs, from the narrowest.

    As many as possible while the dependence measured by the screen exceeds `min_signal` times
    the noise; none if that fails for the fewest.
    """
    if not seen.found:
        return []
    order, strength = _width_order(cardinalities), seen.strength
    share = single_shares(cardinalities, epsilon)
    for m in sorted(
        {round(f * len(order)) for f in np.linspace(SETTINGS.max_attributes, 1.0, 13)}, reverse=True
    ):
        members = sorted(order[:m])
        people = n * float(share[members].sum())
        if m > 1 and strength >= SETTINGS.min_signal * _noise_energy(
            cardinalities, epsilon, members, people
        ):
            return members
    return []


def _centred(columns: Columns, matrix: Floats) -> Floats:
    """Each block of pairs without its row and column means."""
    k = columns.cardinalities.astype(np.float64)
    out = matrix - columns.spread(columns.sums(matrix) / k)
    means = columns.sums(out.T).T / k[:, None]
    return np.asarray(out - np.repeat(means, columns.cardinalities, axis=0))


def _blocks(columns: Columns, matrix: Floats) -> Floats:
    """The sum over each pair's block."""
    return columns.sums(columns.sums(matrix).T).T


def _square_mixed(columns: Columns, matrix: Floats) -> Floats:
    """v -> (C o C) v along each block's columns, with C the centring matrix: (1 - 2/k) v + sum(v)/k^2."""
    k = columns.cardinalities.astype(np.float64)
    return np.asarray(
        matrix * columns.spread(1.0 - 2.0 / k) + columns.spread(columns.sums(matrix) / k**2)
    )


def second_round(screen: Screen, sets: Sets) -> Sets:
    """Shares of the remaining people such that both rounds together come as near to the plan `sets` as they can."""
    asked = dict(screen.sets)
    left = [
        (members, max(share - screen.share * asked.get(members, 0.0), 0.0))
        for members, share in sets
    ]
    total = math.fsum(share for _, share in left)
    return [(members, share / total) for members, share in left]


def evidence(targets: PairTargets) -> ScreenEvidence:
    """Test all asked pairs for dependence; exact null mean and variance of each statistic, gamma law matched to them."""
    columns, k = targets.columns, targets.columns.cardinalities.astype(np.float64)
    product = np.outer(targets.one, targets.one)
    energy = _blocks(columns, _centred(columns, targets.pairs - product) ** 2)
    c0, c1, c2 = (columns.spread_pairs(c) for c in targets.pair_noise)
    noise = c0 + product * (c1 - c2 * product)
    shrink = np.outer(1.0 - 1.0 / k, 1.0 - 1.0 / k)
    centred_product = _centred(columns, product) ** 2
    own = columns.sums((targets.one - columns.spread(columns.sums(targets.one) / k)) ** 2)  # |Ca|^2
    variance = columns.sums(targets.one_variance) / k
    # First-order noise of the one-way marginals: a's along b and b's along a.
    line = np.outer((k - 1) * variance, own)
    extra = line + line.T + np.outer((k - 1) * variance, (k - 1) * variance)
    sampling = targets.pair_noise[2]
    mean = shrink * _blocks(columns, noise) - sampling * np.outer(own, own) + extra
    mixed = _square_mixed(columns, _square_mixed(columns, noise).T).T
    square = _blocks(columns, noise * mixed) - 2 * sampling * _blocks(
        columns, noise * centred_product
    )
    square += (sampling * np.outer(own, own)) ** 2
    ends = line**2 / np.maximum(k - 1, 1.0)[:, None]
    square += ends + ends.T + 2 * _blocks(columns, noise) / np.outer(k, k) * extra
    asked = [
        (int(i), int(j))
        for i, j in zip(*np.nonzero(np.triu(targets.pair_noise[1] > 0, 1)), strict=True)
    ]
    rows, cols = np.array(asked).T
    energies, means = energy[rows, cols], np.maximum(mean[rows, cols], 1e-300)
    deviations = np.sqrt(2 * np.maximum(square[rows, cols], 1e-300))
    return ScreenEvidence(
        asked,
        energies - means,
        deviations,
        _combined(energies, means, deviations, k[rows] * k[cols]),
    )


def _combined(energies: Floats, means: Floats, deviations: Floats, cells: Floats) -> float:
    """One p-value: the strongest pair, and sums over the 1, 2, 4, ... narrowest pairs, each with half of the level."""
    single = float(_gamma_tail(energies, means, deviations).min()) * len(cells)
    order = np.argsort(cells, kind="stable")
    scaled = np.cumsum((energies / deviations)[order])
    expected = np.cumsum((means / deviations)[order])
    sizes = sorted(
        {min(2**p, len(cells)) for p in range(1, math.ceil(math.log2(max(len(cells), 2))) + 1)}
    )
    last = np.array(sizes) - 1
    sums = float(_gamma_tail(scaled[last], expected[last], np.sqrt(last + 1.0)).min()) * len(sizes)
    return min(1.0, 2 * min(single, sums))


def _gamma_tail(value: Floats, mean: Floats, deviation: Floats) -> Floats:
    """The upper tail of the gamma law with this mean and deviation: exact for a sum of equal squares."""
    return np.asarray(
        gammaincc((mean / deviation) ** 2, np.maximum(value, 0.0) * mean / deviation**2)
    )
