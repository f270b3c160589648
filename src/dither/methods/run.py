"""A method's run in one campaign: the machine, its reduced schema and the hold-out, composed.

A driver (`simulate`, the collector, a cluster job) starts a `MethodRun`, asks for each round's
plan and closes it with a tally. The machine itself handles neither rules nor hold-out:

- Schema reduction: the machine works on the attributes left to ask (`methods.reduction`). What
  must be asked separately gets its own round with its own participants before the machine's.
- Hold-out: each question has a copy for a small share of its participants. Their answers never
  reach the fit; `release.fit_checks` makes an unbiased error estimate of them. It costs no privacy,
  because a participant still answers one question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dither.checks import check_between, check_whole
from dither.errors import ParameterError, PrivacyError, StateError
from dither.fit import AnswerCounts, Marginal, Model, answers_of
from dither.mechanisms.probability import check_epsilon
from dither.methods.diagnostics import Diagnostics, SampleDiagnostics
from dither.methods.machine import (
    Campaign,
    ProtocolMachine,
    build_parameters,
    check_close,
)
from dither.methods.prior import EarlierReports, PublicRows, learn_prior, prior_from_state
from dither.methods.reduction import Reduction, SeparateAnswers, coarse_groups, reduce_schema
from dither.methods.registry import HISTOGRAMS, MEANS, Method, method
from dither.reports import Plan
from dither.schema import Schema, schema_from_json
from dither.tally import CountTally, RoundTally, tally_from_bytes
from dither.tally.archive import decoding, pack, unpack
from dither.types import AnyArray, JsonMapping, JsonObject, Progress


class MethodRun:
    """One campaign of a method, from its first plan to its model.

    Args:
        machine: The method's machine. With a reduction or a hold-out it must be at its start, and
            its campaign has the reduced schema.
        reduction: Which attributes are left out or grouped; None if the machine asks all of them.
        participants: All participants of the campaign. Needed with a reduction, whose separate
            round leaves fewer for the machine.
        holdout: Share of each question's participants whose answers are kept from the fit.
            Rounds in which each participant answers everything have no hold-out.

    Attributes:
        machine: The method's machine.
        campaign: The whole schema, epsilon and all participants.
    """

    def __init__(
        self,
        machine: ProtocolMachine[Any],
        *,
        reduction: Reduction | None = None,
        participants: int | None = None,
        holdout: float = 0.0,
    ) -> None:
        check_between("holdout", holdout, 0, 1, ends="[)")
        self.machine = machine
        self.reduction = reduction
        self.holdout = holdout
        self.campaign = machine.campaign
        self._separate: Plan | None = None
        if reduction is not None:
            people = machine.campaign.participants if participants is None else participants
            self.campaign = replace(
                machine.campaign, schema=reduction.schema, participants=people, in_full=()
            )
            self._separate = reduction.separate_round(machine.campaign.epsilon)
        self._tallies: list[RoundTally] = list(machine.closed)
        self._closed: list[RoundTally] = list(machine.closed)

    @property
    def method(self) -> str:
        """The method's name in the registry."""
        return self.machine.method

    @property
    def progress(self) -> Progress | None:
        """The callback of long fits."""
        return self.machine.progress

    @progress.setter
    def progress(self, progress: Progress | None) -> None:
        self.machine.progress = progress

    @property
    def tallies(self) -> tuple[RoundTally, ...]:
        """The closed rounds with the answers held out: everything a release can reveal."""
        return tuple(self._tallies)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of the closed rounds, as participants saw them."""
        return tuple(tally.plan for tally in self._tallies)

    @property
    def closed(self) -> tuple[RoundTally, ...]:
        """The closed rounds without the answers held out."""
        return tuple(self._closed)

    @property
    def counted(self) -> tuple[CountTally, ...]:
        """The tallies in `closed` that count supports question by question."""
        return tuple(tally for tally in self._closed if isinstance(tally, CountTally))

    @property
    def held(self) -> list[CountTally]:
        """The tallies of the answers held out."""
        if not self.holdout:
            return []
        return [
            _half(tally, 1)
            for tally in self._tallies
            if isinstance(tally, CountTally) and not tally.plan.split
        ]

    def held_answers(self) -> list[AnswerCounts]:
        """The held-out questions with at least one answer."""
        return answers_of(self.held)

    def plan(self) -> Plan | None:
        """The open round, the same at each call; None when finished."""
        plan = self._fitted_plan()
        if plan is None or plan.split or not self.holdout:
            return plan
        kept = tuple(share * (1 - self.holdout) for share in plan.shares)
        copies = tuple(share * self.holdout for share in plan.shares)
        return Plan(plan.round, plan.questions * 2, kept + copies, population=plan.population)

    def _fitted_plan(self) -> Plan | None:
        """The open round without the copies for the hold-out."""
        if self._separate_open():
            return self._separate
        inner = self.machine.plan()
        if inner is None or self.reduction is None:
            return inner
        return self.reduction.whole_round(inner, self._separate)

    def _separate_open(self) -> bool:
        return self._separate is not None and not self._closed

    def check(self, tally: RoundTally) -> None:
        """Raise the error that closing the open round with this tally would raise.

        Raises:
            StateError: No round is open, or the tally is of another plan.
            TooFewAnswers: The method could not use the answers.
        """
        fitted = tally
        if self.holdout:
            check_close(self.plan(), tally)
            fitted = _without_held(tally, self._fitted_plan())
        if self.reduction is not None:
            check_close(self._fitted_plan(), fitted)
        if self._separate_open():
            assert self.reduction is not None
            self.reduction.check_separate(fitted)
        else:
            self.machine.check(self._machine_tally(fitted))

    def close(self, tally: RoundTally) -> None:
        """Close the open round with its tally and open the next.

        After an error nothing has changed and the round is still open.

        Raises:
            StateError: No round is open, or the tally is of another plan.
            TooFewAnswers: The method could not use the answers.
        """
        self.check(tally)
        fitted = _without_held(tally, self._fitted_plan()) if self.holdout else tally
        if not self._separate_open():
            self.machine.close(self._machine_tally(fitted))
        self._tallies.append(tally)
        self._closed.append(fitted)

    def _machine_tally(self, tally: RoundTally) -> RoundTally:
        """A round's tally with the plan that the machine gave for it."""
        plan = self.machine.plan()
        if self.reduction is None or plan is None:
            return tally
        return self.reduction.machine_tally(plan, tally)

    @cached_property
    def _separate_answers(self) -> SeparateAnswers:
        assert self.reduction is not None
        # Later rounds may ask values in full where the machine asks groups.
        asked = answers_of(self.counted if self._separate is not None else ())
        return SeparateAnswers(self.reduction, [a for a in asked if not a.question.grouped])

    def model(self) -> Model:
        """The finished model over the whole schema.

        Raises:
            StateError: A round is still open.
        """
        if self.reduction is None:
            return self.machine.model()
        plan = self.plan()
        if plan is not None:
            raise StateError(
                f"round {plan.round} is still open: close it before asking for the model"
            )
        return self._separate_answers.whole_model(self.machine.model())

    def measured(self) -> Sequence[Marginal]:
        """The pooled estimates so far: at least every one-way marginal that was measured."""
        if self.reduction is None:
            return self.machine.measured()
        if self._separate_open():
            return []
        return self._separate_answers.whole_measured(self.machine.measured())

    def diagnostics(self) -> Diagnostics:
        """The facts about the run that a release states."""
        facts = self.machine.diagnostics()
        if self.reduction is not None:
            facts = self.reduction.state_in(facts)
        if self.holdout and isinstance(facts, SampleDiagnostics) and facts.asked is not None:
            # The machine does not count the participants held out.
            facts = replace(facts, asked=self._tallies[0].participants)
        return facts

    def plain_parameters(self) -> JsonObject:
        """The method's parameters as plain values, for a manifest."""
        return self.machine.plain_parameters()

    def state(self) -> bytes:
        """The archive from which `restore` continues with identical results."""
        machine, campaign = self.machine, self.campaign
        facts: JsonObject = {
            "method": self.method,
            "schema": campaign.schema.to_json(),
            "epsilon": campaign.epsilon,
            "participants": campaign.participants,
            "seed": campaign.seed,
            "parameters": self.plain_parameters(),
            "rounds": len(self._tallies),
        }
        arrays: dict[str, AnyArray] = {
            str(i): np.frombuffer(tally.to_bytes(), np.uint8)
            for i, tally in enumerate(self._tallies)
        }
        design = machine.design()
        if design is not None:
            facts["design"] = design
        if machine.prior is not None:
            facts["prior"] = machine.prior.facts()
            arrays |= machine.prior.arrays()
        if self.holdout:
            facts["holdout"] = self.holdout
        return pack(facts, arrays)

    def give_prior(self, rows: PublicRows | EarlierReports) -> None:
        """Let the method fit with a public table or an earlier campaign.

        Raises:
            ParameterError: The method takes no prior, the table has no rows, or the earlier
                campaign's questions cannot be pooled with those of this one.
        """
        if not self.machine.takes_prior:
            raise ParameterError(
                f"method {self.method!r} takes no prior; leave it out, or use the method mixture",
                where="prior",
                value=rows.source,
            )
        asked = self.machine.campaign.schema
        if isinstance(rows, EarlierReports):
            if asked.fingerprint != self.campaign.schema.fingerprint:
                raise ParameterError(
                    f"prior {rows.source}: an earlier release cannot be pooled if rules or groups "
                    "leave attributes unasked; leave it out",
                    where="prior",
                    value=rows.source,
                )
            self.machine.prior = rows
            return
        if not len(rows.codes):
            raise ParameterError(
                f"prior {rows.source} has no rows", where="prior", value=rows.source
            )
        codes = rows.codes if self.reduction is None else self.reduction.asked_codes(rows.codes)
        self.machine.prior = learn_prior(asked, replace(rows, codes=codes), self.campaign.seed)


def start(
    name: str,
    schema: Schema,
    epsilon: float,
    participants: int,
    parameters: JsonMapping | None = None,
    seed: int = 0,
    holdout: float = 0.0,
) -> MethodRun:
    """Start a method's run; its first plan is checked against epsilon before anyone is asked.

    Args:
        name: A method of the registry or of a plug-in.
        schema: The whole record.
        epsilon: The guarantee of one participant's whole record over the campaign.
        participants: How many participants the campaign expects.
        parameters: The method's parameters; text is read as the parameter's type.
        seed: For the method's own choices, not for the participants' noise.
        holdout: Share of each question's participants kept from the fit, for the error estimate.

    Raises:
        ParameterError: The method is unknown, or a parameter is unknown or out of range.
        PrivacyError: The method plans to spend more than epsilon.
    """
    chosen = method(name)
    check_epsilon(epsilon)
    check_whole("participants", participants, 1)
    built: object = build_parameters(chosen.parameters(), parameters or {}, name)
    campaign = Campaign(schema, float(epsilon), participants, seed)
    run = _begin(chosen, campaign, built, holdout)
    plan = run.plan()
    if plan is not None and plan.epsilon > epsilon:
        raise PrivacyError(
            f"method {name!r} plans to spend epsilon {plan.epsilon}, more than the {epsilon} asked for"
        )
    return run


def _begin(chosen: Method, campaign: Campaign, parameters: object, holdout: float) -> MethodRun:
    pairs = chosen.name not in HISTOGRAMS | MEANS and chosen.name != "independent"
    machine_class = chosen.load()
    coarse: dict[str, int] = {}
    if machine_class.coarse_grids:
        coarse = coarse_groups(campaign.schema, campaign.participants, campaign.epsilon)
    reduction = reduce_schema(campaign.schema, pairs=pairs, coarse=coarse)
    if reduction is None:
        return MethodRun(machine_class(campaign, parameters), holdout=holdout)
    separate = math.fsum(share for _, share in reduction.separate_shares(campaign.epsilon))
    people = max(1, round(campaign.participants * (1.0 - separate)))
    in_full = tuple((name, campaign.schema[name].cardinality) for name in reduction.coarse)
    inner = replace(campaign, schema=reduction.asked, participants=people, in_full=in_full)
    return MethodRun(
        machine_class(inner, parameters),
        reduction=reduction,
        participants=campaign.participants,
        holdout=holdout,
    )


def restore(state: bytes) -> MethodRun:
    """Continue a saved run: start it with the same facts and close the same tallies.

    Raises:
        ReportError: The bytes are not the state of a run.
    """
    meta, arrays = unpack(state)
    with decoding("state of a method"):
        chosen = method(str(meta.get("method")))
        campaign = Campaign(
            schema_from_json(meta["schema"]), meta["epsilon"], meta["participants"], meta["seed"]
        )
        parameters: object = build_parameters(chosen.parameters(), meta["parameters"], chosen.name)
        run = _begin(chosen, campaign, parameters, float(meta.get("holdout", 0.0)))
        machine = run.machine
        if "design" in meta:
            machine.take_design(meta["design"])
        if "prior" in meta:
            machine.prior = prior_from_state(meta["prior"], arrays, machine.campaign.schema)
    tallies = tallies_in(state)
    with decoding("state of a method"):
        for tally in tallies:
            run.close(tally)
    return run


def tallies_in(state: bytes) -> list[RoundTally]:
    """The tallies of the rounds that a saved run had closed, with the answers held out."""
    meta, arrays = unpack(state)
    with decoding("state of a method"):
        return [tally_from_bytes(arrays[str(i)].tobytes()) for i in range(meta["rounds"])]


def fitted_tallies(state: bytes) -> list[RoundTally]:
    """The tallies that the fit of a saved run saw, without restoring the run."""
    tallies = tallies_in(state)
    if "holdout" not in unpack(state)[0]:
        return tallies
    return [_without_held(tally, None) for tally in tallies]


def _without_held(tally: RoundTally, plan: Plan | None) -> RoundTally:
    """A round's tally without the copies; `plan` is the round's plan without them."""
    if tally.plan.split or not isinstance(tally, CountTally):
        return tally
    return _half(tally, 0, plan)


def _half(tally: CountTally, which: int, plan: Plan | None = None) -> CountTally:
    """The questions of a plan with copies (0), or their copies (1)."""
    whole, count = tally.plan, len(tally.plan.questions) // 2
    part = slice(which * count, (which + 1) * count)
    if plan is None:
        total = sum(whole.shares[part])
        shares = tuple(share / total for share in whole.shares[part])
        plan = Plan(whole.round, whole.questions[:count], shares, population=whole.population)
    return CountTally(plan, tally.n[part].copy(), tally.counts[part])
