"""Warnings for readers of a release: one form for Python, JSON, command line and pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import Any

# Every code there is, and what to do about it. A code never changes its meaning;
# docs/reference/release-folder.md lists them.
ADVICE = {
    "replayable-noise": "run without a seed",
    "rows-resampled": "leave the population out, so that each row is one participant",
    "shows-the-truth": "give the synthetic table and release.json away, not the report",
    "weak-protection": "use a smaller epsilon and more participants; 'dither plan' says how many",
    "measured-against-truth": "keep the page and its files where you keep the table",
    "inferred-domain": "write a schema from public knowledge ('dither schema infer' makes a draft) and pass it",
    "schema-beside": "pass the schema by name to use another one",
    "file-form": "state delimiter, encoding and decimal if this is wrong",
    "column-format": "state another format in a schema if this is wrong",
    "columns-constant": "nothing, or drop these columns",
    "index-dropped": "nothing, or name the column among the columns to use",
    "raked": "nothing; ask the release before raking for the people who took part",
    "regression-predictors": "leave one of the two out, or collect with a method that asks all pairs",
    "columns-dropped": "nothing, or remove these columns from the schema's list of dropped ones to keep them",
    "rare-as-other": "list the values that matter in the schema, or group them",
    "method": "see the method's page in docs/explanation",
    "fallback": "see the method's page in docs/explanation",
    "held-out-skipped": "choose a method whose participants answer one question each",
    "too-little-data": "ask more participants or fewer attributes, or use a larger epsilon",
    "coarse-cells": "ask about ranges whose ends are edges of cells, or collect with method 'ranges'",
    "little-data": "give these attributes fewer values or coarser bins, or leave them out",
    "cut-at-zero": "give these attributes fewer values or coarser bins",
    "empty-table": "use a larger epsilon, fewer columns or coarser bins",
    "rows-capped": "read counts from the histogram, not from the number of rows",
    "record-form": "use it for what one record sends, not for the whole table",
    "bias": "compare with a method without it",
    "misfit": "read figures about these pairs with their intervals, or ask more people; a rule states what is publicly known",
    "rounds-differ": "read figures about these attributes as of early and late participants mixed; another time assign by token",
    "more-reports-than-expected": "compare with how many people were invited; another time issue tokens",
    "caution": "consider the message when you read the figure",
    "no-interval": "ask about attributes that were asked together, or about fewer of them",
    "divisor-unsure": "ask about a larger group of people",
    "inside-a-bin": "ask from one edge of a bin to another",
    "outside-the-domain": "check the number against the schema",
    "range-from-data": "state the range from public knowledge",
    "waves-cost": "ask a different group of people in each wave, unless changes within the same people matter",
    "nothing-found": "ask more people, use a larger epsilon, or state the alphabet and fewer bytes",
    "dropped": "count missing answers as a value, or fill the gaps",
}


@dataclass(frozen=True)
class Notice:
    """A warning: a stable code for programs, a sentence for people, and advice."""

    code: str
    message: str

    def __str__(self) -> str:
        return self.message

    @property
    def advice(self) -> str:
        """The recommended action."""
        return ADVICE.get(self.code, "")

    def to_json(self) -> dict[str, str]:
        """The entry in a manifest's `warnings`."""
        return {"code": self.code, "message": self.message, "advice": self.advice}


def notice_from_json(data: Any) -> Notice:
    """Read a warning from JSON.

    Raises:
        ValueError: The entry lacks a code or a message.
    """
    if not isinstance(data, dict) or not all(
        isinstance(data.get(key), str) for key in ("code", "message")
    ):
        raise ValueError(f"a warning has a code and a message, not {data!r}")
    return Notice(data["code"], data["message"])


_WEAK_EPSILON = 4.0  # above it, protection is said to be weak
REASON_EPSILON = 8.0  # above it, participants should read a reason


def certainty(epsilon: float) -> float:
    """The largest posterior probability of one of two equally likely records.

    It is e^epsilon / (1 + e^epsilon).
    """
    return 1 / (1 + math.exp(-epsilon))


def shown_certainty(epsilon: float) -> str:
    """`certainty` as a percentage, rounded up."""
    share = certainty(epsilon)
    for digits in range(1, 9):
        scale = 10**digits
        shown = math.ceil(share * 100 * scale) / scale
        if shown < 100:
            return f"{shown:.{digits}f} %"
    return "100 %"


def certainty_sentence(epsilon: float) -> str:
    """What an epsilon means for a person, in one sentence."""
    return (
        "someone who considers two records of a person equally likely can become at most "
        f"{shown_certainty(epsilon)} certain of one afterwards."
    )


def shown_epsilon(epsilon: float, digits: int = 6) -> str:
    """An epsilon with this many significant digits, rounded up."""
    if not math.isfinite(epsilon) or epsilon <= 0:
        return f"{epsilon:g}"
    with localcontext() as context:
        context.prec, context.rounding = digits, ROUND_CEILING
        rounded = +Decimal(repr(float(epsilon)))
    return f"{float(rounded):.{digits}g}"


def weak_protection(epsilon: float, between: str = "two records") -> Notice | None:
    """The warning for an epsilon above 4; None at or below it.

    Args:
        epsilon: The guarantee that was given.
        between: The two records that the guarantee makes hard to distinguish.
    """
    if epsilon <= _WEAK_EPSILON:
        return None
    return Notice(
        "weak-protection",
        f"epsilon {shown_epsilon(epsilon)} is weak protection: someone who considers {between} equally likely can "
        f"become up to {shown_certainty(epsilon)} certain of one of them",
    )


def own_warnings(
    warnings: Sequence[Notice], epsilon: float, seed: int | None, between: str = "two records"
) -> tuple[Notice, ...]:
    """Add the warnings that follow from epsilon and seed, without duplicates."""
    weak = weak_protection(epsilon, between)
    called_for = [*([] if seed is None else [REPLAYABLE]), *([] if weak is None else [weak])]
    return tuple(dict.fromkeys([*warnings, *called_for]))


REPLAYABLE = Notice(
    "replayable-noise",
    "a seed was given: this is NOT private against anyone who knows the seed, who can draw the "
    "same noise again and remove it, so all of it is as confidential as the table; leave the seed "
    "out for anything that others may see",
)

RESAMPLED = Notice(
    "rows-resampled",
    "a population was given: each row of the table plays about population / rows participants, so the stated epsilon protects the "
    "simulated participants and not the rows of the table, and this release is as confidential as the table",
)

SHOWS_TRUTH = Notice(
    "shows-the-truth",
    "this was a simulation, and its report.html shows the truth beside the estimates: that page is as confidential as the table",
)


def assumed_form(name: str, words: str) -> Notice:
    """The warning that a CSV file was read with unusual settings."""
    return Notice(
        "file-form",
        f"{name} was read as {words}; if that is wrong, state --delimiter, --decimal or --encoding",
    )


def unnamed_index(name: str) -> Notice:
    """The warning about a first column without a name."""
    return Notice(
        "index-dropped",
        "the first column has no name and is left out as the rows' index; "
        f"--keep {name} uses it under the name {name!r}",
    )


def marks_are_missing(file: str, marks: dict[str, list[str]]) -> Notice:
    """The warning about marks of missing answers in columns of numbers."""
    texts = ", ".join(sorted({repr(mark) for listed in marks.values() for mark in listed}))
    return Notice(
        "file-form",
        f"{file}: {texts} was read as missing in {', '.join(marks)}; "
        "if that is wrong, state the texts that mean missing with --missing",
    )


def header_like_data(file: str) -> Notice:
    """The warning about a header that looks like data."""
    return Notice(
        "file-form", f"{file}: the first row looks like data; if it is no header, give --no-header"
    )


def column_format(name: str, kind: str, form: str) -> Notice:
    """The warning about a text column that was read as numbers or times."""
    noun = {"numeric": "numbers", "date": "dates", "datetime": "times", "duration": "times of day"}
    return Notice("column-format", f"{name} was read as {noun[kind]} written as {form}")


def constant_columns(names: list[str]) -> Notice:
    """The warning about columns with one value or none."""
    return Notice(
        "columns-constant",
        f"not asked, because they have one value or none: {', '.join(names)}; "
        "the synthetic table repeats it",
    )


def dropped_columns(names: list[str]) -> Notice:
    """The warning about columns that the schema marks as dropped."""
    return Notice(
        "columns-dropped",
        f"the schema drops {', '.join(names)}: the synthetic table does not have them; "
        "remove them from that list to keep them",
    )


def rare_as_other(names: list[str]) -> Notice:
    """The warning about columns whose inferred domain lists only frequent values."""
    return Notice(
        "rare-as-other",
        f"only the most frequent values of {', '.join(names)} are kept, all others count as 'other'; "
        "list the values that matter in a schema",
    )
