"""dither campaign: what an operator does with campaigns, over HTTP with the admin key."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from dither.checks import check_whole
from dither.cli.options import (
    KEY_FILE,
    URL,
    AsJson,
    KeyFile,
    Operator,
    Prior,
    Replicates,
    Settings,
    Url,
    print_warnings,
    progress_bar,
    read_settings,
)
from dither.cli.tally import BESIDE
from dither.errors import InputError, ParameterError
from dither.release import check_target, load_release
from dither.release.words import shown_epsilon
from dither.reports import plan_from_json
from dither.schema import load_schema
from dither.schema.files import write_atomically
from dither.tally.archive import pack
from dither.tally.counting import COLUMNS
from dither.tally.exports import begin_export
from dither.types import JsonObject
from dither.uncertainty.replicates import LEAST_REPLICATES
from dither.uncertainty.stored import MOST_REPLICATES

app = typer.Typer(help="Campaigns of a running collector (see 'dither serve').", no_args_is_help=True)

CampaignId = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="the id that 'create' printed")]


@app.callback()
def _verbs() -> None:
    """Campaigns of a running collector."""


@app.command(no_args_is_help=True)
def create(
    schema: Annotated[Path, typer.Option(help="schema file: the public domain of each attribute")],
    epsilon: Annotated[float, typer.Option(help="guarantee of one participant's whole record over the whole campaign")],
    participants: Annotated[int, typer.Option(help="how many are expected to take part")],
    method: Annotated[str | None, typer.Option(help="see 'dither methods'")] = None,
    name: Annotated[str, typer.Option(help="what participants read")] = "",
    seed: Annotated[int | None, typer.Option(help="for the fitting, not for anybody's noise")] = None,
    settings: Settings = None,
    holdout: Annotated[
        float, typer.Option(help="share of participants kept from the fit for an error estimate without the truth")
    ] = 0.05,
    tokens: Annotated[int, typer.Option(min=0, help="issue so many tokens; without, anybody may take part")] = 0,
    tokens_file: Annotated[Path | None, typer.Option(help="where to write the tokens, one per line")] = None,
    draft: Annotated[bool, typer.Option("--draft", help="do not open the first round yet")] = False,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Create a campaign and open its first round."""
    if bool(tokens) != (tokens_file is not None):
        raise ParameterError("--tokens and --tokens-file go together", where="--tokens")
    if tokens_file is not None and (not tokens_file.parent.is_dir() or tokens_file.is_dir()):  # tokens are shown once
        raise ParameterError(f"cannot write {tokens_file}: name a file in a folder that exists", where="--tokens-file")
    operator = Operator(url, key_file)
    body: dict[str, object] = {
        "schema": load_schema(schema).to_json(),
        "epsilon": epsilon,
        "participants": participants,
        "name": name,
        "parameters": read_settings(settings),
        "participation": "tokens" if tokens else "open",
        "draft": draft,
        "holdout": holdout,
    }
    body |= {key: value for key, value in (("method", method), ("seed", seed)) if value is not None}
    status = operator.call("POST", "", body)
    if tokens_file is not None:
        issued = operator.call("POST", f"/{status['campaign']}/tokens", {"count": tokens})["tokens"]
        lines = "".join(token + "\n" for token in issued)
        write_atomically(tokens_file, lambda temporary: temporary.write_text(lines, encoding="ascii"), private=True)
        print(f"dither: {tokens:,} tokens in {tokens_file}; the collector keeps only their hashes", file=sys.stderr)
    print(json.dumps(status) if as_json else status["campaign"])


@app.command()
def status(
    campaign: Annotated[str | None, typer.Argument(metavar="[CAMPAIGN]", help="an id; without, all campaigns")] = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Where a campaign stands, or all of them."""
    operator = Operator(url, key_file)
    if campaign is None:
        listed = operator.call("GET")
        if as_json:
            print(json.dumps(listed))
        for entry in [] if as_json else listed["campaigns"]:
            stands = f"{entry['campaign']}  {entry['state']:9}  round {entry['round']}"
            print(f"{stands}  {entry['method']}  {entry['name']}")
        return
    _show(operator.call("GET", f"/{campaign}"), as_json)


@app.command("open", no_args_is_help=True)
def open_(campaign: CampaignId, url: Url = URL, key_file: KeyFile = KEY_FILE, as_json: AsJson = False) -> None:
    """Open a draft, or take back a closing that was interrupted."""
    _show(Operator(url, key_file).call("POST", f"/{campaign}/open", {}), as_json)


@app.command("close-round", no_args_is_help=True)
def close_round(
    campaign: CampaignId,
    number: Annotated[int | None, typer.Option("--round", min=0, help="[default: the open one]")] = None,
    hold: Annotated[bool, typer.Option("--hold", help="take no more reports, and wait for --tally")] = False,
    tally: Annotated[
        Path | None, typer.Option(help="take this tally of 'dither tally' if it counts exactly what is stored")
    ] = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Close the open round, take its tally and open the next one, if the method has one. Safe to repeat with --round."""
    if hold and tally is not None:
        raise ParameterError("--hold waits for a tally, --tally brings one; give one of them", where="--hold")
    counted = None if tally is None else _read_counted(tally)
    operator = Operator(url, key_file)
    wanted = operator.call("GET", f"/{campaign}")["round"] if number is None else number
    if counted is not None:
        _show(operator.call("POST", f"/{campaign}/rounds/{wanted}/tally", counted), as_json)
        return
    body = {"round": wanted, "hold": True} if hold else {"round": wanted}
    _show(operator.call("POST", f"/{campaign}/close-round", body), as_json)


@app.command(no_args_is_help=True)
def finalise(
    campaign: CampaignId,
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write the release to")],
    rows: Annotated[int | None, typer.Option(min=1, help="rows of the synthetic table")] = None,
    replicates: Replicates = 0,
    prior: Prior = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Fit the model, make the release, keep it on the collector and write its folder here.

    Replicates are made here and not on the collector, which goes on taking reports of other campaigns meanwhile. So is the
    average with a prior; the collector keeps the release without it.
    """
    check_target(output)
    if replicates:
        check_whole("replicates", replicates, LEAST_REPLICATES, MOST_REPLICATES)
    operator = Operator(url, key_file)
    operator.call("POST", f"/{campaign}/finalise", {} if rows is None else {"rows": rows})
    archive = operator.fetch("GET", f"/{campaign}/release")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as held:
                held.extractall(scratch)  # which keeps to this folder, whatever names the archive has
        except zipfile.BadZipFile:
            raise InputError("the collector sent a release that is no zip file; check --url", where="--url") from None
        release = load_release(scratch)
        if prior is not None:
            release = release.with_prior(prior)
        if replicates:
            with progress_bar() as progress:
                release = release.with_replicates(replicates, progress=progress)
        folder = release.save(output)
    if rows is not None and rows != release.rows:
        print(f"dither: note: it was finalised before, with {release.rows:,} rows, and keeps them", file=sys.stderr)
    print_warnings(release.warnings)
    print(f"{release.method}: {release.participants:,} participants, epsilon {shown_epsilon(release.epsilon_achieved)}")
    print(f"  table   {folder / 'synthetic.parquet'}")
    print(f"  report  {folder / 'report.html'}")
    print(f"  readers {release.readers}")


@app.command(no_args_is_help=True)
def export(
    campaign: CampaignId,
    output: Annotated[
        str, typer.Option("-o", "--output", help="Parquet file; with --partitioned a folder or fsspec address")
    ],
    number: Annotated[int, typer.Option("--round", min=0, help="which round")] = 0,
    partitioned: Annotated[
        bool, typer.Option("--partitioned", help="by campaign, round and question; adds what is not there yet")
    ] = False,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Write the raw reports of a round to Parquet, in the order of their ids, while it is open or after."""
    operator = Operator(url, key_file)
    path = f"/{campaign}/rounds/{number}/reports"
    if not partitioned:
        data = operator.fetch("GET", path)
        write_atomically(output, lambda temporary: temporary.write_bytes(data), private=True)
        print(output)
        return
    page = _page(operator, path, "")
    writing = begin_export(output, campaign, plan_from_json(json.loads(page.schema.metadata[b"dither_plan"])))
    seen = 0
    while page.num_rows:
        writing.add(page.replace_schema_metadata(None).cast(COLUMNS))
        seen += page.num_rows
        page = _page(operator, path, page.column("report_id")[-1].as_py().hex())
    writing.flush()
    print(f"{writing.folder}: {writing.written:,} of {seen:,} reports written to {writing.files:,} new files")


def _page(operator: Operator, path: str, after: str) -> pa.Table:
    try:
        page = pq.read_table(pa.BufferReader(operator.fetch("GET", path, query=f"?after={after}")))
    except pa.ArrowException:
        page = None
    if page is None or b"dither_plan" not in (page.schema.metadata or {}):
        raise InputError("the collector sent no page of reports; check --url", where="--url")
    return page


def _read_counted(tally: Path) -> bytes:
    """A tally and which reports it counts, as the collector takes them."""
    beside = tally.with_name(tally.name + BESIDE)
    try:
        data, record = tally.read_bytes(), json.loads(beside.read_text(encoding="ascii"))
        told = {"reports": int(record["reports"]), "digest": str(record["digest"])}
        sha256 = str(record["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        where = error.filename if isinstance(error, OSError) else beside
        raise InputError(
            f"cannot read {where}; {tally} needs {beside.name} beside it, as 'dither tally' writes both",
            where="--tally",
        ) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise InputError(f"{beside} is about another tally than {tally}; run 'dither tally' again", where="--tally")
    return pack(told, {"tally": np.frombuffer(data, np.uint8)})


def _show(status: JsonObject, as_json: bool) -> None:
    if as_json:
        print(json.dumps(status))
        return
    names = f"{status['campaign']}  {status['state']}  {status['method']}"
    print(f"{names}  epsilon {status['epsilon']:g}  {status['name']}")
    for entry in status["rounds"]:
        print(
            f"  round {entry['round']}  {entry['state']:7}  {entry['reports']:,} reports  {entry['questions']} questions  "
            f"epsilon {entry['epsilon']:.6g}  {entry['population']:.1%} of the participants"
            + ("  its files may still show the order of arrival" if entry["untidied"] else "")
        )
