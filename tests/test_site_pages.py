"""How the site's pages are gathered: links are moved or refused, pages that no menu has too, docstrings keep their examples."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.site.docstrings import fenced
from tools.site.notebooks import is_notebook
from tools.site.pages import BROUGHT, ROOT, BrokenSite, check_menu, with_links

NAV = "site_name: x\nnav:\n  - Start: README.md\n  - Deep:\n      - a/one.md\n      - Two: a/two.md # why\n"


def test_links_to_pages_of_elsewhere_become_links_of_the_site_and_code_becomes_words() -> None:
    text = (
        "[figures](../../benchmarks/RESULTS.md#scale), [why](../decisions/), [code](../../deploy), [next](deploy.md#x), "
        "`[kept](../../deploy)`, [gone](../nowhere.md), [`Plain`](../../src/dither), [out](https://example.org/a)"
    )
    assert with_links(text, ROOT / "docs" / "how-to", "how-to/page.md") == (
        "[figures](../results.md#scale), [why](../decisions/index.md), code, [next](deploy.md#x), "
        "`[kept](../../deploy)`, [gone](../nowhere.md), `Plain`, [out](https://example.org/a)"
    )


def test_a_page_from_elsewhere_keeps_its_links() -> None:
    moved = with_links(
        "[road](../docs/explanation/architecture.md) [data](results.json)",
        ROOT / "benchmarks",
        BROUGHT["benchmarks/RESULTS.md"],
    )
    assert moved == "[road](explanation/architecture.md) data"


def test_every_page_stands_in_the_menu_once() -> None:
    pages = {"README.md", "a/one.md", "a/two.md"}
    check_menu(NAV, pages)
    with pytest.raises(
        BrokenSite, match=r"a/three.md is in no menu: add it to 'nav' in mkdocs.yml"
    ):
        check_menu(NAV, pages | {"a/three.md"})
    with pytest.raises(BrokenSite, match=r"a/one.md is no page"):
        check_menu(NAV, pages - {"a/one.md"})
    with pytest.raises(BrokenSite, match=r"a/one.md stands more than once"):
        check_menu(NAV + "      - a/one.md\n", pages)


def test_examples_of_docstrings_are_fenced() -> None:
    assert (
        fenced("One.\n\n>>> 1 + 1\n2\n\nTwo.") == "One.\n\n\n```pycon\n>>> 1 + 1\n2\n```\n\n\nTwo."
    )
    assert fenced("no example") == "no example"


def test_a_notebook_says_so_in_its_header() -> None:
    tutorials = {
        path.name: is_notebook(path.read_text(encoding="utf-8"))
        for path in (ROOT / "docs" / "tutorial").glob("*.md")
    }
    assert tutorials == {
        "first-campaign.md": False,
        "first-release.md": False,
        "in-a-notebook.md": True,
        "inference.md": True,
        "many-consumers.md": True,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "complaints"),
    [
        (
            "# A\n\n[gone](nowhere.md), [gone](#nowhere)\n",
            ("page does not exist", "anchor does not exist"),
        ),
        ("# A\n\nWell.\n", ()),
    ],
)
def test_a_broken_link_ends_the_build_and_leaves_the_earlier_site(
    tmp_path: Path, page: str, complaints: tuple[str, ...]
) -> None:
    root = tmp_path / "clone"
    (root / "docs" / "decisions").mkdir(parents=True)
    for path in BROUGHT:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("# B\n", encoding="utf-8")
    (root / "docs" / "README.md").write_text(page, encoding="utf-8")
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nplugins:\n")[0]
    menu = ["README.md", *BROUGHT.values(), "reference/python.md"]
    lines = "\n".join(f"  - {place}" for place in menu) + "\n  - Decisions: decisions/index.md\n"
    (root / "mkdocs.yml").write_text(f"{configuration}\nnav:\n{lines}", encoding="utf-8")
    shutil.copy(ROOT / "docs" / "site.css", root / "docs")
    earlier = tmp_path / "site"
    earlier.mkdir()
    (earlier / "kept.html").write_text("kept", encoding="utf-8")
    program = "import sys; from pathlib import Path; from tools.site.__main__ import main; sys.exit(main(*map(Path, sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(earlier), str(root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, (earlier / "kept.html").exists()) == (
        (1, True) if complaints else (0, False)
    ), done.stdout + done.stderr
    assert all(complaint in done.stdout + done.stderr for complaint in complaints)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
