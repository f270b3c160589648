"""Answers that are sums over cells: their estimates and the covariance of their errors, which everything else rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dither.types import Floats

Basis = Literal["model", "reports", "model and reports"]


@dataclass(frozen=True)
class LinearAnswer:
    """Estimates of several sums over the cells of one marginal, with the covariance of their errors.

    The errors are deviations from the population that the participants are a sample of, scatter and bias together, so a
    difference of two sums has the variance that the covariance says. `freedom` is Student's for intervals. `basis` says
    what the figures rest on: the fitted model, the reports about just these attributes, or both. `caution` says in words what
    the errors do not cover, if anything.
    """

    estimates: Floats
    covariance: Floats
    freedom: float
    basis: Basis = "model"
    caution: str = ""
