"""dither evaluate: the distance between a synthetic table and a real one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from dither.cli.options import AsJson, Quiet
from dither.errors import ParameterError
from dither.evaluation import Evaluation
from dither.evaluation import evaluate as compare
from dither.evaluation.compare import SDMetricsScores
from dither.evaluation.metrics import LEVELS, ColumnDistances
from dither.progress import progress_bar


def evaluate(
    real: Annotated[
        str, typer.Argument(help="CSV or Parquet file, or the name of a bundled dataset (adult)")
    ],
    synthetic: Annotated[str, typer.Argument(help="table to compare with it")],
    schema: Annotated[
        Path | None,
        typer.Option(help="schema file [default: the one of the real table, else inferred]"),
    ] = None,
    ways: Annotated[
        str, typer.Option(help="comma-separated sizes of the attribute sets")
    ] = "1,2,3",
    max_sets: Annotated[
        int,
        typer.Option(
            help="maximum number of attribute sets of each size; of more, a sample is taken"
        ),
    ] = 100,
    seed: Annotated[int, typer.Option(help="seed of that sample")] = 0,
    sdmetrics: Annotated[
        bool,
        typer.Option(
            "--sdmetrics",
            help="also compute the scores of SDMetrics' quality report; needs that library",
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare the marginals of two tables: total variation, Kullback-Leibler, mean squared error.

    Each figure is a mean over sets of one, two, three ... attributes; 0 means that the tables
    agree. Numbers and times are also compared on their original scale, which shows badly chosen
    bins. With --sdmetrics, the scores of SDMetrics' quality report follow; 1 means agreement.

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
            f"--ways {given}: write comma-separated whole numbers from 1, such as 1,2,3",
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
        sets = (
            f"{found.sets}"
            if found.sets == found.possible_sets
            else f"{found.sets} of {found.possible_sets:,}"
        )
        worst = f"{', '.join(found.worst)} ({found.worst_tvd:.4f})"
        figures = [
            f"{found.tvd:.4f}",
            f"{found.tvd_spread:.4f}",
            f"{found.kl:.4f}",
            f"{found.mse:.2e}",
        ]
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


def _show_columns(columns: Sequence[ColumnDistances], console: Console) -> None:
    console.print("\nnumbers and times on their original scale; KS 0 is best")
    table = Grid(box=None, pad_edge=False)
    table.add_column("column", overflow="fold")
    table.add_column("")
    for heading in ("mean", "median", "top value", "KS", "Wasserstein"):
        table.add_column(heading, justify="right", no_wrap=True)
    middle = LEVELS.index(0.5)
    for found in columns:
        for side, scale in (("real", found.real), ("synthetic", found.synthetic)):
            figures = [
                f"{scale.mean:,.5g}",
                f"{scale.quantiles[middle]:,.5g}",
                f"{scale.top_share:.2%}",
            ]
            distances = [f"{found.ks:.4f}", f"{found.wasserstein:,.4g}"] if side == "real" else []
            table.add_row(escape(found.name) if side == "real" else "", side, *figures, *distances)
    console.print(table)


def _show_sdmetrics(scores: SDMetricsScores, console: Console) -> None:
    trends = "none" if scores.column_pair_trends is None else f"{scores.column_pair_trends:.4f}"
    console.print(
        f"\nSDMetrics {scores.version} quality report: overall score {scores.overall:.4f} (1 is best)"
    )
    console.print(f"  Column Shapes       {scores.column_shapes:.4f}")
    console.print(f"  Column Pair Trends  {trends}")
    for title, wanted in (
        ("numerical", ("numerical",)),
        ("categorical", ("categorical", "boolean")),
    ):
        names = [name for name, sdtype in scores.sdtypes.items() if sdtype in wanted]
        console.print(f"  {title}: {escape(', '.join(names)) or 'none'}")
    if scores.unscored:
        console.print(
            f"  {scores.unscored} columns and pairs could not be scored; the means exclude them"
        )
