"""Releases: the published result, its folder with manifest and report, and questions about it."""

from dither.release.call import AskedRound, Call, asked_in
from dither.release.cells import CellsContent
from dither.release.folder import check_target
from dither.release.number import ConsumerHistogram, NumberContent
from dither.release.release import Release, load_release
from dither.release.table import TableContent, Truth, truth_from_codes

__all__ = [
    "AskedRound",
    "Call",
    "CellsContent",
    "ConsumerHistogram",
    "NumberContent",
    "Release",
    "TableContent",
    "Truth",
    "asked_in",
    "check_target",
    "load_release",
    "truth_from_codes",
]
