"""3. Between device and server: questions, plans and, byte for byte, the reports that answer them. Standard library only."""

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
