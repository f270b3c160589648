"""dither campaign create: the options of a new campaign in groups, and the request they make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dither.checks import check_choice
from dither.cli.number_questions import Bins, Edges, read_bins
from dither.cli.options import (
    KEY_FILE,
    URL,
    AsJson,
    KeyFile,
    Operator,
    Settings,
    Url,
    print_warnings,
    read_settings,
    takes,
)
from dither.errors import InputError, ParameterError
from dither.languages import LANGUAGES, SOURCE
from dither.methods import HISTOGRAMS, MEANS, method
from dither.methods.histogram.consumer import check_range, check_step, read_consumers
from dither.methods.histogram.machine import HistogramMachine
from dither.methods.mean import Mean
from dither.notice import certainty_sentence, weak_protection
from dither.schema import Schema, load_schema
from dither.schema.files import write_atomically
from dither.types import JsonObject

# A campaign about one number has no holdout: its errors are known from the mechanism.
_DEFAULT_HOLDOUT = 0.05
_DEFAULT_NUMBER_METHOD = "chp"
Outside = Literal["clip", "random"]
# Limit of a file of consumers; a request to the collector has the same.
_MAX_BYTES = 1 << 20
# Tokens of one request. Larger batches cost memory here and in the collector, smaller ones
# requests: a million in one took 579 MB.
_TOKEN_BATCH = 20_000


@dataclass(frozen=True)
class _Question:
    """The questions: the attributes of a schema file, or one number and its consumers."""

    schema: Path | None
    number: str | None
    low: float | None
    high: float | None
    unit: float | None
    bins: str
    edges: Sequence[str]
    consumers: Path | None
    outside: Outside


def _question(
    schema: Annotated[
        Path | None, typer.Option(help="schema file: the public domain of each attribute")
    ] = None,
    number: Annotated[
        str | None,
        typer.Option(
            "--histogram", metavar="NAME", help="instead of a schema: the name of one number to ask"
        ),
    ] = None,
    low: Annotated[float | None, typer.Option(help="public lower end of that number")] = None,
    high: Annotated[float | None, typer.Option(help="public upper end of that number")] = None,
    unit: Annotated[
        float | None,
        typer.Option(help="what the number is a multiple of: 1 for whole numbers (method ranges)"),
    ] = None,
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
            help="numbers outside the range: count as the nearer end, or answer at random"
        ),
    ] = "clip",
) -> _Question:
    return _Question(schema, number, low, high, unit, bins, edges or [], consumers, outside)


@dataclass(frozen=True)
class _MethodOptions:
    """How the answers are collected and fitted."""

    method: str | None
    seed: int | None
    parameters: dict[str, str]
    holdout: float | None


def _method(
    method: Annotated[
        str | None,
        typer.Option(
            help="see 'dither methods' [default: the default method; "
            f"{_DEFAULT_NUMBER_METHOD} for one number]"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="seed of the fit; no participant's noise depends on it")
    ] = None,
    settings: Settings = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="share of the participants kept from the fit, for an error estimate without the "
            f"truth [default: {_DEFAULT_HOLDOUT}; 0 for one number]"
        ),
    ] = None,
) -> _MethodOptions:
    return _MethodOptions(method, seed, read_settings(settings), holdout)


@dataclass(frozen=True)
class _Texts:
    """What operators and participants read about the campaign."""

    name: str
    title: str
    purpose: str
    epsilon_reason: str
    contact: str
    language: str


def _texts(
    name: Annotated[str, typer.Option(help="short name for lists")] = "",
    title: Annotated[
        str, typer.Option(help="heading for participants [default: the name, else the id]")
    ] = "",
    epsilon_reason: Annotated[
        str,
        typer.Option(
            help="why the protection is not stronger, for participants; expected above epsilon 8"
        ),
    ] = "",
    purpose: Annotated[
        str, typer.Option(help="why people are asked and how the answers are used, in plain words")
    ] = "",
    contact: Annotated[str, typer.Option(help="contact for participants: a name, an address")] = "",
    language: Annotated[
        str, typer.Option(metavar="CODE", help=f"language of the texts: {', '.join(LANGUAGES)}")
    ] = SOURCE,
) -> _Texts:
    check_choice("--language", language, tuple(LANGUAGES), where="--language")
    return _Texts(name, title, purpose, epsilon_reason, contact, language)


@dataclass(frozen=True)
class _Schedule:
    """When the campaign opens and closes, and when its reports are deleted."""

    closes: str | None
    closes_at_reports: int | None
    delete_reports_after: int | None
    draft: bool


def _schedule(
    closes: Annotated[
        str | None,
        typer.Option(help="close at the end of this day (2027-01-31) or at this instant, UTC"),
    ] = None,
    closes_at_reports: Annotated[
        int | None, typer.Option(min=1, help="close after this many reports")
    ] = None,
    delete_reports_after: Annotated[
        int | None,
        typer.Option(
            min=0, max=36_500, help="delete the reports this many days after the release was made"
        ),
    ] = None,
    draft: Annotated[bool, typer.Option("--draft", help="do not open the first round yet")] = False,
) -> _Schedule:
    return _Schedule(closes, closes_at_reports, delete_reports_after, draft)


@dataclass(frozen=True)
class _Access:
    """Who may take part, and how participants are assigned to rounds."""

    listed: bool
    tokens: int
    tokens_file: Path | None
    assignment: str | None


def _access(
    listed: Annotated[
        bool,
        typer.Option("--listed", help="show it on the collector's first page while it is open"),
    ] = False,
    tokens: Annotated[
        int, typer.Option(min=0, help="number of tokens to issue; 0 lets anyone take part")
    ] = 0,
    tokens_file: Annotated[
        Path | None, typer.Option(help="file to write the tokens to, one per line")
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(
            help="'arrival': participants answer in the round that is open when they come; "
            "'token': each token belongs to one round [default: arrival]"
        ),
    ] = None,
) -> _Access:
    if bool(tokens) != (tokens_file is not None):
        raise ParameterError("--tokens and --tokens-file go together", where="--tokens")
    if tokens_file is not None:
        check_new_file(tokens_file, "--tokens-file")
    return _Access(listed, tokens, tokens_file, assignment)


@takes(question=_question, method=_method, texts=_texts, schedule=_schedule, access=_access)
def create(
    epsilon: Annotated[
        float,
        typer.Option(help="guarantee of one participant's whole record over the whole campaign"),
    ],
    participants: Annotated[int, typer.Option(help="expected number of participants")],
    question: _Question,
    method: _MethodOptions,
    texts: _Texts,
    schedule: _Schedule,
    access: _Access,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Create a campaign and open its first round.

    Examples: dither campaign create --schema schema.json --epsilon 4 --participants 50000

    dither campaign create --histogram pay --low 0 --high 250000 --bins 3,5,7 --epsilon 2 --participants 50000
    """
    body = _asked(question, method.method)
    holdout = method.holdout
    if holdout is None:
        holdout = 0.0 if body.get("method") in HISTOGRAMS | MEANS else _DEFAULT_HOLDOUT
    body |= {
        "epsilon": epsilon,
        "participants": participants,
        **asdict(texts),
        "parameters": method.parameters,
        "participation": "tokens" if access.tokens else "open",
        "draft": schedule.draft,
        "holdout": holdout,
        "listed": access.listed,
    }
    optional = {
        "seed": method.seed,
        "closes": schedule.closes,
        "closes_at_reports": schedule.closes_at_reports,
        "delete_reports_after": schedule.delete_reports_after,
        "assignment": access.assignment,
    }
    body |= {key: value for key, value in optional.items() if value is not None}
    operator = Operator(url, key_file)
    status = operator.call("POST", "", body)
    weak = weak_protection(epsilon)
    print_warnings([] if weak is None else [weak])
    if weak is None:
        typer.echo(f"dither: {certainty_sentence(epsilon)}", err=True)
    if access.tokens_file is not None:
        issue_tokens(operator, status["campaign"], access.tokens, access.tokens_file)
    print(json.dumps(status) if as_json else status["campaign"])


def check_new_file(path: Path, option: str) -> None:
    """Raise ParameterError unless a new file can be written.

    Tokens are shown only once: faults of their file must be found before they are issued,
    and earlier tokens must not be overwritten.
    """
    if not path.parent.is_dir() or path.is_dir():
        raise ParameterError(
            f"cannot write {path}: name a file in a folder that exists", where=option
        )
    if path.exists():
        raise ParameterError(
            f"{path} exists; name another file, since tokens are shown only once", where=option
        )


def issue_tokens(operator: Operator, campaign: str, count: int, path: Path) -> None:
    """Issue tokens of a campaign in batches and write them to a private file."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="ascii") as file:
            for start in range(0, count, _TOKEN_BATCH):
                wanted = min(_TOKEN_BATCH, count - start)
                answer = operator.call("POST", f"/{campaign}/tokens", {"count": wanted})
                file.writelines(f"{token}\n" for token in answer["tokens"])

    write_atomically(path, write, private=True)
    typer.echo(
        f"dither: {count:,} tokens in {path}; the collector keeps only their hashes", err=True
    )


def _asked(question: _Question, wanted: str | None) -> JsonObject:
    """Schema, method and consumers of the request."""
    if (question.schema is None) == (question.number is None):
        raise ParameterError(
            "give either --schema, or --histogram with the name of a number", where="--schema"
        )
    if question.schema is None:
        return _asked_number(question, wanted)
    number_options = {
        "--low": question.low,
        "--high": question.high,
        "--unit": question.unit,
        "--bins": question.bins,
        "--edges": question.edges,
    }
    for option, value in number_options.items():
        if value not in (None, "", []):
            raise ParameterError(
                f"{option} is for --histogram; a schema file has its own domain", where=option
            )
    asked: JsonObject = {"schema": load_schema(question.schema).to_json()}
    if wanted is not None:
        asked["method"] = wanted
    if question.consumers is not None:
        asked["consumers"] = _read_consumers_file(question.consumers)
    return asked


def _asked_number(question: _Question, wanted: str | None) -> JsonObject:
    """Schema, method and consumers of a campaign about one number."""
    name = question.number
    if name is None or not name.strip():
        raise ParameterError(
            "--histogram: give the number a name, such as pay", where="--histogram"
        )
    if question.low is None or question.high is None:
        raise ParameterError(
            "--histogram needs the public range: give --low and --high", where="--low"
        )
    low, high = check_range(question.low, question.high)
    chosen = wanted or _DEFAULT_NUMBER_METHOD
    if chosen not in HISTOGRAMS | MEANS:
        raise ParameterError(
            f"--method {chosen} is not for one number; "
            f"choose one of {', '.join(HISTOGRAMS | MEANS)}",
            where="--method",
        )
    machine = method(chosen).load()
    if issubclass(machine, Mean):
        if question.bins or question.edges or question.consumers is not None:
            raise ParameterError("--method mean gives a mean and has no consumers", where="--bins")
        schema = machine.schema_of(name, low, high)
        return {"schema": _with_clipping(schema, question.outside).to_json(), "method": chosen}
    assert issubclass(machine, HistogramMachine)
    consumers = read_consumers(_consumers(question, machine.overview), low, high)
    unit = None if question.unit is None else check_step(question.unit, low, high)
    schema = machine.schema_of(name, consumers, low, high, unit)
    return {
        "schema": _with_clipping(schema, question.outside).to_json(),
        "method": chosen,
        "consumers": [consumer.to_json() for consumer in consumers],
    }


def _with_clipping(schema: Schema, outside: Outside) -> Schema:
    """The schema that says, to every device, how numbers outside the range are answered."""
    return Schema(tuple(replace(attribute, clip=outside == "clip") for attribute in schema))


def _consumers(question: _Question, overview: Sequence[int]) -> list[Any]:
    """The consumers of the options, else the method's overview."""
    consumers: list[Any] = list(read_bins(question.bins, list(question.edges)))
    if question.consumers is not None:
        consumers += _read_consumers_file(question.consumers)
    if not consumers and not overview:
        raise ParameterError(
            "name at least one consumer with --bins, --edges or --consumers, "
            "or use --method ranges",
            where="--bins",
        )
    return consumers or list(overview)


def _read_consumers_file(path: Path) -> list[Any]:
    """The consumers of a JSON list, or of the release.json of an earlier histogram."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise InputError(
                f"{path} has more than 1 MiB; name fewer consumers", where="--consumers"
            )
        content = json.loads(data)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", where="--consumers") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON", where="--consumers") from None
    if isinstance(content, list):
        return content
    if isinstance(content, dict) and isinstance(content.get("consumers"), list):
        return [_without_figures(entry) for entry in content["consumers"]]
    raise InputError(
        f'{path} must hold a list such as [{{"name": "tax office", "bins": 5}}, '
        '{"name": "union", "edges": [0, 10, 50]}]',
        where="--consumers",
    )


def _without_figures(entry: Any) -> Any:
    """The definition of a released consumer, without its estimates."""
    kept = ("name", "bins", "width", "edges", "epsilon")
    return {key: entry[key] for key in kept if key in entry} if isinstance(entry, dict) else entry
