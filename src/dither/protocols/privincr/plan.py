"""What PrivIncr asks: its parameters, rounds of pair questions, and the questions about the cliques.

Reference: Liu et al., "Multi-dimensional data publishing with local differential privacy", EDBT 2023, algorithms 1 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from dither.checks import check_between, check_choice, check_finite, check_whole_or_none
from dither.errors import ParameterError, TooFewAnswers
from dither.mechanisms import POOLED_NAMES, Mechanism, mechanism
from dither.protocols.independent import question_shares
from dither.protocols.machine import Campaign, check_clique_cells
from dither.reports import Plan, Question, question
from dither.schema import Schema

Pair = tuple[int, int]
ROUNDS = 3
JOINT_CELLS, PAPER_CELLS = 8_000, 1_500
SINGLES = 0.3  # the share of one-attribute questions where pairs tell nothing of single attributes
STRONG = (
    0.35  # Cramer's V of a pair that is worth asking about: below it one-way answers serve better
)


@dataclass(frozen=True)
class PrivIncrParameters:
    """What PrivIncr leaves open; defaults are the ones that measured best, the paper's are named.

    `rounds` (T, three or as many as the participants allow) and `omega`, the share of participants they use.
    `threshold=calibrated` prunes by risk: a pair stays when its estimated squared dependence is worth more than `price`
    times the noise that it will have in the end; with `phi` it must also reach the paper's mutual information in the end.
    `threshold=paper` is eq. 18 with `alpha` and phi (0.3). Pairs in which even a strong dependence would not stand out
    by `significance` standard deviations are not asked. `shares` of the pairs grow with the root of their cells, or with
    their `cells` as in the paper; `singles` is the share of one-attribute questions (by default from the domains' widths;
    the paper: 0). `fit=joint` fits the tree to everything measured at once,
    `fit=paper` takes each clique by itself, larger ones by factors of at most `factor_cells`.
    """

    rounds: int | None = None
    omega: float = 0.5
    threshold: Literal["calibrated", "paper"] = "calibrated"
    phi: float | None = None
    alpha: float = 0.05
    significance: float = 2.0
    price: float = 0.7
    mechanism: str = "best"
    shares: Literal["root", "cells", "uniform"] = "root"
    singles: float | None = None
    fit: Literal["joint", "paper"] = "joint"
    max_clique_cells: int | None = None
    factor_cells: int | None = None

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, POOLED_NAMES)
        check_between("omega", self.omega, 0, 1, ends="()")
        if self.singles is not None:
            check_between("singles", self.singles, 0, 1, ends="[)")
        check_between("alpha", self.alpha, 0, 1, ends="(]")
        if self.phi is not None:
            check_between("phi", self.phi, 0, 1)
        for name, least in (("rounds", 1), ("max_clique_cells", 2), ("factor_cells", 2)):
            check_whole_or_none(name, getattr(self, name), least)
        check_finite("significance", self.significance)
        check_between("price", self.price, 0, math.inf, ends="[)")

    @property
    def degree(self) -> float:
        """phi with its default: the paper's 0.3 for its own rule, none beside the noise test."""
        return self.phi if self.phi is not None else (0.3 if self.threshold == "paper" else 0.0)

    @property
    def clique_cells(self) -> int:
        """The cap on a clique's cells; a clique that is taken by itself has to be smaller to be worth anything."""
        return self.max_clique_cells or (JOINT_CELLS if self.fit == "joint" else PAPER_CELLS)


def check_campaign(campaign: Campaign, parameters: PrivIncrParameters) -> None:
    """Refuse what cannot work before anybody is asked."""
    check_clique_cells(campaign.schema, parameters.clique_cells)
    if parameters.rounds is not None:
        people = int(campaign.participants * parameters.omega / parameters.rounds)
        questions = _first_questions(campaign, parameters)
        if people < questions and parameters.rounds == 1:
            raise TooFewAnswers(
                f"{campaign.participants:,} participants are too few: {people:,} of them answer the first round's {questions} "
                "questions; ask more participants",
                where="participants",
                value=campaign.participants,
            )
        if people < questions:
            raise ParameterError(
                f"rounds={parameters.rounds} leaves {people:,} participants per round for {questions} questions; "
                "ask for fewer rounds, a larger omega, or more participants",
                where="rounds",
                value=parameters.rounds,
            )


def rounds_of(campaign: Campaign, parameters: PrivIncrParameters) -> int:
    """T: as asked, else three or as many as give every question of a round ten people, at least one."""
    if parameters.rounds is not None:
        return parameters.rounds
    enough = (
        campaign.participants * parameters.omega / (10 * _first_questions(campaign, parameters))
    )
    return max(1, min(ROUNDS, int(enough)))


def _first_questions(campaign: Campaign, parameters: PrivIncrParameters) -> int:
    d = len(campaign.schema)
    return math.comb(d, 2) + (d if usual_singles(campaign, parameters) > 0 else 0)


def usual_singles(campaign: Campaign, parameters: PrivIncrParameters) -> float:
    """The share of one-attribute questions while all pairs are asked: as given, else what pairs tell too little of."""
    if parameters.singles is not None:
        return parameters.singles
    return SINGLES * max(0.0, 1 - told_of_singles(campaign, parameters))


def told_of_singles(campaign: Campaign, parameters: PrivIncrParameters) -> float:
    """How much one answer about a pair tells of its two attributes, in answers about one attribute; the mean over all pairs.

    The information is one over the variance of a frequency, of noise and of who was asked. Two for an epsilon without end, when
    an answer about a pair is one about each; little for wide pairs, whose noise adds up over the cells of a row.
    """
    sizes = campaign.schema.cardinalities
    told = weight = 0.0
    for k, m in combinations(sizes, 2):
        pair: Mechanism = mechanism(parameters.mechanism, k * m, campaign.epsilon)
        for own, other in ((k, m), (m, k)):
            alone: Mechanism = mechanism(parameters.mechanism, own, campaign.epsilon)
            chance = (1 - 1 / own) / own
            one = alone.variance(1 / own, 1) + chance
            told += math.sqrt(k * m) * one / (pair.group_variance(other, 1 / own, 1) + chance)
        weight += math.sqrt(k * m)
    return told / weight if weight else 0.0


def learnable_pairs(campaign: Campaign, parameters: PrivIncrParameters) -> list[Pair]:
    """The pairs in which a strong dependence would stand out from noise, were there d pairs to ask.

    A pair with Cramer's V of phi lies about phi^2 (min(k_i, k_j) - 1) / (k_i k_j) from independence, squared; the
    null standard deviation is sqrt(2 (k_i-1)(k_j-1)) s^2. Asking about any other pair would cost participants and teach
    nothing. The paper's rule asks about all of them.
    """
    schema = campaign.schema
    every = list(combinations(range(len(schema)), 2))
    if parameters.threshold == "paper":
        return every
    people = campaign.participants * (1 - usual_singles(campaign, parameters)) / len(schema)
    out = []
    for i, j in every:
        k, m = schema.cardinalities[i], schema.cardinalities[j]
        chosen: Mechanism = mechanism(parameters.mechanism, k * m, campaign.epsilon)
        noise = chosen.total_variance / (k * m * people)
        seen = STRONG**2 * (min(k, m) - 1) / (k * m)
        if seen >= parameters.significance * math.sqrt(2 * (k - 1) * (m - 1)) * noise:
            out.append((i, j))
    return out


def singles_share(
    campaign: Campaign, learnable: int, left: int, parameters: PrivIncrParameters
) -> float:
    """The share of one-attribute questions, given how many pairs can be learnt and how many are left.

    What the pairs that cannot be learnt would have had goes to singles; and when fewer pairs than attributes are left,
    most attributes have nothing but their own marginal to learn, so singles get the share of the missing pairs.
    """
    d = len(campaign.schema)
    every, usual = math.comb(d, 2), usual_singles(campaign, parameters)
    if parameters.threshold == "paper" or not every or parameters.singles == 0:
        return usual
    return max(1 - (1 - usual) * learnable / every, 1 - left / d)


def round_plan(
    campaign: Campaign,
    parameters: PrivIncrParameters,
    number: int,
    population: float,
    sets: Sequence[tuple[int, ...]],
    singles: float,
) -> Plan:
    """A round of questions about some attribute sets, with a share of `singles` beside them.

    Where an answer about a pair tells more of single attributes than an answer about one of them does, all pairs that are not
    asked anyway are asked for the singles' sake (`told_of_singles`).
    """
    schema = campaign.schema
    names = schema.names
    questions: list[Question] = []
    shares: list[float] = []
    if sets:
        questions = [_ask(schema, campaign, parameters, [names[a] for a in s]) for s in sets]
        shares = [(1 - singles) * float(w) for w in _weights(questions, parameters.shares)]
    if singles > 0 or not sets:
        whole = singles if sets else 1.0
        others = [p for p in combinations(range(len(names)), 2) if p not in set(sets)]
        if (
            number
            and parameters.singles is None
            and others
            and told_of_singles(campaign, parameters) >= 1
        ):
            alone = [_ask(schema, campaign, parameters, [names[i], names[j]]) for i, j in others]
            shares += [whole * float(w) for w in _weights(alone, parameters.shares)]
        else:
            alone = [_ask(schema, campaign, parameters, [name]) for name in names]
            shares += [whole * s for s in question_shares(alone, "least-error")]
        questions += alone
    total = math.fsum(shares)
    return Plan(number, tuple(questions), tuple(s / total for s in shares), population=population)


def _ask(
    schema: Schema, campaign: Campaign, parameters: PrivIncrParameters, names: Sequence[str]
) -> Question:
    return question(schema, names, campaign.epsilon, parameters.mechanism)


def _weights(
    questions: Sequence[Question], rule: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    power = {"cells": 1.0, "root": 0.5, "uniform": 0.0}[rule]
    weights = np.array([float(q.mechanism.cells) ** power for q in questions])
    return weights / weights.sum()
