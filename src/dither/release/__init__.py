"""Releases: the published result, its folder with manifest and report, and questions about it."""

from dither.release.amplification import Bound, CentralGuarantee, central_guarantee
from dither.release.call import (
    AskedRound,
    Call,
    asked_in,
    call_from_json,
    campaign_command,
    command,
    python_code,
)
from dither.release.cells import CellsContent
from dither.release.content import Questions
from dither.release.folder import check_target
from dither.release.inference import Combined, Family, Regression, combine
from dither.release.intervals import Bootstrap, Interval
from dither.release.number import ConsumerHistogram, NumberContent
from dither.release.panel import PanelContent
from dither.release.query.answer import Answer, AnswerRow, AnswerTable
from dither.release.query.expression import Reader
from dither.release.release import Release, load_release
from dither.release.replicates import (
    bootstrap,
    draw_tally,
    pack_replicates,
    prepare_bootstrap,
    redraw,
    unpack_replicates,
)
from dither.release.table import TableContent, Truth, truth_from_codes

__all__ = [
    "Answer",
    "AnswerRow",
    "AnswerTable",
    "AskedRound",
    "Bootstrap",
    "Bound",
    "Call",
    "CellsContent",
    "CentralGuarantee",
    "Combined",
    "ConsumerHistogram",
    "Family",
    "Interval",
    "NumberContent",
    "PanelContent",
    "Questions",
    "Reader",
    "Regression",
    "Release",
    "TableContent",
    "Truth",
    "asked_in",
    "bootstrap",
    "call_from_json",
    "campaign_command",
    "central_guarantee",
    "check_target",
    "combine",
    "command",
    "draw_tally",
    "load_release",
    "pack_replicates",
    "prepare_bootstrap",
    "python_code",
    "redraw",
    "truth_from_codes",
    "unpack_replicates",
]
