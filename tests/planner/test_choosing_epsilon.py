"""The page about choosing epsilon says what the library computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.epsilon_pictures import EPSILONS, PEOPLE, half_widths

from dither.notice import shown_certainty

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "choosing-epsilon.md"


def _row(start: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_its_certainties_are_those_of_the_library() -> None:
    epsilons = [float(cell) for cell in _row("epsilon")]
    assert _row("certainty at most") == [shown_certainty(epsilon) for epsilon in epsilons]


@pytest.mark.slow
def test_its_half_widths_are_the_planners() -> None:
    found = half_widths()
    for people in PEOPLE:
        for cell, epsilon in zip(_row(f"{people:,}"), EPSILONS, strict=True):
            shown = float(re.sub("[^0-9.]", "", cell))
            assert shown == pytest.approx(100 * found[epsilon][people], rel=0.05)
