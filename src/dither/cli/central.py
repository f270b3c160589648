"""dither central: a curator who holds the table releases some of its columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dither.central.curator import REPLICATES, central_release
from dither.cli.options import (
    AsJson,
    AsPublished,
    Overwrite,
    Quiet,
    SchemaFile,
    Seed,
    Settings,
    Table,
    print_warnings,
    read_settings,
)
from dither.notice import shown_epsilon
from dither.progress import progress_bar
from dither.release import check_target


def central(
    table: Table,
    epsilon: Annotated[float, typer.Option(help="guarantee of the whole release for one record")],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write")],
    columns: Annotated[
        str | None, typer.Option(help="columns to release, separated by commas [default: all]")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="laplace, threshold, hierarchical, privelet, dawa, agrid, fourier, privbayes, csm, projection, or csm-records "
            "(local) [default: by columns, cells, epsilon and workload, never by the table]"
        ),
    ] = None,
    workload: Annotated[
        str, typer.Option(help="what will be asked: cells (and broad counts) or ranges")
    ] = "cells",
    records: Annotated[
        int | None,
        typer.Option(help="a PUBLIC guess of the number of records, for the choice of a method"),
    ] = None,
    schema: SchemaFile = None,
    neighbours: Annotated[
        str, typer.Option(help="add-remove (one record more or less) or replace")
    ] = "add-remove",
    seed: Seed = None,
    settings: Settings = None,
    as_published: AsPublished = False,
    replicates: Annotated[
        int,
        typer.Option(help="repetitions on the estimate for standard errors; fewer than 2 for none"),
    ] = REPLICATES,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Release columns under CENTRAL differential privacy: you hold the whole table and are trusted with it.

    This is not the local model of 'dither publish', where nobody ever holds the records. Noise comes from the operating
    system unless --seed is given. Writes synthetic.parquet, histogram.parquet, deviations.bin (what intervals come from),
    release.json and report.html.

    Example: dither central adult --columns sex,income --epsilon 1 -o out
    """
    check_target(output, overwrite=overwrite)
    with progress_bar(quiet) as progress:
        release = central_release(
            table,
            epsilon=epsilon,
            method=method,
            columns=None
            if columns is None
            else [name.strip() for name in columns.split(",") if name.strip()],
            schema=schema,
            as_published=as_published,
            neighbours=neighbours,
            seed=seed,
            parameters=read_settings(settings),
            replicates=replicates,
            workload=workload,
            records=records,
            progress=progress,
        )
    print_warnings(release.warnings)
    folder = release.save(output, overwrite=overwrite)
    if as_json:
        print(json.dumps(release.to_json()))
        return
    if quiet:
        return
    print(f"{release.cells.trust_model}; protected is {release.cells.protects}")
    print(
        f"{release.method}: epsilon {shown_epsilon(release.epsilon_achieved)} (asked {shown_epsilon(release.epsilon_asked)}), "
        f"{release.rows:,} synthetic rows"
    )
    print(f"  method       {release.method}, {release.notes['method_chosen']}")
    print(f"  table        {folder / 'synthetic.parquet'}")
    if release.cells.estimate is not None:
        print(f"  histogram    {folder / 'histogram.parquet'}")
    print(f"  report       {folder / 'report.html'}")
    print(f"  noise        {release.noise}")
