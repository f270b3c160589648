"""The command line, without formulas. Status 0 success, 2 usage or input error in one line, 1 failure.

A command's module imports what it needs at its top; it is loaded when its verb is used, so that `dither --help` stays quick.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import typer
from typer.main import get_command

import dither
from dither.errors import DitherError, InputError

ABOUT = "Learn from people's records without ever holding them: local differential privacy, from reports to tables."

COMPLETION = (
    "_DITHER_COMPLETE"  # what the scripts of `dither --install-completion` set when they ask
)
INTERRUPTED = 130  # what Typer makes of Ctrl-C, without a word

# verb -> module in this package and function in it, what `dither --help` says of it
VERBS: dict[str, tuple[str, str]] = {
    "publish": (
        "publish:publish",
        "Publish a table under local differential privacy, each row a simulated participant.",
    ),
    "query": ("query:query", "Ask a release: shares, tables, means and quantiles with intervals."),
    "plan": ("plan:plan", "Predict the error of a collection before anybody is asked."),
    "evaluate": ("evaluate:evaluate", "Compare a synthetic table with a real one."),
    "compare": ("compare:compare", "Run methods on your own table and compare what comes out."),
    "methods": (
        "plan:methods",
        "List the methods, what each asks, its parameters and its reference.",
    ),
    "audit": ("audit:audit", "Check that a mechanism keeps its epsilon."),
    "schema": ("schema:schemas", "Schema files: the public domain of each attribute."),
    "histogram": (
        "histogram:histogram",
        "Histograms of a numeric column, for several consumers with bins of their own; its ranges and quantiles.",
    ),
    "histogram ask": (
        "number_questions:ask",
        "Ask a saved histogram for other bins, ranges and quantiles.",
    ),
    "central": (
        "central:central",
        "Release columns under central differential privacy: you hold the whole table.",
    ),
    "bench": ("bench:bench", "Rerun a benchmark from a clone of the repository."),
    "serve": ("serve:serve", "Run a collector."),
    "campaign": ("campaign:app", "Campaigns of a running collector (see 'dither serve')."),
    "key": (
        "key:app",
        "Keys of a running collector: who may change campaigns, and who may only look.",
    ),
    "tally": ("tally:tally", "Count exported reports, here or on a Spark cluster."),
    "submit": ("submit:submit", "Send a table's rows to a collector as simulated participants."),
}


def build(verb: str | None) -> typer.Typer:
    """A Typer application with one verb, or with the names of all for want of one."""
    app = typer.Typer(
        name="dither",
        help=ABOUT,
        no_args_is_help=True,
        add_completion=verb is None or _completing(),
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_nothing)
    if verb is None:
        for name, (_, summary) in VERBS.items():
            if not (_completing() and " " in name):  # a shell completes one word
                app.command(name, help=summary)(_nothing)
        return app
    target, summary = VERBS[verb]
    module, name = target.split(":")
    loaded = getattr(import_module(f"dither.cli.{module}"), name)
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=verb, help=summary)
    else:
        # What needs nothing, such as 'dither serve', just runs.
        needs = any(
            each.default is Parameter.empty for each in signature(loaded).parameters.values()
        )
        app.command(verb, no_args_is_help=needs)(loaded)
    return app


def command(verb: str) -> Any:
    """The command of a verb, or the group of its commands, as Typer's own Click has it."""
    whole: Any = get_command(build(verb))
    return whole.commands[verb]


def _with_brackets(found: Any) -> Any:
    """The command, with help texts that keep what stands in brackets, such as [default: all], which Rich would take for markup."""
    for option in found.params:
        if getattr(option, "help", None):
            option.help = re.sub(r"\[(?=[a-z])", r"\\[", option.help)
    for each in getattr(found, "commands", {}).values():
        _with_brackets(each)
    return found


def _completing() -> bool:
    """Whether a shell asks what could come next, rather than a person for something to be done."""
    return COMPLETION in os.environ


def _words(arguments: list[str]) -> list[str]:
    """What was typed: by a person, or as far as a shell tells that asks for a completion."""
    if not _completing():
        return arguments
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return typed.split()[1:]


def _nothing() -> None:
    """Takes no options and does nothing."""


def run(arguments: list[str]) -> int:
    """Run one command and give its exit status."""
    # Typer carries its own copy of Click, or imports it; either way this is its usage error.
    usage_error: Any = typer.BadParameter.__mro__[1]
    if arguments[:1] == ["--version"]:
        print(f"dither {dither.__version__}")
        return 0
    if " ".join(arguments[:2]) in VERBS:  # a verb of two words
        arguments = [" ".join(arguments[:2]), *arguments[2:]]
    words = _words(arguments)
    # A verb that is still being typed may be the beginning of another one.
    verb = (
        words[0]
        if words and words[0] in VERBS and not (_completing() and len(words) == 1)
        else None
    )
    try:
        result = _with_brackets(get_command(build(verb)))(
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
        result = INTERRUPTED
    except InputError as error:
        return _complain(_with_flags(str(error), verb), 2)
    except DitherError as error:
        return _complain(str(error), 1)
    except MemoryError:
        return _complain(
            "there is not enough memory for so many people, rows or cells; ask for fewer", 1
        )
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror or error}{place}", 1)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    if result == INTERRUPTED:
        return _complain("interrupted; nothing was half-written", 1)
    return result if isinstance(result, int) else 0


def _with_flags(message: str, verb: str | None) -> str:
    """A message of the library, which speaks of arguments, in the words of the command: `no_privacy` becomes `--no-privacy`."""
    for option in command(verb).params if verb else ():
        if "_" in option.name.strip("_"):
            # Not inside quotes, where the user's own words stand.
            message = re.sub(rf"(?<![\w'\"]){option.name}(?![\w'\"])", option.opts[-1], message)
    return message


def _complain(message: str, status: int) -> int:
    print(f"dither: {message}", file=sys.stderr)
    return status


def main() -> None:
    """The `dither` command."""
    raise SystemExit(run(sys.argv[1:]))
