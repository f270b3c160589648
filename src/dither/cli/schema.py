"""`dither schema infer`: a schema file guessed from a table, with the warning that it leaks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Schema files: the public domain of each attribute.", no_args_is_help=True)


@app.callback()
def _verbs() -> None:
    """Schema files: the public domain of each attribute."""


@app.command(no_args_is_help=True)
def infer(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A CSV or Parquet file, or the name of a bundled dataset.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write here instead of to the terminal.")
    ] = None,
) -> None:
    """Infer a schema from a table. A domain inferred from private data leaks it."""
    from dither.datasets import read_named
    from dither.schema.files import write_atomically
    from dither.schema.infer import LEAK_WARNING, infer_schema

    schema = infer_schema(read_named(table))
    text = json.dumps(schema.to_json(), indent=1, ensure_ascii=False) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    print(f"dither: warning: {LEAK_WARNING}", file=sys.stderr)
