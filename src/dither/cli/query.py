"""dither query: ask a saved release for shares, tables, means and quantiles, each with its interval."""

from __future__ import annotations

import io
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.csv
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from dither.cli.options import AsJson, Quiet, print_warnings
from dither.display import printable
from dither.errors import ParameterError
from dither.progress import progress_bar
from dither.release import Release, load_release
from dither.release.content import Questions
from dither.release.query import Answer, AnswerTable
from dither.release.query.answer import figure_texts, interval_heading
from dither.release.query.expression import said
from dither.schema import Attribute
from dither.types import Progress

# Characters of the longest bar.
_BAR = 24
# The labels of a row, its figure and the ends of its interval.
_Row = tuple[tuple[str, ...], float, float | None, float | None]
ADVICE = (
    "note: this release has no replicates, so its model is fitted 20 times more for the intervals of this question, which can "
    "take a minute; 'dither publish --replicates 20' does that once and saves them, and every question is then answered at once"
)


@dataclass(frozen=True)
class _Asked:
    """The question on the command line."""

    where: str | None
    given: str | None
    by: str | None
    mean: str | None
    quantile: str | None
    quantiles: str | None
    level: float
    simultaneous: bool

    def check(self) -> None:
        """Questions that exclude each other are refused."""
        names = ("by", "mean", "quantile", "quantiles")
        kinds = [name for name in names if getattr(self, name) is not None]
        if len(kinds) > 1 and kinds != ["by", "mean"]:
            raise ParameterError(
                f"--{kinds[0]} and --{kinds[1]} are two questions; ask one at a time", where="--by"
            )
        if self.simultaneous and (self.by is None or self.mean is not None):
            raise ParameterError(
                "--simultaneous is for tables of shares; it goes with --by and without --mean",
                where="--simultaneous",
            )

    @property
    def nothing(self) -> bool:
        """Whether nothing is asked at all."""
        return self.where is self.by is self.mean is self.quantile is self.quantiles is None

    def answer(self, release: Release, questions: Questions) -> Answer | AnswerTable:
        """The release's answer."""
        if self.by is not None:
            names = _names(self.by, release)
            if self.mean is not None:
                return questions.means(self.mean, names, self.where, self.given, self.level)
            return questions.table(names, self.where, self.given, self.level, self.simultaneous)
        if self.mean is not None:
            return questions.mean(self.mean, self.where, self.given, self.level)
        if self.quantile is not None:
            attribute, level = _levels("--quantile", self.quantile, ",", "age,0.5")
            table = questions.quantiles(attribute, level, self.where, self.given, self.level)
            return table.only()
        if self.quantiles is not None:
            attribute, levels = _levels("--quantiles", self.quantiles, ":", "age:0.25,0.5,0.75")
            return questions.quantiles(attribute, levels, self.where, self.given, self.level)
        return questions.query(self.where, self.given, self.level)


class _Advised:
    """Progress that explains the wait for replicates and how to avoid it."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._told = progress, False

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self._told:
            self._told = True
            print(f"dither: {ADVICE}", file=sys.stderr)
        self._progress(what, done, total)


def query(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="folder of a release")],
    where: Annotated[
        str | None, typer.Argument(metavar="WHERE", help='whom to count, such as "age >= 50"')
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="among whom: shares are shares of these people"),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="a row for each combination of these attributes"),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="ATTR", help="the mean of a number over these people; with --by of each group"
        ),
    ] = None,
    quantile: Annotated[
        str | None,
        typer.Option(metavar="ATTR,LEVEL", help="one quantile of a number, such as age,0.5"),
    ] = None,
    quantiles: Annotated[
        str | None,
        typer.Option(
            metavar="ATTR:LEVELS", help="quantiles of a number, such as age:0.25,0.5,0.75"
        ),
    ] = None,
    wave: Annotated[
        str | None, typer.Option(help="in a panel: the wave, a value of its time column")
    ] = None,
    level: Annotated[float, typer.Option(help="of the intervals")] = 0.95,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="with --by: intervals that hold all together")
    ] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print comma-separated values")] = False,
    quiet: Quiet = False,
) -> None:
    """Ask a release: which share of people, with an interval that counts the noise and who was asked.

    WHERE and EXPR are made of comparisons (30 <= age < 50), in, and, or, not,
    between(age, 30, 49), text in quotes, numbers and None for a missing answer. A name
    that is no Python name is written attr['hours-per-week']. Nothing of it is run.

    Without a question the attributes and their values are listed.

    Examples:

    dither query out "sex == 'Female' and 30 <= age < 50 and education in ['Bachelors', 'Masters']"

    dither query out "income == '>50K'" --given "sex == 'Female'"

    dither query out --by sex,education --given "age >= 50" --csv

    dither query out "sex == 'Male'" --mean hours_per_week

    dither query out --quantile age,0.5

    dither query panel "mood == 'good'" --wave 3
    """
    release = None
    if wave is not None:
        release = load_release(directory)
        if where is by is mean is quantile is quantiles is None and len(release.schema) == 1:
            by = release.schema.names[0]
    asked = _Asked(where, given, by, mean, quantile, quantiles, level, simultaneous)
    asked.check()
    if as_json and as_csv:
        raise ParameterError("--json and --csv exclude each other", where="--csv")
    if asked.nothing and (as_json or as_csv or given is not None):
        raise ParameterError(
            "there is no question: give WHERE, --by, --mean, --quantile or --quantiles",
            where="WHERE",
        )
    if release is None:
        release = load_release(directory)
    if asked.nothing:
        _overview(release, directory)
        return
    with progress_bar(quiet) as progress:
        advised = progress if quiet else _Advised(progress)
        answer = asked.answer(release, release.questions_at(wave, advised))
    if as_json:
        print(json.dumps(answer.to_json(), allow_nan=False))
    elif as_csv:
        _write_csv(answer.to_arrow())
        print_warnings(answer.warnings)
    else:
        _show(answer)
        print_warnings(answer.warnings)


def _write_csv(table: pa.Table) -> None:
    """Comma-separated values; programs get labels as they are, a terminal gets them escaped."""
    if not sys.stdout.isatty():
        pa.csv.write_csv(table, sys.stdout.buffer)
        return
    text = io.BytesIO()
    pa.csv.write_csv(table, text)
    print(printable(text.getvalue().decode()), end="")


def _plain(text: str) -> str:
    """Text of a release for Rich: no markup, no control characters."""
    return escape(printable(text))


def _names(given: str, release: Release) -> list[str]:
    """Comma-separated attributes; a single attribute's name may contain commas."""
    return [given] if given in release.schema.names else [name.strip() for name in given.split(",")]


def _levels(option: str, given: str, sign: str, example: str) -> tuple[str, list[float]]:
    """An attribute and levels, with a sign between the two."""
    attribute, found, levels = given.rpartition(sign)
    try:
        if found and attribute:
            return attribute, [float(level) for level in levels.split(",")]
    except ValueError:
        pass
    raise ParameterError(
        f"{option} {given}: write an attribute and levels, such as {example}",
        where=option,
        value=given,
    )


def _show(answer: Answer | AnswerTable) -> None:
    console = Console(highlight=False)
    if isinstance(answer, Answer):
        names: tuple[str, ...] = ("",)
        rows: list[_Row] = [((answer.asked,), answer.estimate, answer.low, answer.high)]
    else:
        rows = [
            (tuple(map(str, row.values)), row.estimate, row.low, row.high) for row in answer.rows
        ]
        names = answer.by
        console.print(_plain(answer.asked))
    grid = Grid(box=None, pad_edge=False)
    for name in names:
        grid.add_column(_plain(name), overflow="fold")
    grid.add_column("estimate", justify="right", no_wrap=True)
    grid.add_column(interval_heading(answer.level), justify="right", no_wrap=True)
    top = max(estimate if high is None else high for _, estimate, _, high in rows)
    if answer.unit == "share":
        grid.add_column("")
    for values, estimate, low, high in rows:
        texts = figure_texts(estimate, low, high, answer.unit)
        bar = [_bar(estimate, top)] if answer.unit == "share" else []
        grid.add_row(*(_plain(value) for value in values), *texts, *bar)
    console.print(grid)
    if isinstance(answer, Answer) and answer.people is not None:
        console.print(f"about {answer.people:,.0f} people; rests on the {answer.basis}")


def _bar(share: float, top: float) -> str:
    """A share as a bar, scaled to the largest upper end."""
    return "█" * round(_BAR * share / top) if top > 0 and not math.isnan(share) else ""


def _overview(release: Release, directory: Path) -> None:
    console = Console(highlight=False)
    console.print(f"{_plain(repr(release))}\nAttributes and their values:", soft_wrap=True)
    for attribute in release.schema:
        console.print(f"  {_plain(_line(attribute))}", soft_wrap=True)
    example = f"dither query {_plain(str(directory))} --by {_plain(release.schema.names[0])}"
    if release.kind == "panel":
        waves = ", ".join(map(str, release.panel.waves))
        console.print(f"Waves ({_plain(release.panel.time)}): {_plain(waves)}", soft_wrap=True)
        example += f" --wave {_plain(str(release.panel.waves[-1]))}"
    console.print(f"Ask such as: {example}", soft_wrap=True)
    console.print("'dither query --help' shows how questions are written.")


def _line(attribute: Attribute) -> str:
    labels = attribute.labels
    if attribute.on_line:
        last = ", or (missing)" if attribute.missing else ""
        low, high = (said(attribute, attribute.edges[i]) for i in (0, -1))
        return (
            f"{attribute.name}: {low} to {high}, {attribute.answers} bins and single values{last}"
        )
    more = f" and {len(labels) - 8} more" if len(labels) > 8 else ""
    return f"{attribute.name}: {', '.join(labels[:8])}{more}"
