"""Pages by Jinja2: one base template, every value escaped, one file that runs no script and loads nothing from elsewhere.

What comes from outside (labels, names of columns and files) reaches a template as a value only, never as its text. The one thing
marked safe is a chart, whose own text `svg` escapes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup

from dither.notice import shown_certainty, shown_epsilon
from dither.release.words import likelihood_factor

_LONGEST = 24  # letters of a word that no line breaks


def render_page(
    template: str,
    *,
    title: str,
    version: str,
    heading: str | None = None,
    folder: Path | None = None,
    **values: object,
) -> str:
    """A whole page; `title` stands in the browser's tab and, unless there is another `heading`, on the page.

    `folder` has templates beside the package's own, which they may extend.
    """
    head = {
        "title": title,
        "heading": heading or title,
        "version": version,
        "subtitle": "",
        "facts": (),
        "contents": [],
    }
    return _environment(folder).get_template(template).render(head | values)


def render_part(template: str, **values: object) -> Markup:
    """A part of a page, to stand in another template as it is: every value in it is escaped."""
    return Markup(_environment().get_template(template).render(values))


def percent(share: float) -> str:
    """A share in per cent with two digits after the point; the sign stays on the number's line."""
    return f"{100 * share:.2f}\N{NO-BREAK SPACE}%"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sentence(words: str) -> str:
    """With a capital letter and a full stop; a file or field that stands first keeps its name."""
    begun = words[:1].upper() + words[1:] if re.match(r"[a-z'’-]+([ ,;:]|$)", words) else words
    return begun + ("" if words[-1:] in (".", "!", "?") else ".")


def breakable(text: object) -> Markup:
    """A name or figure that may go on in the next line after a mark inside it, and inside a word only if that is very long."""
    words = re.split(r"(?<=[_/.,;:|·-])(?=\w)(?!(?<=\d[.,:/-])\d)", str(text))
    return Markup("<wbr>").join(piece for word in words for piece in _pieces(word))


def _pieces(word: str) -> list[str]:
    """In lengths that fit a column of a phone, where a word without blanks is longer than that."""
    if max(map(len, word.split()), default=0) <= _LONGEST:
        return [word]
    return [word[i : i + _LONGEST] for i in range(0, len(word), _LONGEST)]


def moment(seconds: float) -> str:
    """A time in seconds since 1970, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d, %H:%M UTC")


def uncapitalised(words: str) -> str:
    """A sentence as it goes on after a colon."""
    return words[:1].lower() + words[1:]


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
    made.filters |= {
        "breakable": breakable,
        "certainty": shown_certainty,
        "counted": counted,
        "epsilon": shown_epsilon,
        "factor": likelihood_factor,
        "grouped": "{:,}".format,
        "moment": moment,
        "percent": percent,
        "sentence": sentence,
        "uncapitalised": uncapitalised,
    }
    return made
