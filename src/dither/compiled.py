"""Numba's compiler as a decorator that keeps a function's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function on its first call; the machine code is cached on disk."""
    return cast(Function, njit(cache=True)(function))
