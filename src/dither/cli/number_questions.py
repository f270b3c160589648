"""Questions about a number on the command line: ranges and quantiles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dither.cli.options import AsJson, print_warnings
from dither.display import printable
from dither.errors import ParameterError
from dither.methods.histogram.late import LateAnswer
from dither.notice import Notice
from dither.release import Release, load_release
from dither.release.number import bin_labels
from dither.release.query.answer import Answer, AnswerTable, figure_texts
from dither.types import JsonObject

Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="A,B",
        help="the share of people from A up to below B, with its interval; repeatable",
    ),
]
Quantiles = Annotated[
    str | None,
    typer.Option(
        "--quantiles",
        metavar="LEVELS",
        help="numbers below which these shares lie, such as 0.1,0.5",
    ),
]
Bins = Annotated[
    str, typer.Option(help="bins of equal width, one number per consumer, such as 3,5,7")
]
Edges = Annotated[
    list[str] | None,
    typer.Option(help="edges of one more consumer, such as 0,10,50,100; repeatable"),
]


@dataclass(frozen=True)
class Questions:
    """Ranges and quantiles as they were asked."""

    ranges: tuple[tuple[float, float], ...]
    levels: tuple[float, ...]

    @classmethod
    def read(cls, ranges: list[str] | None, quantiles: str | None) -> Questions:
        """From the options' text; an error names the option."""
        pairs = []
        for text in ranges or []:
            numbers = _numbers("--range", text)
            if len(numbers) != 2 or not numbers[0] < numbers[1]:
                raise ParameterError(
                    f"--range {text}: write a smaller and a larger number, such as 30000,50000",
                    where="--range",
                    value=text,
                )
            pairs.append((numbers[0], numbers[1]))
        levels = () if quantiles is None else tuple(_numbers("--quantiles", quantiles))
        if not all(0 < level < 1 for level in levels):
            raise ParameterError(
                f"--quantiles {quantiles}: levels lie between 0 and 1, such as 0.1,0.5",
                where="--quantiles",
                value=quantiles,
            )
        return cls(tuple(pairs), levels)

    def answer(self, release: Release) -> _Answers:
        """The release's answers."""
        number = release.number
        shares = tuple(number.range(low, high) for low, high in self.ranges)
        quantiles = release.quantile(number.attribute, self.levels) if self.levels else None
        return _Answers(self, shares, quantiles)


@dataclass(frozen=True)
class _Answers:
    """The questions and their answers."""

    asked: Questions
    ranges: tuple[Answer, ...]
    quantiles: AnswerTable | None

    def to_json(self) -> JsonObject:
        """A key for each kind of question that was asked."""
        out: JsonObject = {}
        if self.ranges:
            out["ranges"] = [
                {
                    "from": low,
                    "to": high,
                    "estimate": one.estimate,
                    "low": one.low,
                    "high": one.high,
                }
                for (low, high), one in zip(self.asked.ranges, self.ranges, strict=True)
            ]
        if self.quantiles is not None:
            out["quantiles"] = [
                {"level": level, "estimate": row.estimate, "low": row.low, "high": row.high}
                for level, row in zip(self.asked.levels, self.quantiles.rows, strict=True)
            ]
        return out

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """The warnings of all answers, without repeats."""
        tables = () if self.quantiles is None else (self.quantiles,)
        return tuple(dict.fromkeys(w for one in (*self.ranges, *tables) for w in one.warnings))

    def show(self) -> None:
        """Lines for people."""
        if self.ranges:
            print("\nshares of people  (95 % interval)")
            for (low, high), one in zip(self.asked.ranges, self.ranges, strict=True):
                share, ends = figure_texts(one.estimate, one.low, one.high, "share")
                print(f"  [{low:,.10g}, {high:,.10g})  {share}  ({ends})")
        if self.quantiles is not None:
            print("\nquantiles  (95 % interval)")
            for level, row in zip(self.asked.levels, self.quantiles.rows, strict=True):
                print(
                    f"  {level:g}  {row.estimate:,.6g}  ({row.low or 0.0:,.6g} to {row.high or 0.0:,.6g})"
                )


def read_bins(bins: str, edges: list[str] | None) -> list[int | list[float]]:
    """Consumers from the command line, or an error that names the option."""
    out: list[int | list[float]] = []
    for part in bins.split(",") if bins.strip() else []:
        text = part.strip()
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ParameterError(
                f"--bins {bins}: {text!r} is not a whole number of at least 1",
                where="--bins",
                value=text,
            )
        out.append(int(text))
    return [*out, *(_numbers("--edges", entry) for entry in edges or [])]


def ask(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="folder that 'dither histogram ... -o DIR' wrote")
    ],
    bins: Bins = "",
    edges: Edges = None,
    ranges: Ranges = None,
    quantiles: Quantiles = None,
    as_json: AsJson = False,
) -> None:
    """Ask a saved histogram for bins, ranges and quantiles that nobody named before: no further privacy is spent.

    Bins are half-open, the last one closed. Where an edge cuts a cell that was asked as a whole, the interval allows for it.

    Example: dither histogram ask out --bins 4 --range 30000,50000 --quantiles 0.1,0.5,0.9
    """
    questions, consumers = Questions.read(ranges, quantiles), read_bins(bins, edges)
    if not (consumers or questions.ranges or questions.levels):
        raise ParameterError(
            "there is no question: give --bins, --edges, --range or --quantiles", where="--bins"
        )
    release = load_release(directory)
    late = [release.number.answer(consumer) for consumer in consumers]
    answers = questions.answer(release)
    print_warnings(answers.warnings)
    if as_json:
        out = {"consumers": [one.to_json() for one in late], **answers.to_json()}
        print(json.dumps({**out, "epsilon_achieved": release.epsilon_achieved}, allow_nan=False))
        return
    for one in late:
        _show(one)
    answers.show()


def _show(late: LateAnswer) -> None:
    names = bin_labels(late.edges)
    width = max(map(len, names))
    print(f"\n{printable(late.name)}  (95 % interval)")
    for name, estimate, low, high in zip(names, late.estimates, late.low, late.high, strict=True):
        print(f"  {name:<{width}}  {estimate:>14,.1f}  ({low:,.1f} to {high:,.1f})")


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(
            f"{option} {text}: write numbers separated by commas", where=option, value=text
        ) from None
