"""What a reader of a release has to be told: one shape for Python, JSON, the command line and the pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Notice:
    """A warning: a short code for programs that never changes, and a sentence for people."""

    code: str
    message: str

    def __str__(self) -> str:
        return self.message

    def to_json(self) -> dict[str, str]:
        """As it stands in every manifest's `warnings`."""
        return {"code": self.code, "message": self.message}


def notice_from_json(data: Any) -> Notice:
    """Read one back; a `ValueError` says what is wrong."""
    if not isinstance(data, dict) or not all(isinstance(data.get(key), str) for key in ("code", "message")):
        raise ValueError(f"a warning has a code and a message, not {data!r}")
    return Notice(data["code"], data["message"])


REPLAYABLE = Notice(
    "replayable-noise",
    "a seed was given: this is NOT private against whoever knows the seed, who can draw the same noise again and take it off, "
    "so all of it is as confidential as the table; leave the seed out for anything that others may see",
)

RESAMPLED = Notice(
    "rows-resampled",
    "a population was given: each row of the table plays about population / rows participants, so the stated epsilon protects the "
    "simulated participants and not the rows of the table, and this release is as confidential as the table",
)

SHOWS_TRUTH = Notice(
    "shows-the-truth",
    "this was a simulation, and its report.html shows the truth beside the estimates: that page is as confidential as the table",
)
