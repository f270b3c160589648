"""The privacy guarantee in plain words, rounded so that no figure promises more than is kept."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext

NO_GUARANTEE = (
    "None. This release was made from the true records without any privacy, for comparison only; it protects nobody and is not "
    "to be published."
)


def shown_epsilon(epsilon: float, digits: int = 6) -> str:
    """An epsilon to so many significant digits, rounded up: never less than was spent."""
    if not math.isfinite(epsilon) or epsilon <= 0:
        return f"{epsilon:g}"
    with localcontext() as context:
        context.prec, context.rounding = digits, ROUND_CEILING
        rounded = +Decimal(repr(float(epsilon)))
    return f"{float(rounded):.{digits}g}"


def likelihood_factor(epsilon: float) -> str:
    """e^epsilon to three significant digits, rounded up."""
    if epsilon > 600:
        return f"e^{shown_epsilon(epsilon)}"
    value = math.exp(epsilon)
    digits = max(0, 2 - math.floor(math.log10(value)))
    scale = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / scale) * scale:,.{digits}f}"


def certainty(epsilon: float) -> str:
    """How sure anyone can be of one of two records equally likely before: e^eps / (1 + e^eps), rounded up."""
    share = 1 / (1 + math.exp(-epsilon))
    for digits in range(1, 9):
        scale = 10**digits
        shown = math.ceil(share * 100 * scale) / scale
        if shown < 100:
            return f"{shown:.{digits}f} %"
    return "100 %"


def guarantee_sentence(epsilon: float, *, simulated: bool) -> str:
    """One sentence: per record, over the whole campaign, for the epsilon achieved."""
    start = "In a collection run with this plan, whatever" if simulated else "Whatever"
    return (
        f"{start} one person's record says, the chance of any report or set of reports that this person sends in the "
        f"whole campaign changes by at most a factor of {likelihood_factor(epsilon)} "
        f"(epsilon {shown_epsilon(epsilon)}, local differential privacy for the whole record)."
    )


def noise_sentence(seed: int | None, *, simulated: bool) -> str:
    """Where the noise came from, and whether anybody can draw it again."""
    if not simulated:
        return "Drawn by the participants' own devices; whoever ran the collection never had it."
    if seed is None:
        return "Not replayable: it came from the operating system, and nothing recorded can draw it again."
    return (
        "Replayable: whoever knows the seed can draw it again and take it off, so this release is as confidential as the table "
        "it was made from."
    )
