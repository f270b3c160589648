"""Questions, plans, and the bytes of the reports between device and server.

Standard library only.
"""

from dither.reports.codec import (
    ACCEPTED,
    FINAL,
    PROBLEM_TYPE,
    Envelope,
    Report,
    decode,
    encode,
    outcomes,
    verdict,
)
from dither.reports.plan import (
    LEVEL_BITS,
    Plan,
    Question,
    check_payload,
    closing_seconds,
    closing_text,
    is_asked,
    level_of,
    pick,
    place,
    plan_from_json,
    question,
    report_id,
    token_hash,
)

__all__ = [
    "ACCEPTED",
    "FINAL",
    "LEVEL_BITS",
    "PROBLEM_TYPE",
    "Envelope",
    "Plan",
    "Question",
    "Report",
    "check_payload",
    "closing_seconds",
    "closing_text",
    "decode",
    "encode",
    "is_asked",
    "level_of",
    "outcomes",
    "pick",
    "place",
    "plan_from_json",
    "question",
    "report_id",
    "token_hash",
    "verdict",
]
