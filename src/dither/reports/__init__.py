"""Questions, plans, and the bytes of the reports between device and server.

Standard library only.
"""

from dither.reports.codec import Envelope, Report, decode, encode
from dither.reports.plan import Plan, Question, plan_from_json, question

__all__ = [
    "Envelope",
    "Plan",
    "Question",
    "Report",
    "decode",
    "encode",
    "plan_from_json",
    "question",
]
