"""Methods beside each other on one's own table: each on each epsilon, with a page, resumable."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import dither
from dither.checks import check_between, check_whole, check_whole_or_none
from dither.datasets import Reading, open_table
from dither.errors import ParameterError, TableError
from dither.evaluation.downstream import split_rows
from dither.lab.comparison.measure import (
    BASELINES,
    PRODUCT,
    REDRAWN,
    Task,
    majority,
    measure,
    measure_saved,
)
from dither.lab.comparison.peers import find_peer, peers
from dither.lab.comparison.results import MEASURES, Comparison, read_outcome
from dither.lab.harness import Bench, Chart, NotAvailable, Study, execute
from dither.lab.harness.apart import apart
from dither.mechanisms import check_epsilon
from dither.methods import HISTOGRAMS, methods
from dither.methods import method as find_method
from dither.notice import Notice
from dither.release.replicates import MAX_REPLICATES, MIN_REPLICATES
from dither.schema import Schema
from dither.schema.files import CsvOptions
from dither.schema.table import encode
from dither.types import JsonObject, NativeTable

ALL, PEERS = "all", "peers"
TEST_SHARE = 0.2
LOGARITHMIC = ("cpu_seconds", "peak_megabytes")
NOTE = (
    "Errors are total variation distances of the synthetic rows from the participants' own records: 0 is exact, 1 has nothing in "
    f"common. '{REDRAWN}' is the best that so many rows can be, '{PRODUCT}' what is left when no dependence is learnt. CPU time "
    "and memory are those of the whole simulated campaign, from the first question to the last synthetic row, in a process apart."
)
MAX_REPEATS = 1000
_NOT_PRIVATE = Notice(
    "measured-against-truth",
    "the rows of the table play the participants of simulated campaigns, and everything here is measured against those true rows: "
    "no epsilon protects this comparison, and it is as confidential as the table itself",
)


def compare(
    table: NativeTable | str | Path,
    *,
    epsilons: Sequence[float] | float = (1.0, 2.0, 4.0),
    methods: Sequence[str] | str = ALL,
    schema: Schema | str | Path | None = None,
    target: str | None = None,
    population: int | None = None,
    repeats: int = 1,
    replicates: int = 5,
    seed: int = 0,
    limit: float | None = 600.0,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] | None = None,
    output: str | Path | None = None,
    fresh: bool = False,
    isolated: bool = True,
    quiet: bool = False,
) -> Comparison:
    """Run methods on a table, its rows as simulated participants, and say how well each does there.

    `methods` is "all" (every local method), "peers" (every other library's synthesiser that is installed), names, or several of
    these. A fifth of the rows is kept apart: they test a classifier that is trained on the synthetic rows to predict `target` (the
    last column unless named). `population` draws so many participants from the rows with replacement, to see what more people would
    give. `replicates` refits give the intervals whose coverage is measured; 0 leaves that out. Each figure is the mean of `repeats`
    runs with noise of their own. A method that takes longer than `limit` seconds, or cannot run here, is named with the reason.

    With `output` the results are written there as they come, and a call that was interrupted goes on where it stopped. Every run
    has a process of its own, so that memory and failures are its own; with `isolated` False all happens in this one, quicker for
    small tables. What of the table is read, and how a CSV file is written, is said as for `publish`. Not private: see `warnings`.

    >>> import dither
    >>> table = dither.load_dataset("adult").table.select(["sex", "income"]).slice(0, 2000)
    >>> found = dither.compare(table, epsilons=4.0, methods="independent", replicates=0, isolated=False)
    >>> [r["method"] for r in found.results][0], found.about["participants"]
    ('independent', 1600)
    """
    levels = _epsilons(epsilons)
    chosen, peculiar = _methods(methods)
    check_whole("repeats", repeats, 1, MAX_REPEATS)
    check_whole("seed", seed)
    if replicates:
        check_whole("replicates", replicates, MIN_REPLICATES, MAX_REPLICATES)
    if limit is not None:
        check_between("limit", limit, 0, 1e7, ends="(]")
    if output is not None and Path(output).exists() and not Path(output).is_dir():
        raise ParameterError(
            f"{output} is not a folder; name another with output", where="output", value=str(output)
        )
    population = check_whole_or_none("population", population, 1, 10**9)
    csv = CsvOptions(delimiter, encoding, decimal, None if missing is None else ("", *missing))
    task, notes = _task(
        table, schema, target, population, replicates, seed, Reading(columns, drop, keep, csv)
    )
    with tempfile.TemporaryDirectory(
        prefix="dither-compare-"
    ) as place:  # for this user's eyes only, and gone afterwards
        if isolated:
            task.save(Path(place))
        one = partial(_apart, place, limit) if isolated else partial(_here, task)
        bench = _bench(
            table,
            task,
            one,
            chosen,
            levels,
            range(seed, seed + repeats),
            (_NOT_PRIVATE, *notes),
            limit,
        )
        folder = Path(output) if output is not None else Path(place, "out")
        found = read_outcome(
            bench, task, execute(bench, folder, fresh=fresh, quiet=quiet), levels, chosen, peculiar
        )
        if output is not None:
            found.save(folder)
    return found


def _apart(place: str, limit: float | None, method: str, epsilon: float, seed: int) -> JsonObject:
    """One point in a process of its own."""
    if method in BASELINES:
        return _or_reason(measure_saved(place, method, epsilon, seed))
    try:
        return _or_reason(apart(measure_saved, place, method, epsilon, seed, limit=limit))
    except (
        RuntimeError
    ) as failure:  # a failure of one method is a finding about it, not the end of the others
        raise NotAvailable(str(failure).partition(" failed: ")[2] or str(failure)) from None


def _here(task: Task, method: str, epsilon: float, seed: int) -> JsonObject:
    try:
        return measure(task, method, epsilon, seed)
    except dither.DitherError as error:
        raise NotAvailable(" ".join(str(error).split())) from None


def _or_reason(found: JsonObject) -> JsonObject:
    if "reason" in found:
        raise NotAvailable(found["reason"])
    return found


def _epsilons(given: Sequence[float] | float) -> list[float]:
    levels = [given] if isinstance(given, (int, float)) else list(given)
    if not levels:
        raise ParameterError("epsilons needs at least one number, such as 1,2,4", where="epsilons")
    for level in levels:
        check_epsilon(level)
    return sorted({float(level) for level in levels})


def _methods(given: Sequence[str] | str) -> tuple[list[str], list[str]]:
    """The methods to run, and the peers that are known but not installed, if all of them were asked for."""
    asked = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    names: dict[str, None] = {}
    absent: list[str] = []
    for name in asked:
        if name == ALL:
            names |= dict.fromkeys(methods())
        elif name == PEERS:
            names |= {n: None for n, peer in peers().items() if peer.installed}
            absent += [
                f"{n} (needs {peer.needs})" for n, peer in peers().items() if not peer.installed
            ]
        elif name in HISTOGRAMS:
            raise ParameterError(
                f"{name} makes histograms of one number, not tables", where="methods", value=name
            )
        elif find_peer(name) is not None:
            names[name] = None
        else:
            find_method(name)
            names[name] = None
    if not names:
        raise ParameterError(
            "no method is left to run: no peer is installed", where="methods", value=given
        )
    return list(names), absent


def _task(
    table: NativeTable | str | Path,
    schema: Schema | str | Path | None,
    target: str | None,
    population: int | None,
    replicates: int,
    seed: int,
    reading: Reading,
) -> tuple[Task, list[Notice]]:
    native, domain, notes = open_table(table, schema, reading)
    others = any(notice.code == "rare-as-other" for notice in notes)
    codes = encode(native, domain, unknown="other" if others else "error").codes
    if len(codes) < 10:
        raise TableError(
            f"the table has {len(codes)} rows; a comparison needs at least 10", where="table"
        )
    if target is not None and target not in domain.names:
        raise ParameterError(
            f"no column {target!r}; there are {', '.join(domain.names)}",
            where="target",
            value=target,
        )
    predicted = (target or domain.names[-1]) if len(domain) > 1 else None
    people, test = split_rows(codes, TEST_SHARE, np.random.default_rng([seed, 0x74657374]))
    return Task(domain, np.asfortranarray(people), test, predicted, population, replicates), notes


def _bench(
    table: object,
    task: Task,
    one: Callable[..., JsonObject],
    chosen: Sequence[str],
    levels: Sequence[float],
    seeds: Sequence[int],
    warnings: Sequence[Notice],
    limit: float | None,
) -> Bench:
    """The comparison as the harness runs it."""
    digest = hashlib.sha256(json.dumps(task.schema.to_json(), sort_keys=True).encode())
    digest.update(
        np.ascontiguousarray(task.people).tobytes() + np.ascontiguousarray(task.test).tobytes()
    )
    digest.update(f"{task.target} {task.population} {task.replicates} {limit}".encode())
    axes: dict[str, Sequence[str | float]] = {
        "method": (*chosen, *BASELINES),
        "epsilon": levels,
        "seed": seeds,
    }
    charts = tuple(
        Chart(
            "epsilon", y, panels=(), title=f"{words[0].upper()}{words[1:]}", log_y=y in LOGARITHMIC
        )
        for y, words in MEASURES.items()
    )
    study = Study(
        "methods",
        "Every method at every epsilon",
        axes,
        one,
        remarks=("worst_names", "no_intervals"),
        charts=charts,
        note=NOTE,
    )
    return Bench(
        "compare",
        "Methods compared on one table",
        _about(table, task),
        (study,),
        data=digest.hexdigest()[:16],
        facts=_facts(task),
        warnings=tuple(warnings),
    )


def _about(table: object, task: Task) -> str:
    """What was done, in words."""
    name = str(table) if isinstance(table, (str, Path)) else "A table in memory"
    tested = "."
    if task.target:
        guessed = f"{majority(task):.1%}"
        tested = f": {task.target}, which always guessing the most frequent value gets right for {guessed} of them."
    return (
        f"{name}: {'people drawn from ' if task.population else ''}{len(task.people):,} of its rows play the participants, each of "
        "whom sends randomised answers as the method asks; epsilon is the guarantee of one such participant's whole record. The "
        f"other {len(task.test):,} rows are asked nothing and test what a classifier learns from the synthetic rows{tested} Local "
        "methods hold nobody's record. A central one works for a curator who holds the whole table: an easier problem, and a "
        "weaker promise at the same epsilon."
    )


def _facts(task: Task) -> tuple[tuple[str, str], ...]:
    facts = [
        ("Participants", f"{task.population or len(task.people):,}"),
        ("Columns", str(len(task.schema))),
        ("Rows to test on", f"{len(task.test):,}"),
    ]
    return (*facts, *([("Predicted", task.target)] if task.target else []))
