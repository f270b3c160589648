"""Questions about a release of one number as an address or a command writes them: text, bounded, with errors that name the part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from dither.checks import check_choice
from dither.errors import ParameterError
from dither.release.histogram import HistogramRelease
from dither.release.query.answer import Answer, AnswerRow, AnswerTable

LEVEL = 0.95
FIGURES = ("mean", "variance")
MAX_NUMBERS = 1000  # in one question


@dataclass(frozen=True)
class NumberQuestion:
    """One of: the share of people in each `range` ("30000,50000", half-open), or `below` each number; `quantiles` ("0.1,0.5");
    histograms of `bins` that nobody named before (a number of them, or edges); a `figure` (mean or variance)."""

    range: tuple[str, ...] = ()
    below: str = ""
    quantiles: str = ""
    bins: str = ""
    figure: str = ""

    @property
    def asked(self) -> list[str]:
        """The parts that ask for something."""
        return [part.name for part in fields(self) if getattr(self, part.name)]


def ask_number(release: HistogramRelease, question: NumberQuestion) -> Answer | AnswerTable:
    """The answer, with 95 % intervals; shares are fractions of the people who took part."""
    if len(question.asked) != 1:
        raise ParameterError(
            f"ask for one of {', '.join(part.name for part in fields(question))} at a time",
            where=" ".join(question.asked),
        )
    if question.figure:
        check_choice("figure", question.figure, FIGURES)
        return release.mean(LEVEL) if question.figure == "mean" else release.variance(LEVEL)
    if question.quantiles:
        return release.quantile(_numbers("quantiles", question.quantiles), LEVEL)
    if question.below:
        found = [(value, release.cdf(value, LEVEL)) for value in _numbers("below", question.below)]
        return _table("share below", ("below",), [((value,), answer) for value, answer in found])
    if question.range:
        return _ranges(release, question.range)
    return _bins(release, question.bins)


def _ranges(release: HistogramRelease, texts: Sequence[str]) -> AnswerTable:
    if len(texts) > MAX_NUMBERS:
        raise ParameterError(
            f"at most {MAX_NUMBERS:,} ranges can be asked for at once", where="range"
        )
    rows = []
    for text in texts:
        ends = _numbers("range", text)
        if len(ends) != 2:
            raise ParameterError(
                f"range: write two numbers such as 30000,50000, not {text[:80]!r}", where="range"
            )
        rows.append(((ends[0], ends[1]), release.range(ends[0], ends[1], LEVEL)))
    return _table("share of people in a range", ("from", "to"), rows)


def _bins(release: HistogramRelease, text: str) -> AnswerTable:
    numbers = _numbers("bins", text)
    if len(numbers) == 1 and not (numbers[0].is_integer() and 1 <= numbers[0] <= MAX_NUMBERS):
        raise ParameterError(
            f"bins: write a number of them from 1 to {MAX_NUMBERS:,}, or edges", where="bins"
        )
    late = release.answer(int(numbers[0]) if len(numbers) == 1 else numbers, LEVEL)
    people = float(release.participants)
    low, high = late.interval()
    # Counts are brought in line with each other, intervals are not: one that leaves its count out is stretched to it.
    rows = [
        AnswerRow(
            ends, count / people, min(a, count) / people, max(b, count) / people, error / people
        )
        for ends, count, a, b, error in zip(
            pairwise(late.edges.tolist()),
            late.estimates.tolist(),
            low.tolist(),
            high.tolist(),
            late.standard_errors.tolist(),
            strict=True,
        )
    ]
    return AnswerTable("share of people in a bin", ("from", "to"), tuple(rows), LEVEL, "reports")


def _table(
    asked: str, by: tuple[str, ...], found: Sequence[tuple[tuple[float, ...], Answer]]
) -> AnswerTable:
    rows = tuple(
        AnswerRow(values, a.estimate, a.low, a.high, a.standard_error) for values, a in found
    )
    warnings = tuple(dict.fromkeys(warning for _, answer in found for warning in answer.warnings))
    basis = found[0][1].basis
    return AnswerTable(asked, by, rows, LEVEL, basis, warnings=warnings)


def _numbers(name: str, text: str) -> list[float]:
    """Numbers with commas between them."""
    parts = text.split(",")
    if len(parts) > MAX_NUMBERS:
        raise ParameterError(f"{name}: at most {MAX_NUMBERS:,} numbers", where=name)
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise ParameterError(
            f"{name}: write numbers with commas between them, not {text[:80]!r}", where=name
        ) from None
