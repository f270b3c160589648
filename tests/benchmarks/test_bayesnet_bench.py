"""The Bayes network's benchmark at its smallest size."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bayesnet, tables
from benchmarks.bayesnet import EXTENTS, REPORTED, SEARCHES, Source, bench, networks, true_network
from benchmarks.tables import PRODUCT, Table
from benchmarks.tasks import reported_accuracy
from dither.lab.harness import Outcome, execute
from dither.schema import Attribute, Schema

pytestmark = pytest.mark.slow
FOUR, ALL, THREE = SEARCHES


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return execute(bench("smoke"), tmp_path_factory.mktemp("bayesnet"))


def test_everything_is_measured_and_finite(outcome: Outcome) -> None:
    assert not outcome.notes
    measured = {row["study"] for row in outcome.summary}
    assert measured == {study.name for study in outcome.bench.studies}
    assert all(math.isfinite(row["mean"]) for row in outcome.summary)


def test_noise_spoils_what_the_network_claims_and_what_it_holds(outcome: Outcome) -> None:
    def sums(f: float) -> tuple[float, float]:
        labels = {"f": f, "search": FOUR, "degree": 2}
        measures = ("sum_of_mutual_information", "sum_in_the_true_table")
        claimed, held = (outcome.mean("networks", m, **labels) for m in measures)
        return claimed, held

    exact, low, high = sums(0.0), sums(0.1), sums(0.9)
    assert exact[0] == pytest.approx(exact[1])
    assert abs(high[0] - high[1]) > 5 * abs(low[0] - low[1])
    assert high[1] < low[1] <= exact[1] * 1.01
    assert outcome.mean("networks", "edge_accuracy", f=0.0, search=ALL, degree=1) == 1
    least, largest = (
        outcome.mean("networks", m, f=0.0, search=THREE, degree=2)
        for m in ("least_sum", "largest_sum")
    )
    assert (
        least
        <= outcome.mean("networks", "sum_of_mutual_information", f=0.0, search=THREE, degree=2)
        <= largest
    )


def test_the_cached_search_computes_less(outcome: Outcome) -> None:
    cached, every = (
        outcome.mean("networks", "computed", f=0.0, search=s, degree=1) for s in (FOUR, ALL)
    )
    assert cached == math.comb(5, 2)
    assert every == sum(m * (5 - m) for m in range(1, 5))


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_queries_are_answered_better_than_by_the_product_at_small_f_only(
    outcome: Outcome, k: int
) -> None:
    for measure in ("avd", "kl"):
        found = {
            f: outcome.mean("queries", measure, f=f, k=k, method="bayesnet") for f in (0.1, 0.9)
        }
        alone = outcome.mean("queries", measure, f=0.1, k=k, method=PRODUCT)
        assert found[0.1] < alone < found[0.9]
        assert outcome.mean("queries", measure, f=0.9, k=k, method=PRODUCT) == alone


def test_one_question_beats_all_questions(outcome: Outcome) -> None:
    def avd(method: str) -> float:
        return outcome.mean("plans", "avd_2", method=method)

    assert avd("bayesnet, plan=sample") < avd("bayesnet, plan=split")
    assert avd("bayesnet, plan=sample") < avd(PRODUCT) < avd("independent")


def test_svm_learns_from_little_noise(outcome: Outcome) -> None:
    def accuracy(method: str, f: float) -> float:
        return outcome.mean("classifiers", "accuracy", method=method, f=f)

    guess = accuracy("most frequent value", 0.1)
    assert accuracy("real rows, no privacy", 0.1) > guess + 0.02
    assert accuracy("bayesnet", 0.1) > guess + 0.02
    epsilon = outcome.mean("classifiers", "epsilon_of_a_record", method="bayesnet", f=0.1)
    assert epsilon == pytest.approx(10 * math.log(19))


@pytest.mark.parametrize("method", REPORTED)
def test_reports_with_little_noise_teach_a_rule_where_there_is_one(method: str) -> None:
    schema = Schema(tuple(Attribute(n, "categorical", ("0", "1")) for n in "abc"))
    rng = np.random.default_rng(1)
    bit = rng.integers(0, 2, 6_000)
    codes = np.column_stack([bit, bit, rng.integers(0, 2, 6_000)])
    table, test = Table("copied bit", schema, codes[:5_000], codes[:5_000]), codes[5_000:]
    assert reported_accuracy(table, test, ["a"], REPORTED[method], 60.0, 5_000, [0]) > 0.95
    # The third attribute says nothing about the others: nothing beats a coin there.
    assert abs(
        reported_accuracy(table, test, ["c"], REPORTED[method], 60.0, 5_000, [0]) - 0.5
    ) < 5 * 0.5 / math.sqrt(1_000)


def test_the_true_network_is_what_f_zero_reports() -> None:
    source = bench("smoke").studies[0].measure.args[0]  # type: ignore[attr-defined]
    assert isinstance(source, Source)
    assert source.extent is EXTENTS["smoke"]
    row = networks(source, "Adult", 0.0, 0, FOUR, 1)
    assert row["edges"] == 4 == len(true_network(source, "Adult", FOUR, 1, 0).edges())
    assert "joints_estimated" not in row


def test_a_cut_table_has_at_most_so_many_cells_and_keeps_its_rows() -> None:
    table = tables.load("Adult", Path("nowhere"))
    cut = bayesnet.halved(table, 2.0**26)
    cells = math.prod(cut.schema.cardinalities)
    assert 2**24 < cells <= 2**26
    assert cut.codes.shape == table.codes.shape
    assert (cut.codes.max(axis=0) < cut.schema.cardinalities).all()
    for before, after in zip(table.codes.T, cut.codes.T, strict=True):
        steps = np.unique(np.stack([before, after]), axis=1)
        assert (np.diff(steps[1]) >= 0).all(), "neighbours are merged, in order"
    assert bayesnet.halved(table, 2.0**60).schema.cardinalities == table.schema.cardinalities


def test_more_parents_help_the_true_network(outcome: Outcome) -> None:
    exact = [
        outcome.mean("parents", "avd_2", degree=degree, tables_from=bayesnet.EXACT)
        for degree in (1, 2)
    ]
    assert exact[1] < exact[0]
    learnt = outcome.mean("parents", "avd_2", degree=2, tables_from=bayesnet.FEW)
    assert learnt > exact[1]
