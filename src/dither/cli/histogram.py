"""dither histogram: one numeric column, one row per simulated participant, for several consumers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from dither._histogram import SeveralMethod, check_mean, histogram_machine, several_values
from dither._histogram import histogram as run
from dither.checks import check_choice, check_whole
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
from dither.types import AnyArray, Floats

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
        str | None,
        typer.Option(
            help="chp (default), smart (made for these bins), ranges (made for any range; no bins needed), square-wave (the "
            "same, for smooth numbers), mean (the mean alone), shp (one consumer), split, sampled; with several values per "
            "person one (default), independent, summed",
            show_default=False,
        ),
    ] = None,
    settings: HistogramSettings = None,
    person: Annotated[
        str | None,
        typer.Option(help="column that names the participant, if one may have several rows"),
    ] = None,
    values_per_person: Annotated[
        int | None,
        typer.Option(help="public limit of the values of one participant; needs --person"),
    ] = None,
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

    Each row is one participant, or with --person all rows of one name. Each participant sends one report; each consumer
    gets counts with standard errors. Bins are half-open, the last one closed. For the mean alone use --method mean: its
    error is smaller than that of any histogram's mean.

    Examples:

    dither histogram adult --column age --bins 3,5,7 --epsilon 3

    dither histogram adult --column age --method ranges --range 30,50 --quantiles 0.1,0.5,0.9 --epsilon 1 -o out

    dither histogram ask out --bins 4

    dither histogram adult --column age --method mean --epsilon 1

    dither histogram trips.csv --column km --person rider --values-per-person 3 --low 0 --high 50 --bins 5 --epsilon 2
    """
    check_epsilon(epsilon)
    several = _check_several(person, values_per_person)
    if several:
        _refuse_with_several(consistent, out_of_range, as_published, unit, method)
    method = method or ("one" if several else "chp")
    if output is not None:
        check_target(output, overwrite=overwrite)
    consumers, questions = read_bins(bins, edges), Questions.read(ranges, quantiles)
    _check_method(method, consumers, questions, consistent=consistent, several=several)
    data, domain, notes = _read(table, column, schema)
    public = None if domain is None else domain.bounds
    if public is not None:
        low, high = (
            given if given is not None else end
            for given, end in zip((low, high), public, strict=True)
        )
        declared = domain.unit if domain is not None and method not in MEANS else None
        if unit is None and declared is not None and ends_at_multiples(declared, low, high):
            unit = declared
    shared: dict[str, Any] = {
        "consumers": consumers,
        "epsilon": epsilon,
        "low": low,
        "high": high,
        "method": method,
        "parameters": read_settings(settings),
        "path": path,
        "seed": seed,
    }
    record: dict[str, Any] = {"table": table, "column": column}
    if several:
        if low is None or high is None:
            raise ParameterError(
                "the public range is missing; give --low and --high, or a --schema with the column",
                where="--low",
            )
        held = _of_each_person(data, column, str(person))
        release = several_values(held, most=values_per_person or 1, **shared)
        record["person"] = person
    else:
        release = run(
            _numbers(data, column),
            unit=unit,
            out_of_range=out_of_range,
            consistent=consistent,
            as_published=as_published,
            name=f"column {column!r}",
            attribute=column,
            **shared,
        )
    record = {**(release.call.record or {}), **record}
    call = replace(release.call, record=record, table=table)
    release = replace(release, warnings=(*notes, *release.warnings), call=call)
    answers = questions.answer(release)
    print_warnings((*release.warnings, *answers.warnings))
    _note_outside(sum(release.clipped.values()), out_of_range)
    folder = None if output is None else release.save(output, overwrite=overwrite)
    if as_json:
        print(json.dumps({**release.to_json(), **answers.to_json()}, allow_nan=False))
        return
    _print(release)
    answers.show()
    if folder is not None:
        print(f"  page  {folder / 'report.html'}")


def _check_method(
    method: str,
    consumers: Sequence[object],
    questions: Questions,
    *,
    consistent: bool,
    several: bool,
) -> None:
    """Reject questions that the method does not answer, before the table is read."""
    if method in MEANS:
        check_mean(consumers, consistent=consistent)
        if questions.ranges or questions.levels:
            raise ParameterError(
                "--method mean answers no --range and no --quantiles; take --method ranges for them",
                where="--method",
            )
    elif not consumers and (several or not histogram_machine(method).overview):
        raise ParameterError(
            "name at least one consumer with --bins or --edges, or take --method ranges",
            where="--bins",
        )


def _note_outside(outside: int, out_of_range: OutOfRange) -> None:
    """Print a true count, for the holder of the table; no file has it."""
    if outside:
        what = "moved to its nearer end" if out_of_range == "clip" else "left out"
        print(f"dither: note: {outside:,} values outside the range were {what}", file=sys.stderr)


def _check_several(person: str | None, values_per_person: int | None) -> bool:
    """Whether participants have several values; both options or neither are given."""
    if (person is None) != (values_per_person is None):
        raise ParameterError(
            "--person and --values-per-person belong together: the column that names the participant, and the public limit "
            "of the values of one",
            where="--person" if person is None else "--values-per-person",
        )
    if values_per_person is not None:
        check_whole("--values-per-person", values_per_person, 1, 255)
    return person is not None


def _refuse_with_several(
    consistent: bool,
    out_of_range: str,
    as_published: bool,
    unit: float | None,
    method: str | None,
) -> None:
    """Raise `ParameterError` for options that several values per person do not have."""
    given = {
        "--consistent": consistent,
        "--out-of-range": out_of_range != "error",
        "--as-published": as_published,
        "--unit": unit is not None,
    }
    for option, used in given.items():
        if used:
            raise ParameterError(
                f"{option} cannot be used with --values-per-person; leave it out"
                + (
                    " (the paper's ways are --method independent and summed)"
                    * (option == "--as-published")
                ),
                where=option,
            )
    if method is not None:
        check_choice("--method", method, get_args(SeveralMethod))


def _of_each_person(data: pa.Table, column: str, person: str) -> list[Floats]:
    """The column's numbers by participant; a row without a number adds none."""
    if person not in data.column_names:
        raise TableError(
            f"no column {person!r} for --person; the table has {', '.join(data.column_names)}",
            where=person,
            value=person,
        )
    names = data[person].combine_chunks()
    if names.null_count:
        row = int(np.flatnonzero(names.is_null().to_numpy(zero_copy_only=False))[0])
        raise TableError(f"row {row + 1} names no participant in column {person!r}", where=person)
    codes = pc.dictionary_encode(names).indices.to_numpy(zero_copy_only=False)
    numbers = np.asarray(_numbers(data, column), dtype=np.float64)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order])) + 1
    return [own[~np.isnan(own)] for own in np.split(numbers[order], starts)]


def _read(
    table: str, column: str, schema: Path | None
) -> tuple[pa.Table, Attribute | None, list[Notice]]:
    """The table with its column, the column's public domain if a schema states it, and notes."""
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
    if domain is None or (schema is None and column not in domain.names):
        return data, None, []
    public = domain[column].bounds
    if public is None:
        raise SchemaError(
            f"column {column!r} is {domain[column].kind} in the schema, not numeric", where=column
        )
    return data, domain[column], notes


def _numbers(data: pa.Table, column: str) -> AnyArray:
    """The column's numbers; integers stay integers, and a missing number is NaN."""
    held = data[column]
    # The type says that the numbers are whole.
    whole = pa.types.is_integer(held.type) and not held.null_count
    asked = held if whole else pc.cast(held, pa.float64(), safe=False)
    return np.asarray(asked.combine_chunks().to_numpy(zero_copy_only=False))


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
