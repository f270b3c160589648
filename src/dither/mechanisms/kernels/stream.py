"""A cryptographic random stream for simulated fleets: AES-256 in counter mode.

It is as fast as NumPy's generators, so that simulated participants use device-grade randomness at no cost. Seeded streams are
for simulation only; a device draws from the operating system.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import weakref

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from dither.errors import ParameterError
from dither.mechanisms.probability import DRAW_WIDTHS
from dither.types import Integers

_CHUNK = bytes(1 << 20)
_WORDS: dict[int, type[np.unsignedinteger]] = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def _encryptor(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


class RandomStream:
    """An endless stream of random bytes from a 32-byte key; the same key gives the same stream.

    A stream whose key came from the operating system takes another key in a forked process, so
    that parent and child never draw the same noise. A stream from a given key or seed does not:
    it stays repeatable.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError("a stream needs a key of 32 bytes")
        self._encryptor = _encryptor(key)

    def renew(self) -> None:
        """Go on under another key from the operating system."""
        self._encryptor = _encryptor(secrets.token_bytes(32))

    @classmethod
    def from_system(cls) -> RandomStream:
        """A stream that cannot be repeated."""
        stream = cls(secrets.token_bytes(32))
        _unrepeatable.add(stream)
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
        if not isinstance(source, np.random.BitGenerator):  # NumPy's own are seeded
            _unrepeatable.add(stream)
        return stream

    def __call__(self, count: int) -> bytes:
        """`count` random bytes: the stream is a `ByteSource`."""
        return self.words(count, np.uint8).tobytes()

    def words(
        self, count: int, dtype: type[np.unsignedinteger] = np.uint64
    ) -> npt.NDArray[np.unsignedinteger]:
        """`count` random unsigned integers."""
        out = np.empty(
            count * np.dtype(dtype).itemsize + 16, np.uint8
        )  # room that the cipher's interface asks for
        size = out.size - 16
        view = out.data
        for start in range(0, size, len(_CHUNK)):
            step = min(len(_CHUNK), size - start)
            self._encryptor.update_into(
                _CHUNK[:step] if step < len(_CHUNK) else _CHUNK, view[start:]
            )
        return out[:size].view(dtype)


_unrepeatable: weakref.WeakSet[RandomStream] = weakref.WeakSet()


def _renew_all() -> None:
    """In a forked process: give every stream that is not repeatable a key of its own."""
    for stream in list(_unrepeatable):
        stream.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def uniform_draws(stream: RandomStream, count: int, bits: int) -> Integers:
    """`count` draws uniform over all numbers of so many bits, the bytes in the order in which a device reads them.

    A width that is not drawn whole is refused: thresholds over 2^bits would then meet draws that never reach them.
    """
    if bits not in DRAW_WIDTHS:
        raise ParameterError(
            f"draws of {bits} bits are not supported", where="threshold_bits", value=bits
        )
    if bits in _WORDS:
        return stream.words(count, _WORDS[bits]).astype(np.int64)
    padded = np.zeros((count, 8), np.uint8)
    padded[:, : bits // 8] = stream.words(count * bits // 8, np.uint8).reshape(count, bits // 8)
    return padded.view("<i8").reshape(count)
