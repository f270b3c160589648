"""Bars where somebody looks on, with the time left; silence elsewhere."""

from __future__ import annotations

import io
import sys
import types
from typing import Any

import pytest

import dither
from dither import progress
from dither.progress import followed, progress_bar, time_left


class Page:
    """What a notebook shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    shell = types.SimpleNamespace(kernel=object())
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    display = types.ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = lambda html, display_id: page  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return page


def test_a_notebook_has_a_bar_without_being_asked(
    notebook: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 20.0, 30.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with followed(None) as show:
        assert show is not None
        for done in range(4):
            show("rows <of> people", done, 3)
    assert 'value="3"' in notebook.shown[-1]
    assert "rows &lt;of&gt; people 3 of 3" in notebook.shown[-1]
    assert any("10 s left" in html for html in notebook.shown)


def test_a_program_is_not_disturbed() -> None:
    with followed(None) as nobody:
        assert nobody is None
    seen: list[tuple[Any, ...]] = []
    with followed(lambda *told: seen.append(told)) as show:
        assert show is not None
        show("x", 1, 2)
    assert seen == [("x", 1, 2)]


def test_quiet_is_quiet_even_in_a_notebook(notebook: Page) -> None:
    with progress_bar(quiet=True) as show:
        show("x", 1, 2)
    with followed(False) as nobody:
        assert nobody is None
    assert notebook.shown == []


def test_a_terminal_has_a_bar_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar() as show:
        show("compare", 1, 4, now="[red]mixture", left=125.0)
    assert "compare [red]mixture" in screen.getvalue()
    assert "2 min left" in screen.getvalue()


def test_off_a_terminal_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress_bar() as show:
        show("x", 1, 2)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (40, "40 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_times_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert time_left(seconds) == words


def test_publish_reports_every_stage() -> None:
    stages: dict[str, list[int]] = {}

    def note(what: str, done: int, total: int) -> None:
        stages.setdefault(what, []).append(done)

    options: dict[str, Any] = {"method": "independent", "columns": ["sex"], "rows": 5}
    dither.publish("adult", epsilon=4.0, replicates=5, progress=note, **options)
    assert stages["model: fitted"] == [0, 1]
    assert any("questions answered" in stage for stage in stages)
    assert any("fitted again" in stage for stage in stages)
