"""HTML pages by Jinja2: one base template, all values escaped, no scripts, no external resources.

Outside text (labels, names of columns and files) reaches a template only as a value,
never as template text. Only charts are marked safe; `svg` escapes their text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup

from dither import languages
from dither.display import printable
from dither.notice import shown_certainty, shown_epsilon
from dither.release.words import likelihood_factor

# Longer words may be broken.
_LONGEST = 24


def render_page(
    template: str,
    *,
    title: str,
    version: str,
    heading: str | None = None,
    folder: Path | None = None,
    **values: object,
) -> str:
    """Render a whole page.

    Args:
        template: Name of the template.
        title: Title in the browser's tab.
        version: Version of the package.
        heading: Heading on the page; None for the title.
        folder: Folder of further templates, which may extend the package's.
        values: Values of the template.
    """
    head = {
        "title": title,
        "heading": heading or title,
        "version": version,
        "subtitle": "",
        "facts": (),
        "contents": [],
        "language": languages.language(),
        "direction": languages.direction(),
    }
    return printable(_environment(folder).get_template(template).render(head | values))


def render_part(template: str, **values: object) -> Markup:
    """Render a part of a page, with all values escaped, for use in another template."""
    return Markup(_environment().get_template(template).render(values))


def percent(share: float) -> str:
    """A share as a percentage with two decimals, in the language of the page."""
    return languages.percent(share, 2)


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sentence(words: str) -> str:
    """Capitalise and add a full stop; a leading file or field name keeps its case."""
    begun = words[:1].upper() + words[1:] if re.match(r"[a-z'’-]+([ ,;:]|$)", words) else words
    return begun + ("" if words[-1:] in (".", "!", "?") else ".")


def _breakable(text: object) -> Markup:
    """Allow line breaks after punctuation in a name, and inside very long words."""
    words = re.split(r"(?<=[_/.,;:|·-])(?=\w)(?!(?<=\d[.,:/-])\d)", str(text))
    return Markup("<wbr>").join(piece for word in words for piece in _pieces(word))


def _pieces(word: str) -> list[str]:
    """Cut a word that is too long for a column on a phone."""
    if max(map(len, word.split()), default=0) <= _LONGEST:
        return [word]
    return [word[i : i + _LONGEST] for i in range(0, len(word), _LONGEST)]


def moment(seconds: float) -> str:
    """A time in seconds since 1970, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d, %H:%M UTC")


def _uncapitalised(words: str) -> str:
    """A sentence as it goes on after a colon."""
    return words[:1].lower() + words[1:]


def _translated(message: str, **values: object) -> Markup:
    """A template's text in the language of the page; it may hold HTML, its values are escaped."""
    return Markup(languages.plain_gettext(message)) % values


def _translated_number(one: str, several: str, number: int, **values: object) -> Markup:
    """A template's text that depends on a number; %(num)s is the number."""
    text = Markup(languages.plain_ngettext(one, several, number))
    return text % {"num": languages.decimal(number), **values}


TEMPLATES = Path(__file__).with_name("templates")


@cache
def _environment(folder: Path | None = None) -> Environment:
    own = PackageLoader("dither.release")
    made = Environment(
        loader=own if folder is None else ChoiceLoader([own, FileSystemLoader(folder)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    made.globals |= {"_": _translated, "ngettext": _translated_number}
    made.filters |= {
        "breakable": _breakable,
        "certainty": shown_certainty,
        "counted": counted,
        "day": languages.day,
        "decimal": languages.decimal,
        "epsilon": shown_epsilon,
        "factor": likelihood_factor,
        "grouped": "{:,}".format,
        "moment": moment,
        "percent": percent,
        "sentence": sentence,
        "uncapitalised": _uncapitalised,
    }
    return made
