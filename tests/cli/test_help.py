"""Help is one step away: usage errors name it, shells complete, and the page of all commands is what the commands say."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import pytest
from tools.command_line import PAGE, commands, page
from typer.main import get_command

import dither
from dither.cli import VERBS, build, run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["campaign", "create", "--epsilon", "2"],
            "Missing option '--participants'. (see 'dither campaign create --help')",
        ),
        (["schema", "infer", "t.csv", "--nosuch"], "(see 'dither schema infer --help')"),
        (["campaign", "nosuch"], "No such command 'nosuch'. (see 'dither campaign --help')"),
        (["publish", "adult", "--epsilon", "x", "-o", "out"], "(see 'dither publish --help')"),
        (["nosuch"], "No such command 'nosuch'. (see 'dither --help')"),
    ],
)
def test_a_usage_error_points_to_the_help_of_that_very_command(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert said.rstrip().endswith(message)
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("publish --help", ("[required]", "[default: as many as participants]")),
        ("tally --help", ("[default: as Spark is configured, else this machine]",)),
        ("campaign create --help", ("[default: arrival]", "[default: the name, else the id]")),
    ],
)
def test_what_stands_in_brackets_is_shown(
    words: str,
    shown: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run(words.split()) == 0
    said = capsys.readouterr().out
    for remark in shown:
        assert remark in said
    assert "\\[" not in said


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("_DITHER_COMPLETE", "complete_bash")
    return monkeypatch


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("dither ", {verb for verb in VERBS if " " not in verb}),
        ("dither hist", {"histogram"}),
        ("dither pu", {"publish"}),
        ("dither publish", {"publish"}),
        ("dither campaign cl", {"close-round"}),
        ("dither publish --repl", {"--replicates"}),
        ("dither publish adult --path ", {"counts", "reports"}),
    ],
)
def test_a_shell_hears_what_could_come_next(
    typed: str, offered: set[str], asking: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asking.setenv("COMP_WORDS", typed)
    asking.setenv("COMP_CWORD", str(len(typed.split()) - (not typed.endswith(" "))))
    assert run([]) == 0
    assert set(capsys.readouterr().out.split()) == offered


def test_zsh_asks_in_its_own_way(
    asking: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asking.setenv("_DITHER_COMPLETE", "complete_zsh")
    asking.setenv("_TYPER_COMPLETE_ARGS", "dither campaign sta")
    assert run([]) == 0
    assert '"status"' in capsys.readouterr().out


@pytest.mark.slow
def test_verbs_are_completed_without_loading_what_they_do() -> None:
    code = "import sys; from dither.cli import run; run([]); print('numpy' in sys.modules, file=sys.stderr)"
    asked = {
        **os.environ,
        "_DITHER_COMPLETE": "complete_bash",
        "COMP_WORDS": "dither ev",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr.strip()) == (["evaluate"], "False")


def test_the_page_of_commands_is_what_they_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "run: python -m tools.command_line"


def test_the_page_omits_no_verb_and_no_option() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = set(get_command(build(None)).commands)  # type: ignore[attr-defined]
    said = [path.removeprefix("dither ") for path, _ in commands()]
    assert shown == set(VERBS) == {name if name in VERBS else name.split()[0] for name in said}
    for path, command in commands():
        section = text.partition(f"### `{path}`\n")[2].partition("\n### ")[0]
        assert all(
            one.opts[-1] in section
            for one in command.params
            if one.opts[-1].startswith("--") and one.name != "help"
        )
    assert "run: python" not in text
    assert (
        page(text.replace("`dither publish`", "`dither publsh`")) == text
    )  # what somebody changed by hand is put right


def test_what_needs_nothing_runs_and_shows_no_help_instead() -> None:
    every = dict(commands())
    for path, command in every.items():
        assert command.no_args_is_help == any(one.required for one in command.params), path
    assert not every["dither serve"].no_args_is_help
    assert every["dither publish"].no_args_is_help


def test_help_names_the_version_and_shows_no_type_of_a_flag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "--version" in shown
    assert "<bool>" not in shown
    for words in (["publish"], ["campaign", "create"]):
        assert run([*words, "--help"]) == 0
        assert "<bool>" not in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"dither {dither.__version__}\n"


@pytest.mark.parametrize("columns", ["80", "120"])
def test_paragraphs_are_wrapped_at_the_width_of_the_terminal(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["publish", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("Writes synthetic.parquet"))
    paragraph = lines[start : lines.index("", start)]
    # No line but the last could take the next line's first word.
    for line, following in pairwise(paragraph):
        assert len(line) + 1 + len(following.split()[0]) > int(columns) - 2


def test_benchmarks_outside_a_clone_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dither.cli.bench._names", list)
    monkeypatch.setattr("dither.cli.bench.usable", lambda *_: ({}, []))
    assert run(["bench", "list"]) == 2
    said = capsys.readouterr().err
    assert "run this from a clone" in said
    assert said.count("\n") == 1
