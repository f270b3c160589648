"""Gathers the site's pages in one folder: docs/, pages from elsewhere and generated ones.

Results, changelog and decisions join the pages, notebooks are run, and mkdocstrings renders the
Python reference. Links out of docs/ become links of the site, or plain text if the site has no such
page. Nothing is written into docs/.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tools.api_reference import site_page
from tools.site.notebooks import is_notebook, run

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = "mkdocs.yml"
# Pages outside docs/ and their place in the site.
BROUGHT = {
    "benchmarks/RESULTS.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
DECISIONS = "decisions/index.md"
_CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
# Comments are for the tests of a page, not for its readers.
_REMARK = re.compile(r"^ *<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_MENU = re.compile(rf"^( *)- Decisions: {re.escape(DECISIONS)}.*\n", re.MULTILINE)


class BrokenSite(Exception):
    """A page or a menu with a defect, which the message names."""


def gather(target: Path, root: Path = ROOT) -> Path:
    """Write the pages below `target` and return their configuration. Refuse a page in no menu."""
    docs, written = root / "docs", target / "docs"
    shutil.copytree(docs, written, ignore=shutil.ignore_patterns("*.md"))
    sources = {path.relative_to(docs).as_posix(): path for path in docs.rglob("*.md")}
    sources |= {place: root / path for path, place in BROUGHT.items()}
    for place, source in sources.items():
        text = source.read_text(encoding="utf-8")
        text = run(source) if is_notebook(text) else text
        _write(written / place, with_links(_REMARK.sub("", text), source.parent, place, root))
    decisions = sorted((docs / "decisions").glob("[0-9]*.md"))
    _write(written / DECISIONS, _list_of(decisions))
    _write(written / "reference/python.md", site_page())
    configuration = target / CONFIGURATION
    menu = (root / CONFIGURATION).read_text(encoding="utf-8")
    _write(configuration, _MENU.sub(lambda found: _menu_of(decisions, found[1]), menu))
    check_menu(
        configuration.read_text(encoding="utf-8"),
        {path.relative_to(written).as_posix() for path in written.rglob("*.md")},
    )
    return configuration


def check_menu(configuration: str, pages: set[str]) -> None:
    """Check that every page is in the menu once, and that every entry is a page."""
    listed = re.findall(
        r"^ *- (?:[\w ]+: )?([\w./-]+\.md)\b", configuration.partition("\nnav:\n")[2], re.MULTILINE
    )
    for page in sorted(pages.symmetric_difference(listed)):
        fault = "is in no menu: add it to" if page in pages else "is no page: take it out of"
        raise BrokenSite(f"{page} {fault} 'nav' in {CONFIGURATION}")
    for page in listed:
        if listed.count(page) > 1:
            raise BrokenSite(f"{page} stands more than once in 'nav' in {CONFIGURATION}")


def with_links(text: str, home: Path, place: str, root: Path = ROOT) -> str:
    """Rewrite the links of a page of `home` for its new `place`. Code is unchanged."""
    held: list[str] = []

    def hold(found: re.Match[str]) -> str:
        held.append(found[0])
        return f"\x00{len(held) - 1}\x00"

    linked = _LINK.sub(lambda link: _link(link, home, place, root), _CODE.sub(hold, text))
    return re.sub(r"\x00(\d+)\x00", lambda found: held[int(found[1])], linked)


def _link(found: re.Match[str], home: Path, place: str, root: Path) -> str:
    """Rewrite one link. A link without a target is unchanged, and the generator refuses it."""
    words, target, anchor = found[1], found[2], found[3] or ""
    path = Path(os.path.normpath(home / target))
    if "://" in target or not path.is_relative_to(root) or not path.exists():
        return found[0]
    inside = BROUGHT.get(path.relative_to(root).as_posix())
    if path == root / "docs" / "decisions":
        inside = DECISIONS
    elif inside is None and path.is_relative_to(root / "docs"):
        inside = path.relative_to(root / "docs").as_posix()
    if inside is None:
        return words  # code, tests and data are read in the repository
    return f"[{words}]({os.path.relpath(inside, os.path.dirname(place) or '.')}{anchor})"


def _list_of(decisions: list[Path]) -> str:
    lead = "# Decisions\n\nThe reasons for disputable choices, one page each.\n\n"
    return lead + "".join(
        f"- [{path.name[:4]}: {_title(path)}]({path.name})\n" for path in decisions
    )


def _menu_of(decisions: list[Path], room: str) -> str:
    lines = [
        f"{room}- Decisions:",
        *(
            f"{room}    - {place}"
            for place in [DECISIONS, *(f"decisions/{d.name}" for d in decisions)]
        ),
    ]
    return "\n".join(lines) + "\n"


def _title(path: Path) -> str:
    return re.sub(r"^#\s*(?:\d+[.:]?\s*)?", "", path.read_text(encoding="utf-8").splitlines()[0])


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
