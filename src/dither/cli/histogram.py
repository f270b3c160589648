"""dither histogram: one numeric column, one row per simulated participant, for several consumers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from dither._histogram import check_mean, histogram_machine
from dither._histogram import histogram as run
from dither.cli.number_questions import Bins, Edges, Quantiles, Questions, Ranges, read_bins
from dither.cli.options import (
    AsJson,
    AsPublished,
    Overwrite,
    SchemaFile,
    Seed,
    SimulationPath,
    Table,
    print_warnings,
    read_settings,
)
from dither.datasets import named_schema, read_named
from dither.errors import ParameterError, SchemaError, TableError
from dither.mechanisms import NAMES, check_epsilon
from dither.methods import MEANS
from dither.methods.histogram.consumer import OutOfRange, ends_at_multiples
from dither.notice import Notice, shown_epsilon
from dither.release import Release, check_target
from dither.release.number import rounded_counts
from dither.schema import Attribute, load_schema
from dither.types import AnyArray

HistogramSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help=f"a method's parameter, repeatable: mechanism ({', '.join(NAMES)}; for ranges strategy or square-wave); for "
        "sampled also share; for smart also objective; for mean hybrid, piecewise or duchi",
    ),
]


def histogram(
    table: Table,
    column: Annotated[str, typer.Option(help="the numeric column")],
    epsilon: Annotated[
        float, typer.Option(help="guarantee of everything that one participant sends")
    ],
    bins: Bins = "",
    edges: Edges = None,
    ranges: Ranges = None,
    quantiles: Quantiles = None,
    schema: SchemaFile = None,
    low: Annotated[
        float | None,
        typer.Option(help="public lower end [default: the schema's, else the data's, which leaks]"),
    ] = None,
    high: Annotated[float | None, typer.Option(help="public upper end [default: likewise]")] = None,
    unit: Annotated[
        float | None,
        typer.Option(
            help="what every number is a multiple of, for ranges and square-wave [default: the schema's; 1 for integers]"
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="chp, smart (made for these bins), ranges (made for any range; no bins needed), square-wave (the same, for smooth "
            "numbers), mean (the mean alone), shp (one consumer), split, sampled"
        ),
    ] = "chp",
    settings: HistogramSettings = None,
    out_of_range: Annotated[
        OutOfRange,
        typer.Option(help="values outside the range: refuse, move to the nearer end, or leave out"),
    ] = "error",
    consistent: Annotated[
        bool, typer.Option("--consistent", help="non-negative counts that agree between consumers")
    ] = False,
    seed: Seed = None,
    path: SimulationPath = "counts",
    as_published: AsPublished = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="folder for release.json and report.html")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Histograms of a numeric column under local differential privacy, for several consumers with bins of their own.

    Each participant sends one report; each consumer gets counts with standard errors. Bins are half-open, the last one
    closed. Who wants the mean and nothing else takes --method mean, whose error is smaller than that of any histogram's mean.

    Examples:

    dither histogram adult --column age --bins 3,5,7 --epsilon 3

    dither histogram adult --column age --method ranges --range 30,50 --quantiles 0.1,0.5,0.9 --epsilon 1 -o out

    dither histogram ask out --bins 4

    dither histogram adult --column age --method mean --epsilon 1
    """
    check_epsilon(epsilon)
    if output is not None:
        check_target(output, overwrite=overwrite)
    consumers, questions = read_bins(bins, edges), Questions.read(ranges, quantiles)
    if method in MEANS:
        check_mean(consumers, consistent=consistent)
        if questions.ranges or questions.levels:
            raise ParameterError(
                "--method mean answers no --range and no --quantiles; take --method ranges for them",
                where="--method",
            )
    elif not consumers and not histogram_machine(method).overview:
        raise ParameterError(
            "name at least one consumer with --bins or --edges, or take --method ranges",
            where="--bins",
        )
    values, domain, notes = _read(table, column, schema)
    public = None if domain is None else domain.bounds
    if public is not None:
        low, high = (
            given if given is not None else end
            for given, end in zip((low, high), public, strict=True)
        )
        declared = domain.unit if domain is not None and method not in MEANS else None
        if unit is None and declared is not None and ends_at_multiples(declared, low, high):
            unit = declared
    release = run(
        values,
        consumers=consumers,
        epsilon=epsilon,
        low=low,
        high=high,
        unit=unit,
        method=method,
        parameters=read_settings(settings),
        out_of_range=out_of_range,
        consistent=consistent,
        path=path,
        seed=seed,
        as_published=as_published,
        name=f"column {column!r}",
        attribute=column,
    )
    record = {**(release.call.record or {}), "table": table, "column": column}
    call = replace(release.call, record=record, table=table)
    release = replace(release, warnings=(*notes, *release.warnings), call=call)
    answers = questions.answer(release)
    print_warnings((*release.warnings, *answers.warnings))
    # A true count, for the holder of the table. No file has it.
    outside = sum(release.clipped.values())
    if outside:
        what = "moved to its nearer end" if out_of_range == "clip" else "left out"
        print(f"dither: note: {outside:,} values outside the range were {what}", file=sys.stderr)
    folder = None if output is None else release.save(output, overwrite=overwrite)
    if as_json:
        print(json.dumps({**release.to_json(), **answers.to_json()}, allow_nan=False))
        return
    _print(release)
    answers.show()
    if folder is not None:
        print(f"  page  {folder / 'report.html'}")


def _read(
    table: str, column: str, schema: Path | None
) -> tuple[AnyArray, Attribute | None, list[Notice]]:
    """The column's numbers, its public domain if some schema states it, and notes for the user."""
    domain, notes = named_schema(table) if schema is None else (load_schema(schema), [])
    data = read_named(table, domain)
    if column not in data.column_names:
        raise TableError(
            f"no column {column!r} in {table}; it has {', '.join(data.column_names)}",
            where=column,
            value=column,
        )
    kind = data[column].type
    if pa.types.is_null(kind):
        raise TableError(f"column {column!r} is empty: no row has a value", where=column)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise TableError(
            f"column {column!r} holds {kind}, not numbers; a histogram needs a numeric column",
            where=column,
        )
    # Integers stay integers: their type says that they are whole.
    whole = pa.types.is_integer(kind) and not data[column].null_count
    asked = data[column] if whole else pc.cast(data[column], pa.float64(), safe=False)
    numbers = asked.combine_chunks().to_numpy(zero_copy_only=False)
    if domain is None or (schema is None and column not in domain.names):
        return numbers, None, []
    public = domain[column].bounds
    if public is None:
        raise SchemaError(
            f"column {column!r} is {domain[column].kind} in the schema, not numeric", where=column
        )
    return numbers, domain[column], notes


def _print(release: Release) -> None:
    number = release.number
    print(
        f"{release.method} ({', '.join(number.mechanisms) or 'nothing to ask'}): "
        f"{release.participants:,} participants, epsilon {shown_epsilon(release.epsilon_achieved)} "
        f"(asked {shown_epsilon(release.epsilon_asked)}), "
        f"{number.bits_per_report} bits per participant"
    )
    print(f"noise: {release.noise[:1].lower()}{release.noise[1:]}")
    if number.collected_mean is not None:
        low, high = number.collected_mean.interval()
        print(
            f"\nmean  {number.collected_mean.estimate:,.6g}  (95 % interval {low:,.6g} to {high:,.6g})"
        )
    for consumer in release.consumers:
        print(f"\n{consumer.name}  (people, 95 % interval)")
        names = consumer.labels
        width = max(map(len, names))
        figures = np.transpose(number.published_counts(release, consumer)).tolist()
        for name, (estimate, error, low, high) in zip(names, figures, strict=True):
            count, _, interval = rounded_counts(estimate, error, low, high)
            print(f"  {name:<{width}}  {count:>12}  ({interval})")
