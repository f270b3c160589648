"""Probabilities as integers over a power of two, and epsilon from them without rounding error.

Guarantee: a threshold computed here never gives away more than was asked, and `log_up` never reports less than was given.
Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import fields
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from dither.checks import is_finite
from dither.errors import ParameterError, PrivacyError

_DIGITS = 60
_SLACK = Fraction(
    1, 10**50
)  # far above the last digit that decimal's exp and ln round, far below any threshold step

THRESHOLD_BITS = 32
DRAW_WIDTHS = (
    8,
    16,
    24,
    32,
    40,
    48,
)  # bits of a draw: whole bytes, and a browser holds the thresholds exactly


def check_whole_numbers(built: Any, widths: Collection[int] = DRAW_WIDTHS) -> None:
    """Every parameter that is to be a whole number is one, and draws are of a width that is really drawn.

    A width that is not a number of whole bytes would be drawn shorter than its thresholds assume: a report without noise.
    NumPy's whole numbers are refused too, since thresholds are multiplied beyond 64 bits.
    """
    for field in fields(built):
        value = getattr(built, field.name)
        if field.type in ("int", int) and (isinstance(value, bool) or not isinstance(value, int)):
            raise ParameterError(
                f"{field.name} must be a whole number, not {value!r}", where=field.name, value=value
            )
        if field.name == "threshold_bits" and value not in widths:
            raise ParameterError(
                f"draws of {value} bits are not supported", where=field.name, value=value
            )


def check_epsilon(epsilon: float) -> float:
    """A finite epsilon above zero, as a float."""
    try:
        value = (
            math.nan
            if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float))
            else float(epsilon)
        )
    except OverflowError:
        raise PrivacyError(
            "epsilon must be a number that a float can hold", where="epsilon"
        ) from None
    if not math.isfinite(value) or value <= 0:
        raise PrivacyError(
            f"epsilon must be a number above 0, not {epsilon!r}", where="epsilon", value=epsilon
        )
    return value


def check_spent(asked: float, achieved: float) -> None:
    """An error unless what was spent is a finite number that is not negative and not above what was asked for."""
    for name, value in (("epsilon_asked", asked), ("epsilon_achieved", achieved)):
        if not is_finite(value) or value < 0:
            raise PrivacyError(
                f"{name} must be a finite number that is not negative, not {value!r}",
                where=name,
                value=value,
            )
    if achieved > asked:
        raise PrivacyError(
            f"epsilon {achieved!r} was spent, more than the {asked!r} asked for",
            where="epsilon_achieved",
            value=achieved,
        )


def exp_down(epsilon: float) -> Fraction:
    """A rational just below e^epsilon."""
    with localcontext() as context:
        context.prec = _DIGITS
        value = Fraction(Decimal(min(epsilon, 700.0)).exp())
    return value * (1 - _SLACK)


def log_up(ratio: Fraction) -> float:
    """The smallest float that is at least ln(ratio), for a ratio of at least 1."""
    if ratio < 1:
        raise ValueError("log_up is for likelihood ratios of at least 1")
    if ratio == 1:
        return 0.0
    with localcontext() as context:
        context.prec = _DIGITS
        quotient = Decimal(ratio.numerator) / Decimal(ratio.denominator)
        exact = Fraction(quotient.ln())
    upper = exact * (1 + _SLACK) + _SLACK
    value = float(upper)
    while Fraction(value) < exact:
        value = math.nextafter(value, math.inf)
    return value


def ceil_fraction(value: Fraction) -> int:
    """The smallest integer that is at least `value`."""
    return -((-value.numerator) // value.denominator)
