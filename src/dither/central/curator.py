"""Release some columns of a table by one method, as a trusted curator.

Everything in the release is computed from noisy values and public parameters; the
number of synthetic rows comes from the noisy estimate, or is public under `replace`.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np

from dither.central import CentralMethod, central_method
from dither.central.grid import SETTINGS as GRID_SETTINGS
from dither.central.measurement import (
    MAX_CELLS,
    MAX_RECORDS,
    CuratorTask,
    Neighbours,
    NoisyHistogram,
    check_neighbours,
    domain_size,
)
from dither.central.noise import ByteSource, seeded_source
from dither.central.privbayes import learn, network_notes, table_counts
from dither.central.records import release_records
from dither.checks import check_between, check_choice, check_whole, check_whole_or_none
from dither.datasets import open_table, published_layout
from dither.errors import ParameterError, PrivacyError, TableError
from dither.fit import apportion, norm_sub
from dither.mechanisms import check_epsilon
from dither.methods import published_parameters
from dither.methods.machine import build_parameters
from dither.notice import Notice
from dither.progress import followed
from dither.randomness import check_seed
from dither.release import CellsContent, Release
from dither.release.call import recorded, recorded_call
from dither.schema import Schema
from dither.schema.cells import codes_of, count_cells
from dither.schema.table import decode, encode
from dither.types import Codes, Floats, Integers, JsonMapping, NativeTable, Progress

Workload = Literal["cells", "ranges"]
WORKLOADS: tuple[Workload, ...] = ("cells", "ranges")


@dataclass(frozen=True)
class _AdviceSettings:
    """Tuned constants of the choice of a method."""

    # Records supposed if their number is not public.
    records: int = 10_000
    # Units of noise in an average cell below which a method with a model gains.
    min_signal: float = 1.0


SETTINGS = _AdviceSettings()


@dataclass(frozen=True)
class _Advice:
    """A method's name and why it was taken, in one sentence."""

    method: str
    why: str


def _check_workload(workload: str) -> Workload:
    """One of the kinds of questions."""
    check_choice("workload", workload, WORKLOADS)
    return "ranges" if workload == "ranges" else "cells"


def advise(
    shape: Sequence[int], epsilon: float, records: int | None = None, workload: Workload = "cells"
) -> _Advice:
    """Choose a method for this product of columns; `records` is public or a public guess."""
    cells = math.prod(shape)
    if cells > MAX_CELLS:
        return _Advice(
            "privbayes", f"{cells:,} cells are too many for a histogram, and a network needs none"
        )
    supposed = SETTINGS.records if records is None else max(1, records)
    guessed = " supposed" if records is None else ""
    mean = supposed / cells * epsilon
    if workload == "ranges":
        if len(shape) == 2 and min(shape) > GRID_SETTINGS.coarsest:
            return _Advice(
                "agrid", "ranges over two columns: grids that are finer where more records are"
            )
        return _Advice(
            "hierarchical", "ranges: a tree of counts with the best fan-out of each column"
        )
    if mean >= SETTINGS.min_signal:
        return _Advice(
            "laplace", f"with {supposed:,} records{guessed} an average cell stands above the noise"
        )
    if len(shape) > 2:
        return _Advice(
            "privbayes",
            f"with {supposed:,} records{guessed} an average cell is noise: a network of small tables",
        )
    return _Advice(
        "csm",
        f"with {supposed:,} records{guessed} an average cell is noise: few atoms stand above it",
    )


# Outside this range the noise is unusably large or absent.
EPSILONS = (1e-6, 1e4)
# Rows of a synthetic table whose size is a noisy figure.
MAX_ROWS = 10_000_000
REPLICATES = 16
MAX_REPLICATES = 1000
REPLICATED_CELLS = 2**16


@dataclass(frozen=True)
class _Outcome:
    """A method's result before it becomes a table; `total` is the noisy or public size."""

    codes: Codes
    epsilon: float
    notes: JsonMapping
    total: int | None = None
    estimate: Floats | None = None
    deviations: Floats | None = None


def central_release(
    table: NativeTable | str | Path,
    *,
    epsilon: float,
    method: str | None = None,
    columns: Sequence[str] | None = None,
    schema: Schema | JsonMapping | str | Path | None = None,
    neighbours: str = "add-remove",
    seed: int | None = None,
    parameters: JsonMapping | None = None,
    replicates: int = REPLICATES,
    workload: str = "cells",
    records: int | None = None,
    as_published: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress | bool | None = None,
) -> Release:
    """Release some columns of a table by a central method; the caller is a trusted curator.

    Anyone who knows the `seed` can draw the noise again; without one it comes from the
    operating system and nothing recorded can replay it. `public_seed` in the release is
    that of public values (matrices, the rows' order), not of the noise.

    Without `method` one is chosen by public facts only (`advise`): the columns'
    domains, epsilon, the `workload` (single "cells" and broad counts, or "ranges") and
    `records`, a public guess of the table's size; under `replace` the size is public.
    `replicates` is the number of repetitions on the estimate from which intervals are
    computed; they cost no privacy. `as_published` runs a named method with its paper's
    parameters, except for those in `parameters`. `progress` is as for `publish`.

    Args:
        table: A pandas, polars or PyArrow table, a file, or a bundled dataset's name.
        epsilon: The guarantee of one record, against everyone who sees the release.
        method: A central method; chosen from public facts if omitted.
        columns: The columns to release; all if omitted.
        schema: The public domain; inferred from the rows, which leaks them, if omitted.
        neighbours: "add-remove" (the number of records is private) or "replace".
        seed: Seed of the noise.
        parameters: Parameters of the method.
        replicates: Repetitions from which intervals are computed.
        workload: "cells" or "ranges".
        records: A public guess of the number of records.
        as_published: Whether to use the parameters of the method's paper.
        clock: Measures seconds.
        progress: As for `publish`.

    Returns:
        The release, with the same questions as any other.

    >>> import dither
    >>> release = dither.central_release("adult", epsilon=1.0, columns=["sex"], method="laplace")
    >>> release.method
    'laplace'
    """
    columns, seed = None if columns is None else list(columns), check_seed(seed)
    record = recorded(central_release, locals())
    if as_published:
        if method is None:
            raise ParameterError("as_published needs a method, such as csm", where="method")
        parameters = published_parameters(method, parameters)
    epsilon = check_between("epsilon", check_epsilon(epsilon), *EPSILONS, error=PrivacyError)
    notion = check_neighbours(neighbours)
    asked = _check_workload(workload)
    check_whole_or_none("records", records, 1, MAX_RECORDS)
    check_whole("replicates", replicates, 0, MAX_REPLICATES)
    if method is not None:
        # Report a wrong name or parameter before the table is read.
        _built(method, parameters)
    started = clock()
    opened, whole, warnings = open_table(table, schema)
    kept = _chosen_columns(whole, columns)
    encoded = encode(_select(opened, kept.names), kept)
    known = len(encoded.codes) if notion == "replace" else records
    advice = (
        advise(kept.cardinalities, epsilon, known, asked)
        if method is None
        else _Advice(method, "given")
    )
    chosen, built = _built(advice.method, parameters)
    read = clock()
    public = secrets.randbits(63) if seed is None else seed
    source: ByteSource = secrets.token_bytes if seed is None else seeded_source(seed)
    if chosen.release is None:
        # Any record against any other.
        notion = "replace"
        made = _record_form(encoded.codes, kept, epsilon, source, public, built)
    elif chosen.name == "privbayes" and len(kept) > 1 and math.prod(kept.cardinalities) > MAX_CELLS:
        made = _wide_network(encoded.codes, kept, epsilon, source, public, notion, built)
    else:
        domain_size(kept.cardinalities, kept.names)
        counts = count_cells(encoded.codes, kept.cardinalities).ravel()
        rng = np.random.default_rng([public, 1])
        task = CuratorTask(counts, epsilon, source, rng, notion, kept.cardinalities)
        with followed(progress) as show:
            made = _histogram_form(chosen.release, task, public, built, replicates, show)
    noised = clock()
    layout = published_layout(table, encoded.layout, kept, warnings)
    synthetic = decode(made.codes, kept, layout, np.random.default_rng([public, 3]))
    told = [*warnings, *_cautions(chosen), *_about_size(made)]
    call = recorded_call(
        record, epsilon=epsilon, method=chosen.name, seed=seed, parameters=asdict(built)
    )
    content = CellsContent(
        synthetic=synthetic,
        neighbours=notion,
        public_seed=public,
        estimate=made.estimate,
        deviations=made.deviations,
        by_record=chosen.release is None,
    )
    return Release(
        call=call,
        content=content,
        schema=kept,
        epsilon_achieved=made.epsilon,
        # The number of records is private unless neighbouring tables have the same number.
        participants=len(encoded.codes) if notion == "replace" else None,
        rounds=1,
        rows=len(made.codes),
        seconds={"read": read - started, "method": noised - read, "table": clock() - noised},
        notes={"method_chosen": advice.why, **made.notes},
        warnings=tuple(told),
        description=chosen.title,
        reference=chosen.reference,
    )


def _built(name: str, parameters: JsonMapping | None) -> tuple[CentralMethod, Any]:
    method = central_method(name)
    return method, build_parameters(method.parameters, parameters or {}, name)


def _chosen_columns(schema: Schema, columns: Sequence[str] | None) -> Schema:
    names = schema.names if columns is None else tuple(columns)
    if not names:
        raise ParameterError("name at least one column to release", where="columns")
    return Schema(tuple(schema[name] for name in names))


def _select(table: NativeTable, names: Sequence[str]) -> NativeTable:
    frame = nw.from_native(table, eager_only=True)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise TableError(
            f"the table has no column {absent[0]!r}; it has {', '.join(frame.columns)}",
            where=absent[0],
        )
    return frame.select(list(names)).to_native()


def _record_form(
    codes: Codes, schema: Schema, epsilon: float, source: ByteSource, public: int, parameters: Any
) -> _Outcome:
    rng = np.random.default_rng([public, 1])
    made = release_records(codes, schema.cardinalities, epsilon, source, rng, parameters)
    notes = {
        "sensitivity": made.sensitivity,
        "sensitivity_exact": made.exact,
        "measurements_of_a_record": made.rows,
    }
    return _Outcome(made.codes, made.epsilon, notes)


def _wide_network(
    codes: Codes,
    schema: Schema,
    epsilon: float,
    source: ByteSource,
    public: int,
    neighbours: Neighbours,
    parameters: Any,
) -> _Outcome:
    """PrivBayes on a domain too large for a histogram, from counts of few columns."""
    sizes, rng = schema.cardinalities, np.random.default_rng([public, 1])
    network = learn(table_counts(codes, sizes), sizes, epsilon, source, rng, neighbours, parameters)
    total = round(network.records)
    rows = network.sample(total if neighbours == "replace" else min(total, MAX_ROWS), rng)
    return _Outcome(rows, network.budget.total, network_notes(network), total)


def _histogram_form(
    release: Callable[[CuratorTask, Any], NoisyHistogram],
    task: CuratorTask,
    public: int,
    parameters: Any,
    replicates: int,
    progress: Progress | None,
) -> _Outcome:
    """A histogram, its standard errors, and rows in its shares."""
    made = release(task, parameters)
    known = task.neighbours == "replace"
    total = int(task.counts.sum()) if known else max(0, round(float(made.estimate.sum())))
    filled = whole_cells(made.estimate, total)
    deviations = None
    if replicates >= 2 and filled.size <= REPLICATED_CELLS:
        deviations = _deviations(
            release, replace(task, counts=filled), public, parameters, replicates, progress
        )
    if not known and total > MAX_ROWS:
        filled = whole_cells(made.estimate * (MAX_ROWS / total), MAX_ROWS)
    order = np.random.default_rng([public, 2]).permutation(int(filled.sum()))
    rows = codes_of(np.repeat(np.arange(filled.size), filled), task.shape).astype(np.int32)[order]
    return _Outcome(rows, made.epsilon, made.notes, total, made.estimate, deviations)


def whole_cells(estimate: Floats, total: int) -> Integers:
    """The nearest non-negative integers with this total: projection, then largest remainders."""
    if total == 0:
        return np.zeros(estimate.size, dtype=np.int64)
    return apportion(total, norm_sub(estimate / total))


def _deviations(
    release: Callable[[CuratorTask, Any], NoisyHistogram],
    task: CuratorTask,
    public: int,
    parameters: Any,
    replicates: int,
    progress: Progress | None,
) -> Floats:
    """The method's errors when it is run on its own, already public estimate: runs by cells."""
    again = []
    for run in range(replicates):
        rng = np.random.default_rng([public, 4, run])
        source = seeded_source(int(rng.integers(2**62)))
        made = release(replace(task, source=source, rng=rng), parameters)
        again.append(made.estimate - task.counts)
        if progress:
            progress("repetitions for intervals", run + 1, replicates)
    return np.stack(again)


def _about_size(made: _Outcome) -> list[Notice]:
    """Warn about a table whose noisy size is implausible."""
    rows = len(made.codes)
    if rows == 0:
        words = (
            "the noisy number of records is not above zero, so the synthetic table is empty: there is more noise than data; name "
            "fewer columns or use a larger epsilon. Each further run spends its epsilon again"
        )
        return [Notice("empty-table", words)]
    if made.total is not None and rows < made.total:
        words = f"the noisy number of records is {made.total:,}; the synthetic table has {rows:,} rows in the same shares"
        return [Notice("rows-capped", words)]
    return []


def _cautions(method: CentralMethod) -> list[Notice]:
    """Warnings about the method's figures."""
    if method.release is None:
        words = "record form: a LOCAL method; each row carries its own noise and single rows mean little"
        return [Notice("record-form", words)]
    if method.partial:
        words = (
            f"the method {method.name} leaves out what it does not measure or model; standard errors are of the noise and of what "
            "it leaves out of its own estimate, and can miss bias against the real table"
        )
        return [Notice("bias", words)]
    return []
