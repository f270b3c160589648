"""dither serve: run a collector."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from dither import collector
from dither.errors import InputError

# Modules of the extra 'server'. Not all are imported when the collector starts.
_NEEDED = ("babel", "fastapi", "prometheus_client", "python_multipart", "segno", "uvicorn")


class LogLevel(StrEnum):
    """The lowest level of what is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LogFormat(StrEnum):
    """The format of log lines."""

    text = "text"
    json = "json"


def serve(
    store: Annotated[
        str, typer.Option(help="a file (SQLite), or postgresql://USER@HOST/DATABASE")
    ] = "collector.db",
    key_file: Annotated[
        Path, typer.Option(envvar="DITHER_KEY_FILE", help="the admin key; created if absent")
    ] = Path("dither-admin.key"),
    host: Annotated[
        str, typer.Option(help="address to listen on; put a TLS proxy in front of any other")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="port to listen on; 0 lets the system choose")
    ] = 8700,
    queue: Annotated[
        int, typer.Option(min=1, help="reports that may wait to be written before uploads get 429")
    ] = 20_000,
    connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="connections that may be open at once [default: 4,000, fewer if files are short]",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="processes that share the port; more than one needs a postgresql:// store",
        ),
    ] = 1,
    public_url: Annotated[
        str | None,
        typer.Option(
            envvar="DITHER_PUBLIC_URL",
            help="address that participants and readers use, such as https://survey.example.org",
        ),
    ] = None,
    embed_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="site whose pages may show surveys with <dither-survey>, such as "
            "https://www.example.org; may be given several times",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="the lowest level of what is logged to standard error")
    ] = LogLevel.warning,
    log_format: Annotated[
        LogFormat, typer.Option(help="text, or one JSON object per line with its time in UTC")
    ] = LogFormat.text,
) -> None:
    """Run a collector until Ctrl-C or SIGTERM. Reports are acknowledged only after they are on disk.

    Any number of collectors may share one PostgreSQL, on one machine (--workers) or on many; an SQLite file takes one process.

    Examples: dither serve --store collector.db; dither serve --store postgresql://dither@/dither --workers 4
    """
    if any(find_spec(module) is None for module in _NEEDED):
        raise InputError("the collector needs the extra 'server': pip install 'dither[server]'")
    if workers > 1 and not store.startswith(("postgresql:", "postgres:")):
        raise InputError(
            f"--workers {workers} needs a postgresql:// store; an SQLite file takes one process",
            where="--workers",
        )
    address = collector.check_public_url(public_url)
    given = [collector.check_public_url(origin, "--embed-origin") for origin in embed_origin or ()]
    origins = tuple(origin for origin in given if origin)
    logs = collector.Logging(log_level.value, log_format is LogFormat.json)
    sockets = collector.listen(host, port)  # first, so that a port in use leaves no files
    try:
        key = collector.admin_key(key_file)
        print(f"dither: admin key in {key_file}", file=sys.stderr)
        if workers == 1:
            collector.serve(
                *(store, key, sockets, queue, connections),
                pages=collector.add_pages,
                public_url=address,
                logs=logs,
                origins=origins,
            )
        else:
            collector.serve_workers(
                *(workers, store, key, sockets, queue, connections),
                *(collector.add_pages, address, logs, origins),
            )
    finally:
        for listening in sockets:
            listening.close()
