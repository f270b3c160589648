"""One central method run on a histogram."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dither.central import CENTRAL, ByteSource, CuratorTask, Neighbours, NoisyHistogram


def run(
    name: str,
    counts: npt.ArrayLike,
    epsilon: float,
    source: ByteSource,
    *,
    rng: np.random.Generator | None = None,
    neighbours: Neighbours = "add-remove",
    shape: tuple[int, ...] = (),
    **parameters: Any,
) -> NoisyHistogram:
    method = CENTRAL[name]
    assert method.release is not None
    task = CuratorTask(
        np.asarray(counts), epsilon, source, rng or np.random.default_rng(0), neighbours, shape
    )
    return method.release(task, method.parameters(**parameters))
