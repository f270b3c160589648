"""dither key: manage the keys of a collector's operators over HTTP, with a curator's key."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from dither.cli.options import KEY_FILE, URL, AsJson, KeyFile, Operator, Url
from dither.errors import ParameterError
from dither.schema.files import write_atomically

KEYS, AUDIT = "/v1/admin/keys", "/v1/audit"
app = typer.Typer(help="Keys of a running collector (see 'dither serve').", no_args_is_help=True)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="letters, digits and . _ @ -, such as a person's name")
]


class Role(StrEnum):
    """What a key may do."""

    curator = "curator"
    reader = "reader"


@app.callback()
def _verbs() -> None:
    """Keys of a running collector."""


@app.command("create", no_args_is_help=True)
def _create(
    name: Name,
    role: Annotated[
        Role, typer.Option(help="curator: may do everything; reader: may only read")
    ] = Role.reader,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="file for the key, readable by you only; else it is printed"
        ),
    ] = None,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
) -> None:
    """Create a key. It is shown only once: the collector keeps its hash."""
    if output is not None and (not output.parent.is_dir() or output.exists()):
        raise ParameterError(
            f"cannot write {output}: name a new file in a folder that exists", where="--output"
        )
    made = Operator(url, key_file, KEYS).call("POST", "", {"name": name, "role": role.value})["key"]
    if output is None:
        print(made)
        return
    write_atomically(
        output, lambda temporary: temporary.write_text(f"{made}\n", encoding="ascii"), private=True
    )
    print(output)


@app.command("list")
def _list(url: Url = URL, key_file: KeyFile = KEY_FILE, as_json: AsJson = False) -> None:
    """List all keys by name: role, and the days of creation and revocation."""
    found = Operator(url, key_file, KEYS).call("GET")
    if as_json:
        print(json.dumps(found))
        return
    for key in found["keys"]:
        ended = f"  revoked {key['revoked']}" if key["revoked"] else ""
        print(f"{key['name']}  {key['role']}  created {key['created']}{ended}")


@app.command("revoke", no_args_is_help=True)
def _revoke(name: Name, url: Url = URL, key_file: KeyFile = KEY_FILE) -> None:
    """Revoke a key and end its sessions. Its name cannot be used again."""
    Operator(url, key_file, KEYS).call("POST", f"/{name}/revoke", {})
    print(f"{name} is revoked")


@app.command("audit")
def _audit(
    campaign: Annotated[
        str | None, typer.Option(help="only entries of this campaign [default: all]")
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, max=1000, help="entries to show, the latest first")
    ] = 100,
    url: Url = URL,
    key_file: KeyFile = KEY_FILE,
    as_json: AsJson = False,
) -> None:
    """Show what was done, when, and with which key, the latest first."""
    query = f"?most={most}" + ("" if campaign is None else f"&campaign={quote(campaign, safe='')}")
    found = Operator(url, key_file, AUDIT).call("GET", query=query)
    if as_json:
        print(json.dumps(found))
        return
    for entry in found["entries"]:
        about = "  ".join(part for part in (entry["campaign"], entry["detail"]) if part)
        print(f"{entry['at']}  {entry['who']}  {entry['what']}  {about}".rstrip())
