"""The languages of the pages that participants and readers see: texts, numbers and dates.

English is the language of the source, so it needs no catalogue. The catalogues of the other
languages are `locale/CODE.po`, read by Babel (extra `server`) when a page is first rendered in
that language; nothing is compiled beforehand. `python -m tools.messages` extracts the marked
texts into them.
"""

from __future__ import annotations

import gettext as _standard
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

# By code, as the languages call themselves.
LANGUAGES = {
    "en": "English",
    "de": "Deutsch",
    "fr": "Français",
    "es": "Español",
    "ar": "العربية",
}
SOURCE = "en"
CATALOGUES = Path(__file__).with_name("locale")
_RIGHT_TO_LEFT = ("ar",)
_current: ContextVar[str] = ContextVar("dither_language", default=SOURCE)
_PLACE = re.compile(r"%\((\w+)\)s|%%")
# A language with its quality value (RFC 9110, section 12.4.2).
_RANGE = re.compile(
    r"\s*([a-z]{1,8}|\*)(?:-[a-z0-9-]+)?\s*(?:;\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*)?", re.I
)
_MAX_HEADER = 500


def language() -> str:
    """Return the code of the language in which texts are being written."""
    return _current.get()


def direction() -> str:
    """Return "rtl" or "ltr", the direction of the current language."""
    return "rtl" if language() in _RIGHT_TO_LEFT else "ltr"


@contextmanager
def speaking(code: str) -> Iterator[None]:
    """Write texts, numbers and dates in this language until the block ends."""
    before = _current.set(code if code in LANGUAGES else SOURCE)
    try:
        yield
    finally:
        _current.reset(before)


def choose(offered: Sequence[str], wanted: str | None, accepted: str | None) -> str:
    """Return the language of a page.

    Args:
        offered: The languages that the page exists in; the first one is its own.
        wanted: What the visitor chose on the page (`?language=`).
        accepted: The request's Accept-Language header (RFC 9110, section 12.5.4).
    """
    if wanted in offered:
        return str(wanted)
    ranked = []
    for place, part in enumerate((accepted or "")[:_MAX_HEADER].split(",")):
        match = _RANGE.fullmatch(part)
        if match is not None:
            quality = float(match[2] or 1)
            ranked.append((-quality, place, match[1].lower()))
    for quality, _, code in sorted(ranked):
        if quality < 0 and code == "*":
            return offered[0]
        if quality < 0 and code in offered:
            return code
    return offered[0]


def gettext(message: str, **values: object) -> str:
    """Translate a text and fill in its values, written %(name)s; %% stands for a percent sign.

    Example:
        >>> gettext("Answers are taken until %(day)s.", day="1 May")
        'Answers are taken until 1 May.'
    """
    return _fill(_translations(language()).gettext(message), values)


def ngettext(one: str, several: str, number: int, **values: object) -> str:
    """Translate a text that depends on a number; %(num)s is the number itself."""
    text = _translations(language()).ngettext(one, several, number)
    return _fill(text, {"num": decimal(number), **values})


def plain_gettext(message: str) -> str:
    """Translate a text without filling in values, for templates, which do that escaped."""
    return _translations(language()).gettext(message)


def plain_ngettext(one: str, several: str, number: int) -> str:
    """Translate a text that depends on a number, without filling in values."""
    return _translations(language()).ngettext(one, several, number)


def script_messages(code: str) -> dict[str, str | list[str]]:
    """Return the texts of scripts in a language: translations by English text, plurals as lists."""
    if code == SOURCE:
        return {}
    found: dict[str, str | list[str]] = {}
    for message in _catalogue(code):
        if message.id and any(name.endswith(".js") for name, _ in message.locations):
            key = message.id if isinstance(message.id, str) else message.id[0]
            text = message.string
            found[key] = text if isinstance(text, str) else list(text)
    return found


def decimal(number: float, digits: int = 0) -> str:
    """A number with the current language's separators and so many decimals."""
    if language() == SOURCE:
        return f"{number:,.{digits}f}"
    from babel.numbers import format_decimal

    return str(format_decimal(number, _pattern("#,##0", digits), locale=language()))


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage with so many decimals."""
    if language() == SOURCE:
        return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"
    from babel.numbers import format_percent

    return str(
        format_percent(share, _pattern("#,##0", digits) + "\N{NO-BREAK SPACE}%", locale=language())
    )


def day(seconds: float) -> str:
    """A day (UTC) of a time in seconds since 1970, such as "31 January 2027"."""
    moment = datetime.fromtimestamp(seconds, UTC)
    if language() == SOURCE:
        return f"{moment.day} {moment:%B %Y}"
    from babel.dates import format_date

    return str(format_date(moment.date(), "long", locale=language()))


def minute(seconds: float) -> str:
    """A time in seconds since 1970, to the minute and in UTC."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{day(seconds)}, {moment:%H:%M} UTC"


def _pattern(whole: str, digits: int) -> str:
    return whole + ("." + "0" * digits if digits else "")


def _fill(text: str, values: dict[str, object]) -> str:
    def put(match: re.Match[str]) -> str:
        return "%" if match[0] == "%%" else str(values[match[1]])

    return _PLACE.sub(put, text)


@cache
def _catalogue(code: str) -> Any:
    """Read a language's catalogue; a missing file is a defect of the installation."""
    from babel.messages.pofile import read_po

    with (CATALOGUES / f"{code}.po").open("rb") as file:
        return read_po(file, locale=code, abort_invalid=True)


class _Translations(_standard.NullTranslations):
    """A catalogue's texts; a text without a translation is returned as it is."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._texts: dict[str, tuple[str, ...]] = {}
        catalogue = _catalogue(code)
        self._form = _standard.c2py(catalogue.plural_expr)
        for message in catalogue:
            ids = (message.id,) if isinstance(message.id, str) else message.id
            texts = (message.string,) if isinstance(message.string, str) else message.string
            if ids[0] and all(texts) and not message.fuzzy:
                self._texts[ids[0]] = tuple(texts)

    def gettext(self, message: str) -> str:
        return self._texts.get(message, (message,))[0]

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        texts = self._texts.get(msgid1)
        if texts is None:
            return super().ngettext(msgid1, msgid2, n)
        return texts[self._form(n)]


@cache
def _translations(code: str) -> _standard.NullTranslations:
    return _standard.NullTranslations() if code == SOURCE else _Translations(code)
