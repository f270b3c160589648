"""dither discover: the frequent values of a column that no schema lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from dither._discover import discover as run
from dither._discover import found_values
from dither.checks import check_whole
from dither.cli.options import AsJson, Overwrite, Seed, print_warnings
from dither.datasets.bundled import read_named_noted
from dither.display import printable
from dither.errors import ParameterError, TableError
from dither.mechanisms import check_epsilon
from dither.methods.discover import SETTINGS, DiscoverParameters, search_design
from dither.notice import Notice, shown_epsilon
from dither.release import Release, check_target


def discover(
    *,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="as of 'dither publish', one row a participant; not with --plan"
        ),
    ] = None,
    column: Annotated[str | None, typer.Option(help="the column of texts")] = None,
    epsilon: Annotated[
        float, typer.Option(help="guarantee of everything that one participant sends")
    ],
    top: Annotated[int, typer.Option(help="the largest number of values to find")] = 20,
    max_bytes: Annotated[
        int, typer.Option(help="longest value that can be found, in bytes of UTF-8")
    ] = 16,
    alphabet: Annotated[
        str, typer.Option(help="characters that a value may have [default: all]")
    ] = "",
    casefold: Annotated[
        bool, typer.Option("--casefold", help="upper and lower case are the same")
    ] = False,
    false_discovery_rate: Annotated[
        float, typer.Option(help="largest chance that a value is found which no one holds")
    ] = 0.05,
    population: Annotated[
        int | None,
        typer.Option(help="number of participants, drawn from the rows with replacement"),
    ] = None,
    replicates: Annotated[
        int, typer.Option(help="refits from which intervals follow; 0 for none")
    ] = 100,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="only say which share of --participants a value needs"),
    ] = False,
    participants: Annotated[
        int | None, typer.Option(help="expected number of participants, for --plan")
    ] = None,
    seed: Seed = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="folder for the release")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Find the frequent values of a text column that no schema lists, under local differential privacy.

    Each row is one participant, who answers once: in one of several rounds about ever longer prefixes,
    or in the last round about the values found. Shares come from the last round only. Longer values,
    and those not found, count as "other"; empty ones as missing.

    Examples: dither discover adult --column occupation --epsilon 4 --top 10 -o out

    dither discover --plan --participants 1000000 --epsilon 4 --max-bytes 8
    """
    check_epsilon(epsilon)
    if plan:
        parameters = DiscoverParameters(top, max_bytes, alphabet, false_discovery_rate)
        _print_plan(_check_participants(participants, table), epsilon, parameters, as_json=as_json)
        return
    if table is None or column is None:
        missing = "TABLE" if table is None else "--column"
        raise ParameterError(
            f"{missing} is missing; give TABLE and --column, or --plan with --participants",
            where=missing,
        )
    if output is not None:
        check_target(output, overwrite=overwrite)
    values, notes = _texts(table, column)
    release = run(
        values,
        epsilon=epsilon,
        top=top,
        max_bytes=max_bytes,
        alphabet=alphabet,
        casefold=casefold,
        false_discovery_rate=false_discovery_rate,
        population=population,
        replicates=replicates,
        seed=seed,
        attribute=column,
    )
    record = {**(release.call.record or {}), "table": table, "column": column}
    call = replace(release.call, record=record, table=table)
    release = replace(release, warnings=(*notes, *release.warnings), call=call)
    print_warnings(release.warnings)
    folder = None if output is None else release.save(output, overwrite=overwrite)
    if as_json:
        print(json.dumps({**release.to_json(), **found_values(release)}, allow_nan=False))
        return
    _print(release)
    if folder is not None:
        print(f"  page  {folder / 'report.html'}")


def _check_participants(participants: int | None, table: str | None) -> int:
    if table is not None:
        raise ParameterError("--plan reads no table; leave TABLE out", where="TABLE")
    if participants is None:
        raise ParameterError("--plan needs --participants", where="--participants")
    return check_whole("--participants", participants, 1)


def _print_plan(
    participants: int, epsilon: float, parameters: DiscoverParameters, *, as_json: bool
) -> None:
    """What a discovery of so many people would find, from public facts alone."""
    design = search_design(participants, epsilon, parameters)
    if as_json:
        facts = {
            "participants": participants,
            "epsilon": epsilon,
            "findable_share": design.findable,
            "power": SETTINGS.power,
            "groups": design.groups,
            "people_in_a_group": design.people,
        }
        print(json.dumps(facts))
        return
    print(
        f"{participants:,} participants, epsilon {epsilon:g}: {design.groups} groups of about "
        f"{design.people:,}, then {1 - SETTINGS.race:.0%} of the people for shares"
    )
    if design.findable is None:
        print("no value can be found: ask more people, or use a larger epsilon")
        return
    print(
        f"a value must be held by about {design.findable:.2%} of the people (about "
        f"{design.findable * participants:,.0f}) to be found with a chance of {SETTINGS.power:.0%}"
    )


def _texts(table: str, column: str) -> tuple[list[str | None], list[Notice]]:
    """The column as texts; numbers and dates as they are written in ISO form."""
    data, notes = read_named_noted(table)
    if column not in data.column_names:
        raise TableError(
            f"no column {column!r} in {table}; it has {', '.join(data.column_names)}",
            where=column,
            value=column,
        )
    held = data[column]
    if not pa.types.is_string(held.type):
        held = pc.cast(held, pa.string())
    texts: list[str | None] = held.to_pylist()
    return texts, notes


def _print(release: Release) -> None:
    found = found_values(release)
    print(
        f"discover: {release.participants:,} participants in {release.rounds} rounds, "
        f"epsilon {shown_epsilon(release.epsilon_achieved)} "
        f"(asked {shown_epsilon(release.epsilon_asked)})"
    )
    print(f"noise: {release.noise[:1].lower()}{release.noise[1:]}")
    rows = [*found["values"], {"value": "(other)", **found["other"]}]
    rows.append({"value": "(no answer)", **found["missing"]})
    width = max(len(printable(row["value"])) for row in rows)
    print(f"\n{'value':<{width}}     share  95 % interval")
    for row in rows:
        interval = "" if row["low"] is None else f"{row['low']:.2%} to {row['high']:.2%}"
        print(f"{printable(row['value']):<{width}}  {row['estimate']:>8.2%}  {interval}")
