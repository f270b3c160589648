"""LoPub's benchmark at its smallest size: what must hold whatever the noise, and the published figures beside it."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import lopub_claims
from benchmarks.lopub import ESTIMATORS, EXTENTS, MODELS, Source, bench, chosen_sets, left_out
from benchmarks.lopub_printed import PRINTED
from benchmarks.tables import GENERATED, PRODUCT, Table
from dither.lab.harness import Outcome, execute
from dither.schema import Attribute, Schema

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return execute(bench("smoke"), tmp_path_factory.mktemp("lopub"))


def test_everything_is_measured_and_finite(outcome: Outcome) -> None:
    assert not outcome.notes
    measured = {row["study"] for row in outcome.summary}
    assert measured == {study.name for study in outcome.bench.studies}
    assert all(math.isfinite(row["mean"]) for row in outcome.summary)
    avd = [row["mean"] for row in outcome.summary if row["measure"].startswith("avd")]
    assert min(avd) >= 0
    assert max(avd) <= 1


@pytest.mark.parametrize("k", [2, 3])
def test_em_beats_the_product_at_small_f_and_loses_at_large_f(outcome: Outcome, k: int) -> None:
    def avd(f: float, method: str) -> float:
        return outcome.mean("joints", "avd", f=f, k=k, method=method)

    assert avd(0.1, "EM") < avd(0.1, "Lasso") < avd(0.1, PRODUCT)
    assert avd(0.1, "Lasso as printed") > avd(0.1, PRODUCT)  # it cannot see the joint
    assert avd(0.9, PRODUCT) == avd(0.1, PRODUCT)
    assert all(
        avd(0.9, method) > 2 * avd(0.1, method)
        for method in ESTIMATORS
        if method != "Lasso as printed"
    )
    assert avd(0.9, "EM") > avd(0.9, PRODUCT)


def test_model_and_its_price(outcome: Outcome) -> None:
    for method in MODELS:
        assert outcome.mean("model", "avd_2", f=0.1, method=method) < outcome.mean(
            "model", "avd_2", f=0.1, method=PRODUCT
        )
    # Five attributes at f = 0.1: 10 ln 19.
    assert outcome.mean("model", "epsilon_of_a_record", f=0.1, method="EM") == pytest.approx(
        10 * math.log(19), rel=1e-6
    )


def test_classifiers_learn_from_synthetic_rows(outcome: Outcome) -> None:
    def accuracy(method: str) -> float:
        return outcome.mean("classification", "accuracy", f=0.1, classifier="svm", method=method)

    assert accuracy("EM") > accuracy("most frequent value") + 0.02
    assert accuracy("real rows, no privacy") > accuracy("most frequent value") + 0.02


def test_shares_of_pairs_add_up(outcome: Outcome) -> None:
    labels = {"f": 0.1, "estimator": "EM", "rule": "paper's threshold", "dataset": "Adult"}
    shares = [outcome.mean("correlations", m, **labels) for m in ("accurate", "added", "lost")]
    assert sum(shares) == pytest.approx(1)
    assert shares[0] >= 0.8


def test_published_tables_are_consistent_with_the_ratios_printed() -> None:
    after, before, computed = PRINTED["Adult"][4]
    assert 1 - computed / 105 == pytest.approx(0.733, abs=5e-4)
    assert 1 - after / before == pytest.approx(0.25)
    assert 1 - PRINTED["TPC-E"][3][2] / 276 == pytest.approx(0.761, abs=5e-4)
    assert PRINTED["NLTCS"][0][0] == 2 * 120 + 16


def test_sets_are_drawn_evenly_and_stay_within_the_cell_limit() -> None:
    schema = Schema(
        tuple(Attribute(f"a{i}", "categorical", tuple(map(str, range(12)))) for i in range(14))
    )
    table = Table("wide", schema, np.zeros((1, 14), int), np.zeros((1, 14), int))
    sets = chosen_sets(table, 3, 100)
    assert len(sets) == len(set(sets)) == 100
    # A set drawn evenly holds a given attribute with probability 3/14; the first sets in order would all hold attribute 0.
    assert sum(0 in s for s in sets) < 45
    assert sum(13 in s for s in sets) > 5
    assert len(chosen_sets(table, 2, 105)) == math.comb(14, 2)
    assert not chosen_sets(table, 5, 105)  # 248,832 cells each


def test_only_costly_repeats_are_left_out() -> None:
    source = Source(Path("nowhere"), EXTENTS["full"])
    assert not any(
        left_out(source, "Adult", f, 0, k) for f in EXTENTS["full"].flips for k in (2, 3)
    )
    assert left_out(source, "Adult", 0.1, 1, 3)
    assert left_out(source, "Adult", 0.3, 0, 5)
    assert left_out(source, GENERATED, 0.3)
    assert not left_out(source, GENERATED, 0.5, 0, 3)


def test_unary_bits_are_the_shortest_report_that_holds_every_value(outcome: Outcome) -> None:
    bits = {
        row["labels"]["report"]: row["mean"]
        for row in outcome.summary
        if row["study"] == "communication"
    }
    assert bits["codes without privacy"] < bits["unary bits"] < bits["theorem 1, p = 0.022"]
    product = [bits[f"{lopub_claims.PRODUCT} of {k}, eq. 10 (mean)"] for k in (2, 3, 5)]
    assert product == sorted(product)
    assert product[0] > bits["unary bits"]


def test_reports_of_a_product_domain_are_longer(outcome: Outcome) -> None:
    length = {
        report: outcome.mean("reports", "bits", report=report, participants=2_000)
        for report in ("unary bits", lopub_claims.PRODUCT)
    }
    assert length[lopub_claims.PRODUCT] > 3 * length["unary bits"]
    costs = [row for row in outcome.summary if row["study"] in ("reports", "growth")]
    assert all(row["mean"] >= 0 for row in costs)


def test_a_sample_loses_to_everybody(outcome: Outcome) -> None:
    sample, everybody, unary = (
        outcome.mean("like_for_like", "avd", f=0.1, way=way) for way in lopub_claims.LIKE_FOR_LIKE
    )
    assert sample > everybody
    assert unary > everybody, "unary bits cost a quarter of the epsilon at the same f"
    each = [
        outcome.mean("like_for_like", "epsilon_of_a_record", f=0.1, way=way)
        for way in lopub_claims.LIKE_FOR_LIKE[1:]
    ]
    assert each[0] == pytest.approx(4 * each[1], rel=0.01)
