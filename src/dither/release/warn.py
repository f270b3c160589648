"""What a reader of a release must be told: noise that can be replayed, too little data, cut estimates, fallbacks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dither.notice import REPLAYABLE, Notice
from dither.release.release import Release

LARGE_ERROR = 0.3  # of a cell's frequency, or of an average cell's where the frequency is smaller
MOVED_MASS = 0.1
_NOTED = ("warnings", "fallback", "fallbacks", "clipped")


def find_warnings(release: Release) -> tuple[Notice, ...]:
    """The release's own warnings and those that its seed and its figures call for, each once."""
    seeded = [REPLAYABLE] if release.replayable else []
    found = [*release.warnings, *seeded, *_from_notes(release), *_too_little_data(release), *_cut(release)]
    return tuple(dict.fromkeys(found))


def _from_notes(release: Release) -> list[Notice]:
    out = []
    for key in _NOTED:
        value = release.notes.get(key)
        if not value:
            continue
        lead = {"clipped": "Values outside the domain were counted as 'other'", "warnings": ""}.get(
            key, "Fallback used"
        )
        if isinstance(value, Mapping):
            items = [f"{name}: {what}" for name, what in value.items()]
        else:
            items = [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
        code = {"warnings": "method", "fallbacks": "fallback"}.get(key, key)
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
