"""Replicates: models fitted again to redrawn answers, from which a release's intervals follow.

People are drawn from the fitted model, asked like the real ones, and the model is
fitted again. The distance of the refits from the model that they were drawn from
measures variance and bias at once. `intervals` adds what replicates cannot show.

Reference: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 6 and
10; docs/explanation/uncertainty.md has the measured coverage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dither.checks import check_choice, check_whole
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.fit import Model, answers_of, model_from_bytes
from dither.fit.mixture.targets import PairTargets, pair_targets
from dither.fit.raked import Raked
from dither.fit.ruled import core_of, grouped_marginal
from dither.mechanisms import kernels
from dither.methods import (
    Diagnostics,
    EarlierReports,
    MethodRun,
    fitted_tallies,
    method,
    restore,
    start,
)
from dither.methods.prior import Prior
from dither.methods.reduction import with_groups
from dither.release.call import MAX_REPLICATES, MIN_REPLICATES
from dither.release.intervals import Bootstrap, Interval, Reports
from dither.release.misfit import Misfit, PairMisfit, local_misfit
from dither.reports import Plan, Question
from dither.schema import Schema
from dither.tally import CountTally
from dither.tally.archive import decoding, pack, unpack
from dither.types import AnyArray, Floats, JsonMapping, JsonObject, Progress

if TYPE_CHECKING:
    from dither.release import Release

FORMAT = "dither-replicates-1"


def pack_replicates(found: Bootstrap) -> bytes:
    """Pack the refitted models and the residuals' estimates.

    Single precision is a thousand times finer than their noise. The schema and the real
    answers are in the release; a digest of its model ties the replicates to it.
    """
    models: list[JsonObject] = []
    arrays: dict[str, AnyArray] = {}
    for number, model in enumerate(found.replicates):
        meta, tables = unpack(model.to_bytes())
        models.append(
            {key: value for key, value in meta.items() if key != "schema"}
            | {"arrays": list(tables)}
        )
        for name, table in tables.items():
            arrays[f"{number}.{name}"] = (
                table.astype(np.float32) if table.dtype == np.float64 else table
            )
    pairs = [
        [*sorted(pair), one.factor, one.shared, one.weight]
        for pair, one in found.misfit.pairs.items()
    ]
    asked = None if found.asked is None else sorted(sorted(some) for some in found.asked)
    facts = {
        "learnt": found.dependence_learnt,
        "pairs": sorted(pairs),
        "typical": found.misfit.typical,
        "asked": asked,
    }
    facts["spread"] = found.misfit.spread
    return pack({"format": FORMAT, "of": _digest(found.model), "models": models, **facts}, arrays)


def unpack_replicates(data: bytes, model: Model, reports: Reports | None) -> Bootstrap:
    """Read the replicates of a release with this model and these answers.

    Raises:
        ReportError: The bytes are damaged or of another release.
    """
    meta, arrays = unpack(data)
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ReportError(f"not the replicates of a release ({FORMAT})")
    if meta.get("of") != _digest(model):
        raise ReportError("the replicates are of another release's model")
    with decoding("set of replicates"):
        if not 2 <= len(meta["models"]) <= MAX_REPLICATES:
            raise ValueError(f"{len(meta['models'])} replicates")
        replicates = tuple(
            _model(entry, str(i), arrays, model.schema) for i, entry in enumerate(meta["models"])
        )
        pairs = {_known(pair[:2], model.schema): _pair_misfit(pair[2:]) for pair in meta["pairs"]}
        asked = (
            None
            if meta["asked"] is None
            else frozenset(_known(some, model.schema) for some in meta["asked"])
        )
        misfit = Misfit(pairs, _number(meta["typical"]), _number(meta["spread"]))
        return Bootstrap(model, replicates, bool(meta["learnt"]), misfit, asked, reports)


def _digest(model: Model) -> str:
    """A digest that distinguishes models whose tables have the same shape."""
    return sha256(model.to_bytes()).hexdigest()


def _model(entry: JsonObject, prefix: str, arrays: dict[str, AnyArray], schema: Schema) -> Model:
    tables = {name: arrays[f"{prefix}.{name}"] for name in entry["arrays"]}
    wide = {
        name: t.astype(np.float64) if t.dtype == np.float32 else t for name, t in tables.items()
    }
    if not all(np.isfinite(table).all() for table in wide.values()):
        raise ValueError("a table is not of numbers")
    meta = {key: value for key, value in entry.items() if key != "arrays"} | {
        "schema": schema.to_json()
    }
    return model_from_bytes(pack(meta, wide))


def _known(names: Sequence[str], schema: Schema) -> frozenset[str]:
    if len({schema.index(name) for name in names}) != len(names):
        raise ValueError(f"an attribute twice in {names!r}")
    return frozenset(names)


def _pair_misfit(values: Sequence[object]) -> PairMisfit:
    factor, shared, weight = (_number(value) for value in values)
    if max(shared, weight) > 1:
        raise ValueError(f"shares above one: {values!r}")
    return PairMisfit(factor, shared, weight)


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise ValueError(f"{value!r} is not a number from zero on")
    return float(value)


def redraw(
    machine: MethodRun, model: Model, rng: np.random.Generator, came: Sequence[int] = ()
) -> None:
    """Run all rounds of a campaign with independent people drawn from the model.

    Each round has the participants of `came`, or the planned number. Guarantee: for
    plans tallied by counts each question's tally has exactly the law of this number of
    people sampled from the model. In a split plan the tallies of different questions
    are drawn independently, which keeps the law of each. Tallies of whole reports
    cannot be drawn this way and are rejected.
    """
    people = machine.campaign.participants
    # Rounds repeat questions, so marginals are cached.
    known: dict[tuple[str, ...], Floats] = {}
    while (plan := machine.plan()) is not None:
        if plan.epsilon > machine.campaign.epsilon:
            raise PrivacyError(
                f"round {plan.round} would spend more than epsilon {machine.campaign.epsilon}"
            )
        planned = max(round(plan.population * people), 1)
        machine.close(
            draw_tally(
                plan, model, came[plan.round] if plan.round < len(came) else planned, rng, known
            )
        )


def check_redrawable(machine: MethodRun) -> None:
    """Raise an error early if the open round's tallies cannot be redrawn."""
    plan = machine.plan()
    if plan is not None and plan.tally != "counts":
        raise ParameterError(
            f"replicates cannot be had with method {machine.method!r}, which tallies whole reports; leave replicates out or "
            "choose another method",
            where="replicates",
            value=machine.method,
        )


def draw_tally(
    plan: Plan,
    model: Model,
    people: int,
    rng: np.random.Generator,
    known: dict[tuple[str, ...], Floats] | None = None,
) -> CountTally:
    """Draw one round's tally of `people` participants of the model."""
    if plan.tally != "counts":
        raise ParameterError(
            f"round {plan.round} is tallied by whole reports ({plan.tally}), which cannot be drawn from a model's marginals",
            where="method",
            value=plan.tally,
        )
    known = {} if known is None else known
    tally = CountTally(plan)
    asked = [people] * len(plan.questions) if plan.split else _whole_shares(people, plan.shares)
    for i, (question, n) in enumerate(zip(plan.questions, asked, strict=True)):
        if n == 0:
            continue
        key = question.attributes + question.grouped
        if key not in known:
            cells = _asked_marginal(model, question).ravel()
            known[key] = cells / cells.sum()
        truth = rng.multinomial(n, known[key])
        tally.add_counts(i, kernels.simulate(question.mechanism, truth, rng), n)
    return tally


def _asked_marginal(model: Model, question: Question) -> Floats:
    """A model's distribution over the cells, or groups of cells, of a question."""
    if not question.grouped:
        return model.marginal(question.attributes)
    attributes = [model.schema[name] for name in question.attributes]
    attributes = [with_groups(a) if a.name in question.grouped else a for a in attributes]
    groups = [
        np.asarray(
            a.group_codes if a.name in question.grouped else range(a.cardinality), dtype=np.intp
        )
        for a in attributes
    ]
    return grouped_marginal(model, question.attributes, groups)


def _whole_shares(people: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers that add up to `people`, each within one of its share.

    Not `apportion`: its largest remainders put some people elsewhere, which would move
    every seeded interval.
    """
    ends = np.rint(np.cumsum(shares) / sum(shares) * people).astype(np.int64)
    return [int(n) for n in np.diff(ends, prepend=0)]


# Replicates show the scatter of the fit, for which fewer starts suffice in a third of the time.
QUICK: Mapping[str, JsonMapping] = {"mixture": {"total": 200}}


def bootstrap(
    source: Release | MethodRun,
    attributes: Sequence[Sequence[str]],
    *,
    replicates: int = 20,
    level: float = 0.95,
    seed: int = 0,
    effort: str = "quick",
    progress: Progress | None = None,
) -> list[Interval]:
    """Standard errors and intervals of marginals of a release or of a finished machine.

    The time is that of `replicates` fits. The tallies, which a machine has and a
    release keeps in `state`, allow residuals to be checked; without them the model is
    assumed to fit.

    Args:
        source: The release or the finished machine.
        attributes: The attributes of each marginal.
        replicates: Number of refits.
        level: The level of the intervals.
        seed: Seed of the redrawn answers.
        effort: "quick" to fit with fewer starts, "full" to fit exactly like the
            release.
        progress: Called after each refit.

    Returns:
        One `Interval` for each marginal, in the same order.

    >>> import dither
    >>> release = dither.publish("adult", epsilon=4.0, method="independent", rows=10)
    >>> interval = dither.bootstrap(release, [["sex"]], replicates=5)[0]
    >>> bool((interval.low < interval.high).all())
    True
    """
    prepared = prepare_bootstrap(
        source, replicates=replicates, seed=seed, effort=effort, progress=progress
    )
    return [
        prepared.interval([names] if isinstance(names, str) else names, level)
        for names in attributes
    ]


def prepare_bootstrap(
    source: Release | MethodRun,
    *,
    replicates: int = 20,
    seed: int = 0,
    effort: str = "quick",
    progress: Progress | None = None,
) -> Bootstrap:
    """Draw and refit; equal seeds make equal replicates."""
    check_whole("replicates", replicates, MIN_REPLICATES)
    check_choice("effort", effort, ("quick", "full"))
    if not isinstance(source, MethodRun) and isinstance(source.model, Raked):
        raise ParameterError(
            "a raked release has the replicates that it was raked with; make more before raking",
            where="replicates",
        )
    learnt, model = (
        _learns_dependence(source),
        source.model() if isinstance(source, MethodRun) else source.model,
    )
    collected = not isinstance(source, MethodRun) and not source.simulated
    source = _machine_of(source)
    # A collection's rounds have the participants that took part, not the planned number.
    came = (
        [t.participants for t in source.closed]
        if collected and isinstance(source, MethodRun)
        else []
    )
    name, schema, epsilon, participants, parameters = _facts(source)
    if effort == "quick":
        quick = {k: v for k, v in QUICK.get(name, {}).items() if k in method(name).defaults()}
        parameters = {**parameters, **{k: min(parameters.get(k, v), v) for k, v in quick.items()}}
    known = isinstance(source, MethodRun) and bool(source.counted)
    refits: list[Model] = []
    redrawn: list[PairTargets] = []
    for replicate in range(replicates):
        run = start(name, schema, epsilon, participants, parameters, seed * 1_000_003 + replicate)
        if isinstance(source, MethodRun):
            run.machine.prior = _prior_again(
                source.machine.prior, model, np.random.default_rng([seed, replicate, 0x7072])
            )
        redraw(run, model, np.random.default_rng([seed, replicate, 0x626F6F74]), came)
        refits.append(run.model())
        if known:
            redrawn.append(_pair_targets_of(run))
        if progress:
            progress("bootstrap: models fitted again", replicate + 1, replicates)
    if not isinstance(source, MethodRun) or not source.counted:
        return Bootstrap(
            model,
            tuple(refits),
            learnt,
            local_misfit(core_of(model), [core_of(r) for r in refits], None, ()),
        )
    # The fit is compared with its data before rules are applied to either.
    found = local_misfit(
        core_of(model), [core_of(refit) for refit in refits], _pair_targets_of(source), redrawn
    )
    reports = Reports(schema, tuple(answers_of(source.counted)))
    return Bootstrap(model, tuple(refits), learnt, found, _asked_together(source), reports)


def _prior_again(prior: Prior | None, model: Model, rng: np.random.Generator) -> Prior | None:
    """Redraw the noisy answers of an earlier campaign; a public table is kept unchanged."""
    if not isinstance(prior, EarlierReports):
        return prior
    return replace(
        prior, tallies=tuple(draw_tally(t.plan, model, t.participants, rng) for t in prior.tallies)
    )


def reports_in(schema: Schema, state: bytes | None) -> Reports | None:
    """The counted answers in a release's state, without held-out ones; None without any."""
    tallies = [] if state is None else fitted_tallies(state)
    counted = [tally for tally in tallies if isinstance(tally, CountTally)]
    return Reports(schema, tuple(answers_of(counted))) if counted else None


def _machine_of(source: Release | MethodRun) -> Release | MethodRun:
    """The finished protocol in a release, without held-out answers; else the source itself."""
    if not isinstance(source, MethodRun) and source.state is not None:
        source = restore(source.state)
    return source


def _facts(source: Release | MethodRun) -> tuple[str, Schema, float, int, JsonMapping]:
    if not isinstance(source, MethodRun):
        parameters = source.parameters
        return source.method, source.schema, source.epsilon_asked, source.people, parameters
    campaign = source.campaign
    given = source.plain_parameters()
    return source.method, campaign.schema, campaign.epsilon, campaign.participants, given


def _pair_targets_of(run: MethodRun) -> PairTargets:
    return pair_targets(run.machine.campaign.schema, answers_of(run.machine.counted))


def _asked_together(run: MethodRun) -> frozenset[frozenset[str]]:
    """Pairs and triples of attributes asked together; no triples if the fit uses pairs only."""
    machine = run.machine
    answers = answers_of(machine.counted)
    sets = {answer.question.attributes for answer in answers}
    sizes = (2,) if machine.fits_pairs_only else (2, 3)
    return frozenset(
        frozenset(some) for names in sets for size in sizes for some in combinations(names, size)
    )


def _diagnostics(source: Release | MethodRun) -> Diagnostics:
    if isinstance(source, MethodRun):
        return source.diagnostics()
    return Diagnostics.from_json(source.notes)


def _learns_dependence(source: Release | MethodRun) -> bool:
    """Whether pairs were asked and used."""
    schema = source.campaign.schema if isinstance(source, MethodRun) else source.schema
    alone = source.method == "independent" or len(schema) == 1
    return not alone and not _diagnostics(source).fell_back
