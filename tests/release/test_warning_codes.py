"""Every warning has a code that is documented and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

from dither.notice import ADVICE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "release-folder.md").read_text(encoding="utf-8")


def codes_in_the_source() -> set[str]:
    """The codes with which notices are made, and those that notes of methods become."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"Notice\(\s*\"([a-z-]+)\"", text))
        if path.name == "words.py":
            found |= set(re.findall(r"\"\w+\": \(\"([a-z-]+)\", ", text))
    return found


def test_every_code_says_what_to_do() -> None:
    assert codes_in_the_source() - {"inferred-domain"} == set(ADVICE) - {"inferred-domain"}
    assert all(ADVICE.values())


def test_every_code_is_documented() -> None:
    listed = PAGE.split("## Codes of warnings")[1]
    assert {code for code in ADVICE if f"`{code}`" not in listed} == set()
