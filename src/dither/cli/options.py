"""What several commands share: options, KEY=VALUE settings, warnings on stderr, a progress bar, and the way to a collector."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote, urlsplit

import typer

from dither.client.transport import Connection, Unreachable
from dither.errors import DitherError, InputError, ParameterError
from dither.notice import Notice
from dither.schema.files import MISSING, CsvOptions

if TYPE_CHECKING:
    from dither.types import JsonObject

Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="CSV or Parquet file, or a bundled dataset's name (adult)"
    ),
]
Columns = Annotated[
    str | None, typer.Option("--columns", help="only these columns, with commas [default: all]")
]
Drop = Annotated[str | None, typer.Option("--drop", help="without these columns, with commas")]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep", help="ask these columns although they look like identifiers or free text"
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", help="of a CSV file: one character, or 'tab' [default: found out]"),
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="of a CSV file, such as cp1252 [default: found out]"),
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="mark of a CSV file: . or , [default: found out]")
]
Missing = Annotated[
    str | None,
    typer.Option(
        "--missing",
        help=f"texts of a CSV file that mean no answer, with commas [default: empty, {', '.join(MISSING[1:])}]",
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="schema file; a domain taken from the table's own rows leaks them"
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="makes noise that whoever knows the seed can replay [default: noise that nobody can]",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="a method's parameter; repeatable"),
]
Replicates = Annotated[
    int,
    typer.Option(
        help="fit the model so many times more (20 are enough) and keep what gives intervals for any question"
    ),
]
SimulationPath = Annotated[
    Literal["counts", "reports"],
    typer.Option(
        "--path", help="counts: draw tallies directly; reports: make every person's report"
    ),
]
Prior = Annotated[
    str | None,
    typer.Option(
        help="a public table of the same schema to average the fit with, as far as the reports bear it out",
        metavar="TABLE",
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="replace the release that the folder holds")
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="no progress, no word of success; warnings and errors stay"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Url = Annotated[str, typer.Option(envvar="DITHER_URL", help="the collector's address")]
KeyFile = Annotated[
    Path, typer.Option(envvar="DITHER_KEY_FILE", help="the admin key that 'dither serve' made")
]
URL, KEY_FILE = "http://127.0.0.1:8700", Path("dither-admin.key")


def read_settings(given: list[str] | None) -> dict[str, str]:
    """What `--set KEY=VALUE` said, each key once."""
    out: dict[str, str] = {}
    for entry in given or []:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise ParameterError(
                f"--set {entry}: write it as KEY=VALUE", where="--set", value=entry
            )
        if key in out:
            raise ParameterError(f"--set {key} is given twice", where="--set", value=entry)
        out[key] = value
    return out


def delimiter_of(given: str | None) -> str | None:
    """A delimiter as the command line writes it; a tab has a name."""
    return "\t" if given in ("tab", "\\t") else given


def read_form(
    delimiter: str | None, encoding: str | None, decimal: str | None, missing: str | None
) -> CsvOptions:
    """How a CSV file is written, as far as the options say."""
    texts = listed(missing)
    return CsvOptions(
        delimiter_of(delimiter), encoding, decimal, None if texts is None else ("", *texts)
    )


def listed(given: str | None) -> list[str] | None:
    """Names with commas between them. One that stands there twice is a slip of the pen, and another was meant."""
    if given is None:
        return None
    names = [name.strip() for name in given.split(",") if name.strip()]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ParameterError(
            f"{twice!r} stands twice in {given!r}; name each once", where="list", value=given
        )
    return names


def print_warnings(warnings: Iterable[Notice | str]) -> None:
    """Each warning as a line on stderr; its code and what to do stand in the JSON and on the page."""
    for warning in warnings:
        print(f"dither: warning: {warning}", file=sys.stderr)


class Operator:
    """A collector's operator, over HTTP with the admin key like any other: every call is one request."""

    def __init__(self, url: str, key_file: Path, under: str = "/v1/admin/campaigns") -> None:
        try:
            self._key = key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise InputError(
                f"cannot read the admin key in {key_file}; name the file that 'dither serve' made with --key-file",
                where="--key-file",
            ) from None
        if not self._key or not self._key.isprintable():
            raise InputError(
                f"the admin key in {key_file} is not one line of text", where="--key-file"
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
        """The JSON object a collector answers."""
        try:
            found = json.loads(self.fetch(method, path, body, query))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InputError(
                f"{self._url} does not answer as a collector does; check --url", where="--url"
            )
        return found

    def fetch(
        self,
        method: str,
        path: str = "",
        body: Mapping[str, object] | bytes | None = None,
        query: str = "",
    ) -> bytes:
        """The bytes a collector answers; its refusals become errors of one line."""
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
        raise refusal(f"{self._url} says {answer.status}: {answer.reason}")
