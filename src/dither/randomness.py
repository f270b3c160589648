"""Randomness for simulations: from the operating system or, with a seed, repeatable.

Guarantee: without a seed every generator is an AES-256 counter stream with its own key from
the operating system. No output reveals anything about the key, about other outputs or about
another generator. Keys are never written anywhere, used words are erased from memory, and a
forked process takes new keys. With a seed the generators are NumPy's PCG64: anyone who knows
the seed can draw the same noise again and remove it.

Streams are as fast as NumPy's generators, so simulated participants use device-grade
randomness at no cost. A device draws from the operating system instead.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import weakref
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dither.checks import check_whole_or_none
from dither.errors import DitherError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

__all__ = ["RandomStream", "check_seed", "generator", "public_seed"]

_CHUNK = bytes(1 << 20)


def _encryptor(key: bytes) -> CipherContext:
    # Imported here: releases are read and asked without drawing noise, and without the package.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


class RandomStream:
    """A stream of random bytes from a 32-byte key: AES-256 in counter mode.

    A stream whose key came from the operating system takes another key in a forked process,
    so that parent and child never draw the same noise. A stream from a given key or seed
    stays repeatable.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError("a stream needs a key of 32 bytes")
        self._encryptor = _encryptor(key)

    def renew(self) -> None:
        """Continue with a new key from the operating system."""
        self._encryptor = _encryptor(secrets.token_bytes(32))

    @classmethod
    def from_system(cls) -> RandomStream:
        """A stream that cannot be repeated."""
        stream = cls(secrets.token_bytes(32))
        _system_streams.add(stream)
        return stream

    @classmethod
    def from_seed(cls, *seed: int | str) -> RandomStream:
        """A repeatable stream, for simulation only."""
        return cls(hashlib.sha256(repr(seed).encode()).digest())

    @classmethod
    def from_generator(cls, rng: np.random.Generator) -> RandomStream:
        """A stream keyed by a simulation's generator; repeatable if the generator is."""
        stream = cls(rng.bytes(32))
        source: object = rng.bit_generator
        # NumPy's bit generators are seeded; `StreamBits` is not one of them.
        if not isinstance(source, np.random.BitGenerator):
            _system_streams.add(stream)
        return stream

    def __call__(self, count: int) -> bytes:
        """`count` random bytes: the stream is a `ByteSource`."""
        return self.words(count, np.uint8).tobytes()

    def words(
        self, count: int, dtype: type[np.unsignedinteger] = np.uint64
    ) -> npt.NDArray[np.unsignedinteger]:
        """`count` random unsigned integers."""
        size = count * np.dtype(dtype).itemsize
        # The cipher's interface requires 16 spare bytes.
        out = np.empty(size + 16, np.uint8)
        view = out.data
        for start in range(0, size, len(_CHUNK)):
            step = min(len(_CHUNK), size - start)
            self._encryptor.update_into(_CHUNK[:step], view[start:])
        return out[:size].view(dtype)


_system_streams: weakref.WeakSet[RandomStream] = weakref.WeakSet()


def _renew_all() -> None:
    """Replace the keys of a forked process, which must not repeat its parent's noise."""
    for stream in list(_system_streams):
        stream.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def generator(seed: int | None, *place: int) -> np.random.Generator:
    """A NumPy generator for one purpose of a run.

    Args:
        seed: The seed of the run; None for randomness from the operating system.
        place: Numbers that identify the purpose within a seeded run.
    """
    if seed is not None:
        return np.random.default_rng([seed, *place])
    # Imported here: it needs Numba, which reading and asking releases does not.
    try:
        from dither.stream_bits import StreamBits
    except ModuleNotFoundError as error:
        raise DitherError(f"drawing noise needs {error.name}, which is not installed") from None
    return np.random.Generator(StreamBits(RandomStream.from_system()))  # type: ignore[arg-type]


def public_seed(seed: int | None) -> int:
    """A seed for published choices, such as a fit's starts; noise never depends on it."""
    return secrets.randbelow(2**32) if seed is None else seed


def check_seed(seed: int | None) -> int | None:
    """Check a seed: a whole number of at least 0, or None."""
    return check_whole_or_none("seed", seed)
