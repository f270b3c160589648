"""Imported before the suites: says what is missing without pytest, and lets pytest show the values behind a failed assertion."""

from importlib.util import find_spec

from dither.errors import InputError

if find_spec("pytest") is None:
    raise InputError(
        "dither.lab.testing needs pytest, which is not installed; run: pip install pytest"
    )

import pytest

SUITES = ("mechanisms", "methods", "models", "stores")
pytest.register_assert_rewrite(*(f"dither.lab.testing.{name}" for name in SUITES))
