"""The smallest size of the benchmark of methods as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import published
from dither.lab.harness import Outcome, execute

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder: Path = tmp_path_factory.mktemp("published")
    return execute(published.bench("smoke"), folder, show=lambda text: None)


def test_every_study_has_figures(outcome: Outcome) -> None:
    studies = {row["study"] for row in outcome.summary}
    assert studies == {study.name for study in outcome.bench.studies}
    assert not outcome.missing


def test_bits_keep_more_pairs_than_nats(outcome: Outcome) -> None:
    assert outcome.mean("trees", "edges", unit="bits") > outcome.mean("trees", "edges", unit="nats")


def test_filters_of_a_tenth_lose_to_unary_bits_of_everybody(outcome: Outcome) -> None:
    published_error = outcome.mean("methods", "tvd_2", method="lopub@published")
    assert published_error > 2 * outcome.mean("methods", "tvd_2", method="lopub")
