"""Panels against L-SUE, L-OSUE and dBitFlipPM at equal lifetime epsilon, and the coverage of intervals.

Lifetime epsilons are each method's own. Those of the rivals are for the permanent answers: k epsilon_inf for
L-SUE and L-OSUE (RAPPOR's two layers), 2 epsilon_inf for dBitFlipPM with one bit. They do not cover when a value
changes, which the panel's does, over the waves of the study. The rivals are the formulas of their papers:
permanent answers are drawn once for each value. In one wave a cell's count is a sum of two binomials whatever the
history, so errors are drawn from these.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from dither._panel import simulate_panel
from dither.lab.harness import Bench, Chart, Size, Study
from dither.mechanisms.loloha import Loloha
from dither.release.panel import PanelContent
from dither.types import Floats

METHODS = ("panel", "L-SUE", "L-OSUE", "dBitFlipPM")
EPSILON = 4.0
# First report's epsilon of the rivals with two layers, as a share of the permanent one.
FIRST_SHARE = 0.5
LEVEL = 1.959964


def zipf(cells: int) -> Floats:
    """Shares of values that fall with their rank."""
    weights = 1 / np.arange(1, cells + 1)
    return weights / weights.sum()


def two_layers(first: tuple[float, float], epsilon: float) -> tuple[float, float]:
    """p and q of a bit after a symmetric second layer, so that one report has this epsilon.

    Args:
        first: p and q of the permanent layer.
        epsilon: The epsilon of one report.
    """
    p, q = first

    def chained(keep: float) -> tuple[float, float]:
        return p * keep + (1 - p) * (1 - keep), q * keep + (1 - q) * (1 - keep)

    def excess(keep: float) -> float:
        high, low = chained(keep)
        return math.log(high * (1 - low) / ((1 - high) * low)) - epsilon

    return chained(float(brentq(excess, 0.5 + 1e-12, 1.0)))


def bit_law(method: str, cells: int, waves: int) -> tuple[float, float, float]:
    """The probabilities that a report supports the true cell and another; the share of people asked."""
    if method == "panel":
        mechanism = Loloha.for_epsilon(cells, EPSILON, waves)
        return float(mechanism.p), float(mechanism.q), 1.0
    if method == "dBitFlipPM":
        # One bit of each participant, answered with epsilon_inf / 2 on each side.
        root = math.exp(EPSILON / 4)
        return root / (root + 1), 1 / (root + 1), 1 / cells
    permanent = EPSILON / cells
    root = math.exp(permanent / 2)
    symmetric = (root / (root + 1), 1 / (root + 1))
    optimised = (0.5, 1 / (math.exp(permanent) + 1))
    first = symmetric if method == "L-SUE" else optimised
    return *two_layers(first, FIRST_SHARE * permanent), 1.0


def wave_error(method: str, cells: int, people: int, waves: int, seed: int) -> dict[str, float]:
    """The mean squared error of a wave's shares, drawn and by the formula of the variance."""
    p, q, asked = bit_law(method, cells, waves)
    rng = np.random.default_rng([seed, cells, people, waves, METHODS.index(method)])
    repeats = 20
    truth = zipf(cells)
    errors = []
    for _ in range(repeats):
        holders = rng.multinomial(people, truth)
        shares = holders / people
        answering = rng.binomial(holders, asked), rng.binomial(people - holders, asked)
        counts = rng.binomial(answering[0], p) + rng.binomial(answering[1], q)
        estimates = (counts / np.maximum(answering[0] + answering[1], 1) - q) / (p - q)
        errors.append(np.mean((estimates - shares) ** 2))
    noise = truth * p * (1 - p) + (1 - truth) * q * (1 - q)
    formula = float(np.mean(noise)) / (people * asked * (p - q) ** 2)
    return {"MSE": float(np.mean(errors)), "variance": formula}


def played(
    cells: int, people: int, waves: int, change: float, seed: int
) -> tuple[PanelContent, Floats]:
    """A panel whose people change their value with this probability, and the waves' true law."""
    rng = np.random.default_rng([seed, cells, people, waves, round(1000 * change)])
    truth, later = zipf(cells), zipf(cells)[::-1]
    values = rng.choice(cells, people, p=truth)
    courses, laws = [values], [truth]
    for _ in range(waves - 1):
        moved = rng.random(people) < change
        values = np.where(moved, rng.choice(cells, people, p=later), values)
        courses.append(values)
        laws.append((1 - change) * laws[-1] + change * later)
    codes = np.concatenate(courses)[:, None].astype(np.int32)
    rows = np.tile(np.arange(people), waves), np.repeat(np.arange(waves), people)
    mechanism = Loloha.for_epsilon(cells, 2 * EPSILON, waves)
    content = simulate_panel(codes, rows, [mechanism], ("person", "wave"), range(waves), rng)
    return content, np.array(laws)


def coverage(cells: int, waves: int, change: float, panels: int, people: int) -> dict[str, float]:
    """How often 95 % intervals of waves, and of the change between the first two, cover."""
    content, laws = played(cells, panels * people, waves, change, 1)
    weights = np.zeros(cells)
    weights[: cells // 2] = 1.0
    truth = laws @ weights
    within, changes, ratios = [], [], []
    for start in range(0, panels * people, people):
        part = slice(start, start + people)
        one = replace(
            content,
            chosen=content.chosen[part],
            words=content.words[part],
            reports=content.reports[part],
        )
        shares, covariance = one.moments(0, weights, range(waves))
        errors = shares - truth
        within += list(np.abs(errors) < LEVEL * np.sqrt(np.diag(covariance)))
        apart = covariance[0, 0] + covariance[1, 1]
        spread = math.sqrt(apart - 2 * covariance[0, 1])
        changes.append(abs(errors[1] - errors[0]) < LEVEL * spread)
        ratios.append(spread / math.sqrt(apart))
    return {
        "waves covered": float(np.mean(within)),
        "changes covered": float(np.mean(changes)),
        "standard error of a change / independent waves": float(np.mean(ratios)),
    }


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The studies of one size."""
    full = size == "full"
    smoke = size == "smoke"
    errors = Study(
        "errors",
        f"Mean squared error of a wave, lifetime epsilon {EPSILON:g}",
        {
            "method": METHODS,
            "cells": (20,) if smoke else (20, 100, 500),
            "people": (10_000, 200_000) if full else (10_000,),
            "waves": (2, 6) if smoke else (2, 6, 12, 24, 50),
            "seed": range(5 if full else 1),
        },
        wave_error,
        charts=(Chart("waves", "MSE", panels=("cells", "people"), log_x=True, log_y=True),),
        note="The errors of the rivals do not depend on the number of waves: nor do their lifetime "
        "epsilons, which do not cover when a value changes.",
    )
    panels, people = {"full": (1500, 1000), "quick": (400, 1000), "smoke": (40, 300)}[size]

    def covered(cells: int, waves: int, change: float) -> dict[str, float]:
        return coverage(cells, waves, change, panels, people)

    intervals = Study(
        "coverage",
        f"Coverage of 95 % intervals, {panels} panels of {people:,} people, epsilon {2 * EPSILON:g}",
        {
            "cells": (4,) if smoke else (4, 20),
            "waves": (2,) if smoke else (2, 4),
            "change": (0.05,) if smoke else (0.0, 0.05, 0.5),
        },
        covered,
    )
    return Bench(
        "panels",
        "Panels",
        "Each wave's shares against methods for evolving data, and the coverage of intervals of waves and changes.",
        (errors, intervals),
        size=size,
        data=f"zipf;{EPSILON};{FIRST_SHARE};{panels};{people}",
    )
