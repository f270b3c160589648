"""The README's Python examples type-check as a user's editor would check them, and mistakes in such calls are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).parents[1]
GIVEN = "from typing import Any\nimport dither\ndf: Any = None  # the reader's own table\n"
MISTAKES = """\
dither.publish(df, epsilon="4")
dither.publish(df)
dither.publish(df, epsilon=4.0, colour="red")
dither.publish(df, epsilon=4.0).margin(["age"])
dither.histogram([1.0], consumers=[3], epsilon=1.0, mechanism="chp")
dither.evaluate(df, df, ways="1,2")
dither.forecast(df, participants=10, epsilon="1")
dither.infer_schema(df, "id")
dither.plan
"""


def errors_in(program: Path) -> set[int]:
    """The numbers of the lines in which mypy finds a mistake. Quick where `make lint` has filled mypy's cache."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "pyproject.toml",
        str(program),
    ]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(number) for number in re.findall(r"\.py:(\d+): error:", done.stdout)}


def test_examples_type_check_and_mistakes_do_not(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S
    )
    assert blocks
    examples = GIVEN + "".join(
        f"def block_{i}() -> None:\n{indent(block, '    ')}" for i, block in enumerate(blocks)
    )
    first = examples.count("\n") + 1
    program = tmp_path / "readme_examples.py"
    program.write_text(examples + MISTAKES, encoding="utf-8")
    assert errors_in(program) == set(range(first, first + MISTAKES.count("\n")))
