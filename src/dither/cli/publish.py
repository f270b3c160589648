"""dither publish: a table, one row a simulated participant, becomes a release."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dither.errors import ParameterError


def publish(
    table: Annotated[str, typer.Argument(help="CSV or Parquet file, or a bundled dataset's name (adult)")],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write")],
    epsilon: Annotated[
        float | None,
        typer.Option(help="guarantee of one participant's whole record over the whole campaign [required]"),
    ] = None,
    method: Annotated[str | None, typer.Option(help="see 'dither methods'")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="schema file; without it the domain is inferred, which leaks it")
    ] = None,
    population: Annotated[
        int | None,
        typer.Option(help="resample the rows to so many simulated participants; epsilon is theirs, not a row's"),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="rows of the synthetic table [default: as many as participants]")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="makes noise that whoever knows the seed can replay [default: noise that nobody can]"),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a method's parameter; repeatable")
    ] = None,
    no_privacy: Annotated[
        bool,
        typer.Option("--no-privacy", help="for --method jtree-nonprivate only: read the true records, protect nobody"),
    ] = False,
    holdout: Annotated[
        float, typer.Option(help="share of participants kept from the fit for an error estimate without the truth")
    ] = 0.0,
    path: Annotated[
        str, typer.Option(help="counts: draw tallies directly; reports: make every person's report")
    ] = "counts",
    unknown: Annotated[
        str, typer.Option(help="values outside the domain: error, or other (the category of that name)")
    ] = "error",
) -> None:
    """Publish a table under local differential privacy, end to end, with each row as one simulated participant.

    Writes synthetic.parquet (same columns and labels), release.json and report.html into the folder.

    Example: dither publish adult --epsilon 4 -o out
    """
    from dither._publish import publish as run
    from dither.cli.progress import progress_bar
    from dither.release import check_target
    from dither.release.words import shown_epsilon

    if epsilon is None and not no_privacy:
        raise ParameterError("Missing option '--epsilon'. (see 'dither publish --help')", where="--epsilon")
    check_target(output)
    with progress_bar() as progress:
        release = run(
            table,
            epsilon=math.inf if epsilon is None else epsilon,
            method=method,
            schema=schema,
            population=population,
            rows=rows,
            seed=seed,
            parameters=_settings(set_ or []),
            path=path,  # type: ignore[arg-type]
            unknown=unknown,  # type: ignore[arg-type]
            no_privacy=no_privacy,
            holdout=holdout,
            progress=progress,
        )
        for note in release.warnings:
            print(f"dither: warning: {note}", file=sys.stderr)
        for name, count in release.clipped.items():  # true counts: for whoever holds the table, and in no file
            print(f"dither: note: {name}: {count:,} values outside the domain were counted as 'other'", file=sys.stderr)
        folder = release.save(output)
    spent = f"epsilon {shown_epsilon(release.epsilon_achieved)} (asked {shown_epsilon(release.epsilon_asked)})"
    if release.no_privacy:
        spent = "NOT PRIVATE"
    print(f"{release.method}: {release.participants:,} participants, {spent}, {release.rows:,} synthetic rows")
    print(f"  table   {folder / 'synthetic.parquet'}")
    print(f"  report  {folder / 'report.html'}")
    print(f"  noise   {release.noise}")


def _settings(given: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for entry in given:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise ParameterError(f"--set {entry}: write it as KEY=VALUE", where="--set", value=entry)
        if key in out:
            raise ParameterError(f"--set {key} is given twice", where="--set", value=entry)
        out[key] = value
    return out
