"""Manipulation: how far dishonest participants can move a figure, at worst.

An honest report adds, after inversion, one to the total frequency of its group of cells or nothing; a
forged one adds whatever the report's format lets it support. With s the most (or fewest) of the r
target cells that one report can support, a forged report adds g = (s - r q)/(p - q) to the estimated
number of people in them, where honest people add f_T each on average:

| mechanism | most of r cells | fewest | b (g - f_T) for E = e^epsilon                    |
| grr       | 1               | 0      | b(1 - f_T) + b(k - r)/(E - 1)                  |
| oue, olh  | r               | 0      | b(2r - f_T) + 2br/(E - 1)                      |
| sue       | r               | 0      | b r e^(eps/2)/(e^(eps/2) - 1) - b f_T          |
| subset w  | min(r, w)       | max(0, w - k + r) | as above with p = wE/(wE + k - w)   |
| hadamard  | r               | 0      | b r (E + 1)/(E - 1) - b f_T                    |
| bloom     | any bits        |        | sum over bits of the positive (negative) weights |

One cell is r = 1, f_T its frequency. A forger of local hashing chooses the hash function too (a = 0 puts
all cells into one bucket), one of Fourier signs the coefficient (0 has the same sign in all cells).
Each mechanism's `forged_range` gives the largest and smallest g.

A marginal is pooled from several questions with the weights n_j/v_j, where v_j is the variance of one
report. If L of the n_j reports of question j are forged, the pooled figure y differs from that of
the honest reports by exactly

    L (g - y)/v_j / (W - L/v_j),    W = sum of all n_j/v_j.

Where do the L forged reports go? Two kinds of participation give two bounds:

- *open*: a participant makes up the token, and question and round follow from it. Trying a few dozen
  tokens finds one for any question, so L = b n of all n participants answer the question that moves
  the figure most. (Where every participant answers all questions, they choose the round.)
- *issued tokens*: each question gets its share of the forgers, L = b n_j, on average.

A model fitted to questions about several attributes weighs them in its own way, and may leave most of
them aside (a tree keeps some pairs): attacks measured on it exceed the pooled bound by up to one half.
In open campaigns W is therefore that of the best measured set of attributes alone, as if the model used
nothing else. With issued tokens every question moves alike, so the weights hardly matter.

The projection onto distributions (norm-sub) subtracts the mean excess of the cells that stay positive,
so a projected cell c of k moves by at most (1 - 1/k) times the largest difference d_c - d_i of two cells'
moves. The bound is the larger of the raw and the projected one, and at most 1.

Reference: Cao, Jia, Gong, "Data poisoning attacks to local differential privacy protocols", USENIX
Security 2021 (maximal gain attack), with the inversion of Wang et al. 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dither.estimate.pool import precision
from dither.protocols import ProtocolMachine
from dither.schema import Schema
from dither.tally import CountTally
from dither.types import Floats, JsonObject

SHARES = (0.01, 0.05)
OPEN, ISSUED = "open", "issued"

_NOT_COVERED = (
    "Figures about several attributes at once, and what later rounds ask, can be moved too; no bound is "
    "stated for them."
)
_SENTENCES = {
    OPEN: (
        "In an open campaign participants make up their own tokens and can choose their question: the bound "
        "is that of all dishonest participants on the question that moves the figure most. Where questions "
        "ask several attributes together, it assumes that a model uses only the best measured of them. " + _NOT_COVERED
    ),
    ISSUED: (
        "Tokens were issued, and participants cannot choose their question: the bound is that of dishonest "
        "participants spread evenly over all questions, for the estimate pooled from the questions about "
        f"an attribute. {_NOT_COVERED}"
    ),
}
_NO_BOUND = (
    "No manipulation bound is stated: this method reads whole reports rather than counts, and no bound "
    "is known for its fit. A few per cent of dishonest participants may move any figure."
)


@dataclass(frozen=True)
class Exposure:
    """How far each share of forgers could raise or lower each cell of a marginal, 1 at most."""

    attributes: tuple[str, ...]
    raised: Mapping[float, Floats]
    lowered: Mapping[float, Floats]


@dataclass(frozen=True)
class _Target:
    """What one forged report can do to a pooled marginal, weighted as the pool weights it.

    `asked` are the attributes of the question, or of the whole round where everybody answers it.
    """

    people: int
    asked: frozenset[str]
    weight: float
    least: float
    most: float


def exposure(
    schema: Schema,
    tallies: Sequence[CountTally],
    attributes: Sequence[str],
    frequencies: Floats,
    participants: int | None = None,
    shares: Sequence[float] = SHARES,
) -> Exposure | None:
    """The manipulation bound of a pooled marginal.

    Args:
        schema: The schema of the tallies' plans.
        tallies: What the fit saw of each round.
        attributes: The marginal's attributes.
        frequencies: The pooled estimate.
        participants: All participants of an open campaign, of whom a share chooses its question.
            None for issued tokens: every question then has its share of forgers.
        shares: Shares of forgers among all participants.

    Returns:
        The bounds, or None if no question is about these attributes together.
    """
    names = tuple(attributes)
    targets = _targets(schema, tallies, names)
    if not targets:
        return None
    people = np.array([target.people for target in targets], dtype=np.float64)
    weight, least, most = (
        np.array([getattr(target, part) for target in targets]) for part in ("weight", "least", "most")
    )
    total = float(people @ weight)
    if participants is None:  # one target that everybody answered
        weight, least, most = (np.array([people @ part]) for part in (weight, least, most))
        people = np.ones(1)
    elif any(target.asked > set(names) for target in targets):
        total = _best_measured(targets)
    figures = np.asarray(frequencies, dtype=np.float64).ravel()
    contrast = 1 - 1 / figures.size
    spread = (most - least)[:, None]
    weights = weight[:, None]
    up = np.maximum(
        most[:, None] - weights * figures,
        contrast * (spread + weights * (figures.max() - figures)),
    )
    down = np.maximum(
        weights * figures - least[:, None],
        contrast * (spread + weights * (figures - figures.min())),
    )
    raised, lowered = {}, {}
    for share in shares:
        forged = share * (people if participants is None else np.full_like(people, participants))
        honest = total - forged * weight
        # Without any honest weight left the figure is the forgers' own.
        factor = np.divide(forged, honest, out=np.full_like(honest, np.inf), where=honest > 0)[:, None]
        shape = np.shape(frequencies)
        raised[share] = np.clip((factor * up).max(axis=0), 0.0, 1.0).reshape(shape)
        lowered[share] = -np.clip((factor * down).max(axis=0), 0.0, 1.0).reshape(shape)
    return Exposure(names, raised, lowered)


def manipulation_notes(machine: ProtocolMachine, participants: int, *, issued: bool) -> JsonObject:
    """For each attribute how far 1 % and 5 % of dishonest participants could move its most exposed figure.

    An attribute that was asked in groups, or not asked, has no entry: no bound is known for it.

    Args:
        machine: The finished protocol.
        participants: All who took part, those held out included.
        issued: Whether tokens were issued, so that participants cannot choose their question.

    Returns:
        Under "manipulation", for each attribute, the bounds that hold for this campaign, and those of
        both kinds of participation; under "manipulation_claim" what they cover.
    """
    core = machine.core  # its questions are about its own schema, in which nothing is grouped
    schema, whole = core.campaign.schema, machine.campaign.schema
    kind = ISSUED if issued else OPEN
    bounds: dict[str, JsonObject] = {}
    for measured in core.measured():
        names = measured.attributes
        if len(names) != 1 or names[0] not in whole.names:
            continue
        if schema[names[0]].cardinality != whole[names[0]].cardinality:
            continue
        by_kind = {}
        for each, chosen in ((OPEN, participants), (ISSUED, None)):
            moved = exposure(schema, core.counted, names, measured.frequencies, chosen)
            if moved is not None:
                by_kind[each] = _worst(moved)
        if by_kind:
            bounds[names[0]] = {**by_kind[kind], **by_kind}
    claim = {"participation": kind, "sentence": _SENTENCES[kind] if bounds else _NO_BOUND}
    return {**({"manipulation": bounds} if bounds else {}), "manipulation_claim": claim}


def _targets(schema: Schema, tallies: Sequence[CountTally], names: tuple[str, ...]) -> list[_Target]:
    """What a forger can choose to answer: a question, or a round where everybody answers everything."""
    kept = schema.cells(names)
    found = []
    for tally in tallies:
        of_round = []
        for question, n in zip(tally.plan.questions, tally.n.tolist(), strict=True):
            if n == 0 or question.grouped or not set(names) <= set(question.attributes):
                continue
            weight = precision(question.mechanism, kept, 1)
            least, most = question.mechanism.forged_range(question.mechanism.cells // kept)
            asked = frozenset(question.attributes)
            of_round.append(_Target(n, asked, weight, weight * least, weight * most))
        if tally.plan.split and of_round:
            weight, least, most = (
                sum(getattr(target, part) for target in of_round) for part in ("weight", "least", "most")
            )
            asked = frozenset().union(*(target.asked for target in of_round))
            of_round = [_Target(of_round[0].people, asked, weight, least, most)]
        found += of_round
    return found


def _best_measured(targets: Sequence[_Target]) -> float:
    """The weight of all answers to the set of attributes that has most of it."""
    weights: dict[frozenset[str], float] = {}
    for target in targets:
        weights[target.asked] = weights.get(target.asked, 0.0) + target.people * target.weight
    return max(weights.values())


def _worst(moved: Exposure) -> dict[str, float]:
    """The most exposed cell, for each share of forgers."""
    return {
        f"{share:.0%}": max(float(moved.raised[share].max()), float(-moved.lowered[share].min()))
        for share in moved.raised
    }
