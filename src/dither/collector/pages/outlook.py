"""The planner beside a campaign's form, and the forecast on its page.

One prediction decides the headline, its text and the method that is named. The figure is
the 95 % half-width of the share of one answer, from `dither.planner`; about one number it is
that of a bin, or of the mean, from simulated people who are spread evenly over the range.

`Planner` limits the cost: one prediction at a time in a process, a cache of the latest, and
no answer to a request of a browser that has sent a newer one.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from dither._histogram import histogram
from dither.collector.spec import CampaignSpec
from dither.errors import DitherError, ParameterError
from dither.methods import DEFAULT, HISTOGRAMS, MEANS, METHODS
from dither.notice import shown_certainty
from dither.planner import Expectation, expect

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# A share within five points is what the word "enough" stands for.
ENOUGH = 0.05
_KEPT = 256
_MAX_BEGUN = 16
_CHECKS = 2  # predictions for a number of people; the second corrects the first
_MAX_PEOPLE = 1_000_000_000
MAX_CODES = 4_000  # of all attributes together; a forecast of more is too slow for a form
MAX_ATTRIBUTES = 40
# People of the simulation about one number; other numbers follow by the square root.
_PLAYED = 5_000
# The designed mechanism of this method takes seconds, so one epsilon is forecast.
_SLOW = ("ranges",)
_STRENGTHS = ((1.0, "strong"), (2.0, "good"), (4.0, "moderate"))


def strength(epsilon: float) -> str:
    """The protection in one word."""
    return next((word for limit, word in _STRENGTHS if epsilon <= limit), "weak")


@dataclass(frozen=True)
class Width:
    """A predicted 95 % half-width.

    Attributes:
        value: A share of people, or a number with `unit` "number" (of a mean).
        of: What it is the half-width of.
        method: The method that gives it.
        pairs: Whether it shows how answers go together; None where there is one question.
    """

    value: float
    of: str
    method: str
    pairs: bool | None = None
    unit: str = "points"
    span: float = 1.0

    @property
    def shown(self) -> str:
        """The half-width in points or in the number's unit, with two digits."""
        if self.unit == "number":
            return f"± {plain(self.value)}"
        points = 100 * self.value
        return "± 100 points or more" if points >= 100 else f"± {plain(points)} points"

    @property
    def relative(self) -> float:
        """The half-width as a share of all people, or of the number's range."""
        return self.value / self.span

    @property
    def enough(self) -> bool:
        """Whether it is at most five points, or a twentieth of the range."""
        return self.relative <= ENOUGH


def plain(value: float) -> str:
    """A positive number with two digits, never in powers of ten."""
    if value >= 10 or value == 0:
        return f"{float(f'{value:.2g}'):,.0f}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f}"


# An epsilon, its half-width, certainty and strength.
_Row = tuple[float, Width | None, str, str]


@dataclass(frozen=True)
class Outlook:
    """What the page beside the form says.

    Attributes:
        rows: For each epsilon: it, its half-width or None, certainty and strength.
        wanted: A sentence about the wanted half-width; empty if none was asked for.
        setting: The field and value that reach it, such as ("epsilon", "1.9").
    """

    participants: int
    epsilon: float
    width: Width
    rows: tuple[_Row, ...]
    wanted: str = ""
    setting: tuple[str, str] | None = None

    @property
    def headline(self) -> str:
        """The verdict, which the text below explains."""
        if self.width.enough:
            return f"Enough: expect {self.width.of} within {self.width.shown}."
        return f"Not enough: {self.width.of} would be known only within {self.width.shown}."

    @property
    def remedy(self) -> str:
        """How many people would be enough at this epsilon; empty if these are."""
        if self.width.enough:
            return ""
        people = _two_digits(self.participants * (self.width.relative / ENOUGH) ** 2)
        goal = "5 points" if self.width.unit == "points" else "a twentieth of the range"
        return (
            f"Within {goal} takes about {people:,} people at this epsilon. Otherwise allow a larger "
            "epsilon, or ask fewer questions with fewer answers."
        )

    @property
    def together(self) -> str:
        """Whether the release will show how answers go together."""
        return {
            True: "It will also show how answers go together.",
            False: "How answers go together will not be known: there are too few people for "
            "that, so read each question by itself.",
            None: "",
        }[self.width.pairs]

    @property
    def summary(self) -> str:
        """What the method does."""
        return (METHODS | HISTOGRAMS | MEANS)[self.width.method].summary


def predicted(spec: CampaignSpec, people: int, epsilon: float) -> Width:
    """Predict the half-width of a campaign's release if so many people answer.

    Raises:
        DitherError: The schema is too large, or the method cannot be simulated.
    """
    if spec.method in HISTOGRAMS | MEANS:
        return _about_a_number(spec, people, epsilon)
    schema = spec.schema
    if len(schema) > MAX_ATTRIBUTES or sum(schema.cardinalities) > MAX_CODES:
        raise ParameterError(
            "this schema is too large to look ahead here; use 'dither plan' on the command line"
        )
    return _width_of(expect(schema, people, epsilon, method=spec.method), len(schema) > 1)


def _width_of(found: Expectation, several: bool) -> Width:
    pairs = found.pairs if several else None
    return Width(min(1.0, found.half_width), "the share of one answer", found.best.name, pairs)


def _about_a_number(spec: CampaignSpec, people: int, epsilon: float) -> Width:
    """The half-width of a bin of the finest histogram, or of the mean."""
    edges = spec.schema.attributes[0].edges
    low, high = float(edges[0]), float(edges[-1])
    played = np.random.default_rng(0).uniform(low, high, _PLAYED)
    scale = 1.96 / math.sqrt(people / _PLAYED)
    options = {"epsilon": epsilon, "low": low, "high": high, "method": spec.method, "seed": 0}
    if spec.method in MEANS:
        mean = histogram(played, **options).number.collected_mean  # type: ignore[arg-type]
        assert mean is not None
        span = high - low
        value = min(span, scale * mean.standard_error)
        return Width(value, "the mean", spec.method, unit="number", span=span)
    found = histogram(played, consumers=spec.consumers or [10], **options)  # type: ignore[arg-type]
    errors = [
        (float(np.sqrt(np.mean(np.square(c.standard_errors)))) / _PLAYED, c.name)
        for c in found.consumers
    ]
    error, name = max(errors)
    return Width(
        min(1.0, scale * error),
        f"the share of one bin of “{name}”, among those who answer,",
        spec.method,
    )


class Planner:
    """Predicts, one at a time, and keeps the latest predictions."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], Width | str] = OrderedDict()
        self._latest: dict[str, int] = {}
        self._begun: set[tuple[object, ...]] = set()

    def width(self, spec: CampaignSpec, people: int, epsilon: float) -> Width:
        """Return a prediction, from the cache if it is there."""
        key = _key(spec, people, epsilon)
        with self._guard:
            if key in self._kept:
                self._kept.move_to_end(key)
                known = self._kept[key]
                if isinstance(known, str):
                    raise ParameterError(known)
                return known
        found: Width | str
        try:
            found = predicted(spec, people, epsilon)
        except DitherError as error:
            self._keep(key, str(error))
            raise
        self._keep(key, found)
        return found

    def _keep(self, key: tuple[object, ...], found: Width | str) -> None:
        with self._guard:
            self._kept[key] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def width_later(self, spec: CampaignSpec, people: int) -> Width | str | None:
        """Return a prediction that is there, why there is none, or None and begin it.

        For pages that look again: the number of people is rounded to two digits.
        """
        people = _two_digits(people)
        key = _key(spec, people, spec.epsilon)
        with self._guard:
            if key in self._kept:
                return self._kept[key]
            if key in self._begun or len(self._begun) >= _MAX_BEGUN:
                return None
            self._begun.add(key)
        threading.Thread(target=self._work, args=(spec, people, key), daemon=True).start()
        return None

    def _work(self, spec: CampaignSpec, people: int, key: tuple[object, ...]) -> None:
        try:
            with self._turn, suppress(DitherError):  # which is kept as the reason
                self.width(spec, people, spec.epsilon)
        finally:
            with self._guard:
                self._begun.discard(key)

    def outlook(
        self,
        asker: str,
        spec: CampaignSpec,
        target: float | None = None,
        solve_for: str = "epsilon",
    ) -> Outlook | None:
        """Return what to expect, or None if the same asker has sent a newer request.

        Args:
            asker: The session.
            spec: The campaign.
            target: Wanted half-width, as a share.
            solve_for: What may change to reach it, "epsilon" or "participants".
        """
        with self._guard:
            mine = self._latest[asker] = self._latest.get(asker, 0) + 1
            while len(self._latest) > 1000:
                self._latest.pop(next(iter(self._latest)))
        with self._turn:
            if self._outdated(asker, mine):
                return None
            people, epsilon = spec.participants, spec.epsilon
            width = self.width(spec, people, epsilon)
            rows: list[_Row] = []
            for each in sorted({*EPSILONS, epsilon}):
                if self._outdated(asker, mine):
                    return None
                skipped = spec.method in _SLOW and each != epsilon
                found = None if skipped else self.width(spec, people, each)
                # A larger epsilon allows everything that a smaller one does, so its error is
                # not larger; predictions from few simulated campaigns may say otherwise.
                if found is not None and rows and rows[-1][1] is not None:
                    found = min(rows[-1][1], found, key=lambda width: width.relative)
                if each == epsilon and found is not None:
                    width = found
                rows.append((each, found, shown_certainty(each), strength(each)))
            wanted, setting = "", None
            if target is not None:
                wanted, setting = self._solved(spec, target, solve_for, rows)
        return Outlook(people, epsilon, width, tuple(rows), wanted, setting)

    def _outdated(self, asker: str, mine: int) -> bool:
        with self._guard:
            return self._latest.get(asker, mine) != mine

    def _solved(
        self, spec: CampaignSpec, target: float, solve_for: str, rows: Sequence[_Row]
    ) -> tuple[str, tuple[str, str] | None]:
        """The epsilon or the number of people that reaches a half-width, in a sentence.

        People follow from the square root law, and epsilon from the rows of the table by
        linear interpolation of the logarithms; one more prediction checks the result.
        """
        unit = "% of the range" if spec.method in MEANS else "points"
        wish = f"± {100 * target:.3g} {unit}"
        people, epsilon = float(spec.participants), spec.epsilon
        for _ in range(_CHECKS):
            width = self.width(spec, _two_digits(people), epsilon)
            if solve_for == "participants":
                people *= max((width.relative / target) ** 2, 1e-6)
                if people > _MAX_PEOPLE:
                    return f"{wish} would take more than {_MAX_PEOPLE:,} people.", None
        if solve_for == "participants":
            found = _two_digits(people)
            return (
                f"{wish} takes about {found:,} people at epsilon {epsilon:g}.",
                ("participants", str(found)),
            )
        if spec.method in _SLOW:
            return f"For {spec.method}, work out the participants, or try another epsilon.", None
        needed = _interpolated([(e, w.relative) for e, w, *_ in rows if w is not None], target)
        if needed is None:
            return f"{wish} is out of reach with {spec.participants:,} people.", None
        return (
            f"{wish} takes an epsilon of about {needed:g} with {spec.participants:,} people: "
            f"{strength(needed)} protection.",
            ("epsilon", f"{needed:g}"),
        )


def _interpolated(rows: Sequence[tuple[float, float]], target: float) -> float | None:
    """The epsilon, with two digits rounded up, at which the half-width falls to a target.

    Args:
        rows: Epsilons, rising, with their half-widths.
        target: The half-width.

    Returns:
        None if no row reaches the target.
    """
    reaching = [i for i, (_, width) in enumerate(rows) if width <= target]
    if not reaching:
        return None
    i = reaching[0]
    if i == 0:
        return rows[0][0]
    (low, above), (high, below) = rows[i - 1], rows[i]
    part = math.log(above / target) / math.log(above / below)
    found = low * (high / low) ** part
    step = 10.0 ** (math.floor(math.log10(found)) - 1)
    return min(high, float(f"{math.ceil(found / step) * step:.6g}"))


def _key(spec: CampaignSpec, people: int, epsilon: float) -> tuple[object, ...]:
    return (spec.schema.fingerprint, spec.method or DEFAULT, str(spec.consumers), people, epsilon)


def _two_digits(value: float) -> int:
    """A number of people with two digits, rounded up."""
    step = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 1)
    return int(max(1, math.ceil(value / step) * step))
