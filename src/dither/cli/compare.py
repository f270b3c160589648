"""dither compare: methods beside each other on one's own table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from dither.cli.options import (
    AsJson,
    Columns,
    Decimal,
    Delimiter,
    Drop,
    Encoding,
    Keep,
    Missing,
    Quiet,
    SchemaFile,
    Table,
    delimiter_of,
    listed,
    print_warnings,
)
from dither.errors import ParameterError
from dither.lab.comparison import Comparison
from dither.lab.comparison import compare as run
from dither.lab.comparison.peers import PEERS
from dither.types import JsonObject


def compare(
    table: Table,
    epsilon: Annotated[
        str, typer.Option(help="guarantees of one participant's whole record, with commas")
    ] = "1,2,4",
    methods: Annotated[
        str,
        typer.Option(
            help=f"names with commas; all: every local method; peers: other libraries that are installed ({', '.join(PEERS)})"
        ),
    ] = "all",
    schema: SchemaFile = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="column that a classifier learns from the synthetic rows [default: the last]"
        ),
    ] = None,
    population: Annotated[
        int | None, typer.Option(help="draw so many participants from the rows, with replacement")
    ] = None,
    repeats: Annotated[int, typer.Option(help="runs of each method; figures are their means")] = 1,
    replicates: Annotated[
        int, typer.Option(help="refits for the intervals whose coverage is measured; 0: none")
    ] = 5,
    seed: Annotated[
        int, typer.Option(help="of the simulated noise and of the rows kept to test on")
    ] = 0,
    limit: Annotated[float, typer.Option(help="seconds after which a method is given up")] = 600.0,
    columns: Columns = None,
    drop: Drop = None,
    keep: Keep = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    missing: Missing = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="folder [default: compare-out/ and the table's name]"),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="measure anew what an earlier run had finished")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run methods on a table, its rows as simulated participants: errors, coverage, accuracy, time and memory of each.

    Writes index.html (with plots), comparison.json and comparison.csv. Interrupted, the same command goes on where it stopped.
    Everything is measured against the true rows: what is written is as confidential as the table.

    Example: dither compare adult --epsilon 1,2,4 --methods all
    """
    folder = output or Path("compare-out") / Path(table).stem
    found = run(
        table,
        epsilons=_epsilons(epsilon),
        methods=listed(methods) or [],
        schema=schema,
        target=target,
        population=population,
        repeats=repeats,
        replicates=replicates,
        seed=seed,
        limit=limit,
        columns=listed(columns),
        drop=listed(drop) or (),
        keep=listed(keep) or (),
        delimiter=delimiter_of(delimiter),
        encoding=encoding,
        decimal=decimal,
        missing=listed(missing),
        output=folder,
        fresh=fresh,
        quiet=quiet,
    )
    print_warnings(found.warnings)
    if as_json:
        print(json.dumps(found.to_json(), allow_nan=False))
        return
    if quiet:
        return
    _show(found)
    print(f"  page    {folder / 'index.html'}")
    print(f"  figures {folder / 'comparison.csv'}")


def _epsilons(given: str) -> list[float]:
    try:
        return [float(part) for part in given.split(",")]
    except ValueError:
        raise ParameterError(
            f"--epsilon {given}: write numbers with commas between them, such as 1,2,4",
            where="--epsilon",
            value=given,
        ) from None


def _show(found: Comparison) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    about = found.about
    console.print(
        f"{about['participants']:,} participants, {about['test_rows']:,} rows to test on; errors are mean total variation distances"
    )
    grid = Grid(box=None, pad_edge=False)
    for heading in ("epsilon", "method", "trust"):
        grid.add_column(heading, justify="right" if heading == "epsilon" else "left")
    for heading in ("1-way", "2-way", "3-way", "worst pair", "coverage", "accuracy", "CPU s", "MB"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for epsilon in about["epsilons"]:
        for row in sorted((r for r in found.results if r["epsilon"] == epsilon), key=_order):
            worst = None if row["worst_pair"] is None else row["worst_pair"]["tvd"]
            errors = [_figure(row["tvd"].get(k), 4) for k in ("1", "2", "3")] + [_figure(worst, 3)]
            rest = [
                _figure(row["coverage"], 2),
                _figure(row["accuracy"], 3),
                _figure(row["cpu_seconds"], 1),
            ]
            memory = _figure(row["peak_megabytes"], 0)
            grid.add_row(
                f"{epsilon:g}", escape(row["method"]), row["trust"], *errors, *rest, memory
            )
    console.print(grid)
    told = {(row["method"], row["reason"]) for row in found.not_run}
    for method, reason in sorted(told):
        console.print(f"not run: {escape(method)}: {escape(reason)}", soft_wrap=True)


def _order(row: JsonObject) -> tuple[bool, float]:
    return row["trust"] == "none", row["tvd"].get("2", row["tvd"]["1"])


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
