"""The privacy guarantee in plain language, rounded so that no figure overstates the protection."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from dither.notice import REPLAYABLE, RESAMPLED, SHOWS_TRUTH, Notice, shown_epsilon, weak_protection
from dither.release.amplification import Bound, CentralGuarantee
from dither.types import JsonMapping, JsonObject

if TYPE_CHECKING:
    from dither.release.release import Release

Rows = list[tuple[str, str]]
# Names of notes; others are shown with spaces instead of underscores.
_NAMES = {
    "asked": "People who answered",
    "asked_in_groups": "Attributes asked in groups of values",
    "asked_in_pairs": "Attributes asked in pairs",
    "bits_per_report": "Bits in a report",
    "candidates": "Candidates for parents",
    "cliques": "Sets of attributes modelled together",
    "degree": "Most parents of an attribute",
    "edges": "Pairs joined in the model",
    "encoding": "How answers are written",
    "epsilon_per_attribute_as_in_the_paper": "Epsilon of one attribute, as the paper counts",
    "epsilon_record": "Epsilon of the whole record",
    "epsilon_remark": "On these two",
    "estimator": "How distributions are estimated",
    "fit": "The fit",
    "flip": "Chance that a bit is replaced by a coin",
    "hashes": "Hash functions",
    "largest_set_cells": "Combinations of the largest set asked",
    "not_asked": "Attributes that follow from others and were not asked",
    "pairs": "Pairs of attributes",
    "pairs_asked": "Pairs that were asked",
    "people_in_pairs": "Share of the people asked about several attributes",
    "pairs_left_after_each_round": "Pairs kept after each round",
    "pairs_that_came_back": "Pairs that came back in the end",
    "rounds_of_pairs": "Rounds of pairs",
    "sets": "Sets of attributes asked together",
    "threshold": "What decides whether a pair is kept",
    "tree_fit": "The fit of the tree",
}
_MAX_LETTERS = 400
_POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def in_words(notes: JsonMapping) -> Rows:
    """Each note as a name and a text."""
    return [
        (_NAMES.get(name, _spaced(name)), _note_text(name, value)) for name, value in notes.items()
    ]


def _plain_number(value: float, digits: int = 4) -> str:
    """Format a number with few digits, commas, and a power of ten if very small or large.

    >>> [_plain_number(v) for v in (16710.0755, 0.05, 7.65e-287, 3.0, 1.5e15)]
    ['16,710', '0.05', '8 × 10⁻²⁸⁷', '3', '1.5 × 10¹⁵']
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e-4 <= abs(value) < 1e15:
        return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
    factor, _, power = f"{value:.{0 if abs(value) < 1 else 1}e}".partition("e")
    return f"{factor} × 10{str(int(power)).translate(_POWERS)}"


def _spaced(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def _note_text(name: str, value: object) -> str:
    if name == "fit" and isinstance(value, Mapping) and "shares" in value:
        return _average(value)
    return _cut(_value(value))


def _value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, (int, float)):
        return _plain_number(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{name.replace('_', ' ')} {_value(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        inner = any(isinstance(item, (list, tuple)) for item in value)
        return ("; " if inner else ", ").join(
            _joined(item) if inner else _value(item) for item in value
        ) or "none"
    return (
        str(value).replace("_", " ") if isinstance(value, str) and value.islower() else str(value)
    )


def _joined(items: object) -> str:
    return (
        " and ".join(map(str, items))
        if isinstance(items, Sequence) and not isinstance(items, str)
        else _value(items)
    )


def _average(fit: Mapping[str, object]) -> str:
    """Notes of the method `mixture` on the models that it averaged."""
    shares, edges = fit.get("shares"), fit.get("edges")
    parts = []
    if isinstance(shares, Mapping):
        listed = ", ".join(
            f"{name} {100 * float(share):.0f}\N{NO-BREAK SPACE}%" for name, share in shares.items()
        )
        parts.append(f"average of {listed}")
    if isinstance(edges, (list, tuple)) and edges:
        parts.append(f"pairs of the tree: {'; '.join(map(_joined, edges))}")
    return _cut("; ".join(parts)) + "."


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 1]}…"


NO_GUARANTEE = (
    "None. This release was made from the true records without any privacy, for comparison only; it "
    "protects no one and must not be published."
)


def likelihood_factor(epsilon: float) -> str:
    """e^epsilon to three significant digits, rounded up."""
    if epsilon > 600:
        return f"e^{shown_epsilon(epsilon)}"
    value = math.exp(epsilon)
    digits = max(0, 2 - math.floor(math.log10(value)))
    scale = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / scale) * scale:,.{digits}f}"


def guarantee_sentence(epsilon: float, *, simulated: bool) -> str:
    """One sentence: per record, over the whole campaign, for the epsilon achieved."""
    start = "In a collection run with this plan, whatever" if simulated else "Whatever"
    return (
        f"{start} one person's record says, the chance of any report or set of reports that this person sends in the "
        f"whole campaign changes by at most a factor of {likelihood_factor(epsilon)} "
        f"(epsilon {shown_epsilon(epsilon)}, local differential privacy for the whole record)."
    )


def earlier_release(notes: JsonMapping) -> JsonMapping | None:
    """A release's notes about the earlier release used as prior; None without one."""
    prior = notes.get("prior")
    return prior if isinstance(prior, Mapping) and prior.get("kind") == "release" else None


def earlier_sentence(earlier: JsonMapping, epsilon: float) -> str:
    """The promise to participants of the earlier release, and of both campaigns."""
    if earlier.get("private") is not True:
        return (
            f"This covers the participants of this campaign. The earlier release {earlier['source']} was used too: "
            "nothing is promised to its participants."
        )
    before = float(earlier["epsilon"])
    return (
        f"This covers the participants of this campaign. The earlier release {earlier['source']} was used too: its "
        f"participants have epsilon {shown_epsilon(before)}, and a person who took part in both has epsilon "
        f"{shown_epsilon(epsilon + before)} in all."
    )


EARLIER_REPLAYED = (
    "The noise of the earlier release that was used can be drawn again by anyone who knows its seed, so this release is "
    "as confidential as the table of that one."
)
EARLIER_REPLAYED_TO_READERS = (
    "Nothing is promised to the participants of the earlier release that was used: anyone who knows its seed can remove "
    "their noise."
)
RESTS_ON = (
    "The collector shows no one single reports, their senders or their order; and the other people "
    "whose reports are added up draw their noise as they are asked to (subtract participants who "
    "deviate from the protocol)."
)
REPLAYED_TO_READERS = "Nothing is promised against readers of the release: it contains its seed, which removes the noise."
UNBOUNDED_READERS = "No bound was computed for readers of the release; the guarantee of the reports covers them too."


def readers_sentence(central: CentralGuarantee, *, simulated: bool, pooled: bool = False) -> str:
    """The promise against people who see the sums but not the reports.

    Args:
        central: The guarantee, also of the participants of an earlier release if there
            is one.
        simulated: Whether rows of a table played the participants.
        pooled: Whether an earlier release was given as prior.
    """
    own = _readers_sentence(central, simulated=simulated)
    if not pooled:
        return own
    return (
        f"{own} This covers the participants of this campaign and those of the earlier release; for a person who took "
        "part in both, the losses of both add up."
    )


def _readers_sentence(central: CentralGuarantee, *, simulated: bool) -> str:
    start = "In a collection run with this plan, a reader who" if simulated else "A reader who"
    known = central.known
    if known.delta == 0:
        return (
            f"{start} sees only the release, not the reports, but knows who was asked what, may learn as much from it as from a "
            f"report (epsilon {shown_epsilon(known.epsilon)}): some question went to too few people to hide among at this "
            f"epsilon ({known.people:,} at the fewest)."
        )
    return (
        f"{start} sees only the release, not the reports, learns at most as much about one person's record as "
        f"{_shown_bound(known)}-differential privacy allows, even knowing who was asked what: at worst a person is one of "
        f"{known.people:,} whose reports were added up."
    )


def hidden_sentence(central: CentralGuarantee) -> str | None:
    """The same promise if the assignment of questions is hidden too; None if equal."""
    if central.hidden.epsilon >= central.known.epsilon:
        return None
    return (
        "A reader who does not know which question the person was asked learns at most as much as "
        f"{_shown_bound(central.hidden)}-differential privacy allows: at worst a person is then one "
        f"of {central.hidden.people:,}."
    )


_WORDS_POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _shown_bound(bound: Bound) -> str:
    """(epsilon, delta), both rounded up."""
    delta = shown_epsilon(bound.delta, 2)
    factor, e, power = delta.partition("e")
    delta = f"{factor} × 10{str(int(power)).translate(_WORDS_POWERS)}" if e else delta
    return f"({shown_epsilon(bound.epsilon, 3)}, {delta})"


def central_json(central: CentralGuarantee, sentence: str) -> JsonObject:
    """The guarantee towards readers as a manifest has it."""
    return {
        **asdict(central.known),
        "question_hidden": asdict(central.hidden),
        "sentence": sentence,
        "rests_on": RESTS_ON,
    }


def central_from_json(data: JsonMapping) -> CentralGuarantee:
    """The inverse of `central_json`, which rebuilds the sentences."""
    return CentralGuarantee(_bound(data), _bound(data["question_hidden"]))


def _bound(data: JsonMapping) -> Bound:
    epsilon, delta, people = float(data["epsilon"]), float(data["delta"]), int(data["people"])
    if not (0 <= delta < 1 and epsilon >= 0 and people >= 1):
        raise ValueError(f"no guarantee is {data!r}"[:200])
    return Bound(epsilon, delta, people)


def noise_sentence(seed: int | None, *, simulated: bool) -> str:
    """The source of the noise, and whether it can be drawn again."""
    if not simulated:
        return (
            "Drawn by the participants' own devices; the organiser of the collection never had it."
        )
    if seed is None:
        return "Not replayable: it came from the operating system, and nothing recorded can draw it again."
    return (
        "Replayable: anyone who knows the seed can draw it again and remove it, so this release is as confidential as the table "
        "it was made from."
    )


# Warnings: missing protection, too little data, cut estimates, fallbacks.

# Relative to a cell's frequency, or to an average cell's if that is larger.
LARGE_ERROR = 0.3
MOVED_MASS = 0.1
# For a note: the warning's code, and the beginning of its sentence.
_NOTED = {
    "warnings": ("method", ""),
    "fallback": ("fallback", "Fallback used"),
    "fallbacks": ("fallback", "Fallback used"),
    "held_out_skipped": ("held-out-skipped", ""),
}


def find_warnings(release: Release) -> tuple[Notice, ...]:
    """A release's warnings and those that its options and figures call for, without repeats."""
    found = [
        *release.warnings,
        *_unprotected(release),
        *_from_notes(release),
        *_misfit(release),
        *_rounds_differ(release),
        *_too_little_data(release),
        *_words_cut(release),
    ]
    return tuple(dict.fromkeys(found))


def _unprotected(release: Release) -> list[Notice]:
    conditions = {
        REPLAYABLE: release.replayable,
        RESAMPLED: release.call.population is not None and not release.no_privacy,
        SHOWS_TRUTH: release.truth is not None,
    }
    found = [notice for notice, holds in conditions.items() if holds]
    weak = None if release.no_privacy else weak_protection(release.epsilon_achieved)
    if weak is not None:
        found.append(weak)
    return found if release.earlier is None else [*found, *_earlier_unprotected(release.earlier)]


def _earlier_unprotected(earlier: JsonMapping) -> list[Notice]:
    """How the participants of an earlier release, given as prior, are not protected."""
    found, lead = [], f"the earlier release {earlier['source']} was given as prior, and"
    weak = weak_protection(float(earlier.get("epsilon", 0.0)))
    if earlier.get("private") is not True:
        words = (
            f"{lead} its noise can be drawn again by anyone who knows its seed: this release is NOT private for the "
            "participants of that one, and as confidential as their table"
        )
        found.append(Notice("replayable-noise", words))
    if earlier.get("resampled") is True:
        words = (
            f"{lead} each row of its table played several participants: the stated epsilon does not protect those "
            "rows, and this release is as confidential as that table"
        )
        found.append(Notice("rows-resampled", words))
    if weak is not None:
        found.append(Notice("weak-protection", f"{lead} for its participants {weak.message}"))
    return found


def _from_notes(release: Release) -> list[Notice]:
    out = []
    for key, (code, lead) in _NOTED.items():
        value = release.notes.get(key)
        if not value:
            continue
        if isinstance(value, Mapping):
            items = [f"{name}: {what}" for name, what in value.items()]
        else:
            items = (
                [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
            )
        out += [Notice(code, f"{lead}: {item}." if lead else item) for item in items]
    return out


def _rounds_differ(release: Release) -> list[Notice]:
    """Attributes that early and late participants answered differently."""
    found = release.notes.get("rounds_agree") or {}
    return [Notice("rounds-differ", str(found["sentence"]))] if found.get("differ") else []


def _misfit(release: Release) -> list[Notice]:
    """Pairs whose reports reject the model."""
    pairs = list(release.notes.get("misfit", ()))
    if not pairs:
        return []
    shown = ", ".join(pairs[:6]) + (f" and {len(pairs) - 6} more" if len(pairs) > 6 else "")
    words = (
        f"The model does not fit the reports about {shown}: its figures about these attributes together are further off than "
        "their noise. With replicates such figures rest on the reports as well, and their intervals say how far off they may be."
    )
    return [Notice("misfit", words)]


def _too_little_data(release: Release) -> list[Notice]:
    """Compare each one-way standard error with its frequency, or with 1/k if that is larger."""
    ratios, weak = [], []
    for entry in release.measured:
        if len(entry.attributes) != 1:
            continue
        scale = np.maximum(entry.frequencies, 1 / entry.frequencies.size)
        ratio = np.sqrt(entry.variances) / scale
        ratios.append(ratio)
        if np.median(ratio) > LARGE_ERROR:
            weak.append(entry.attributes[0])
    if not weak:
        return []
    typical = float(np.median(np.concatenate(ratios)))
    if typical > LARGE_ERROR:
        words = (
            f"Too little data: a typical standard error is {typical:.0%} of the figure it belongs to. "
            "Ask more participants, fewer attributes, or use a larger epsilon."
        )
        return [Notice("too-little-data", words)]
    shown = ", ".join(weak[:6]) + (f" and {len(weak) - 6} more" if len(weak) > 6 else "")
    words = f"Little data for {shown}: a typical standard error there is more than {LARGE_ERROR:.0%} of the figure."
    return [Notice("little-data", words)]


def _words_cut(release: Release) -> list[Notice]:
    """Attributes with a large sum of negative raw estimates: noise as large as the figures."""
    cut = [
        entry.attributes[0]
        for entry in release.measured
        if len(entry.attributes) == 1 and -np.minimum(entry.frequencies, 0).sum() > MOVED_MASS
    ]
    if not cut:
        return []
    shown = ", ".join(cut[:6]) + (f" and {len(cut) - 6} more" if len(cut) > 6 else "")
    words = (
        f"Estimates were cut at zero for {shown}: more than {MOVED_MASS:.0%} of the distribution was noise below zero "
        "and had to be moved."
    )
    return [Notice("cut-at-zero", words)]
