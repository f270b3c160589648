"""Figures of the report: standard errors, strong pairs, bars, grouped heat maps and quality."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import TYPE_CHECKING

import numpy as np

from dither.display import Bar
from dither.fit import Marginal, Model
from dither.fit.bayes_net import BayesNet
from dither.fit.junction_tree import JunctionTree
from dither.fit.pool import answers_of, pool
from dither.fit.project import normal_interval
from dither.mechanisms import Mechanism
from dither.methods import fitted_tallies
from dither.release.query.ask import GroupShares, Inquiry
from dither.schema import Attribute
from dither.tally import CountTally
from dither.types import Floats

if TYPE_CHECKING:
    from dither.release.release import Release


def measured_errors(
    measured: Sequence[Marginal], attributes: Sequence[str], participants: int
) -> Floats | None:
    """Standard errors of exactly these attributes for all participants; None if not measured.

    A measurement's standard error is that of the devices' noise. If only n of N
    participants were asked, sampling without replacement adds f(1-f) (1/n - 1/N) to the
    variance, with n the effective sample size. Of several measurements of the same
    attributes the one with the most answers is used.

    Args:
        measured: The measured marginals.
        attributes: The attributes, in the order of the result's axes.
        participants: All participants; 0 to leave out the sampling error.
    """
    found = [m for m in measured if sorted(m.attributes) == sorted(attributes)]
    if not found:
        return None
    best = max(found, key=lambda m: m.n)
    f = np.clip(best.frequencies, 0.0, 1.0)
    # Unequal weights leave a sampling error even if all participants were asked.
    chance = max(0.0, 1 / best.sample_size - 1 / max(participants, 1)) if participants else 0.0
    errors = np.sqrt(best.variances + f * (1 - f) * chance)
    return np.transpose(errors, [best.attributes.index(name) for name in attributes])


Errors = Callable[[Sequence[str]], Floats | None]
# The shares of groups of codes, given attributes, for each its groups, and a level; None if unknown.
Shares = Callable[[Sequence[str], Sequence[Sequence[Sequence[int]]], float], GroupShares | None]
LEVEL = 0.95


def pair_errors(release: Release) -> Errors:
    """Return a function from two attributes to the standard errors of their cells.

    It returns None if no answer covers both attributes. The first of these that exists
    is used: the pair as the method measured it; all answers about a set with both,
    pooled; whole records whose attributes were randomised separately. The errors are
    those of the reports about the pair: the devices' noise and the sampling of
    participants. A model can gain by pooling other answers and lose by its shape;
    `dither.bootstrap` covers both.
    """
    tallies = [] if release.state is None else fitted_tallies(release.state)
    answers = answers_of([tally for tally in tallies if isinstance(tally, CountTally)])
    asked = [set(answer.question.attributes) for answer in answers]
    whole = [tally for tally in tallies if not isinstance(tally, CountTally)]

    def errors(names: Sequence[str]) -> Floats | None:
        measured = measured_errors(release.measured, names, release.people)
        if measured is not None:
            return measured
        if any(set(names) <= together for together in asked):
            return measured_errors([pool(release.schema, answers, names)], names, release.people)
        for tally in whole:
            alone = {
                q.attributes[0]: q.mechanism for q in tally.plan.questions if len(q.attributes) == 1
            }
            if set(names) <= set(alone) and tally.participants:
                first, second = (alone[name] for name in names)
                return split_errors(
                    first, second, release.model.marginal(names), tally.participants
                )
        return None

    return errors


def split_errors(first: Mechanism, second: Mechanism, joint: Floats, n: int) -> Floats:
    """Standard errors of products of two attributes' estimates, averaged over n people.

    With u and w the single estimates of one person's cells a and b, independent given
    the record, the variance of the mean of u w is (E[u^2 w^2] - f_ab) / n. E[u^2] is 1
    plus the variance for people whose value is a, and the variance alone for others.
    With many people an EM fit is at least as precise.
    """
    hit, miss = 1 + first.variance(1.0, 1), first.variance(0.0, 1)
    hit_, miss_ = 1 + second.variance(1.0, 1), second.variance(0.0, 1)
    rows, columns = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    squares = joint * hit * hit_ + (rows - joint) * hit * miss_ + (columns - joint) * miss * hit_
    squares = squares + (1 - rows - columns + joint) * miss * miss_
    return np.asarray(np.sqrt(np.maximum(squares - joint, 0.0) / n))


# Pairs: the strongest dependences, and those compared with the truth.

# Pairs compared with the truth: all of 25 attributes, evenly spread ones of more.
MAX_PAIRS = 300
# The same for trees and nets, where a distant pair needs a walk through the graph.
MAX_DISTANT = 100
# All pairs of 200 attributes. Of more attributes, measured pairs are searched first.
MAX_SEARCHED = 20_000
PAIR_CELLS = 1_000_000
# Cells of all searched pairs together.
SEARCH_CELLS = 20_000_000
# Weaker dependences are not visible in a chart.
WEAKEST_BITS = 1e-3
MAX_EDGES = 40
MAX_NODES = 30


@dataclass(frozen=True)
class Pair:
    """Two attributes and their mutual information in the model, in bits."""

    first: str
    second: str
    bits: float


def strong_pairs(release: Release) -> tuple[Pair, ...]:
    """The attribute pairs of the model by decreasing mutual information, without weak ones.

    For more than 25 attributes in a tree or a net only its edges are compared: more
    distant attributes depend on each other through them.
    """
    found = []
    for first, second in _searched(release):
        bits = _mutual_information(release.model.marginal([first, second]))
        if bits >= WEAKEST_BITS:
            found.append(Pair(first, second, bits))
    return tuple(sorted(found, key=lambda pair: -pair.bits))


def graph_edges(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The strongest pairs for the graph: at most 40 between at most 30 attributes."""
    edges: list[Pair] = []
    nodes: set[str] = set()
    for pair in pairs:
        if len(edges) < MAX_EDGES and len(nodes | {pair.first, pair.second}) <= MAX_NODES:
            edges.append(pair)
            nodes |= {pair.first, pair.second}
    return tuple(edges)


def telling_attributes(release: Release, pairs: Sequence[Pair], most: int) -> tuple[str, ...]:
    """Select the attributes that depend most on another, then the schema's first ones.

    They are returned in the schema's order.
    """
    strength = dict.fromkeys(release.schema.names, 0.0)
    for pair in pairs:
        for name in (pair.first, pair.second):
            strength[name] = max(strength[name], pair.bits)
    kept = set(sorted(strength, key=lambda name: -strength[name])[:most])
    return tuple(name for name in release.schema.names if name in kept)


def _mutual_information(joint: Floats) -> float:
    """Mutual information of a two-way distribution in bits."""
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    seen = joint > 0
    return max(0.0, float((joint[seen] * np.log2(joint[seen] / outer[seen])).sum()))


def _compared_pairs(release: Release) -> list[tuple[str, str]]:
    """At most 300 pairs, evenly spread over all; fewer where each takes long."""
    pairs = list(combinations(release.schema.names, 2))
    wide = len(pairs) > MAX_PAIRS and _joined(release.model) is not None
    count = min(len(pairs), MAX_DISTANT if wide else MAX_PAIRS)
    kept = [pairs[i * len(pairs) // count] for i in range(count)]
    return [pair for pair in kept if release.schema.cells(pair) <= PAIR_CELLS]


def _searched(release: Release) -> list[tuple[str, str]]:
    """The pairs to search for the strongest: all, or if too many, measured ones first."""
    if release.model.kind == "independent":
        return []
    names = release.schema.names
    pairs = _ordered(release, (m.attributes for m in release.measured if len(m.attributes) == 2))
    near = None if math.comb(len(names), 2) <= MAX_PAIRS else _joined(release.model)
    if near is not None:
        pairs |= _ordered(release, ((names[i], names[j]) for i, j in near))
    else:
        pairs |= dict.fromkeys(islice(combinations(names, 2), MAX_SEARCHED))
    out, cells = [], 0
    for pair in islice(pairs, MAX_SEARCHED):
        size = release.schema.cells(pair)
        if size <= PAIR_CELLS and cells + size <= SEARCH_CELLS:
            out.append(pair)
            cells += size
    return out


def _ordered(release: Release, pairs: Iterable[Sequence[str]]) -> dict[tuple[str, str], None]:
    """Pairs without repetition, each in the schema's order."""
    place = {name: i for i, name in enumerate(release.schema.names)}
    both = (sorted(pair, key=place.__getitem__) for pair in pairs)
    return dict.fromkeys((first, second) for first, second in both)


def _joined(model: Model) -> list[tuple[int, int]] | None:
    """The edges of a model's graph; None for a model without a graph."""
    if isinstance(model, JunctionTree):
        return [pair for clique in model.tree.cliques for pair in combinations(clique, 2)]
    if isinstance(model, BayesNet):
        return [(i, parent) for i, parents in enumerate(model.parents) for parent in parents]
    return None


# Bars, heat maps and the distance from the truth.

MAX_BARS = 20
HEAT_SIDE = 16
# Groups that leave room for a number in each cell on a phone.
NUMBERED_ROWS = 12
NUMBERED_COLUMNS = 8


@dataclass(frozen=True)
class AttributeFigure:
    """One attribute's distribution: `bars` to draw, `table` of all values, a remark on groups.

    Intervals of `ranked` figures hold all together in 95 % of collections: a list of the largest
    figures has those whose errors made them large, and each interval on its own would miss too
    often there.
    """

    name: str
    bars: tuple[Bar, ...]
    table: tuple[Bar, ...]
    remark: str = ""
    ranked: bool = False


@dataclass(frozen=True)
class HeatMap:
    """A joint distribution on grouped axes, with a second one to compare.

    `beside` is the truth, or (`intervals`) half the width of the 95 % intervals, or
    None.
    """

    pair: Pair
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    estimate: Floats
    beside: Floats | None
    beside_title: str
    intervals: bool = False
    # Half-widths of intervals that hold for all cells together, for a list of the largest.
    ranked: Floats | None = None


@dataclass(frozen=True)
class Quality:
    """How far the model is from the truth of a simulation."""

    one_way: dict[str, float]
    two_way_mean: float | None
    two_way_worst: tuple[tuple[str, str], float] | None
    pairs: int
    possible_pairs: int
    covered: float | None
    intervals: int

    @property
    def one_way_mean(self) -> float:
        """The mean distance of the single attributes' distributions."""
        return sum(self.one_way.values()) / len(self.one_way)


def attribute_figure(
    attribute: Attribute,
    marginal: Marginal,
    truth: Floats | None = None,
    shares: Shares | None = None,
    *,
    ranked: bool = False,
) -> AttributeFigure:
    """The bars of one attribute: in order if its values have one, else by falling frequency.

    Values by falling frequency are a ranked list, whose intervals hold together.

    Args:
        attribute: The attribute.
        marginal: Its distribution.
        truth: The true frequencies, in a simulation.
        shares: Answers the shares of groups of values with the intervals of all questions;
            without it intervals follow from the marginal's standard errors.
        ranked: Whether the largest of ordered values are going to be picked, too.
    """
    ranked = ranked or not attribute.ordered
    level = together(attribute.cardinality) if ranked else LEVEL
    values = _bars(marginal, truth, shares, level)
    if attribute.ordered:
        groups = _neighbours(attribute, MAX_BARS)
        size = max(len(group) for group in groups)
        remark = f"Drawn in groups of up to {size} neighbouring values." if size > 1 else ""
        labels = _short_labels(attribute, groups)
        bars = tuple(
            _merge(values, group, label) for group, label in zip(groups, labels, strict=True)
        )
        merged = None if shares is None else shares([attribute.name], [groups], level)
        if merged is not None:
            bars = _with_intervals(bars, merged)
        return AttributeFigure(attribute.name, bars, values, remark, ranked)
    values = tuple(sorted(values, key=lambda bar: -bar.estimate))
    if len(values) <= MAX_BARS:
        return AttributeFigure(attribute.name, values, values, ranked=ranked)
    rest = len(values) - MAX_BARS
    remark = f"The {MAX_BARS} most frequent; {rest} more are in the table."
    return AttributeFigure(attribute.name, values[:MAX_BARS], values, remark, ranked)


def together(count: int) -> float:
    """The level of each of `count` intervals that hold together in 95 % of collections.

    For errors of any correlation, up to a hundredth (Sidak).
    """
    return float(LEVEL ** (1 / max(count, 1)))


def group_shares(release: Release) -> Shares | None:
    """The function that answers questions about a release; None for a table without replicates.

    Making replicates takes as long as twenty fits, so a page does not do it.
    """
    if release.kind == "table" and release.replicates is None:
        return None
    questions = release.content.questions(release)
    return questions.groups if isinstance(questions, Inquiry) else None


def heat_map(release: Release, pair: Pair, errors: Errors | None = None) -> HeatMap:
    """The joint distribution of a pair on grouped axes; the one with more values is vertical.

    The second map is the truth of a simulation, otherwise half the width of the 95 %
    interval from the standard errors of `errors` (by default the release's; a group's
    errors are added in squares). Groups are then few enough to print numbers in the
    cells.
    """
    names = [pair.first, pair.second]
    if release.schema[names[0]].cardinality < release.schema[names[1]].cardinality:
        names.reverse()
    joint = release.model.marginal(names)
    found = None if release.truth is not None else (errors or pair_errors(release))(names)
    most = (
        (HEAT_SIDE, HEAT_SIDE) if release.truth is not None else (NUMBERED_ROWS, NUMBERED_COLUMNS)
    )
    grouped = [
        _groups(release.schema[name], joint.sum(axis=1 - i), most[i])
        for i, name in enumerate(names)
    ]
    beside, title = None, ""
    shares = group_shares(release)
    sides = [[members for _, members in side] for side in grouped]
    answered = None if shares is None else shares(names, sides, LEVEL)
    ranked = None
    if release.truth is not None:
        beside, title = _fold(release.truth.marginal(names), grouped), "truth"
    elif answered is not None:
        beside, title = answered.half_widths, "95 % interval, ±"
        assert shares is not None
        whole = shares(names, sides, together(beside.size))
        ranked = None if whole is None else whole.half_widths
    elif found is not None:
        folded = np.sqrt(_fold(np.square(found), grouped))
        beside, title = normal_interval(np.zeros_like(folded), folded)[1], "95 % interval, ±"
        ranked = normal_interval(np.zeros_like(folded), folded, together(folded.size))[1]
    labels = [tuple(label for label, _ in side) for side in grouped]
    shown = Pair(names[0], names[1], pair.bits)
    return HeatMap(
        shown,
        labels[0],
        labels[1],
        _fold(joint, grouped) if answered is None else answered.estimates,
        beside,
        title,
        intervals=release.truth is None and beside is not None,
        ranked=ranked,
    )


def quality(release: Release) -> Quality | None:
    """The model's distance from the truth and the intervals' coverage; None without a truth."""
    truth = release.truth
    if truth is None:
        return None
    one_way, covered, intervals = {}, 0, 0
    for name in release.schema.names:
        bars = _bars(release.marginal([name]), truth.marginal([name]), group_shares(release), LEVEL)
        one_way[name] = 0.5 * math.fsum(abs(bar.estimate - (bar.truth or 0.0)) for bar in bars)
        for bar in bars:
            if bar.low is not None and bar.high is not None and bar.truth is not None:
                intervals += 1
                covered += bar.low - 1e-12 <= bar.truth <= bar.high + 1e-12
    pairs = _compared_pairs(release)
    two_way = [
        0.5 * float(np.abs(release.model.marginal(p) - truth.marginal(p)).sum()) for p in pairs
    ]
    worst = int(np.argmax(two_way)) if two_way else -1
    return Quality(
        one_way=one_way,
        two_way_mean=float(np.mean(two_way)) if two_way else None,
        two_way_worst=(pairs[worst], two_way[worst]) if two_way else None,
        pairs=len(pairs),
        possible_pairs=math.comb(len(release.schema), 2),
        covered=covered / intervals if intervals else None,
        intervals=intervals,
    )


def _with_intervals(bars: Sequence[Bar], shares: GroupShares) -> tuple[Bar, ...]:
    figures = zip(bars, shares.estimates, shares.low, shares.high, strict=True)
    return tuple(
        replace(bar, estimate=float(estimate), low=float(low), high=float(high))
        for bar, estimate, low, high in figures
    )


def _bars(
    marginal: Marginal, truth: Floats | None, shares: Shares | None, level: float
) -> tuple[Bar, ...]:
    codes = [[i] for i in range(len(marginal.labels[0]))]
    answered = None if shares is None else shares(marginal.attributes, [codes], level)
    low = high = None
    if marginal.standard_errors is not None:
        low, high = normal_interval(marginal.frequencies, marginal.standard_errors, level)
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    bars = tuple(
        Bar(
            label,
            float(marginal.frequencies[i]),
            None if low is None else float(low[i]),
            None if high is None else float(high[i]),
            None if truth is None else float(truth[i]),
        )
        for i, label in enumerate(marginal.labels[0])
    )
    return bars if answered is None else _with_intervals(bars, answered)


def _neighbours(attribute: Attribute, most: int) -> list[list[int]]:
    """Cut codes into at most `most` runs of nearly equal length; a missing code stays separate."""
    answers = list(range(attribute.answers))
    room = most - int(attribute.missing)
    size = math.ceil(len(answers) / room)
    groups = [answers[i : i + size] for i in range(0, len(answers), size)]
    return [*groups, [attribute.answers]] if attribute.missing else groups


def _merge(bars: Sequence[Bar], group: Sequence[int], label: str) -> Bar:
    """The sum of neighbouring bars; their intervals' half-widths add up in squares."""
    members = [bars[i] for i in group]
    if len(members) == 1:
        return replace(members[0], label=label)
    estimate = math.fsum(bar.estimate for bar in members)
    low = high = None
    reach = [bar.high - bar.estimate for bar in members if bar.high is not None]
    if len(reach) == len(members):
        half = math.sqrt(math.fsum(r * r for r in reach))
        low, high = max(0.0, estimate - half), min(1.0, estimate + half)
    truth = None if members[0].truth is None else math.fsum(bar.truth or 0.0 for bar in members)
    return Bar(label, estimate, low, high, truth)


def _short_labels(attribute: Attribute, groups: Sequence[Sequence[int]]) -> list[str]:
    """Short labels of groups: bins by outer edges in few digits, others by first and last."""
    full = attribute.labels
    bounds = attribute.line.boundaries if attribute.kind == "numeric" else ()
    shown = dict(zip(bounds, _compact(bounds), strict=True))
    out = []
    for group in groups:
        first, last = group[0], group[-1]
        if attribute.kind == "numeric" and last < attribute.answers:
            low, high = shown[attribute.line.ends[first][0]], shown[attribute.line.ends[last][1]]
            out.append(low if low == high else f"{low} to {high}")
        else:
            out.append(full[first] if first == last else f"{full[first]} to {full[last]}")
    return out


def _compact(edges: Sequence[float]) -> list[str]:
    """Format numbers with as few digits as keep them distinct: 1.5M, 50k, 99,999, 0.25."""
    shown: list[str] = []
    for digits in range(3, 13):
        shown = [_people_write(edge, digits) for edge in edges]
        if len(set(shown)) == len(edges):
            break
    return shown


def _people_write(number: float, digits: int) -> str:
    """Round to significant digits; round thousands and millions get k and M, others commas."""
    for scale, unit, most in ((1e6, "M", 4), (1e3, "k", 3)):
        if max(scale, 1e4) <= abs(number) < 1e12:
            in_unit = np.format_float_positional(
                number / scale, precision=most, fractional=False, trim="-"
            )
            if float(in_unit) * scale == number:
                return f"{in_unit}{unit}"
    if abs(number) >= 1e4:
        return f"{number:,.{max(0, digits - len(str(int(abs(number)))))}f}"
    return np.format_float_positional(number, precision=digits, fractional=False, trim="-")


def _groups(attribute: Attribute, frequencies: Floats, most: int) -> list[tuple[str, list[int]]]:
    """An axis of a heat map: runs of neighbours if ordered, else frequent values and the rest."""
    labels = attribute.labels
    if attribute.ordered:
        runs = _neighbours(attribute, most)
        return list(zip(_short_labels(attribute, runs), runs, strict=True))
    if attribute.cardinality <= most:
        return [(label, [i]) for i, label in enumerate(labels)]
    order = [int(i) for i in np.argsort(-frequencies, kind="stable")]
    kept = order[: most - 1]
    rest = order[most - 1 :]
    return [*((labels[i], [i]) for i in kept), (f"{len(rest)} others", rest)]


def _fold(joint: Floats, grouped: Sequence[Sequence[tuple[str, list[int]]]]) -> Floats:
    rows = np.stack([joint[members].sum(axis=0) for _, members in grouped[0]])
    return np.stack([rows[:, members].sum(axis=1) for _, members in grouped[1]], axis=1)
