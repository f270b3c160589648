"""Numba's compiler as a decorator that keeps a function's type."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

from dither.errors import DitherError

Function = TypeVar("Function", bound=Callable[..., object])


class _Lazy:
    """A function that is compiled when it is first called.

    Numba is imported only then: it takes half a second and 200 MB, and reading and asking a
    release need nothing compiled.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._made: Callable[..., Any] | None = None

    def compile(self) -> Callable[..., Any]:
        """The compiled function."""
        if self._made is None:
            try:
                from numba import njit
            except ModuleNotFoundError:
                raise DitherError(
                    "this needs Numba, which is not installed; releases saved with replicates "
                    "can be read and asked without it"
                ) from None
            # Compiled code calls other compiled functions by the names of its module, and
            # Numba does not know this class.
            names = self._function.__globals__
            for name in self._function.__code__.co_names:
                value = names.get(name)
                if isinstance(value, _Lazy) and value is not self:
                    names[name] = value.compile()
            self._made = cast(Callable[..., Any], njit(cache=True)(self._function))
        return self._made

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.compile()(*arguments, **options)


def compiled(function: Function) -> Function:
    """Compile a function on its first call; the machine code is cached on disk."""
    return cast(Function, _Lazy(function))
