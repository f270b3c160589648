"""The content of a panel's release: every participant's noisy reports, wave by wave.

The reports are kept, not only their sums: a participant's reports share the permanent noise, and
the covariance of two waves follows from the people who answered both. For a question with a
weight for each cell, a participant's score in a wave is

    z = (weight of the cells that the report supports - q * sum of weights) / (p - q),

whose mean over the people of the wave is an unbiased estimate. Weights are taken less their mean,
which is added again at the end: shares have sum one, so this changes no true figure and removes
the noise of the sum. Participants are independent, so the empirical covariance of their scores is
that of the estimates: sampling, permanent noise and the waves' noise together, within and between
waves.

How many people moved from one value to another is not identified and not offered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dither.checks import check_between
from dither.display import Bar
from dither.errors import ParameterError, QuestionError
from dither.fit import Marginal
from dither.fit.project import norm_sub
from dither.mechanisms.loloha import Loloha
from dither.notice import Notice, own_warnings, shown_epsilon
from dither.release.call import Call, command, python_code
from dither.release.charts import trend_chart
from dither.release.content import Kind, unanswerable
from dither.release.folder import MANIFEST, reading
from dither.release.intervals import LinearAnswer
from dither.release.pages import render_part
from dither.release.query.answer import Answer, AnswerRow, AnswerTable, figure_texts
from dither.release.query.ask import Inquiry
from dither.release.query.cells import Grid, build_grid
from dither.release.query.expression import Where, notes_of, question_words
from dither.release.report import ReportBody
from dither.release.words import REPLAYED_TO_READERS, likelihood_factor
from dither.schema import Schema
from dither.tally.archive import pack, unpack
from dither.types import AnyArray, Floats, JsonMapping, JsonObject, NativeTable, Progress

if TYPE_CHECKING:
    from dither.release.release import Release

# A value of the time column as it is published.
Wave = str | int | float
# Marks a wave that a participant missed.
ABSENT = 255
_REPORTS = "panel.bin"
# People whose hash values are held at once, times cells.
_CHUNK = 4_000_000
# A variance needs at least two people.
MIN_PEOPLE = 2
# Values of an attribute with a chart in the report.
_CHARTS = 6

_Words = npt.NDArray[np.uint32]
_Small = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class PanelContent:
    """What a panel publishes: noisy reports and public facts.

    Args:
        person: The name of the column of participants.
        time: The name of the column of waves.
        waves: The waves in order, values of the time column.
        mechanisms: One for each attribute of the schema.
        chosen: The attribute that each participant answers about, for the panel's life.
        words: Both words of each participant's hash function.
        reports: Each participant's report in each wave; `ABSENT` where there is none.
    """

    kind: ClassVar[Kind] = "panel"
    from_participants: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = (_REPORTS,)

    person: str
    time: str
    waves: tuple[Wave, ...]
    mechanisms: tuple[Loloha, ...]
    chosen: _Small = field(repr=False)
    words: _Words = field(repr=False)
    reports: _Small = field(repr=False)

    @property
    def synthetic(self) -> NativeTable:
        """See `Content`; a panel has no synthetic table."""
        raise unanswerable(self.kind, "synthetic table")

    @property
    def trust_model(self) -> str:
        """See `Content`."""
        return "local: each report is noised on its own device"

    @property
    def between(self) -> str:
        """See `Content`."""
        return "two histories"

    @property
    def lifetime_waves(self) -> int:
        """The number of waves that the guarantee covers; devices send nothing afterwards."""
        return min(one.waves for one in self.mechanisms)

    @property
    def first_epsilon(self) -> float:
        """The guarantee of the first report by itself."""
        return max(one.first_epsilon for one in self.mechanisms)

    @property
    def wave_epsilon(self) -> float:
        """The most that one further wave adds."""
        return max(one.wave_epsilon for one in self.mechanisms)

    @property
    def values_epsilon(self) -> float:
        """The guarantee for histories that change at the same waves, whatever their number."""
        return max(one.values_epsilon for one in self.mechanisms)

    def place(self, wave: object) -> int:
        """The position of a wave, given as a value of the time column or its text.

        Raises:
            ParameterError: There is no such wave.
        """
        text = wave_text(wave)
        for i, one in enumerate(self.waves):
            if str(one) == text:
                return i
        shown = ", ".join(map(str, self.waves[:12])) + (", ..." if len(self.waves) > 12 else "")
        raise ParameterError(
            f"{self.time} has no wave {text!r}; the waves are {shown}", where="wave", value=text
        )

    def people(self, place: int) -> int:
        """The number of participants who answered in a wave."""
        return int((self.reports[:, place] != ABSENT).sum())

    # Estimates.

    def scores(self, attribute: int, weights: Floats, places: Sequence[int]) -> Floats:
        """Participants' scores for one question: a row each, a column for each wave, NaN if absent.

        Args:
            attribute: The position of the attribute that the question is about.
            weights: A weight for each of its cells.
            places: The waves.
        """
        mechanism = self.mechanisms[attribute]
        people = np.flatnonzero(self.chosen == attribute)
        middle = float(weights.mean())
        weights = weights - middle
        # Weight of the cells in each bucket of each participant's hash function.
        held = np.zeros((len(people), mechanism.buckets))
        step = max(1, _CHUNK // mechanism.cells)
        for start in range(0, len(people), step):
            part = slice(start, start + step)
            hashed = hash_cells(mechanism, self.words[people[part]])
            for bucket in range(mechanism.buckets):
                held[part, bucket] = (hashed == bucket) @ weights
        reports = self.reports[np.ix_(people, np.array(places, np.intp))]
        absent = reports == ABSENT
        supported = np.take_along_axis(held, np.where(absent, 0, reports).astype(np.intp), axis=1)
        p, q = float(mechanism.p), float(mechanism.q)
        # The weights have sum zero, so there is no bias to subtract.
        found: Floats = middle + supported / (p - q)
        return np.where(absent, np.nan, found)

    @cached_property
    def _raw(self) -> dict[tuple[int, int], Floats]:
        return {}

    def raw(self, attribute: int, place: int) -> Floats:
        """Unbiased shares of an attribute's cells in a wave: with sum one, possibly negative."""
        key = attribute, place
        if key not in self._raw:
            mechanism = self.mechanisms[attribute]
            there = (self.chosen == attribute) & (self.reports[:, place] != ABSENT)
            words, answers = self.words[there], self.reports[there, place]
            if len(answers) < MIN_PEOPLE:
                raise QuestionError(
                    f"fewer than {MIN_PEOPLE} people answered about this attribute in "
                    f"{self.time} {self.waves[place]}",
                    where="wave",
                )
            counts = np.zeros(mechanism.cells)
            step = max(1, _CHUNK // mechanism.cells)
            for start in range(0, len(answers), step):
                hashed = hash_cells(mechanism, words[start : start + step])
                counts += (hashed == answers[start : start + step, None]).sum(axis=0)
            p, q = float(mechanism.p), float(mechanism.q)
            raw = (counts / len(answers) - q) / (p - q)
            self._raw[key] = raw - (raw.sum() - 1) / len(raw)
        return self._raw[key]

    def check(self, release: Release) -> None:
        """See `Content`."""
        people = len(self.chosen)
        if len(self.mechanisms) != len(release.schema) or not self.mechanisms:
            raise ParameterError("a panel has one mechanism for each attribute")
        for attribute, one in zip(release.schema, self.mechanisms, strict=True):
            if one.cells != attribute.cardinality:
                raise ParameterError(f"the panel's mechanism does not fit {attribute.name}")
        if len(self.waves) > self.lifetime_waves or len(set(map(str, self.waves))) < len(
            self.waves
        ):
            raise ParameterError("the panel's waves repeat or are more than its guarantee covers")
        if self.words.shape != (people, 2) or self.reports.shape != (people, len(self.waves)):
            raise ParameterError("the panel's reports have another shape than its people and waves")
        buckets = np.array([one.buckets for one in self.mechanisms])
        if people and int(self.chosen.max()) >= len(buckets):
            raise ParameterError("a participant answers about an attribute that does not exist")
        wrong = (self.reports != ABSENT) & (self.reports >= buckets[self.chosen][:, None])
        if wrong.any():
            raise ParameterError("a report is of no bucket of its mechanism")
        if release.participants != people:
            raise ParameterError("the number of participants is not that of the reports")
        if release.epsilon_achieved < max(one.epsilon for one in self.mechanisms):
            raise ParameterError("the stated epsilon is below that of the panel's mechanisms")

    def warnings(self, release: Release) -> Sequence[Notice]:
        """See `Content`."""
        spent, seed = release.epsilon_achieved, release.seed
        return own_warnings(release.warnings, spent, seed, self.between)

    def guarantee(self, release: Release) -> str:
        """See `Content`."""
        epsilon = release.epsilon_achieved
        return (
            f"Everything that a participant sends in up to {self.lifetime_waves} waves is at most "
            f"{likelihood_factor(epsilon)} times as likely under one history of values as under "
            f"any other (lifetime epsilon {shown_epsilon(epsilon)})."
        )

    def readers(self, release: Release) -> str:
        """See `Content`."""
        return REPLAYED_TO_READERS if release.replayable else self.guarantee(release)

    def describe(self, release: Release) -> str:
        """See `Content`."""
        return (
            f"panel of {release.people:,} participants, {len(self.waves)} waves, "
            f"lifetime epsilon {shown_epsilon(release.epsilon_achieved)}"
        )

    def questions(
        self, release: Release, progress: Progress | None = None, reason: str = ""
    ) -> Inquiry:
        """See `Content`; a question about a panel needs a wave."""
        raise ParameterError(
            f"this release is a panel: name a wave, such as wave={self.waves[-1]!r} "
            f"(on the command line --wave {self.waves[-1]})",
            where="wave",
        )

    def at(self, release: Release, wave: object) -> Inquiry:
        """Answers questions about one wave."""
        place = self.place(wave)

        def linear(grid: Grid, questions: Sequence[Floats]) -> LinearAnswer:
            return self._linear(release.schema, grid, questions, place)

        return Inquiry(release.schema, {}, linear, float(self.people(place)))

    def _linear(
        self, schema: Schema, grid: Grid, questions: Sequence[Floats], place: int
    ) -> LinearAnswer:
        attribute = _only_attribute(schema, grid)
        groups = grid.groups[0]
        weights = np.stack([question.ravel()[groups] for question in questions])
        raw = self.raw(attribute, place)
        shares = weights @ norm_sub(raw)
        covariance = self._covariance(attribute, weights, place)
        covariance = _with_distance(covariance, weights @ raw - shares)
        return LinearAnswer(shares, covariance, math.inf, "reports")

    def _covariance(self, attribute: int, weights: Floats, place: int) -> Floats:
        """The covariance of the errors of several sums over an attribute's cells in one wave."""
        mechanism = self.mechanisms[attribute]
        there = (self.chosen == attribute) & (self.reports[:, place] != ABSENT)
        words, answers = self.words[there], self.reports[there, place]
        centred = weights - weights.mean(axis=1, keepdims=True)
        slope = float(mechanism.p - mechanism.q)
        total = np.zeros(len(weights))
        products = np.zeros((len(weights), len(weights)))
        step = max(1, _CHUNK // max(mechanism.cells, len(weights)))
        for start in range(0, len(answers), step):
            hashed = hash_cells(mechanism, words[start : start + step])
            supported = (hashed == answers[start : start + step, None]).astype(np.float64)
            scores = supported @ centred.T / slope
            total += scores.sum(axis=0)
            products += scores.T @ scores
        number = len(answers)
        covariance: Floats = products - np.outer(total, total) / number
        return covariance / (number * (number - 1))

    def course(
        self, release: Release, where: Where | None, places: Sequence[int]
    ) -> tuple[Floats, Floats, tuple[Notice, ...]]:
        """A share in several waves, the covariance of its errors, and notices."""
        inquiry = Inquiry(release.schema, {}, _unused, 0.0)
        node = inquiry.reader.read(where)
        grid = build_grid(inquiry.reader, [node])
        attribute = _only_attribute(release.schema, grid)
        weights = grid.weights(grid.holds(node)).ravel()[grid.groups[0]]
        return *self.moments(attribute, weights, places), notes_of([node])

    def moments(
        self, attribute: int, weights: Floats, places: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """A weighted sum of an attribute's shares in several waves, and its errors' covariance."""
        shares = np.array([weights @ norm_sub(self.raw(attribute, place)) for place in places])
        scores = self.scores(attribute, weights, places)
        present = ~np.isnan(scores)
        number = present.sum(axis=0)
        means = np.where(present, scores, 0.0).sum(axis=0) / number
        centred = np.where(present, scores - means, 0.0)
        covariance = centred.T @ centred / np.outer(number, np.maximum(number - 1, 1))
        return shares, _with_distance((covariance + covariance.T) / 2, means - shares)

    def change(
        self, release: Release, first: object, second: object, where: Where | None, level: float
    ) -> Answer:
        """See `Release.change`."""
        check_between("level", level, 0, 1, ends="()")
        places = [self.place(first), self.place(second)]
        if places[0] == places[1]:
            raise ParameterError("a change is between two different waves", where="wave")
        shares, covariance, notes = self.course(release, where, places)
        error = math.sqrt(
            max(0.0, float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]))
        )
        estimate = float(shares[1] - shares[0])
        half = float(ndtri((1 + level) / 2)) * error
        names = [self.waves[place] for place in places]
        return Answer(
            asked=f"change of {question_words('share', where, None)} from {names[0]} to {names[1]}",
            estimate=estimate,
            low=max(-1.0, estimate - half),
            high=min(1.0, estimate + half),
            standard_error=error,
            level=level,
            people=None,
            basis="reports",
            warnings=tuple(notes),
        )

    def trend(
        self, release: Release, where: Where | None, level: float, simultaneous: bool
    ) -> AnswerTable:
        """See `Release.trend`."""
        check_between("level", level, 0, 1, ends="()")
        shares, covariance, notes = self.course(release, where, range(len(self.waves)))
        each = level ** (1 / len(self.waves)) if simultaneous else level
        reach = float(ndtri((1 + each) / 2))
        rows = []
        for i, wave in enumerate(self.waves):
            share, error = float(shares[i]), math.sqrt(float(covariance[i, i]))
            low, high = max(0.0, share - reach * error), min(1.0, share + reach * error)
            rows.append(AnswerRow((wave,), share, low, high, error))
        asked = question_words("share", where, None)
        return AnswerTable(
            asked, (self.time,), tuple(rows), level, "reports", simultaneous, warnings=tuple(notes)
        )

    def marginal(self, release: Release, attributes: Sequence[str]) -> Marginal:
        """See `Content`; `Release.table(..., wave=)` gives the distribution of a wave."""
        raise unanswerable(self.kind, "marginal over all waves")

    def manifest(self, release: Release) -> JsonObject:
        """See `Content`."""
        return {
            "person": self.person,
            "time": self.time,
            "waves": list(self.waves),
            "people": [self.people(i) for i in range(len(self.waves))],
            "lifetime_waves": self.lifetime_waves,
            "epsilon_first": self.first_epsilon,
            "epsilon_wave": self.wave_epsilon,
            "epsilon_values": self.values_epsilon,
            "mechanisms": [asdict(one) for one in self.mechanisms],
        }

    def write(self, release: Release, folder: Path, form: str) -> None:
        """See `Content`."""
        arrays: dict[str, AnyArray] = {
            "chosen": self.chosen,
            "words": self.words,
            "reports": self.reports,
        }
        (folder / _REPORTS).write_bytes(pack({}, arrays))

    @classmethod
    def read(cls, folder: Path, manifest: JsonMapping, schema: Schema, call: Call) -> PanelContent:
        """Read the files of this kind; `check` compares them with the schema."""
        with reading(folder / _REPORTS):
            arrays = unpack((folder / _REPORTS).read_bytes())[1]
            wanted = {"chosen": (np.uint8, 1), "words": (np.uint32, 2), "reports": (np.uint8, 2)}
            for name, (kind, axes) in wanted.items():
                if arrays[name].dtype != kind or arrays[name].ndim != axes:
                    raise ValueError(f"{name} is not an array of {axes} axes of {kind.__name__}")
        with reading(folder / MANIFEST):
            texts = [manifest[name] for name in ("person", "time")]
            waves = manifest["waves"]
            plain = type(waves) is list and all(type(wave) in (str, int, float) for wave in waves)
            if not all(isinstance(text, str) for text in texts) or not waves or not plain:
                raise ValueError("person and time are names of columns, waves a list of values")
            return cls(
                person=texts[0],
                time=texts[1],
                waves=tuple(waves),
                mechanisms=tuple(Loloha(**one) for one in manifest["mechanisms"]),
                chosen=np.array(arrays["chosen"], np.uint8),
                words=np.array(arrays["words"], np.uint32),
                reports=np.array(arrays["reports"], np.uint8),
            )

    def check_shown(self, release: Release) -> None:
        """See `Content`."""

    def report(self, release: Release) -> ReportBody:
        """See `Content`."""
        contents: list[tuple[str, str]] = []
        epsilon = shown_epsilon(release.epsilon_achieved, 4)
        html = render_part(
            "report_body.html",
            contents=contents,
            release=release,
            content=self,
            trends=_trends(self, release),
            people=[(wave, f"{self.people(i):,}") for i, wave in enumerate(self.waves)],
            command=command(release.call),
            python=None if release.call.record is None else python_code(release.call),
        )
        return ReportBody(
            html=html,
            contents=tuple(contents),
            heading="Panel",
            subtitle="Rows of a table played the participants" if release.simulated else "Panel",
            facts=(
                ("Participants", f"{release.people:,}"),
                ("Waves", len(self.waves)),
                ("Lifetime epsilon", epsilon),
                ("First report's epsilon", shown_epsilon(self.first_epsilon, 4)),
            ),
            citation=f"Dither {release.dither_version}, panel of {len(self.waves)} waves: method "
            f"{release.method}, lifetime epsilon {epsilon}, "
            f"schema {release.schema_fingerprint[:12]}.",
        )


@dataclass(frozen=True)
class _Trend:
    """A value's course over the waves, as the report shows it."""

    title: str
    chart: str
    change: str
    rows: Sequence[tuple[str, ...]]


def _trends(content: PanelContent, release: Release) -> list[_Trend]:
    """Charts of the most frequent values of each attribute, with simultaneous bands."""
    found = []
    for j, attribute in enumerate(release.schema):
        answered = (content.reports[content.chosen == j] != ABSENT).sum(axis=0)
        places = [int(place) for place in np.flatnonzero(answered >= MIN_PEOPLE)]
        if not places:
            continue
        names = [str(content.waves[place]) for place in places]
        reach = float(ndtri((1 + 0.95 ** (1 / len(names))) / 2))
        mean = sum(norm_sub(content.raw(j, place)) for place in places)
        for code in sorted(np.argsort(-np.asarray(mean), kind="stable")[:_CHARTS]):
            label = attribute.labels[code]
            title = f"{attribute.name}: {label}"
            weights = np.zeros(attribute.cardinality)
            weights[code] = 1.0
            shares, covariance = content.moments(j, weights, places)
            half = reach * np.sqrt(np.diag(covariance))
            low, high = np.maximum(shares - half, 0.0), np.minimum(shares + half, 1.0)
            bars = [
                Bar(name, float(shares[i]), float(low[i]), float(high[i]))
                for i, name in enumerate(names)
            ]
            texts = [figure_texts(bar.estimate, bar.low, bar.high, "share") for bar in bars]
            marks = [f"{name}: {one[0]}, {one[1]}" for name, one in zip(names, texts, strict=True)]
            words = f"Share of {title} over {len(names)} waves with a simultaneous 95 % band."
            rows = [(name, *one) for name, one in zip(names, texts, strict=True)]
            chart = trend_chart(names, bars, words, marks)
            found.append(_Trend(title, chart, _change_words(names, shares, covariance), rows))
    return found


def _change_words(names: Sequence[str], shares: Floats, covariance: Floats) -> str:
    """The change from the first wave to the last, and what the shared people are worth."""
    if len(names) < 2:
        return ""
    apart = float(covariance[0, 0] + covariance[-1, -1])
    error = math.sqrt(max(0.0, apart - 2 * float(covariance[0, -1])))
    change, half = float(shares[-1] - shares[0]), float(ndtri(0.975)) * error
    return (
        f"From {names[0]} to {names[-1]}: {100 * change:+.1f} points (95 % interval "
        f"{100 * (change - half):+.1f} to {100 * (change + half):+.1f}). Its standard error is "
        f"{error / math.sqrt(apart):.2f} times that of two independent waves."
    )


def _with_distance(covariance: Floats, moved: Floats) -> Floats:
    """The covariance, with standard errors not below the distance that estimates were moved.

    Moving unbiased estimates to the nearest distribution brings them closer to the truth on the
    whole, so a small move is not a further error; a move of several standard errors shows one.
    """
    beyond: Floats = np.sqrt(np.maximum(moved**2 - np.diag(covariance), 0.0))
    widened: Floats = covariance + np.outer(beyond, beyond)
    return widened


def _unused(grid: Grid, questions: Sequence[Floats]) -> LinearAnswer:
    raise AssertionError("only the reader of this inquiry is used")


def _only_attribute(schema: Schema, grid: Grid) -> int:
    if len(grid.names) > 1:
        raise QuestionError(
            f"a participant of a panel answers about one attribute: {' and '.join(grid.names)} "
            "were never asked together; ask about one of them",
            where="where",
        )
    return schema.index(grid.names[0])


def hash_cells(mechanism: Loloha, words: _Words) -> _Small:
    """The bucket of every cell for each participant: `Loloha.bucket` for arrays."""
    cells = np.arange(mechanism.cells, dtype=np.uint32)
    # Arithmetic of 32-bit words wraps, as the hash function requires.
    spread = (words[:, :1] * cells + words[:, 1:]) >> np.uint32(16)
    buckets: _Small = ((spread * np.uint32(mechanism.buckets)) >> np.uint32(16)).astype(np.uint8)
    return buckets


def wave_value(value: object) -> Wave:
    """A value of the time column as it is published: a number, or text."""
    if isinstance(value, bool | date):
        return str(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return int(value) if float(value).is_integer() else float(value)
    return str(value)


def wave_text(value: object) -> str:
    """The text by which a wave is found."""
    return str(wave_value(value))
