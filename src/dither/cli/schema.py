"""dither schema: infer a schema from a table, or describe one attribute without a table."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from dither._discover import found_values
from dither.cli.options import (
    Table,
    print_warnings,
    read_options,
    split_numbers,
    takes,
)
from dither.datasets.bundled import inferred_notices, read_named_noted, wanted_columns
from dither.errors import ParameterError
from dither.mechanisms import check_epsilon
from dither.notice import shown_epsilon
from dither.release import load_release
from dither.schema.files import ReadOptions, write_atomically
from dither.schema.infer import draft_schema
from dither.schema.schema import DEFAULT_BINS, SHAPES, numeric

schemas = typer.Typer(no_args_is_help=True)
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="file to write [default: stdout]")
]


@schemas.command(no_args_is_help=True)
@takes(read=read_options)
def infer(table: Table, read: ReadOptions, output: Output = None) -> None:
    """Infer a schema from a table. A domain inferred from private data leaks it.

    Columns that need a decision (identifiers, free text) are marked as dropped, with the
    reason; columns with one value or none are marked as constants.

    Example: dither schema infer people.csv -o people.schema.json
    """
    rows, notes = read_named_noted(table, None, read)
    chosen = wanted_columns(rows, read.columns, read.drop)
    schema = draft_schema(rows.select(chosen), keep=read.keep, date_order=read.date_order)
    _write(json.dumps(schema.file_json(), indent=1, ensure_ascii=False), output)
    for name, reason in schema.dropped:
        print(
            f"dither: note: column {name!r} {reason}; the draft marks it as dropped",
            file=sys.stderr,
        )
    print_warnings([*notes, *inferred_notices(schema)])


@schemas.command(no_args_is_help=True)
def attribute(
    name: Annotated[str, typer.Argument(help="name of the attribute")],
    low: Annotated[float, typer.Option("--min", help="smallest possible answer")],
    high: Annotated[float, typer.Option("--max", help="largest possible answer")],
    shape: Annotated[
        str,
        typer.Option(
            help="even: equal bins; skewed: growing bins and an atom at zero; "
            "heaped: atoms at round numbers"
        ),
    ] = "even",
    bins: Annotated[int, typer.Option(help="number of bins")] = DEFAULT_BINS,
    unit: Annotated[
        float | None,
        typer.Option(help="each answer is a multiple of it: 1 for whole numbers, 0.01 for cents"),
    ] = None,
    atoms: Annotated[
        str | None, typer.Option(help="comma-separated numbers that have a bin each")
    ] = None,
    missing: Annotated[bool, typer.Option("--missing", help="an answer may be missing")] = False,
    output: Output = None,
) -> None:
    """Describe a numeric attribute for a schema file from a public range and shape, without a table.

    Example: dither schema attribute income --min 0 --max 500000 --shape skewed --unit 1
    """
    if shape not in SHAPES:
        raise ParameterError(
            f"--shape {shape}: choose one of {', '.join(SHAPES)}", where="--shape", value=shape
        )
    described = numeric(
        name,
        low=_whole_if_possible(low),
        high=_whole_if_possible(high),
        bins=bins,
        missing=missing,
        shape=next(known for known in SHAPES if known == shape),
        atoms=split_numbers(atoms, "--atoms"),
        unit=unit,
    )
    _write(json.dumps(described.to_json(), ensure_ascii=False), output)


@schemas.command(name="from-release", no_args_is_help=True)
def from_release(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="release of 'dither discover'")],
    epsilon: Annotated[
        float | None,
        typer.Option(help="epsilon of the campaign to follow, to state the sum of both"),
    ] = None,
    output: Output = None,
) -> None:
    """Write a schema that lists the values which a discovery found, for a campaign to follow.

    The values are noise's result, so listing them reveals nothing further. A person who took part in
    the discovery and answers the campaign too has the sum of both epsilons.

    Example: dither schema from-release jobs --epsilon 2 -o jobs.schema.json
    """
    release = load_release(folder)
    found_values(release)
    text = json.dumps(release.schema.file_json(), indent=1, ensure_ascii=False)
    spent = release.epsilon_achieved
    if epsilon is not None:
        # Rounded up, so that the sum is not understated.
        total = shown_epsilon(math.nextafter(spent + check_epsilon(epsilon), math.inf))
        following = f"epsilon {shown_epsilon(epsilon)}"
    else:
        following = "epsilon E"
        total = f"{shown_epsilon(spent)} + E"
    _write(text, output)
    print(
        f"dither: note: people asked in the discovery (epsilon {shown_epsilon(spent)}) and in a "
        f"campaign of {following} have epsilon {total} in all; ask other people to avoid that",
        file=sys.stderr,
    )


def _whole_if_possible(number: float) -> float:
    return int(number) if number.is_integer() else number


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text + "\n")
    else:
        write_atomically(
            output, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8")
        )
