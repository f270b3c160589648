"""Publish a table: rows -> codes -> simulated reports -> model -> synthetic table -> release."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np

from dither.datasets import open_table, published_layout
from dither.errors import DitherWarning, ParameterError
from dither.methods import (
    DEFAULT,
    NONPRIVATE,
    EarlierReports,
    MethodRun,
    PublicRows,
    published_parameters,
    start,
)
from dither.methods import method as find_method
from dither.notice import Notice
from dither.progress import followed
from dither.randomness import generator, public_seed
from dither.release import Call, Release, Truth, truth_from_codes
from dither.release.call import RunOptions, publish_call
from dither.release.prior import read_prior
from dither.release.replicates import check_redrawable
from dither.schema import Schema
from dither.schema.files import ReadOptions
from dither.schema.formats import DateOrder
from dither.schema.table import Layout, encode
from dither.simulate import Path as ReportPath
from dither.simulate import simulate
from dither.types import Codes, JsonMapping, NativeTable, Progress

_Generators = tuple[np.random.Generator, np.random.Generator]


def publish(
    table: NativeTable,
    *,
    epsilon: float,
    method: str | None = None,
    schema: Schema | JsonMapping | str | Path | None = None,
    population: int | None = None,
    rows: int | None = None,
    seed: int | None = None,
    parameters: JsonMapping | None = None,
    path: ReportPath = "counts",
    unknown: Literal["error", "other"] = "error",
    no_privacy: bool = False,
    holdout: float = 0.0,
    replicates: int = 0,
    prior: NativeTable | None = None,
    as_published: bool = False,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] | None = None,
    no_header: bool = False,
    date_order: DateOrder | None = None,
    progress: Progress | bool | None = None,
) -> Release:
    """Publish a table with each row as one simulated participant.

    Everything that one participant sends is epsilon-locally differentially private for the
    whole record. The release uses nothing else of the table, except for the comparisons
    with the truth that a simulation shows and marks.

    Args:
        table: A pandas, polars or PyArrow table, a dict of columns, a list of records, the
            path of a CSV, JSON or Parquet file, or the name of a bundled dataset.
        epsilon: Guarantee of one participant's whole record.
        method: Name of a method; None for the default. `jtree-nonprivate` is not private
            and needs `no_privacy`.
        schema: A schema, the path of a schema file or the dict that such a file holds. None takes the schema that comes with
            the table, else infers one from its rows, which leaks them.
        population: Draw this many participants from the rows with replacement. Epsilon is
            then the guarantee of a simulated participant, not of a row.
        rows: Rows of the synthetic table; None for as many as there are participants.
        seed: Seed of the noise. The same seed gives the same release, and anyone who knows
            it can remove the noise. None takes noise from the operating system.
        parameters: The method's parameters by name.
        path: "counts" draws tallies directly, "reports" makes each participant's report.
        unknown: "error" rejects values outside the domain, "other" counts them as the
            category of that name.
        no_privacy: Read the true records, for the method `jtree-nonprivate` only.
        holdout: Share of the participants (such as 0.05) that is kept from the fit, for an
            error estimate without the truth.
        replicates: Further fits (such as 20) that give intervals for any question.
        prior: A public table of the same schema. The fit is averaged with it, with weights that
            the reports decide. It costs no privacy.
        as_published: Run the method with its paper's parameters (docs/papers.md), except for
            those in `parameters`. Epsilon is that of the whole record all the same.
        columns: Columns to ask; None for all.
        drop: Columns to leave out.
        keep: Columns to ask although they look like identifiers or free text.
        delimiter: Delimiter of a CSV file; None to detect it.
        encoding: Encoding of a CSV file; None to detect it.
        decimal: Decimal mark of a CSV file; None to detect it.
        missing: Texts of a CSV file that mean no answer; None for the usual ones.
        no_header: Whether a CSV file has no header; columns are column_1, column_2, ...
        date_order: "dmy" or "mdy", for dates such as 03/09/2020 that can be read both ways.
        progress: None shows a progress bar in a notebook, True on a terminal too, False
            nowhere. A function is called as `callback(stage, done, total)`.

    Returns:
        The release, with a synthetic table of the same kind as the given one.

    Raises:
        InputError: If the table, the schema or an option cannot be used.

    Warns:
        DitherWarning: If the method fell back to a simpler model.

    >>> import dither
    >>> release = dither.publish("adult", epsilon=4.0, method="independent", rows=1000)
    >>> release.synthetic.num_rows
    1000
    """
    run = RunOptions(
        epsilon=epsilon,
        method=method or DEFAULT,
        schema=schema,
        population=population,
        rows=rows,
        seed=seed,
        parameters=parameters or {},
        path=path,
        unknown=unknown,
        no_privacy=no_privacy,
        holdout=holdout,
        replicates=replicates,
        prior=prior,
        as_published=as_published,
    )
    read = ReadOptions(
        columns, drop, keep, delimiter, encoding, decimal, missing, no_header, date_order
    )
    release = publish_table(table, run, read, progress)
    for reason in release.fallbacks:
        warnings.warn(f"{release.method} fell back: {reason}", DitherWarning, stacklevel=2)
    return release


class _TableFacts(TypedDict):
    """What a release takes from the table itself."""

    truth: Truth
    clipped: Mapping[str, int]
    warnings: list[Notice]


def publish_table(
    table: NativeTable,
    run: RunOptions,
    read: ReadOptions,
    progress: Progress | bool | None = None,
) -> Release:
    """`publish` with its options in two records."""
    _check_method(run)
    run = run.checked()
    call = publish_call(table, run, read)
    people, noise, *draw = (generator(run.seed, i) for i in range(4))
    begun = time.perf_counter()
    native, domain, notices = open_table(table, run.schema, read)
    unknown = run.unknown
    if any(notice.code == "rare-as-other" for notice in notices):
        unknown = "other"
    encoded = encode(native, domain, unknown=unknown)
    codes = encoded.codes
    prior = None
    if run.prior is not None:
        prior = read_prior(run.prior, domain, unknown=unknown, missing=read.missing)
    if run.population is not None:
        codes = np.asfortranarray(codes[people.integers(0, len(codes), run.population)])
    seconds = {"read": round(time.perf_counter() - begun, 4)}
    layout = published_layout(table, encoded.layout, domain, notices)
    facts: _TableFacts = {
        "truth": truth_from_codes(domain, codes),
        "clipped": encoded.clipped,
        "warnings": notices,
    }
    generators = (draw[0], draw[1])
    if run.no_privacy:
        return _publish_openly(domain, codes, call, generators, layout, seconds, facts)
    begun = time.perf_counter()
    machine = _start(run, domain, len(codes), prior)
    with followed(progress) as show:
        machine.progress = show
        simulate(machine, codes, noise, path=run.path, progress=show)
        seconds["simulate"] = round(time.perf_counter() - begun, 4)
        if show is not None:
            show("model: fitted", 0, 1)
        release = Release.from_machine(
            machine, call, len(codes), generators, layout, seconds=seconds, **facts
        )
        if show is not None:
            show("model: fitted", 1, 1)
        if not run.replicates:
            return release
        return release.with_replicates(run.replicates, progress=show)


def _start(
    run: RunOptions, domain: Schema, people: int, prior: PublicRows | EarlierReports | None
) -> MethodRun:
    """The method at its first plan, with the prior; checked before anyone is asked."""
    parameters = run.parameters
    if run.as_published:
        parameters = published_parameters(run.method, parameters, domain.cardinalities)
    machine = start(
        run.method,
        domain,
        run.epsilon,
        people,
        parameters,
        public_seed(run.seed),
        run.holdout,
    )
    if prior is not None:
        machine.give_prior(prior)
    if machine.plan() is None:
        raise ParameterError(
            f"method {run.method!r} asks no question, so there is nothing to publish",
            where="method",
            value=run.method,
        )
    if run.replicates:
        check_redrawable(machine)
    return machine


def _publish_openly(
    domain: Schema,
    codes: Codes,
    call: Call,
    generators: _Generators,
    layout: Layout,
    seconds: dict[str, float],
    facts: _TableFacts,
) -> Release:
    """Publish the junction tree of the true records. It is not private and says so."""
    begun = time.perf_counter()
    fitted = NONPRIVATE.fit(codes, domain, call.parameters, no_privacy=True)
    return Release.from_model(
        fitted.model,
        replace(call, parameters=fitted.parameters),
        len(codes),
        generators,
        layout,
        seconds={**seconds, "fit": round(time.perf_counter() - begun, 4)},
        epsilon_achieved=math.inf,
        rounds=0,
        notes=fitted.diagnostics.to_json(),
        description=NONPRIVATE.summary,
        reference=NONPRIVATE.reference,
        **facts,
    )


def _check_method(run: RunOptions) -> None:
    """Raise ParameterError unless the method exists and fits the other options."""
    if run.as_published:
        published_parameters(run.method)
    if run.method != NONPRIVATE.name:
        find_method(run.method)
        if run.no_privacy:
            raise ParameterError(
                f"no_privacy is for the method {NONPRIVATE.name} only; {run.method} is private",
                where="no_privacy",
            )
        return
    NONPRIVATE.require_switch(run.no_privacy)
    if run.prior is not None:
        raise ParameterError(
            "without privacy the true records are read; leave prior out", where="prior"
        )
    if run.replicates:
        raise ParameterError(
            "without privacy there is no noise to draw again; leave replicates out",
            where="replicates",
        )
