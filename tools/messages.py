"""Extracts the texts that pages and scripts mark for translation into the catalogues.

python -m tools.messages        # or: make messages

A text that is new has an empty translation afterwards; a text that no longer occurs is removed.
Exit status 1 if a translation is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_file
from babel.messages.pofile import generate_po, read_po

from dither.languages import CATALOGUES, LANGUAGES, SOURCE

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dither"
_KEYWORDS = {"_": None, "gettext": None, "ngettext": (1, 2)}
_METHODS = {".py": "python", ".html": "jinja2.ext:babel_extract", ".js": "javascript"}
_OPTIONS = {"jinja2.ext:babel_extract": {"silent": "false", "extensions": "jinja2.ext.do"}}
# Babel's own rules, except for Arabic: the forms in the order of CLDR's categories (zero, one,
# two, few, many, other), which is the order that scripts use.
_PLURALS = {
    "ar": (
        "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : "
        "n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);"
    )
}


def marked() -> Catalog:
    """Return all texts of the package that are marked for translation."""
    found = Catalog()
    for path in _sources():
        method = _METHODS[path.suffix]
        options = _OPTIONS.get(method, {})
        for line, text, comments, _ in extract_from_file(
            method, path, _KEYWORDS, ("Note:",), options
        ):
            name = path.relative_to(ROOT).as_posix()
            found.add(text, locations=[(name, line)], auto_comments=comments)
    return found


def _sources() -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in _METHODS and path.name != "languages.py":
            yield path


def catalogue(code: str) -> Catalog:
    """Return a language's catalogue as it is stored; an empty one if there is none."""
    path = CATALOGUES / f"{code}.po"
    if not path.is_file():
        return Catalog(locale=code)
    with path.open("rb") as file:
        return read_po(file, locale=code)


def updated(code: str, texts: Catalog) -> Catalog:
    """Return a language's catalogue with exactly these texts."""
    before, after = catalogue(code), Catalog(locale=code)
    after.mime_headers = [("Plural-Forms", _PLURALS.get(code, after.plural_forms))]
    for message in texts:
        if not message.id:
            continue
        known = before.get(message.id)
        string = known.string if known is not None and known.id == message.id else None
        names = sorted({(name, 0) for name, _ in message.locations})
        after.add(message.id, string, locations=names, auto_comments=message.auto_comments)
    return after


def written(after: Catalog) -> str:
    """Return the text of a catalogue's file, which depends on nothing but its messages."""
    code = str(after.locale_identifier)
    header = (
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n'
        f'"Language: {code}\\n"\n"Plural-Forms: {_PLURALS.get(code, after.plural_forms)}\\n"\n\n'
    )
    lines = generate_po(after, width=100, omit_header=True, include_lineno=False)
    return header + "".join(lines)


def missing(after: Catalog) -> list[str]:
    """Return the texts without a translation."""
    found = []
    for message in after:
        texts = message.string if isinstance(message.string, tuple | list) else [message.string]
        if message.id and not all(texts):
            found.append(message.id if isinstance(message.id, str) else message.id[0])
    return found


def main() -> None:
    """Update every catalogue and say what is not translated."""
    texts = marked()
    lacking = 0
    for code in LANGUAGES:
        if code == SOURCE:
            continue
        after = updated(code, texts)
        (CATALOGUES / f"{code}.po").write_text(written(after), encoding="utf-8")
        absent = missing(after)
        lacking += len(absent)
        print(f"{code}: {len(after)} texts, {len(absent)} not translated")
        for text in absent:
            print(f"  {text}")
    sys.exit(1 if lacking else 0)


if __name__ == "__main__":
    main()
