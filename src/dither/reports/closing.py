"""When a campaign closes by itself, as people write it: a day, to its end, or an instant; both in UTC. Standard library only."""

from __future__ import annotations

from dither.errors import DitherError, ParameterError
from dither.schema.calendar import DAY, LAST_DAY, second_number, shown_instant

_DAY_LETTERS = len("2027-01-31")


def closing_text(given: object, *, error: type[DitherError] = ParameterError) -> str:
    """The one way to write it: "2027-01-31", or "2027-01-31T18:00:00Z" for an instant, whatever its offset was."""
    seconds = second_number(given) if isinstance(given, str) else None
    if (
        not isinstance(given, str)
        or seconds is None
        or not seconds.is_integer()
        or not 0 <= seconds < LAST_DAY * DAY
    ):
        raise error(
            f"closes must be a day such as 2027-01-31 or an instant such as 2027-01-31T18:00:00Z, not {given!r}"[
                :200
            ],
            where="closes",
            value=given,
        )
    return given if len(given) == _DAY_LETTERS else f"{shown_instant(seconds)}Z"


def closing_seconds(text: str) -> float:
    """Seconds since 1970 at which nothing is taken any more: the instant, or the end of the day."""
    seconds = second_number(closing_text(text))
    assert seconds is not None
    return seconds + DAY if len(text) == _DAY_LETTERS else seconds
