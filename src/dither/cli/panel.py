"""dither panel: simulate people who answer again and again under one lifetime guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dither._panel import panel as simulate
from dither.cli.options import AsJson, Overwrite, Quiet, SchemaFile, Seed, Table, print_warnings
from dither.errors import ParameterError
from dither.notice import shown_epsilon
from dither.release import check_target


def panel(
    table: Table,
    person: Annotated[
        str, typer.Option(metavar="COLUMN", help="the column that identifies people")
    ],
    time: Annotated[str, typer.Option(metavar="COLUMN", help="the column of the waves")],
    columns: Annotated[
        str,
        typer.Option(
            metavar="A,B", help="columns to ask about; each person answers about one of them"
        ),
    ],
    epsilon_lifetime: Annotated[
        float, typer.Option(help="guarantee of everything that a person sends in all waves")
    ],
    epsilon_first: Annotated[
        float | None,
        typer.Option(help="tighter guarantee of the first report by itself [default: none]"),
    ] = None,
    waves: Annotated[
        int | None,
        typer.Option(help="waves that the guarantee covers [default: those of the table]"),
    ] = None,
    schema: SchemaFile = None,
    seed: Seed = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="folder to write [default: none]")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a panel: the same people answer in each wave, and one epsilon covers all that they send.

    Each row of TABLE is one person's value in one wave. People may miss waves, join late and leave.
    This is a simulation: devices and campaigns cannot run panels yet. Ask the folder with
    'dither query DIR WHERE --wave T'.

    Example: dither panel weeks.csv --person id --time week --columns mood --epsilon-lifetime 4 -o out
    """
    if output is not None:
        check_target(output, overwrite=overwrite)
    elif overwrite:
        raise ParameterError("--overwrite goes with -o", where="--overwrite")
    release = simulate(
        table,
        person=person,
        time=time,
        columns=[name.strip() for name in columns.split(",") if name.strip()],
        epsilon_lifetime=epsilon_lifetime,
        epsilon_first=epsilon_first,
        waves=waves,
        schema=schema,
        seed=seed,
    )
    print_warnings(release.warnings)
    folder = None if output is None else release.save(output, overwrite=overwrite)
    if as_json:
        print(json.dumps(release.to_json()))
        return
    if quiet:
        return
    content = release.panel
    print(
        f"{release.people:,} people, {len(content.waves)} waves: lifetime epsilon "
        f"{shown_epsilon(release.epsilon)} (asked {shown_epsilon(release.epsilon_asked)}) "
        f"over up to {content.lifetime_waves} waves"
    )
    print(f"  first report {shown_epsilon(content.first_epsilon)}")
    print(f"  later waves  at most {shown_epsilon(content.wave_epsilon)} each")
    print(f"  noise        {release.noise}")
    if folder is not None:
        print(f"  report       {folder / 'report.html'}")
        print(
            f"  ask          dither query {folder} --by {release.schema.names[0]} --wave {content.waves[-1]}"
        )
