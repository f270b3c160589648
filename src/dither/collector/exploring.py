"""Figures for one view of the explorer: distributions, tables of two or three attributes, differences.

Runs in the bounded process of `answering`. A view is text of an address; the release's own
parser checks it. All figures come from the release's questions, so that report, explorer and
files state the same interval for a figure. The work is bounded: axes with many values are cut
into groups, and the number of figures of a view is limited.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dither.checks import check_choice
from dither.errors import ParameterError
from dither.notice import Notice
from dither.release import Release
from dither.release.content import Questions
from dither.release.query import Answer
from dither.release.query.answer import Unit
from dither.release.query.ask import Inquiry
from dither.release.query.expression import EVERYONE, Condition, Node, both
from dither.release.query.quantities import Difference, Mean, Quantity, Share
from dither.schema import Attribute

LEVEL = 0.95
SHARE, MEAN, MEDIAN, QUANTILES = "share", "mean", "median", "quantiles"
FIGURES = (SHARE, MEAN, MEDIAN, QUANTILES)
QUANTILE_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
MAX_BY = 3
# Distributions on the first page of a release; further attributes are links.
MAX_OVERVIEW = 24
# Groups of values of each axis, by the number of axes. One cell takes about 10 ms.
_MAX_GROUPS: dict[int, tuple[int, ...]] = {1: (500,), 2: (16, 10), 3: (6, 6, 6)}
# Groups for which a mean or quantiles are given.
MAX_MEANS = 60


@dataclass(frozen=True)
class Group:
    """People with one value of an attribute."""

    attribute: str
    code: int


@dataclass(frozen=True)
class View:
    """What one address of the explorer asks.

    Args:
        by: Up to three attributes: the axes.
        where: The people to count.
        given: The reference group.
        figure: One of `FIGURES`.
        of: The attribute of a mean or of quantiles.
        within: Whether shares of two attributes are shares within each row.
        versus: Two groups, the second to be subtracted from the first.
    """

    by: tuple[str, ...] = ()
    where: str | None = None
    given: str | None = None
    figure: str = SHARE
    of: str = ""
    within: bool = False
    versus: tuple[Group, Group] | None = None


@dataclass(frozen=True)
class Axis:
    """An attribute, and for each position its codes: one, or several as a group."""

    attribute: str
    groups: tuple[tuple[int, ...], ...]

    @property
    def grouped(self) -> bool:
        """Whether some position stands for several values."""
        return any(len(codes) > 1 for codes in self.groups)


@dataclass(frozen=True)
class Cell:
    """A figure with the ends of its 95 % interval, None if there is none.

    `unclear` marks a share of two attributes that cannot be told from the product of its row's
    and column's totals.
    """

    estimate: float
    low: float | None
    high: float | None
    unclear: bool = False


@dataclass(frozen=True)
class Panel:
    """The figures of one chart, the last axis fastest; totals where two axes are shown.

    `over` is the position on the third axis, None without one.
    """

    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    row_totals: tuple[Cell, ...] = ()
    column_totals: tuple[Cell, ...] = ()
    total: Cell | None = None
    over: int | None = None


@dataclass(frozen=True)
class Contrast:
    """A figure in two groups, and the first less the second; `code` is the value of `by`, if any."""

    code: int | None
    first: Cell
    second: Cell
    difference: Cell


@dataclass(frozen=True)
class Histogram:
    """The counts of one consumer of a number, in its bins."""

    name: str
    edges: tuple[float, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Explored:
    """The figures of a view.

    Attributes:
        panels: One chart each: of every attribute, of the view's axes, or of each value of its
            third axis. Quantiles have one for each level.
        third: The third axis.
        contrasts: The rows of a comparison of two groups.
        unit: Whether figures are shares or numbers.
        people: The number of people that the view is about.
        refused: Attributes without a chart, with the reason.
        histograms: The consumers' counts of a release of one number.
        mean: The mean of a release that has nothing else.
    """

    panels: tuple[Panel, ...] = ()
    third: Axis | None = None
    contrasts: tuple[Contrast, ...] = ()
    unit: Unit = "share"
    warnings: tuple[Notice, ...] = ()
    people: float | None = None
    refused: tuple[tuple[str, str], ...] = ()
    histograms: tuple[Histogram, ...] = ()
    mean: Cell | None = None


def explore(view: View, release: Release, questions: Questions) -> Explored:
    """The figures of a view.

    Raises:
        ParameterError: The view asks for something that the release cannot answer.
    """
    if release.kind == "number" and view == View():
        return _consumers(release)
    check_choice("figure", view.figure, FIGURES)
    if not isinstance(questions, Inquiry):
        raise ParameterError("a release of one number has no attributes to choose", where="by")
    if len(view.by) > MAX_BY or len(set(view.by)) < len(view.by):
        raise ParameterError(f"choose at most {MAX_BY} attributes, each once", where="by")
    attributes = [questions.reader.attribute(name) for name in view.by]
    work = _Work(view, questions)
    if view.versus is not None:
        found = work.contrast(attributes)
    elif view.figure != SHARE:
        found = work.numbers(attributes)
    elif attributes:
        found = work.shares(attributes)
    else:
        found = work.overview()
    whole = questions.query(view.where, view.given, LEVEL)
    return replace(
        found,
        warnings=tuple({**work.warnings, **dict.fromkeys(whole.warnings)}),
        people=whole.people,
    )


def _consumers(release: Release) -> Explored:
    """What the consumers of a number asked for, or its mean."""
    content, found = release.number, []
    for consumer in content.consumers:
        counts, _, low, high = content.published_counts(release, consumer)
        cells = tuple(
            Cell(float(n), float(a), float(b)) for n, a, b in zip(counts, low, high, strict=True)
        )
        found.append(Histogram(consumer.name, tuple(map(float, consumer.edges)), cells))
    mean = content.collected_mean
    whole = None if mean is None else Cell(mean.estimate, *mean.interval(LEVEL))
    return Explored(
        unit="number",
        histograms=tuple(found),
        mean=whole,
        warnings=tuple(release.warnings),
        people=float(release.people),
    )


class _Work:
    """Answers one view, and collects the warnings of all its answers."""

    def __init__(self, view: View, questions: Inquiry) -> None:
        self.warnings: dict[Notice, None] = {}
        self._view, self._questions = view, questions
        self._where = questions.reader.read(view.where)
        self._given = questions.reader.read(view.given)

    def overview(self) -> Explored:
        """The distribution of every attribute."""
        panels, refused = [], []
        for attribute in list(self._questions.reader.schema)[:MAX_OVERVIEW]:
            try:
                panels.append(self._distribution(self._axis(attribute, _MAX_GROUPS[1][0])))
            except ParameterError as error:
                refused.append((attribute.name, str(error)))
        return Explored(tuple(panels), refused=tuple(refused))

    def shares(self, attributes: Sequence[Attribute]) -> Explored:
        """Shares by one, two or three attributes."""
        limits = _MAX_GROUPS[len(attributes)]
        axes = [self._axis(*pair) for pair in zip(attributes, limits, strict=True)]
        if len(axes) == 1:
            return Explored((self._distribution(axes[0]),))
        where, given, within = self._where, self._given, self._view.within
        whole = any(axis.grouped for axis in axes) or within
        known: Sequence[Cell] | None = None if whole else self._table(axes)
        if len(axes) == 2:
            if within:
                known = self._rows(axes)
            panel = self._cross(axes, where, given, known)
            return Explored((self._marked(panel, both(where, given)),))
        panels = []
        each = len(axes[2].groups)
        for position, only in enumerate(_nodes(axes[2])):
            cells = None if known is None else known[position::each]
            if within:
                cells = self._rows(axes[:2], self._text(axes[2], position))
            # Within rows a panel's own people are the reference, otherwise everybody is.
            people = (where, both(given, only)) if within else (both(where, only), given)
            panels.append(replace(self._cross(axes[:2], *people, cells), over=position))
        return Explored(tuple(panels), axes[2])

    def _distribution(self, axis: Axis) -> Panel:
        if not axis.grouped:
            return Panel((axis,), self._table([axis]))
        nodes = _nodes(axis)
        cells = (self._share(both(self._where, group), self._given) for group in nodes)
        return Panel((axis,), tuple(cells))

    def _cross(
        self, axes: Sequence[Axis], where: Node, given: Node, known: Sequence[Cell] | None
    ) -> Panel:
        """Shares by two attributes with totals; within rows each row adds up to one."""
        rows, columns = (_nodes(axis) for axis in axes)
        if self._view.within:
            where, given = EVERYONE, both(where, given)
            cells = list(known or ()) or [
                self._share(column, both(given, row)) for row in rows for column in columns
            ]
            total = self._share(where, given)
            row_totals = tuple(total for _ in rows)
        else:
            cells = list(known or ()) or [
                self._share(both(where, row, column), given) for row in rows for column in columns
            ]
            total = self._share(where, given)
            row_totals = tuple(self._share(both(where, row), given) for row in rows)
        column_totals = tuple(self._share(both(where, column), given) for column in columns)
        return Panel(tuple(axes), tuple(cells), row_totals, column_totals, total)

    def _rows(self, axes: Sequence[Axis], *more: str) -> Sequence[Cell] | None:
        """The shares within each row, as `Release.table` gives them; None for groups of values."""
        rows, columns = axes
        if rows.grouped or columns.grouped:
            return None
        found: list[Cell] = []
        for position in range(len(rows.groups)):
            parts = (self._view.where, self._view.given, self._text(rows, position), *more)
            given = " and ".join(f"({part})" for part in parts if part)
            table = self._questions.table([columns.attribute], None, given, LEVEL, False)
            self.warnings.update(dict.fromkeys(table.warnings))
            found += [Cell(row.estimate, row.low, row.high) for row in table.rows]
        return found

    def _text(self, axis: Axis, position: int) -> str:
        """The expression for the people at one position of an axis."""
        attribute = self._questions.reader.attribute(axis.attribute)
        return " or ".join(equals(attribute, code) for code in axis.groups[position])

    def _marked(self, panel: Panel, among: Node) -> Panel:
        """The same panel with its unclear cells marked."""
        rows, columns = (_nodes(axis) for axis in panel.axes)
        unclear = [self._is_product(row, column, among) for row in rows for column in columns]
        marked = zip(panel.cells, unclear, strict=True)
        return replace(panel, cells=tuple(replace(cell, unclear=flag) for cell, flag in marked))

    def _is_product(self, row: Node, column: Node, among: Node) -> bool:
        """Whether P(column | row) may equal P(column): the 95 % interval of their difference has 0."""
        difference = Difference(Share(column, both(among, row)), Share(column, among))
        answer = self._questions.answer(difference, LEVEL, "")
        if answer.low is None or answer.high is None:
            return True
        return answer.low <= 0.0 <= answer.high

    def _axis(self, attribute: Attribute, most: int) -> Axis:
        """A position for each value; of too many, neighbours or the rarest values share one.

        A missing answer stays separate.
        """
        count, room = attribute.answers, most - int(attribute.missing)
        single = [(code,) for code in range(count)]
        groups: list[tuple[int, ...]] = list(single)
        if count > room and attribute.ordered:
            size = math.ceil(count / room)
            groups = [tuple(range(i, min(i + size, count))) for i in range(0, count, size)]
        elif count > room:
            shares = self._table([Axis(attribute.name, tuple(single))])[:count]
            falling = sorted(range(count), key=lambda code: -shares[code].estimate)
            kept, rest = falling[: room - 1], falling[room - 1 :]
            groups = [*((code,) for code in sorted(kept)), tuple(sorted(rest))]
        if attribute.missing:
            groups.append((count,))
        return Axis(attribute.name, tuple(groups))

    def _table(self, axes: Sequence[Axis]) -> tuple[Cell, ...]:
        """The same shares as `_share`, all at once."""
        names = [axis.attribute for axis in axes]
        table = self._questions.table(names, self._view.where, self._view.given, LEVEL, False)
        self.warnings.update(dict.fromkeys(table.warnings))
        return tuple(Cell(row.estimate, row.low, row.high) for row in table.rows)

    def _share(self, where: Node, given: Node) -> Cell:
        return self._cell(self._questions.answer(Share(where, given), LEVEL, "share"))

    def _cell(self, answer: Answer) -> Cell:
        self.warnings.update(dict.fromkeys(answer.warnings))
        return Cell(answer.estimate, answer.low, answer.high)

    def numbers(self, attributes: Sequence[Attribute]) -> Explored:
        """The mean or quantiles of an attribute, of everybody or by one attribute."""
        of = self._number("of")
        if len(attributes) > 1:
            raise ParameterError("means and quantiles go by one attribute at most", where="by")
        axes = tuple(self._axis(attribute, MAX_MEANS) for attribute in attributes)
        groups = _nodes(axes[0]) if axes else [EVERYONE]
        if self._view.figure == MEAN:
            cells = [self._cell(self._mean(of, group)) for group in groups]
            return Explored((Panel(axes, tuple(cells)),), unit="number")
        levels = (0.5,) if self._view.figure == MEDIAN else QUANTILE_LEVELS
        by_group = [self._quantiles(of, levels, axes, i) for i in range(len(groups))]
        return Explored(
            tuple(Panel(axes, tuple(cells)) for cells in zip(*by_group, strict=True)), unit="number"
        )

    def _number(self, where: str) -> Attribute:
        if not self._view.of:
            raise ParameterError("choose the attribute of whose numbers the figure is", where=where)
        return self._questions.reader.attribute(self._view.of)

    def _mean(self, of: Attribute, group: Node) -> Answer:
        """As `Release.mean` for the people of a group."""
        # A mean of words has no meaning; the release's own message says which attributes have one.
        if self._mean_checked != of.name:
            self._questions.mean(of.name, self._view.where, self._view.given, LEVEL)
            self._mean_checked = of.name
        answered = Condition(of.name, frozenset(range(of.answers)))
        who = both(self._where, self._given, group, answered if of.missing else EVERYONE)
        return self._questions.answer(Mean(of.name, who), LEVEL, f"mean of {of.name}")

    _mean_checked = ""

    def _quantiles(
        self, of: Attribute, levels: Sequence[float], axes: Sequence[Axis], position: int
    ) -> list[Cell]:
        parts = [self._view.where] if self._view.where else []
        if axes:
            parts.append(self._text(axes[0], position))
        where = " and ".join(f"({part})" for part in parts) or None
        table = self._questions.quantiles(of.name, levels, where, self._view.given, LEVEL)
        self.warnings.update(dict.fromkeys(table.warnings))
        return [Cell(row.estimate, row.low, row.high) for row in table.rows]

    def contrast(self, attributes: Sequence[Attribute]) -> Explored:
        """A figure in two groups and their difference, for each value of an attribute if one is chosen."""
        view = self._view
        assert view.versus is not None
        sides = [self._group(group) for group in view.versus]
        if view.figure == MEAN:
            of = self._number("of")
            if attributes:
                raise ParameterError("the difference of two means goes by no attribute", where="by")
            return Explored(contrasts=(self._means_differ(of, sides),), unit="number")
        if view.figure != SHARE:
            raise ParameterError("only shares and means can be subtracted", where="figure")
        if len(attributes) > 1 or not (attributes or view.where):
            raise ParameterError("choose one question whose shares are compared", where="by")
        if not attributes:
            return Explored(contrasts=(self._shares_differ(None, EVERYONE, sides),))
        axis = self._axis(attributes[0], MAX_MEANS)
        if axis.grouped:
            raise ParameterError(
                f"{axis.attribute} has more than {MAX_MEANS} values; count one of them instead",
                where="by",
            )
        groups = _nodes(axis)
        rows = [self._shares_differ(code, group, sides) for code, group in enumerate(groups)]
        return Explored((Panel((axis,), ()),), contrasts=tuple(rows))

    def _group(self, group: Group) -> Node:
        attribute = self._questions.reader.attribute(group.attribute)
        if not 0 <= group.code < attribute.cardinality:
            raise ParameterError(
                f"{attribute.name} has no value number {group.code}", where="versus"
            )
        return Condition(attribute.name, frozenset((group.code,)))

    def _shares_differ(self, code: int | None, group: Node, sides: Sequence[Node]) -> Contrast:
        shares: list[Quantity] = [
            Share(both(self._where, group), both(self._given, side)) for side in sides
        ]
        return self._differ(code, shares)

    def _means_differ(self, of: Attribute, sides: Sequence[Node]) -> Contrast:
        first, second = (self._mean(of, side) for side in sides)
        return Contrast(None, self._cell(first), self._cell(second), self._cell(first - second))

    def _differ(self, code: int | None, quantities: Sequence[Quantity]) -> Contrast:
        first, second = (self._questions.answer(one, LEVEL, "share") for one in quantities)
        return Contrast(code, self._cell(first), self._cell(second), self._cell(first - second))


def _nodes(axis: Axis) -> list[Node]:
    return [Condition(axis.attribute, frozenset(codes)) for codes in axis.groups]


def equals(attribute: Attribute, code: int) -> str:
    """The expression for the people with one value."""
    return f"{name_in_question(attribute.name)} == {literal(attribute, code)}"


def name_in_question(name: str) -> str:
    """An attribute's name in an expression."""
    plain = (
        name.isidentifier()
        and name.isascii()
        and not keyword.iskeyword(name)
        and name not in ("attr", "between")
    )
    return name if plain else f"attr[{name!r}]"


def literal(attribute: Attribute, code: int) -> str:
    """A value in an expression."""
    if code >= attribute.answers:
        return "None"
    return repr(attribute.values[code] if attribute.values else attribute.labels[code])
