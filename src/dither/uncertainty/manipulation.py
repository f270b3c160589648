"""How far dishonest participants can move a figure, at worst: each mechanism's `forged_range` says what one of them can do.

An honest report adds, after inversion, one to the total frequency of its group of cells or nothing; a forged one adds whatever
the report's format lets it support. With s the most (or fewest) of the r target cells that one report can support, each
forger contributes (s - r q)/(p - q) instead of an honest person's f_T on average, so a share b of forgers moves the estimate by

    b [(s - r q)/(p - q) - f_T].

| mechanism | most of r cells | fewest | gain for E = e^epsilon                          |
| grr       | 1               | 0      | b(1 - f_T) + b(k - r)/(E - 1)                  |
| oue, olh  | r               | 0      | b(2r - f_T) + 2br/(E - 1)                      |
| sue       | r               | 0      | b r e^(eps/2)/(e^(eps/2) - 1) - b f_T          |
| subset w  | min(r, w)       | max(0, w - k + r) | as above with p = wE/(wE + k - w)   |
| hadamard  | r               | 0      | b r (E + 1)/(E - 1) - b f_T                    |
| bloom     | any bits        |        | sum over bits of the positive (negative) weights |

One cell is r = 1, f_T its frequency. A forger of local hashing chooses the hash function too (a = 0 puts all cells into one
bucket), one of Fourier signs the coefficient (0 has the same sign in all cells).

Reference: Cao, Jia, Gong, "Data poisoning attacks to local differential privacy protocols", USENIX Security 2021
(maximal gain attack), with the inversion of Wang et al. 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dither.estimate.pool import AnswerCounts, answers_of, precision
from dither.protocols import ProtocolMachine
from dither.schema import Schema
from dither.types import Floats, JsonObject

SHARES = (0.01, 0.05)


@dataclass(frozen=True)
class Exposure:
    """For each cell of a marginal how far each share of forgers could raise or lower its raw estimate."""

    attributes: tuple[str, ...]
    raised: Mapping[float, Floats]
    lowered: Mapping[float, Floats]


def exposure(
    schema: Schema,
    answers: Sequence[AnswerCounts],
    attributes: Sequence[str],
    frequencies: Floats,
    shares: Sequence[float] = SHARES,
) -> Exposure | None:
    """The manipulation bound of a pooled marginal, to stand beside its interval; None if it was not asked.

    `answers` are the campaign's questions with their numbers of reports, `frequencies` the figures published. Participants
    cannot choose their question, so every question has its share of forgers; the pooled estimate moves by the weighted
    mean of the moves. The bound is on the raw estimate that a model is fitted to; a published frequency also stays in
    [0, 1], which caps it.
    """
    names = tuple(attributes)
    kept = schema.cells(names)
    figures = np.clip(np.asarray(frequencies, dtype=np.float64), 0.0, 1.0)
    parts: list[tuple[float, float, float]] = []
    for answer in answers:
        question = answer.question
        if not set(names) <= set(question.attributes):
            continue
        group = question.mechanism.cells // kept
        parts.append((precision(question.mechanism, kept, answer.n), *question.mechanism.forged_range(group)))
    if not parts:
        return None
    weights, down, up = (np.array(column) for column in zip(*parts, strict=True))
    most, least = float(weights @ up / weights.sum()), float(weights @ down / weights.sum())
    return Exposure(
        names,
        {share: np.minimum(share * (most - figures), 1.0 - figures) for share in shares},
        {share: np.maximum(share * (least - figures), -figures) for share in shares},
    )


def manipulation_notes(machine: ProtocolMachine) -> JsonObject:
    """For each attribute how far 1 % and 5 % of dishonest participants could move its most exposed figure, up or down."""
    if not machine.counted:
        return {}
    answers, schema = answers_of(machine.counted), machine.campaign.schema
    found: dict[str, dict[str, float]] = {}
    for measured in machine.measured():
        if len(measured.attributes) == 1:
            moved = exposure(schema, answers, measured.attributes, measured.frequencies)
            if moved is not None:
                found[measured.attributes[0]] = {
                    f"{share:.0%}": max(float(moved.raised[share].max()), float(-moved.lowered[share].min()))
                    for share in SHARES
                }
    return {"manipulation": found} if found else {}
