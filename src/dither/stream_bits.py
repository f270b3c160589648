"""A bit generator for NumPy over a stream of random bytes, in compiled code."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import os
import signal
import threading
import traceback
import weakref
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

# The buffer is one array of words: the number of used words, the address of the callback
# that refills it, then random words.
_USED, _REFILL, _FIRST = 0, 1, 2
_BUFFER = 4096
_ALL = _FIRST + _BUFFER
_SIGNALS = tuple(sorted(int(number) for number in signal.valid_signals()))


class _Stream(Protocol):
    """Random words; see `dither.randomness.RandomStream`."""

    @classmethod
    def from_system(cls) -> Self: ...
    def words(self, count: int) -> Any: ...


class _DrawLock:
    """The lock that NumPy holds while it draws; it defers signal handlers.

    An exception of a handler (Ctrl-C, a deadline) cannot pass through compiled code: raised
    in the callback below it would be lost. Handlers run after the draw instead. Python runs
    them in the main thread only, so only that thread defers them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deferred: dict[int, Any] = {}
        self._received: list[int] = []

    def __enter__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            try:
                for number in _SIGNALS:
                    # signal.getsignal would take 90 us for all of them.
                    handler = _signal.getsignal(number)
                    if callable(handler):
                        self._deferred[number] = handler
                        _signal.signal(number, self._record)
            except BaseException:
                # A handler that was not yet deferred raised.
                self._restore()
                raise
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._deferred and threading.get_ident() == threading.main_thread().ident:
            try:
                self._restore()
            finally:
                received = self._received
                self._received = []
                _deliver(received)

    def _record(self, number: int, frame: object) -> None:
        self._received.append(number)

    def _restore(self) -> None:
        """Restore all handlers, even if a restored one raises."""
        if self._deferred:
            number, handler = next(iter(self._deferred.items()))
            try:
                _signal.signal(number, handler)
                del self._deferred[number]
            finally:
                self._restore()


def _deliver(numbers: list[int]) -> None:
    """Raise each signal again, even if the handler of an earlier one raises."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _deliver(numbers[1:])


class StreamBits:
    """A bit generator for `numpy.random.Generator` that uses each word of a stream once."""

    def __init__(self, stream: _Stream) -> None:
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
        """Refill the buffer; an interrupted call leaves it used up."""
        self._words[_FIRST:] = self._stream.words(_BUFFER)
        self._words[_USED] = 0

    def renew(self) -> None:
        """Erase the buffer and take a new key from the operating system."""
        self._words[_FIRST:] = 0
        self._words[_USED] = _BUFFER
        self._stream = type(self._stream).from_system()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a generator of noise cannot be copied: the copy would draw the same noise")


_alive: weakref.WeakValueDictionary[int, StreamBits] = weakref.WeakValueDictionary()
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def _refill_buffer(state: int) -> None:
    """Called from compiled code, which no exception can leave; `_DrawLock` defers signals."""
    try:
        _alive[state].refill()
    except BaseException:
        traceback.print_exc()
        # Otherwise numbers that are not random would be published as if they were
        # private.
        os.abort()


_refill = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_refill_buffer)


def _renew_all() -> None:
    """Replace the keys of a forked process, which must not repeat its parent's noise."""
    for bits in list(_alive.values()):
        bits.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def _call_address(typing_context: Any, address: Any, state: Any) -> Any:
    """Call the C function at an address.

    The address is data, not a constant, so that the compiled code can be cached on disk.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])
        return context.get_dummy_value()

    return types.void(types.uint64, types.voidptr), generate


_call = intrinsic(_call_address)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _take(state: Any) -> Any:
    words = carray(state, _ALL, np.uint64)
    while words[_USED] >= np.uint64(_BUFFER):
        _call(words[_REFILL], state)
    place = words[_USED] + np.uint64(_FIRST)
    words[_USED] += np.uint64(1)
    word = words[place]
    words[place] = np.uint64(0)
    return word


def _take_word(state: Any) -> Any:
    return _take(state)


def _take_half(state: Any) -> Any:
    return np.uint32(_take(state) >> np.uint64(32))


def _take_double(state: Any) -> Any:
    # 53 bits, in [0, 1), like NumPy's generators.
    return (_take(state) >> np.uint64(11)) * 2.0**-53


_next_word = cfunc(types.uint64(types.voidptr), cache=True)(_take_word)
_next_half = cfunc(types.uint32(types.voidptr), cache=True)(_take_half)
_next_double = cfunc(types.float64(types.voidptr), cache=True)(_take_double)
