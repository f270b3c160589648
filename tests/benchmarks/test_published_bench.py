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


def test_larger_factors_lose_at_a_small_epsilon() -> None:
    nowhere = Path("nowhere")
    small, large = (
        published.measure(
            "Adult", 200_000, "privincr@published", 1.0, {"factor_cells": sigma}, 6, nowhere
        )
        for sigma in (64, 100_000)
    )
    assert small["tvd_2"] < 0.8 * large["tvd_2"]


def test_the_curators_tree_beats_the_local_method_on_the_same_rows() -> None:
    nowhere = Path("nowhere")
    central = published.trees_with_noise(published.JTREE, 4.0, 20_000, 6, nowhere)
    local = published.trees_with_noise("lopub@published", 4.0, 20_000, 6, nowhere)
    assert central["tvd_2"] < local["tvd_2"]
