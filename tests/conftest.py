"""What holds for all tests."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PostgreSQL's half of the tests that run on both stores is for the whole suite; in the fast lane SQLite stands for both."""
    for item in items:
        if "postgres" in item.nodeid:
            item.add_marker(pytest.mark.slow)
