"""The release of a trusted curator: some columns of a table, one mechanism, a synthetic table and a histogram.

Trust model: central. Whoever runs this holds the whole table; the guarantee protects people from readers of the
release, not from the curator. (`csm-records` could be run without one and says so.) Everything in the release is computed
from noisy values and public parameters; the number of synthetic rows comes from the noisy estimate, or is public
under `replace`.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.central import records as record_form
from dither.central.domain import MOST_CELLS, cell_codes, domain_size, flat_counts
from dither.central.noise import ByteSource, seeded_source
from dither.central.privbayes import THETA, learn, network_details, table_marginal
from dither.central.registry import CENTRAL, Entry, central_mechanism
from dither.central.strategy import HistogramRelease, Neighbours, check_neighbours
from dither.errors import ParameterError, PrivacyError
from dither.estimate.project import norm_sub
from dither.mechanisms.probability import check_epsilon
from dither.notice import REPLAYABLE, Notice
from dither.randomness import check_seed
from dither.release.words import noise_sentence
from dither.schema import Schema
from dither.types import Codes, Floats, Integers

CENTRAL_TRUST = "central: a curator holds the table"
RECORDS = "csm-records"
EPSILONS = (1e-6, 1e4)  # beyond these the noise is astronomical or none
MOST_ROWS = 10_000_000  # of a synthetic table whose size is a noisy figure
BOOTSTRAP = 16
BOOTSTRAP_CELLS = 2**16
NEIGHBOUR_WORDS = {
    "add-remove": "one record added or removed",
    "replace": "one record changed; the number of records is public",
}


@dataclass(frozen=True)
class CentralRelease:
    """What is published, and how it came about.

    `histogram` holds the raw estimates of all cells in C order with standard errors, or None where the domain is too
    large or the mechanism gives none.
    """

    mechanism: str
    trust_model: str
    schema: Schema
    synthetic: Any
    estimate: Floats | None
    standard_errors: Floats | None
    epsilon_asked: float
    epsilon_achieved: float
    neighbours: str
    parameters: Mapping[str, Any]
    details: Mapping[str, Any]
    public_seed: int
    seed: int | None
    rows: int
    seconds: Mapping[str, float]
    warnings: tuple[Notice, ...]

    def to_json(self) -> dict[str, Any]:
        """The manifest."""
        from dither import __version__

        words = "any record against any other" if self.mechanism == RECORDS else NEIGHBOUR_WORDS[self.neighbours]
        return {
            "format": "dither-central-release-1",
            "trust_model": self.trust_model,
            "method": self.mechanism,
            "mechanism": self.mechanism,
            "reference": CENTRAL["csm" if self.mechanism == RECORDS else self.mechanism].reference,
            "columns": list(self.schema.names),
            "cells": math.prod(self.schema.cardinalities),
            "flattening": "C order of the product of the columns' codes: the last column changes fastest",
            "epsilon_asked": self.epsilon_asked,
            "epsilon_achieved": self.epsilon_achieved,
            "neighbours": "replace" if self.mechanism == RECORDS else self.neighbours,
            "neighbours_meaning": words,
            "private": self.seed is None,
            "noise": noise_sentence(self.seed, simulated=True),
            "seed": self.seed,
            "public_seed": self.public_seed,
            "parameters": dict(self.parameters),
            "details": dict(self.details),
            "rows": self.rows,
            "seconds": dict(self.seconds),
            "warnings": [warning.to_json() for warning in self.warnings],
            "dither_version": __version__,
        }


@dataclass(frozen=True)
class _Made:
    """What a mechanism gave before it is turned into a table."""

    codes: Codes
    estimate: Floats | None
    standard_errors: Floats | None
    epsilon: float
    details: Mapping[str, Any]
    total: int | None = None


def central_release(
    table: Any,
    *,
    epsilon: float,
    mechanism: str = "csm",
    columns: Sequence[str] | None = None,
    schema: Any = None,
    neighbours: str = "add-remove",
    seed: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    bootstrap: int = BOOTSTRAP,
    clock: Callable[[], float] = time.perf_counter,
) -> CentralRelease:
    """Release some columns of a table by a central mechanism.

    Without `seed` the noise comes from the operating system and nothing recorded can draw it again; with one whoever
    knows it can. `public_seed` in the release is of what is public anyway (matrices, the rows' order) and not of the
    noise. `bootstrap` is the number of repetitions, on the estimate itself, from which standard errors are computed;
    they cost no privacy.
    """
    from dither.datasets import open_table, published_layout
    from dither.schema.table import decode, encode

    epsilon = _checked_epsilon(epsilon)
    notion = check_neighbours(neighbours)
    given = _checked_parameters(mechanism, parameters or {})
    check_seed(seed)
    started = clock()
    opened, whole, warnings = open_table(table, schema)
    chosen = _chosen_columns(whole, columns)
    encoded = encode(_select(opened, chosen.names), chosen)
    read = clock()
    source: ByteSource = secrets.token_bytes if seed is None else seeded_source(seed)
    public = secrets.randbits(63) if seed is None else seed
    made = _make(mechanism, encoded.codes, chosen, epsilon, source, public, notion, given, bootstrap)
    if made.epsilon > epsilon:
        raise PrivacyError(
            f"{mechanism} spent epsilon {made.epsilon}, more than the {epsilon} asked for", where="epsilon"
        )
    noised = clock()
    layout = published_layout(table, encoded.layout, chosen, warnings)
    synthetic = decode(made.codes, chosen, layout, np.random.default_rng([public, 3]))
    told = [*warnings, *([REPLAYABLE] if seed is not None else []), *_cautions(mechanism), *_about_size(made)]
    return CentralRelease(
        mechanism=mechanism,
        trust_model=record_form.TRUST if mechanism == RECORDS else CENTRAL_TRUST,
        schema=chosen,
        synthetic=synthetic,
        estimate=made.estimate,
        standard_errors=made.standard_errors,
        epsilon_asked=epsilon,
        epsilon_achieved=made.epsilon,
        neighbours=notion,
        parameters=given,
        details=made.details,
        public_seed=public,
        seed=seed,
        rows=len(made.codes),
        seconds={"read": read - started, "mechanism": noised - read, "table": clock() - noised},
        warnings=tuple(told),
    )


def _checked_epsilon(epsilon: float) -> float:
    least, most = EPSILONS
    value = check_epsilon(epsilon)
    if not least <= value <= most:
        raise PrivacyError(
            f"epsilon must lie between {least:g} and {most:g} for a central release, not {value:g}",
            where="epsilon",
            value=epsilon,
        )
    return value


def _checked_parameters(mechanism: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that were set, each known to the mechanism."""
    known = ("tau", "measurement", "dictionary") if mechanism == RECORDS else central_mechanism(mechanism).parameters
    kept = {key: value for key, value in given.items() if value is not None}
    for key in kept:
        if key not in known:
            raise ParameterError(
                f"mechanism {mechanism} has no parameter {key!r}" + (f"; it takes {', '.join(known)}" if known else ""),
                where=key,
            )
    return kept


def _chosen_columns(schema: Schema, columns: Sequence[str] | None) -> Schema:
    names = schema.names if columns is None else tuple(columns)
    if not names:
        raise ParameterError("name at least one column to release", where="columns")
    return Schema(tuple(schema[name] for name in names))


def _select(table: Any, names: Sequence[str]) -> Any:
    import narwhals as nw

    from dither.errors import TableError

    frame = nw.from_native(table, eager_only=True)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise TableError(f"the table has no column {absent[0]!r}; it has {', '.join(frame.columns)}", where=absent[0])
    return frame.select(list(names)).to_native()


def _make(
    mechanism: str,
    codes: Codes,
    schema: Schema,
    epsilon: float,
    source: ByteSource,
    public: int,
    neighbours: Neighbours,
    parameters: Mapping[str, Any],
    bootstrap: int,
) -> _Made:
    """Run the mechanism on codes: record form, a network learnt from the rows, or a histogram mechanism."""
    sizes = schema.cardinalities
    rng = np.random.default_rng([public, 1])
    if mechanism == RECORDS:
        made = record_form.release_records(codes, sizes, epsilon, source, rng=rng, **parameters)
        details = {"sensitivity": made.sensitivity, "sensitivity_exact": made.exact}
        return _Made(made.codes, None, None, made.epsilon, details)
    if mechanism == "privbayes" and len(sizes) > 1 and math.prod(sizes) > MOST_CELLS:
        return _wide_network(codes, sizes, epsilon, source, rng, neighbours, parameters)
    entry = central_mechanism(mechanism)
    domain_size(sizes, schema.names, entry.most_cells)
    counts = flat_counts(codes, sizes)
    release = entry.release(counts, epsilon, source, rng=rng, neighbours=neighbours, shape=sizes, **parameters)
    total = int(counts.sum()) if neighbours == "replace" else max(0, round(float(release.estimate.sum())))
    filled = whole_cells(release.estimate, total)
    errors = _bootstrap(entry, filled, release, public, neighbours, sizes, parameters, bootstrap)
    if neighbours != "replace" and total > MOST_ROWS:
        filled = whole_cells(release.estimate * (MOST_ROWS / total), MOST_ROWS)
    order = np.random.default_rng([public, 2]).permutation(int(filled.sum()))
    rows = cell_codes(np.repeat(np.arange(filled.size), filled), sizes)[order]
    return _Made(rows, release.estimate, errors, release.epsilon, release.details, total)


def _wide_network(
    codes: Codes,
    sizes: Sequence[int],
    epsilon: float,
    source: ByteSource,
    rng: np.random.Generator,
    neighbours: Neighbours,
    parameters: Mapping[str, Any],
) -> _Made:
    """PrivBayes on a domain too large for a histogram: it needs the rows' marginals only."""
    network = learn(
        table_marginal(codes, sizes), sizes, epsilon, source, rng=rng, neighbours=neighbours,
        degree=parameters.get("degree", 2), theta=parameters.get("theta", THETA),
    )  # fmt: skip
    total = round(network.records)
    rows = network.sample(total if neighbours == "replace" else min(total, MOST_ROWS), rng)
    return _Made(rows, None, None, network.budget.total, network_details(network), total)


def whole_cells(estimate: Floats, total: int) -> Integers:
    """Whole, non-negative counts with this total, nearest to an estimate: projection, then largest remainders."""
    if total == 0:
        return np.zeros(estimate.size, dtype=np.int64)
    shares = norm_sub(estimate / total) * total
    floors = np.floor(shares).astype(np.int64)
    missing = total - int(floors.sum())
    order = np.argsort(-(shares - floors), kind="stable")
    floors[order[: max(0, missing)]] += 1
    if missing < 0:  # rounding error put the floors above the total
        floors[order[::-1][np.flatnonzero(floors[order[::-1]] > 0)[:-missing]]] -= 1
    return floors


def _bootstrap(
    entry: Entry,
    filled: Integers,
    release: HistogramRelease,
    public: int,
    neighbours: Neighbours,
    sizes: Sequence[int],
    parameters: Mapping[str, Any],
    repetitions: int,
) -> Floats | None:
    """Standard errors of the cells from repeating the mechanism on its own estimate, which is public already."""
    if repetitions < 2 or filled.size > BOOTSTRAP_CELLS:
        return None
    again = []
    for run in range(repetitions):
        rng = np.random.default_rng([public, 4, run])
        source = seeded_source(int(rng.integers(2**62)))
        made = entry.release(
            filled, release.epsilon, source, rng=rng, neighbours=neighbours, shape=tuple(sizes), **parameters
        )
        again.append(made.estimate - filled)
    return np.sqrt((np.stack(again) ** 2).mean(axis=0))


def _about_size(made: _Made) -> list[Notice]:
    """What to tell of a table whose size, a noisy figure, came out absurd."""
    rows = len(made.codes)
    if rows == 0:
        words = (
            "the noisy number of records is not above zero, so the synthetic table is empty: there is more noise than data; name "
            "fewer columns or use a larger epsilon. Each further run spends its epsilon again"
        )
        return [Notice("empty-table", words)]
    if made.total is not None and rows < made.total:
        words = (
            f"the noisy number of records is {made.total:,}; the synthetic table has {rows:,} rows in the same shares"
        )
        return [Notice("rows-capped", words)]
    return []


def _cautions(mechanism: str) -> list[Notice]:
    """What a reader has to know of the mechanism's figures."""
    if mechanism == RECORDS:
        words = "record form: a LOCAL mechanism; each row carries its own noise and single rows mean little"
        return [Notice("record-form", words)]
    if mechanism in ("csm", "fourier", "privbayes", "dppro"):
        words = (
            f"{mechanism} leaves out what it does not measure or model; standard errors are of the noise and of what "
            "it leaves out of its own estimate, and can miss bias against the real table"
        )
        return [Notice("bias", words)]
    return []
