"""Runs a collector until it is told to stop: no access log, no addresses, everything queued written before it ends."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
from pathlib import Path

from dither.collector.collector import Collector
from dither.collector.store import Store
from dither.errors import InputError

GRACE_SECONDS = 8  # for requests under way; the whole shutdown stays under ten
LEAST_KEY = 16


def open_store(address: str) -> Store:
    """The store at a file's path or a postgresql:// address."""
    if address.startswith(("postgresql:", "postgres:")):
        from dither.collector.postgres import open_postgres

        return open_postgres(
            address.replace("postgres:", "postgresql:", 1) if address.startswith("postgres:") else address
        )
    if "://" in address:
        raise InputError(
            f"the store {address!r} is neither a file nor a postgresql:// address", where="--store", value=address
        )
    from dither.collector.sqlite import open_sqlite

    return open_sqlite(address)


def admin_key(file: Path) -> str:
    """The key in a file, which is made, readable by its owner only, if it is not there."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_key(file)
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", where=str(file)) from None
    key = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w") as out:
        out.write(key + "\n")
    return key


def read_key(file: Path) -> str:
    """The key in a file."""
    try:
        key = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise InputError(
            f"cannot read the admin key in {file}; the server makes it when it first starts", where=str(file)
        ) from None
    if len(key) < LEAST_KEY:
        raise InputError(f"the admin key in {file} has fewer than {LEAST_KEY} characters", where=str(file))
    return key


def serve(store: str, key: str, host: str, port: int, queue_reports: int = 20_000) -> None:
    """Serve until SIGTERM or SIGINT, then return; prints the address once it listens.

    A second SIGINT does not wait for requests under way and ends the process with status 1.
    """
    import uvicorn

    from dither.collector.app import make_app

    class Announcing(uvicorn.Server):
        """Prints where it listens, which matters when the system chose the port."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for server in self.servers:
                for listening in server.sockets:
                    print("listening on http://{}:{}".format(*listening.getsockname()[:2]), flush=True)

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    app = make_app(lambda: Collector(open_store(store), queue_reports), key)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=30,
        lifespan="on",
    )
    server = Announcing(config)

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    # uvicorn raises the signals that it caught once more after it has stopped: without these handlers a graceful stop would
    # end as a kill. They also serve for a signal that comes just before uvicorn listens to them itself.
    earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run()
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    if server.force_exit:
        raise SystemExit(1)
