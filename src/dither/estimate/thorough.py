"""The fit to pairs averaged with a Bayesian member, if the data bear it out.

Shares lie halfway between even ones and those of least estimated risk: the estimate is in chi^2 and noisy, while an even average of
two different fits is seldom worse than either. A member whose chains have not mixed, or whose estimated risk is clearly
higher, is left out.
"""

from __future__ import annotations

import math

import numpy as np
from threadpoolctl import threadpool_limits

from dither.estimate.bayes import BayesMember, SampleOptions, bayes_member
from dither.estimate.blend import best_shares, blended, gram
from dither.estimate.mixture_fit import MOST_COLUMNS_FOR_ONE_THREAD, MixtureFit
from dither.estimate.targets import PairTargets, inverse_variances
from dither.types import Floats, JsonObject, Progress

CLEARLY = 2.0  # times the estimated risk of the fit


def thorough_fit(
    targets: PairTargets,
    fit: MixtureFit,
    rng: np.random.Generator,
    options: SampleOptions | None = None,
    progress: Progress | None = None,
) -> tuple[MixtureFit, JsonObject]:
    """The average, and what a release says of the member."""
    weights = inverse_variances(targets, fit.pairs, fit.one)
    few = 1 if targets.columns.width <= MOST_COLUMNS_FOR_ONE_THREAD else None
    with threadpool_limits(limits=few, user_api="blas"):
        member = bayes_member(targets, weights, fit, rng, options, progress)
    products = gram(targets, *weights, [fit, member.fit])
    df = np.array([fit.diagnostics["degrees_of_freedom"], member.df])
    risks = np.diag(products) + 2.0 * df - targets.cells
    note: JsonObject = {
        "degrees_of_freedom": member.df,
        "mixing": member.mixing,
        "estimated_risk": float(risks[1]),
        "estimated_risk_of_fit": float(risks[0]),
    }
    reason = _left_out(targets, member, risks)
    if reason is not None:
        return fit, {"share": 0.0, **note, "left_out": reason}
    shares = 0.5 * best_shares(products, df) + 0.25
    return blended([fit, member.fit], shares), {"share": float(shares[1]), **note}


def _left_out(targets: PairTargets, member: BayesMember, risks: Floats) -> str | None:
    """Why a member takes no part, if so."""
    if not member.mixed:
        return f"its two chains disagree ({member.mixing:.2f} times the spread inside them)"
    chance = math.sqrt(2.0 * targets.cells)
    if risks[1] > CLEARLY * max(float(risks[0]), 0.0) + chance:
        return "its estimated risk is clearly higher than that of the fit"
    return None
