"""The whole road in one call: table -> codes -> simulated reports -> model -> synthetic table -> release."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dither.errors import ParameterError
from dither.mechanisms.probability import check_epsilon
from dither.protocols import DEFAULT, jtree_nonprivate, start
from dither.protocols import method as find_method
from dither.protocols.parameters import build_parameters, plain
from dither.protocols.registry import parameters_of
from dither.randomness import check_seed, generator, public_seed
from dither.schema import Schema
from dither.simulate import Path, simulate
from dither.types import Codes, Progress
from dither.uncertainty.heldout import heldout_notes
from dither.uncertainty.manipulation import manipulation_notes

if TYPE_CHECKING:
    from dither.release import Release


def publish(
    table: Any,
    *,
    epsilon: float,
    method: str | None = None,
    schema: Schema | str | FilePath | None = None,
    population: int | None = None,
    rows: int | None = None,
    seed: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    path: Path = "counts",
    unknown: Literal["error", "other"] = "error",
    no_privacy: bool = False,
    holdout: float = 0.0,
    progress: Progress | None = None,
) -> Release:
    """Publish a table with each row as one simulated participant, and give the release.

    `table` is a pandas, polars or PyArrow table, a CSV or Parquet file, or a bundled dataset's name. Guarantee: everything
    one participant sends is epsilon-locally differentially private for the whole record; the release uses nothing else
    of the table but what a simulation shows beside it (marked as such). With `population` rows are drawn with replacement:
    epsilon is then one simulated participant's and not a row's, as the warnings say. The noise comes from the operating
    system and nothing recorded can draw it again, unless a `seed` is given: that gives the same release again, and away to
    whoever knows it, which the release's warnings say. The one exception is the method `jtree-nonprivate`, which runs only
    with `no_privacy` and whose release says that it is not private.
    With `holdout` (such as 0.05) that share of the participants is kept from the fit for an error estimate without the truth.

    >>> import dither
    >>> release = dither.publish("adult", epsilon=4.0, method="independent", rows=1000)
    >>> release.synthetic.num_rows
    1000
    """
    from dither.datasets import open_table, published_layout
    from dither.release import Release
    from dither.release.truth import truth_from_codes
    from dither.release.words import find_warnings
    from dither.schema.table import decode, encode

    name = method or DEFAULT
    _check_options(name, epsilon, population, rows, seed, unknown, no_privacy)
    people, noise, model_rows, values = (generator(seed, i) for i in range(4))
    seconds: dict[str, float] = {}

    with _timed(seconds, "read"):
        native, domain, warnings = open_table(table, schema)
        encoded = encode(native, domain, unknown=unknown)
        codes = encoded.codes
        if population is not None:
            codes = np.asfortranarray(codes[people.integers(0, len(codes), population)])
    if no_privacy:
        learnt = _read_openly(domain, codes, parameters or {}, seconds)
    else:
        learnt = _ask(
            name, domain, epsilon, codes, parameters, public_seed(seed), noise, path, holdout, progress, seconds
        )
    with _timed(seconds, "sample"):
        size = rows if rows is not None else len(codes)
        layout = published_layout(table, encoded.layout, domain, warnings)
        synthetic = decode(learnt["model"].sample(size, model_rows), domain, layout, values)
    release = Release(
        **learnt,
        method=name,
        schema=domain,
        synthetic=synthetic,
        participants=len(codes),
        seed=seed,
        rows=size,
        seconds=seconds,
        simulated=True,
        warnings=warnings,
        source=str(table) if isinstance(table, (str, FilePath)) else None,
        population=population,
        schema_file=str(schema) if isinstance(schema, (str, FilePath)) else None,
        truth=truth_from_codes(domain, codes),
        clipped=encoded.clipped,
    )
    return replace(release, warnings=find_warnings(release))


def _ask(
    name: str,
    domain: Schema,
    epsilon: float,
    codes: Codes,
    parameters: Mapping[str, Any] | None,
    fit_seed: int,
    noise: np.random.Generator,
    path: Path,
    holdout: float,
    progress: Progress | None,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Drive the method over the participants; what the release states of the model and how it was learnt."""
    from dither.release.asked import asked_in

    with _timed(seconds, "simulate"):
        machine = start(name, domain, epsilon, len(codes), parameters, fit_seed, holdout)
        if hasattr(machine, "progress"):  # methods whose fit takes long report on it
            machine.progress = progress
        plans = simulate(machine, codes, noise, path=path, progress=progress)
    with _timed(seconds, "fit"):
        model = machine.model()
    chosen = find_method(name)
    return {
        "model": model,
        "parameters": parameters_of(machine),
        "measured": tuple(machine.measured()),
        "epsilon_asked": float(epsilon),
        "epsilon_achieved": max(plan.epsilon for plan in plans),
        "rounds": len(plans),
        "asked": asked_in(plans),
        "notes": {**machine.notes(), **heldout_notes(machine, model), **manipulation_notes(machine)},
        "state": machine.state(),
        "description": chosen.summary,
        "reference": chosen.reference,
    }


def _read_openly(
    domain: Schema, codes: Codes, parameters: Mapping[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """The junction tree of the true records, for comparison: not private, and marked as such."""
    given = build_parameters(jtree_nonprivate.Parameters, parameters, jtree_nonprivate.METHOD)
    with _timed(seconds, "fit"):
        model = jtree_nonprivate.publish_nonprivate(codes, domain, given, no_privacy=True)
    return {
        "model": model,
        "parameters": plain(given),
        "no_privacy": True,
        "epsilon_asked": jtree_nonprivate.EPSILON,
        "epsilon_achieved": jtree_nonprivate.EPSILON,
        "rounds": 0,
        "notes": jtree_nonprivate.release_notes(model),
        "description": jtree_nonprivate.SUMMARY,
        "reference": jtree_nonprivate.REFERENCE,
    }


def _check_options(
    name: str,
    epsilon: float,
    population: int | None,
    rows: int | None,
    seed: int | None,
    unknown: str,
    no_privacy: bool,
) -> None:
    if name == jtree_nonprivate.METHOD:
        jtree_nonprivate.require_switch(no_privacy)
    else:
        check_epsilon(epsilon)
        find_method(name)
        if no_privacy:
            raise ParameterError(
                f"--no-privacy goes with --method {jtree_nonprivate.METHOD} only; {name} keeps epsilon",
                where="no_privacy",
            )
    _check_count("population", population)
    _check_count("rows", rows)
    check_seed(seed)
    if unknown not in ("error", "other"):
        raise ParameterError(f"unknown must be error or other, not {unknown!r}", where="unknown", value=unknown)


def _check_count(name: str, value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ParameterError(f"{name} must be a whole number of at least 1, not {value!r}", where=name, value=value)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    seconds[stage] = round(time.perf_counter() - begin, 4)
