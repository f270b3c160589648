"""dither evaluate: how far a synthetic table is from a real one; dither audit: does a mechanism keep its epsilon?"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from dither.central.audit import WAVELET_CELLS, audit_central
from dither.central.measurement import check_neighbours
from dither.central.methods import CENTRAL, central_method
from dither.cli.options import AsJson, Quiet
from dither.display.progress import progress_bar
from dither.errors import ParameterError
from dither.evaluation import Evaluation
from dither.evaluation import evaluate as compare
from dither.evaluation.audit import ATTRIBUTES, CELLS, LOCAL_NAMES, Audit, audited_mechanism
from dither.evaluation.audit import audit as check
from dither.evaluation.compare import SDMetricsScores
from dither.evaluation.own_scale import LEVELS, OwnScale

_CENTRAL = "central:"
_AUDITED = (*LOCAL_NAMES, *(f"{_CENTRAL}{name}" for name in CENTRAL))


def evaluate(
    real: Annotated[str, typer.Argument(help="CSV or Parquet file, or a bundled dataset's name (adult)")],
    synthetic: Annotated[str, typer.Argument(help="the table to compare with it")],
    schema: Annotated[
        Path | None, typer.Option(help="schema file; without it the real table's own or an inferred one")
    ] = None,
    ways: Annotated[str, typer.Option(help="numbers of attributes to take together, with commas")] = "1,2,3",
    max_sets: Annotated[int, typer.Option(help="most attribute sets for each number; more are sampled")] = 100,
    seed: Annotated[int, typer.Option(help="decides which sets are sampled")] = 0,
    sdmetrics: Annotated[
        bool, typer.Option("--sdmetrics", help="also the scores of SDMetrics' quality report (that library is needed)")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare the marginals of two tables: total variation distance, Kullback-Leibler divergence, mean squared error.

    Each figure is a mean over sets of one, two, three ... attributes; 0 means that the tables agree. Numbers and times are also
    compared on their own scale, so that bad bins show. With --sdmetrics the scores
    of SDMetrics' quality report follow, where 1 means that they agree.

    Example: dither evaluate adult out/synthetic.parquet
    """
    with progress_bar(quiet) as progress:
        result = compare(real, synthetic, schema, _ways(ways), max_sets, seed, sdmetrics, progress)
    if as_json:
        print(json.dumps(result.to_json(), allow_nan=False))
    else:
        _show(result)


def _ways(given: str) -> tuple[int, ...]:
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ParameterError(
            f"--ways {given}: write whole numbers of at least 1 with commas between them, such as 1,2,3",
            where="--ways",
            value=given,
        )
    return tuple(int(part) for part in parts)


def _show(result: Evaluation) -> None:
    table = Grid(box=None, pad_edge=False)
    for heading in ("attributes", "sets", "TVD", "spread", "KL", "MSE"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("worst set (TVD)", overflow="fold")
    for k, found in result.ways.items():
        sets = f"{found.sets}" if found.sets == found.possible_sets else f"{found.sets} of {found.possible_sets:,}"
        worst = f"{', '.join(found.worst)} ({found.worst_tvd:.4f})"
        figures = [f"{found.tvd:.4f}", f"{found.tvd_spread:.4f}", f"{found.kl:.4f}", f"{found.mse:.2e}"]
        table.add_row(str(k), sets, *figures, escape(worst))
    console = Console(highlight=False)
    console.print(
        f"{result.rows_real:,} real rows, {result.rows_synthetic:,} synthetic rows; means over attribute sets"
    )
    console.print(table)
    if result.columns:
        _show_columns(result.columns, console)
    if result.broken is not None:
        console.print(
            f"\nrows that break a rule of the schema: {result.broken[0]:.2%} real, {result.broken[1]:.2%} synthetic"
        )
    if result.sdmetrics is not None:
        _show_sdmetrics(result.sdmetrics, console)


def _show_columns(columns: Sequence[OwnScale], console: Console) -> None:
    console.print("\nnumbers and times on their own scale; KS 0 is best")
    table = Grid(box=None, pad_edge=False)
    table.add_column("column", overflow="fold")
    table.add_column("")
    for heading in ("mean", "median", "top value", "KS", "Wasserstein"):
        table.add_column(heading, justify="right", no_wrap=True)
    middle = LEVELS.index(0.5)
    for found in columns:
        for side, scale in (("real", found.real), ("synthetic", found.synthetic)):
            figures = [f"{scale.mean:,.5g}", f"{scale.quantiles[middle]:,.5g}", f"{scale.top_share:.2%}"]
            distances = [f"{found.ks:.4f}", f"{found.wasserstein:,.4g}"] if side == "real" else []
            table.add_row(escape(found.name) if side == "real" else "", side, *figures, *distances)
    console.print(table)


def _show_sdmetrics(scores: SDMetricsScores, console: Console) -> None:
    trends = "none" if scores.column_pair_trends is None else f"{scores.column_pair_trends:.4f}"
    console.print(f"\nSDMetrics {scores.version} quality report: overall score {scores.overall:.4f} (1 is best)")
    console.print(f"  Column Shapes       {scores.column_shapes:.4f}")
    console.print(f"  Column Pair Trends  {trends}")
    for title, wanted in (("numerical", ("numerical",)), ("categorical", ("categorical", "boolean"))):
        names = [name for name, sdtype in scores.sdtypes.items() if sdtype in wanted]
        console.print(f"  {title}: {escape(', '.join(names)) or 'none'}")
    if scores.unscored:
        console.print(f"  {scores.unscored} columns and pairs could not be scored and are left out of the means")


def audit(
    mechanism: Annotated[str, typer.Option(help=f"one of {', '.join(_AUDITED)}; a plug-in's name; or all")],
    epsilon: Annotated[float, typer.Option(help="the guarantee asked for")],
    cells: Annotated[
        int | None,
        typer.Option(
            help=f"number of values the question distinguishes; without it {CELLS} (central:privelet: "
            f"{WAVELET_CELLS}). Mechanisms for means take numbers and do not use it"
        ),
    ] = None,
    attributes: Annotated[
        int, typer.Option(help="number of attributes of duchi-vector and several-means")
    ] = ATTRIBUTES,
    neighbours: Annotated[
        str, typer.Option(help="what neighbouring tables of a central method differ in: add-remove or replace")
    ] = "add-remove",
    trials: Annotated[
        int | None,
        typer.Option(
            help="reports of each of two values, or releases of a central method; without it as many as needed"
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check mechanisms: exact epsilon from the law, and a lower bound from reports or releases really made.

    The lower bound is an attack: the two inputs that are easiest to tell apart, and the event that tells them apart
    best. It is valid with the stated confidence, so a bound above the stated epsilon proves a violation. Noise comes
    from the code that devices and curators run, fed by the operating system's random numbers. Exit status 0 if
    everything passes, 1 if not.

    Example: dither audit --mechanism oue --cells 16 --epsilon 1
    """
    notion = check_neighbours(neighbours)
    names = [name for name in _AUDITED if name != "best"] if mechanism == "all" else [mechanism]
    audits = []
    for name in names:
        if name.startswith(_CENTRAL):
            method = central_method(name.removeprefix(_CENTRAL))
            result = audit_central(
                method, epsilon, source=secrets.token_bytes, cells=cells, neighbours=notion, trials=trials
            )
        else:
            built = audited_mechanism(name, epsilon, CELLS if cells is None else cells, attributes)
            result = check(built, epsilon, trials, secrets.token_bytes)
        audits.append(result)
        if not as_json:
            _show_audit(result)
    passed = all(result.passed for result in audits)
    if as_json and mechanism == "all":
        print(json.dumps({"audits": [result.to_json() for result in audits], "passed": passed}, allow_nan=False))
    elif as_json:
        print(json.dumps(audits[0].to_json(), allow_nan=False))
    return 0 if passed else 1


def _show_audit(result: Audit) -> None:
    size = f"{result.cells} cells" if result.cells else f"{result.attributes} attribute(s)"
    how = f"{result.neighbours} neighbours" if result.neighbours else f"{result.report_bytes} bytes per report"
    print(f"{result.mechanism}, {size}, {how}: {'passed' if result.passed else 'FAILED'}")
    if result.problem is not None:
        print(f"  {result.problem}")
        return
    drawn = f"{result.trials:,} releases" if result.neighbours else f"{result.trials:,} reports for each of two values"
    print(f"  epsilon asked             {result.epsilon_asked:.9g}")
    print(f"  epsilon stated            {result.epsilon_stated:.9g}")
    print(f"  epsilon exact             {result.epsilon_exact:.9g}  (from the law, rounded up)")
    print(
        f"  epsilon empirical, lower  {result.epsilon_empirical_lower:.4g}  ({drawn}, confidence {result.confidence:.1%})"
    )
