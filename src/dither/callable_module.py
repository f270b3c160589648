"""Modules that share their name with their main function: `dither.publish(...)` works whether or not the module was imported."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **named)


def make_callable(module: str) -> None:
    """Let a module be called as the function that bears its name."""
    sys.modules[module].__class__ = _CallableModule
