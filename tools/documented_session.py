"""Runs a page's commands and Python, in this process where they need no shell."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dither.cli import run
from tools.documented import BadPage, Block, Command, agrees, blocks, published

_SHELL = re.compile(r"[|><&;`*]|\$\(|^\w+=|^\. ")
_ASSIGNED = re.compile(r"(\w+)=\$\((.*)\)$")
PATIENCE = 120.0  # seconds, for a collector to answer on a loaded machine


class Shelf:
    """Published releases, for later pages that run the same command."""

    def __init__(self) -> None:
        self._kept = tempfile.TemporaryDirectory(prefix="documented-")
        self._places: dict[str, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._kept.cleanup()

    def take(self, words: str, target: Path) -> bool:
        """Copy the release of this command, if there is one."""
        if words not in self._places:
            return False
        shutil.copytree(self._places[words], target, dirs_exist_ok=True)
        return True

    def keep(self, words: str, source: Path) -> None:
        """Keep a release."""
        self._places[words] = Path(self._kept.name) / str(len(self._places))
        shutil.copytree(source, self._places[words])


class Session:
    """One page: its folder, its variables and the collector it has started."""

    def __init__(self, folder: Path, shelf: Shelf) -> None:
        self.folder, self.shelf = folder, shelf
        self.variables = {**os.environ, "COLUMNS": "80", "TMPDIR": str(folder.parent)}
        self.variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.names: dict[str, Any] = {"__name__": "page"}
        self._collector: subprocess.Popen[bytes] | None = None

    def run(self, words: str) -> tuple[int, str]:
        """Return the exit status, stdout and stderr."""
        assigned = _ASSIGNED.match(words)
        if assigned:
            status, said = self.run(assigned[2])
            # A shell's $(...) has standard output only; messages begin with "dither:".
            lines = [line for line in said.splitlines() if not line.startswith("dither:")]
            self.variables[assigned[1]] = "\n".join(lines).strip()
            return status, said
        if words.startswith("dither serve"):
            return self._serve(shlex.split(words, comments=True))
        if words.startswith("dither ") and not _SHELL.search(
            re.sub(r"\"[^\"]*\"|'[^']*'|#.*", "", words)
        ):
            return self._in_process(shlex.split(self._filled(words), comments=True)[1:])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", words],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def run_python(self, block: Block) -> None:
        """Run a block with the names of the page's earlier blocks."""
        printed = io.StringIO()
        with (
            _living_in(self.folder, self.variables),
            contextlib.redirect_stdout(printed),
            contextlib.ExitStack() as changed,
            warnings.catch_warnings(),
        ):
            # Warnings about the reader's table are not part of the page.
            warnings.simplefilter("ignore")
            exec("import dither\n" + "\n".join(block.given), self.names)
            for function, keywords in block.options.items():
                changed.enter_context(
                    _with_keywords(function, eval(f"dict({keywords})", self.names))
                )
            shown = "\n" * (block.line - 1) + block.body  # so that lines have their numbers
            exec(compile(shown, "the page", "exec", dont_inherit=True), self.names)

    def _filled(self, words: str) -> str:
        return re.sub(r"\$(\w+)", lambda name: self.variables[name[1]], words)

    def _in_process(self, arguments: list[str]) -> tuple[int, str]:
        release = published(arguments)
        if release is not None and self.shelf.take(
            release, self.folder / arguments[arguments.index("-o") + 1]
        ):
            return 0, ""
        said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with (
            _living_in(self.folder, self.variables),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            status = run(arguments)
        if release is not None and status == 0:
            self.shelf.keep(release, self.folder / arguments[arguments.index("-o") + 1])
        return status, said.buffer.getvalue().decode()  # type: ignore[attr-defined]

    def _serve(self, arguments: list[str]) -> tuple[int, str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "dither", *arguments[1:], "--port", str(port)]
        self.variables["DITHER_URL"] = f"http://127.0.0.1:{port}"
        with (self.folder / "serve.log").open("wb") as log:
            self._collector = subprocess.Popen(
                command, cwd=self.folder, env=self.variables, stdout=log, stderr=log
            )
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._collector.poll() is None:
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"{self.variables['DITHER_URL']}/ready", timeout=10).close()
                return 0, ""
            time.sleep(0.1)
        return 1, (self.folder / "serve.log").read_text(encoding="utf-8")

    def close(self) -> None:
        """Stop the collector."""
        if self._collector is not None:
            self._collector.terminate()
            self._collector.wait(PATIENCE)


def run_page(page: Path, shelf: Shelf, *, rewrite: bool = False) -> str:
    """Run a page's commands; return its text, with their output if `rewrite` is set."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="page-") as scratch:
        folder = Path(scratch) / "here"
        folder.mkdir()
        session = Session(folder, shelf)
        try:
            for block in blocks(text, str(page)):
                text = _run_block(block, session, str(page), text, rewrite)
        finally:
            session.close()
    return text


def _run_block(block: Block, session: Session, page: str, text: str, rewrite: bool) -> str:
    if block.saved_as is not None:
        (session.folder / block.saved_as).write_text(block.body, encoding="utf-8")
        return text
    for words in block.before:
        _must(session, words, f"{page}:{block.line}")
    if block.python and block.reason is None:
        try:
            session.run_python(block)
        except Exception:
            raise BadPage(
                f"{page}:{block.line}: this Python ended with\n{traceback.format_exc(limit=-1)}"
            ) from None
    for command in filter(block.runs, block.commands):
        said = _must(session, block.words(command), f"{page}:{command.line}")
        if command.expected is None or agrees(command.expected, said):
            continue
        if not rewrite:
            raise BadPage(
                f"{page}:{command.line}: {command.text}\nshows\n{command.expected}\nbut prints\n{said}"
                f"(python -m tools.documented --write {page} puts it there)"
            )
        text = text.replace(command.expected, _shown(command, said))
    return text


def _must(session: Session, words: str, where: str) -> str:
    status, said = session.run(words)
    if status:
        raise BadPage(f"{where}: {words}\nended with status {status} and said\n{said}")
    return said


def _shown(command: Command, said: str) -> str:
    return "\n".join(line.rstrip() for line in said.strip().splitlines())


@contextlib.contextmanager
def _with_keywords(function: str, keywords: dict[str, Any]) -> Iterator[None]:
    """A module's function with these keywords added to each call."""
    module, _, name = function.rpartition(".")
    place = import_module(module)
    real = getattr(place, name)
    setattr(place, name, lambda *given, **more: real(*given, **{**more, **keywords}))
    try:
        yield
    finally:
        setattr(place, name, real)


@contextlib.contextmanager
def _living_in(folder: Path, variables: dict[str, str]) -> Iterator[None]:
    """Change to the folder and set these environment variables for a while."""
    before, environment = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)
