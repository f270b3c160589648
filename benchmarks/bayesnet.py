"""The refined Bayes network's evaluation, measured: figures 5 to 12 of its paper, and the sampled plan beside them.

    python -m benchmarks.bayesnet [--quick] [-o FOLDER]

Figure 5: sum of mutual information against in-degree k and flip probability f. Figure 6: entropy root against random root,
with the mutual informations that algorithms 3 and 4 compute. Figure 7: edges found against those of the true table. Figure
8: joints of small domains. Figure 9: AVD and KL of 2- to 5-way marginals. Figures 10 to 12: SVM accuracy beside MeanEST and
Multi-HM. Then plan=sample, which spends epsilon on one question, against plan=split and independent attributes.

The paper does not say how an SVM is trained on MeanEST's and Multi-HM's reports. Here each participant's report is one
training row: codes scaled to [-1, 1], noisy values as they come (0 where an attribute was not asked), the sign of the
noisy target as the label.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.privincr import (
    PRODUCT,
    Table,
    exact_product,
    html_page,
    html_table,
    lines,
    load_tables,
    write,
)
from dither.estimate.joint import estimate_joint
from dither.evaluate.metrics import attribute_sets, evaluate_model, marginal, tvd
from dither.evaluate.tasks import binary_attributes, classification, split_rows
from dither.histogram.means import numbers_of, report_bytes
from dither.histogram.multi import MultiMean
from dither.mechanisms import PackedReports
from dither.mechanisms.fleet.stream import RandomStream
from dither.models import Model
from dither.protocols.bayesnet import BayesNetwork, Parameters
from dither.protocols.bayesnet_learn import Learnt, choose_root
from dither.protocols.independent import IndependentProtocol
from dither.protocols.independent import Parameters as IndependentParameters
from dither.protocols.machine import Campaign
from dither.simulate import simulate
from dither.structure import mutual_information
from dither.structure.bayes_search import Network, search_network

SEED = 20200429
FLIPS = (0.1, 0.3, 0.5, 0.7, 0.9)


def record_epsilon(table: Table, flip: float) -> float:
    """Eq. 6: what a flip probability costs a record of d attributes."""
    return 2 * len(table.schema) * math.log((2 - flip) / flip)


def collect(table: Table, codes: np.ndarray, epsilon: float, seed: int = SEED, **parameters: Any) -> BayesNetwork:
    """One campaign over these rows."""
    machine = BayesNetwork.start(Campaign(table.schema, epsilon, len(codes), seed), Parameters(**parameters))
    simulate(machine, codes, np.random.default_rng([SEED, seed]))
    return machine


def again(machine: BayesNetwork, seed: int = SEED, **parameters: Any) -> Learnt:
    """The same reports, learnt with other parameters."""
    campaign = Campaign(machine.campaign.schema, machine.campaign.epsilon, machine.campaign.participants, seed)
    other = BayesNetwork.start(campaign, Parameters(flip=machine.parameters.flip, **parameters))
    other.close(machine._closed[0])
    return other.learnt


def true_network(table: Table, degree: int, root: str) -> Network:
    """The network that the true table gives: what figure 7 compares with."""
    sizes = table.schema.cardinalities
    most = Parameters().max_cells

    def cells(a: int, given: tuple[int, ...]) -> int:
        return math.prod(sizes[p] for p in (a, *given))

    def score(a: int, given: tuple[int, ...]) -> float:
        return mutual_information(marginal(table.truth, sizes, (*given, a)).reshape(-1, sizes[a]))

    exact = [marginal(table.truth, sizes, (i,)) for i in range(len(sizes))]
    first = choose_root(exact, Parameters(root=root), SEED)  # type: ignore[arg-type]
    return search_network(
        len(sizes), degree, score, first, cached=root == "entropy", fits=lambda a, given: cells(a, given) <= most
    )


def networks(table: Table, flips: Sequence[float], degrees: Sequence[int]) -> list[dict[str, Any]]:
    """Figures 5 to 7: sum of mutual information, edges kept, mutual informations computed; f = 0 is the true table."""
    rows = []
    for root in ("entropy", "random"):
        for degree in degrees:
            exact = true_network(table, degree, root)
            common = {"dataset": table.name, "root": root, "degree": degree}
            rows.append({**common, "f": 0.0, **_network(exact, exact), "seconds": 0.0})
    for flip in flips:
        machine = collect(table, table.codes, record_epsilon(table, flip) + 1e-6, flip=flip, degree=1)
        for root in ("entropy", "random"):
            for degree in degrees:
                started = time.perf_counter()
                found = again(machine, root=root, degree=degree)
                seconds = time.perf_counter() - started
                common = {"dataset": table.name, "root": root, "degree": degree, "f": flip}
                compared = _network(found.network, true_network(table, degree, root))
                rows.append({**common, **compared, "joints_estimated": found.joints, "seconds": seconds})
    return rows


def _network(found: Network, exact: Network) -> dict[str, float]:
    common = len(found.edges() & exact.edges())
    return {
        "sum_of_mutual_information": found.total,
        "computed": found.computed,
        "edges": len(found.edges()),
        "edge_accuracy": common / max(1, len(exact.edges())),
    }


def ranges(table: Table, flips: Sequence[float]) -> list[dict[str, Any]]:
    """Figure 8: the AVD of joints estimated by EM over domains of about 8, 16 and 32 cells."""
    sizes, names = table.schema.cardinalities, table.schema.names
    candidates = [s for k in (2, 3, 4, 5) for s in attribute_sets(len(sizes), k, 2_000, np.random.default_rng(SEED))]
    chosen = [min(candidates, key=lambda s: abs(math.prod(sizes[a] for a in s) - cells)) for cells in (8, 16, 32)]
    rows = []
    for flip in flips:
        reports = collect(table, table.codes, record_epsilon(table, flip) + 1e-6, flip=flip, degree=1).reports
        for s in chosen:
            exact = marginal(table.truth, sizes, s)
            alone = exact_product(table).marginal([names[a] for a in s])
            found = estimate_joint(reports, [names[a] for a in s]).joint
            common = {
                "dataset": table.name,
                "f": flip,
                "cells": exact.size,
                "attributes": ", ".join(names[a] for a in s),
            }
            rows.append({**common, "method": "EM", "avd": tvd(found, exact)})
            rows.append({**common, "method": PRODUCT, "avd": tvd(alone, exact)})
    return rows


def queries(table: Table, flips: Sequence[float], degree: int, sets: int) -> list[dict[str, Any]]:
    """Figure 9: AVD and KL of 2- to 5-way marginals, with the product of exact one-way marginals at every f."""
    ways = tuple(k for k in (2, 3, 4, 5) if k <= len(table.schema))
    rows = []
    for flip in flips:
        model = collect(table, table.codes, record_epsilon(table, flip) + 1e-6, flip=flip, degree=degree).model()
        for name, chosen in (("bayesnet", model), (PRODUCT, exact_product(table))):
            rows += [
                {"dataset": table.name, "f": flip, "k": k, "method": name, "avd": s.tvd, "kl": s.kl}
                for k, s in evaluate_model(chosen, table.truth, ways, sets, np.random.default_rng(SEED)).items()
            ]
    return rows


def plans(table: Table, epsilons: Sequence[float], sets: int) -> list[dict[str, Any]]:
    """One question a participant against every question a participant, at the same epsilon."""
    rows = []
    for epsilon in epsilons:
        models: dict[str, Model] = {PRODUCT: exact_product(table)}
        alone = IndependentProtocol.start(
            Campaign(table.schema, epsilon, len(table.codes), SEED), IndependentParameters()
        )
        simulate(alone, table.codes, np.random.default_rng(SEED))
        models["independent"] = alone.model()
        for plan in ("split", "sample"):
            degree = 1 if plan == "split" else 2
            models[f"bayesnet, plan={plan}"] = collect(table, table.codes, epsilon, plan=plan, degree=degree).model()
        for name, model in models.items():
            found = evaluate_model(model, table.truth, (2, 3), sets, np.random.default_rng(SEED))
            rows.append(
                {
                    "dataset": table.name,
                    "epsilon": epsilon,
                    "method": name,
                    "avd_2": found[2].tvd,
                    "avd_3": found[3].tvd,
                }
            )
    return rows


def classifiers(table: Table, flips: Sequence[float], degree: int, targets: int, rows: int) -> list[dict[str, Any]]:
    """Figures 10 to 12: mean SVM accuracy over binary attributes."""
    train, test = split_rows(table.codes, 0.2, np.random.default_rng(SEED))
    names = binary_attributes(table.schema)[:targets]
    part = Table(table.name, table.schema, train, train)

    def score(synthetic: np.ndarray, real: np.ndarray | None) -> list[Any]:
        return classification(
            table.schema, synthetic, test, classifier="svm", real=real, targets=names, seed=SEED, rows=rows
        )

    plain = score(exact_product(part).sample(rows, np.random.default_rng(SEED)), train)
    out = []
    for flip in flips:
        epsilon = record_epsilon(table, flip)
        model = collect(table, train, epsilon + 1e-6, flip=flip, degree=degree).model()
        synthetic = score(model.sample(rows, np.random.default_rng(SEED)), None)
        accuracies = {
            "bayesnet": float(np.mean([s.synthetic for s in synthetic])),
            "MeanEST": reported_accuracy(part, test, names, "duchi", epsilon, rows),
            "Multi-HM": reported_accuracy(part, test, names, "hybrid", epsilon, rows),
            PRODUCT: float(np.mean([s.synthetic for s in plain])),
            "real rows, no privacy": float(np.mean([s.real for s in plain])),
            "most frequent value": float(np.mean([s.majority for s in plain])),
        }
        out += [
            {"dataset": table.name, "f": flip, "epsilon": epsilon, "method": name, "accuracy": value}
            for name, value in accuracies.items()
        ]
    return out


def reported_accuracy(
    table: Table, test: np.ndarray, targets: Sequence[str], mechanism: str, epsilon: float, rows: int
) -> float:
    """A linear SVM trained on the reports themselves: every attribute at epsilon/d (MeanEST), or a few drawn (Multi-HM)."""
    from sklearn.svm import LinearSVC

    d = len(table.schema)
    top = np.array(table.schema.cardinalities) - 1
    chosen = MultiMean.for_epsilon(d, epsilon, mechanism, d if mechanism == "duchi" else None)
    rng = np.random.default_rng(SEED)
    people = table.codes[rng.choice(len(table.codes), min(rows, len(table.codes)), replace=False)]
    reports = chosen.randomise_many(2 * people / top - 1, RandomStream.from_generator(rng))
    noisy = np.zeros((len(people), d))
    asked = np.zeros((len(people), d), bool)
    width = 1 + report_bytes(chosen.grid)
    for place in range(chosen.asked):
        part = reports.rows[:, place * width : (place + 1) * width]
        values = numbers_of(chosen.grid, PackedReports(np.ascontiguousarray(part[:, 1:])))
        noisy[np.arange(len(people)), part[:, 0]] = values
        asked[np.arange(len(people)), part[:, 0]] = True
    scores = []
    for target in targets:
        column = table.schema.index(target)
        known = asked[:, column]
        labels = (noisy[known, column] > 0).astype(int)
        truth = test[:, column]
        if len(labels) == 0 or len(set(labels.tolist())) < 2:
            guess = int(labels[0]) if len(labels) else 0
            scores.append(float((truth == guess).mean()))
            continue
        model = LinearSVC(dual=False, tol=1e-3, max_iter=2_000).fit(np.delete(noisy[known], column, 1), labels)
        scores.append(float((model.predict(np.delete(2 * test / top - 1, column, 1)) == truth).mean()))
    return float(np.mean(scores))


def run(quick: bool = False, out: Path | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Measure everything; with `out` write bayesnet.json and bayesnet.html there. `quick` is under a minute."""
    started = time.perf_counter()
    tables = load_tables(data_dir, quick)
    flips: tuple[float, ...] = (0.1, 0.5, 0.9) if quick else FLIPS
    result: dict[str, Any] = {
        "what": "The refined Bayes network, figures 5 to 12; f is the flip probability, epsilon the whole record's",
        "seed": SEED,
        "quick": quick,
        "datasets": {t.name: {"rows": len(t.codes), "attributes": len(t.schema)} for t in tables},
        "networks": [],
        "ranges": [],
        "queries": [],
        "classifiers": [],
        "plans": [],
    }
    sets = 20 if quick else 105
    for table in tables:
        binary = max(table.schema.cardinalities) == 2
        # The split plan reads every report again and again; 1.5 million of them would take hours and show nothing new.
        if len(table.codes) <= 100_000:
            small = _smaller(table, 2_000) if quick else table
            degrees = ((1, 2) if quick else (1, 2, 3, 4)) if binary else ((1,) if quick else (1, 2))
            result["networks"] += networks(small, flips, degrees)
            result["ranges"] += ranges(small, flips)
            result["queries"] += queries(small, flips, 2 if binary or not quick else 1, sets)
            result["classifiers"] += classifiers(
                small, flips, 2 if binary or not quick else 1, 3 if quick else 99, 5_000 if quick else 20_000
            )
            result["plans"] += plans(small if quick else table, (4,) if quick else (1, 4, 8), sets)
        else:
            result["plans"] += sampled_only(table, (1, 4, 8), sets)
    result["seconds"] = time.perf_counter() - started
    write(result, out, "bayesnet", page(result) if out is not None else "")
    return result


def sampled_only(table: Table, epsilons: Sequence[float], sets: int) -> list[dict[str, Any]]:
    """plan=sample beside independent attributes, for a population that the split plan would take hours over."""
    rows = []
    for epsilon in epsilons:
        alone = IndependentProtocol.start(
            Campaign(table.schema, epsilon, len(table.codes), SEED), IndependentParameters()
        )
        simulate(alone, table.codes, np.random.default_rng(SEED))
        models: dict[str, Model] = {PRODUCT: exact_product(table), "independent": alone.model()}
        models["bayesnet, plan=sample"] = collect(table, table.codes, epsilon, plan="sample").model()
        for name, model in models.items():
            found = evaluate_model(model, table.truth, (2, 3), sets, np.random.default_rng(SEED))
            rows.append(
                {
                    "dataset": table.name,
                    "epsilon": epsilon,
                    "method": name,
                    "avd_2": found[2].tvd,
                    "avd_3": found[3].tvd,
                }
            )
    return rows


def _smaller(table: Table, rows: int) -> Table:
    """A random part: NLTCS is sorted, so never a prefix."""
    if rows >= len(table.codes):
        return table
    chosen = table.codes[np.random.default_rng(SEED).choice(len(table.codes), rows, replace=False)]
    return Table(table.name, table.schema, np.asfortranarray(chosen), chosen)


def page(result: dict[str, Any]) -> str:
    """Charts and tables in one HTML file."""
    found = [{**r, "panel": r["dataset"], "line": f"{r['root']}, k = {r['degree']}"} for r in result["networks"]]
    asked = [{**r, "panel": r["dataset"], "line": f"{r['method']}, {r['k']}-way"} for r in result["queries"]]
    svm = [{**r, "panel": r["dataset"]} for r in result["classifiers"]]
    narrow = [{**r, "panel": f"{r['dataset']}, {r['cells']} cells"} for r in result["ranges"]]
    by_plan = [{**r, "panel": r["dataset"]} for r in result["plans"]]
    parts = [
        (
            "Figures 5 and 6. Sum of mutual information against f",
            lines(found, "f", "sum_of_mutual_information", "line"),
        ),
        ("Figure 7. Share of the true network's edges that were found", lines(found, "f", "edge_accuracy", "line")),
        ("Figure 8. AVD of joints of about 8, 16 and 32 cells", lines(narrow, "f", "avd", "method")),
        ("Figure 9. AVD of 2- to 5-way marginals", lines(asked, "f", "avd", "line")),
        ("Figure 9. KL divergence", lines(asked, "f", "kl", "line")),
        ("Figures 10 to 12. SVM accuracy on real rows", lines(svm, "f", "accuracy", "method")),
        ("One question against all questions: 2-way AVD", lines(by_plan, "epsilon", "avd_2", "method")),
    ]
    parts += [
        (f"Figures of {key}", html_table(result[key]))
        for key in ("networks", "ranges", "queries", "classifiers", "plans")
    ]
    return html_page("The refined Bayes network, measured", result["what"], parts)


def print_summary(result: dict[str, Any]) -> None:
    """Networks, queries and plans, a line each."""
    for r in result["networks"]:
        print(
            f"{r['dataset']:20} f={r['f']} root={r['root']:8} k={r['degree']} sum of MI {r['sum_of_mutual_information']:.3f} "
            f"edges right {r['edge_accuracy']:.2f} MIs computed {r['computed']}"
        )
    for r in result["queries"]:
        print(f"{r['dataset']:20} f={r['f']} {r['k']}-way {r['method']:36} AVD {r['avd']:.4f} KL {r['kl']:.4f}")
    for r in result["classifiers"]:
        print(f"{r['dataset']:20} f={r['f']} {r['method']:36} SVM {r['accuracy']:.3f}")
    for r in result["plans"]:
        print(f"{r['dataset']:20} eps {r['epsilon']:<4} {r['method']:36} 2-way {r['avd_2']:.4f} 3-way {r['avd_3']:.4f}")
    print(f"{result['seconds']:.0f} s in all")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="The refined Bayes network's figures, measured")
    parser.add_argument("--quick", action="store_true", help="parts of the tables, fewer f and k: under a minute")
    parser.add_argument("-o", "--out", type=Path, default=None, help="folder for bayesnet.json and bayesnet.html")
    given = parser.parse_args()
    print_summary(run(quick=given.quick, out=given.out))


if __name__ == "__main__":
    main()
