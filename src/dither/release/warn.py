"""What a reader of a release must be told: what is not protected, too little data, cut estimates, fallbacks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dither.notice import REPLAYABLE, RESAMPLED, SHOWS_TRUTH, Notice
from dither.release.release import Release

LARGE_ERROR = 0.3  # of a cell's frequency, or of an average cell's where the frequency is smaller
MOVED_MASS = 0.1
_NOTED = {
    "warnings": ("method", ""),
    "fallback": ("fallback", "Fallback used"),
    "fallbacks": ("fallback", "Fallback used"),
    "held_out_skipped": ("held-out-skipped", ""),
}  # of a note: the code, and what the sentence begins with


def find_warnings(release: Release) -> tuple[Notice, ...]:
    """The release's own warnings and those that the way it was made and its figures call for, each once."""
    found = [
        *release.warnings,
        *_unprotected(release),
        *_from_notes(release),
        *_too_little_data(release),
        *_cut(release),
    ]
    return tuple(dict.fromkeys(found))


def _unprotected(release: Release) -> list[Notice]:
    told = {
        REPLAYABLE: release.replayable,
        RESAMPLED: release.population is not None and not release.no_privacy,
        SHOWS_TRUTH: release.truth is not None,
    }
    return [notice for notice, holds in told.items() if holds]


def _from_notes(release: Release) -> list[Notice]:
    out = []
    for key, (code, lead) in _NOTED.items():
        value = release.notes.get(key)
        if not value:
            continue
        if isinstance(value, Mapping):
            items = [f"{name}: {what}" for name, what in value.items()]
        else:
            items = [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
        out += [Notice(code, f"{lead}: {item}." if lead else item) for item in items]
    return out


def _too_little_data(release: Release) -> list[Notice]:
    """Compare each one-way standard error with its frequency, or with 1/k where that is larger."""
    ratios, weak = [], []
    for entry in release.measured:
        if len(entry.attributes) != 1:
            continue
        scale = np.maximum(entry.frequencies, 1 / entry.frequencies.size)
        ratio = entry.standard_errors / scale
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


def _cut(release: Release) -> list[Notice]:
    """Attributes where the raw estimates below zero add up to much: the noise there is as large as the figures."""
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
