"""Where a simulation's random numbers come from: the operating system, unless the caller gives a seed.

Guarantee: without a seed every generator is an AES-256 counter stream under a key of its own from the operating system. No
output of one tells anything about its key, its other outputs or another generator; keys are never written anywhere, used
words are erased from memory, and a forked process draws anew. With a seed the generators are NumPy's own (PCG64): whoever
knows the seed can draw the same noise again and subtract it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import os
import secrets
import signal
import threading
import traceback
import weakref
from typing import Any, NoReturn

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from dither.checks import check_whole_or_none
from dither.mechanisms.kernels.stream import RandomStream

# The buffer is one array of words: how many are used up, the address of the callback that refills it, then random words.
_USED, _REFILL, _FIRST = 0, 1, 2
_BUFFER = 4096
_ALL = _FIRST + _BUFFER
_SIGNALS = tuple(sorted(int(number) for number in signal.valid_signals()))


class _DrawLock:
    """The lock that NumPy holds while it draws; signal handlers that Python would run meanwhile run right afterwards.

    An exception of a handler (Ctrl-C, a deadline) cannot pass through compiled code: raised in the callback below it would be
    lost. Python runs handlers in the main thread only, so only there have they to wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Any] = {}
        self._came: list[int] = []

    def __enter__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            try:
                for number in _SIGNALS:
                    handler = _signal.getsignal(
                        number
                    )  # signal.getsignal would take 90 us for all of them
                    if callable(handler):
                        self._waiting[number] = handler
                        _signal.signal(number, self._note)
            except BaseException:  # a handler that was not yet put off
                self._restore()
                raise
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._waiting and threading.get_ident() == threading.main_thread().ident:
            try:
                self._restore()
            finally:
                came, self._came = self._came, []
                _deliver(came)

    def _note(self, number: int, frame: object) -> None:
        self._came.append(number)

    def _restore(self) -> None:
        """All handlers, even if one that is back already raises meanwhile."""
        if self._waiting:
            number, handler = next(iter(self._waiting.items()))
            try:
                _signal.signal(number, handler)
                del self._waiting[number]
            finally:
                self._restore()


def _deliver(numbers: list[int]) -> None:
    """Each signal again, whatever the handler of an earlier one raises."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _deliver(numbers[1:])


class StreamBits:
    """A bit generator for `numpy.random.Generator` whose words are those of a stream, in order; each is used once."""

    def __init__(self, stream: RandomStream) -> None:
        self._stream = stream
        self._words = np.zeros(_ALL, np.uint64)
        self._words[_USED] = _BUFFER
        self._words[_REFILL] = ctypes.cast(_refill, ctypes.c_void_p).value or 0
        state = self._words.ctypes.data
        self._pointers = (ctypes.c_void_p * 5)(
            state, _next_word.address, _next_half.address, _next_double.address, _next_word.address
        )
        self.lock = _DrawLock()
        self.capsule = _new_capsule(ctypes.addressof(self._pointers), b"BitGenerator", None)
        _alive[state] = self

    def refill(self) -> None:
        """Fresh words. They count as fresh only once all are there: an interrupted call leaves the buffer used up."""
        self._words[_FIRST:] = self._stream.words(_BUFFER)
        self._words[_USED] = 0

    def renew(self) -> None:
        """Throw away what is buffered and take another key from the operating system."""
        self._words[_FIRST:] = 0
        self._words[_USED] = _BUFFER
        self._stream = RandomStream.from_system()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a generator of noise cannot be copied: the copy would draw the same noise")


_alive: weakref.WeakValueDictionary[int, StreamBits] = weakref.WeakValueDictionary()
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _refill(state: int) -> None:
    """Called from compiled code, where no exception can pass; signals wait meanwhile (`_DrawLock`)."""
    try:
        _alive[state].refill()
    except BaseException:
        traceback.print_exc()
        os.abort()  # numbers that are not random would be published as if they were private


def _renew_all() -> None:
    """In a forked process: parent and child must not draw the same noise."""
    for bits in list(_alive.values()):
        bits.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


@intrinsic
def _call(typing_context: Any, address: Any, state: Any) -> Any:
    """Call the C function at an address; the address is data, so that the compiled code can be kept between runs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])
        return context.get_dummy_value()

    return types.void(types.uint64, types.voidptr), generate


@njit(cache=True)
def _take(state: Any) -> Any:
    words = carray(state, _ALL, np.uint64)
    while words[_USED] >= np.uint64(_BUFFER):
        _call(words[_REFILL], state)
    place = words[_USED] + np.uint64(_FIRST)
    words[_USED] += np.uint64(1)
    word = words[place]
    words[place] = np.uint64(0)
    return word


@cfunc(types.uint64(types.voidptr), cache=True)
def _next_word(state: Any) -> Any:
    return _take(state)


@cfunc(types.uint32(types.voidptr), cache=True)
def _next_half(state: Any) -> Any:
    return np.uint32(_take(state) >> np.uint64(32))


@cfunc(types.float64(types.voidptr), cache=True)
def _next_double(state: Any) -> Any:
    return (_take(state) >> np.uint64(11)) * 2.0**-53  # 53 bits, in [0, 1), as NumPy's own


__all__ = ["check_seed", "generator", "public_seed"]


def generator(seed: int | None, *place: int) -> np.random.Generator:
    """NumPy's generator for one purpose of a run: of the seed and the purpose's place, or of the operating system."""
    if seed is not None:
        return np.random.default_rng([seed, *place])
    from dither.mechanisms.kernels.stream import RandomStream

    return np.random.Generator(StreamBits(RandomStream.from_system()))  # type: ignore[arg-type]


def public_seed(seed: int | None) -> int:
    """The seed of choices that are published, such as a fit's starts: the caller's, or one that no noise depends on."""
    return secrets.randbelow(2**32) if seed is None else seed


def check_seed(seed: int | None) -> int | None:
    """A whole number of at least 0 as Python has it, or none."""
    return check_whole_or_none("seed", seed)
