"""The command line: one file a verb, no formulas. Status 0 success, 2 usage or input error in one line, 1 failure."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

# verb -> module in this package and function in it; a module is imported when its verb is used, so that `dither --help`
# and errors stay quick.
VERBS: dict[str, str] = {
    "publish": "publish:publish",
    "plan": "plan:plan",
    "evaluate": "evaluate:evaluate",
    "methods": "methods:methods",
    "audit": "audit:audit",
    "schema": "schema:app",
    "histogram": "histogram:histogram",
    "central": "central:central",
    "bench": "bench:bench",
    "serve": "serve:serve",
    "campaign": "campaign:app",
    "submit": "submit:submit",
}


def _load(target: str) -> Any:
    module, name = target.split(":")
    return getattr(import_module(f"dither.cli.{module}"), name)


def build(verbs: list[str]) -> Any:
    """A Typer application with these verbs."""
    import typer

    app = typer.Typer(
        name="dither",
        help="Learn from people's records without ever holding them: local differential privacy, from reports to tables.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_no_options)
    for verb in verbs:
        loaded = _load(VERBS[verb])
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=verb)
        else:
            app.command(verb, no_args_is_help=verb not in ("methods",))(loaded)
    return app


def _no_options() -> None:
    """Learn from people's records without ever holding them: local differential privacy, from reports to tables."""


def run(arguments: list[str]) -> int:
    """Run one command and give its exit status."""
    import typer

    from dither.errors import DitherError, InputError

    # Typer carries its own copy of Click, or imports it; either way this is its usage error.
    usage_error: Any = typer.BadParameter.__mro__[1]
    if arguments[:1] == ["--version"]:
        import dither

        print(f"dither {dither.__version__}")
        return 0
    verbs = [arguments[0]] if arguments and arguments[0] in VERBS else list(VERBS)
    try:
        result = build(verbs)(arguments, standalone_mode=False)
    except usage_error as error:
        message = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":
            print(message)
            return 2
        hint = f" (see 'dither {verbs[0]} --help')" if len(verbs) == 1 else " (see 'dither --help')"
        return _complain(" ".join(message.split()) + hint, 2)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted; nothing was written", 1)
    except InputError as error:
        return _complain(str(error), 2)
    except DitherError as error:
        return _complain(str(error), 1)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror or error}{place}", 1)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    return result if isinstance(result, int) else 0


def _complain(message: str, status: int) -> int:
    print(f"dither: {message}", file=sys.stderr)
    return status


def main() -> None:
    """The `dither` command."""
    raise SystemExit(run(sys.argv[1:]))
