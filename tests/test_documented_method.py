"""The package that docs/how-to/add-a-method.md builds, as it stands there, is found, run, and passes the contract suite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "add-a-method.md"
NAMES = ("pyproject.toml", "plain_method.py", "test_plain_method.py")
PATIENCE = 600  # seconds, for a machine with much else to do


def documented_files() -> dict[str, str]:
    """The page's files, by the order in which they stand there."""
    blocks = re.findall(
        r"```(?:toml|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S
    )
    return dict(zip(NAMES, blocks, strict=True))


def test_the_whole_package_is_at_most_sixty_lines() -> None:
    written = [
        line for text in documented_files().values() for line in text.splitlines() if line.strip()
    ]
    assert 30 < len(written) <= 60


def install(files: dict[str, str], site: Path) -> Path:
    """What an installer leaves: the modules, and beside them the metadata that the page's own pyproject.toml states.

    Done by hand, since a build needs a backend that may not be installed and no network is to be asked for one.
    """
    about = tomllib.loads(files["pyproject.toml"])
    project = about["project"]
    assert about["tool"]["hatch"]["build"]["targets"]["wheel"]["include"] == ["plain_method.py"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    for name in NAMES[1:]:
        (site / name).write_text(files[name], encoding="utf-8")
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    points = ConfigParser(delimiters=("=",))
    points.read_dict(project["entry-points"])
    with (info / "entry_points.txt").open("w", encoding="utf-8") as file:
        points.write(file)
    return site


@pytest.mark.slow
def test_the_page_s_package_is_found_and_passes_the_contract(tmp_path: Path) -> None:
    site = install(documented_files(), tmp_path / "site")
    own = os.environ | {"PYTHONPATH": str(site)}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=own,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    listed = {m["name"]: m for m in json.loads(call("-m", "dither", "methods", "--json").stdout)}
    assert listed["plain"]["asks"].startswith("one attribute")
    assert listed["plain"]["parameters"] == {"share": 1.0}
    assert listed["plain"]["reference"] == "plain-method 0.1"
    published = (
        "-m",
        "dither",
        "publish",
        "adult",
        "--epsilon",
        "4",
        "--method",
        "plain",
        "--columns",
        "sex,income",
    )
    call(*published, "--set", "share=0.5", "-o", "out", "--quiet")
    assert (
        json.loads((tmp_path / "out" / "release.json").read_text(encoding="utf-8"))["method"]
        == "plain"
    )
    suite = call("-m", "pytest", "-q", "-p", "no:cacheprovider", str(site / NAMES[-1]))
    assert "8 passed" in suite.stdout
