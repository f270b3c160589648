"""The planner next to the form: error by number of participants and epsilon, and a method.

The figures come from `dither.planner`. This module limits their cost: one forecast at a time
in a process, a cache of the latest, and no answer to a request of a browser that has sent a
newer one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from dither.display import WIDTH, drawing, label, number, path, short_number, text_width
from dither.errors import DitherError
from dither.methods import METHODS
from dither.planner import (
    BASELINE,
    Forecast,
    assumed_dependence,
    forecast,
    predict,
    reference_population,
)
from dither.release.charts import FOOT, HEAD, HEIGHT, Axis
from dither.schema import Schema

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SPAN = (0.1, 0.3, 1.0, 3.0, 10.0)  # around the number of participants that was typed
KEPT = 32
MAX_CODES = 4_000  # of all attributes together; a forecast of more is too slow for a form
MAX_ATTRIBUTES = 40


@dataclass(frozen=True)
class Outlook:
    """The forecast next to the form.

    Attributes:
        expected: The forecast for the given numbers.
        curves: For each epsilon, pairs of participants and one-way error.
    """

    expected: Forecast
    curves: tuple[tuple[float, tuple[tuple[int, float], ...]], ...]

    @property
    def enough(self) -> str:
        """The verdict in words."""
        pairs = self.expected.recommendation != BASELINE
        error = self.single
        if error > 0.25:
            return "Not enough, not even for single questions. Ask more people or fewer questions, or allow a larger epsilon."
        if not pairs:
            return "Enough for each question by itself, not for how answers go together."
        return "Enough for each question and for how answers go together."

    @property
    def single(self) -> float:
        """The error to expect of one question's distribution."""
        found = next(m for m in self.expected.methods if m.name == self.expected.recommendation)
        return found.tvd[1]

    @property
    def why(self) -> str:
        """What the recommended method does."""
        return METHODS[self.expected.recommendation].summary


class Planner:
    """Looks ahead, one forecast at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, float], Outlook] = OrderedDict()
        self._latest: dict[str, int] = {}

    def outlook(
        self, asker: str, schema: Schema, participants: int, epsilon: float
    ) -> Outlook | None:
        """Return the forecast, or None if the same asker has sent a newer request."""
        key = (schema.fingerprint, participants, epsilon)
        with self._guard:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            mine = self._latest[asker] = self._latest.get(asker, 0) + 1
            while len(self._latest) > 1000:
                self._latest.pop(next(iter(self._latest)))
        if len(schema) > MAX_ATTRIBUTES or sum(schema.cardinalities) > MAX_CODES:
            raise DitherError(
                "this schema is too large to look ahead while you type; use 'dither plan' on the command line"
            )
        with self._turn:
            with self._guard:
                if self._latest.get(asker, mine) != mine:
                    return None
            found = _outlook(schema, participants, epsilon)
        with self._guard:
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found


def _outlook(schema: Schema, participants: int, epsilon: float) -> Outlook:
    expected = forecast(schema, participants, epsilon, repeats=1)
    population = reference_population(schema, assumed_dependence(schema))
    people = [max(10, round(participants * times)) for times in SPAN]
    curves = []
    for each in dict.fromkeys(sorted((*EPSILONS, epsilon))):
        found = [(n, predict(BASELINE, population, n, each)) for n in people]
        points = tuple((n, prediction.tvd[1]) for n, prediction in found if 1 in prediction.tvd)
        if points:
            curves.append((each, points))
    return Outlook(expected, tuple(curves))


def outlook_chart(outlook: Outlook) -> Markup:
    """One line for each epsilon, errors and participants both on a scale of tens; the chosen one stands out."""
    spots = sorted({n for _, points in outlook.curves for n, _ in points})
    errors = [max(error, 1e-6) for _, points in outlook.curves for _, error in points]
    low, high = floor(log10(min(errors))), ceil(log10(max(errors)))
    up = Axis(low, max(high, low + 1), HEIGHT - FOOT, HEAD)
    left = max(text_width(_percent(power)) for power in (low, high)) + 10
    across = Axis(log10(spots[0]), log10(spots[-1]), left, WIDTH - 44)
    lines, grid, words = "", "", label(0, 13, "error of one question")
    for power in range(low, max(high, low + 1) + 1):
        grid += f"M{number(across.start)} {number(up(power))}H{number(across.end)}"
        words += label(across.start - 6, up(power) + 4, _percent(power), "e")
    for epsilon, points in outlook.curves:
        places = [
            f"{number(across(log10(n)))} {number(up(log10(max(error, 1e-6))))}"
            for n, error in points
        ]
        lines += path(
            "reach" if epsilon == outlook.expected.epsilon else "curve", "M" + "L".join(places)
        )
    for n in spots[::2]:
        words += label(across(log10(n)), up.start + 17, short_number(n), "m")
    words += label((across.start + across.end) / 2, up.start + 34, "participants", "m") + _ends(
        outlook, across.end, up
    )
    spoken = (
        f"Expected error of one question's distribution against the number of participants, a line for each epsilon from "
        f"{outlook.curves[0][0]:g} to {outlook.curves[-1][0]:g}. The table below has every figure."
    )
    return drawing(WIDTH, HEIGHT, spoken, f"{path('rule', grid)}{lines}<g>{words}</g>")


def _percent(power: int) -> str:
    return f"{10.0 ** (power + 2):g} %"


def _ends(outlook: Outlook, x: float, up: Axis) -> str:
    """The epsilon of each line at its end, where there is room between one and the next; the chosen one first."""
    out: str = ""
    taken: list[float] = []
    for epsilon, points in sorted(
        outlook.curves, key=lambda curve: curve[0] != outlook.expected.epsilon
    ):
        y = up(log10(max(points[-1][1], 1e-6))) + 4
        if all(abs(y - other) >= 12 for other in taken):
            out += label(x + 5, y, f"ε {epsilon:g}")
            taken.append(y)
    return out
