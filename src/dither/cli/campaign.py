"""dither campaign: the operator's commands for campaigns of a collector, over HTTP."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from dither.cli.campaign_create import check_new_file, create, issue_tokens
from dither.cli.options import (
    COUNTED_SUFFIX,
    KEY_FILE,
    URL,
    AsJson,
    KeyFile,
    Operator,
    Overwrite,
    Prior,
    Quiet,
    Replicates,
    Url,
    print_warnings,
)
from dither.client.transport import Connection, Unreachable
from dither.errors import DitherError, InputError, ParameterError
from dither.notice import shown_epsilon
from dither.progress import progress_bar
from dither.release import Release, check_target, load_release
from dither.release.call import check_replicates
from dither.release.number import CONSUMERS, file_names
from dither.reports import plan_from_json
from dither.reports.codec import document
from dither.schema.attribute import shown_instant
from dither.schema.files import write_atomically
from dither.tally.archive import pack
from dither.tally.counting import COLUMNS, begin_export
from dither.types import JsonObject

app = typer.Typer(
    help="Manage campaigns of a running collector (see 'dither serve').", no_args_is_help=True
)

CampaignId = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="id that 'create' printed")]


@app.callback()
def _verbs() -> None:
    """Manage campaigns of a running collector."""


app.command(no_args_is_help=True)(create)


@app.command("status")
def _status(
    campaign: Annotated[
        str | None,
        typer.Argument(metavar="[CAMPAIGN]", help="id of a campaign [default: all campaigns]"),
    ] = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Show the state of a campaign, or of all."""
    operator = Operator(url, key_file)
    if campaign is None:
        answer = operator.call("GET")
        if as_json:
            print(json.dumps(answer))
            return
        for entry in answer["campaigns"]:
            state = f"{entry['campaign']}  {entry['state']:9}  round {entry['round']}"
            print(f"{state}  {entry['method']}  {entry['name']}")
        return
    _show(operator.call("GET", f"/{campaign}"), as_json)


@app.command("open", no_args_is_help=True)
def _open(
    campaign: CampaignId, url: Url = URL, key_file: KeyFile = KEY_FILE, as_json: AsJson = False
) -> None:
    """Open a draft, or reopen a round whose closing was interrupted."""
    _show(Operator(url, key_file).call("POST", f"/{campaign}/open", {}), as_json)


@app.command("close-round", no_args_is_help=True)
def _close_round(
    campaign: CampaignId,
    number: Annotated[
        int | None, typer.Option("--round", min=0, help="[default: the open one]")
    ] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="stop taking reports and wait for --tally")
    ] = False,
    tally: Annotated[
        Path | None,
        typer.Option(
            help="use this tally of 'dither tally', if it counts exactly the stored reports"
        ),
    ] = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Close the open round, count it and open the next one, if the method has one.

    It is safe to repeat with --round.
    """
    if hold and tally is not None:
        raise ParameterError("give either --hold, to wait for a tally, or --tally", where="--hold")
    counted = None if tally is None else _read_counted(tally)
    operator = Operator(url, key_file)
    wanted = operator.call("GET", f"/{campaign}")["round"] if number is None else number
    if counted is not None:
        _show(operator.call("POST", f"/{campaign}/rounds/{wanted}/tally", counted), as_json)
        return
    body = {"round": wanted, "hold": True} if hold else {"round": wanted}
    _show(operator.call("POST", f"/{campaign}/close-round", body), as_json)


@app.command("finalise", no_args_is_help=True)
def _finalise(
    campaign: CampaignId,
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write the release to")],
    rows: Annotated[int | None, typer.Option(min=1, help="rows of the synthetic table")] = None,
    replicates: Replicates = 0,
    prior: Prior = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit the model, store the release on the collector and write its folder here.

    Replicates, and the average with a prior, are computed on this machine, so that the
    collector stays free. It keeps the release without them.
    """
    check_target(output, overwrite=overwrite)
    check_replicates(replicates)
    operator = Operator(url, key_file)
    operator.call("POST", f"/{campaign}/finalise", {} if rows is None else {"rows": rows})
    archive = operator.fetch("GET", f"/{campaign}/release")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as held:
                # extractall never writes outside the folder, for any names in the archive.
                held.extractall(scratch)
        except zipfile.BadZipFile:
            raise InputError(
                "the collector did not send a zip file; check --url", where="--url"
            ) from None
        release = load_release(scratch)
        if release.kind == "number":
            _finish_number(release, output, rows, replicates, overwrite)
            return
        if prior is not None:
            release = release.with_prior(prior)
        if replicates:
            with progress_bar(quiet) as progress:
                release = release.with_replicates(replicates, progress=progress)
        folder = release.save(output, overwrite=overwrite)
    if rows is not None and rows != release.rows:
        print(
            f"dither: note: it was finalised earlier and keeps its {release.rows:,} rows",
            file=sys.stderr,
        )
    print_warnings(release.warnings)
    if quiet:
        return
    print(
        f"{release.method}: {release.participants:,} participants, epsilon {shown_epsilon(release.epsilon_achieved)}"
    )
    print(f"  table   {folder / 'synthetic.parquet'}")
    print(f"  report  {folder / 'report.html'}")
    print(f"  readers {release.readers}")


def _finish_number(
    release: Release, output: Path, rows: int | None, replicates: int, overwrite: bool
) -> None:
    """Write the folder of a campaign about one number and print its results."""
    if rows is not None or replicates:
        print(
            "dither: note: a release of one number has neither rows nor replicates",
            file=sys.stderr,
        )
    folder = release.save(output, overwrite=overwrite)
    print_warnings(release.warnings)
    print(
        f"{release.method}: {release.participants:,} participants, epsilon {shown_epsilon(release.epsilon_achieved)}"
    )
    if release.number.collected_mean is not None:
        low, high = release.number.collected_mean.interval()
        print(
            f"  mean     {release.number.collected_mean.estimate:,.6g}, 95 % interval {low:,.6g} to {high:,.6g}"
        )
    for consumer, name in zip(
        release.consumers, file_names([c.name for c in release.consumers]), strict=True
    ):
        print(f"  {consumer.name}: {folder / CONSUMERS / name}.html, .csv, .json")
    print(f"  report   {folder / 'report.html'}")


@app.command("tokens", no_args_is_help=True)
def _tokens(
    campaign: CampaignId,
    count: Annotated[int, typer.Option(min=1, help="number of tokens")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="new file to write them to, one per line")
    ],
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Issue further tokens for a campaign with tokens. They are shown only once."""
    check_new_file(output, "--output")
    issue_tokens(Operator(url, key_file), campaign, count, output)


@app.command("delete", no_args_is_help=True)
def _delete(
    campaign: CampaignId,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Delete a campaign for good: rounds, reports, tokens and release. Hold an open one first.

    Exports, downloads, folders of releases and the audit log are kept.
    """
    operator = Operator(url, key_file)
    if not yes:
        status = operator.call("GET", f"/{campaign}")
        reports = sum(entry["reports"] for entry in status["rounds"])
        if not sys.stdin.isatty():
            raise ParameterError(
                "there is no terminal to ask for confirmation; use --yes to delete it",
                where="--yes",
            )
        question = f"Delete {campaign} {status['name']!r} ({status['state']}, {reports:,} reports) for good?"
        if not typer.confirm(question, err=True):
            print("dither: nothing was deleted", file=sys.stderr)
            raise typer.Exit(1)
    operator.call("DELETE", f"/{campaign}")
    print(f"{campaign} is deleted")


@app.command("delete-report", no_args_is_help=True)
def _delete_report(
    campaign: CampaignId,
    receipt: Annotated[str, typer.Argument(help="the receipt that the participant's device shows")],
    url: Url = URL,
) -> None:
    """Delete one participant's report by its receipt, while its round is open. Needs no key.

    The participant's device keeps its books: it does not answer again.

    Example: dither campaign delete-report ID 5f0c...e1
    """
    if len(receipt) != 64 or not set(receipt) <= set("0123456789abcdef"):
        raise ParameterError(
            "a receipt has 64 characters, 0 to 9 and a to f", where="RECEIPT", value=receipt
        )
    path = f"{urlsplit(url).path.rstrip('/')}/v1/campaigns/{quote(campaign)}/delete"
    with closing(Connection(url)) as connection:
        try:
            answer = connection.request("POST", path, bytes.fromhex(receipt))
        except Unreachable as error:
            raise DitherError(f"{url}: {error}") from None
    if answer.status != 200:
        refusal = DitherError if answer.status >= 500 else InputError
        raise refusal(f"{url} answered {answer.status}: {answer.reason}")
    if not document(answer.body).get("deleted"):
        raise InputError(f"campaign {campaign} has no report with this receipt", where="RECEIPT")
    print("deleted")


@app.command("publish-release", no_args_is_help=True)
def _publish_release(
    campaign: CampaignId,
    listed: Annotated[
        bool | None,
        typer.Option(
            "--listed/--unlisted",
            help="name it on the collector's first page [default: as the campaign was]",
        ),
    ] = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Make the release public at /releases/CAMPAIGN and /v1/releases/CAMPAIGN.

    The collector first makes replicates, so that each figure has an interval; that may take
    minutes. It is safe to repeat.
    """
    wanted = "" if listed is None else f"?listed={str(listed).lower()}"
    answer = Operator(url, key_file).call("POST", f"/{campaign}/publish-release{wanted}", {})
    print(json.dumps(answer) if as_json else f"{url.rstrip('/')}/releases/{campaign}")


@app.command("unpublish-release", no_args_is_help=True)
def _unpublish_release(
    campaign: CampaignId, url: Url = URL, key_file: KeyFile = KEY_FILE, as_json: AsJson = False
) -> None:
    """Hide the release from readers without a key. Copies that were downloaded remain."""
    answer = Operator(url, key_file).call("POST", f"/{campaign}/unpublish-release", {})
    print(json.dumps(answer) if as_json else f"{campaign} is not public")


@app.command("export", no_args_is_help=True)
def _export(
    campaign: CampaignId,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", help="Parquet file; with --partitioned a folder or fsspec address"
        ),
    ],
    number: Annotated[int, typer.Option("--round", min=0, help="number of the round")] = 0,
    partitioned: Annotated[
        bool,
        typer.Option(
            "--partitioned", help="partition by campaign, round and question; add only new reports"
        ),
    ] = False,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Write the raw reports of a round to Parquet, in the order of their ids."""
    operator = Operator(url, key_file)
    path = f"/{campaign}/rounds/{number}/reports"
    if not partitioned:
        data = operator.fetch("GET", path)
        write_atomically(output, lambda temporary: temporary.write_bytes(data), private=True)
        print(output)
        return
    page = _page(operator, path, "")
    writing = begin_export(
        output, campaign, plan_from_json(json.loads(page.schema.metadata[b"dither_plan"]))
    )
    seen = 0
    while page.num_rows:
        writing.add(page.replace_schema_metadata(None).cast(COLUMNS))
        seen += page.num_rows
        page = _page(operator, path, page.column("report_id")[-1].as_py().hex())
    writing.flush()
    print(
        f"{writing.folder}: {writing.written:,} of {seen:,} reports written to {writing.files:,} new files"
    )


def _page(operator: Operator, path: str, after: str) -> pa.Table:
    try:
        page = pq.read_table(pa.BufferReader(operator.fetch("GET", path, query=f"?after={after}")))
    except pa.ArrowException:
        page = None
    if page is None or b"dither_plan" not in (page.schema.metadata or {}):
        raise InputError("the collector did not send a page of reports; check --url", where="--url")
    return page


def _read_counted(tally: Path) -> bytes:
    """A tally and the record of the reports it counts, packed for the collector."""
    beside = tally.with_name(tally.name + COUNTED_SUFFIX)
    try:
        data, record = tally.read_bytes(), json.loads(beside.read_text(encoding="ascii"))
        counted = {"reports": int(record["reports"]), "digest": str(record["digest"])}
        sha256 = str(record["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        where = error.filename if isinstance(error, OSError) else beside
        raise InputError(
            f"cannot read {where}; {tally} needs {beside.name} in the same folder, "
            "where 'dither tally' writes it",
            where="--tally",
        ) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise InputError(
            f"{beside} belongs to another tally than {tally}; run 'dither tally' again",
            where="--tally",
        )
    return pack(counted, {"tally": np.frombuffer(data, np.uint8)})


def _show(status: JsonObject, as_json: bool) -> None:
    if as_json:
        print(json.dumps(status))
        return
    names = f"{status['campaign']}  {status['state']}  {status['method']}"
    print(f"{names}  epsilon {status['epsilon']:g}  {status['title']}")
    for entry in status["rounds"]:
        print(
            f"  round {entry['round']}  {entry['state']:7}  {entry['reports']:,} reports  {entry['questions']} questions  "
            f"epsilon {entry['epsilon']:.6g}  {entry['population']:.1%} of the participants"
            + _ends(entry)
            + (f"  more than the {entry['expected']:,} expected" if entry.get("excess") else "")
            + ("  its files may still reveal the order of arrival" if entry["untidied"] else "")
        )


def _ends(entry: JsonObject) -> str:
    """When an open round closes automatically."""
    if entry["state"] != "open" or (entry["wanted"] is None and entry["closes"] is None):
        return "  held for a tally" if entry["held"] else ""
    at = "" if entry["wanted"] is None else f" at {entry['wanted']:,} reports"
    until = "" if entry["closes"] is None else f" on {shown_instant(entry['closes'])}Z"
    return f"  closes{at}{' or' if at and until else ''}{until}"
