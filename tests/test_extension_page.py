"""The page of the extension interface names only what exists, and all contract suites."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import dither.lab.testing

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "extensions.md"
NAMES = sorted(set(re.findall(r"`(dither\.[\w.]+)`", PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("name", NAMES)
def test_a_named_part_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert getattr(import_module(module), attribute).__doc__


def test_every_contract_suite_is_named() -> None:
    suites = [name for name in dither.lab.testing.__all__ if name.endswith("Contract")]
    assert suites
    assert {f"dither.lab.testing.{name}" for name in suites} <= set(NAMES)
