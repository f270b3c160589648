"""dither scripts: the scripts of participants' pages in this installation, with their hashes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from dither.errors import InputError


def scripts(
    only_hash: Annotated[
        bool,
        typer.Option("--hash", help="the first 16 bytes of the hash of all, which links may carry"),
    ] = False,
) -> None:
    """List the scripts that a collector of this version sends to participants, as sha256sum does.

    Compare the output with what a collector serves at /scripts, and --hash with the part of a
    link after "~".

    Example: dither scripts --hash
    """
    if find_spec("fastapi") is None:
        raise InputError("the collector needs the extra 'server': pip install 'dither[server]'")
    from dither.collector.pages.assets import scripts_hash, scripts_listing

    print(scripts_hash() if only_hash else scripts_listing(), end="\n" if only_hash else "")
