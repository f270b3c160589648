"""How cost grows: reports made, exported and counted here and on Spark, fits up to 500 attributes, whole campaigns.

Everything is counted in CPU seconds, each point in a separate process. In the study of growth tallies are drawn from the exact
pair marginals of a generated network, so that no population is held and only pooling and fitting are timed. The study of
reports makes every one of them, writes them as an export does and counts the files; the last puts a generated population through
a whole campaign, row by row.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from dither.datasets import generate_network
from dither.fit import answers_of
from dither.fit.mixture.fit import MixtureSettings, fit_mixture
from dither.fit.mixture.targets import pair_targets
from dither.lab.harness import Bench, Chart, NotAvailable, Size, Study, peak_megabytes, run_isolated
from dither.mechanisms import kernels
from dither.methods import start
from dither.randomness import RandomStream
from dither.reports import Plan, question
from dither.simulate import simulate
from dither.tally import CountTally, zero
from dither.tally.counting import COLUMNS, begin_export, count_all, find_reports, read_reports
from dither.tally.spark import count_on_spark

VALUES, EPSILON, STEPS, BLOCK, PAGE = 10, 4.0, 20, 500_000, 1 << 18
TWINS, MOVED_BY = 3, 0.1  # as the default method fits


def drawn(attributes: int, participants: int, rng: np.random.Generator) -> tuple[Any, CountTally]:
    """The tally of a campaign that asks all pairs equally often; neighbours depend on each other, the rest is independent."""
    network = generate_network([VALUES] * attributes, parents=1, strength=2.0, seed=3)
    names = network.schema.names
    one = [network.marginal([name]) for name in names]
    pairs = list(combinations(range(attributes), 2))
    questions = tuple(question(network.schema, [names[i], names[j]], EPSILON) for i, j in pairs)
    tally = zero(Plan(0, questions, (1.0 / len(pairs),) * len(pairs)))
    assert isinstance(tally, CountTally)
    people = participants // len(pairs)
    for number, (i, j) in enumerate(pairs):
        near = network.marginal([names[i], names[j]]) if j == i + 1 else np.outer(one[i], one[j])
        truth = rng.multinomial(people, near.ravel() / near.sum())
        tally.add_counts(number, kernels.simulate(questions[number].mechanism, truth, rng), people)
    return network.schema, tally


def fit(attributes: int, participants: int) -> dict[str, float]:
    """CPU seconds of pooling and of a fixed number of steps (so that sizes compare), and the fit's cost per cell of a pair."""
    rng = np.random.default_rng(0)
    schema, tally = drawn(attributes, participants, rng)
    begin = time.process_time()
    targets = pair_targets(schema, answers_of([tally]))
    pooled = time.process_time()
    moved = [pair_targets(schema, answers_of([tally]), MOVED_BY, rng) for _ in range(TWINS)]
    settings = MixtureSettings(components=60, iterations=STEPS, pilot_iterations=STEPS)
    fitted = fit_mixture(targets, moved, MOVED_BY, rng, settings)
    done = time.process_time()
    return {
        "pair_cells": targets.cells,
        "starts": fitted.starts,
        "pool_cpu_s": pooled - begin,
        "fit_cpu_s": done - pooled,
        "fit_cpu_s_per_million_pair_cells": (done - pooled) / (targets.cells / 1e6),
        "peak_mb": peak_megabytes(),
    }


def all_pairs(attributes: int) -> Plan:
    """A round that asks all pairs equally often."""
    schema = generate_network([VALUES] * attributes, parents=1, strength=2.0, seed=3).schema
    pairs = list(combinations(schema.names, 2))
    return Plan(
        0,
        tuple(question(schema, pair, EPSILON) for pair in pairs),
        (1.0 / len(pairs),) * len(pairs),
    )


def make_reports(plan: Plan, participants: int) -> tuple[pa.Table, float]:
    """Reports in the order of their ids, and the CPU seconds that making them took."""
    people = participants // len(plan.questions)
    rng, stream = np.random.default_rng(0), RandomStream.from_seed("scale", 0)
    made, spent = [], 0.0
    for number, asked in enumerate(plan.questions):
        cells = rng.integers(0, asked.mechanism.cells, people)
        begin = time.process_time()
        rows = kernels.randomise(asked.mechanism, cells, stream).rows
        spent += time.process_time() - begin
        ids = [row.tobytes() for row in rng.integers(0, 256, (people, 32), np.uint8)]
        made.append(
            pa.table([ids, [number] * people, [row.tobytes() for row in rows]], schema=COLUMNS)
        )
    return pa.concat_tables(made).sort_by("report_id"), spent


def export(plan: Plan, ordered: pa.Table, folder: str) -> int:
    """Write reports as a collector's export does; how many files there are."""
    files = begin_export(folder, "ab" * 16, plan)
    for begin in range(0, ordered.num_rows, PAGE):
        files.add(ordered.slice(begin, PAGE))
    files.flush()
    return files.files


def reports(attributes: int, participants: int) -> dict[str, float]:
    """CPU microseconds and bytes per report: made as devices would, exported, and counted from the files."""
    plan = all_pairs(attributes)
    ordered, making = make_reports(plan, participants)
    with TemporaryDirectory() as folder:
        begin = time.process_time()
        files = export(plan, ordered, folder)
        exported = time.process_time()
        size = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
        counted = count_all(plan, read_reports(find_reports([folder], plan)), ordered.num_rows)
        spent = {
            "make": making,
            "export": exported - begin,
            "tally": time.process_time() - exported,
        }
    assert counted.reports == ordered.num_rows
    return {
        "questions": len(plan.questions),
        **{
            f"{what}_cpu_us_per_report": 1e6 * seconds / ordered.num_rows
            for what, seconds in spent.items()
        },
        "export_bytes_per_report": size / ordered.num_rows,
        "files": float(files),
        "tally_mb": len(counted.tally.to_bytes()) / 1e6,
        "plan_mb": len(json.dumps(plan.to_json())) / 1e6,
        "peak_mb": peak_megabytes(),
    }


def on_spark(attributes: int, participants: int) -> dict[str, float]:
    """CPU seconds of this process, Java's and the workers' while Spark counts exported reports with two cores."""
    plan = all_pairs(attributes)
    ordered, _ = make_reports(plan, participants)
    with TemporaryDirectory() as folder:
        export(plan, ordered, folder)
        begin = family_cpu_seconds()
        counted = count_on_spark([folder], plan, "local[2]")
        spent = family_cpu_seconds() - begin
    assert counted.reports == ordered.num_rows
    return {"cpu_s": spent, "cpu_us_per_report": 1e6 * spent / ordered.num_rows}


def family_cpu_seconds() -> float:
    """CPU seconds so far of this process and of its descendants, including ended ones."""
    parents, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # others come and go
            continue
        parents[int(path.name)] = int(stat[1])
        spent[int(path.name)] = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")

    def ours(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process]
        return process in parents

    return sum(seconds for process, seconds in spent.items() if ours(process))


def population(network: Any, participants: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of codes, a byte each, drawn in blocks."""
    codes = np.empty((participants, len(network.schema)), np.uint8, order="F")
    for begin in range(0, participants, BLOCK):
        end = min(begin + BLOCK, participants)
        codes[begin:end] = network.sample_codes(end - begin, rng)
    return codes


def campaign(attributes: int, participants: int, rounds: int) -> dict[str, float]:
    """A whole campaign over a generated population, row by row, and a million synthetic rows."""
    network = generate_network([VALUES] * attributes, strength=2.0, seed=3)
    rng = np.random.default_rng(0)
    begin = time.process_time()
    codes = population(network, participants, rng)
    machine = start("mixture", network.schema, EPSILON, participants, {"rounds": rounds})
    held, ready = peak_megabytes(), time.process_time()
    plans = simulate(machine, codes, rng)
    asked = time.process_time()
    model = machine.model()
    fitted = time.process_time()
    model.sample(1_000_000, rng)
    done = time.process_time()
    return {
        "plans": len(plans),
        "pairs_asked": len(
            {q.attributes for plan in plans for q in plan.questions if len(q.attributes) == 2}
        ),
        "population_cpu_s": ready - begin,
        "simulate_cpu_s": asked - ready,
        "fit_cpu_s": fitted - asked,
        "sample_million_rows_cpu_s": done - fitted,
        "population_mb": held,
        "peak_mb": peak_megabytes(),
    }


def growth_point(attributes: int, participants: int) -> dict[str, float]:
    """`fit` in a separate process."""
    return run_isolated(fit, attributes, participants)


def reports_point(attributes: int, participants: int) -> dict[str, float]:
    """`reports` in a separate process."""
    return run_isolated(reports, attributes, participants)


def spark_point(attributes: int, participants: int) -> dict[str, float]:
    """`on_spark` in a separate process."""
    if find_spec("pyspark") is None or shutil.which("java") is None:
        raise NotAvailable("Spark needs Java and pip install 'dither[spark]'")
    return run_isolated(on_spark, attributes, participants)


def campaign_point(attributes: int, participants: int, rounds: int) -> dict[str, float]:
    """`campaign` in a separate process."""
    return run_isolated(campaign, attributes, participants, rounds)


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The studies of one size; tables are generated, so no folder is read."""
    sizes = {"full": (15, 50, 100, 200, 500), "quick": (15, 30, 50), "smoke": (4, 8)}[size]
    drawn_from = {
        "full": (1_000_000, 10_000_000, 100_000_000),
        "quick": (1_000_000, 10_000_000),
        "smoke": (100_000,),
    }[size]
    made = {"full": (1_000_000, 10_000_000), "quick": (200_000,), "smoke": (20_000,)}[size]
    attributes, people = {"full": (100, 10_000_000), "quick": (30, 200_000), "smoke": (5, 20_000)}[
        size
    ]
    growth = Study(
        name="growth",
        title="Pooling and fitting against the number of attributes",
        axes={"attributes": sizes, "participants": drawn_from},
        measure=growth_point,
        charts=(Chart(x="attributes", y="fit_cpu_s", colour="participants", panels=()),),
        note=f"Attributes of {VALUES} values, epsilon {EPSILON:g}, 60 components, {STEPS} steps of every start, twin and pilot. "
        "If the fit is linear in pair cells, its cost per million of them stays where it is or falls.",
    )
    collected = Study(
        name="reports",
        title="Reports made, exported and counted",
        axes={"attributes": (4,) if size == "smoke" else (15, 50), "participants": made},
        measure=reports_point,
        note=f"All pairs of attributes of {VALUES} values, epsilon {EPSILON:g}. Making is the batch kernel on one core, where a "
        "device makes one. Counting reads the files, checks every report and takes each id once. `dither bench collector` has the "
        "rest of the way.",
    )
    spark = Study(
        name="spark",
        title="Exported reports counted on Spark",
        axes={"attributes": (15,), "participants": made},
        measure=spark_point,
        note="All processes together, Java and the workers, on two cores of one machine (`local[2]`); starting and stopping it is "
        "included, so the difference between two sizes is what a report costs.",
    )
    campaigns = Study(
        name="campaign",
        title="A whole campaign, one row per participant",
        axes={
            "attributes": (attributes,),
            "participants": (people,),
            "rounds": (1,) if size == "smoke" else (1, 4),
        },
        measure=campaign_point,
        note=f"Attributes of {VALUES} values, epsilon {EPSILON:g}. Four rounds, the default, follow the dependence that "
        "the reports show; one round asks by what is public. The peak holds the population, which nobody would hold in a real "
        "collection; population MB is what was held before the first question.",
    )
    about = "CPU seconds and peak memory of the default method; every point runs in a process of its own with one thread."
    studies = (
        (growth, collected, campaigns) if size == "smoke" else (growth, collected, spark, campaigns)
    )
    return Bench("scale", "Scale: attributes and participants", about, studies, size)
