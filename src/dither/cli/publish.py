"""dither publish: a release of a table, with each row as one simulated participant."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from dither._publish import publish_table
from dither.checks import check_whole
from dither.cli.options import (
    AsPublished,
    Overwrite,
    Prior,
    Quiet,
    Replicates,
    SchemaFile,
    Seed,
    Settings,
    SimulationPath,
    Table,
    print_warnings,
    read_options,
    read_settings,
    takes,
)
from dither.errors import ParameterError
from dither.methods import DEFAULT
from dither.notice import certainty_sentence, shown_epsilon
from dither.progress import progress_bar
from dither.release import Release, check_target
from dither.release.call import MIN_REPLICATES, RunOptions
from dither.release.release import MAX_TABLES
from dither.schema.files import ReadOptions


def _run_options(
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="guarantee of one participant's whole record over the whole campaign [required]"
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help=f"see 'dither methods' [default: {DEFAULT}]")
    ] = None,
    schema: SchemaFile = None,
    population: Annotated[
        int | None,
        typer.Option(
            help="number of participants, drawn from the rows with replacement; "
            "epsilon protects a participant, not a row [default: each row once]"
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
            help="read the true records without protection; for --method jtree-nonprivate only",
        ),
    ] = False,
    holdout: Annotated[
        float,
        typer.Option(
            help="share of the participants kept from the fit, "
            "for an error estimate without the truth"
        ),
    ] = 0.0,
    replicates: Replicates = 0,
    as_published: AsPublished = False,
    prior: Prior = None,
    path: SimulationPath = "counts",
    unknown: Annotated[
        Literal["error", "other"],
        typer.Option(help="values outside the domain: reject, or count as the category 'other'"),
    ] = "error",
) -> RunOptions:
    if epsilon is None and not no_privacy:
        raise ParameterError(
            "Missing option '--epsilon'. (see 'dither publish --help')", where="--epsilon"
        )
    return RunOptions(
        epsilon=math.inf if epsilon is None else epsilon,
        method=method or DEFAULT,
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
        as_published=as_published,
    )


@takes(run=_run_options, read=read_options)
def publish(
    table: Table,
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write")],
    run: RunOptions,
    read: ReadOptions,
    form: Annotated[
        Literal["parquet", "csv"], typer.Option("--format", help="format of the synthetic table")
    ] = "parquet",
    without_truth: Annotated[
        bool,
        typer.Option(
            "--without-truth",
            help="leave the true figures out of the report, so that it may be shared",
        ),
    ] = False,
    tables: Annotated[
        int,
        typer.Option(
            help="further synthetic tables, each from another replicate, "
            "for analyses with 'dither.combine'"
        ),
    ] = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Publish a table under local differential privacy, with each row as one simulated participant.

    Writes synthetic.parquet (or synthetic.csv, with the columns and labels of the table; with
    --tables also synthetic-01.parquet and so on),
    release.json and report.html into the folder.

    Example: dither publish adult --epsilon 4 -o out
    """
    check_target(output, overwrite=overwrite)
    if tables:
        check_whole("--tables", tables, 2, MAX_TABLES)
        run = replace(run, replicates=max(run.replicates, tables, MIN_REPLICATES))
    with progress_bar(quiet) as progress:
        release = publish_table(table, run, read, progress)
        if without_truth:
            release = release.without_truth()
        print_warnings(release.warnings)
        # True counts: shown to the owner of the table, written to no file.
        for name, count in release.clipped.items():
            print(
                f"dither: note: {name}: {count:,} values outside the domain count as 'other'",
                file=sys.stderr,
            )
        folder = release.save(output, form=form, overwrite=overwrite, tables=tables)
    if not quiet:
        _print_summary(release, folder, form)


def _print_summary(release: Release, folder: Path, form: str) -> None:
    guarantee = (
        f"epsilon {shown_epsilon(release.epsilon_achieved)} "
        f"(asked {shown_epsilon(release.epsilon_asked)})"
    )
    if release.no_privacy:
        guarantee = "NOT PRIVATE"
    print(
        f"{release.method}: {release.participants:,} participants, {guarantee}, "
        f"{release.rows:,} synthetic rows"
    )
    print(f"  table   {folder / f'synthetic.{form}'}")
    print(f"  report  {folder / 'report.html'}")
    print(f"  noise   {release.noise}")
    if not release.no_privacy:
        print(f"  certain {certainty_sentence(release.epsilon_achieved).capitalize()}")
    if release.central is not None:
        print(f"  readers {release.readers}")
