"""The command line. Exit status 0 for success, 2 for a usage or input error, 1 for a failure.

The module of a command is loaded when the command is used, so that `dither --help` is quick.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from inspect import Parameter, cleandoc, signature
from typing import Annotated, Any

import typer
from typer.main import get_command

import dither
from dither.display import printable
from dither.errors import DitherError, InputError

ABOUT = (
    "Learn from people's records without holding them: local differential privacy, "
    "from reports to tables."
)
# Set by the scripts of `dither --install-completion`.
_COMPLETION = "_DITHER_COMPLETE"
# Typer's exit status after Ctrl-C.
_INTERRUPTED = 130

# Verb -> module of this package and function in it, summary in `dither --help`.
VERBS: dict[str, tuple[str, str]] = {
    "publish": (
        "publish:publish",
        "Publish a table under local differential privacy, each row as a simulated participant.",
    ),
    "query": (
        "query:query",
        "Query a release: shares, tables, means and quantiles with intervals.",
    ),
    "plan": ("plan:plan", "Predict the error of a collection before it starts."),
    "evaluate": ("evaluate:evaluate", "Compare a synthetic table with a real one."),
    "compare": ("compare:compare", "Run several methods on a table and compare the results."),
    "methods": (
        "plan:methods",
        "List the methods with their questions, parameters and references.",
    ),
    "audit": ("audit:audit", "Check the epsilon of a mechanism."),
    "schema": ("schema:schemas", "Schema files: the public domain of each attribute."),
    "histogram": (
        "histogram:histogram",
        "Make histograms of a numeric column for several consumers; answer ranges and quantiles.",
    ),
    "histogram ask": (
        "number_questions:ask",
        "Query a saved histogram: other bins, ranges and quantiles.",
    ),
    "panel": (
        "panel:panel",
        "Simulate a panel: answers that change over time, with one lifetime guarantee.",
    ),
    "discover": (
        "discover:discover",
        "Find the frequent values of a text column that no schema lists.",
    ),
    "central": (
        "central:central",
        "Release columns under central differential privacy, as the holder of the table.",
    ),
    "bench": ("bench:bench", "Rerun a benchmark from a clone of the repository."),
    "papers": (
        "papers:papers",
        "List the parts of the implemented papers with code, tests, commands and figures.",
    ),
    "scripts": ("scripts:scripts", "List the scripts of participants' pages with their hashes."),
    "serve": ("serve:serve", "Run a collector."),
    "campaign": ("campaign:app", "Manage campaigns of a running collector (see 'dither serve')."),
    "key": (
        "key:app",
        "Manage keys of a running collector: who may change campaigns, who may only read.",
    ),
    "store": ("store:app", "Check, back up and restore the store of a collector."),
    "tally": ("tally:tally", "Count exported reports, on this machine or on a Spark cluster."),
    "submit": ("submit:submit", "Send a table's rows to a collector as simulated participants."),
}


def build(verb: str | None) -> typer.Typer:
    """A Typer application with one verb, or with the names of all if `verb` is None."""
    app = typer.Typer(
        name="dither",
        help=ABOUT,
        no_args_is_help=True,
        add_completion=verb is None or _completing(),
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    if verb is None:
        for name, (_, summary) in VERBS.items():
            # A shell completes one word.
            if not (_completing() and " " in name):
                app.command(name, help=summary)(_nothing)
        return app
    target, summary = VERBS[verb]
    module, name = target.split(":")
    loaded = getattr(import_module(f"dither.cli.{module}"), name)
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=verb, help=summary)
    else:
        # A command without required options, such as 'dither serve', runs without arguments.
        options = signature(loaded).parameters.values()
        required = any(option.default is Parameter.empty for option in options)
        app.command(verb, no_args_is_help=required)(loaded)
    return app


def command(verb: str) -> Any:
    """The Click command of a verb, or the group of its commands."""
    whole: Any = get_command(build(verb))
    return whole.commands[verb]


def _readable(group: Any) -> Any:
    """Prepare the help of a command and its subcommands for Rich.

    - Brackets, such as [default: all], are escaped: Rich would read them as markup.
    - Lines of a paragraph are joined, so that each terminal wraps them at its own width.
    - Flags show no type.
    """
    if group.help:
        group.help = re.sub(r"(?<!\n)\n(?!\n)[ ]*", " ", cleandoc(group.help))
    of_help = group.get_help_option(typer.Context(group, **group.context_settings))
    for option in [*group.params, *([] if of_help is None else [of_help])]:
        if getattr(option, "help", None):
            option.help = re.sub(r"\[(?=[a-z])", r"\\[", option.help)
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for each in getattr(group, "commands", {}).values():
        _readable(each)
    return group


def _completing() -> bool:
    """Whether a shell asks for completions."""
    return _COMPLETION in os.environ


def _words(arguments: list[str]) -> list[str]:
    """The words that were typed, also where a shell asks for completions."""
    if not _completing():
        return arguments
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return typed.split()[1:]


def _nothing() -> None:
    """A command whose module is not loaded yet."""


def _top(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """The options of `dither` itself; `run` answers --version without loading a command."""


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    # The usage error of the Click that Typer uses, which may be a copy inside Typer.
    usage_error: Any = typer.BadParameter.__mro__[1]
    if arguments[:1] == ["--version"]:
        print(f"dither {dither.__version__}")
        return 0
    # A verb may have two words.
    if " ".join(arguments[:2]) in VERBS:
        arguments = [" ".join(arguments[:2]), *arguments[2:]]
    words = _words(arguments)
    verb = words[0] if words and words[0] in VERBS else None
    if _completing() and len(words) == 1:
        # A verb that is still being typed may be the beginning of another one.
        verb = None
    try:
        result = _readable(get_command(build(verb)))(
            arguments, prog_name="dither", standalone_mode=False
        )
    except usage_error as error:
        message = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":
            print(message)
            return 2
        path = error.ctx.command_path if error.ctx is not None else "dither"
        return _complain(f"{' '.join(message.split())} (see '{path} --help')", 2)
    except (typer.Abort, KeyboardInterrupt):
        result = _INTERRUPTED
    except InputError as error:
        return _complain(_with_flags(str(error), verb), 2)
    except DitherError as error:
        return _complain(str(error), 1)
    except MemoryError:
        return _complain("not enough memory; use fewer participants, rows or cells", 1)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror or error}{place}", 1)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    if result == _INTERRUPTED:
        return _complain("interrupted; nothing was half-written", _INTERRUPTED)
    return result if isinstance(result, int) else 0


def _with_flags(message: str, verb: str | None) -> str:
    """A message of the library with options for arguments: `no_privacy` -> `--no-privacy`."""
    for option in command(verb).params if verb else ():
        if "_" in option.name.strip("_"):
            # Not inside quotes: these are values of the user.
            message = re.sub(rf"(?<![\w'\"]){option.name}(?![\w'\"])", option.opts[-1], message)
    return message


def _complain(message: str, status: int) -> int:
    print(f"dither: {printable(message)}", file=sys.stderr)
    return status


def main() -> None:
    """The `dither` command."""
    raise SystemExit(run(sys.argv[1:]))
