"""docs/papers.md and `dither papers`: every file, function, test and command exists, figures are the stored ones."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
from tools import papers as source

from benchmarks import results
from dither.cli import command, run
from dither.lab.papers import SOURCE, Part, markdown, papers

ROOT = Path(__file__).resolve().parents[1]
PARTS = [(paper.name, part) for paper in papers() for part in paper.parts]
NAMES = [f"{name}: {part.part}" for name, part in PARTS]
NOT_HAD = ("not possible", "not used")


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
        stored = results.load().get(words[2], {"studies": []})
        studies = {study["name"] for study in stored["studies"]}
        there = (ROOT / "benchmarks" / f"{words[2]}.py").is_file()
        return there and set(words[4:]) <= studies and words[3:4] in ([], ["--study"])
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
    for command_line in ("dither publish adult --no-such", "dither bench lopub --study no"):
        assert not _command_exists(Part("x", "", "", command_line, "", "", ""))


TEMPLATE = [
    line.split(" | ")
    for line in source.TEMPLATE.read_text(encoding="utf-8").splitlines()
    if line and not line.startswith(("[", "#"))
]
# What is no claim: code, conditions such as "f = 0.1, 0.5", numbers of errata and names of parts.
NO_CLAIM = (
    r"`[^`]*`",
    r"\b(?:f|k|T|N|v|mu|phi|tau|omega|sigma|cells|queries|consumers) = [\d.,]*\d(?:, [\d.,]*\d)*",
    r"\bepsilon \d[\d.]*(?:, \d[\d.]*)*(?![\w.])",
    r"\beq\. \d+",
    r"\berrat(?:um|a) \d+(?: and \d+)*",
)


def typed_figures(text: str) -> list[str]:
    """Numbers of a cell that stand in the source itself, not behind a reference."""
    text = source.REFERENCE.sub("", text)
    for pattern in NO_CLAIM:
        text = re.sub(pattern, "", text)
    return re.findall(r"(?<![\w^-])\d[\d,]*(?:\.\d+)?", text)


def test_both_texts_are_what_the_source_and_the_stored_results_give() -> None:
    text = source.filled(source.TEMPLATE.read_text(encoding="utf-8"), results.load())
    assert SOURCE.read_text(encoding="utf-8") == text, "run python -m tools.papers"
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert page == markdown(), "run python -m tools.papers"


@pytest.mark.parametrize("cells", TEMPLATE, ids=[f"{i} {c[0]}" for i, c in enumerate(TEMPLATE)])
def test_no_figure_is_typed(cells: list[str]) -> None:
    """Ours come from results.json or are an erratum's, whose test shows them; the papers' from printed.json."""
    *_, paper, published, best = cells
    assert typed_figures(paper) == []
    errata = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8").splitlines()
    for cell in (published, best):
        numbers = re.findall(r"\d+", " ".join(re.findall(r"errat(?:um|a) ([\d and]+)", cell)))
        shown = " ".join(line for n in numbers for line in errata if line.startswith(f"| {n} |"))
        for figure in typed_figures(cell):
            assert figure in shown or cells[0].startswith("dataset"), (figure, cell)


def test_a_typed_figure_would_be_found() -> None:
    assert typed_figures("0.735 (epsilon 1, 4, 8)") == ["0.735"]
    assert typed_figures("20 edges, 1.5 s at f = 0.1, 0.5 (erratum 12)") == ["20", "1.5"]
    assert typed_figures('{{["a/b", "c", {"d": 0.5}]}} (T = 1, 2; `x=3`)') == []


def test_a_changed_result_changes_the_page_and_a_missing_one_is_named() -> None:
    stored = results.load()
    line = '{{["published/table_2", "tvd_2", {"method": "privincr@published", "epsilon": [1.0, 4.0]}]}}'
    before = source.filled(line, stored)
    assert re.fullmatch(r"0\.\d{3}, 0\.\d{3}", before)
    for figure in stored["published"]["figures"]:
        figure["mean"] += 0.1
    assert source.filled(line, stored) != before
    with pytest.raises(KeyError, match="0 figures in published/table_2 have tvd_9"):
        source.filled(line.replace("tvd_2", "tvd_9"), stored)
    with pytest.raises(KeyError, match="no privincr / table 3"):
        source.filled('{{["printed", "privincr", "table 3", "x"]}}', stored)
    assert (
        source.filled('{{["printed", "privincr", "table 2", "privincr", ["1", "8"]]}}', {})
        == "0.162, 0.04"
    )


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
