"""An earlier campaign of the same schema: its tallies are pooled with those of now, as far as the people have not changed.

Every question that both asked is compared: under no drift the squared difference of two estimates, over the sum of their variances,
is 1 on average. What exceeds that is the variance of the drift, and an earlier answer counts as if its own variance were larger
by as much. So its weight falls with the drift, of all questions together or of its own, whichever is clearer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from dither.fit import AnswerCounts, answers_of, pool
from dither.schema import Schema
from dither.tally import CountTally, tally_from_bytes
from dither.tally.archive import decoding
from dither.types import Bytes, JsonMapping, JsonObject

ARRAY = "earlier tally "  # and its number, of the arrays in a state
MAX_TALLIES = 1_000
TOO_ALIKE = 1e-6  # chance of estimates so near to each other, if the reports are not the same ones
CHANGED = 0.5  # drift in units of the variance of a difference, beyond which the people are others


@dataclass(frozen=True)
class EarlierReports:
    """The tallies of an earlier campaign.

    Attributes:
        tallies: What the earlier fit saw, and all that a release of now can tell about those people.
        source: The folder of the earlier release.
        sha256: Of the tallies alone. A digest of the whole `state.bin` would also depend on the
            answers held out there, which no claim of the new release covers.
        private: Whether the earlier release says that its noise cannot be drawn again.
        resampled: Whether rows of a table played several of its participants each.
    """

    tallies: tuple[CountTally, ...]
    source: str
    sha256: str
    private: bool
    resampled: bool = False

    @property
    def participants(self) -> int:
        return sum(tally.participants for tally in self.tallies)

    @property
    def epsilon(self) -> float:
        """What one participant of the earlier campaign spent there."""
        return max((tally.plan.epsilon for tally in self.tallies), default=0.0)

    def facts(self) -> JsonObject:
        """Where it came from and how it was protected, for a state and for a release."""
        return {
            "kind": "release",
            "source": self.source,
            "sha256": self.sha256,
            "participants": self.participants,
            "tallies": len(self.tallies),
            "epsilon": self.epsilon,
            "private": self.private,
            "resampled": self.resampled,
        }

    def arrays(self) -> dict[str, Bytes]:
        return {
            f"{ARRAY}{i}": np.frombuffer(t.to_bytes(), np.uint8) for i, t in enumerate(self.tallies)
        }


def earlier_from_state(facts: JsonMapping, arrays: dict[str, np.ndarray]) -> EarlierReports:
    """The earlier campaign that a saved machine knew."""
    with decoding("prior in the state of a method"):
        count, source, digest = int(facts["tallies"]), str(facts["source"]), str(facts["sha256"])
        found = [
            tally_from_bytes(arrays[f"{ARRAY}{i}"].tobytes())
            for i in range(min(count, MAX_TALLIES))
        ]
    tallies = tuple(t for t in found if isinstance(t, CountTally))
    # States of earlier versions do not say whether the noise can be drawn again.
    private, resampled = facts.get("private") is True, facts.get("resampled") is True
    return EarlierReports(tallies, source, digest, private, resampled)


@dataclass(frozen=True)
class Pooled:
    """Answers of both campaigns, the earlier ones with their weights, and what a release says of it."""

    answers: list[AnswerCounts]
    note: JsonObject


def pooled_answers(schema: Schema, own: Sequence[AnswerCounts], earlier: EarlierReports) -> Pooled:
    """The answers of now and those earlier ones whose questions are asked now, weighted by how little has changed."""
    asked = _by_set(own)
    before = {
        key: answers
        for key, answers in _by_set(answers_of(earlier.tallies)).items()
        if key in asked
    }
    note = earlier.facts()
    if not before:
        left_out = "it asked other questions, so nothing could tell whether people have changed"
        return Pooled(list(own), {**note, "share_of_prior": 0.0, "left_out": left_out})
    seen = {key: _compared(schema, asked[key], answers) for key, answers in before.items()}
    cells, total = sum(s.cells for s in seen.values()), math.fsum(s.chi2 for s in seen.values())
    drift = max(total / cells - 1.0, 0.0)
    note |= {"drift": drift, "drift_p_value": float(ndtr((cells - total) / math.sqrt(2.0 * cells)))}
    if drift > CHANGED or note["drift_p_value"] > 1.0 - TOO_ALIKE:
        why = (
            "people have changed since"
            if drift > CHANGED
            else "its reports are too like those of now to be others'"
        )
        return Pooled(list(own), {**note, "weight": 0.0, "share_of_prior": 0.0, "left_out": why})
    weights = {key: s.weight(drift) for key, s in seen.items()}
    kept = [
        AnswerCounts(
            a.question,
            np.rint(weights[key] * a.support).astype(np.int64),
            round(weights[key] * a.n),
        )
        for key, answers in before.items()
        for a in answers
        if round(weights[key] * a.n) > 0
    ]
    now, counted = sum(a.n for a in own), sum(a.n for a in kept)
    used = sum(a.n for answers in before.values() for a in answers)
    return Pooled(
        [*own, *kept],
        {
            **note,
            "share_of_prior": counted / (now + counted),
            "reports_of_same_questions": used,
            "weight": counted / used,
        },
    )


@dataclass(frozen=True)
class _Compared:
    """Two campaigns' tables of one set of attributes: chi^2 of their difference, and the earlier one's part of its variance."""

    chi2: float
    cells: int
    part: float

    def weight(self, drift: float) -> float:
        """The earlier answer's variance over that with the drift's added; its own drift counts from one deviation on."""
        own = max(self.chi2 / self.cells - 1.0 - math.sqrt(2.0 / self.cells), 0.0)
        return self.part / (self.part + max(drift, own))


def _by_set(answers: Sequence[AnswerCounts]) -> dict[frozenset[str], list[AnswerCounts]]:
    out: dict[frozenset[str], list[AnswerCounts]] = {}
    for answer in answers:
        out.setdefault(frozenset(answer.question.attributes), []).append(answer)
    return out


def _compared(
    schema: Schema, now: Sequence[AnswerCounts], before: Sequence[AnswerCounts]
) -> _Compared:
    names = now[0].question.attributes
    here, there = (pool(schema, answers, names) for answers in (now, before))
    squares = (here.frequencies - there.frequencies).ravel() ** 2
    # The devices' noise, and that only some people were asked.
    share = np.clip(0.5 * (here.frequencies + there.frequencies), 0.0, 1.0)
    v1, v2 = ((m.variances + share * (1.0 - share) / m.n).ravel() for m in (here, there))
    return _Compared(
        float((squares / (v1 + v2)).sum()), squares.size, float((v2 / (v1 + v2)).mean())
    )
