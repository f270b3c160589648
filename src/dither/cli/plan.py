"""dither plan: predict the error of a collection. dither methods: list the methods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from dither.cli.options import AsJson, print_warnings, split_numbers
from dither.errors import ParameterError
from dither.methods import DEFAULT, HISTOGRAMS, MEANS, NONPRIVATE, plugin_faults
from dither.methods import methods as all_methods
from dither.notice import certainty_sentence, shown_certainty
from dither.planner import Forecast, forecast
from dither.planner.forecasting import NOT_PLAYED, check_picture, write_picture


def plan(
    schema: Annotated[
        str,
        typer.Option(
            help="schema file with the public domain of a record, a table, or a bundled dataset's name"
        ),
    ],
    participants: Annotated[
        int | None,
        typer.Option(help="expected number of participants [default: worked out]"),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            help="guarantee of one participant's whole record over the whole campaign, "
            "or several, comma-separated [default: worked out]",
            metavar="NUMBER,...",
        ),
    ] = None,
    target_error: Annotated[
        float | None,
        typer.Option(
            help="wanted 95 % half-width of the share of a value, as a fraction (0.01 is one "
            "point); participants or epsilon may then be left out",
        ),
    ] = None,
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

    The advice says whether pairs of attributes can be learnt. With --target-error and either
    participants or epsilon, the other one is worked out.

    Examples: dither plan --schema schema.json --participants 100000 --epsilon 1,2,4

    dither plan --schema schema.json --epsilon 2 --target-error 0.01
    """
    if plot is not None:
        check_picture(plot)
    epsilons: list[float | None] = [*split_numbers(epsilon, "--epsilon")] or [None]
    if plot is not None and len(epsilons) > 1:
        raise ParameterError("--plot takes one --epsilon", where="--plot")
    expected = [
        forecast(
            schema,
            participants,
            each,
            target_error=target_error,
            dependence=dependence,
            methods=method or None,
            seed=seed,
            curve=plot is not None,
            prior=prior,
        )
        for each in epsilons
    ]
    if plot is not None:
        write_picture(expected[0], plot)
    if as_json:
        plans = [each.to_json() for each in expected]
        print(json.dumps(plans[0] if len(plans) == 1 else {"plans": plans}, allow_nan=False))
    elif len(expected) == 1:
        _show(expected[0])
    else:
        _show_several(expected)


_EXPLAINED = (
    "Errors are predicted mean total variation distances: 0 is exact, 1 has nothing in common.\n"
    "Half-widths are those of 95 % intervals of a share, in percentage points."
)


def _points(width: float | None) -> str:
    """A half-width in percentage points."""
    return "" if width is None else f"\u00b1{100 * width:.2g}"


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
    console.print(f"Certainty: {certainty_sentence(expected.epsilon)}")
    grid = Grid(box=None, pad_edge=False)
    grid.add_column("method")
    for heading in ("1-way error", "2-way error", "1-way half-width", "2-way half-width"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("")
    left = [found.name for found in expected.methods if found.reason == NOT_PLAYED]
    for found in expected.methods:
        if found.name not in left:
            figures = [f"{found.tvd[ways]:.4f}" if ways in found.tvd else "none" for ways in (1, 2)]
            widths = [_points(found.half_width.get(ways)) for ways in (1, 2)]
            grid.add_row(escape(found.name), *figures, *widths, escape(found.reason))
    console.print(grid)
    if left:
        console.print(f"Not predicted (use --method NAME): {escape(', '.join(left))}")
    console.print(escape(expected.advice))
    for warning in expected.warnings:
        console.print(f"Warning: {escape(warning)}.")
    console.print(_EXPLAINED)


def _show_several(expected: Sequence[Forecast]) -> None:
    """One line for each epsilon, with the figures of its recommended method."""
    console = Console(highlight=False, soft_wrap=True)
    grid = Grid(box=None, pad_edge=False)
    for heading in ("epsilon", "certainty", "people"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("method", no_wrap=True)
    # Short headings: the table has to fit into 80 columns.
    for heading in ("1-way", "2-way", "\u00b1 1-way", "\u00b1 2-way"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for each in expected:
        errors = [f"{each.best.tvd[ways]:.4f}" if ways in each.best.tvd else "" for ways in (1, 2)]
        grid.add_row(
            f"{each.epsilon:g}",
            shown_certainty(each.epsilon),
            f"{each.participants:,}",
            escape(each.recommendation),
            *errors,
            _points(each.error_one_way),
            _points(each.error_two_way),
        )
    console.print(grid)
    for each in expected:
        console.print(f"epsilon {each.epsilon:g}: {escape(each.advice)}")
        for warning in each.warnings:
            console.print(f"epsilon {each.epsilon:g}: warning: {escape(warning)}.")
    console.print(
        "Certainty is the most that someone who considers two records equally likely can believe of one afterwards.\n"
        "1-way and 2-way are predicted total variation distances: 0 is exact, 1 has nothing in common.\n"
        "\u00b1 is the half-width of a 95 % interval of a share, in percentage points."
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
