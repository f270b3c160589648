"""The CSM benchmark at its smallest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import central_studies, csm
from benchmarks.tables import GENERATED
from dither.lab.harness import Outcome, execute

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return execute(csm.bench("smoke"), tmp_path_factory.mktemp("csm"))


def test_every_study_has_figures(outcome: Outcome) -> None:
    measured = {row["study"] for row in outcome.summary}
    assert measured == {study.name for study in outcome.bench.studies} - {"peers"}
    assert len(outcome.notes) == 1
    assert "left to the full size" in outcome.notes[0]


@pytest.mark.parametrize("dataset", ["Adult", GENERATED])
def test_dense_matrices_lose_and_sparse_ones_do_not(outcome: Outcome, dataset: str) -> None:
    mse = {
        m: outcome.mean("figure3", "mse", dataset=dataset, cells=128, method=m) for m in csm.METHODS
    }
    assert max(mse["laplace"], mse["csm"]) < mse["uniform"]
    assert max(mse["laplace"], mse["csm"]) < min(mse[csm.DENSE], mse[csm.AUTOMATIC])


def test_only_dense_csm_is_drawn_over_tau(outcome: Outcome) -> None:
    for method, same in ((csm.DENSE, False), ("csm", True), ("laplace", True)):
        one, other = (
            outcome.mean("figure2", "mse", dataset="Adult", epsilon=1.0, tau=tau, method=method)
            for tau in (0.2, 0.6)
        )
        assert (one == other) is same


def test_the_share_of_errors_falls_and_the_bound_holds(outcome: Outcome) -> None:
    labels = {"dataset": "Adult", "method": csm.CHERNOFF}
    found = [r["labels"] for r in outcome.summary if r["study"] == "figure4"]
    mus = [entry["mu"] for entry in found if labels.items() <= entry.items()]
    etas = [
        outcome.mean("figure4", "eta_linear", dataset="Adult", method="laplace", mu=mu)
        for mu in mus
    ]
    assert len(mus) == 6
    assert etas == sorted(etas, reverse=True)
    for mu, eta in zip(mus, etas, strict=True):
        assert eta <= outcome.mean("figure4", "eta_linear", mu=mu, **labels) + 0.05


def test_the_papers_noise_spends_more_than_it_says(outcome: Outcome) -> None:
    given = {"dataset": "Adult", "epsilon": 0.5}
    assert outcome.mean("figure5", "real_epsilon", method=csm.PAPER, **given) > 1
    assert outcome.mean("figure5", "real_epsilon", method="csm", **given) == 0.5


def test_the_page_says_what_is_left_out(outcome: Outcome, tmp_path: Path) -> None:
    from dither.lab.harness import page

    text = page.render(outcome)
    assert "known privacy breach" in text
    assert text.count("<figure") == sum(len(study.charts) for study in outcome.bench.studies)


@pytest.mark.parametrize("dataset", ["Adult", GENERATED])
def test_what_is_chosen_is_near_the_best_form(outcome: Outcome, dataset: str) -> None:
    assert (
        outcome.mean("forms", "worse", dataset=dataset, cells=128, method=central_studies.CHOSEN)
        < 1.5
    )
    assert (
        outcome.mean("forms", "worse", dataset=dataset, cells=128, method="4 entries, tau 0.3")
        > 1.5
    )


def test_the_sparse_table_is_found(outcome: Outcome) -> None:
    """Ten heavy cells of the smoke size's 1,024, two runs: well below noise on every cell, where dense matrices are far above."""
    error = {
        m: outcome.mean("sparse", "squared_error", epsilon=1.0, method=m)
        for m in central_studies.SPARSE
    }
    assert error["csm"] < error["laplace"] / 2 < error[csm.AUTOMATIC]


def test_the_record_form_beats_one_half(outcome: Outcome) -> None:
    found = {m: outcome.mean("records", "share_error", dataset="Adult", epsilon=4.0, method=m)
             for m in ("one half", "csm-records (local)", "csm (central)")}  # fmt: skip
    assert found["csm (central)"] < found["csm-records (local)"] < found["one half"] / 3


def test_the_mean_error_does_not_depend_on_the_number_of_queries(outcome: Outcome) -> None:
    few, many = (
        outcome.mean("queries", "mse", dataset="Adult", queries=queries, method="laplace")
        for queries in (16, 256)
    )
    assert 0.3 < few / many < 3
    largest = [
        outcome.mean("queries", "largest_error", dataset="Adult", queries=queries, method="laplace")
        for queries in (16, 256)
    ]
    assert largest[1] > largest[0]
