"""Compare methods on a table: each method at each epsilon, with a page; can be resumed."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dither
from dither.checks import check_between, check_whole
from dither.datasets import open_table
from dither.errors import ParameterError, TableError
from dither.lab.comparison.measure import (
    BASELINES,
    PRODUCT,
    REDRAWN,
    Task,
    majority,
    measure,
    measure_saved,
    split_rows,
)
from dither.lab.comparison.peers import find_peer, peers
from dither.lab.harness import Bench, Chart, NotAvailable, Outcome, Study, execute
from dither.lab.harness.page import render
from dither.lab.harness.process import run_isolated
from dither.mechanisms import check_epsilon
from dither.methods import HISTOGRAMS, methods, published_parameters
from dither.methods import method as find_method
from dither.methods.published import SUFFIX
from dither.notice import Notice
from dither.release.call import RunOptions
from dither.schema import Schema
from dither.schema.files import ReadOptions, write_atomically
from dither.schema.formats import DateOrder
from dither.schema.table import encode
from dither.types import JsonMapping, JsonObject, NativeTable

ALL, PEERS = "all", "peers"
_TEST_SHARE = 0.2
_MIN_ROWS = 10
MAX_REPEATS = 1000
# Column of the results -> its name on the page.
MEASURES = {
    "tvd_1": "error of single columns",
    "tvd_2": "error of pairs",
    "tvd_3": "error of triples",
    "worst_pair": "error of the worst pair",
    "coverage": "coverage of 95 % intervals",
    "accuracy": "accuracy of a classifier trained on the synthetic rows",
    "cpu_seconds": "CPU seconds",
    "peak_megabytes": "megabytes",
}
_LOGARITHMIC = ("cpu_seconds", "peak_megabytes")
NOTE = (
    "Errors are total variation distances between the synthetic rows and the participants' "
    f"records: 0 is exact, 1 has nothing in common. '{REDRAWN}' is the best that a sample of "
    f"this size can be, '{PRODUCT}' what remains if no dependence is learnt. CPU time and "
    "memory are those of the whole simulated campaign, from the first question to the last "
    "synthetic row, in a separate process."
)
_NOT_PRIVATE = Notice(
    "measured-against-truth",
    "the rows of the table are the participants of simulated campaigns, and all figures are "
    "measured against those true rows: no epsilon protects this comparison, and it is as "
    "confidential as the table itself",
)


@dataclass(frozen=True)
class Comparison:
    """The results of `compare`.

    Attributes:
        about: What was compared: participants, columns, target, epsilons, methods.
        results: An object for each method and epsilon: `method`, `epsilon`, `trust`
            ("local": no party holds a record; "central": a curator does; "none": not
            private), `runs`, mean `tvd` by number of attributes, `worst_pair`, `coverage`,
            `accuracy`, `cpu_seconds`, `peak_megabytes`, and the `spread` of each over runs.
        not_run: Methods that could not run, with the reason.
        warnings: Warnings that the reader must see.
        seconds: Time of measuring, including earlier runs that were resumed.
        resumed: Number of points that an earlier run had measured.
        page: The results as an HTML page.

    >>> import dither
    >>> table = dither.load_dataset("adult").table.select(["sex", "income"]).slice(0, 1000)
    >>> options = {"methods": "independent", "replicates": 0, "isolated": False}
    >>> dither.compare(table, epsilons=2.0, **options).best(epsilon=2.0)
    'independent'
    """

    about: JsonObject
    results: tuple[JsonObject, ...]
    not_run: tuple[JsonObject, ...]
    warnings: tuple[Notice, ...]
    seconds: float
    resumed: int
    page: str = field(repr=False)

    def best(self, epsilon: float, measure: str = "tvd_2") -> str | None:
        """The local method with the smallest error, or the highest accuracy, at an epsilon."""
        figures = {
            str(result["method"]): figure
            for result in self.results
            if result["epsilon"] == epsilon
            and result["trust"] == "local"
            and (figure := _figure(result, measure)) is not None
        }
        if not figures:
            return None
        order = max if measure == "accuracy" else min
        return order(figures, key=lambda method: figures[method])

    def to_json(self) -> JsonObject:
        """Plain values, as `dither compare --json` prints them."""
        return {
            **self.about,
            "results": list(self.results),
            "not_run": list(self.not_run),
            "warnings": [w.to_json() for w in self.warnings],
            "seconds": self.seconds,
            "dither_version": dither.__version__,
        }

    def to_csv(self) -> str:
        """A line for each method and epsilon, a column for each mean and its spread."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        spreads = [f"{name}_spread" for name in MEASURES]
        writer.writerow(["method", "epsilon", "trust", "runs", *MEASURES, *spreads])
        for result in self.results:
            line = [result[key] for key in ("method", "epsilon", "trust", "runs")]
            line += [_figure(result, name) for name in MEASURES]
            line += [result["spread"].get(name) for name in MEASURES]
            writer.writerow(line)
        return text.getvalue()

    def save(self, directory: str | Path) -> Path:
        """Write index.html, comparison.json and comparison.csv into a folder."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        files = {
            "index.html": self.page,
            "comparison.json": json.dumps(self.to_json(), indent=1, allow_nan=False),
            "comparison.csv": self.to_csv(),
        }
        for name, text in files.items():
            write_atomically(folder / name, partial(_write, text))
        return folder

    def __repr__(self) -> str:
        people = f"{self.about['participants']:,} participants"
        lines = [f"Comparison of {len(self.results)} results on {people}"]
        for epsilon in self.about["epsilons"]:
            best = self.best(epsilon) or "none that ran"
            lines.append(f"  epsilon {epsilon:g}: smallest error of pairs: {best}")
        return "\n".join(lines)


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def _figure(result: JsonObject, measure: str) -> float | None:
    value = result.get(measure)
    if measure.startswith("tvd_"):
        value = result["tvd"].get(measure.removeprefix("tvd_"))
    elif measure == "worst_pair" and value is not None:
        value = value["tvd"]
    return None if value is None else float(value)


def compare(
    table: NativeTable | str | Path,
    *,
    epsilons: Sequence[float] | float = (1.0, 2.0, 4.0),
    methods: Sequence[str] | str = ALL,
    schema: Schema | JsonMapping | str | Path | None = None,
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
    no_header: bool = False,
    date_order: DateOrder | None = None,
    output: str | Path | None = None,
    fresh: bool = False,
    isolated: bool = True,
    quiet: bool = False,
) -> Comparison:
    """Run methods on a table, with its rows as simulated participants, and measure each.

    The result is not private, because it is measured against the true rows: see its
    `warnings`. A fifth of the rows is not asked; it tests a classifier that is trained on
    the synthetic rows.

    Args:
        table: A table, the path of a file, or the name of a bundled dataset.
        epsilons: Guarantees of one participant's whole record.
        methods: "all" for every local method, "peers" for every installed synthesiser of
            another library, names, or several of these. `NAME@published` runs a method with
            its paper's parameters.
        schema: As for `publish`.
        target: Column that the classifier predicts; None for the last one.
        population: Draw this many participants from the rows with replacement.
        repeats: Runs of each method with different noise; figures are their means.
        replicates: Refits for the intervals whose coverage is measured; 0 for none.
        seed: Seed of the simulated noise and of the choice of test rows.
        limit: Seconds after which a method is abandoned; None for no limit.
        columns: As for `publish`, like `drop`, `keep`, `delimiter`, `encoding`, `decimal`,
            `missing`, `no_header` and `date_order`.
        output: Folder for the results. A call that was interrupted resumes there.
        fresh: Measure again what an earlier run had finished.
        isolated: Run each point in a separate process, which isolates its memory and its
            failures. False is quicker for small tables.
        quiet: Show no progress.

    Returns:
        The figures of each method at each epsilon, and the methods that could not run.

    Raises:
        InputError: If the table, the schema or an option cannot be used.

    >>> import dither
    >>> table = dither.load_dataset("adult").table.select(["sex", "income"]).slice(0, 2000)
    >>> options = {"methods": "independent", "replicates": 0, "isolated": False}
    >>> comparison = dither.compare(table, epsilons=4.0, **options)
    >>> comparison.results[0]["method"], comparison.about["participants"]
    ('independent', 1600)
    """
    levels = _epsilons(epsilons)
    chosen, absent = _methods(methods)
    _check_options(repeats, seed, limit, output)
    read = ReadOptions(
        columns, drop, keep, delimiter, encoding, decimal, missing, no_header, date_order
    )
    # Epsilon, method and seed vary between the runs; the rest is common to them.
    run = RunOptions(
        epsilon=levels[0],
        method=chosen[0],
        schema=schema,
        population=population,
        replicates=replicates,
        seed=seed,
    ).checked()
    task, notes = _task(table, target, run, read)
    axes: dict[str, Sequence[str | float]] = {
        "method": (*chosen, *BASELINES),
        "epsilon": levels,
        "seed": range(seed, seed + repeats),
    }
    # A temporary folder is private to this user.
    with tempfile.TemporaryDirectory(prefix="dither-compare-") as place:
        point: Callable[..., JsonObject] = partial(_measure_here, task)
        if isolated:
            task.save(Path(place))
            point = partial(_measure_isolated, place, limit)
        bench = _bench(table, task, point, axes, (_NOT_PRIVATE, *notes), limit)
        folder = Path(place, "out") if output is None else Path(output)
        outcome = execute(bench, folder, fresh=fresh, quiet=quiet)
        comparison = _comparison(bench, task, outcome, levels, chosen, absent)
        if output is not None:
            comparison.save(folder)
    return comparison


def _check_options(repeats: int, seed: int, limit: float | None, output: str | Path | None) -> None:
    check_whole("repeats", repeats, 1, MAX_REPEATS)
    check_whole("seed", seed)
    if limit is not None:
        check_between("limit", limit, 0, 1e7, ends="(]")
    if output is not None and Path(output).exists() and not Path(output).is_dir():
        raise ParameterError(
            f"{output} is not a folder; name another with output", where="output", value=str(output)
        )


def _measure_isolated(
    place: str, limit: float | None, method: str, epsilon: float, seed: int
) -> JsonObject:
    """One point in a separate process; baselines are too quick for that."""
    if method in BASELINES:
        return _or_reason(measure_saved(place, method, epsilon, seed))
    try:
        return _or_reason(run_isolated(measure_saved, place, method, epsilon, seed, limit=limit))
    except RuntimeError as failure:
        # A method that fails must not end the others.
        raise NotAvailable(str(failure).partition(" failed: ")[2] or str(failure)) from None


def _measure_here(task: Task, method: str, epsilon: float, seed: int) -> JsonObject:
    try:
        return measure(task, method, epsilon, seed)
    except dither.DitherError as error:
        raise NotAvailable(" ".join(str(error).split())) from None


def _or_reason(figures: JsonObject) -> JsonObject:
    if "reason" in figures:
        raise NotAvailable(figures["reason"])
    return figures


def _epsilons(given: Sequence[float] | float) -> list[float]:
    epsilons = [given] if isinstance(given, (int, float)) else list(given)
    if not epsilons:
        raise ParameterError("epsilons needs at least one number, such as 1,2,4", where="epsilons")
    for epsilon in epsilons:
        check_epsilon(epsilon)
    return sorted({float(epsilon) for epsilon in epsilons})


def _methods(given: Sequence[str] | str) -> tuple[list[str], list[str]]:
    """The methods to run, and the peers that are missing although all were asked for."""
    asked = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    names: list[str] = []
    absent: list[str] = []
    for name in asked:
        if name == ALL:
            names += methods()
        elif name == PEERS:
            for peer_name, peer in peers().items():
                if peer.installed:
                    names.append(peer_name)
                else:
                    absent.append(f"{peer_name} (needs {peer.needs})")
        elif name in HISTOGRAMS:
            raise ParameterError(
                f"{name} makes histograms of one number, not tables", where="methods", value=name
            )
        else:
            if name.endswith(SUFFIX):
                _check_published(name.removesuffix(SUFFIX))
            elif find_peer(name) is None:
                find_method(name)
            names.append(name)
    if not names:
        raise ParameterError(
            "there is no method to run: no peer is installed", where="methods", value=given
        )
    return list(dict.fromkeys(names)), absent


def _check_published(name: str) -> None:
    """Raise ParameterError unless a method publishes tables and has its paper's parameters."""
    published_parameters(name)
    if name not in methods():
        raise ParameterError(f"{name} publishes no tables", where="methods", value=name)


def _task(
    table: NativeTable | str | Path, target: str | None, run: RunOptions, read: ReadOptions
) -> tuple[Task, list[Notice]]:
    native, domain, notes = open_table(table, run.schema, read)
    others = any(notice.code == "rare-as-other" for notice in notes)
    codes = encode(native, domain, unknown="other" if others else "error").codes
    if len(codes) < _MIN_ROWS:
        raise TableError(
            f"the table has {len(codes)} rows; a comparison needs at least {_MIN_ROWS}",
            where="table",
        )
    if target is not None and target not in domain.names:
        raise ParameterError(
            f"no column {target!r}; the columns are {', '.join(domain.names)}",
            where="target",
            value=target,
        )
    predicted = (target or domain.names[-1]) if len(domain) > 1 else None
    assert run.seed is not None
    people, test = split_rows(codes, _TEST_SHARE, np.random.default_rng([run.seed, 0x74657374]))
    people = np.asfortranarray(people)
    return Task(domain, people, test, predicted, run.population, run.replicates), notes


def _bench(
    table: object,
    task: Task,
    point: Callable[..., JsonObject],
    axes: dict[str, Sequence[str | float]],
    warnings: Sequence[Notice],
    limit: float | None,
) -> Bench:
    """The comparison as a benchmark of the harness."""
    digest = hashlib.sha256(json.dumps(task.schema.to_json(), sort_keys=True).encode())
    for rows in (task.people, task.test):
        digest.update(np.ascontiguousarray(rows).tobytes())
    digest.update(f"{task.target} {task.population} {task.replicates} {limit}".encode())
    charts = tuple(
        Chart("epsilon", y, panels=(), title=title[:1].upper() + title[1:], log_y=y in _LOGARITHMIC)
        for y, title in MEASURES.items()
    )
    study = Study(
        "methods",
        "Every method at every epsilon",
        axes,
        point,
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
    """The first paragraph of the page."""
    name = str(table) if isinstance(table, (str, Path)) else "A table in memory"
    drawn = "people drawn from " if task.population else ""
    predicted = ""
    if task.target:
        predicted = (
            f" It predicts {task.target}; the most frequent value is right for "
            f"{majority(task):.1%} of them."
        )
    return (
        f"{name}: {drawn}{len(task.people):,} of its rows are simulated participants, who send "
        "randomised answers as each method asks. Epsilon is the guarantee of one participant's "
        f"whole record. The other {len(task.test):,} rows are not asked; they test a classifier "
        f"that is trained on the synthetic rows.{predicted} A local method needs no party that "
        "holds a record. A central one works for a curator who holds the whole table: an easier "
        "problem, and a weaker promise at the same epsilon."
    )


def _facts(task: Task) -> tuple[tuple[str, str], ...]:
    facts = [
        ("Participants", f"{task.population or len(task.people):,}"),
        ("Columns", str(len(task.schema))),
        ("Test rows", f"{len(task.test):,}"),
    ]
    if task.target:
        facts.append(("Predicted", task.target))
    return tuple(facts)


def _comparison(
    bench: Bench,
    task: Task,
    outcome: Outcome,
    epsilons: Sequence[float],
    chosen: Sequence[str],
    absent: Sequence[str],
) -> Comparison:
    """The points that the harness measured, as a comparison."""
    results = []
    for method in (*chosen, *BASELINES):
        for epsilon in epsilons:
            points = [
                point
                for point in outcome.points
                if point["method"] == method and point["epsilon"] == epsilon
            ]
            if points:
                results.append(_result(method, epsilon, points))
    reasons: dict[tuple[Any, Any], str] = {}
    for point, reason in outcome.missing:
        reasons.setdefault((point["method"], point["epsilon"]), reason)
    not_run = [{"method": m, "epsilon": e, "reason": reason} for (m, e), reason in reasons.items()]
    not_run += [{"method": name, "epsilon": None, "reason": "not installed"} for name in absent]
    about: JsonObject = {
        "participants": task.population or len(task.people),
        "test_rows": len(task.test),
        "columns": list(task.schema.names),
        "target": task.target,
        "majority_accuracy": None if task.target is None else majority(task),
        "epsilons": list(epsilons),
        "methods": list(chosen),
    }
    # A method that fails at several epsilons for one reason is listed once.
    outcome.notes = list(dict.fromkeys(f"{r['method']}: {r['reason']}" for r in not_run))
    return Comparison(
        about,
        tuple(results),
        tuple(not_run),
        bench.warnings,
        outcome.seconds,
        outcome.resumed,
        render(outcome),
    )


def _result(method: str, epsilon: float, points: Sequence[JsonObject]) -> JsonObject:
    """Means and spreads over the runs of one method at one epsilon."""
    values = {
        name: [point[name] for point in points if point.get(name) is not None]
        for name in (*MEASURES, "without_interval")
    }
    means = {name: float(np.mean(runs)) for name, runs in values.items() if runs}
    spread = {name: float(np.std(runs, ddof=1)) for name, runs in values.items() if len(runs) > 1}
    worst = None
    pairs = [point for point in points if "worst_pair" in point]
    if pairs:
        largest = max(pairs, key=lambda point: float(point["worst_pair"]))
        worst = {"tvd": means["worst_pair"], "attributes": largest["worst_names"]}
    result: JsonObject = {
        "method": method,
        "epsilon": epsilon,
        "trust": points[0]["trust"],
        "runs": len(points),
        "tvd": {str(k): means[f"tvd_{k}"] for k in (1, 2, 3) if f"tvd_{k}" in means},
        "worst_pair": worst,
    }
    for name in ("coverage", "without_interval", "accuracy", "cpu_seconds", "peak_megabytes"):
        result[name] = means.get(name)
    result["spread"] = spread
    remarks = {point["no_intervals"] for point in points if "no_intervals" in point}
    if remarks:
        result["no_intervals"] = min(remarks)
    return result
