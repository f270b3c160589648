"""dither histogram: one numeric column, one row a simulated participant, for several consumers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dither.errors import ParameterError, SchemaError, TableError
from dither.notice import Notice


def histogram(
    table: Annotated[str, typer.Argument(help="CSV or Parquet file, or a bundled dataset's name (adult)")],
    column: Annotated[str, typer.Option(help="the numeric column")],
    epsilon: Annotated[float, typer.Option(help="guarantee of everything that one participant sends")],
    bins: Annotated[str, typer.Option(help="bins of equal width, one number a consumer, such as 3,5,7")] = "",
    edges: Annotated[
        list[str] | None, typer.Option(help="edges of one more consumer, such as 0,10,50,100; repeatable")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="schema file with the public range; without it the data's own range leaks")
    ] = None,
    mechanism: Annotated[
        str, typer.Option(help="chp, smart (made for these bins), shp (one consumer), split, sampled")
    ] = "chp",
    frequency_mechanism: Annotated[str, typer.Option(help="best, sue (the paper's), oue, grr, subset, olh")] = "best",
    out_of_range: Annotated[str, typer.Option(help="values outside the range: error, clip or drop")] = "error",
    consistent: Annotated[
        bool, typer.Option("--consistent", help="non-negative counts that agree between consumers")
    ] = False,
    share: Annotated[float | None, typer.Option(help="sampled: the share of people asked [default: 0.8]")] = None,
    objective: Annotated[str | None, typer.Option(help="smart: mean or worst variance of the bins")] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="makes noise that whoever knows the seed can replay [default: noise that nobody can]"),
    ] = None,
    path: Annotated[
        str, typer.Option(help="counts: draw tallies directly; reports: make every person's report")
    ] = "counts",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="folder for histogram.json and histogram.html")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Histograms of a numeric column under local differential privacy, for several consumers with bins of their own.

    Each participant sends one report; each consumer gets counts with standard errors. Bins are half-open, the last one
    closed.

    Example: dither histogram adult --column age --bins 3,5,7 --epsilon 3
    """
    from dither._histogram import histogram as run
    from dither.mechanisms.probability import check_epsilon

    check_epsilon(epsilon)
    consumers = _consumers(bins, edges or [])
    values, low, high, notes = _read(table, column, schema)
    release = run(
        values,
        consumers=consumers,
        epsilon=epsilon,
        low=low,
        high=high,
        mechanism=mechanism,
        frequency_mechanism=frequency_mechanism,
        out_of_range=out_of_range,  # type: ignore[arg-type]
        consistent=consistent,
        path=path,  # type: ignore[arg-type]
        seed=seed,
        share=share,
        objective=objective,  # type: ignore[arg-type]
        name=f"column {column!r}",
    )
    release = replace(release, warnings=(*notes, *release.warnings))
    for note in release.warnings:
        print(f"dither: warning: {note}", file=sys.stderr)
    if release.moved:  # a true count: for whoever holds the table, and in no file
        what = "moved to its nearer end" if out_of_range == "clip" else "left out"
        print(f"dither: note: {release.moved:,} values outside the range were {what}", file=sys.stderr)
    folder = None if output is None else release.save(output)
    if as_json:
        print(json.dumps(release.to_json(), allow_nan=False))
        return
    _print(release)
    if folder is not None:
        print(f"  page  {folder / 'histogram.html'}")


def _consumers(bins: str, edges: list[str]) -> list[Any]:
    """Consumers from the command line, or an error that names the option."""
    out: list[Any] = []
    for part in bins.split(",") if bins.strip() else []:
        text = part.strip()
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ParameterError(
                f"--bins {bins}: {text!r} is not a whole number of at least 1", where="--bins", value=text
            )
        out.append(int(text))
    for entry in edges:
        try:
            out.append([float(part) for part in entry.split(",")])
        except ValueError:
            raise ParameterError(
                f"--edges {entry}: write numbers separated by commas", where="--edges", value=entry
            ) from None
    if not out:
        raise ParameterError("name at least one consumer with --bins or --edges", where="--bins")
    return out


def _read(table: str, column: str, schema: Path | None) -> tuple[Any, float | None, float | None, list[Notice]]:
    """The column's numbers, the public range if some schema states it, and notes for the user."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from dither.datasets import read_named
    from dither.schema import load_schema

    domain = None if schema is None else load_schema(schema)
    data = read_named(table, domain)
    if column not in data.column_names:
        raise TableError(
            f"no column {column!r} in {table}; it has {', '.join(data.column_names)}", where=column, value=column
        )
    cells = data[column]
    kind = cells.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise TableError(
            f"column {column!r} holds {kind}, not numbers; a histogram needs a numeric column", where=column
        )
    numbers = pc.cast(cells, pa.float64(), safe=False).combine_chunks().to_numpy(zero_copy_only=False)
    notes: list[Notice] = []
    if domain is None:
        domain, notes = _nearby_schema(table)
        if domain is not None and column not in domain.names:
            domain, notes = None, []
    if domain is None:
        return numbers, None, None, []
    low, high = _public_range(domain[column], column)
    return numbers, low, high, notes


def _nearby_schema(table: str) -> tuple[Any, list[Notice]]:
    """A bundled dataset's own schema, or one that stands beside the file."""
    from dither.datasets import NAMES, load_dataset
    from dither.datasets.opening import SIDECARS, schema_beside
    from dither.schema import load_schema

    if table in NAMES:
        return load_dataset(table).schema, []
    for ending in SIDECARS:
        beside = Path(table).with_name(Path(table).stem + ending)
        if beside.is_file():
            return load_schema(beside), [schema_beside(beside)]
    return None, []


def _public_range(attribute: Any, column: str) -> tuple[float, float]:
    if attribute.kind == "numeric":
        return attribute.edges[0], attribute.edges[-1]
    numbers = [v for v in attribute.values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(numbers) < len(attribute.values) or len(numbers) < 2:
        raise SchemaError(f"column {column!r} is {attribute.kind} in the schema, not numeric", where=column)
    return float(min(numbers)), float(max(numbers))


def _print(release: Any) -> None:
    from dither.release.histogram import labels
    from dither.release.words import shown_epsilon

    print(
        f"{release.mechanism} ({', '.join(release.frequency_mechanisms) or 'nothing to ask'}): "
        f"{release.participants:,} participants, epsilon {shown_epsilon(release.epsilon_achieved)} "
        f"(asked {shown_epsilon(release.epsilon_asked)}), "
        f"{release.bits_per_report} bits a participant"
    )
    print(f"noise: {release.noise[:1].lower()}{release.noise[1:]}")
    for consumer in release.consumers:
        print(f"\n{consumer.name}")
        names = labels(consumer)
        width = max(map(len, names))
        for name, estimate, error in zip(names, consumer.estimates, consumer.standard_errors, strict=True):
            print(f"  {name:<{width}}  {estimate:>14,.1f} ± {error:,.1f}")
