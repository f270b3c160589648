"""dither plan: predict the error of a collection. dither methods: list the methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from dither.cli.options import AsJson, print_warnings
from dither.methods import DEFAULT, HISTOGRAMS, MEANS, NONPRIVATE, plugin_faults
from dither.methods import methods as all_methods
from dither.planner import Forecast, forecast
from dither.planner.forecasting import NOT_PLAYED, check_picture, write_picture


def plan(
    schema: Annotated[
        str,
        typer.Option(
            help="schema file with the public domain of a record, a table, or a bundled dataset's name"
        ),
    ],
    participants: Annotated[int, typer.Option(help="expected number of participants")],
    epsilon: Annotated[
        float,
        typer.Option(help="guarantee of one participant's whole record over the whole campaign"),
    ],
    dependence: Annotated[
        str,
        typer.Option(
            help="dependence of the attributes: weak, typical, strong, or a mean distance from independence"
        ),
    ] = "typical",
    method: Annotated[
        list[str] | None, typer.Option("--method", help="method to predict; repeatable")
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of the simulated campaigns")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="also plot the errors against participants: FILE.svg, or FILE.html with the figures"
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help="public table that the fit will use (publish --prior); the dependence is taken "
            "from it, and its benefit is predicted",
            metavar="TABLE",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the error of each method from the schema, the participants and epsilon.

    The advice says whether pairs of attributes can be learnt.

    Example: dither plan --schema schema.json --participants 100000 --epsilon 2
    """
    if plot is not None:
        check_picture(plot)
    expected = forecast(
        schema,
        participants,
        epsilon,
        dependence=dependence,
        methods=method or None,
        seed=seed,
        curve=plot is not None,
        prior=prior,
    )
    if plot is not None:
        write_picture(expected, plot)
    if as_json:
        print(json.dumps(expected.to_json(), allow_nan=False))
    else:
        _show(expected)


def _show(expected: Forecast) -> None:
    console = Console(highlight=False, soft_wrap=True)
    amount = f"{expected.dependence:.3f} from independence in the mean"
    pairs = f"assumed {amount} (--dependence changes that)"
    if expected.prior is not None:
        pairs = f"{amount}, as {escape(expected.prior)} has them"
    several = any(2 in each.tvd for each in expected.methods)
    console.print(
        f"{expected.participants:,} participants, epsilon {expected.epsilon:g}{f'; pairs {pairs}' if several else ''}"
    )
    grid = Grid(box=None, pad_edge=False)
    grid.add_column("method")
    for heading in ("1-way error", "2-way error"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("")
    left = [found.name for found in expected.methods if found.reason == NOT_PLAYED]
    for found in expected.methods:
        if found.name not in left:
            figures = [f"{found.tvd[ways]:.4f}" if ways in found.tvd else "none" for ways in (1, 2)]
            grid.add_row(escape(found.name), *figures, escape(found.reason))
    console.print(grid)
    if left:
        console.print(
            f"Not predicted because they take longer (use --method NAME): {escape(', '.join(left))}"
        )
    console.print(escape(expected.advice))
    for warning in expected.warnings:
        console.print(f"Warning: {escape(warning)}.")
    console.print(
        "Errors are predicted mean total variation distances: 0 is exact, 1 has nothing in common."
    )


def methods(as_json: AsJson = False) -> None:
    """List the methods: what each asks of a participant, its parameters (--set KEY=VALUE), its reference."""
    print_warnings(plugin_faults())
    if as_json:
        listed = [
            {
                "name": m.name,
                "command": "histogram" if m.name in HISTOGRAMS | MEANS else "publish",
                "default": m.name == DEFAULT,
                "asks": m.asks,
                "summary": m.summary,
                "reference": m.reference,
                "parameters": m.defaults(),
            }
            for m in (all_methods() | HISTOGRAMS | MEANS).values()
        ]
        print(json.dumps(listed, indent=1))
        return
    for m in (all_methods() | HISTOGRAMS | MEANS).values():
        if m.name == next(iter(HISTOGRAMS)):
            print(
                "For one number and many consumers (dither histogram, dither campaign create --histogram):\n"
            )
        if m.name == next(iter(MEANS)):
            print("For the mean of one number (the same commands with --method mean):\n")
        print(f"{m.name}{'  (default)' if m.name == DEFAULT else ''}")
        print(f"  asks        {m.asks}")
        print(f"  gives       {m.summary}")
        print(
            f"  parameters  {', '.join(f'{k}={_shown(v)}' for k, v in m.defaults().items()) or 'none'}"
        )
        print(f"  reference   {m.reference}\n")
    print(f"{NONPRIVATE.name}  (needs --no-privacy)")
    print(f"  gives       {NONPRIVATE.summary}")
    print(f"  reference   {NONPRIVATE.reference}")


def _shown(value: object) -> str:
    if value is None:
        return "auto"
    return str(value).lower() if isinstance(value, bool) else str(value)
