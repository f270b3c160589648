"""Run a method on simulated participants: the rows of a table, or the values of one number.

Two paths agree in distribution. `counts` draws each round's tally from the true counts, in
time that does not grow with participants times cells. `reports` makes every participant's
report, packed as on the wire, and tallies it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from dither.checks import check_choice
from dither.errors import ParameterError, PrivacyError, TooFewAnswers
from dither.fit.project import apportion
from dither.mechanisms import PackedReports, kernels
from dither.methods import Campaign
from dither.randomness import RandomStream
from dither.reports import Plan, Question
from dither.schema import Schema
from dither.schema.cells import cells_of
from dither.tally import CountTally, RoundTally, zero
from dither.types import Bytes, Codes, Counts, Floats, Integers, Progress

Path = Literal["counts", "reports"]
PATHS: tuple[Path, ...] = ("counts", "reports")

_BLOCK = 1 << 16


class Rounds(Protocol):
    """A `MethodRun`, or a `ProtocolMachine` without reduction and hold-out."""

    campaign: Campaign

    def plan(self) -> Plan | None:
        """The open round; None when finished."""

    def close(self, tally: RoundTally) -> None:
        """Close the open round with its tally and open the next."""


class _Group(Protocol):
    """Participants who are asked the same questions."""

    def __len__(self) -> int: ...

    def counts(self, question: Question) -> Counts:
        """Number of participants in each cell of a question."""

    def cells(self, question: Question) -> Integers:
        """Each participant's cell of a question."""

    def divide(self, sizes: Sequence[int]) -> Iterator[_Group]:
        """Consecutive parts of these sizes."""

    def blocks(self) -> Iterator[_Group]:
        """Parts small enough to make every report of."""


class People(Protocol):
    """All participants. Each one is returned at most once."""

    def __len__(self) -> int: ...

    def next(self, number: int) -> _Group:
        """The next participants who have not been asked yet."""


@dataclass(frozen=True)
class _Rows:
    """Participants as rows of a table of codes."""

    schema: Schema
    codes: Codes
    order: Integers

    def __len__(self) -> int:
        return len(self.order)

    def counts(self, question: Question) -> Counts:
        return np.bincount(self.cells(question), minlength=question.mechanism.cells)

    def cells(self, question: Question) -> Integers:
        return question_cells(self.schema, question, self.codes[self.order])

    def divide(self, sizes: Sequence[int]) -> Iterator[_Rows]:
        ends = np.cumsum(sizes)
        return (
            _Rows(self.schema, self.codes, self.order[end - size : end])
            for size, end in zip(sizes, ends, strict=True)
        )

    def blocks(self) -> Iterator[_Rows]:
        starts = range(0, len(self.order), _BLOCK)
        return (
            _Rows(self.schema, self.codes, self.order[start : start + _BLOCK]) for start in starts
        )


@dataclass(frozen=True)
class _Numbers:
    """Participants by the position of their number in the attribute's range, 0 to 1."""

    places: Floats
    rng: np.random.Generator

    def __len__(self) -> int:
        return len(self.places)

    def counts(self, question: Question) -> Counts:
        return np.bincount(self.cells(question), minlength=question.mechanism.cells)

    def cells(self, question: Question) -> Integers:
        """Each number rounded at random to a level, as `reports.plan.level_of` does."""
        assert question.rounded
        place = self.places * (question.mechanism.cells - 1)
        level = np.minimum(place.astype(np.int64), question.mechanism.cells - 2)
        return level + (self.rng.random(len(place)) < place - level)

    def divide(self, sizes: Sequence[int]) -> Iterator[_Numbers]:
        ends = np.cumsum(sizes)
        return (
            _Numbers(self.places[end - size : end], self.rng)
            for size, end in zip(sizes, ends, strict=True)
        )

    def blocks(self) -> Iterator[_Numbers]:
        return (
            _Numbers(self.places[i : i + _BLOCK], self.rng)
            for i in range(0, len(self.places), _BLOCK)
        )


@dataclass(frozen=True)
class _Texts:
    """Participants by their text, whose cell depends on the open round."""

    texts: npt.NDArray[np.bytes_]
    cells_of: Callable[[npt.NDArray[np.bytes_]], Integers]

    def __len__(self) -> int:
        return len(self.texts)

    def counts(self, question: Question) -> Counts:
        return np.bincount(self.cells(question), minlength=question.mechanism.cells)

    def cells(self, question: Question) -> Integers:
        return self.cells_of(self.texts)

    def divide(self, sizes: Sequence[int]) -> Iterator[_Texts]:
        ends = np.cumsum(sizes)
        return (
            _Texts(self.texts[end - size : end], self.cells_of)
            for size, end in zip(sizes, ends, strict=True)
        )

    def blocks(self) -> Iterator[_Texts]:
        return (
            _Texts(self.texts[i : i + _BLOCK], self.cells_of)
            for i in range(0, len(self.texts), _BLOCK)
        )


class _InTurn:
    """All participants of a group, in its order."""

    def __init__(self, group: _Group) -> None:
        self._left, self._total = group, len(group)

    def __len__(self) -> int:
        return self._total

    def next(self, number: int) -> _Group:
        taken, self._left = self._left.divide([number, len(self._left) - number])
        return taken


def number_people(values: Floats, low: float, high: float, rng: np.random.Generator) -> People:
    """The numbers of a column, each one participant, in random order.

    Raises:
        ParameterError: A number is outside [low, high].
    """
    places = (np.asarray(values, dtype=np.float64) - low) / (high - low)
    if not bool(np.all((places >= 0) & (places <= 1))):
        raise ParameterError(f"every number must lie between {low:g} and {high:g}", where="values")
    return _InTurn(_Numbers(rng.permutation(places), rng))


def text_people(
    texts: npt.NDArray[np.bytes_], cells_of: Callable[[npt.NDArray[np.bytes_]], Integers]
) -> People:
    """Participants who are asked in the order of these texts.

    Args:
        texts: The UTF-8 bytes of each participant's text.
        cells_of: The cell of each text in the open round.
    """
    return _InTurn(_Texts(texts, cells_of))


def question_cells(schema: Schema, question: Question, codes: Codes) -> Integers:
    """Each row's cell of a question.

    Raises:
        ParameterError: The question asks for a number, which codes do not have.
    """
    if question.rounded:
        raise ParameterError(
            "this method asks for numbers, not for codes of a table; use 'dither histogram' or a campaign",
            where="method",
        )
    if not question.grouped:
        return cells_of(
            codes, schema.cardinalities, [schema.index(name) for name in question.attributes]
        )
    columns = [
        np.asarray(schema[name].group_codes)[codes[:, schema.index(name)]]
        if name in question.grouped
        else codes[:, schema.index(name)]
        for name in question.attributes
    ]
    return cells_of(
        np.stack(columns, axis=1), [question.width(schema, name) for name in question.attributes]
    )


def simulate(
    machine: Rounds,
    codes: Codes,
    rng: np.random.Generator,
    *,
    path: Path = "counts",
    progress: Progress | None = None,
) -> list[Plan]:
    """Run a method on the rows of a table until it has finished.

    Each row answers at most once.

    Args:
        machine: The run, at its first round.
        codes: The table, one row per participant.
        rng: Source of the order of the rows and of the noise.
        path: `counts` or `reports`.
        progress: Called as `progress(stage, done, total)`.

    Returns:
        The plans of the rounds.

    Raises:
        PrivacyError: A plan exceeds the campaign's epsilon.
        TooFewAnswers: No participant is left for a round.
    """
    check_choice("path", path, PATHS)
    rows = _Rows(machine.campaign.schema, codes, rng.permutation(len(codes)))
    return drive(machine, _InTurn(rows), rng, path=path, progress=progress)


def drive(
    machine: Rounds,
    people: People,
    rng: np.random.Generator,
    *,
    path: Path = "counts",
    progress: Progress | None = None,
) -> list[Plan]:
    """Run a method on participants of any kind; see `simulate`."""
    check_choice("path", path, PATHS)
    asked = 0
    plans: list[Plan] = []
    while (plan := machine.plan()) is not None:
        if plan.epsilon > machine.campaign.epsilon:
            raise PrivacyError(
                f"round {plan.round} would spend epsilon {plan.epsilon}, more than {machine.campaign.epsilon}"
            )
        # Rounding may leave one person too few for the last round, never one twice.
        take = min(round(plan.population * len(people)), len(people) - asked)
        asked += take
        if take == 0:
            raise TooFewAnswers(
                f"round {plan.round} has no participants left: {len(people):,} are too few for this method",
                where="participants",
                value=len(people),
            )
        tally = zero(plan)
        ask = _ask_everything if plan.split else _ask_one_each
        ask(plan, people.next(take), rng, path, tally, progress)
        machine.close(tally)
        plans.append(plan)
    return plans


def _ask_one_each(
    plan: Plan,
    group: _Group,
    rng: np.random.Generator,
    path: Path,
    tally: RoundTally,
    progress: Progress | None,
) -> None:
    assert isinstance(tally, CountTally)
    parts = group.divide(apportion(len(group), plan.shares).tolist())
    for i, (question, part) in enumerate(zip(plan.questions, parts, strict=True)):
        if len(part) and path == "counts":
            tally.add_counts(
                i, kernels.simulate(question.mechanism, part.counts(question), rng), len(part)
            )
        elif len(part):
            stream = RandomStream.from_generator(rng)
            for block in part.blocks():
                tally.add(i, kernels.randomise(question.mechanism, block.cells(question), stream))
        if progress:
            progress(f"round {plan.round + 1}: questions answered", i + 1, len(plan.questions))


def _ask_everything(
    plan: Plan,
    group: _Group,
    rng: np.random.Generator,
    path: Path,
    tally: RoundTally,
    progress: Progress | None,
) -> None:
    if isinstance(tally, CountTally) and path == "counts":
        for i, question in enumerate(plan.questions):
            tally.add_counts(
                i, kernels.simulate(question.mechanism, group.counts(question), rng), len(group)
            )
        return
    # Patterns exist only in whole reports, so both paths make them.
    stream = RandomStream.from_generator(rng)
    parts: list[Bytes] = []
    done = 0
    for block in group.blocks():
        answers = [
            kernels.randomise(q.mechanism, block.cells(q), stream).rows for q in plan.questions
        ]
        parts.append(np.concatenate(answers, axis=1))
        done += len(block)
        if progress:
            progress(f"round {plan.round + 1}: reports made", done, len(group))
    tally.add(-1, PackedReports(np.concatenate(parts)))
