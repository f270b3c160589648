"""11. What is published: the release folder with its manifest, synthetic table and report."""

from dither.release.call import AskedRound, Call, asked_in
from dither.release.folder import check_target, load_release
from dither.release.release import Release
from dither.release.truth import Truth, truth_from_codes

__all__ = [
    "AskedRound",
    "Call",
    "Release",
    "Truth",
    "asked_in",
    "check_target",
    "load_release",
    "truth_from_codes",
]
