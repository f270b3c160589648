"""Every command that a page shows runs, and prints what the page says; its Python runs; what is not run says why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.documented import ROOT, BadPage, agrees, blocks, published
from tools.documented_session import Shelf, run_page

PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in [
        *ROOT.glob("*.md"),
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "benchmarks" / "RESULTS.md",
    ]
    if blocks(path.read_text(encoding="utf-8"), path.name)
}
SESSION = """# A page

<!--
before: echo '{"a": {"kind": "boolean"}}' > s.json
with dither schema: --missing
not run dither serve: it would go on
-->
```
$ dither schema attribute pay --min 0 --max 3 --bins 3
{"name": "pay", ..., "missing": true}
$ dither serve
```
"""
PYTHON = """# A page

```
dither schema attribute pay --min 0 --max 3 --bins 3 > pay.json
```

<!--
given: asked = {"sex": "Female"}
with json.load: object_pairs_hook=dict
-->
```python
import json
with open("pay.json") as file:
    made = json.load(file)
```

```python
assert made["kind"] == "numeric"
assert json.dumps(asked) == '{"sex": "Female"}'
```
"""


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    with Shelf() as kept:
        yield kept


@pytest.mark.slow
def test_every_command_of_every_page_does_what_the_page_shows(shelf: Shelf) -> None:
    """One test, so that pages share what they publish however the suite is shared out; Python is run between the commands."""
    broken = []
    for path in PAGES.values():
        try:
            run_page(path, shelf)
        except BadPage as error:
            broken.append(str(error).replace(str(ROOT) + "/", ""))
    assert broken == [], "\n\n".join(broken)


def test_no_page_shows_a_command_without_saying_so() -> None:
    """Every verb is shown somewhere and run there, and so is the harness: were blocks no longer found, this would fail."""
    run = {
        c.text.split()[1]
        for path in PAGES.values()
        for b in blocks(path.read_text("utf-8"))
        for c in b.commands
        if b.runs(c) and c.text.startswith("dither ")
    }
    assert run >= {
        "publish",
        "query",
        "plan",
        "evaluate",
        "audit",
        "discover",
        "histogram",
        "serve",
        "campaign",
        "tally",
        "submit",
        "bench",
    }


def test_a_session_is_read_with_what_the_comment_adds() -> None:
    (block,) = blocks(SESSION)
    schema, serve = block.commands
    assert (schema.line, serve.line) == (9, 11)
    assert block.words(schema) == "dither schema attribute pay --min 0 --max 3 --bins 3 --missing"
    assert (block.runs(schema), block.runs(serve)) == (True, False)
    assert schema.expected is not None
    assert serve.expected is None


@pytest.mark.parametrize(
    ("was", "becomes", "complaint"),
    [
        ("", "", ""),
        ('"missing": true', '"missing": false', "but prints"),
        ("with dither schema: --missing\n", "", "but prints"),
        ("--bins 3", "--bins x", "ended with status 2"),
        (
            "not run dither serve: it would go on",
            "not run dither serve:",
            "lacks what follows the colon",
        ),
        ("with dither schema", "with dither publish", "no line begins with it"),
        ("before: echo", "before: no-such-program", "ended with status 127"),
    ],
)
def test_a_page_that_says_something_else_is_found_out(
    tmp_path: Path, shelf: Shelf, was: str, becomes: str, complaint: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(SESSION.replace(was, becomes) if was else SESSION, encoding="utf-8")
    if not complaint:
        assert run_page(page, shelf) == SESSION
        return
    with pytest.raises(BadPage, match=complaint):
        run_page(page, shelf)


@pytest.mark.parametrize(
    ("was", "becomes", "complaint"),
    [
        ("object_pairs_hook=dict", "object_pairs_hook=dict", ""),
        ("object_pairs_hook=dict", "object_pairs_hook=list", "TypeError"),
        ("with json.load:", "with json.loads:", "no line calls it"),
        ("> pay.json", "> other.json", "page.md:12: this Python ended with\n.*FileNotFoundError"),
        ("given: asked", "given: unasked", "NameError"),
        ("import json\n", "import no_such_library\n", "ModuleNotFoundError"),
        ("import json\n", ">>> import json\n", "NameError"),
    ],
)
def test_python_runs_after_what_stands_before_it(
    tmp_path: Path, shelf: Shelf, was: str, becomes: str, complaint: str
) -> None:
    """Names and files of one block are there in the next; a docstring's example is none."""
    page = tmp_path / "page.md"
    assert was in PYTHON
    page.write_text(PYTHON.replace(was, becomes), encoding="utf-8")
    if not complaint:
        assert run_page(page, shelf)
        return
    with pytest.raises(BadPage, match=f"(?s){complaint}"):
        run_page(page, shelf)


def test_the_pages_python_is_run_and_a_notebook_is_left_to_the_site() -> None:
    python = {
        name: [b for b in blocks(path.read_text("utf-8")) if b.python]
        for name, path in PAGES.items()
    }
    assert [b.reason for b in python["README.md"]] == [None]
    assert sum(b.reason is None for found in python.values() for b in found) >= 12
    assert "docs/tutorial/in-a-notebook.md" not in {name for name, found in python.items() if found}


def test_dots_stand_for_anything_and_nothing_else_does() -> None:
    assert agrees("a ... c\n...\nlast", "a b c\nx\ny\nlast\n")
    assert agrees("...\nlast", "last\n")
    assert not agrees("a\nlast", "a\nx\nlast\n")
    assert not agrees("a 0.12", "a 0.123\n")


def test_only_the_same_release_is_taken_from_the_shelf() -> None:
    words = shlex.split(
        "publish adult --epsilon 4 --replicates 20 -o out --columns a,b --replicates 5"
    )
    assert published(words) == published(
        shlex.split("publish adult --replicates 5 --columns a,b --epsilon 4 -o elsewhere")
    )
    assert published(words) != published(
        shlex.split("publish adult --replicates 5 --columns a,b --epsilon 2 -o out")
    )
    assert published(["query", "out"]) is None


@pytest.mark.slow
def test_what_a_command_prints_can_be_put_into_the_page(tmp_path: Path, shelf: Shelf) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```\n$ dither schema attribute pay --min 0 --max 3 --bins 3\nold\n```\n", encoding="utf-8"
    )
    written = run_page(page, shelf, rewrite=True)
    page.write_text(written, encoding="utf-8")
    assert "old" not in written
    assert run_page(page, shelf) == written
