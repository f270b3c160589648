"""Fences the `>>>` examples of docstrings, which Markdown would read as nested quotations."""

from __future__ import annotations

import re

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^(?P<room>[ ]*)>>> .*(?:\n(?P=room)\S.*)*", re.MULTILINE)


def fenced(text: str) -> str:
    """Put every run of lines that begins with `>>>` into a fence.

    >>> fenced("One.\\n\\n>>> 1 + 1\\n2\\n")
    'One.\\n\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n\\n'
    """
    return _EXAMPLE.sub(_fence, text)


def _fence(found: re.Match[str]) -> str:
    room = found["room"]
    return f"\n{room}```pycon\n{found[0]}\n{room}```\n"


class Fences(Extension):
    """Fences the examples of every documented object."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Called for each module, class, function and attribute after parsing."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
