"""dither publish: a table, one row per simulated participant, becomes a release."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from dither._publish import publish as run
from dither.cli.options import (
    Columns,
    Decimal,
    Delimiter,
    Drop,
    Encoding,
    Keep,
    Missing,
    Overwrite,
    Prior,
    Quiet,
    Replicates,
    SchemaFile,
    Seed,
    Settings,
    SimulationPath,
    Table,
    delimiter_of,
    listed,
    print_warnings,
    read_settings,
)
from dither.errors import ParameterError
from dither.notice import shown_epsilon
from dither.progress import progress_bar
from dither.release import check_target


def publish(
    table: Table,
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write")],
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="guarantee of one participant's whole record over the whole campaign [required]"
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(help="see 'dither methods'")] = None,
    schema: SchemaFile = None,
    population: Annotated[
        int | None,
        typer.Option(
            help="resample the rows to so many simulated participants; epsilon is theirs, not a row's"
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="rows of the synthetic table [default: as many as participants]"),
    ] = None,
    seed: Seed = None,
    settings: Settings = None,
    no_privacy: Annotated[
        bool,
        typer.Option(
            "--no-privacy",
            help="for --method jtree-nonprivate only: read the true records, protect nobody",
        ),
    ] = False,
    holdout: Annotated[
        float,
        typer.Option(
            help="share of participants kept from the fit for an error estimate without the truth"
        ),
    ] = 0.0,
    replicates: Replicates = 0,
    prior: Prior = None,
    path: SimulationPath = "counts",
    unknown: Annotated[
        Literal["error", "other"],
        typer.Option(help="values outside the domain: error, or other (the category of that name)"),
    ] = "error",
    columns: Columns = None,
    drop: Drop = None,
    keep: Keep = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    missing: Missing = None,
    form: Annotated[
        Literal["parquet", "csv"], typer.Option("--format", help="of the synthetic table")
    ] = "parquet",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Publish a table under local differential privacy, end to end, with each row as one simulated participant.

    Writes synthetic.parquet (same columns and labels; or synthetic.csv), release.json and report.html into the folder.

    Example: dither publish adult --epsilon 4 -o out
    """
    if epsilon is None and not no_privacy:
        raise ParameterError(
            "Missing option '--epsilon'. (see 'dither publish --help')", where="--epsilon"
        )
    check_target(output, overwrite=overwrite)
    with progress_bar(quiet) as progress:
        release = run(
            table,
            epsilon=math.inf if epsilon is None else epsilon,
            method=method,
            schema=schema,
            population=population,
            rows=rows,
            seed=seed,
            parameters=read_settings(settings),
            path=path,
            unknown=unknown,
            no_privacy=no_privacy,
            holdout=holdout,
            replicates=replicates,
            prior=prior,
            columns=listed(columns),
            drop=listed(drop) or (),
            keep=listed(keep) or (),
            delimiter=delimiter_of(delimiter),
            encoding=encoding,
            decimal=decimal,
            missing=listed(missing),
            progress=progress,
        )
        print_warnings(release.warnings)
        for (
            name,
            count,
        ) in release.clipped.items():  # true counts: for whoever holds the table, and in no file
            print(
                f"dither: note: {name}: {count:,} values outside the domain were counted as 'other'",
                file=sys.stderr,
            )
        folder = release.save(output, form=form, overwrite=overwrite)
    if quiet:
        return
    spent = f"epsilon {shown_epsilon(release.epsilon_achieved)} (asked {shown_epsilon(release.epsilon_asked)})"
    if release.no_privacy:
        spent = "NOT PRIVATE"
    print(
        f"{release.method}: {release.participants:,} participants, {spent}, {release.rows:,} synthetic rows"
    )
    print(f"  table   {folder / f'synthetic.{form}'}")
    print(f"  report  {folder / 'report.html'}")
    print(f"  noise   {release.noise}")
    if release.central is not None:
        print(f"  readers {release.readers}")
