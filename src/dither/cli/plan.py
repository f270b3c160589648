"""dither plan: what a collection can be expected to give, before anybody is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dither.planner import Forecast


def plan(
    schema: Annotated[Path, typer.Option(help="schema file: the public domain of a record")],
    participants: Annotated[int, typer.Option(help="how many people will answer")],
    epsilon: Annotated[float, typer.Option(help="guarantee of one participant's whole record over the whole campaign")],
    dependence: Annotated[
        str,
        typer.Option(
            help="how strongly attributes depend: weak, typical, strong, or a mean distance from independence"
        ),
    ] = "typical",
    method: Annotated[list[str] | None, typer.Option("--method", help="methods to predict; repeatable")] = None,
    seed: Annotated[int, typer.Option(help="of the simulated campaigns")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Predict the error of each method from schema, participants and epsilon alone, and say whether pairs can be learnt.

    Example: dither plan --schema schema.json --participants 100000 --epsilon 2
    """
    from dither.planner import plan as run
    from dither.schema import load_schema

    forecast = run(load_schema(schema), participants, epsilon, dependence=dependence, methods=method or None, seed=seed)
    if as_json:
        print(json.dumps(forecast.to_json(), allow_nan=False))
    else:
        _show(forecast)


def _show(forecast: Forecast) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{forecast.participants:,} participants, epsilon {forecast.epsilon:g}; pairs assumed {forecast.dependence:.3f} away from "
        "independence in the mean (--dependence changes that)"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    for heading in ("1-way error", "2-way error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for found in forecast.methods:
        figures = [f"{found.tvd[ways]:.4f}" if ways in found.tvd else "-" for ways in (1, 2)]
        table.add_row(escape(found.name), *figures)
    console.print(table)
    console.print(escape(forecast.advice))
    for warning in forecast.warnings:
        console.print(f"Warning: {escape(warning)}.")
    console.print("Errors are predicted mean total variation distances: 0 is exact, 1 has nothing in common.")
