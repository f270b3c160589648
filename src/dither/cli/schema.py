"""dither schema: a draft of a schema from a table, and one attribute from public knowledge alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from dither.cli.options import (
    Columns,
    Decimal,
    Delimiter,
    Drop,
    Encoding,
    Keep,
    Missing,
    Table,
    listed,
    print_warnings,
    read_form,
)
from dither.datasets.bundled import INFERRED, read_named_noted, wanted_columns
from dither.errors import ParameterError
from dither.notice import Notice
from dither.schema.files import write_atomically
from dither.schema.infer import LEAK_WARNING, draft_schema
from dither.schema.schema import DEFAULT_BINS, SHAPES, numeric

schemas = typer.Typer(no_args_is_help=True)
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="write here instead of to the terminal")
]


@schemas.command(no_args_is_help=True)
def infer(
    table: Table,
    output: Output = None,
    columns: Columns = None,
    drop: Drop = None,
    keep: Keep = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    missing: Missing = None,
) -> None:
    """Infer a schema from a table. A domain inferred from private data leaks it.

    Columns that cannot be asked (identifiers, free text, constants) are marked as dropped in the draft, with the reason.

    Example: dither schema infer people.csv -o people.schema.json
    """
    found, notes = read_named_noted(table, None, read_form(delimiter, encoding, decimal, missing))
    chosen = wanted_columns(found, listed(columns), listed(drop) or [])
    schema = draft_schema(found.select(chosen), keep=listed(keep) or [])
    _write(json.dumps(schema.file_json(), indent=1, ensure_ascii=False), output)
    for name, why in schema.dropped:
        print(
            f"dither: note: column {name!r} {why}; the draft marks it as dropped", file=sys.stderr
        )
    print_warnings([*notes, Notice(INFERRED, LEAK_WARNING)])


@schemas.command(no_args_is_help=True)
def attribute(
    name: Annotated[str, typer.Argument(help="the attribute's name")],
    low: Annotated[float, typer.Option("--min", help="the least number that can be answered")],
    high: Annotated[float, typer.Option("--max", help="the greatest")],
    shape: Annotated[
        str,
        typer.Option(
            help="even; skewed: bins that grow, and an atom at zero; heaped: round numbers are atoms"
        ),
    ] = "even",
    bins: Annotated[int, typer.Option(help="how many")] = DEFAULT_BINS,
    unit: Annotated[
        float | None, typer.Option(help="every answer is a multiple: 1 for whole numbers, 0.01")
    ] = None,
    atoms: Annotated[
        str | None, typer.Option(help="numbers with a cell of their own, with commas")
    ] = None,
    missing: Annotated[bool, typer.Option("--missing", help="an answer may be missing")] = False,
    output: Output = None,
) -> None:
    """A numeric attribute for a schema file, from public knowledge alone: a range and a shape, no table.

    Example: dither schema attribute income --min 0 --max 500000 --shape skewed --unit 1
    """
    if shape not in SHAPES:
        raise ParameterError(
            f"--shape {shape}: choose one of {', '.join(SHAPES)}", where="--shape", value=shape
        )
    whole = [int(bound) if bound.is_integer() else bound for bound in (low, high)]
    made = numeric(
        name,
        low=whole[0],
        high=whole[1],
        bins=bins,
        missing=missing,
        shape=next(known for known in SHAPES if known == shape),
        atoms=_numbers(atoms),
        unit=unit,
    )
    _write(json.dumps(made.to_json(), ensure_ascii=False), output)


def _numbers(given: str | None) -> list[float]:
    try:
        return [float(part) for part in listed(given) or []]
    except ValueError:
        raise ParameterError(
            f"--atoms {given}: write numbers with commas between them", where="--atoms"
        ) from None


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text + "\n")
    else:
        write_atomically(
            output, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8")
        )
