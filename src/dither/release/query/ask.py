"""Answer questions about several attributes from sums over cells and the covariance of their errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import numpy as np
from scipy.special import stdtrit

from dither.checks import check_between
from dither.errors import ParameterError
from dither.notice import Notice
from dither.release.intervals import LinearAnswer
from dither.release.query.answer import Answer, AnswerRow, AnswerTable, Unit
from dither.release.query.cells import MAX_ROWS, MAX_WEIGHTS, Grid, build_grid
from dither.release.query.expression import (
    EVERYONE,
    Condition,
    Node,
    Reader,
    Scale,
    Where,
    both,
    notes_of,
    question_words,
)
from dither.release.query.quantities import (
    Correlation,
    Deviation,
    Difference,
    Evaluation,
    Mean,
    Quantity,
    Ratio,
    Share,
    Sum,
    bounds_of,
    fieller,
    of_means,
    of_shares,
    sums_of,
)
from dither.schema import Attribute, Schema
from dither.types import Floats

# Estimates weighted sums over the cells of a grid, all at once.
LinearSource = Callable[[Grid, Sequence[Floats]], LinearAnswer]

# Steps of the search inside each bin.
_STEPS = 8
# Room for numbers in their bins, as a share of the number line times people, that is none.
_NO_ROOM = 1e-12
_MAX_POINTS = 4_000


def _invert(
    ends: tuple[Floats, Floats], sums: Floats, covariance: Floats, level: float, reach: float
) -> tuple[float, float, float]:
    """The quantile of a share `level`, and its interval; NaN if unknown.

    `sums` are the shares of people between consecutive `ends`, evenly spread there. The
    interval has all places x that are not rejected: A(x) - level B is within `reach` of
    its standard errors of zero, with A(x) the people up to x and B all of them. It is
    found on a grid, to a small part of a stretch.
    """
    total = float(sums.sum())
    if not total > 0:
        return math.nan, math.nan, math.nan
    cumulative = np.maximum.accumulate(np.append(0.0, np.cumsum(sums)))
    estimate = _crossing(np.arange(len(sums) + 1.0), cumulative - level * cumulative[-1])
    spread = float(covariance.sum())
    if math.isnan(spread) or total <= reach * math.sqrt(max(spread, 0.0)):
        return _place(estimate, ends), math.nan, math.nan
    steps = max(1, min(_STEPS, _MAX_POINTS // len(sums)))
    at = np.arange(len(sums) * steps + 1) / steps
    # Row i has how much of each stretch lies below the i-th point, less `level` of all.
    below = np.clip(at[:, None] - np.arange(len(sums)), 0.0, 1.0) - level
    away = below @ sums
    error = np.sqrt(
        np.maximum(np.einsum("ij,jk,ik->i", below, covariance, below, optimize=True), 0.0)
    )
    low = _crossing(at, np.maximum.accumulate(away + reach * error))
    high = -_crossing(-at[::-1], np.maximum.accumulate((reach * error - away)[::-1]))
    return (
        _place(estimate, ends),
        _place(min(low, estimate), ends),
        _place(max(high, estimate), ends),
    )


def _crossing(x: Floats, rising: Floats) -> float:
    """The first zero of a rising line through points; an end of the line if it has none."""
    first = int(np.searchsorted(rising, 0.0, side="left"))
    if first in (0, len(x)):
        return float(x[min(first, len(x) - 1)])
    below, above = rising[first - 1], rising[first]
    return float(x[first - 1] + (x[first] - x[first - 1]) * (0.0 - below) / (above - below))


def _place(at: float, ends: tuple[Floats, Floats]) -> float:
    """The place of a point given as stretch plus fraction: 2.5 is mid-way in the third."""
    stretch = min(max(math.ceil(at) - 1, 0), len(ends[0]) - 1)
    low, high = ends[0][stretch], ends[1][stretch]
    return float(low + (high - low) * (at - stretch))


@dataclass(frozen=True)
class GroupShares:
    """Shares of groups, the ends of their intervals, and the half-widths before cutting."""

    estimates: Floats
    low: Floats
    high: Floats
    half_widths: Floats


class Inquiry:
    """Answers questions about the attributes of a schema.

    Args:
        schema: The attributes.
        units: The unit of an attribute's numbers, where known.
        linear: Estimates weighted sums over cells, as shares of all people.
        population: The number of people.
        warnings: What holds for every answer.
    """

    def __init__(
        self,
        schema: Schema,
        units: Mapping[str, float],
        linear: LinearSource,
        population: float,
        warnings: tuple[Notice, ...] = (),
    ) -> None:
        self.reader = Reader(schema, units)
        self.warnings = warnings
        self._linear, self._population = linear, population

    def query(self, where: Where | None, given: Where | None, level: float) -> Answer:
        """A share of people."""
        read = self.reader.read
        return self.answer(
            Share(read(where), read(given)), level, question_words("share", where, given)
        )

    def mean(
        self, attribute: str, where: Where | None, given: Where | None, level: float
    ) -> Answer:
        """The mean of an attribute's numbers over the people for whom `where` and `given` hold."""
        found = self.reader.attribute(attribute)
        _numbers(found)
        who = both(self.reader.read(where), self.reader.read(given), _answered(found))
        return self.answer(
            Mean(found.name, who), level, question_words(f"mean of {found.name}", where, given)
        )

    def means(
        self,
        attribute: str,
        by: Sequence[str],
        where: Where | None,
        given: Where | None,
        level: float,
    ) -> AnswerTable:
        """The mean for each combination of the values of `by`."""
        found = self.reader.attribute(attribute)
        _numbers(found)
        names = [self.reader.attribute(name).name for name in by]
        self._check_rows(names)
        who = both(self.reader.read(where), self.reader.read(given), _answered(found))
        asked = question_words(f"mean of {found.name}", where, given)
        answers = {}
        domains = [self.reader.schema[name] for name in names]
        for codes in product(*(range(domain.cardinality) for domain in domains)):
            group = [
                Condition(name, frozenset({code})) for name, code in zip(names, codes, strict=True)
            ]
            labels = tuple(domain.labels[code] for domain, code in zip(domains, codes, strict=True))
            answers[labels] = self.answer(Mean(found.name, both(who, *group)), level, asked)
        rows = tuple(
            AnswerRow(labels, each.estimate, each.low, each.high, each.standard_error)
            for labels, each in answers.items()
        )
        # Warnings that differ only in a group's figure are given once.
        first: dict[str, Notice] = {}
        for each in answers.values():
            for notice in each.warnings:
                first.setdefault(notice.code, notice)
        basis = next(iter(answers.values())).basis
        return AnswerTable(
            asked, tuple(names), rows, level, basis, unit="number", warnings=tuple(first.values())
        )

    def std(self, attribute: str, where: Where | None, given: Where | None, level: float) -> Answer:
        """The standard deviation of an attribute's numbers."""
        found = self.reader.attribute(attribute)
        _numbers(found)
        who = both(self.reader.read(where), self.reader.read(given), _answered(found))
        asked = question_words(f"standard deviation of {found.name}", where, given)
        return self.answer(Deviation(found.name, who), level, asked)

    def corr(
        self, first: str, second: str, where: Where | None, given: Where | None, level: float
    ) -> Answer:
        """Pearson's correlation of two attributes' numbers."""
        pair = [self.reader.attribute(name) for name in (first, second)]
        for found in pair:
            _numbers(found)
        if pair[0].name == pair[1].name:
            raise ParameterError("name two different attributes", where="second")
        who = both(
            self.reader.read(where), self.reader.read(given), *(_answered(found) for found in pair)
        )
        asked = question_words(f"correlation of {pair[0].name} and {pair[1].name}", where, given)
        return self.answer(Correlation(pair[0].name, pair[1].name, who), level, asked)

    def count(self, where: Where | None, level: float) -> Answer:
        """The number of people for whom `where` holds."""
        return counted(self.query(where, None, level), self._population)

    def answer(self, quantity: Quantity, level: float, asked: str) -> Answer:
        """See `Source`."""
        check_between("level", level, 0, 1, ends="()")
        sums = list(dict.fromkeys([*sums_of(quantity), *_reaches(quantity)]))
        grid = build_grid(
            self.reader,
            [found.who for found in sums],
            list(dict.fromkeys(name for found in sums for name in (found.of, found.times) if name)),
        )
        divided = of_shares(quantity) and any(grid.divides(found.who) for found in sums)
        if divided:
            sums = list(dict.fromkeys([*sums, *bounds_of(quantity)]))
        answer = self._linear(
            grid,
            [self._weights(grid, found) for found in sums] or [grid.weights(grid.holds(EVERYONE))],
        )
        evaluation = Evaluation(sums, answer, _reach(level, answer.freedom))
        estimate = evaluation.estimate(quantity)
        rooms = (
            [] if not of_means(quantity) else [evaluation.sum(one)[0] for one in _reaches(quantity)]
        )
        if divided or max(rooms, default=0.0) > _NO_ROOM:
            estimate = evaluation.stretched(quantity, estimate)
        notes = [*notes_of([found.who for found in sums]), *self._discretised(quantity, evaluation)]
        if estimate.divisor_unsure:
            notes.append(UNSURE_DIVISOR)
        bounds = self._bounds(quantity)
        low, high = np.clip([estimate.low, estimate.high], *bounds)
        return Answer(
            asked=asked,
            estimate=float(np.clip(estimate.value, *bounds)),
            low=_known(low),
            high=_known(high),
            standard_error=_known(estimate.standard_error),
            level=level,
            people=self._people(quantity, evaluation),
            basis=answer.basis,
            unit=_unit(quantity),
            warnings=self._warnings(notes, answer),
            _quantity=quantity,
            _source=self,
        )

    def table(
        self,
        by: Sequence[str] | str,
        where: Where | None,
        given: Where | None,
        level: float,
        simultaneous: bool,
    ) -> AnswerTable:
        """A share for each combination of values."""
        check_between("level", level, 0, 1, ends="()")
        if not isinstance(by, Sequence):
            raise ParameterError(
                f"a table goes by a list of attributes, not {by!r:.80}", where="by"
            )
        names = [self.reader.attribute(name).name for name in ([by] if isinstance(by, str) else by)]
        count = self._check_rows(names)
        share = Share(self.reader.read(where), self.reader.read(given))
        nodes = [share.top.who, share.base.who]
        grid = build_grid(self.reader, nodes, names)
        weights = grid.weights(grid.holds(share.top.who))
        if count * weights.size > MAX_WEIGHTS:
            raise ParameterError(
                f"a table of {count:,} rows over {weights.size:,} cells is too large; ask by fewer attributes",
                where="by",
            )
        # The attributes of the table come first on the grid and have a group for each code, so
        # a row is a slice of the weights.
        slices = weights.reshape(count, -1)
        rows = np.zeros((count, *slices.shape))
        rows[np.arange(count), np.arange(count)] = slices
        questions = list(rows.reshape(count, *weights.shape))
        conditional = share.given != EVERYONE
        answer = self._linear(
            grid, [*questions, grid.weights(grid.holds(share.given))] if conditional else questions
        )
        each = level ** (1 / count) if simultaneous else level
        estimates, errors, low, high = _shares(
            answer, count, conditional, _reach(each, answer.freedom)
        )
        if any(grid.divides(node) for node in nodes):
            errors, low, high = self._stretched_rows(names, share, each)
        notes = list(notes_of(nodes))
        if np.isnan(low).all() and not np.isnan(answer.covariance).all():
            notes.append(UNSURE_DIVISOR)
        labels = product(*(self.reader.schema[name].labels for name in names))
        found = tuple(
            AnswerRow(
                values, float(estimates[i]), _known(low[i]), _known(high[i]), _known(errors[i])
            )
            for i, values in enumerate(labels)
        )
        asked = question_words("share", where, given)
        warnings = self._warnings(notes, answer)
        return AnswerTable(
            asked, tuple(names), found, level, answer.basis, simultaneous, warnings=warnings
        )

    def groups(
        self, names: Sequence[str], groups: Sequence[Sequence[Sequence[int]]], level: float = 0.95
    ) -> GroupShares | None:
        """The shares of groups of codes, with intervals as `table` has them for single codes.

        Args:
            names: The attributes.
            groups: For each attribute its groups, as lists of codes.
            level: The level of the intervals.

        Returns:
            Arrays with one axis per attribute; None if there are no intervals, or too many cells.
        """
        grid = build_grid(self.reader, [EVERYONE], names)
        memberships = []
        for name, sides in zip(names, groups, strict=True):
            member = np.zeros((len(sides), self.reader.schema[name].cardinality))
            for i, codes in enumerate(sides):
                member[i, list(codes)] = 1.0
            memberships.append(member)
        shape = tuple(len(sides) for sides in groups)
        if math.prod(shape) * math.prod(member.shape[1] for member in memberships) > MAX_WEIGHTS:
            return None
        questions = [reduce(np.multiply.outer, rows) for rows in product(*memberships)]
        answer = self._linear(grid, questions)
        if np.isnan(answer.covariance).any():
            return None
        found = _shares(answer, len(questions), False, _reach(level, answer.freedom))
        estimates, errors, low, high = (values.reshape(shape) for values in found)
        return GroupShares(estimates, low, high, _reach(level, answer.freedom) * errors)

    def _stretched_rows(
        self, names: Sequence[str], share: Share, level: float
    ) -> tuple[Floats, Floats, Floats]:
        """Standard errors and interval ends of a table's rows if the question divides a bin."""
        sides = [range(self.reader.schema[name].cardinality) for name in names]
        ends = []
        for codes in product(*sides):
            row = [Condition(n, frozenset((c,))) for n, c in zip(names, codes, strict=True)]
            answer = self.answer(Share(both(share.where, *row), share.given), level, "")
            ends.append((answer.standard_error, answer.low, answer.high))
        errors, low, high = np.array(ends, dtype=np.float64).T
        return errors, low, high

    def quantiles(
        self,
        attribute: str,
        levels: Sequence[float],
        where: Where | None,
        given: Where | None,
        level: float,
    ) -> AnswerTable:
        """Quantiles of an attribute's numbers over people for whom `where` and `given` hold."""
        found = self.reader.attribute(attribute)
        if found.kind not in ("numeric", "duration"):
            raise ParameterError(
                f"{found.name} is {found.kind}; quantiles are of numbers in bins", where="attribute"
            )
        check_between("level", level, 0, 1, ends="()")
        if not isinstance(levels, Sequence | np.ndarray):
            raise ParameterError(
                f"levels are a list such as [0.25, 0.5, 0.75], not {levels!r:.80}", where="levels"
            )
        wanted = [check_between("a quantile's level", one, 0, 1, ends="()") for one in levels]
        if not wanted:
            raise ParameterError("name at least one level, such as 0.5", where="levels")
        self._check_rows([found.name])
        who = both(self.reader.read(where), self.reader.read(given), _answered(found))
        grid = build_grid(self.reader, [who], [found.name])
        side = grid.sides[0]
        classes = grid.weights(grid.holds(who), but=0)
        questions = [
            np.multiply.outer(side.shares[:, part], classes[part])
            for part in range(side.shares.shape[1])
        ]
        answer = self._linear(grid, questions)
        kept = ~np.isnan(side.parts.low)
        ends = side.parts.low[kept], side.parts.high[kept]
        covariance, scale = answer.covariance[np.ix_(kept, kept)], self.reader.scales[found.name]
        rows = []
        for one in wanted:
            places = _invert(
                ends, answer.estimates[kept], covariance, one, _reach(level, answer.freedom)
            )
            estimate, low, high = (
                place if math.isnan(place) else scale.rounded(place) for place in places
            )
            low, high = _whole_bins((low, high), scale)
            rows.append(AnswerRow((one,), estimate, _known(low), _known(high), None))
        notes = [*notes_of([who]), *_quantiles_in_bins(found, scale)]
        if all(row.low is None for row in rows) and not np.isnan(covariance).all():
            notes.append(UNSURE_DIVISOR)
        asked = question_words(f"quantiles of {found.name}", where, given)
        warnings = self._warnings(notes, answer)
        return AnswerTable(
            asked, ("level",), tuple(rows), level, answer.basis, unit="number", warnings=warnings
        )

    def _weights(self, grid: Grid, asked: Sum) -> Floats:
        if asked.bound == "least":
            return grid.least(asked.who)
        if asked.bound == "most":
            return grid.most(asked.who)
        classes = grid.holds(asked.who)
        if asked.of is None:
            return grid.weights(classes)
        if asked.times is None:
            return grid.weights(classes * self._values(grid, asked.of, asked.reach))
        values = self._values(grid, asked.of)
        if asked.times != asked.of:
            return grid.weights(classes * values * self._values(grid, asked.times))
        # Numbers spread evenly over a bin have a variance of r(r + u)/3 in it: r is their
        # distance from the middle at most, u their unit, 0 for real numbers.
        reach, scale = self._values(grid, asked.of, True), self.reader.scales.get(asked.of)
        unit = scale.unit if scale is not None and scale.counted else 0.0
        return grid.weights(classes * (values**2 + reach * (reach + unit) / 3))

    def _values(self, grid: Grid, name: str, reach: bool = False) -> Floats:
        """Each class's number, or its possible distance from that, along its axis."""
        axis = grid.axis(name)
        side = grid.sides[axis]
        scale = self.reader.scales.get(name)
        if scale is None:
            values = _numbers(side.attribute)[side.parts.codes] * (not reach)
        elif reach:
            values = scale.reach(side.parts.low, side.parts.high)
        else:
            values = scale.numbers(side.parts.middles)
        return grid.along(axis, np.nan_to_num(values))

    def _warnings(self, notes: Sequence[Notice], answer: LinearAnswer) -> tuple[Notice, ...]:
        cautions = [Notice("caution", answer.caution)] if answer.caution else []
        if np.isnan(answer.covariance).any():
            reason = answer.caution or "no interval can be had for this question"
            cautions = [Notice("no-interval", reason)]
        return tuple(dict.fromkeys([*notes, *cautions, *self.warnings]))

    def _people(self, quantity: Quantity, evaluation: Evaluation) -> float | None:
        if isinstance(quantity, (Difference, Ratio)):
            return None
        share, _ = evaluation.sum(quantity.top if isinstance(quantity, Share) else quantity.base)
        return float(np.clip(share, 0.0, 1.0)) * self._population

    def _bounds(self, quantity: Quantity) -> tuple[float, float]:
        """The range of possible values of a figure."""
        if isinstance(quantity, Share):
            return 0.0, 1.0
        if isinstance(quantity, Mean):
            found = self.reader.schema[quantity.attribute].bounds
            return (-math.inf, math.inf) if found is None else found
        if isinstance(quantity, Correlation):
            return -1.0, 1.0
        if isinstance(quantity, Deviation):
            # The deviation is largest with half of the people at each end.
            found = self.reader.schema[quantity.attribute].bounds
            return 0.0, math.inf if found is None else (found[1] - found[0]) / 2
        if isinstance(quantity, Difference):
            (a, b), (c, d) = self._bounds(quantity.first), self._bounds(quantity.second)
            return a - d, b - c
        shares = isinstance(quantity.first, Share) and isinstance(quantity.second, Share)
        return (0.0 if shares else -math.inf), math.inf

    def _discretised(self, quantity: Quantity, evaluation: Evaluation) -> list[Notice]:
        """Possible change of means if people are not evenly spread in their bins."""
        out = []
        if isinstance(quantity, (Deviation, Correlation)):
            for name in dict.fromkeys(found.of for found in quantity.sums if found.of):
                scale = self.reader.scales.get(name)
                if scale is not None:
                    out += _spread_in_bins(self.reader.schema[name], scale)
        counts = "includes" if of_means(quantity) else "does not count"
        for reach in _reaches(quantity):
            base = Sum(reach.who)
            total, people = (evaluation.sum(one)[0] for one in (reach, base))
            if total > _NO_ROOM and people > 0:
                words = (
                    f"{reach.of} is known by bins, and people are taken as evenly spread in each; however they lie in them, "
                    f"the mean moves by at most {total / people:.3g}, which the interval {counts}"
                )
                out.append(Notice("inside-a-bin", words))
        return out

    def _check_rows(self, names: Sequence[str]) -> int:
        if not names or len(set(names)) < len(names):
            raise ParameterError("a table needs attributes to go by, each once", where="by")
        count = self.reader.schema.cells(names)
        if count > MAX_ROWS:
            raise ParameterError(
                f"a table by {', '.join(names)} has {count:,} rows, more than {MAX_ROWS:,}; go by fewer attributes",
                where="by",
            )
        return count


def counted(share: Answer, population: float) -> Answer:
    """A share of all people as a number of people."""
    ends = (share.estimate, share.low, share.high, share.standard_error)
    estimate, low, high, error = (None if end is None else end * population for end in ends)
    return replace(
        share,
        asked=share.asked.replace("share", "count", 1),
        estimate=math.nan if estimate is None else estimate,
        low=low,
        high=high,
        standard_error=error,
        unit="number",
        _quantity=None,
        _source=None,
    )


UNSURE_DIVISOR = Notice(
    "divisor-unsure",
    "no interval: the share of people in the denominator may be zero within its error",
)


def _reach(level: float, freedom: float) -> float:
    """How many standard errors an interval of this level reaches each way."""
    return float(stdtrit(min(freedom, 1e9), (1 + level) / 2))


def _shares(
    answer: LinearAnswer, count: int, conditional: bool, reach: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """A table's estimates, standard errors and interval ends; the last sum may be the divisor."""
    top, variances = answer.estimates[:count], np.diag(answer.covariance)[:count]
    if not conditional:
        errors = np.sqrt(np.maximum(variances, 0.0))
        low, high = np.clip([top - reach * errors, top + reach * errors], 0.0, 1.0)
        return np.clip(top, 0.0, 1.0), errors, low, high
    base, crossed, spread = (
        answer.estimates[-1],
        answer.covariance[:count, -1],
        float(answer.covariance[-1, -1]),
    )
    low, high = fieller(top, float(base), (variances, crossed, spread), reach)
    if not base > 0:
        unknown = np.full(count, np.nan)
        return unknown, unknown, unknown, unknown
    shares = top / base
    errors = np.sqrt(np.maximum(variances - 2 * shares * crossed + shares**2 * spread, 0.0)) / base
    errors = np.where(np.isnan(low), np.nan, errors)
    low, high = np.clip([low, high], 0.0, 1.0)
    return np.clip(shares, 0.0, 1.0), errors, low, high


def _known(value: Floats | float) -> float | None:
    return None if math.isnan(value) else float(value)


def _unit(quantity: Quantity) -> Unit:
    if isinstance(quantity, Difference):
        return "share" if _unit(quantity.first) == _unit(quantity.second) == "share" else "number"
    return "share" if isinstance(quantity, Share) else "number"


def _answered(attribute: Attribute) -> Node:
    """People whose answer is not missing."""
    if not attribute.missing:
        return EVERYONE
    if attribute.on_line:
        return Condition(attribute.name, spans=((-math.inf, math.inf),))
    return Condition(attribute.name, frozenset(range(attribute.answers)))


def _numbers(attribute: Attribute) -> Floats:
    """The number of each code; an error if an answer is not a number."""
    if attribute.bounds is None or attribute.kind in ("date", "datetime"):
        raise ParameterError(
            f"{attribute.name} is {attribute.kind} and its values are no numbers; ask for shares instead",
            where=attribute.name,
        )
    values = attribute.values or attribute.edges[:-1]
    return np.array([float(value) for value in values] + [math.nan] * attribute.missing)


def _reaches(quantity: Quantity) -> list[Sum]:
    if isinstance(quantity, (Difference, Ratio)):
        return _reaches(quantity.first) + _reaches(quantity.second)
    return [quantity.room] if isinstance(quantity, Mean) else []


def _whole_bins(interval: tuple[float, float], scale: Scale) -> tuple[float, float]:
    """An interval of a quantile to the ends of the bins that it begins and ends in.

    Where in a bin the people are is not known: only the shares below its ends are.
    """
    low, high = interval
    if math.isnan(low) or math.isnan(high):
        return interval
    unit, half = (scale.unit, 0.5) if scale.counted else (1.0, 0.0)
    starts, ends = (scale.low + half) * unit, (scale.high - half) * unit
    # A number at a bin's end belongs to both of its neighbours: the narrower choice is right,
    # because the share below the end is known.
    begins, stops = starts[starts <= low], ends[ends >= high]
    first = float(begins.max()) if len(begins) else low
    last = float(stops.min()) if len(stops) else high
    # Atoms are stretches as narrow as floats allow.
    for atom in scale.atoms:
        first, last = (
            atom if math.isclose(end, atom, rel_tol=1e-14) else end for end in (first, last)
        )
    return first, max(first, last)


def _quantiles_in_bins(attribute: Attribute, scale: Scale) -> list[Notice]:
    if not scale.reach(scale.low, scale.high).any():
        return []
    words = f"{attribute.name} is known by bins, and people are taken as evenly spread in each; the interval has whole bins"
    return [Notice("inside-a-bin", words)]


def _spread_in_bins(attribute: Attribute, scale: Scale) -> list[Notice]:
    if not scale.reach(scale.low, scale.high).any():
        return []
    words = f"{attribute.name} is known by bins, and people are taken as evenly spread in each; the interval does not count that"
    return [Notice("inside-a-bin", words)]
