"""Probabilities as integers over a power of two, and epsilon without rounding error.

Guarantee: thresholds are rounded so that they never exceed the requested epsilon, and
`log_up` never returns less than the true one. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import fields
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

from dither.checks import is_finite
from dither.errors import ParameterError, PrivacyError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_DIGITS = 60
# Far above the rounding error of decimal's exp and ln, far below any threshold step.
_SLACK = Fraction(1, 10**50)

THRESHOLD_BITS = 32
# Bits of a draw: whole bytes, and a browser represents the thresholds exactly.
DRAW_WIDTHS = (8, 16, 24, 32, 40, 48)


def check_whole_numbers(built: DataclassInstance, widths: Collection[int] = DRAW_WIDTHS) -> None:
    """Check that integer fields are Python integers and draws have a supported width.

    A width that is not a multiple of 8 would be drawn shorter than its thresholds assume: a
    report without noise. NumPy's integers are rejected too, because thresholds are
    multiplied beyond 64 bits.
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
    """Check that epsilon is a finite number above zero.

    Raises:
        PrivacyError: It is not.
    """
    value = math.nan
    try:
        if isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool):
            value = float(epsilon)
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
    """Check that the spent epsilon is finite, not negative and at most the requested one.

    Raises:
        PrivacyError: It is not.
    """
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
