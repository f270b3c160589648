"""LoPub's evaluation, measured: joint estimation, correlations, pruning, the model, classification.

Figures 13 to 18 (AVD against f) with the times of figures 7 to 12, figures 19 to 21 (correlation identification), tables 7
to 9 (entropy pruning), figures 22 to 27 (SVM and random forest) with the times of figures 28 to 30, and the AVD of the
finished model for k = 2, 3, 5. Unary encoding, participants simulated person by person.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks import tables
from benchmarks.lopub_claims import claims_studies
from benchmarks.lopub_printed import joints_study, pruning_study
from benchmarks.model_error import evaluate_model
from benchmarks.printed import printed
from benchmarks.tables import GENERATED, PRODUCT, Table, exact_product
from benchmarks.tasks import (
    binary_attributes,
    correlation_identification,
    split_rows,
    train_and_test,
)
from dither.evaluation.metrics import attribute_sets, marginal, tvd
from dither.fit import mutual_information, mutual_information_threshold, prune_by_entropy
from dither.fit.joint import estimate_joints
from dither.lab.harness import Bench, Chart, Size, Study
from dither.methods.lopub import LoPub, LoPubParameters, find_dependences
from dither.methods.machine import Campaign
from dither.schema import Schema
from dither.simulate import simulate

SEED = 20180301
MAX_CELLS = {2: 10_000, 3: 20_000, 5: 10_000}  # larger joints are left to the model
WIDE_SETS = 30  # sets of five attributes with many values each
ESTIMATORS: dict[str, dict[str, Any]] = {
    "EM": {"estimator": "em"},
    "hybrid": {"estimator": "hybrid"},
    "Lasso": {"estimator": "lasso"},
    "Lasso as printed": {"estimator": "lasso", "features": "paper"},
}
MODELS: dict[str, dict[str, Any]] = {
    "EM": {"estimator": "em"},
    "hybrid": {"estimator": "hybrid"},
    "Lasso": {"estimator": "lasso"},
    "fit to all pairs": {"fit": "pairs"},
}
REAL, MAJORITY = "real rows, no privacy", "most frequent value"
TABLE_PHI = {
    **dict.fromkeys(("Adult", GENERATED), (0.1, 0.2, 0.3, 0.4, 0.5)),
    **dict.fromkeys(("Retail", "NLTCS"), (0.1, 0.15, 0.2, 0.25, 0.3)),
}
FIGURE_PHI = {"Adult": 0.4, GENERATED: 0.4, "Retail": 0.25, "NLTCS": 0.25}


@dataclass(frozen=True)
class Extent:
    """The sizes of one run."""

    tables: tuple[str, ...] = ("Adult", "Retail", "NLTCS", GENERATED)
    rows: int = 1_000_000
    columns: tuple[int, ...] | None = None  # all
    flips: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    few_flips: tuple[float, ...] = (
        0.1,
        0.5,
        0.9,
    )  # for costly points, and for the generated table
    ways: tuple[int, ...] = (2, 3, 5)
    sets: int = 105  # all pairs of Adult, 105 random ones of everything larger
    seeds: tuple[int, ...] = (0, 1, 2)
    cells: int = 2_000  # of a clique
    training: int = 5_000
    targets: int = 99


EXTENTS: dict[Size, Extent] = {
    "full": Extent(),
    "quick": Extent(
        tables=("Adult", "NLTCS"), rows=3_000, flips=(0.1, 0.5), few_flips=(0.1,), sets=6, seeds=(0,), cells=100,
        training=1_000, targets=3,
    ),
    "smoke": Extent(
        tables=("Adult",), rows=2_000, columns=(3, 5, 7, 9, 14), flips=(0.1, 0.9), few_flips=(0.1,), ways=(2, 3),
        seeds=(0,), cells=300, training=500,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """The tables and the share of each that is used."""

    folder: Path | None
    extent: Extent

    def table(self, name: str) -> Table:
        table, columns = tables.part(name, self.extent.rows, self.folder), self.extent.columns
        if columns is None:
            return table
        codes = np.asfortranarray(table.codes[:, columns])
        return Table(
            name, Schema(tuple(a for i, a in enumerate(table.schema) if i in columns)), codes, codes
        )

    def halves(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The rows that take part, and a fifth that classifiers are tested on."""
        return split_rows(self.table(name).codes, 0.2, np.random.default_rng(SEED))


@lru_cache(maxsize=1)
def collect(source: Source, dataset: str, f: float, seed: int, training: bool = False) -> LoPub:
    """One simulated round; epsilon follows from the flip probability."""
    people = source.halves(dataset)[0] if training else source.table(dataset).codes
    machine = LoPub(
        Campaign(source.table(dataset).schema, 1e6, len(people), SEED), LoPubParameters(flip=f)
    )
    simulate(machine, people, np.random.default_rng([SEED, round(1000 * f), seed]))
    return machine


def chosen_sets(table: Table, k: int, sets: int) -> list[tuple[int, ...]]:
    """The same random attribute sets for every f and estimator, among those whose joint is not too large."""
    rng = np.random.default_rng([SEED, k])
    names = table.schema.names
    drawn = attribute_sets(len(names), k, 20 * sets, rng)
    fitting = [s for s in drawn if table.schema.cells([names[i] for i in s]) <= MAX_CELLS[k]]
    wanted = min(len(fitting), min(sets, WIDE_SETS) if k == 5 and not table.binary else sets)
    return [fitting[i] for i in sorted(rng.choice(len(fitting), wanted, replace=False))]


def joints(source: Source, dataset: str, f: float, seed: int, k: int) -> list[dict[str, Any]]:
    """Mean AVD and processor seconds per joint of every estimator, over random attribute sets."""
    table = source.table(dataset)
    sets = chosen_sets(table, k, source.extent.sets)
    names = [tuple(table.schema.names[i] for i in s) for s in sets]
    exact = [marginal(table.truth, table.schema.cardinalities, s) for s in sets]

    def error(found: Sequence[np.ndarray]) -> float:
        return float(np.mean([tvd(a, b) for a, b in zip(found, exact, strict=True)]))

    alone = exact_product(table)
    rows: list[dict[str, Any]] = [
        {"method": PRODUCT, "avd": error([alone.marginal(n) for n in names])}
    ]
    reports = collect(source, dataset, f, seed).reports
    estimate_joints(
        reports, names[:1], **ESTIMATORS["Lasso as printed"]
    )  # imports its solver before the clock runs
    for method, options in ESTIMATORS.items():
        begin = time.process_time()
        found = estimate_joints(reports, names, **options)
        seconds = (time.process_time() - begin) / len(sets)
        rows.append(
            {
                "method": method,
                "avd": error([x.joint for x in found]),
                "cpu_seconds_per_joint": seconds,
            }
        )
    return [{**row, "sets": len(sets)} for row in rows]


def left_out(source: Source, dataset: str, f: float, seed: int = 0, k: int = 2) -> bool:
    """Repeats of costly points, repeats at intermediate f, and most of the generated table."""
    between = f not in source.extent.few_flips
    if dataset == GENERATED:
        return k > 3 or seed > 0 or between
    wide = not source.table(dataset).binary
    return (seed > 0 and (between or k == 5 or (wide and k == 3))) or (wide and k == 5 and between)


@lru_cache(maxsize=4)
def exact_information(source: Source, dataset: str) -> Mapping[tuple[int, int], float]:
    """The mutual information of every pair of the real table."""
    table = source.table(dataset)
    pairs = combinations(range(len(table.schema)), 2)
    return {
        p: mutual_information(marginal(table.truth, table.schema.cardinalities, p)) for p in pairs
    }


def dependent(source: Source, dataset: str, phi: float) -> set[tuple[int, int]]:
    """The pairs of the real table at or above the paper's threshold."""
    sizes = source.table(dataset).schema.cardinalities
    information = exact_information(source, dataset).items()
    return {
        (i, j)
        for (i, j), value in information
        if value >= mutual_information_threshold(sizes[i], sizes[j], phi)
    }


def correlations(source: Source, dataset: str, f: float, estimator: str) -> list[dict[str, Any]]:
    """Pairs judged rightly, added and lost, by the paper's rule and with the noise test on top of it."""
    table, phi = source.table(dataset), FIGURE_PHI[dataset]
    truth, pairs = dependent(source, dataset, phi), math.comb(len(table.schema), 2)
    parameters = LoPubParameters(threshold="paper", phi=phi, **MODELS[estimator])
    pruned, scores, _, _ = find_dependences(
        table.schema, collect(source, dataset, f, 0).reports, parameters
    )
    significant = {p for p in pruned.dependent if scores[p] >= parameters.significance}
    return [
        {"rule": rule, "dependent": len(truth), **correlation_identification(truth, found, pairs)}
        for rule, found in (
            ("paper's threshold", pruned.dependent),
            ("and the noise test", significant),
        )
    ]


def pruning(source: Source, dataset: str, phi: float) -> dict[str, Any]:
    """Tables 7 to 9 on the real table; each pair is counted once."""
    table = source.table(dataset)
    singles = [
        marginal(table.truth, table.schema.cardinalities, (i,)) for i in range(len(table.schema))
    ]
    truth = dependent(source, dataset, phi)
    variant: Literal["full", "empty"] = "full" if table.binary else "empty"
    return {
        "variant": variant,
        **prune_by_entropy(singles, phi, variant, lambda i, j: (i, j) in truth).against(truth),
    }


def learn(source: Source, dataset: str, f: float, seed: int, method: str) -> LoPub:
    """A machine that has the reports of the training rows."""
    shared = collect(source, dataset, f, seed, training=True)
    parameters = LoPubParameters(flip=f, max_clique_cells=source.extent.cells, **MODELS[method])
    machine = LoPub(shared.campaign, parameters)
    machine.close(shared._closed[0])
    return machine


def finished(source: Source, dataset: str, f: float, seed: int, method: str) -> dict[str, Any]:
    """The model's own AVD for k = 2, 3, 5, and the processor seconds from reports to synthetic rows."""
    table, train = source.table(dataset), source.halves(dataset)[0]
    row: dict[str, Any] = {}
    if method == PRODUCT:
        model: Any = exact_product(Table(dataset, table.schema, train, train))
    else:
        begin = time.process_time()
        machine = learn(source, dataset, f, seed, method)
        model = machine.model()
        model.sample(len(train), np.random.default_rng([SEED, seed]))
        row["cpu_seconds"] = time.process_time() - begin
        notes = machine.diagnostics().to_json()
        row |= {"edges": len(notes["edges"]), "epsilon_of_a_record": notes["epsilon_record"]}
    sets = source.extent.sets
    errors = evaluate_model(model, train, (2, 3), sets, np.random.default_rng(SEED))
    errors |= evaluate_model(
        model, train, (5,), sets if table.binary else WIDE_SETS, np.random.default_rng(SEED)
    )
    return {**{f"avd_{k}": e.tvd for k, e in errors.items()}, **row}


def classification(source: Source, dataset: str, f: float, method: str) -> list[dict[str, Any]]:
    """Mean accuracy on real rows of an SVM over the binary attributes and of a forest over all of them."""
    if method in (REAL, MAJORITY, PRODUCT):
        return without_collection(source, dataset, method)
    rows = source.extent.training
    synthetic = (
        learn(source, dataset, f, 0, method).model().sample(rows, np.random.default_rng(SEED))
    )
    return _accuracies(source, dataset, synthetic)


@lru_cache(maxsize=16)
def without_collection(source: Source, dataset: str, method: str) -> list[dict[str, Any]]:
    """What does not depend on f: trained on real rows, on the product of their one-way marginals, or not at all."""
    table, train = source.table(dataset), source.halves(dataset)[0]
    if method == PRODUCT:
        alone = exact_product(Table(dataset, table.schema, train, train))
        train = alone.sample(source.extent.training, np.random.default_rng(SEED))
    return _accuracies(source, dataset, train if method != MAJORITY else None)


def _accuracies(source: Source, dataset: str, train: np.ndarray | None) -> list[dict[str, Any]]:
    schema, test = source.table(dataset).schema, source.halves(dataset)[1]
    wanted: dict[Literal["svm", "forest"], list[str]] = {
        "svm": binary_attributes(schema),
        "forest": list(schema.names),
    }
    rows = []
    for classifier, every in wanted.items():
        targets = every[:: max(1, len(every) // source.extent.targets)][: source.extent.targets]
        scores = []
        for target in targets:
            values = test[:, schema.index(target)]
            scores.append(
                np.bincount(values).max() / len(values)
                if train is None
                else train_and_test(
                    schema, train, test, target, classifier, seed=SEED, rows=source.extent.training
                )
            )
        rows.append(
            {"classifier": classifier, "accuracy": float(np.mean(scores)), "targets": len(targets)}
        )
    return rows


ABOUT = (
    "Ren et al., LoPub, IEEE TIFS 2018. f is the probability with which a bit is flipped; a record of d attributes costs "
    "2 d ln((2-f)/f), on Adult 88, 33 and 6 at f = 0.1, 0.5 and 0.9. AVD is the total variation distance, mean over the "
    "attribute sets. Unary encoding, every row of the table a participant. Retail: all 88,162 rows of the 16 most frequent "
    "items, since the paper's subset of 27,522 rows cannot be rebuilt; NLTCS is a second binary table. TPC-E's rows could "
    "not be had: a generated table with its published cardinalities stands in and says nothing about TPC-E's figures."
)

CAPTION = "TPC-E (generated): TPC-E's published cardinalities with generated rows; its own could not be had."


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """LoPub's figures 7 to 30 and tables 7 to 9."""
    extent = EXTENTS[size]
    source = Source(Path("nowhere") if size == "smoke" else data_dir, extent)
    there = tables.names(source.folder, *extent.tables)
    studies = tuple(
        replace(s, note=f"{s.note} {CAPTION}") if GENERATED in s.axes["dataset"] else s
        for s in (_joints(source, there), *_structure(source, there), *_synthesis(source, there))
    ) + claims_studies(source.table, there, size == "full")
    return Bench("lopub", "LoPub, measured", ABOUT, studies, size)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(map(str, values))


def _joints(source: Source, there: tuple[str, ...]) -> Study:
    extent = source.extent
    panels = ("dataset", "k")
    return Study(
        "joints",
        "Figures 7 to 18. AVD of joint estimates, and seconds per joint",
        {"dataset": there, "f": extent.flips, "seed": extent.seeds, "k": extent.ways},
        partial(joints, source),
        skip=partial(left_out, source),
        charts=(
            Chart("f", "avd", panels=panels, title="AVD against f"),
            Chart(
                "f",
                "cpu_seconds_per_joint",
                panels=panels,
                log_y=True,
                title="Processor seconds per joint against f",
            ),
        ),
        note=(
            "The paper has k = 3, 5 on the binary table and 2, 3 on the others; here 2, 3, 5 on all but the generated one. "
            f"{extent.sets} random attribute sets (the paper: 100); for k = 5 on Adult {min(extent.sets, WIDE_SETS)} sets of "
            f"at most 10,000 cells. Seeds: {len(extent.seeds)} for k = 2 and for k = 3 of binary tables at f = "
            f"{_listed(extent.few_flips)}, else one. The paper's figures 13 and 14 show EM rising to 0.28 at f = 0.9 and "
            "Lasso flat at about 0.1; the others are curves only. Lasso as printed sees one-way sums only: hence flat."
        ),
    )


def _structure(source: Source, there: tuple[str, ...]) -> tuple[Study, ...]:
    extent = source.extent
    found = Study(
        "correlations",
        "Figures 19 to 21. Pairs judged rightly, added and lost",
        {"dataset": there, "f": extent.flips, "estimator": ("EM", "hybrid", "Lasso")},
        partial(correlations, source),
        skip=lambda dataset, f, estimator: (
            f not in extent.few_flips and not source.table(dataset).binary
        ),
        charts=(
            Chart(
                "f",
                "accurate",
                colour="estimator",
                panels=("dataset", "rule"),
                title="Share judged rightly",
            ),
        ),
        known=tuple(
            {"dataset": d, "rule": "as read from the text, f < 0.9", "accurate": a}
            for d, a in printed("lopub", "figures 19 to 21, least share").items()
        ),
        note=(
            "phi = 0.25 for binary tables and 0.4 for others, as in the paper. Against the real table at the same phi. One "
            f"seed; tables with many values at f = {_listed(extent.few_flips)} only."
        ),
    )
    phis = sorted({phi for name in there for phi in TABLE_PHI[name]})
    pruned = Study(
        "pruning",
        "Tables 7 to 9. Entropy pruning",
        {"dataset": there, "phi": phis},
        partial(pruning, source),
        skip=lambda dataset, phi: phi not in TABLE_PHI[dataset],
        note="Of the whole table, each dependence counted once, attributes ranked by H/k as algorithm 5 reads.",
    )
    as_printed = (
        (pruning_study(source.table, there),) if len(there) and extent.columns is None else ()
    )
    binary = tuple(name for name in there if name in ("NLTCS", "Retail"))
    again = (joints_study(source.table, binary, extent.few_flips, extent.sets),) if binary else ()
    return found, pruned, *as_printed, *again


def _synthesis(source: Source, there: tuple[str, ...]) -> tuple[Study, Study]:
    extent = source.extent
    model = Study(
        "model",
        "The finished model, and figures 28 to 30: seconds from reports to synthetic rows",
        {"dataset": there, "f": extent.flips, "seed": extent.seeds, "method": (PRODUCT, *MODELS)},
        partial(finished, source),
        skip=lambda dataset, f, seed, method: left_out(source, dataset, f, seed),
        charts=(
            Chart("f", "avd_2", title="2-way AVD of the model"),
            Chart("f", "avd_3", title="3-way AVD of the model"),
            Chart("f", "cpu_seconds", log_y=True, title="Processor seconds from reports to rows"),
        ),
        note=(
            f"Cliques of at most {extent.cells:,} cells; pairs kept by the noise test. Four fifths of the rows take part. "
            f"Seeds: {len(extent.seeds)} at f = {_listed(extent.few_flips)}, else one. "
            f"Five-way errors of tables with many values over {WIDE_SETS} sets, all others over {extent.sets}."
        ),
    )
    figures = (("worst of all f and estimators", "worst"), ("random guess", "guess"))
    published = (
        (dataset, method, accuracy)
        for method, line in figures
        for dataset, accuracy in printed("lopub", f"figures 23, 25 and 27, {line}").items()
    )
    tasks = Study(
        "classification",
        "Figures 22 to 27. Accuracy on real rows of classifiers trained on synthetic ones",
        {
            "dataset": there,
            "f": extent.few_flips,
            "method": (REAL, MAJORITY, PRODUCT, *(m for m in MODELS if m != "fit to all pairs")),
        },
        partial(classification, source),
        charts=(Chart("f", "accuracy", panels=("dataset", "classifier")),),
        known=tuple(
            {"dataset": d, "classifier": "forest", "method": m, "accuracy": a}
            for d, m, a in published
        ),
        note=(
            f"Mean over at most {extent.targets} target attributes (SVM: the binary ones, forest: all), {extent.training:,} "
            f"training rows, f = {_listed(extent.few_flips)}, against all rows and f = 0.1 to 0.9 in the paper; tested on a "
            "fifth of the rows."
        ),
    )
    return model, tasks
