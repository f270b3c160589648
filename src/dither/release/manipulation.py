"""Manipulation: how far dishonest participants can move the figures of an attribute, at worst.

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

A forger of local hashing chooses the hash function too (a = 0 puts all cells into one bucket), one of
Fourier signs the coefficient (0 has the same sign in all cells). Each mechanism's `forged_range` gives
the largest and smallest g.

**Sets of values.** A release publishes ranges and means as well as single values, so the bound is that
of the worst set T of an attribute's k values. A mean moves by at most that times the span of the values.

**Pooling.** A marginal is pooled from several questions with the weights n_j/v_j, where v_j is the
variance of one report. If L of the n_j reports of question j are forged, the pooled share of a set S
differs from that of the honest reports by exactly

    D(S) = L (g(S) - y(S))/v_j / (W - L/v_j),    W = sum of all n_j/v_j.

It is a ratio of linear functions of the numbers of forged reports, so it is largest with all of them
on one question.

**Projection** (norm-sub). While the raw estimate moves in a straight line, the cells A that are above
zero move by their own part of D less the mean over A. For a = |T and A| and c = |A without T| the set
T moves by

    (c D(T and A) - a D(A without T)) / (a + c),

which is bounded by the largest D of a cells and the smallest of c others. The largest value over all
a + c <= k bounds every share and every range, whichever cells are cut at zero on the way.

**How many forged reports.** L depends on how participants get their question:

- *open*: a participant makes up the token, and question and round follow from it. Trying a few dozen
  tokens finds one for any question, so L = b n of all n participants answer the question that moves
  the figure most. (Where every participant answers all questions, they choose the round.)
- *issued tokens*, one round or rounds assigned by token: each question gets its share b of forgers, on
  average, and the bound is b/(1 - b) times that of the question with the largest gain.
- *issued tokens*, several rounds assigned on arrival: a token has another question in each round, so
  its holder can wait for a round that asks about certain attributes. With s_r the share of round r's
  questions about them, L = b n (1 - prod(1 - s_r)) on average. The bound is that of the set of
  attributes that moves most, each with the W of its own questions: it covers all weighted means.

**Models.** For `independent` all this is a proof (for issued tokens on average over the assignment). A
model fitted to questions about several attributes weighs them in its own way and may leave most of
them aside (a tree keeps some pairs). Its bound has three parts that `independent` does not need:

- in open campaigns W is that of the best measured set of attributes alone, as if the model used
  nothing else;
- sets are those of the cells of a question's whole table, since it may be projected before its
  marginals are read;
- a few forged reports can make the model select other questions, which changes a figure by their
  noise. With 1/sqrt(W) the standard error of a value, k/(2 sqrt(W)) is added: about 1.25 times the
  total variation error to expect of the best measured set.

That is supported by attacks, not proved. The factor 1/2 was chosen from two tried (1 and 1/2) on 3,000
attacks on five methods (3,000 to 1,000,000 participants, 3 to 5 attributes, epsilon 1 and 3, 1 % of
forgers): they reached 0.75 times the bound with evenly spread forgers and 0.56 times with all of them
on one question. 2,300 attacks on populations and settings that had no part in the choice reached 0.53
and 0.56. `mixture` was attacked least (about 450 of these), and `fourier` only in the tests. Without
the last two parts evenly spread forgers reached 2.2 times the bound.

Reference: Cao, Jia, Gong, "Data poisoning attacks to local differential privacy protocols", USENIX
Security 2021 (maximal gain attack), with the inversion of Wang et al. 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dither.fit.pool import precision
from dither.mechanisms import Mechanism, kernels
from dither.methods import MethodRun
from dither.schema import Schema
from dither.schema.rules import Determines
from dither.tally import CountTally
from dither.types import Floats, Integers, JsonObject

SHARES = (0.01, 0.05)
OPEN, ISSUED = "open", "issued"
# Sizes of sets of cells that are tried in a large table.
_SIZES = 128

_COVERED = (
    "A bound covers every share and every range of values of the attribute, and its mean as a percentage of "
    "the span of its values. At 100 % there is no useful bound."
)
_MODELS = (
    "For a model of several attributes the bound is supported by simulated attacks, not by a proof; it assumes "
    "that the model uses only the best measured questions and may be made to select others."
)
_NOT_COVERED = (
    "Figures about several attributes at once, and what later rounds ask, can be moved too; no bound is "
    "stated for them."
)
_CHOICE = {
    "open": (
        "In an open campaign participants make up their own tokens and can choose their question: the bound is "
        "that of all dishonest participants on the question that moves the figure most."
    ),
    "waiting": (
        "Tokens were issued, but a token has another question in each round, and participants can wait for a "
        "round that asks about the attribute: the bound is that of all who find one, on average."
    ),
    "issued": (
        "Tokens were issued, and participants cannot choose their question: the bound is that of dishonest "
        "participants spread evenly over all questions, on average."
    ),
}
_NO_BOUND = (
    "No manipulation bound is stated: this method reads whole reports rather than counts, and no bound "
    "is known for its fit. A few per cent of dishonest participants may move any figure."
)
_NORM_MUL = (
    "No manipulation bound is stated: with the projection norm-mul a forged report can also move values that "
    "it does not mention, and no bound is known. A few per cent of dishonest participants may move any figure."
)
_ALL_RULED = (
    "No manipulation bound is stated: the schema's rules tie attributes to each other, so that an attribute "
    "can be moved through questions about another one, and no bound is known."
)


@dataclass(frozen=True)
class _Target:
    """What a forger can choose to answer.

    Attributes:
        people: The number of reports, forged ones included.
        asked: The attributes of the question, or of the whole round where participants answer all of it.
        weight: The weight of one report in the pooled estimate.
        gain: How far one forged report for each honest one would move the worst set of values.
    """

    people: int
    asked: frozenset[str]
    weight: float
    gain: float


def set_bound(
    schema: Schema,
    tallies: Sequence[CountTally],
    attribute: str,
    frequencies: Floats,
    participants: float | None = None,
    shares: Sequence[float] = SHARES,
    *,
    model: bool = False,
    waiting: bool = False,
) -> dict[float, float] | None:
    """How far a share of forgers could move any set of an attribute's values, 1 at most.

    Args:
        schema: The schema of the tallies' plans.
        tallies: What the fit saw of each round.
        attribute: The attribute's name.
        frequencies: The pooled estimate of its values.
        participants: Of how many participants a share chooses its question: all, in an open campaign.
            None if nobody can choose: every question then has its share of forgers.
        shares: Shares of forgers among all participants.
        model: Whether a model of several attributes is fitted, rather than the pooled estimate published.
        waiting: Whether participants have a question in each round and can choose the round only.

    Returns:
        The bound for each share, or None if no question is about the attribute.
    """
    raw = None if model else np.asarray(frequencies, dtype=np.float64)
    targets = _targets(schema, tallies, attribute, raw)
    if not targets:
        return None
    total = _best_measured(targets) if model else sum(t.people * t.weight for t in targets)
    reselection = schema[attribute].cardinality / (2 * math.sqrt(total)) if model else 0.0
    bounds = {}
    for share in shares:
        if participants is None:
            moved = share / (1 - share) * max(target.gain for target in targets)
        elif waiting:
            moved = _waited(tallies, targets, share * participants)
        else:
            moved = max(_moved(target, share * participants, total) for target in targets)
        bounds[share] = min(1.0, moved + reselection)
    return bounds


def manipulation_notes(
    run: MethodRun, participants: int, *, issued: bool, on_arrival: bool = False
) -> JsonObject:
    """For each attribute how far 1 % and 5 % of dishonest participants could move any share or range of it.

    These attributes have no entry, because no bound is known for them: those asked in groups or not
    asked, those tied to others by a rule (all attributes, if a model of their dependence is conditioned
    on a rule), and all with the projection norm-mul.

    Args:
        run: The finished protocol.
        participants: All who took part, those held out included.
        issued: Whether tokens were issued, so that participants cannot make up their own.
        on_arrival: Whether participants are asked in the round that is open when they arrive.

    Returns:
        Under "manipulation", for each attribute, the bounds that hold for this campaign, and those of
        both kinds of participation; under "manipulation_claim" what they cover.
    """
    # The machine asks about its reduced schema, in which no attribute is grouped.
    core = run.machine
    schema, whole = core.campaign.schema, run.campaign.schema
    kind = ISSUED if issued else OPEN
    waiting = on_arrival and len(run.plans) > 1
    multiplies = getattr(core.parameters, "projection", None) == "norm-mul"
    model = core.method != "independent"
    ruled = _ruled(whole, everything=model)
    bounds: dict[str, dict[str, float | dict[str, float]]] = {}
    for measured in [] if multiplies else core.measured():
        name = measured.attributes[0]
        if len(measured.attributes) != 1 or name not in whole.names or name in ruled:
            continue
        if schema[name].cardinality != whole[name].cardinality:
            continue
        arguments = schema, core.counted, name, measured.frequencies
        spread = set_bound(*arguments, model=model)
        choosing = set_bound(*arguments, participants, model=model)
        if spread is None or choosing is None:
            continue
        if waiting:
            reached = set_bound(*arguments, participants, model=model, waiting=True)
            assert reached is not None  # the same questions
            spread = {share: max(moved, reached[share]) for share, moved in spread.items()}
        by_kind = {
            OPEN: {f"{share:.0%}": max(moved, spread[share]) for share, moved in choosing.items()},
            ISSUED: {f"{share:.0%}": moved for share, moved in spread.items()},
        }
        bounds[name] = {**by_kind[kind], **by_kind}
    sentence = _NO_BOUND
    if bounds:
        sentence = _claim(_CHOICE["waiting" if issued and waiting else kind], ruled, model=model)
    elif multiplies:
        sentence = _NORM_MUL
    elif ruled and core.counted:
        sentence = _ALL_RULED
    claim = {"participation": kind, "covers": "sets", "sentence": sentence}
    return {**({"manipulation": bounds} if bounds else {}), "manipulation_claim": claim}


def _claim(choice: str, ruled: Sequence[str], *, model: bool) -> str:
    """What the bounds cover, in sentences."""
    parts = [_COVERED, choice]
    if model:
        parts.append(_MODELS)
    if ruled:
        parts.append(
            f"No bound is stated for {', '.join(ruled)}, which the schema's rules tie to other attributes."
        )
    return " ".join([*parts, _NOT_COVERED])


def _ruled(schema: Schema, *, everything: bool) -> list[str]:
    """The attributes whose figures change when the model is conditioned on the rules.

    Where a model has dependence these are all attributes: whatever depends on a tied attribute moves
    with it. (What a value determines needs no conditioning.)
    """
    by = {rule.attribute: rule.by for rule in schema.rules if isinstance(rule, Determines)}
    tied = {
        name for rule in schema.rules if not isinstance(rule, Determines) for name in rule.names
    }
    if tied and everything:
        return list(schema.names)
    while more := {by[name] for name in tied if name in by} - tied:
        tied |= more
    return [name for name in schema.names if name in tied]


def _waited(tallies: Sequence[CountTally], targets: Sequence[_Target], forgers: float) -> float:
    """How far forgers who wait for a round that asks them about a set of attributes move its estimate."""
    worst = 0.0
    for asked in {target.asked for target in targets}:
        alike = [target for target in targets if target.asked == asked]
        total = sum(target.people * target.weight for target in alike)
        forged = forgers * _chance(tallies, asked)
        worst = max(worst, *(_moved(target, forged, total) for target in alike))
    return worst


def _chance(tallies: Sequence[CountTally], asked: frozenset[str]) -> float:
    """The chance that a token has a question about these attributes in at least one round."""
    missed = 1.0
    for tally in tallies:
        plan = tally.plan
        if plan.split:
            return 1.0
        shares = [
            share
            for q, share in zip(plan.questions, plan.shares, strict=True)
            if set(q.attributes) == asked
        ]
        missed *= 1 - min(1.0, math.fsum(shares))
    return 1 - missed


def _moved(target: _Target, forged: float, total: float) -> float:
    """How far forged reports to one question move the worst set of values of the pooled estimate."""
    honest = total - forged * target.weight
    # Without any honest weight left the figure is the forgers' own.
    return forged * target.weight * target.gain / honest if honest > 0 else math.inf


def _targets(
    schema: Schema, tallies: Sequence[CountTally], attribute: str, pooled: Floats | None
) -> list[_Target]:
    """What a forger can choose to answer: a question, or a round where participants answer all of it."""
    asked = [
        (tally, i, question)
        for tally in tallies
        for i, question in enumerate(tally.plan.questions)
        if tally.n[i] > 0 and attribute in question.attributes and not question.grouped
    ]
    kept = schema[attribute].cardinality
    by_round: dict[int, list[_Target]] = {}
    for tally, i, question in asked:
        n, mechanism = int(tally.n[i]), question.mechanism
        if pooled is None:
            gain = _table_gain(
                mechanism, kernels.estimate(mechanism, tally.counts[i], n).frequencies
            )
        else:
            gain = _pooled_gain(mechanism, pooled)
        target = _Target(n, frozenset(question.attributes), precision(mechanism, kept, 1), gain)
        by_round.setdefault(id(tally), []).append(target)
    found = []
    for tally in tallies:
        targets = by_round.get(id(tally), [])
        found += [_whole_round(targets)] if tally.plan.split and targets else targets
    return found


def _whole_round(targets: Sequence[_Target]) -> _Target:
    """All questions of a round in which participants answer all of them."""
    names = frozenset().union(*(target.asked for target in targets))
    weight = sum(target.weight for target in targets)
    return _Target(targets[0].people, names, weight, max(target.gain for target in targets))


def _pooled_gain(mechanism: Mechanism, frequencies: Floats) -> float:
    """The largest move of a set of one attribute's values, for one forged report to each honest one."""
    sizes = np.arange(1, frequencies.size)
    least, most = _forged_ranges(mechanism, sizes)
    ordered = np.sort(frequencies)
    up = most - np.cumsum(ordered)[:-1]
    down = np.cumsum(ordered[::-1])[:-1] - least
    return _projected(sizes, up, down, frequencies.size)


def _table_gain(mechanism: Mechanism, frequencies: Floats) -> float:
    """The largest move of any set of cells of a question's own table, which covers its marginals.

    The part of the frequencies, (a y(A without T) - c y(T and A))/(a + c), is at most the larger of the
    sums of their positive and of their negative values.
    """
    positive = float(frequencies[frequencies > 0].sum())
    negative = -float(frequencies[frequencies < 0].sum())
    return _forged_gain(mechanism) + max(positive, negative)


@lru_cache(maxsize=4096)
def _forged_gain(mechanism: Mechanism) -> float:
    """The part of the forged report alone. In large tables not every size of a set is tried."""
    last = mechanism.cells - 1
    tried = [np.linspace(1, last, min(last, _SIZES)), np.geomspace(1, last, min(last, _SIZES))]
    sizes = np.unique(np.concatenate(tried).round().astype(np.int64))
    least, most = _forged_ranges(mechanism, sizes)
    return _projected(sizes, most, -least, mechanism.cells)


def _forged_ranges(mechanism: Mechanism, sizes: Integers) -> tuple[Floats, Floats]:
    """The least and the most that one report adds to sets of these sizes."""
    # Linear in the number of cells, and slow to compute.
    if mechanism.name == "bloom":
        least, most = mechanism.forged_range(1)
        return np.asarray(least * sizes), np.asarray(most * sizes)
    ranges: Floats = np.array(
        [mechanism.forged_range(int(size)) for size in sizes], dtype=np.float64
    )
    return ranges[:, 0], ranges[:, 1]


def _projected(sizes: Integers, up: Floats, down: Floats, cells: int) -> float:
    """The largest (c up(a) + a down(c)) / (a + c) for sizes a + c of at most all cells."""
    best = 0.0
    for inside, gained in zip(sizes.tolist(), up.tolist(), strict=True):
        fits = sizes <= cells - inside
        outside = sizes[fits]
        if outside.size:
            moved = (outside * gained + inside * down[fits]) / (inside + outside)
            best = max(best, float(moved.max()))
    return best


def _best_measured(targets: Sequence[_Target]) -> float:
    """The weight of all answers to the set of attributes that has most of it."""
    weights: dict[frozenset[str], float] = {}
    for target in targets:
        weights[target.asked] = weights.get(target.asked, 0.0) + target.people * target.weight
    return max(weights.values())
