"""The refined Bayes network's evaluation, figures 5 to 12, and the sampled plan.

Figure 5: sum of mutual information against in-degree k and flip probability f. Figure 6: entropy root against random root,
with the mutual informations that algorithms 3 and 4 compute. Figure 7: edges found against those of the true table. Figure
8: joints of small domains. Figure 9: AVD and KL of 2- to 5-way marginals. Figures 10 to 12: SVM accuracy, MeanEST and
Multi-HM. Then plan=sample, which spends epsilon on one question, against plan=split and independent attributes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.model_error import evaluate_model
from benchmarks.tables import PRODUCT, Table, exact_product
from benchmarks.tasks import binary_attributes, reported_accuracy, split_rows, train_and_test
from dither.evaluation.metrics import WaySummary, attribute_sets, marginal, tvd
from dither.fit import BayesNet, Model, Network, mutual_information, search_network
from dither.fit.joint import estimate_joints
from dither.lab.harness import Bench, Chart, Size, Study
from dither.methods.bayesnet import BayesNetParameters, BayesNetwork, choose_root
from dither.methods.independent import IndependentParameters, IndependentProtocol
from dither.methods.machine import Campaign
from dither.schema import Attribute, Schema
from dither.simulate import simulate

SEED = 20200429
POPULATION = 1_500_000
LARGE = "Adult at 1.5 million"
RANGES = (8, 16, 32)
RANGE_SETS = 10
FULL, CUT = "full", "cut to about 2^26"
EXACT, FEW, MANY = "exact tables", "plan=sample, the table's rows", "plan=sample, 1.5 million"
REAL, MAJORITY = "real rows, no privacy", "most frequent value"
REPORTED = {"MeanEST": "duchi", "Multi-HM": "hybrid"}
SEARCHES: dict[str, dict[str, Any]] = {
    "entropy root, cached (algorithm 4)": {"root": "entropy", "candidates": "cached"},
    "entropy root, all candidates": {"root": "entropy", "candidates": "all"},
    "random root, all candidates (algorithm 3)": {"root": "random", "candidates": "all"},
}
PLANS: dict[str, dict[str, Any]] = {
    "bayesnet, plan=split": {"plan": "split", "degree": 1},
    "bayesnet, plan=sample": {"plan": "sample"},
}


@dataclass(frozen=True)
class Extent:
    """The sizes of one run."""

    tables: tuple[str, ...] = ("Adult", "NLTCS")
    rows: int = 1_000_000
    columns: tuple[int, ...] | None = None  # all
    flips: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    degrees: tuple[int, ...] = (1, 2, 3, 4)  # of a binary table, else at most two, as in the paper
    degree: int = 2  # of figures 9 and 10
    triples: int = 560  # all of them: Adult's differ so much that a hundred random ones mislead
    sets: int = 105
    seeds: tuple[int, ...] = (0, 1, 2)
    epsilons: tuple[float, ...] = (1, 4, 8)
    large: bool = True
    training: int = 10_000


EXTENTS: dict[Size, Extent] = {
    "full": Extent(),
    "quick": Extent(
        rows=2_000, flips=(0.1, 0.5), degrees=(1, 2), degree=1, triples=20, sets=20, seeds=(0,), epsilons=(4,), large=False,
        training=2_000,
    ),
    "smoke": Extent(
        tables=("Adult",), rows=2_000, columns=(3, 5, 7, 9, 14), flips=(0.1, 0.9), degrees=(1, 2), sets=10, seeds=(0,),
        epsilons=(8,), large=False, training=500,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """The tables and the share of each that is used."""

    folder: Path | None
    extent: Extent

    def table(self, name: str, seed: int = 0) -> Table:
        if name == LARGE:
            return tables.resampled("Adult", POPULATION, seed, self.folder)
        table, columns = tables.part(name, self.extent.rows, self.folder), self.extent.columns
        if columns is None:
            return table
        codes = np.asfortranarray(table.codes[:, columns])
        return Table(
            name, Schema(tuple(a for i, a in enumerate(table.schema) if i in columns)), codes, codes
        )


def record_epsilon(table: Table, f: float) -> float:
    """Eq. 6: the epsilon of a flip probability for a record of d attributes."""
    return 2 * len(table.schema) * math.log((2 - f) / f)


def campaign(
    table: Table, codes: np.ndarray, epsilon: float, seed: int, **parameters: Any
) -> BayesNetwork:
    """One campaign over these rows."""
    asked = Campaign(table.schema, epsilon, len(codes), SEED + seed)
    machine = BayesNetwork(asked, BayesNetParameters(**parameters))
    simulate(machine, codes, np.random.default_rng([SEED, seed]))
    return machine


@lru_cache(maxsize=1)
def collect(source: Source, dataset: str, f: float, seed: int) -> BayesNetwork:
    """All participants' reports of every attribute at flip probability f."""
    table = source.table(dataset)
    return campaign(table, table.codes, record_epsilon(table, f) + 1e-6, seed, plan="split", flip=f)


def again(machine: BayesNetwork, **parameters: Any) -> BayesNetwork:
    """The same reports, to be learnt with other parameters."""
    other = BayesNetwork(
        machine.campaign,
        BayesNetParameters(plan="split", flip=machine.parameters.flip, **parameters),
    )
    other.close(machine._closed[0])
    return other


@lru_cache(maxsize=64)
def true_network(source: Source, dataset: str, search: str, degree: int, first: int) -> Network:
    """The network of the true table from one root, for figure 7."""
    table = source.table(dataset)
    sizes, most = table.schema.cardinalities, BayesNetParameters().max_cells

    def cells(a: int, given: tuple[int, ...]) -> int:
        return math.prod(sizes[p] for p in (a, *given))

    def score(a: int, given: tuple[int, ...]) -> float:
        return mutual_information(marginal(table.truth, sizes, (*given, a)).reshape(-1, sizes[a]))

    cached = SEARCHES[search]["candidates"] == "cached"
    return search_network(
        len(sizes),
        degree,
        score,
        first,
        cached=cached,
        fits=lambda a, given: cells(a, given) <= most,
    )


def networks(
    source: Source, dataset: str, f: float, seed: int, search: str, degree: int
) -> dict[str, Any]:
    """Figures 5 to 7: sum of mutual information, edges kept, mutual informations computed; f = 0 is the true table, from
    every root if it is random: their mean, least and largest.

    What the network claims is the sum of estimated mutual informations, which noise inflates; what it holds is the sum
    that its edges have in the true table.
    """
    table = source.table(dataset)
    singles = [
        marginal(table.truth, table.schema.cardinalities, (i,)) for i in range(len(table.schema))
    ]
    chosen = choose_root(singles, BayesNetParameters(**SEARCHES[search]), SEED + seed)
    exact = found = true_network(source, dataset, search, degree, chosen)
    row: dict[str, Any] = {}
    if f > 0:
        begin = time.process_time()
        learnt = again(collect(source, dataset, f, seed), **SEARCHES[search], degree=degree).learnt
        found = learnt.network
        row = {"joints_estimated": learnt.joints, "cpu_seconds": time.process_time() - begin}
    elif SEARCHES[search]["root"] == "random":
        sums = [
            true_network(source, dataset, search, degree, a).total for a in range(len(table.schema))
        ]
        return {
            "line": f"{search}, in-degree {degree}",
            "sum_of_mutual_information": float(np.mean(sums)),
            "sum_in_the_true_table": float(np.mean(sums)),
            "least_sum": min(sums),
            "largest_sum": max(sums),
        }
    truth, sizes = source.table(dataset).truth, source.table(dataset).schema.cardinalities
    holds = [
        mutual_information(marginal(truth, sizes, (*given, a)).reshape(-1, sizes[a]))
        for a, given in enumerate(found.parents)
        if given
    ]
    return {
        "line": f"{search}, in-degree {degree}",
        "sum_of_mutual_information": found.total,
        "sum_in_the_true_table": float(sum(holds)),
        "edge_accuracy": len(found.edges() & exact.edges()) / max(1, len(exact.edges())),
        "edges": len(found.edges()),
        "computed": found.computed,
        **row,
    }


def ranges(source: Source, dataset: str, f: float, seed: int) -> list[dict[str, Any]]:
    """Figure 8: the AVD of joints estimated by EM over domains of about 8, 16 and 32 cells."""
    table = source.table(dataset)
    sizes, names = table.schema.cardinalities, table.schema.names
    rng = np.random.default_rng(SEED)
    drawn = [
        s
        for k in (2, 3, 4, 5)
        if k <= len(sizes)
        for s in attribute_sets(len(sizes), k, 2_000, rng)
    ]
    reports, alone = collect(source, dataset, f, seed).reports, exact_product(table)
    rows: list[dict[str, Any]] = []
    for cells in RANGES:
        away = [abs(math.prod(sizes[a] for a in s) - cells) for s in drawn]
        nearest = [s for s, distance in zip(drawn, away, strict=True) if distance == min(away)][
            :RANGE_SETS
        ]
        sets = [tuple(names[a] for a in s) for s in nearest]
        exact = [marginal(table.truth, sizes, s) for s in nearest]
        found = {
            "EM": [x.joint for x in estimate_joints(reports, sets)],
            PRODUCT: [alone.marginal(s) for s in sets],
        }
        rows += [
            {
                "about_cells": cells,
                "method": method,
                "avd": float(np.mean([tvd(a, b) for a, b in zip(joints, exact, strict=True)])),
                "cells": float(np.mean([e.size for e in exact])),
                "sets": len(sets),
            }
            for method, joints in found.items()
        ]
    return rows


def distances(
    model: Model, table: Table, ways: Sequence[int], extent: Extent
) -> dict[int, WaySummary]:
    """The errors of a model's marginals, over the same attribute sets for every model."""
    out: dict[int, WaySummary] = {}
    for k in ways:
        most = extent.triples if k == 3 else extent.sets if k > 3 else 10_000
        out |= evaluate_model(model, table.truth, (k,), most, np.random.default_rng([SEED, k]))
    return out


def queries(source: Source, dataset: str, f: float, seed: int) -> list[dict[str, Any]]:
    """Figure 9: AVD and KL of 2- to 5-way marginals, with the product of exact one-way marginals at every f."""
    table, extent = source.table(dataset), source.extent
    model = again(collect(source, dataset, f, seed), degree=extent.degree).model()
    rows = []
    for method, chosen in (("bayesnet", model), (PRODUCT, exact_product(table))):
        found = distances(chosen, table, (2, 3, 4, 5), extent)
        rows += [{"method": method, "k": k, "avd": s.tvd, "kl": s.kl} for k, s in found.items()]
    return rows


def classifiers(source: Source, dataset: str, f: float, method: str, seed: int) -> dict[str, float]:
    """Figures 10 to 12: mean accuracy of a linear SVM over the binary attributes, on test rows."""
    table, rows = source.table(dataset), source.extent.training
    train, test = split_rows(table.codes, 0.2, np.random.default_rng(SEED))
    half = Table(dataset, table.schema, train, train)
    targets, rng = binary_attributes(table.schema), np.random.default_rng([SEED, seed])
    epsilon = record_epsilon(table, f)
    row = {"epsilon_of_a_record": epsilon, "targets": len(targets)}
    if method in REPORTED:
        return {
            **row,
            "accuracy": reported_accuracy(
                half, test, targets, REPORTED[method], epsilon, rows, [SEED, seed]
            ),
        }
    if method == MAJORITY:
        counts = [np.bincount(test[:, table.schema.index(t)]) for t in targets]
        return {**row, "accuracy": float(np.mean([c.max() / c.sum() for c in counts]))}
    if method == "bayesnet":
        machine = campaign(
            table, train, epsilon + 1e-6, seed, plan="split", flip=f, degree=source.extent.degree
        )
        train = machine.model().sample(rows, rng)
    elif method == PRODUCT:
        train = exact_product(half).sample(rows, rng)
    scores = [
        train_and_test(table.schema, train, test, t, "svm", seed=SEED, rows=rows) for t in targets
    ]
    return {**row, "accuracy": float(np.mean(scores))}


def plans(source: Source, dataset: str, epsilon: float, seed: int, method: str) -> dict[str, float]:
    """One question per participant against every question per participant, at the same epsilon for the whole record."""
    table = source.table(dataset, seed)
    begin = time.process_time()
    model: Model
    if method == PRODUCT:
        model = exact_product(table)
    elif method == "independent":
        asked = Campaign(table.schema, epsilon, len(table.codes), SEED)
        alone = IndependentProtocol(asked, IndependentParameters())
        simulate(alone, table.codes, np.random.default_rng([SEED, seed]))
        model = alone.model()
    else:
        model = campaign(table, table.codes, epsilon, seed, **PLANS[method]).model()
    row = {} if method == PRODUCT else {"cpu_seconds": time.process_time() - begin}
    found = distances(model, table, (2, 3, 4), source.extent)
    return {**{f"avd_{k}": s.tvd for k, s in found.items()}, **row}


def halved(table: Table, cells: float) -> Table:
    """The table cut to at most so many cells: neighbouring values of the widest attribute are merged in pairs, repeatedly."""
    codes, sizes = np.array(table.codes, order="F"), list(table.schema.cardinalities)
    while math.prod(sizes) > cells:
        widest = int(np.argmax(sizes))
        codes[:, widest] //= 2
        sizes[widest] = (sizes[widest] + 1) // 2
    attributes = (
        Attribute(a.name, "ordinal", tuple(range(k)))
        for a, k in zip(table.schema, sizes, strict=True)
    )
    return Table(f"{table.name}, cut", Schema(tuple(attributes)), codes, codes)


def cut(source: Source, cells: str, f: float) -> dict[str, float]:
    """Figure 9's pairs and triples on Adult, full and cut to about 2^26 cells."""
    table = source.table("Adult")
    if cells == CUT:
        table = halved(table, 2.0**26)
    machine = campaign(
        table, table.codes, record_epsilon(table, f) + 1e-6, 0, plan="split", flip=f,
        degree=source.extent.degree, **next(iter(SEARCHES.values())),
    )  # fmt: skip
    found = distances(machine.model(), table, (2, 3), source.extent)
    alone = distances(exact_product(table), table, (2,), source.extent)
    return {
        "log2_cells": sum(math.log2(k) for k in table.schema.cardinalities),
        "avd_2": found[2].tvd,
        "avd_3": found[3].tvd,
        "avd_2_of_the_product": alone[2].tvd,
    }


def parents(
    source: Source, dataset: str, degree: int, tables_from: str, seed: int
) -> dict[str, float]:
    """What the number of parents costs: the true network with exact tables, or networks learnt from samples at epsilon 8."""
    table = source.table(dataset, seed)
    if tables_from == EXACT:
        search = "entropy root, all candidates"
        sizes = table.schema.cardinalities
        singles = [marginal(table.truth, sizes, (i,)) for i in range(len(sizes))]
        root = choose_root(singles, BayesNetParameters(), SEED)
        chosen = true_network(source, dataset, search, degree, root)
        joints = [
            marginal(table.truth, sizes, (*given, a)) for a, given in enumerate(chosen.parents)
        ]
        model = BayesNet.from_joints(table.schema, chosen.parents, joints)
        return {"avd_2": distances(model, table, (2,), source.extent)[2].tvd}
    people = table.codes
    if tables_from == MANY:
        drawn = np.random.default_rng([SEED, 3, seed]).integers(0, len(people), POPULATION)
        people = np.asfortranarray(people[drawn])
    model = campaign(table, people, 8.0, seed, plan="sample", degree=degree).model()
    return {"avd_2": distances(model, table, (2,), source.extent)[2].tvd}


ABOUT = (
    "Ju, Gu, Wu, Zhang, Local differential privacy protection of high-dimensional perceptual data by the refined Bayes network, "
    "Sensors 2020. f is the probability with which a bit is flipped; a record of d attributes costs 2 d ln((2-f)/f). AVD is "
    "the total variation distance. The paper gives curves only, so no number of it stands beside these. TPC-E's rows could "
    "not be had."
)


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The refined Bayes network's figures 5 to 12."""
    extent = EXTENTS[size]
    source = Source(Path("nowhere") if size == "smoke" else data_dir, extent)
    there = tables.names(source.folder, *extent.tables)
    studies = (
        _networks(source, there),
        *_figures(source, there),
        _plans(source, there),
        *_causes(source, there),
    )
    return Bench("bayesnet", "The refined Bayes network, measured", ABOUT, studies, size)


def _networks(source: Source, there: tuple[str, ...]) -> Study:
    extent = source.extent
    return Study(
        "networks",
        "Figures 5 to 7. The network: sum of mutual information, edges found",
        {
            "dataset": there,
            "f": (0.0, *extent.flips),
            "seed": extent.seeds,
            "search": tuple(SEARCHES),
            "degree": extent.degrees,
        },
        partial(networks, source),
        skip=lambda dataset, f, seed, search, degree: (
            (f == 0 and seed > 0) or (not source.table(dataset).binary and (degree > 2 or seed > 0))
        ),
        charts=(
            Chart(
                "f",
                "sum_of_mutual_information",
                colour="line",
                title="Figures 5 and 6: sum as estimated",
            ),
            Chart(
                "f",
                "sum_in_the_true_table",
                colour="line",
                title="Sum of the same edges in the true table",
            ),
            Chart(
                "f",
                "edge_accuracy",
                colour="line",
                title="Figure 7: share of the true network's edges found",
            ),
        ),
        note=(
            "f = 0 is the true table; there a random root is the mean over every root, with the least and the largest sum. "
            "Adult: one seed. Candidates of at most 2,000 cells."
        ),
    )


def _figures(source: Source, there: tuple[str, ...]) -> tuple[Study, ...]:
    extent = source.extent
    axes = {"dataset": there, "f": extent.flips, "seed": extent.seeds}
    small = Study(
        "ranges",
        "Figure 8. AVD of joints of about 8, 16 and 32 cells",
        axes,
        partial(ranges, source),
        labels=("about_cells",),
        charts=(Chart("f", "avd", panels=("dataset", "about_cells")),),
        note=f"Mean over at most {RANGE_SETS} attribute sets whose domain is nearest that size.",
    )
    asked = Study(
        "queries",
        "Figure 9. AVD and KL divergence of 2- to 5-way marginals",
        axes,
        partial(queries, source),
        skip=lambda dataset, f, seed: seed > 0 and not source.table(dataset).binary,
        labels=("k",),
        charts=(
            Chart("f", "avd", panels=("dataset", "k"), title="AVD"),
            Chart("f", "kl", panels=("dataset", "k"), title="KL divergence, nats"),
        ),
        note=f"In-degree {extent.degree}, entropy root; all pairs, at most {extent.triples} triples and {extent.sets} "
        "random sets of four and five. Adult: one seed.",
    )
    methods = (REAL, MAJORITY, PRODUCT, "bayesnet", *REPORTED)
    svm = Study(
        "classifiers",
        "Figures 10 to 12. SVM accuracy on real rows",
        {"dataset": there, "f": extent.flips, "method": methods, "seed": extent.seeds},
        partial(classifiers, source),
        skip=lambda dataset, f, method, seed: (
            seed > 0
            and (
                method in (REAL, MAJORITY)
                or (method == "bayesnet" and not source.table(dataset).binary)
            )
        ),
        charts=(Chart("f", "accuracy"),),
        note=(
            f"Mean over the binary attributes, {extent.training:,} training rows; bayesnet on Adult: one seed. The "
            "paper does not say how an SVM is trained on MeanEST's and Multi-HM's reports: here every report is one training "
            "row, codes scaled to [-1, 1], noisy values as they come (0 where an attribute was not asked), the sign of the "
            "noisy target as the label."
        ),
    )
    return small, asked, svm


def _plans(source: Source, there: tuple[str, ...]) -> Study:
    extent = source.extent
    return Study(
        "plans",
        "One question per participant against all questions: AVD at the same epsilon",
        {
            "dataset": (*there, LARGE) if extent.large else there,
            "epsilon": extent.epsilons,
            "seed": extent.seeds,
            "method": (PRODUCT, "independent", *PLANS),
        },
        partial(plans, source),
        # The split plan reads every report again and again: of 1.5 million of them for hours.
        skip=lambda dataset, epsilon, seed, method: (
            dataset == LARGE and method == "bayesnet, plan=split"
        ),
        charts=(
            Chart("epsilon", "avd_2", title="2-way AVD"),
            Chart("epsilon", "avd_3", title="3-way AVD"),
        ),
        note=(
            "plan=split with in-degree 1, plan=sample with 2, on binary tables 4. "
            "Adult is also resampled to 1.5 million, without plan=split. All "
            f"pairs, at most {extent.triples} triples, {extent.sets} random sets of four."
        ),
    )


def _causes(source: Source, there: tuple[str, ...]) -> tuple[Study, Study]:
    """Adult cut as in the paper, and where NLTCS's error comes from."""
    extent = source.extent
    ways = (EXACT, FEW, MANY) if extent.large else (EXACT, FEW)
    return (
        Study(
            "cut",
            "Adult cut to about 2^26 cells, as in the paper, next to the full table",
            {
                "cells": (FULL, CUT),
                "f": tuple(f for f in (0.1, 0.5, 0.9) if f in extent.flips),
            },
            partial(cut, source),
            charts=(Chart("f", "avd_2", colour="cells", panels=()),),
            note="Algorithm 4. The paper does not say how it cuts; here neighbouring values of the widest attribute are "
            "merged until the product of all attributes has at most 2^26 cells. The error without dependence differs "
            "between the two tables.",
        ),
        Study(
            "parents",
            "Error by the largest number of parents",
            {
                "dataset": tuple(name for name in there if name == "NLTCS") or there,
                "degree": extent.degrees,
                "tables_from": ways,
                "seed": extent.seeds,
            },
            partial(parents, source),
            skip=lambda dataset, degree, tables_from, seed: tables_from == EXACT and seed > 0,
            charts=(Chart("degree", "avd_2", colour="tables_from"),),
            note="Epsilon 8, all candidates, entropy root. With exact tables the error is that of the network alone.",
        ),
    )
