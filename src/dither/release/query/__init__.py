"""Questions to a release: expressions over its attributes, answered with intervals."""

from dither.release.query.answer import Answer, AnswerRow, AnswerTable

__all__ = ["Answer", "AnswerRow", "AnswerTable"]
