"""Wheel and source distribution: whole, and enough by themselves with nothing but what they ask for."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import dither

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAX_DEPENDENCIES = 12


def test_few_libraries_are_asked_for_and_extras_are_there() -> None:
    assert len(PROJECT["dependencies"]) <= MAX_DEPENDENCIES
    assert {"server", "spark", "sdmetrics", "notebook", "docs"} <= set(
        PROJECT["optional-dependencies"]
    )


def test_versions_of_python_are_those_that_are_checked() -> None:
    stated = [
        c.rpartition(" ")[2]
        for c in PROJECT["classifiers"]
        if c.startswith("Programming Language :: Python :: 3.")
    ]
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
    checked = re.search(r"python: \[(.*)\]", workflow)
    assert checked is not None
    assert re.findall(r"[\d.]+", checked[1]) == stated == ["3.11", "3.12", "3.13"]


def test_workflows_call_what_a_contributor_calls() -> None:
    targets = set(
        re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    text = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")
    )
    called = set(re.findall(r"run: make (\w+)", text))
    assert {"check", "test"} <= called <= targets


def test_the_citation_names_this_version() -> None:
    cited = re.search(
        r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert cited is not None
    assert cited[1] == dither.__version__


def needed(name: str, found: dict[str, Distribution]) -> None:
    """The installed distributions that one asks for, directly or through others, without extras."""
    for requirement in distribution(name).requires or []:
        wanted = re.split(r"[ ;<>=!~\[(]", requirement, maxsplit=1)[0]
        marker = requirement.partition(";")[2]
        if "extra ==" in marker or wanted in found:
            continue
        try:
            found[wanted] = distribution(wanted)
        except ModuleNotFoundError:  # of another system or another Python
            assert marker, requirement
            continue
        needed(wanted, found)


def linked(target: Path) -> None:
    """A folder of packages with what Dither asks for and nothing else, whatever is installed beside it."""
    target.mkdir()
    found: dict[str, Distribution] = {}
    needed("dither", found)
    for one in found.values():
        for top in {
            file.parts[0] for file in one.files or [] if file.parts[0] not in ("..", "__pycache__")
        }:
            source = Path(str(one.locate_file(top)))
            if source.exists() and not (target / top).exists():
                (target / top).symlink_to(source)


def run(site: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Python with the packages of one folder alone."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "HOME": str(cwd)}
    command = [sys.executable, "-S", *words]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_wheel_works_with_what_it_asks_for_and_nothing_else(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(dist)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as held:
        inside = set(held.namelist())
        (metadata,) = (name for name in inside if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(held.read(metadata))
        site = tmp_path / "site"
        linked(site)
        held.extractall(site)
    tracked = subprocess.run(
        ["git", "ls-files", "src/dither"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name.removeprefix("src/") for name in tracked} <= inside
    assert not [name for name in inside if name.endswith((".nbi", ".nbc", ".pyc"))]
    assert (
        len([r for r in told.get_all("Requires-Dist", []) if "extra ==" not in r])
        <= MAX_DEPENDENCIES
    )
    assert {"server", "spark", "sdmetrics", "notebook"} <= set(told.get_all("Provides-Extra", []))
    with tarfile.open(source) as held_source:
        members = {name.partition("/")[2] for name in held_source.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", *tracked} <= members

    done = run(
        site,
        "-m",
        "dither",
        "publish",
        "adult",
        "--method",
        "independent",
        "--epsilon",
        "4",
        "-o",
        "out",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert {"synthetic.parquet", "release.json", "report.html"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    assert (
        str(site) in run(site, "-c", "import dither; print(dither.__file__)", cwd=tmp_path).stdout
    )
    for verb in ("serve", "campaign", "tally"):
        helped = run(site, "-m", "dither", verb, "--help", cwd=tmp_path)
        assert helped.returncode in (0, 2), helped.stderr
        assert "Traceback" not in helped.stderr
    missing = run(site, "-c", "import fastapi", cwd=tmp_path)
    assert missing.returncode == 1  # no extra has crept in, or this test would show nothing


@pytest.mark.slow
def test_import_costs_less_than_that_of_numpy(tmp_path: Path) -> None:
    """Below 0.3 s everywhere cannot be measured on a loaded machine; less than one library that every user loads can."""

    def least(code: str) -> float:
        times = []
        for _ in range(7):
            before = os.times()
            subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
            after = os.times()
            times.append(
                after.children_user
                + after.children_system
                - before.children_user
                - before.children_system
            )
        return min(times)

    least("import dither, numpy")  # bytecode is written once
    assert least("import dither") < least("import numpy")
