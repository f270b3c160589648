"""dither store: check, back up and restore the store of a collector."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from dither import collector
from dither.cli.options import AsJson
from dither.errors import InputError

app = typer.Typer(help="Check, back up and restore a store.", no_args_is_help=True)
Address = Annotated[
    str, typer.Option("--store", help="a file (SQLite), or postgresql://USER@HOST/DATABASE")
]


@app.callback()
def _verbs() -> None:
    """Check, back up and restore a store."""
    if find_spec("sqlalchemy") is None or find_spec("psycopg") is None:
        raise InputError("a store needs the extra 'server': pip install 'dither[server]'")


@app.command("check")
def _check(store: Address = "collector.db", as_json: AsJson = False) -> None:
    """Check that a store is complete and consistent, also while collectors use it.

    The tally of each closed round is compared with its stored reports. Exit status 1 if there is a problem.

    Example: dither store check --store collector.db
    """
    contents = collector.check_store(store)
    if as_json:
        print(json.dumps(vars(contents)))
    else:
        print(_summary(contents))
        for problem in contents.problems:
            print(f"problem: {problem}")
    if contents.problems:
        raise typer.Exit(1)


@app.command("backup", no_args_is_help=True)
def _backup(
    output: Annotated[Path, typer.Option("-o", "--output", help="a file that does not exist")],
    store: Address = "collector.db",
) -> None:
    """Write a backup to one file, also while collectors use the store.

    It holds everything committed when the command started: randomised reports, hashes of tokens and keys.

    Example: dither store backup --store postgresql://dither@/dither -o monday.db
    """
    print(f"{output}: {_summary(collector.back_up(store, output))}")


@app.command("restore", no_args_is_help=True)
def _restore(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="a file of 'dither store backup'")
    ],
    store: Annotated[
        str,
        typer.Option(
            "--store", help="a file that does not exist, or an empty postgresql:// database"
        ),
    ],
    plain_copy: Annotated[
        bool,
        typer.Option(
            "--plain-copy",
            help="accept a plain copy of a running collector's file; its latest reports are lost",
        ),
    ] = False,
) -> None:
    """Make a store from a backup, on SQLite or PostgreSQL.

    Example: dither store restore monday.db --store collector.db
    """
    print(f"restored {_summary(collector.restore_store(backup, store, plain_copy))}")


@app.command("restored", no_args_is_help=True)
def _restored(
    store: Annotated[
        str, typer.Option("--store", help="a file (SQLite), or postgresql://USER@HOST/DATABASE")
    ],
) -> None:
    """Record that a store was restored without Dither: by a PostgreSQL archive, a standby or a snapshot.

    Devices then send the reports of open rounds again. 'backup' and 'restore' do this themselves.

    Example: dither store restored --store postgresql://dither@/dither
    """
    opened = collector.open_store(store)
    try:
        opened.begin_epoch()
    finally:
        opened.close()
    print("devices will send the reports of open rounds again; restart the collectors")


def _summary(contents: collector.StoreContents) -> str:
    campaigns = f"{contents.campaigns:,} campaign{'' if contents.campaigns == 1 else 's'}"
    reports = f"{contents.reports:,} report{'' if contents.reports == 1 else 's'}"
    return f"{campaigns}, {reports}, layout {contents.layout}"
