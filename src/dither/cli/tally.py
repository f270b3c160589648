"""dither tally: count the exported reports of a round, locally or on a Spark cluster."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from dither.cli.options import COUNTED_SUFFIX, AsJson
from dither.errors import InputError, ReportError
from dither.reports import Plan, plan_from_json
from dither.schema.files import write_atomically
from dither.tally.counting import Counted, count_all, digest_hex, find_reports, read_reports


def tally(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATHS",
            help="Parquet files, folders of 'dither campaign export', patterns or addresses",
        ),
    ],
    plan: Annotated[
        Path, typer.Option(help="JSON file of the round's plan; an export writes plan.json")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write the tally to")],
    engine: Annotated[Literal["local", "spark"], typer.Option(help="engine that counts")] = "local",
    master: Annotated[
        str | None,
        typer.Option(help="address of Spark [default: as Spark is configured, else this machine]"),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="a setting of Spark; may be repeated"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count exported reports: each id once across all files, without malformed reports.

    Both engines give the same integers. Writes the tally and a record of the reports that it
    counts, for 'dither campaign close-round --tally'.

    Example: dither tally reports/campaign=ID/round=0 --plan reports/campaign=ID/round=0/plan.json -o tally.bin
    """
    for option, given in (("--master", master), ("--conf", conf)):
        if given and engine != "spark":
            raise InputError(f"{option} is for --engine spark", where=option, value=given)
    settings = _read_conf(conf or [])
    asked = _read_plan(plan)
    counted = _count(paths, asked, engine, master, settings)
    if not counted.reports:
        reason = f"none of the {counted.malformed:,} reports is valid under this plan"
        raise InputError(f"{reason}; check PATHS and --plan", where="PATHS")
    data = counted.tally.to_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    record = {"reports": counted.reports, "digest": digest_hex(counted.digest), "sha256": sha256}
    write_atomically(output, lambda temporary: temporary.write_bytes(data))
    beside = output.with_name(output.name + COUNTED_SUFFIX)
    write_atomically(
        beside, lambda temporary: temporary.write_text(json.dumps(record) + "\n", encoding="ascii")
    )
    left_out = {"malformed": counted.malformed, "repeated": counted.repeated}
    for what, number in left_out.items():
        if number:
            print(f"dither: note: {number:,} {what} reports were left out", file=sys.stderr)
    if as_json:
        print(
            json.dumps(
                {
                    **record,
                    **left_out,
                    "participants": counted.tally.participants,
                    "kind": counted.tally.kind,
                }
            )
        )
    else:
        print(f"{counted.reports:,} reports counted ({counted.tally.kind}); sha256 {sha256}")
        print(f"  tally   {output}")


def _read_conf(given: list[str]) -> dict[str, str]:
    """Settings of Spark written as NAME=VALUE."""
    settings = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not (name.startswith("spark.") and equals):
            raise InputError(
                f"{setting!r} is no setting of Spark; write --conf spark.NAME=VALUE",
                where="--conf",
                value=setting,
            )
        settings[name] = value
    return settings


def _count(
    paths: list[str], plan: Plan, engine: str, master: str | None, conf: dict[str, str]
) -> Counted:
    if engine == "local":
        files = find_reports(paths, plan)
        return count_all(plan, read_reports(files), sum(file.rows for file in files))
    from dither.tally.spark import count_on_spark

    return count_on_spark(paths, plan, master, conf)


def _read_plan(path: Path) -> Plan:
    """The plan in a file that holds a plan or a campaign's announcement."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise InputError(
            f"cannot read the plan in {path}: {why}", where="--plan", value=str(path)
        ) from None
    if isinstance(held, dict) and isinstance(held.get("plan"), dict):
        held = held["plan"]
    try:
        return plan_from_json(held)
    except ReportError as error:
        raise InputError(f"{path}: {error}", where="--plan", value=str(path)) from None
