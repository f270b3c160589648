"""dither audit: does a mechanism keep its epsilon?"""

from __future__ import annotations

import json
import secrets
from typing import Annotated

import typer


def audit(
    mechanism: Annotated[str, typer.Option(help="grr, sue, oue, olh, subset, bloom or best")],
    cells: Annotated[int, typer.Option(help="number of values the question distinguishes")],
    epsilon: Annotated[float, typer.Option(help="the guarantee asked for")],
    trials: Annotated[int, typer.Option(help="reports made for each of two values")] = 20_000,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> int:
    """Check a mechanism: exact epsilon from its integer thresholds, and a lower bound from reports it really makes.

    The reports come from the code a device runs, fed by the operating system's random numbers. Exit status 0 if the
    mechanism passes, 1 if not.

    Example: dither audit --mechanism oue --cells 16 --epsilon 1
    """
    from dither.evaluation.audit import audit as run_audit
    from dither.mechanisms import mechanism as build

    result = run_audit(build(mechanism, cells, epsilon), epsilon, trials, secrets.token_bytes)
    if as_json:
        print(json.dumps(result.to_json()))
    else:
        verdict = "passed" if result.passed else "FAILED"
        print(f"{result.mechanism}, {result.cells} cells, {result.report_bytes} bytes a report: {verdict}")
        print(f"  epsilon asked             {result.epsilon_asked:.9g}")
        print(
            f"  epsilon exact             {result.epsilon_exact:.9g}  (rational arithmetic on the thresholds, rounded up)"
        )
        print(
            f"  epsilon empirical, lower  {result.epsilon_empirical_lower:.4g}  "
            f"({result.trials:,} reports for each of two values, confidence {result.confidence:.1%})"
        )
    return 0 if result.passed else 1
