"""Progress bars with the remaining time, on a terminal and in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as TerminalProgress

if TYPE_CHECKING:
    from dither.types import Progress

# Seconds before the remaining time is shown.
_SETTLED = 5.0
# The period of rich's estimate in seconds; its default of 30 s ignores longer steps.
_PERIOD = 3600.0


class _Show(Protocol):
    """Called with a stage, the steps done and the total number of steps.

    `now` names the current step; `left` estimates the remaining seconds better than the pace so
    far.
    """

    def __call__(
        self, what: str, done: int, total: int, *, now: str = "", left: float | None = None
    ) -> None: ...


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[_Show]:
    """Yield a function that shows progress; without a terminal or notebook it does nothing."""
    if quiet:
        yield _nothing
    elif in_notebook():
        yield _NotebookBar()
    elif sys.stderr.isatty():
        with _terminal_bar() as show:
            yield show
    else:
        yield _nothing


@contextmanager
def followed(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Yield the progress callback of a library function, or None.

    Args:
        progress: The caller's function; True for a bar; False for none; None for a bar in a
            notebook only.
    """
    if callable(progress):
        yield progress
    elif progress is True or (progress is None and in_notebook()):
        with progress_bar() as show:
            yield show
    else:
        yield None


def in_notebook() -> bool:
    """Whether the process is a kernel that shows HTML, such as Jupyter."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def time_left(seconds: float) -> str:
    """A duration in words."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _nothing(what: str, done: int, total: int, *, now: str = "", left: float | None = None) -> None:
    """Show nothing."""


@contextmanager
def _terminal_bar() -> Iterator[_Show]:
    left = TextColumn("{task.fields[left]}")
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        left,
    )
    with TerminalProgress(
        *columns, console=Console(stderr=True), transient=True, speed_estimate_period=_PERIOD
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def show(
            what: str, done: int, total: int, *, now: str = "", left: float | None = None
        ) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total, completed=done, left="")
            task = tasks[what]
            bar.update(task, completed=done, total=total, description=f"{what} {now}".strip()[:70])
            shown_task = bar.tasks[bar.task_ids.index(task)]
            guess = left if left is not None else shown_task.time_remaining
            settled = left is not None or (shown_task.elapsed or 0.0) > _SETTLED
            bar.update(
                task, left=f"{time_left(guess)} left" if guess and settled and done < total else ""
            )

        yield show


class _NotebookBar:
    """A progress bar in HTML, one line for each stage."""

    def __init__(self) -> None:
        display: Any = import_module("IPython.display")
        self._html = display.HTML
        self._handle = display.display(self._html(""), display_id=True)
        self._lines: dict[str, str] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._shown = 0.0

    def __call__(
        self, what: str, done: int, total: int, *, now: str = "", left: float | None = None
    ) -> None:
        clock = time.monotonic()
        begun, before = self._begun.setdefault(what, (clock, done))
        if left is None and clock - begun > _SETTLED and before < done < total:
            left = (clock - begun) * (total - done) / (done - before)
        words = (
            f"{what} {now}".strip()
            + f" {done:,} of {total:,}"
            + (f", {time_left(left)} left" if left else "")
        )
        self._lines[what] = (
            f'<div><progress value="{done}" max="{max(total, 1)}"></progress> {escape(words)}</div>'
        )
        # A notebook renders slower than progress arrives.
        if clock - self._shown > 0.1 or done >= total:
            self._shown = clock
            self._handle.update(self._html("".join(self._lines.values())))
