"""Runs the commands and the Python of the documentation, each page in an empty folder.

    python -m tools.documented docs/how-to/plan-a-collection.md            # run one page's commands
    python -m tools.documented --write docs/how-to/plan-a-collection.md    # and insert their output

A fenced block without a language (or with `sh` or `console`) is a session. Lines that begin
with `$ ` are commands, and the lines after a command are its expected output: `...` matches
any lines, or any part of a line. Without `$` every line is a command, and its output is not
shown. An HTML comment directly above a block gives instructions:

    not run: REASON                    the block is not run; the reason is required
    not run COMMAND: REASON            lines that begin with COMMAND are not run
    with COMMAND: OPTIONS              lines that begin with COMMAND get these options, to be fast
    before: COMMAND                    a shell command to run first
    as NAME                            the block is saved in a file of this name

Blocks of `python` run in this process, in order, with shared names, between the page's
commands and in the same folder. `not run` and `before` work as above, and also

    given: STATEMENT                   a Python statement to run first
    with FUNCTION: KEYWORDS            calls of this function (such as dither.publish) get these keywords

Examples with `>>>` are tested as docstrings, and the site's build runs notebooks.

`dither serve` runs in the background on a free port. Commands without shell syntax run in
this process; a release that an earlier page published with the same command is copied.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(
    r"(?:^(?P<outer> *)<!--(?P<note>(?:(?!-->).)*)-->\n)?"
    r"^(?P<room> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=room)```$",
    re.MULTILINE | re.DOTALL,
)
_ENTRY = re.compile(
    r"(?P<key>not run|with|before|given|as)\b(?P<command>[^:]*)(?::\s*(?P<value>.*))?$"
)
_NOTEBOOK = re.compile(r"\A---\njupytext:")


class BadPage(Exception):
    """A page whose commands print something else; the message names page, line and output."""


@dataclass(frozen=True)
class Command:
    """A command, its line number, and its expected output (None if the page shows none)."""

    text: str
    line: int
    expected: str | None = None


@dataclass(frozen=True)
class Block:
    """A fenced block: a session, Python, or text to save in a file."""

    line: int
    body: str
    commands: tuple[Command, ...] = ()
    saved_as: str | None = None
    reason: str | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    python: bool = False

    def runs(self, command: Command) -> bool:
        """Whether the command is run."""
        return self.reason is None and not any(
            command.text.startswith(prefix) for prefix in self.left_out
        )

    def words(self, command: Command) -> str:
        """The command with its additional options."""
        added = [
            options for prefix, options in self.options.items() if command.text.startswith(prefix)
        ]
        return " ".join([command.text, *added])


def blocks(text: str, page: str = "the page") -> list[Block]:
    """The blocks of a page, in order."""
    found = []
    sessions = ("", "sh", "console") if _NOTEBOOK.match(text) else ("", "sh", "console", "python")
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start("body")) + 1
        room = len(fence["room"])
        body = "".join(
            part[room:] if part.strip() else "\n"
            for part in fence["body"].splitlines(keepends=True)
        )
        python = fence["language"] == "python"
        block = _block(body, line, fence["note"], f"{page}:{line}", python)
        if block.saved_as is not None or (
            fence["language"] in sessions and not (python and body.startswith(">>> "))
        ):
            found.append(block)
    return found


def _block(body: str, line: int, note: str | None, where: str, python: bool) -> Block:
    reason, saved_as = None, None
    left_out: dict[str, str] = {}
    options: dict[str, str] = {}
    first: dict[str, list[str]] = {"before": [], "given": []}
    for entry in filter(None, map(str.strip, (note or "").splitlines())):
        read = _ENTRY.match(entry)
        if read is None:
            continue  # a remark of another kind
        key, command, value = read["key"], read["command"].strip(), (read["value"] or "").strip()
        if key == "as" and command:
            saved_as = command
        elif not value:
            raise BadPage(f"{where}: {entry!r} lacks what follows the colon")
        elif key in first:
            first[key].append(value)
        elif key == "with":
            options[command] = value
        elif command:
            left_out[command] = value
        else:
            reason = value
    commands = () if saved_as or python else tuple(_commands(body, line))
    for prefix in (*left_out, *options):
        if not (
            f"{prefix}(" in body
            if python
            else any(command.text.startswith(prefix) for command in commands)
        ):
            raise BadPage(
                f"{where}: the comment speaks of {prefix!r}, and no line {'calls' if python else 'begins with'} it"
            )
    before, given = map(tuple, first.values())
    return Block(line, body, commands, saved_as, reason, left_out, options, before, given, python)


def _commands(body: str, first: int) -> list[Command]:
    prompted = re.search(r"^\$ ", body, re.MULTILINE) is not None
    found: list[Command] = []
    lines = body.splitlines()
    at = 0
    while at < len(lines):
        start, text = at, lines[at]
        at += 1
        if prompted and not text.startswith("$ "):
            continue
        while text.endswith("\\") and at < len(lines):  # a command that goes on in the next line
            text = text[:-1] + lines[at].strip()
            at += 1
        shown = []
        while prompted and at < len(lines) and not lines[at].startswith("$ "):
            shown.append(lines[at])
            at += 1
        text = re.sub(r"\s+# .*", "", text.removeprefix("$ ")).strip()
        if text and not text.startswith("#"):
            found.append(
                Command(
                    text, first + start, "\n".join(shown) if any(map(str.strip, shown)) else None
                )
            )
    return found


def agrees(expected: str, printed: str) -> bool:
    """Whether the output agrees with the page, where `...` matches anything."""
    pattern = ""
    for line in expected.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n"
    return re.fullmatch(pattern, printed.strip() + "\n") is not None


def published(arguments: list[str]) -> str | None:
    """The words of a publishing command without its output folder; None for other commands."""
    if arguments[:1] != ["publish"] or "-o" not in arguments:
        return None
    at = arguments.index("-o")
    rest = arguments[1:at] + arguments[at + 2 :]
    given: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        given[word] = (
            rest.pop(0) if word.startswith("--") and rest and not rest[0].startswith("--") else ""
        )
    return shlex.join(f"{key} {value}" for key, value in sorted(given.items()))


def main(arguments: list[str]) -> int:
    """Run pages, or write their output into them."""
    from tools.documented_session import Shelf, run_page

    writing = arguments[:1] == ["--write"]
    with Shelf() as shelf:
        for name in arguments[writing:]:
            try:
                text = run_page(Path(name), shelf, rewrite=writing)
            except BadPage as error:
                print(error, file=sys.stderr)
                return 1
            if writing:
                Path(name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
