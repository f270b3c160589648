"""Where a simulation's random numbers come from: the operating system, unless the caller gives a seed.

Guarantee: without a seed every generator is an AES-256 counter stream under a key of its own from the operating system. No
output of one tells anything about its key, its other outputs or another generator; keys are never written anywhere, used
words are erased from memory, and a forked process draws anew. With a seed the generators are NumPy's own (PCG64): whoever
knows the seed can draw the same noise again and subtract it.
"""

from __future__ import annotations

import secrets

import numpy as np

from dither.checks import check_whole_or_none

__all__ = ["check_seed", "generator", "public_seed"]


def generator(seed: int | None, *place: int) -> np.random.Generator:
    """NumPy's generator for one purpose of a run: of the seed and the purpose's place, or of the operating system."""
    if seed is not None:
        return np.random.default_rng([seed, *place])
    from dither.mechanisms.kernels.stream import RandomStream
    from dither.randomness.bits import StreamBits

    return np.random.Generator(StreamBits(RandomStream.from_system()))  # type: ignore[arg-type]


def public_seed(seed: int | None) -> int:
    """The seed of choices that are published, such as a fit's starts: the caller's, or one that no noise depends on."""
    return secrets.randbelow(2**32) if seed is None else seed


def check_seed(seed: int | None) -> int | None:
    """A whole number of at least 0 as Python has it, or none."""
    return check_whole_or_none("seed", seed)
