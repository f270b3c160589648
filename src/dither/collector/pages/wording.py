"""A schema for people: the question of each attribute and its answers in plain words."""

from __future__ import annotations

from dither.release.pages import moment
from dither.reports.plan import closing_seconds
from dither.schema import Attribute, Schema
from dither.types import JsonObject

_NO_ANSWER = "No answer"


def until(closes: str | None) -> str:
    """Return when a campaign closes automatically, as a day or to the minute; empty if never."""
    return moment(closing_seconds(closes)) if closes and "T" in closes else closes or ""


def spoken_schema(schema: Schema) -> JsonObject:
    """Return question, help, answers and groups of each attribute; for numbers also the range."""
    return {attribute.name: _spoken(attribute) for attribute in schema}


def question_of(attribute: Attribute) -> str:
    """Return the question, or the attribute's name if it has none."""
    return attribute.question or attribute.name


def _spoken(attribute: Attribute) -> JsonObject:
    out: JsonObject = {
        "question": question_of(attribute),
        "help": attribute.help,
        "labels": answers(attribute),
        "groups": [*attribute.group_names, *([_NO_ANSWER] if attribute.missing else [])],
    }
    if attribute.on_line:
        out |= _range(attribute)
    return out


def answers(attribute: Attribute) -> list[str]:
    """Return the text of each code; the missing value, if any, is the last."""
    plain = (
        _stretches(attribute) if attribute.kind in ("numeric", "duration") else _listed(attribute)
    )
    if attribute.missing:
        plain.append(_NO_ANSWER)
    return [
        *(own or word for own, word in zip(attribute.captions, plain, strict=False)),
        *plain[len(attribute.captions) :],
    ]


def _listed(attribute: Attribute) -> list[str]:
    if attribute.kind == "boolean":
        return ["No", "Yes"]
    return list(attribute.labels[: attribute.answers])


def _stretches(attribute: Attribute) -> list[str]:
    """Return bins in words: whole numbers inclusive, others up to the next bin."""
    exact, last, out = set(attribute.atoms), attribute.edges[-1], []
    unit = " s" if attribute.kind == "duration" else ""
    for low, high in attribute.line.ends:
        if low == high:
            out.append(f"exactly {_shown(low)}{unit}")
        elif attribute.unit == 1.0 and high - 1 > low and not {low, high} & exact:
            top = high if high == last else high - 1
            out.append(f"{_shown(low)} to {_shown(top)}{unit}")
        else:
            start = f"above {_shown(low)}, " if low in exact else f"{_shown(low)} "
            end = (
                f"to {_shown(high)}"
                if high == last and high not in exact
                else f"to below {_shown(high)}"
            )
            out.append(f"{start}{end}{unit}")
    return out


def _range(attribute: Attribute) -> JsonObject:
    if attribute.kind in ("date", "datetime"):
        low, high = (attribute.shown(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
        return {"range": [low, high], "between": f"From {low} to before {high}."}
    numbers = (*attribute.edges, *attribute.atoms)
    unit = ", in seconds" if attribute.kind == "duration" else ""
    return {
        "range": [min(numbers), max(numbers)],
        "between": f"A number from {_shown(min(numbers))} to {_shown(max(numbers))}{unit}.",
    }


def _shown(number: float) -> str:
    return f"{int(number):,}" if number == int(number) and abs(number) < 1e15 else f"{number:,.6g}"
