"""The whole road in one call: table -> codes -> simulated reports -> model -> synthetic table -> release."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np

from dither.checks import check_choice, check_whole, check_whole_or_none
from dither.datasets import Reading, open_table, published_layout
from dither.errors import ParameterError
from dither.mechanisms.probability import check_epsilon
from dither.methods import DEFAULT, jtree_nonprivate, start
from dither.methods import method as find_method
from dither.methods.machine import build_parameters
from dither.progress import followed
from dither.randomness import check_seed, generator, public_seed
from dither.release import Call, Release, truth_from_codes
from dither.release.call import OWN_SCHEMA, plain
from dither.release.prior import IN_MEMORY, read_prior
from dither.release.replicates import MAX_REPLICATES, MIN_REPLICATES, check_redrawable
from dither.schema import Schema
from dither.schema.files import CsvOptions
from dither.schema.native import Layout
from dither.schema.table import encode
from dither.simulate import Path as ReportPath
from dither.simulate import simulate
from dither.types import Codes, JsonMapping, JsonObject, NativeTable, Progress

MAX_PEOPLE = 10**9  # of a simulation, and rows of a synthetic table; memory ends before


def publish(
    table: NativeTable,
    *,
    epsilon: float,
    method: str | None = None,
    schema: Schema | str | Path | None = None,
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
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] | None = None,
    progress: Progress | bool | None = None,
) -> Release:
    """Publish a table with each row as one simulated participant, and give the release.

    `table` is a pandas, polars or PyArrow table, a CSV or Parquet file, or a bundled dataset's name. Guarantee: everything
    one participant sends is epsilon-locally differentially private for the whole record; the release uses nothing else
    of the table but what a simulation shows beside it (marked as such). With `population` rows are drawn with replacement:
    epsilon is then one simulated participant's and not a row's, as the warnings say. The noise comes from the operating
    system and nothing recorded can draw it again, unless a `seed` is given: the same seed gives the same release, and whoever
    knows it can take the noise off, as the release's warnings say. The one exception is the method `jtree-nonprivate`, which
    runs only with `no_privacy` and whose release says that it is not private.
    `columns`, `drop` and `keep` say what of the table is asked; `delimiter`, `encoding`, `decimal` and `missing` (the texts that
    mean no answer) how a CSV file is written, where that should not be found out from the file.
    With `holdout` (such as 0.05) that share of the participants is kept from the fit for an error estimate without the truth.
    With `prior`, a public table of the same schema (a file, a bundled dataset's name or a table in memory), the fit is averaged
    with what that says, as far as the reports bear it out; it costs no privacy, and the release says how much of the result is its.
    With `replicates` (such as 20) the model is fitted so many times more, and intervals for any question come with the release.
    Progress is shown in a notebook; with `progress` True on a terminal too, with False nowhere, or a function of yours is called
    with what is done, how much of it, and of how much.

    >>> import dither
    >>> release = dither.publish("adult", epsilon=4.0, method="independent", rows=1000)
    >>> release.synthetic.num_rows
    1000
    """
    name = method or DEFAULT
    _check_options(name, epsilon, unknown, no_privacy)
    population = check_whole_or_none("population", population, 1, MAX_PEOPLE)
    rows, seed = check_whole_or_none("rows", rows, 1, MAX_PEOPLE), check_seed(seed)
    if replicates:
        check_whole("replicates", replicates, MIN_REPLICATES, MAX_REPLICATES)
    people, noise, *draw = (generator(seed, i) for i in range(4))
    call = Call(
        method=name,
        epsilon=float(epsilon),
        table=str(table) if isinstance(table, (str, Path)) else None,
        schema=OWN_SCHEMA
        if isinstance(schema, Schema)
        else None
        if schema is None
        else str(schema),
        population=population,
        rows=rows,
        seed=seed,
        parameters=plain(parameters or {}),
        path=path,
        unknown=unknown,
        no_privacy=no_privacy,
        holdout=float(holdout),
        replicates=replicates,
        prior=None
        if prior is None
        else str(prior)
        if isinstance(prior, (str, Path))
        else IN_MEMORY,
        columns=None if columns is None else tuple(columns),
        drop=tuple(drop),
        keep=tuple(keep),
        delimiter=delimiter,
        encoding=encoding,
        decimal=decimal,
        missing=None if missing is None else tuple(missing),
        simulated=True,
    )
    csv = CsvOptions(delimiter, encoding, decimal, None if missing is None else ("", *missing))
    begun = time.perf_counter()
    native, domain, warnings = open_table(table, schema, Reading(columns, drop, keep, csv))
    others = unknown == "error" and any(notice.code == "rare-as-other" for notice in warnings)
    encoded = encode(native, domain, unknown="other" if others else unknown)
    codes = encoded.codes
    known_before = (
        None
        if prior is None
        else read_prior(prior, domain, unknown="other" if others else unknown, missing=missing)
    )
    if population is not None:
        codes = np.asfortranarray(codes[people.integers(0, len(codes), population)])
    seconds = {"read": round(time.perf_counter() - begun, 4)}
    layout = published_layout(table, encoded.layout, domain, warnings)
    known: JsonObject = {
        "truth": truth_from_codes(domain, codes),
        "clipped": encoded.clipped,
        "warnings": warnings,
    }
    if no_privacy and prior is not None:
        raise ParameterError(
            "without privacy the true records are read, and there is nothing to add; leave prior out",
            where="prior",
        )
    if no_privacy and replicates:
        raise ParameterError(
            "without privacy there is no noise to draw again; leave replicates out",
            where="replicates",
        )
    if no_privacy:
        return _read_openly(domain, codes, call, (draw[0], draw[1]), layout, seconds, known)
    begun = time.perf_counter()
    machine = start(name, domain, epsilon, len(codes), parameters, public_seed(seed), holdout)
    if known_before is not None:
        machine.give_prior(known_before)
    if machine.plan() is None:
        raise ParameterError(
            f"method {name!r} asks nothing; there is nothing to publish", where="method", value=name
        )
    if replicates:
        check_redrawable(machine)
    with followed(progress) as show:
        machine.progress = show
        simulate(machine, codes, noise, path=path, progress=show)
        seconds["simulate"] = round(time.perf_counter() - begun, 4)
        release = Release.from_machine(
            machine, call, len(codes), (draw[0], draw[1]), layout, seconds=seconds, **known
        )
        return release.with_replicates(replicates, progress=show) if replicates else release


def _read_openly(
    domain: Schema,
    codes: Codes,
    call: Call,
    draw: tuple[np.random.Generator, np.random.Generator],
    layout: Layout,
    seconds: dict[str, float],
    known: JsonObject,
) -> Release:
    """The junction tree of the true records, for comparison: not private, and marked as such."""
    given = build_parameters(
        jtree_nonprivate.TrueTreeParameters, call.parameters, jtree_nonprivate.METHOD
    )
    begun = time.perf_counter()
    model = jtree_nonprivate.publish_nonprivate(codes, domain, given, no_privacy=True)
    return Release.from_model(
        model,
        replace(call, parameters=asdict(given)),
        len(codes),
        draw,
        layout,
        seconds={**seconds, "fit": round(time.perf_counter() - begun, 4)},
        epsilon_achieved=jtree_nonprivate.EPSILON,
        rounds=0,
        notes=jtree_nonprivate.release_notes(model),
        description=jtree_nonprivate.SUMMARY,
        reference=jtree_nonprivate.REFERENCE,
        **known,
    )


def _check_options(
    name: str,
    epsilon: float,
    unknown: str,
    no_privacy: bool,
) -> None:
    if name == jtree_nonprivate.METHOD:
        jtree_nonprivate.require_switch(no_privacy)
    else:
        find_method(name)
        if no_privacy:
            raise ParameterError(
                f"no_privacy goes with the method {jtree_nonprivate.METHOD} only; {name} keeps epsilon",
                where="no_privacy",
            )
        check_epsilon(epsilon)
    check_choice("unknown", unknown, ("error", "other"))
