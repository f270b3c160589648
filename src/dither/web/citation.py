"""How to name a release: as an entry of BibTeX, in which whatever a curator has written is text."""

from __future__ import annotations

from dither.types import JsonObject

# https://www.ctan.org/pkg/latex-doc-ptr: the ten signs that mean something to LaTeX.
_SIGNS = {sign: "\\" + sign for sign in "{}$&#%_"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}


def spelt(text: str) -> str:
    """Text as LaTeX reads it, in one line."""
    return "".join(_SIGNS.get(sign, sign) for sign in " ".join(text.split()) if sign.isprintable())


def bibtex(manifest: JsonObject, title: str, about: str, place: str) -> str:
    """An entry: the title, what tells this release from others, where it is, and the year of its making, if that is known."""
    campaign = manifest.get("campaign") or {}
    made = str(campaign.get("finalised") or "")[:4]
    fields = {"title": f"{{{spelt(title)}}}", "year": made, "note": spelt(about), "url": place}
    lines = "".join(f",\n  {name} = {{{value}}}" for name, value in fields.items() if value)
    return f"@misc{{dither-{str(campaign.get('id', ''))[:12]}{lines}\n}}\n"
