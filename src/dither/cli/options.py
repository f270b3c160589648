"""What several commands share: options, warnings on stderr, and the connection to a collector."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

import typer

from dither.client.transport import Connection, Unreachable
from dither.display import printable
from dither.errors import DitherError, InputError, ParameterError
from dither.notice import Notice
from dither.schema.files import ReadOptions
from dither.schema.formats import MISSING

if TYPE_CHECKING:
    from dither.types import JsonObject

Result = TypeVar("Result")
# Suffix of the file that says which reports a tally counts.
COUNTED_SUFFIX = ".counted.json"

Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="CSV, JSON lines or Parquet file (also .gz), - for standard input, "
        "or the name of a bundled dataset (adult)",
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="schema file; without one the domain comes from the rows, which leaks them"
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="seed of the noise; anyone who knows it can remove the noise "
        "[default: noise of the operating system]",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="parameter of the method; repeatable"),
]
Replicates = Annotated[
    int,
    typer.Option(
        help="number of further fits that intervals for any question come from; "
        "20 are enough, 0 for none"
    ),
]
AsPublished = Annotated[
    bool,
    typer.Option(
        "--as-published",
        help="the parameters of the method's paper (see 'dither papers'); --set overrides them",
    ),
]
SimulationPath = Annotated[
    Literal["counts", "reports"],
    typer.Option(
        "--path", help="counts: draw tallies directly; reports: make each participant's report"
    ),
]
Prior = Annotated[
    str | None,
    typer.Option(
        help="public table of the same schema, averaged with the fit if the reports support it",
        metavar="TABLE",
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="replace the release that the folder holds")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="print warnings and errors only, no progress")
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Url = Annotated[str, typer.Option(envvar="DITHER_URL", help="address of the collector")]
KeyFile = Annotated[
    Path, typer.Option(envvar="DITHER_KEY_FILE", help="file of the admin key, by 'dither serve'")
]
URL, KEY_FILE = "http://127.0.0.1:8700", Path("dither-admin.key")


def takes(
    **builders: Callable[..., object],
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Give a command groups of options.

    `@takes(read=read_options)` replaces the command's parameter `read` by the parameters of
    `read_options`, and calls the command with what `read_options` returns.

    Args:
        builders: A function for each parameter to replace. Its own parameters are options.
    """

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        groups = {
            name: signature(build, eval_str=True).parameters for name, build in builders.items()
        }
        options: list[Parameter] = []
        for name, parameter in signature(command, eval_str=True).parameters.items():
            options += groups[name].values() if name in groups else [parameter]

        @wraps(command)
        def with_groups(**given: Any) -> Result:
            for name, build in builders.items():
                given[name] = build(**{option: given.pop(option) for option in groups[name]})
            return command(**given)

        # Keyword-only: options without a default may follow others that have one.
        shown = Signature([each.replace(kind=Parameter.KEYWORD_ONLY) for each in options])
        with_groups.__signature__ = shown  # type: ignore[attr-defined]
        return with_groups

    return decorate


def read_options(
    columns: Annotated[
        str | None, typer.Option(help="comma-separated columns to use [default: all]")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="comma-separated columns to leave out")] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="comma-separated columns to use although they look like identifiers or free text"
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="delimiter of a CSV file: one character, or 'tab' [default: auto-detected]"
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="encoding of a CSV file, such as cp1252 [default: auto-detected]"),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(help="decimal mark of a CSV file: . or , [default: auto-detected]"),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            help="comma-separated texts of a CSV file that mean no answer "
            f"[default: empty, {', '.join(MISSING[1:])}; in numbers also . and -]"
        ),
    ] = None,
    no_header: Annotated[
        bool,
        typer.Option(
            "--no-header", help="the first row of a CSV file is data; columns are column_1, ..."
        ),
    ] = False,
    date_order: Annotated[
        Literal["dmy", "mdy"] | None,
        typer.Option(help="order of day and month in dates such as 03/09/2020"),
    ] = None,
) -> ReadOptions:
    """How a table is read, from the options of a command."""
    return ReadOptions(
        columns=split_list(columns),
        drop=split_list(drop) or (),
        keep=split_list(keep) or (),
        delimiter="\t" if delimiter in ("tab", "\\t") else delimiter,
        encoding=encoding,
        decimal=decimal,
        missing=split_list(missing),
        no_header=no_header,
        date_order=date_order,
    )


def read_settings(given: list[str] | None) -> dict[str, str]:
    """The values of `--set KEY=VALUE` by key.

    Raises:
        ParameterError: If an entry has another form or a key is repeated.
    """
    settings: dict[str, str] = {}
    for entry in given or []:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise ParameterError(
                f"--set {entry}: write it as KEY=VALUE", where="--set", value=entry
            )
        if key in settings:
            raise ParameterError(f"--set {key} is given twice", where="--set", value=entry)
        settings[key] = value
    return settings


def split_list(given: str | None) -> list[str] | None:
    """The entries of a comma-separated list; None for None.

    Raises:
        ParameterError: If an entry is repeated, which is most likely a typing error.
    """
    if given is None:
        return None
    # A name with a comma is written in quotation marks, as in a CSV file.
    fields = next(csv.reader([given], skipinitialspace=True), [])
    entries = [entry.strip() for entry in fields if entry.strip()]
    for i, entry in enumerate(entries):
        if entry in entries[:i]:
            raise ParameterError(
                f"{entry!r} is listed twice in {given!r}", where="list", value=given
            )
    return entries


def split_numbers(given: str | None, option: str) -> list[float]:
    """The numbers of a comma-separated list; none for None.

    Raises:
        ParameterError: If an entry is not a number.
    """
    try:
        return [float(entry) for entry in (given or "").split(",") if entry.strip()]
    except ValueError:
        raise ParameterError(
            f"{option} {given}: write comma-separated numbers, such as 1,2,4",
            where=option,
            value=given,
        ) from None


def print_warnings(warnings: Iterable[Notice | str]) -> None:
    """Print each warning as a line on stderr."""
    for warning in warnings:
        print(f"dither: warning: {printable(str(warning))}", file=sys.stderr)


class Operator:
    """An operator of a collector: each call is one HTTP request with the admin key.

    Args:
        url: Address of the collector.
        key_file: File of the admin key.
        under: Path that the calls' paths follow.
    """

    def __init__(self, url: str, key_file: Path, under: str = "/v1/admin/campaigns") -> None:
        try:
            self._key = key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise InputError(
                f"cannot read the admin key in {key_file}; "
                "give the file that 'dither serve' wrote with --key-file",
                where="--key-file",
            ) from None
        if not self._key or not self._key.isprintable():
            raise InputError(
                f"{key_file} must hold the admin key in one line of text", where="--key-file"
            )
        self._url = url
        self._path = urlsplit(url).path.rstrip("/") + under

    def call(
        self,
        method: str,
        path: str = "",
        body: Mapping[str, object] | bytes | None = None,
        query: str = "",
    ) -> JsonObject:
        """The JSON object that the collector answers."""
        try:
            answer = json.loads(self.fetch(method, path, body, query))
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise InputError(
                f"{self._url} does not answer like a collector; check --url", where="--url"
            )
        return answer

    def fetch(
        self,
        method: str,
        path: str = "",
        body: Mapping[str, object] | bytes | None = None,
        query: str = "",
    ) -> bytes:
        """The bytes that the collector answers.

        Raises:
            InputError: If the collector rejects the request.
            DitherError: If it cannot be reached or fails.
        """
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {"authorization": f"Bearer {self._key}", "content-type": kind}
        with closing(Connection(self._url, timeout=600.0)) as connection:
            try:
                answer = connection.request(
                    method, self._path + quote(path) + query, sent, headers, most=None
                )
            except Unreachable as error:
                raise DitherError(f"{self._url}: {error}") from None
        if answer.status in (200, 201):
            return answer.body
        refusal = InputError if answer.status in (400, 401, 403, 404, 409, 422) else DitherError
        raise refusal(f"{self._url} answered {answer.status}: {answer.reason}")
