"""Whether the 95 % intervals of a thorough release hold the truth: by replicates, and by the draws of its posterior.

Replicates of a thorough release are fitted quickly, as those of any other; the draws of its Bayesian member are there already
and cost nothing more. Both have the same estimates and the same misfit of the pairs; only the scatter differs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.interval_coverage import population, questions_held
from dither.fit import Model
from dither.fit.mixture.bayes import CHAINS, SampleOptions, member_size
from dither.fit.mixture.fit import MixtureFit
from dither.lab.harness import NotAvailable
from dither.methods import start
from dither.methods.mixture.machine import MixtureProtocol, as_model
from dither.release.replicates import prepare_bootstrap, redraw

REPLICATES, DRAWS = "replicates, fitted quickly", "draws of the posterior"


def posterior_draws(machine: MixtureProtocol) -> list[Model]:
    """The draws of the Bayesian member as separate models: the last components of the average, in blocks of one draw."""
    fit, said = machine._fit
    if not said.get("bayesian_member", {}).get("share"):
        raise NotAvailable(f"the Bayesian member took no part: {said}")
    options = SampleOptions()
    count, size = CHAINS * ((options.iterations - options.warm) // options.every), member_size(fit)
    if not np.allclose(fit.weights[-count * size :], fit.weights[-1]):
        raise ValueError("the last components are not the draws of the member")
    weights, groups = np.full(size, 1.0 / size), np.zeros(size, dtype=np.intp)
    last = tuple(psi[-1:] for psi in fit.potentials)
    return [
        as_model(
            machine.campaign.schema,
            MixtureFit(weights, draw, {}, fit.pairs, fit.one, fit.edges, last, groups),
        )
        for draw in np.split(fit.components[-count * size :], count)
    ]


def thorough_coverage(
    table: str,
    participants: int,
    epsilon: float,
    seed: int,
    replicates: int,
    count: int,
    data_dir: Path | None = None,
) -> list[dict[str, Any]]:
    """The share of each kind of question whose interval holds the truth, and the mean standard error of cells above 1 %."""
    truth = population(table, data_dir)
    machine = start("mixture", truth.schema, epsilon, participants, {"effort": "thorough"}, seed)
    redraw(machine, truth, np.random.default_rng([seed, 1]))
    if not isinstance(machine.machine, MixtureProtocol):
        raise NotAvailable(f"{table} is asked in groups")
    draws = posterior_draws(machine.machine)
    refits = prepare_bootstrap(machine, replicates=replicates, seed=seed)
    out: list[dict[str, Any]] = []
    for scatter, found in ((REPLICATES, refits), (DRAWS, replace(refits, replicates=tuple(draws)))):
        row: dict[str, Any] = {"scatter": scatter}
        lines = questions_held(found, truth, count, seed)
        for kind, held in lines.items():
            row[kind.replace(" ", "_")] = (
                float(held[held[:, 2], 0].mean()) if held[:, 2].any() else None
            )
        every = np.concatenate([held[held[:, 2]] for held in lines.values()])
        row |= {"all": float(every[:, 0].mean()), "all_half_the_error": float(every[:, 1].mean())}
        pair = found.interval(truth.schema.names[:2])
        large = truth.marginal(truth.schema.names[:2]) > 0.01
        out.append(row | {"standard_error": float(pair.standard_errors[large].mean())})
    return out
