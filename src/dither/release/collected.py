"""What a release about one number says of the campaign that it was collected by."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from dither.types import JsonObject


@dataclass(frozen=True)
class CollectedBy:
    """A campaign: its id, what participants read of it, and when it was created and finalised.

    `number` is the attribute that was asked for; with `clip`, numbers beyond the range counted as its nearer end.
    """

    campaign: str
    number: str
    clip: bool = False
    name: str = ""
    title: str = ""
    purpose: str = ""
    contact: str = ""
    participation: str = "open"
    expected_participants: int = 0
    created: str = ""
    finalised: str = ""

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        return asdict(self)


_KINDS: dict[str, type] = {"clip": bool, "expected_participants": int}


def collected_from_json(data: object) -> CollectedBy:
    """The inverse; `ValueError` unless every value is of its kind."""
    names = {field.name for field in fields(CollectedBy)}
    if not isinstance(data, dict) or not {"campaign", "number"} <= set(data) <= names:
        raise ValueError("a campaign is an object with its id and the number that was asked for")
    for name, value in data.items():
        if type(value) is not _KINDS.get(name, str):
            raise ValueError(f"the campaign's {name} is {value!r}"[:200])
    return CollectedBy(**data)
