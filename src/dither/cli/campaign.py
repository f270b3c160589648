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
from dither.cli.consumers import NumberOptions, Outside, consumers_file, number_campaign
from dither.cli.number_questions import Bins, Edges
from dither.cli.options import (
    KEY_FILE,
    URL,
    AsJson,
    KeyFile,
    Operator,
    Overwrite,
    Prior,
    Quiet,
    Replicates,
    Settings,
    Url,
    print_warnings,
    read_settings,
)
from dither.cli.tally import BESIDE
from dither.errors import InputError, ParameterError
from dither.methods import HISTOGRAMS, MEANS
from dither.notice import shown_epsilon, weak_protection
from dither.progress import progress_bar
from dither.release import Release, check_target, load_release
from dither.release.number import CONSUMERS, file_names
from dither.release.replicates import MAX_REPLICATES, MIN_REPLICATES
from dither.reports import plan_from_json
from dither.schema import load_schema
from dither.schema.calendar import shown_instant
from dither.schema.files import write_atomically
from dither.tally.archive import pack
from dither.tally.counting import COLUMNS
from dither.tally.exports import begin_export
from dither.types import JsonObject

app = typer.Typer(
    help="Campaigns of a running collector (see 'dither serve').", no_args_is_help=True
)

CampaignId = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="the id that 'create' printed")]


@app.callback()
def _verbs() -> None:
    """Campaigns of a running collector."""


@app.command(no_args_is_help=True)
def create(
    epsilon: Annotated[
        float,
        typer.Option(help="guarantee of one participant's whole record over the whole campaign"),
    ],
    participants: Annotated[int, typer.Option(help="how many are expected to take part")],
    schema: Annotated[
        Path | None, typer.Option(help="schema file: the public domain of each attribute")
    ] = None,
    number: Annotated[
        str | None,
        typer.Option(
            "--histogram", metavar="NAME", help="instead of a schema: ask for one number, called so"
        ),
    ] = None,
    low: Annotated[float | None, typer.Option(help="public lower end of that number")] = None,
    high: Annotated[float | None, typer.Option(help="public upper end of that number")] = None,
    bins: Bins = "",
    edges: Edges = None,
    consumers: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of consumers: name, bins or edges, epsilon; or an earlier release.json"
        ),
    ] = None,
    outside: Annotated[
        Outside,
        typer.Option(
            help="numbers beyond low and high: count as the nearer end, or answer at random"
        ),
    ] = "clip",
    method: Annotated[str | None, typer.Option(help="see 'dither methods'")] = None,
    name: Annotated[str, typer.Option(help="a short name, for lists")] = "",
    title: Annotated[
        str, typer.Option(help="what participants read first  [default: the name, else the id]")
    ] = "",
    epsilon_reason: Annotated[
        str,
        typer.Option(
            help="why the protection is no stronger, for participants to read; expected above epsilon 8"
        ),
    ] = "",
    purpose: Annotated[
        str, typer.Option(help="why people are asked and what is done with it, in their words")
    ] = "",
    contact: Annotated[
        str, typer.Option(help="whom participants can ask: a name, an address")
    ] = "",
    closes: Annotated[
        str | None,
        typer.Option(help="close at the end of this day (2027-01-31) or at this instant, UTC"),
    ] = None,
    closes_at_reports: Annotated[
        int | None, typer.Option(min=1, help="close when it has so many reports")
    ] = None,
    listed: Annotated[
        bool,
        typer.Option("--listed", help="show it on the collector's first page while it is open"),
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="for the fitting, not for anybody's noise")
    ] = None,
    settings: Settings = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="share of participants kept from the fit for an error estimate without the truth  "
            "[default: 0.05; none where one number is asked for]"
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=0, help="issue so many tokens; without, anybody may take part")
    ] = 0,
    tokens_file: Annotated[
        Path | None, typer.Option(help="where to write the tokens, one per line")
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(
            help="'arrival': whoever comes is asked in the open round; 'token': each token belongs to one  [default: arrival]"
        ),
    ] = None,
    draft: Annotated[bool, typer.Option("--draft", help="do not open the first round yet")] = False,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Create a campaign and open its first round.

    Examples: dither campaign create --schema schema.json --epsilon 4 --participants 50000

    dither campaign create --histogram pay --low 0 --high 250000 --bins 3,5,7 --epsilon 2 --participants 50000
    """
    asked = _asked(
        schema, NumberOptions(number, low, high, bins, edges or [], consumers, outside), method
    )
    if holdout is None:
        holdout = 0.0 if asked.get("method") in HISTOGRAMS | MEANS else 0.05
    if bool(tokens) != (tokens_file is not None):
        raise ParameterError("--tokens and --tokens-file go together", where="--tokens")
    if tokens_file is not None:
        _check_new_file(tokens_file, "--tokens-file")
    operator = Operator(url, key_file)
    body: dict[str, object] = {
        **asked,
        "epsilon": epsilon,
        "participants": participants,
        "name": name,
        "title": title,
        "purpose": purpose,
        "epsilon_reason": epsilon_reason,
        "contact": contact,
        "parameters": read_settings(settings),
        "participation": "tokens" if tokens else "open",
        "draft": draft,
        "holdout": holdout,
        "listed": listed,
    }
    given = {
        "seed": seed,
        "closes": closes,
        "closes_at_reports": closes_at_reports,
        "assignment": assignment,
    }
    body |= {key: value for key, value in given.items() if value is not None}
    status = operator.call("POST", "", body)
    weak = weak_protection(epsilon)
    print_warnings([] if weak is None else [weak])
    if tokens_file is not None:
        _issue(operator, status["campaign"], tokens, tokens_file)
    print(json.dumps(status) if as_json else status["campaign"])


def _asked(schema: Path | None, number: NumberOptions, method: str | None) -> JsonObject:
    """What is asked, of a schema file or of one number: schema, method and consumers."""
    if (schema is None) == (number.name is None):
        raise ParameterError("give --schema, or --histogram with a number's name", where="--schema")
    if schema is None:
        return number_campaign(number, method)
    stray = {
        "--low": number.low,
        "--high": number.high,
        "--bins": number.bins,
        "--edges": number.edges,
    }
    if wrong := [name for name, value in stray.items() if value not in (None, "", [])]:
        raise ParameterError(
            f"{wrong[0]} goes with --histogram; a schema file says it itself", where=wrong[0]
        )
    out: JsonObject = {"schema": load_schema(schema).to_json()}
    if method is not None:
        out["method"] = method
    if number.consumers is not None:
        out["consumers"] = consumers_file(number.consumers)
    return out


@app.command()
def status(
    campaign: Annotated[
        str | None, typer.Argument(metavar="[CAMPAIGN]", help="an id; without, all campaigns")
    ] = None,
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
def open_(
    campaign: CampaignId, url: Url = URL, key_file: KeyFile = KEY_FILE, as_json: AsJson = False
) -> None:
    """Open a draft, or take back a closing that was interrupted."""
    _show(Operator(url, key_file).call("POST", f"/{campaign}/open", {}), as_json)


@app.command("close-round", no_args_is_help=True)
def close_round(
    campaign: CampaignId,
    number: Annotated[
        int | None, typer.Option("--round", min=0, help="[default: the open one]")
    ] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="take no more reports, and wait for --tally")
    ] = False,
    tally: Annotated[
        Path | None,
        typer.Option(help="take this tally of 'dither tally' if it counts exactly what is stored"),
    ] = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Close the open round, take its tally and open the next one, if the method has one. Safe to repeat with --round."""
    if hold and tally is not None:
        raise ParameterError(
            "--hold waits for a tally, --tally brings one; give one of them", where="--hold"
        )
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
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit the model, make the release, keep it on the collector and write its folder here.

    Replicates are made here and not on the collector, which goes on taking reports of other campaigns meanwhile. So is the
    average with a prior; the collector keeps the release without it.
    """
    check_target(output, overwrite=overwrite)
    if replicates:
        check_whole("replicates", replicates, MIN_REPLICATES, MAX_REPLICATES)
    operator = Operator(url, key_file)
    operator.call("POST", f"/{campaign}/finalise", {} if rows is None else {"rows": rows})
    archive = operator.fetch("GET", f"/{campaign}/release")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as held:
                held.extractall(
                    scratch
                )  # which keeps to this folder, whatever names the archive has
        except zipfile.BadZipFile:
            raise InputError(
                "the collector sent a release that is no zip file; check --url", where="--url"
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
            f"dither: note: it was finalised before, with {release.rows:,} rows, and keeps them",
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
    """Write the folder of a campaign about one number and say what is in it."""
    if rows is not None or replicates:
        print(
            "dither: note: figures about one number have neither rows nor replicates",
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


@app.command(no_args_is_help=True)
def tokens(
    campaign: CampaignId,
    count: Annotated[int, typer.Option(min=1, help="how many")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="a new file for them, one per line")
    ],
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Issue further tokens to a campaign that was created with some. They are shown this once."""
    _check_new_file(output, "--output")
    _issue(Operator(url, key_file), campaign, count, output)


@app.command(no_args_is_help=True)
def delete(
    campaign: CampaignId,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Delete a campaign for good: rounds, reports, tokens and release. One that is open has to be held first.

    What was exported, finalised to a folder or downloaded stays where it is; so does what the audit log says.
    """
    operator = Operator(url, key_file)
    if not yes:
        found = operator.call("GET", f"/{campaign}")
        reports = sum(entry["reports"] for entry in found["rounds"])
        if not sys.stdin.isatty():
            raise ParameterError(
                "there is nobody to ask at a terminal; say --yes to delete it", where="--yes"
            )
        question = (
            f"Delete {campaign} {found['name']!r} ({found['state']}, {reports:,} reports) for good?"
        )
        if not typer.confirm(question, err=True):
            print("dither: nothing was deleted", file=sys.stderr)
            raise typer.Exit(1)
    operator.call("DELETE", f"/{campaign}")
    print(f"{campaign} is deleted")


@app.command("publish-release", no_args_is_help=True)
def publish_release(
    campaign: CampaignId, url: Url = URL, key_file: KeyFile = KEY_FILE, as_json: AsJson = False
) -> None:
    """Let everybody read the release: figures, questions and downloads at /releases/CAMPAIGN and /v1/releases/CAMPAIGN.

    The collector makes its replicates first, so that every figure has an interval; that may take minutes. Safe to repeat.
    """
    found = Operator(url, key_file).call("POST", f"/{campaign}/publish-release", {})
    print(json.dumps(found) if as_json else f"{url.rstrip('/')}/releases/{campaign}")


@app.command("unpublish-release", no_args_is_help=True)
def unpublish_release(
    campaign: CampaignId, url: Url = URL, key_file: KeyFile = KEY_FILE, as_json: AsJson = False
) -> None:
    """Hide the release from everybody without a key. What was downloaded is out."""
    found = Operator(url, key_file).call("POST", f"/{campaign}/unpublish-release", {})
    print(json.dumps(found) if as_json else f"{campaign} is not public")


@app.command(no_args_is_help=True)
def export(
    campaign: CampaignId,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", help="Parquet file; with --partitioned a folder or fsspec address"
        ),
    ],
    number: Annotated[int, typer.Option("--round", min=0, help="which round")] = 0,
    partitioned: Annotated[
        bool,
        typer.Option(
            "--partitioned", help="by campaign, round and question; adds what is not there yet"
        ),
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


def _check_new_file(path: Path, option: str) -> None:
    """Tokens are shown once: whatever could go wrong with their file is found before, and no earlier ones are written over."""
    if not path.parent.is_dir() or path.is_dir():
        raise ParameterError(
            f"cannot write {path}: name a file in a folder that exists", where=option
        )
    if path.exists():
        raise ParameterError(
            f"{path} is there; name another file, since tokens are shown only once", where=option
        )


def _issue(operator: Operator, campaign: str, count: int, path: Path) -> None:
    issued = operator.call("POST", f"/{campaign}/tokens", {"count": count})["tokens"]
    lines = "".join(token + "\n" for token in issued)
    write_atomically(
        path, lambda temporary: temporary.write_text(lines, encoding="ascii"), private=True
    )
    print(
        f"dither: {count:,} tokens in {path}; the collector keeps only their hashes",
        file=sys.stderr,
    )


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
        raise InputError(
            f"{beside} is about another tally than {tally}; run 'dither tally' again",
            where="--tally",
        )
    return pack(told, {"tally": np.frombuffer(data, np.uint8)})


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
            + ("  its files may still show the order of arrival" if entry["untidied"] else "")
        )


def _ends(entry: JsonObject) -> str:
    """When an open round closes by itself."""
    if entry["state"] != "open" or (entry["wanted"] is None and entry["closes"] is None):
        return "  held for a tally" if entry["held"] else ""
    at = "" if entry["wanted"] is None else f" at {entry['wanted']:,} reports"
    until = "" if entry["closes"] is None else f" on {shown_instant(entry['closes'])}Z"
    return f"  closes{at}{' or' if at and until else ''}{until}"
