"""dither compare: run several methods on a table and compare them."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from dither.cli.options import (
    AsJson,
    Quiet,
    SchemaFile,
    Table,
    print_warnings,
    read_options,
    split_list,
    split_numbers,
    takes,
)
from dither.lab.comparison import Comparison
from dither.lab.comparison import compare as run
from dither.lab.comparison.peers import PEERS
from dither.schema.files import ReadOptions
from dither.types import JsonObject


@takes(read=read_options)
def compare(
    table: Table,
    read: ReadOptions,
    epsilon: Annotated[
        str, typer.Option(help="comma-separated guarantees of one participant's whole record")
    ] = "1,2,4",
    methods: Annotated[
        str,
        typer.Option(
            help="comma-separated names; all: every local method; NAME@published: a method with "
            "its paper's parameters; "
            f"peers: other libraries that are installed ({', '.join(PEERS)})"
        ),
    ] = "all",
    schema: SchemaFile = None,
    target: Annotated[
        str | None,
        typer.Option(help="column that a classifier predicts [default: the last]"),
    ] = None,
    population: Annotated[
        int | None,
        typer.Option(
            help="number of participants, drawn from the rows with replacement "
            "[default: each row once]"
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="runs of each method; figures are their means")] = 1,
    replicates: Annotated[
        int, typer.Option(help="refits for the intervals whose coverage is measured; 0 for none")
    ] = 5,
    seed: Annotated[
        int, typer.Option(help="seed of the simulated noise and of the choice of test rows")
    ] = 0,
    limit: Annotated[float, typer.Option(help="seconds after which a method is abandoned")] = 600.0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="folder [default: compare-out/NAME of the table]"),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="measure again what an earlier run had finished")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run methods on a table, with its rows as simulated participants, and compare them.

    Measures errors, coverage, accuracy, time and memory. Writes index.html (with plots),
    comparison.json and comparison.csv. An interrupted run resumes with the same command.
    Figures are measured against the true rows: the results are as confidential as the table.

    Example: dither compare adult --epsilon 1,2,4 --methods all
    """
    folder = output or Path("compare-out") / Path(table).stem
    comparison = run(
        table,
        epsilons=split_numbers(epsilon, "--epsilon"),
        methods=split_list(methods) or [],
        schema=schema,
        target=target,
        population=population,
        repeats=repeats,
        replicates=replicates,
        seed=seed,
        limit=limit,
        output=folder,
        fresh=fresh,
        quiet=quiet,
        **asdict(read),
    )
    print_warnings(comparison.warnings)
    if as_json:
        print(json.dumps(comparison.to_json(), allow_nan=False))
        return
    if quiet:
        return
    _show(comparison)
    print(f"  page    {folder / 'index.html'}")
    print(f"  figures {folder / 'comparison.csv'}")


def _show(comparison: Comparison) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    about = comparison.about
    console.print(
        f"{about['participants']:,} participants, {about['test_rows']:,} test rows; "
        "errors are mean total variation distances"
    )
    grid = Grid(box=None, pad_edge=False)
    for heading in ("epsilon", "method", "trust"):
        grid.add_column(heading, justify="right" if heading == "epsilon" else "left")
    for heading in ("1-way", "2-way", "3-way", "worst pair", "coverage", "accuracy", "CPU s", "MB"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for epsilon in about["epsilons"]:
        results = [result for result in comparison.results if result["epsilon"] == epsilon]
        for result in sorted(results, key=_order):
            worst = result["worst_pair"]
            grid.add_row(
                f"{epsilon:g}",
                escape(result["method"]),
                result["trust"],
                *(_figure(result["tvd"].get(ways), 4) for ways in ("1", "2", "3")),
                _figure(None if worst is None else worst["tvd"], 3),
                _figure(result["coverage"], 2),
                _figure(result["accuracy"], 3),
                _figure(result["cpu_seconds"], 1),
                _figure(result["peak_megabytes"], 0),
            )
    console.print(grid)
    reasons = {(entry["method"], entry["reason"]) for entry in comparison.not_run}
    for method, reason in sorted(reasons):
        console.print(f"not run: {escape(method)}: {escape(reason)}", soft_wrap=True)


def _order(result: JsonObject) -> tuple[bool, float]:
    """Methods by their error of pairs, baselines last."""
    return result["trust"] == "none", result["tvd"].get("2", result["tvd"]["1"])


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
