"""The numbers behind a report: which pairs of attributes it looks at, ordered bars of one attribute, grouped heat maps, quality."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import TYPE_CHECKING

import numpy as np

from dither.display import Bar
from dither.fit import Marginal, Model
from dither.fit.bayes_net import BayesNet
from dither.fit.junction_tree import JunctionTree
from dither.fit.project import normal_interval
from dither.release.standard_errors import Errors, pair_errors
from dither.schema import Attribute
from dither.types import Floats

if TYPE_CHECKING:
    from dither.release.release import Release

# Pairs: the strongest dependences, and those compared with the truth.

MAX_PAIRS = 300  # all pairs of 25 attributes; of more attributes so many, evenly spread, are compared with the truth
MAX_DISTANT = (
    100  # the same for trees and nets, where a pair far apart takes a walk through the graph
)
MAX_SEARCHED = (
    20_000  # all pairs of 200 attributes; beyond that pairs that were measured are looked at first
)
PAIR_CELLS = 1_000_000
SEARCH_CELLS = 20_000_000  # of all pairs that are looked at together
WEAKEST_BITS = 1e-3  # a dependence below this cannot be seen in a picture
MAX_EDGES = 40
MAX_NODES = 30


@dataclass(frozen=True)
class Pair:
    """Two attributes and their mutual information in the model, in bits."""

    first: str
    second: str
    bits: float


def strong_pairs(release: Release) -> tuple[Pair, ...]:
    """The attribute pairs of the model by falling mutual information; pairs too weak to see are left out.

    Of more than 25 attributes in a tree or a net only neighbours in it are looked at: what is farther apart depends on each
    other through them.
    """
    found = []
    for first, second in _searched(release):
        bits = mutual_information(release.model.marginal([first, second]))
        if bits >= WEAKEST_BITS:
            found.append(Pair(first, second, bits))
    return tuple(sorted(found, key=lambda pair: -pair.bits))


def graph_edges(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The strongest pairs that a graph can show: at most 40 between at most 30 attributes."""
    edges: list[Pair] = []
    nodes: set[str] = set()
    for pair in pairs:
        if len(edges) < MAX_EDGES and len(nodes | {pair.first, pair.second}) <= MAX_NODES:
            edges.append(pair)
            nodes |= {pair.first, pair.second}
    return tuple(edges)


def telling_attributes(release: Release, pairs: Sequence[Pair], most: int) -> tuple[str, ...]:
    """At most so many attributes, in the schema's order: those that depend most on another, then the schema's first ones."""
    strength = dict.fromkeys(release.schema.names, 0.0)
    for pair in pairs:
        for name in (pair.first, pair.second):
            strength[name] = max(strength[name], pair.bits)
    kept = set(sorted(strength, key=lambda name: -strength[name])[:most])
    return tuple(name for name in release.schema.names if name in kept)


def mutual_information(joint: Floats) -> float:
    """Mutual information of a two-way distribution in bits."""
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    seen = joint > 0
    return max(0.0, float((joint[seen] * np.log2(joint[seen] / outer[seen])).sum()))


def compared_pairs(release: Release) -> list[tuple[str, str]]:
    """At most 300 pairs, evenly spread over all; fewer where each takes long."""
    pairs = list(combinations(release.schema.names, 2))
    wide = len(pairs) > MAX_PAIRS and _joined(release.model) is not None
    count = min(len(pairs), MAX_DISTANT if wide else MAX_PAIRS)
    kept = [pairs[i * len(pairs) // count] for i in range(count)]
    return [pair for pair in kept if release.schema.cells(pair) <= PAIR_CELLS]


def _searched(release: Release) -> list[tuple[str, str]]:
    """The pairs among which the strongest are looked for: all, unless there are too many; measured ones come first."""
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
    """The pairs that a model's graph joins; None for a model without one, whose pairs all cost the same."""
    if isinstance(model, JunctionTree):
        return [pair for clique in model.tree.cliques for pair in combinations(clique, 2)]
    if isinstance(model, BayesNet):
        return [(i, parent) for i, parents in enumerate(model.parents) for parent in parents]
    return None


# Bars, heat maps and the distance from the truth.

MAX_BARS = 20
HEAT_SIDE = 16
NUMBERED_ROWS, NUMBERED_COLUMNS = (
    12,
    8,
)  # as many groups as leave room for a number in each cell on a phone


@dataclass(frozen=True)
class AttributeFigure:
    """One attribute's distribution: `bars` to draw, `table` with every value, and a remark on what was grouped."""

    name: str
    bars: tuple[Bar, ...]
    table: tuple[Bar, ...]
    remark: str = ""


@dataclass(frozen=True)
class HeatMap:
    """A joint distribution on grouped axes; `beside` is the truth, or (`intervals`) half the 95 % interval's width, or None."""

    pair: Pair
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    estimate: Floats
    beside: Floats | None
    beside_title: str
    intervals: bool = False


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
    attribute: Attribute, marginal: Marginal, truth: Floats | None = None
) -> AttributeFigure:
    """The bars of one attribute: in order if its values have one, else by falling frequency."""
    values = _bars(marginal, truth)
    if attribute.ordered:
        groups = _neighbours(attribute, MAX_BARS)
        size = max(len(group) for group in groups)
        remark = f"Drawn in groups of up to {size} neighbouring values." if size > 1 else ""
        labels = _short_labels(attribute, groups)
        bars = tuple(
            _merge(values, group, label) for group, label in zip(groups, labels, strict=True)
        )
        return AttributeFigure(attribute.name, bars, values, remark)
    values = tuple(sorted(values, key=lambda bar: -bar.estimate))
    if len(values) <= MAX_BARS:
        return AttributeFigure(attribute.name, values, values)
    rest = len(values) - MAX_BARS
    remark = f"The {MAX_BARS} most frequent; {rest} more are in the table."
    return AttributeFigure(attribute.name, values[:MAX_BARS], values, remark)


def heat_map(release: Release, pair: Pair, errors: Errors | None = None) -> HeatMap:
    """The joint distribution of a pair on grouped axes, the attribute with more values down the side.

    Beside it stands the truth of a simulation; else half the width of the 95 % interval, from the standard errors that `errors`
    gives (the release's own unless given; a group's are added up in squares). The groups are then few enough for numbers in the
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
    if release.truth is not None:
        beside, title = _fold(release.truth.marginal(names), grouped), "truth"
    elif found is not None:
        folded = np.sqrt(_fold(np.square(found), grouped))
        beside, title = normal_interval(np.zeros_like(folded), folded)[1], "95 % interval, ±"
    labels = [tuple(label for label, _ in side) for side in grouped]
    shown = Pair(names[0], names[1], pair.bits)
    return HeatMap(
        shown,
        labels[0],
        labels[1],
        _fold(joint, grouped),
        beside,
        title,
        intervals=found is not None,
    )


def quality(release: Release) -> Quality | None:
    """The model's distance from the truth, and how many true figures their intervals cover; None without a truth."""
    truth = release.truth
    if truth is None:
        return None
    one_way, covered, intervals = {}, 0, 0
    for name in release.schema.names:
        bars = _bars(release.marginal([name]), truth.marginal([name]))
        one_way[name] = 0.5 * math.fsum(abs(bar.estimate - (bar.truth or 0.0)) for bar in bars)
        for bar in bars:
            if bar.low is not None and bar.high is not None and bar.truth is not None:
                intervals += 1
                covered += bar.low - 1e-12 <= bar.truth <= bar.high + 1e-12
    pairs = compared_pairs(release)
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


def _bars(marginal: Marginal, truth: Floats | None) -> tuple[Bar, ...]:
    low = high = None
    if marginal.standard_errors is not None:
        low, high = normal_interval(marginal.frequencies, marginal.standard_errors)
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    return tuple(
        Bar(
            label,
            float(marginal.frequencies[i]),
            None if low is None else float(low[i]),
            None if high is None else float(high[i]),
            None if truth is None else float(truth[i]),
        )
        for i, label in enumerate(marginal.labels[0])
    )


def _neighbours(attribute: Attribute, most: int) -> list[list[int]]:
    """Codes in order, cut into at most `most` runs of nearly equal length; a missing code stays alone."""
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
    """Labels that fit beside a chart, one per group of codes: bins by outer edges in few digits, others by their ends."""
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
    """Numbers as people write them, in as few digits as keep them apart: 1.5M, 50k, 99,999, 0.25."""
    shown: list[str] = []
    for digits in range(3, 13):
        shown = [_people_write(edge, digits) for edge in edges]
        if len(set(shown)) == len(edges):
            break
    return shown


def _people_write(number: float, digits: int) -> str:
    """So many significant digits; thousands and millions by their letter where they are round, with commas where they are not."""
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
    """An axis of a heat map: runs of neighbours if ordered, else the most frequent values and all others."""
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
