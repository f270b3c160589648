"""docs/papers.md and `dither papers`: every file, function, test and command exists, figures are the stored ones."""

from __future__ import annotations

import ast
import json
import shlex
from pathlib import Path

import pytest

from benchmarks import results
from dither.cli import command, run
from dither.lab.papers import Part, markdown, papers

ROOT = Path(__file__).resolve().parents[1]
PARTS = [(paper.name, part) for paper in papers() for part in paper.parts]
NAMES = [f"{name}: {part.part}" for name, part in PARTS]
NOT_HAD = ("not possible", "not built", "not used")


def _defined(path: Path) -> set[str]:
    """The functions and classes at the top of a file."""
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, kinds)}


def _code_exists(part: Part) -> bool:
    file, _, name = part.code.partition(":")
    return (ROOT / file).is_file() and name in _defined(ROOT / file)


def _test_exists(part: Part) -> bool:
    file, _, name = part.test.partition("::")
    return (ROOT / file).is_file() and (not name or name in _defined(ROOT / file))


def _command_exists(part: Part) -> bool:
    """Whether the verb exists and takes the command's options."""
    words = shlex.split(part.command)
    if words[0] != "dither":
        return False
    if words[1] == "bench":
        return (ROOT / "benchmarks" / f"{words[2]}.py").is_file()
    known = {option for given in command(words[1]).params for option in given.opts}
    return {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize(("name", "part"), PARTS, ids=NAMES)
def test_every_part_names_what_exists(name: str, part: Part) -> None:
    assert not part.code or _code_exists(part), part.code
    assert not part.test or _test_exists(part), part.test
    assert not part.command or _command_exists(part), part.command


@pytest.mark.parametrize(("name", "part"), PARTS, ids=NAMES)
def test_a_part_without_code_and_test_says_why(name: str, part: Part) -> None:
    if not part.code and not part.test:
        assert part.published.startswith(NOT_HAD)


def test_a_wrong_name_would_be_found() -> None:
    wrong = Part(
        "x", "src/dither/_publish.py:nothing", "tests/a.py::b", "dither bench no", "", "", ""
    )
    assert not _code_exists(wrong)
    assert not _test_exists(wrong)
    assert not _command_exists(wrong)
    option = Part("x", "", "", "dither publish adult --no-such", "", "", "")
    assert not _command_exists(option)


def test_the_page_is_what_the_source_gives() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert page == markdown(), "run python -m tools.papers"


# Part -> column, benchmark, study, and the labels of the figures in it.
EPSILONS = [{"epsilon": e} for e in (1.0, 4.0, 8.0)]
LARGE = [{"epsilon": e} for e in (30.0, 165.0, 442.0)]
ROUNDS = [{"rounds": t} for t in (1, 2, 4, 6, 10)]
STORED = {
    "lopub: whole method on Adult (PrivIncr's table 2)": (
        ("published", "published", "table_2", {"method": "lopub@published", "source": None}, EPSILONS),
        ("best", "published", "lopub", {}, EPSILONS[:2]),
    ),
    "privincr: table 2, PrivIncr at epsilon 1, 4, 8": (
        ("published", "published", "table_2", {"method": "privincr@published", "source": None}, EPSILONS),
        (
            "best",
            "privincr",
            "table_2",
            {"method": "privincr", "dataset": "Adult", "participants": 1_500_000},
            EPSILONS,
        ),
    ),
    "privincr: table 2, NoIncremental": (
        ("published", "published", "table_2", {"method": "noincremental@published", "source": None}, EPSILONS),
    ),
    "privincr: table 2, epsilon 30, 165, 442": (
        ("published", "published", "table_2", {"method": "privincr@published", "source": None}, LARGE),
    ),
    "privincr: figure 4a, error and the number of rounds": (
        ("published", "published", "rounds", {"rule": "eq. 15 in bits, cliques whole", "epsilon": 4.0}, ROUNDS),
    ),
    "privincr: NoPrivJTree": (
        ("published", "published", "trees", {}, [{"unit": "nats"}, {"unit": "bits"}]),
    ),
    "bayesnet: whole method, one record's epsilon 8": (
        (
            "published",
            "published",
            "methods",
            {"method": "bayesnet@published", "epsilon": 8.0},
            [{"dataset": "Adult"}, {"dataset": "NLTCS"}],
        ),
        (
            "best",
            "published",
            "methods",
            {"method": "bayesnet", "epsilon": 8.0},
            [{"dataset": "Adult"}, {"dataset": "NLTCS"}],
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STORED)
def test_figures_are_those_of_the_stored_results(name: str) -> None:
    stored, part = results.load(), dict(zip(NAMES, (p for _, p in PARTS), strict=True))[name]
    for column, bench, study, common, each in STORED[name]:
        figures = [results.find(stored, bench, study, "tvd_2", **common, **one) for one in each]
        text = getattr(part, column)
        for figure in figures:
            assert f"{figure:.3f}" in text, (column, [f"{f:.3f}" for f in figures])


def test_the_command_prints_one_paper_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["papers", "chp"]) == 0
    out = capsys.readouterr().out
    assert "Basic RAPPOR" in out
    assert "PrivIncr" not in out
    assert run(["papers", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [paper["name"] for paper in listed] == ["lopub", "bayesnet", "privincr", "csm", "chp"]
    assert run(["papers", "rappor"]) == 2
    assert "no paper 'rappor'" in capsys.readouterr().err
