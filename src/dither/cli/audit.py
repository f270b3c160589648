"""dither audit: check the epsilon of a mechanism or of a central method."""

from __future__ import annotations

import json
import secrets
from typing import Annotated

import typer

from dither.central import CENTRAL, central_method
from dither.central.audit import WAVELET_CELLS, audit_central
from dither.central.measurement import Neighbours, check_neighbours
from dither.cli.options import AsJson
from dither.evaluation.auditing import (
    ALL_INPUTS,
    ATTRIBUTES,
    CELLS,
    LOCAL_NAMES,
    STATED,
    TWO_INPUTS,
    Audit,
    audited_mechanism,
)
from dither.evaluation.auditing import audit as check

_CENTRAL = "central:"
_COMPARED = {
    None: "from the law, rounded up",
    ALL_INPUTS: "from the law of all inputs, rounded up",
    TWO_INPUTS: "from the law of two inputs, rounded up; that of all inputs is too long",
    STATED: "the stated one; the law is too long to write out",
}
_AUDITED = (*LOCAL_NAMES, *(f"{_CENTRAL}{name}" for name in CENTRAL))


def audit(
    mechanism: Annotated[
        str, typer.Option(help=f"one of {', '.join(_AUDITED)}; the name of a plug-in; or all")
    ],
    epsilon: Annotated[float, typer.Option(help="guarantee to check")],
    cells: Annotated[
        int | None,
        typer.Option(
            help=f"number of values of the question; mechanisms for means ignore it "
            f"[default: {CELLS}; central:privelet: {WAVELET_CELLS}]"
        ),
    ] = None,
    attributes: Annotated[
        int, typer.Option(help="number of attributes of duchi-vector and several-means")
    ] = ATTRIBUTES,
    neighbours: Annotated[
        str,
        typer.Option(
            help="difference of neighbouring tables, for central methods: add-remove or replace"
        ),
    ] = "add-remove",
    trials: Annotated[
        int | None,
        typer.Option(
            help="reports of each of two values, or releases of a central method [default: as needed]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check mechanisms: the exact epsilon of the law, and a lower bound from sampled reports or releases.

    The lower bound is an attack with the two inputs, and the event, that are easiest to
    distinguish. It holds with the stated confidence, so a bound above the stated epsilon proves
    a violation. The noise comes from the code that devices and curators run, with random numbers
    of the operating system. The exit status is 0 if all checks pass, else 1.

    Example: dither audit --mechanism oue --cells 16 --epsilon 1
    """
    notion = check_neighbours(neighbours)
    names = [name for name in _AUDITED if name != "best"] if mechanism == "all" else [mechanism]
    audits = []
    for name in names:
        if name.startswith(_CENTRAL):
            result = _audit_central(name, epsilon, cells, notion, trials)
        else:
            built = audited_mechanism(name, epsilon, CELLS if cells is None else cells, attributes)
            result = check(built, epsilon, trials, secrets.token_bytes)
        audits.append(result)
        if not as_json:
            _show_audit(result)
    passed = all(result.passed for result in audits)
    if as_json:
        results = [result.to_json() for result in audits]
        shown = {"audits": results, "passed": passed} if mechanism == "all" else results[0]
        print(json.dumps(shown, allow_nan=False))
    return 0 if passed else 1


def _audit_central(
    name: str, epsilon: float, cells: int | None, neighbours: Neighbours, trials: int | None
) -> Audit:
    method = central_method(name.removeprefix(_CENTRAL))
    return audit_central(
        method,
        epsilon,
        source=secrets.token_bytes,
        cells=cells,
        neighbours=neighbours,
        trials=trials,
    )


def _show_audit(result: Audit) -> None:
    size = f"{result.cells} cells" if result.cells else f"{result.attributes} attribute(s)"
    how = (
        f"{result.neighbours} neighbours"
        if result.neighbours
        else f"{result.report_bytes} bytes per report"
    )
    print(f"{result.mechanism}, {size}, {how}: {'passed' if result.passed else 'FAILED'}")
    if result.problem is not None:
        print(f"  {result.problem}")
        return
    drawn = (
        f"{result.trials:,} releases"
        if result.neighbours
        else f"{result.trials:,} reports for each of two values"
    )
    print(f"  epsilon asked             {result.epsilon_asked:.9g}")
    print(f"  epsilon stated            {result.epsilon_stated:.9g}")
    print(f"  epsilon exact             {result.epsilon_exact:.9g}  ({_COMPARED[result.law]})")
    print(
        f"  epsilon empirical, lower  {result.epsilon_empirical_lower:.4g}  ({drawn}, confidence {result.confidence:.1%})"
    )
