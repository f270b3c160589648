"""Write docs/papers.md and src/dither/lab/papers.txt from benchmarks/papers.txt.

python -m tools.papers

A figure in benchmarks/papers.txt is a reference between double braces, in JSON: `["BENCH/STUDY", "MEASURE", {LABEL: VALUE}]`
for a stored result, with lists of values for several and a format as fourth item; `["printed", "PAPER", "PLACE", ...]` for what
a paper prints. An installed package has no stored results, so it holds the text with the figures filled in.
"""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.printed import printed

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "benchmarks" / "papers.txt"
PAGE = ROOT / "docs" / "papers.md"
REFERENCE = re.compile(r"\{\{(.*?)\}\}")
Stored = dict[str, dict[str, Any]]


def figures(reference: str, stored: Stored) -> list[str]:
    """The figures of one reference, in the order of its labels; a KeyError names what is missing."""
    place, *more = json.loads(reference)
    if place == "printed":
        *path, last = more
        keys = last if isinstance(last, list) else [last]
        found = [printed(*path, key) for key in keys]
        return [value if isinstance(value, str) else f"{value:.4g}" for value in found]
    bench, study = place.split("/")
    measure, labels, *form = more
    lists = {key: v if isinstance(v, list) else [v] for key, v in labels.items()}
    if "source" not in lists:
        lists["source"] = [None]  # measured here
    texts = []
    for values in product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        value = results.find(stored, bench, study, measure, **chosen)
        texts.append((form[0] if form else "{:.3f}").format(value))
    return texts


def filled(template: str, stored: Stored) -> str:
    """The template with every reference replaced by its figures."""
    return REFERENCE.sub(lambda match: ", ".join(figures(match[1], stored)), template)


def write() -> None:
    """Rewrite both files."""
    from dither.lab import papers

    text = filled(TEMPLATE.read_text(encoding="utf-8"), results.load())
    papers.SOURCE.write_text(text, encoding="utf-8")
    PAGE.write_text(papers.markdown(), encoding="utf-8")


if __name__ == "__main__":
    write()
