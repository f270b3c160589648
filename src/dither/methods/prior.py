"""Priors of a method: a public table of the same schema, or an earlier campaign's tallies.

A public table costs no participant any privacy; the fit uses its smoothed latent classes. An
earlier campaign is pooled with the present one, discounted for drift of the population: every
question that both asked is compared. Without drift the squared difference of two estimates over
the sum of their variances is 1 on average. The excess is the variance of the drift, and an
earlier answer counts as if its variance were larger by that amount.

A prior is part of a run's state, so that a restored run gives the same fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from dither.errors import ReportError
from dither.fit import AnswerCounts, answers_of, pool
from dither.fit.mixture.public_prior import (
    LatentClasses,
    classes_help,
    latent_classes,
    one_ways,
    smoothed,
)
from dither.fit.mixture.targets import Columns
from dither.schema import Schema
from dither.tally import CountTally, tally_from_bytes
from dither.tally.archive import decoding
from dither.types import AnyArray, Bytes, Codes, Floats, JsonMapping, JsonObject


@dataclass(frozen=True)
class _PriorSettings:
    """Tuned constants of pooling with an earlier campaign (docs/explanation/limit.md)."""

    # Estimates that agree better than with this probability come from the same reports.
    same_reports_p: float = 1e-6
    # Drift, in units of the variance of a difference, beyond which the population has changed
    # and the earlier campaign is left out.
    max_drift: float = 0.5


SETTINGS = _PriorSettings()


# Names of the arrays in a state.
_WEIGHTS, _COMPONENTS = "prior weights", "prior components"
EARLIER_TALLY = "earlier tally "
# Limits of what a state may contain.
MAX_ROWS = 10**9
MAX_CLASSES = 10_000
_MAX_TALLIES = 1_000


@dataclass(frozen=True)
class PublicRows:
    """A public table as codes of a campaign's schema.

    Attributes:
        codes: One row per record.
        source: The file or name it came from.
        sha256: Digest of the file's bytes.
    """

    codes: Codes
    source: str
    sha256: str


@dataclass(frozen=True)
class PublicPrior:
    """The smoothed latent classes of a public table over the attributes that a method asks."""

    classes: LatentClasses
    rows: int
    source: str
    sha256: str

    def facts(self) -> JsonObject:
        """The source, for a state and for a release."""
        return {"kind": "table", "source": self.source, "rows": self.rows, "sha256": self.sha256}

    def arrays(self) -> dict[str, Floats]:
        """The classes, for a state."""
        return {_WEIGHTS: self.classes.weights, _COMPONENTS: self.classes.components}


@dataclass(frozen=True)
class EarlierReports:
    """The tallies of an earlier campaign.

    Attributes:
        tallies: What the earlier fit saw, and all that the present release can reveal about those people.
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
        """How many participants the earlier campaign had."""
        return sum(tally.participants for tally in self.tallies)

    @property
    def epsilon(self) -> float:
        """What one participant of the earlier campaign spent there."""
        return max((tally.plan.epsilon for tally in self.tallies), default=0.0)

    def facts(self) -> JsonObject:
        """The source and its protection, for a state and for a release."""
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
        """The tallies, for a state."""
        return {
            f"{EARLIER_TALLY}{i}": np.frombuffer(t.to_bytes(), np.uint8)
            for i, t in enumerate(self.tallies)
        }


Prior = PublicPrior | EarlierReports


def learn_prior(schema: Schema, rows: PublicRows, seed: int) -> PublicPrior:
    """The prior that a public table gives.

    Args:
        schema: The schema that the method asks, whose codes `rows` has.
        rows: At least one row.
        seed: Of the random starts of the latent class fit.
    """
    columns = Columns(schema.cardinalities)
    helpful = classes_help(columns, rows.codes, np.random.default_rng([seed, 0x7075626C, 1]))
    classes = latent_classes(
        columns, rows.codes, np.random.default_rng([seed, 0x7075626C]), None if helpful else 1
    )
    smooth = smoothed(columns, classes, one_ways(columns, rows.codes))
    return PublicPrior(smooth, len(rows.codes), rows.source, rows.sha256)


def prior_from_state(facts: JsonMapping, arrays: Mapping[str, AnyArray], schema: Schema) -> Prior:
    """The prior of a saved run.

    Raises:
        ReportError: The state's prior is damaged.
    """
    if isinstance(facts, dict) and facts.get("kind") == "release":
        return _earlier_from_state(facts, arrays)
    columns = Columns(schema.cardinalities)
    try:
        weights, components = (
            np.asarray(arrays[name], dtype=np.float64) for name in (_WEIGHTS, _COMPONENTS)
        )
        rows, source, digest = int(facts["rows"]), str(facts["source"]), str(facts["sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise ReportError(f"not the state of a method: its prior is damaged ({error!r})") from None
    fits = weights.ndim == 1 and 0 < len(weights) <= MAX_CLASSES and 0 < rows <= MAX_ROWS
    fits = fits and components.shape == (len(weights), columns.width)
    if not fits or not (_distributions(weights[None]) and _distributions(components, columns)):
        raise ReportError("not the state of a method: its prior is no mixture over its attributes")
    return PublicPrior(LatentClasses(weights, components), rows, source, digest)


def _distributions(values: Floats, columns: Columns | None = None) -> bool:
    if not np.isfinite(values).all() or (values < 0).any():
        return False
    sums = values.sum(axis=1) if columns is None else columns.sums(values)
    return bool(np.allclose(sums, 1.0))


def _earlier_from_state(facts: JsonMapping, arrays: Mapping[str, AnyArray]) -> EarlierReports:
    with decoding("prior in the state of a method"):
        count, source, digest = int(facts["tallies"]), str(facts["source"]), str(facts["sha256"])
        stored = [
            tally_from_bytes(arrays[f"{EARLIER_TALLY}{i}"].tobytes())
            for i in range(min(count, _MAX_TALLIES))
        ]
    tallies = tuple(tally for tally in stored if isinstance(tally, CountTally))
    # States of earlier versions do not say whether the noise can be drawn again.
    private, resampled = facts.get("private") is True, facts.get("resampled") is True
    return EarlierReports(tallies, source, digest, private, resampled)


@dataclass(frozen=True)
class PooledAnswers:
    """Answers of both campaigns, the earlier ones scaled by their weights.

    Attributes:
        answers: For the fit.
        note: The source, the drift and the weights, for a release.
    """

    answers: list[AnswerCounts]
    note: JsonObject


def pooled_answers(
    schema: Schema, present: Sequence[AnswerCounts], earlier: EarlierReports
) -> PooledAnswers:
    """Pool the earlier answers to the present questions, weighted by how little has changed."""
    asked = _by_set(present)
    before = {
        names: answers
        for names, answers in _by_set(answers_of(earlier.tallies)).items()
        if names in asked
    }
    note = earlier.facts()
    if not before:
        left_out = "it asked other questions, so nothing could tell whether people have changed"
        return PooledAnswers(list(present), {**note, "share_of_prior": 0.0, "left_out": left_out})
    compared = {names: _compare(schema, asked[names], answers) for names, answers in before.items()}
    cells = sum(each.cells for each in compared.values())
    total = math.fsum(each.chi2 for each in compared.values())
    drift = max(total / cells - 1.0, 0.0)
    p_value = float(ndtr((cells - total) / math.sqrt(2.0 * cells)))
    note |= {"drift": drift, "drift_p_value": p_value}
    left_out = ""
    if drift > SETTINGS.max_drift:
        left_out = "people have changed since"
    elif p_value > 1.0 - SETTINGS.same_reports_p:
        left_out = "its reports are too like those of now to be others'"
    if left_out:
        note |= {"weight": 0.0, "share_of_prior": 0.0, "left_out": left_out}
        return PooledAnswers(list(present), note)
    weights = {names: each.weight(drift) for names, each in compared.items()}
    kept = [
        AnswerCounts(
            answer.question,
            np.rint(weights[names] * answer.support).astype(np.int64),
            round(weights[names] * answer.n),
        )
        for names, answers in before.items()
        for answer in answers
        if round(weights[names] * answer.n) > 0
    ]
    now, counted = sum(a.n for a in present), sum(a.n for a in kept)
    used = sum(a.n for answers in before.values() for a in answers)
    note |= {
        "share_of_prior": counted / (now + counted),
        "reports_of_same_questions": used,
        "weight": counted / used,
    }
    return PooledAnswers([*present, *kept], note)


@dataclass(frozen=True)
class _Comparison:
    """Two campaigns' tables of one set of attributes.

    Attributes:
        chi2: Of their difference.
        cells: Of the table.
        earlier_part: The earlier campaign's part of the difference's variance.
    """

    chi2: float
    cells: int
    earlier_part: float

    def weight(self, drift: float) -> float:
        """The earlier answer's variance over the same with the drift's added.

        The set's own drift counts if it exceeds one standard deviation and the common drift.
        """
        of_set = max(self.chi2 / self.cells - 1.0 - math.sqrt(2.0 / self.cells), 0.0)
        return self.earlier_part / (self.earlier_part + max(drift, of_set))


def _by_set(answers: Sequence[AnswerCounts]) -> dict[frozenset[str], list[AnswerCounts]]:
    out: dict[frozenset[str], list[AnswerCounts]] = {}
    for answer in answers:
        out.setdefault(frozenset(answer.question.attributes), []).append(answer)
    return out


def _compare(
    schema: Schema, present: Sequence[AnswerCounts], earlier: Sequence[AnswerCounts]
) -> _Comparison:
    names = present[0].question.attributes
    now, before = (pool(schema, answers, names) for answers in (present, earlier))
    squares = (now.frequencies - before.frequencies).ravel() ** 2
    # The variance has two parts: the devices' noise, and which people were asked.
    share = np.clip(0.5 * (now.frequencies + before.frequencies), 0.0, 1.0)
    v1, v2 = ((m.variances + share * (1.0 - share) / m.n).ravel() for m in (now, before))
    return _Comparison(
        float((squares / (v1 + v2)).sum()), squares.size, float((v2 / (v1 + v2)).mean())
    )
