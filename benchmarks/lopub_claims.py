"""What LoPub's text claims without a figure: communication, the cost of a report, and growth with N and v^k; and its error
like for like, with the paper's filters and sample next to unary bits of everybody.

Reference: Ren et al., "LoPub", IEEE TIFS 2018, table 1, theorems 1 to 3, eq. 9 and 10, section 6.1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.lopub_printed import FILTERS
from benchmarks.model_error import evaluate_model
from benchmarks.tables import GENERATED, Table
from dither.evaluation.metrics import attribute_sets, marginal, tvd
from dither.fit.joint import SplitReports, em_joint, estimate_joints
from dither.lab.harness import Chart, Study
from dither.mechanisms import PackedReports, bloom_size, kernels, mechanism
from dither.methods.lopub import LoPub, LoPubParameters
from dither.methods.machine import Campaign
from dither.randomness import RandomStream
from dither.reports import Plan
from dither.schema import Attribute, Schema
from dither.simulate import simulate
from dither.tally import PatternTally

SEED = 2018
FALSE_POSITIVE = 0.022  # LoPub's p
PRODUCT = "RAPPOR on the product domain"
ENCODINGS: Mapping[str, str] = {"Bloom filters": "bloom", "unary bits": "unary"}
LIKE_FOR_LIKE = ("filters, the paper's sample", "filters, all rows", "unary bits, all rows")
SAMPLES = {"Adult": 0.1, "NLTCS": 0.5, "Retail": 0.5}
FILTERED: Mapping[str, tuple[int, int]] = {**FILTERS, GENERATED: (128, 4)}


# ---- bits ------------------------------------------------------------------------------------------------------------


def communication(load: Any, dataset: str) -> list[dict[str, Any]]:
    """Bits of one report: theorem 1, the filters of the experiments, unary bits, and RAPPOR on the product domain."""
    sizes = load(dataset).schema.cardinalities
    printed = sum(bloom_size(k, FALSE_POSITIVE)[0] for k in sizes)
    bits, _ = FILTERED[dataset]
    rows: list[dict[str, Any]] = [
        {"report": "theorem 1, p = 0.022", "bits": printed},
        {"report": "filters of the experiments", "bits": bits * len(sizes)},
        {"report": "unary bits", "bits": sum(sizes)},
        {"report": "codes without privacy", "bits": sum(math.log2(k) for k in sizes)},
    ]
    strength = math.log(1 / FALSE_POSITIVE) / math.log(2) ** 2
    for k in (2, 3, 5):
        wide = [math.prod(sizes[a] for a in s) for s in _sets(len(sizes), k, 200)]
        name = f"{PRODUCT} of {k}, eq. 10 (mean)"
        rows.append({"report": name, "bits": strength * float(np.mean(wide))})
    return rows


def _sets(d: int, k: int, most: int) -> list[tuple[int, ...]]:
    return attribute_sets(d, k, most, np.random.default_rng([SEED, k]))


# ---- time ------------------------------------------------------------------------------------------------------------


def _split_reports(
    schema: Schema, codes: np.ndarray, encoding: str, bits: int, hashes: int, f: float
) -> tuple[Plan, PackedReports, float]:
    """Everybody's report of every attribute, with the CPU seconds of making them."""
    filters = {"bits": bits, "hashes": hashes} if encoding == "bloom" else {}
    asked = LoPubParameters(flip=f, encoding=encoding, **filters)  # type: ignore[arg-type]
    plan = LoPub(Campaign(schema, 1e6, len(codes)), asked).plan()
    assert plan is not None
    stream = RandomStream.from_generator(np.random.default_rng([SEED, len(codes)]))
    begin = time.process_time()
    rows = [
        kernels.randomise(q.mechanism, codes[:, i], stream).rows
        for i, q in enumerate(plan.questions)
    ]
    return plan, PackedReports(np.concatenate(rows, axis=1)), time.process_time() - begin


def reports(
    load: Any, dataset: str, participants: int, report: str, attributes: int = 3, f: float = 0.5
) -> dict[str, float]:
    """CPU time of a client's report and of the server's joint of the first attributes; the first of two runs warms up."""
    table = load(dataset)
    rng = np.random.default_rng([SEED, participants])
    drawn = table.codes[rng.integers(0, len(table.codes), participants)][:, :attributes]
    codes = np.asfortranarray(drawn)
    schema = Schema(tuple(table.schema)[:attributes])
    measure = _product_report if report == PRODUCT else _split_report
    row: dict[str, float] = {}
    for people in (codes[:500], codes):
        row = measure(schema, people, report, FILTERED[dataset], f)
    return row


def _split_report(
    schema: Schema, codes: np.ndarray, report: str, filters: tuple[int, int], f: float
) -> dict[str, float]:
    plan, packed, client = _split_reports(schema, codes, ENCODINGS[report], *filters, f)
    begin = time.process_time()
    tally = PatternTally(plan)
    tally.add(-1, packed)
    em_joint(SplitReports.from_tally(tally), range(len(schema)), tolerance=1e-3)
    bits = sum(q.mechanism.report_bits for q in plan.questions)
    return _costs(client, time.process_time() - begin, bits, len(codes))


def _product_report(
    schema: Schema, codes: np.ndarray, report: str, filters: tuple[int, int], f: float
) -> dict[str, float]:
    """One attribute with the product domain, a bit per cell, at the epsilon of the split reports."""
    epsilon = 2 * len(schema) * math.log((2 - f) / f)
    chosen = mechanism("sue", math.prod(schema.cardinalities), epsilon)
    cells = np.ravel_multi_index(
        tuple(np.asarray(c, np.int64) for c in codes.T), schema.cardinalities
    )
    stream = RandomStream.from_generator(np.random.default_rng([SEED, len(codes)]))
    client = server = 0.0
    support = np.zeros(chosen.cells, np.int64)
    for start in range(0, len(cells), 2_000):  # reports of a whole domain are long
        begin = time.process_time()
        made = kernels.randomise(chosen, cells[start : start + 2_000], stream)
        client += time.process_time() - begin
        begin = time.process_time()
        support += kernels.support(chosen, made)
        server += time.process_time() - begin
    begin = time.process_time()
    kernels.estimate(chosen, support, len(cells))
    return _costs(client, server + time.process_time() - begin, chosen.report_bits, len(cells))


def _costs(client: float, server: float, bits: int, people: int) -> dict[str, float]:
    return {
        "client_microseconds": client / people * 1e6,
        "server_microseconds": server / people * 1e6,
        "server_seconds": server,
        "bits": bits,
    }


def growth(values: int, attributes: int, participants: int) -> dict[str, float]:
    """CPU seconds of one step of EM over reports of equal attributes: theorem 2 has t N v^2k, the loop over cells N v^k."""
    own = tuple(Attribute(f"a{i}", "ordinal", tuple(range(values))) for i in range(attributes))
    rng = np.random.default_rng([SEED, values, attributes])
    codes = np.asfortranarray(rng.integers(0, values, (participants, attributes), dtype=np.int32))
    plan, packed, _ = _split_reports(Schema(own), codes, "bloom", 64, 4, 0.5)
    tally = PatternTally(plan)
    tally.add(-1, packed)
    reports = SplitReports.from_tally(tally)
    seconds = {}
    for steps in (2, 12):
        begin = time.process_time()
        em_joint(reports, range(attributes), tolerance=1e-12, steps=steps, printed=True)
        seconds[steps] = time.process_time() - begin
    step = max((seconds[12] - seconds[2]) / 10, 0.0)
    cells = values**attributes
    return {
        "cells": cells,
        "step_seconds": step,
        "nanoseconds_per_report_and_cell": step / participants / cells * 1e9,
    }


# ---- error, like for like --------------------------------------------------------------------------------------------


def like_for_like(
    load: Any, dataset: str, f: float, way: str, sets: int, cells: int
) -> dict[str, float]:
    """AVD of joints of two attributes and of the finished model, all by the same EM and noise test."""
    table: Table = load(dataset)
    bits, hashes = FILTERED[dataset]
    filters = (
        {} if way.startswith("unary") else {"encoding": "bloom", "bits": bits, "hashes": hashes}
    )
    sample = SAMPLES[dataset] if "sample" in way else 1.0
    parameters = LoPubParameters(flip=f, sample=sample, max_clique_cells=cells, **filters)  # type: ignore[arg-type]
    machine = LoPub(Campaign(table.schema, 1e6, len(table.codes), SEED), parameters)
    simulate(machine, table.codes, np.random.default_rng([SEED, round(1000 * f)]))
    chosen = _sets(len(table.schema), 2, sets)
    names = [tuple(table.schema.names[i] for i in s) for s in chosen]
    exact = [marginal(table.truth, table.schema.cardinalities, s) for s in chosen]
    found = estimate_joints(machine.reports, names)
    model = machine.model()
    errors = evaluate_model(model, table.truth, (2,), sets, np.random.default_rng(SEED))
    facts = machine.diagnostics().to_json()
    return {
        "epsilon_of_a_record": facts["epsilon_record"],
        "avd": float(np.mean([tvd(x.joint, e) for x, e in zip(found, exact, strict=True)])),
        "avd_model": errors[2].tvd,
        "edges": len(facts["edges"]),
    }


# ---- declaration -----------------------------------------------------------------------------------------------------


def claims_studies(load: Any, there: tuple[str, ...], full: bool) -> tuple[Study, ...]:
    """The studies of this module; `load` gives a table by name."""
    real = tuple(name for name in ("Adult", "NLTCS") if name in there)
    people = (1_000, 10_000, 100_000) if full else (500, 2_000)
    return (
        Study(
            "communication",
            "Theorem 1, eq. 10 and table 1. Bits of one report",
            {"dataset": tuple(name for name in there if name in FILTERED)},
            partial(communication, load),
            note="Theorem 1 calls its bits minimal; one bit per value is fewer (erratum 21). The product of all attributes of "
            "Adult has about 10^15 cells.",
        ),
        Study(
            "reports",
            "Table 1. CPU time of a client's report and of the server, three attributes",
            {"dataset": real, "report": (*ENCODINGS, PRODUCT), "participants": people},
            partial(reports, load),
            charts=tuple(
                Chart(
                    "participants", y, colour="report", panels=("dataset",), log_x=True, log_y=True
                )
                for y in ("client_microseconds", "server_seconds")
            ),
            note="f = 0.5, the first three attributes of the table. The server's time is tallying and EM for their joint, or "
            "summing the long reports of the product domain. One process, batches.",
        ),
        Study(
            "growth",
            "Theorems 2 and 3. Seconds of one step of EM",
            {
                "values": (2, 4, 8) if full else (2, 4),
                "attributes": (2, 3),
                "participants": (5_000, 20_000, 80_000) if full else (500, 2_000),
            },
            growth,
            charts=(
                Chart(
                    "participants",
                    "step_seconds",
                    colour="values",
                    panels=("attributes",),
                    log_x=True,
                    log_y=True,
                ),
            ),
            note="Filters of 64 bits with four set. The time of a step grows with N and with v^k, not v^2k (erratum 19).",
        ),
        Study(
            "like_for_like",
            "The paper's filters and sample next to unary bits of everybody",
            {"dataset": real, "f": (0.1, 0.5, 0.9) if full else (0.1,), "way": LIKE_FOR_LIKE},
            partial(like_for_like, load, sets=40 if full else 4, cells=1_000 if full else 60),
            charts=tuple(
                Chart("f", y, colour="way", panels=("dataset",), log_y=True)
                for y in ("avd", "avd_model")
            ),
            note="Filters of 128 (NLTCS: 32) bits with four set; a tenth (NLTCS: half) of the rows. Joints of two attributes by "
            "the same EM, models by the same noise test, one seed. At the same f a filter costs three to four times the epsilon of "
            "unary bits.",
        ),
    )
