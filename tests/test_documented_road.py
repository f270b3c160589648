"""The page that follows one record through the code names files and functions that exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(dither(?:\.\w+)+)`", PAGE)))
FILES = sorted(set(re.findall(r"`((?:src|tests)/[\w./]+)`", PAGE)))


def found(name: str) -> object:
    """What a dotted name stands for: the longest module in it, and attributes from there on."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(f"no module in {name}")


@pytest.mark.parametrize("name", NAMES)
def test_every_function_of_the_road_exists(name: str) -> None:
    assert callable(found(name))


@pytest.mark.parametrize("file", FILES)
def test_every_file_of_the_road_exists(file: str) -> None:
    assert (ROOT / file).exists()


def test_the_page_walks_both_drivers() -> None:
    assert {"dither.simulate.drive", "dither.collector.collector.Collector.upload"} <= set(NAMES)
    assert len(NAMES) > 30
    with pytest.raises(AttributeError):
        found("dither.simulate.no_such_function")
