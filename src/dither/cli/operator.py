"""How the command line speaks to a collector: HTTP with the admin key, like any other operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit

import typer

from dither.client.transport import Connection, Unreachable
from dither.errors import DitherError, InputError
from dither.types import JsonObject

Url = Annotated[str, typer.Option(envvar="DITHER_URL", help="the collector's address")]
KeyFile = Annotated[Path, typer.Option(envvar="DITHER_KEY_FILE", help="the admin key that 'dither serve' made")]
URL, KEY_FILE = "http://127.0.0.1:8700", Path("dither-admin.key")


class Operator:
    """A collector's operator: every call is one request."""

    def __init__(self, url: str, key_file: Path) -> None:
        try:
            self._key = key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise InputError(
                f"cannot read the admin key in {key_file}; name the file that 'dither serve' made with --key-file",
                where="--key-file",
            ) from None
        if not self._key or not self._key.isprintable():
            raise InputError(f"the admin key in {key_file} is not one line of text", where="--key-file")
        self._url = url
        self._path = urlsplit(url).path.rstrip("/") + "/v1/admin/campaigns"

    def call(self, method: str, path: str = "", body: Mapping[str, object] | None = None) -> JsonObject:
        """The JSON object a collector answers."""
        try:
            found = json.loads(self.fetch(method, path, body))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InputError(f"{self._url} does not answer as a collector does; check --url", where="--url")
        return found

    def fetch(self, method: str, path: str = "", body: Mapping[str, object] | None = None) -> bytes:
        """The bytes a collector answers; its refusals become errors of one line."""
        sent = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        with closing(Connection(self._url, timeout=600.0)) as connection:
            try:
                answer = connection.request(method, self._path + quote(path), sent, headers, most=None)
            except Unreachable as error:
                raise DitherError(f"{self._url}: {error}") from None
        if answer.status in (200, 201):
            return answer.body
        kind = InputError if answer.status in (400, 401, 404, 409, 422) else DitherError
        raise kind(f"{self._url} says {answer.status}: {answer.reason}")
