"""The counter of journeys sees functions in all threads and in the collector, and nothing of imports."""

from __future__ import annotations

import pytest
from tools.journeys import journeys


@pytest.mark.slow
def test_journeys_count_the_functions_that_run() -> None:
    found = journeys()
    assert ("_publish.py", "publish_table") in found["publish"]
    assert ("release/release.py", "Release.query") in found["question"]
    assert {file.split("/")[0] for file, _ in found["report"]} >= {"client", "collector"}
    for functions in found.values():
        assert all(file.endswith(".py") for file, _ in functions)
        assert not any(name.endswith(("<module>", "<genexpr>")) for _, name in functions)
