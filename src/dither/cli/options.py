"""What several commands share: options, KEY=VALUE settings, warnings on stderr, and a progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from dither.errors import ParameterError
from dither.notice import Notice

if TYPE_CHECKING:
    from dither.types import Progress

Table = Annotated[str, typer.Argument(metavar="TABLE", help="CSV or Parquet file, or a bundled dataset's name (adult)")]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="schema file; a domain taken from the table's own rows leaks them")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", help="makes noise that whoever knows the seed can replay [default: noise that nobody can]"),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a method's parameter; repeatable")
]
SimulationPath = Annotated[
    Literal["counts", "reports"],
    typer.Option("--path", help="counts: draw tallies directly; reports: make every person's report"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]


def read_settings(given: list[str] | None) -> dict[str, str]:
    """What `--set KEY=VALUE` said, each key once."""
    out: dict[str, str] = {}
    for entry in given or []:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise ParameterError(f"--set {entry}: write it as KEY=VALUE", where="--set", value=entry)
        if key in out:
            raise ParameterError(f"--set {key} is given twice", where="--set", value=entry)
        out[key] = value
    return out


def print_warnings(warnings: Iterable[Notice | str]) -> None:
    """Each warning as a line on stderr."""
    for warning in warnings:
        print(f"dither: warning: {warning}", file=sys.stderr)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Gives a function to call with what is done, how much of it, and of how much; off a terminal it does nothing."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield show
