"""One synthesiser of another library, fitted and drawn from: a program of its own, run by that library's own Python.

    python peer_worker.py LIBRARY MODEL FOLDER < a pipe that is closed once nobody waits any more

Nothing of Dither is imported, since such a library may need other versions of what Dither needs. Codes come from FOLDER/codes.npy
and settings from FOLDER/asked.json; rows go to FOLDER/rows.npy and what they took to FOLDER/told.json. No tuning: each library runs
as its documentation shows.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

Draw = Callable[[int], Any]
STATUS = Path("/proc/self/status")


def dpmm(
    model: str,
    codes: np.ndarray,
    domain: Mapping[str, int],
    epsilon: float,
    delta: float,
    seed: int,
) -> Draw:
    """MST or AIM of dpmm."""
    pandas: Any = import_module("pandas")
    made: Any = getattr(import_module(f"dpmm.models.{model.lower()}"), f"{model}GM")
    synthesiser = made(epsilon=epsilon, delta=delta, n_jobs=1)
    synthesiser.set_domain(dict(domain))
    synthesiser.set_random_state(np.random.RandomState(seed))
    synthesiser.fit(pandas.DataFrame(codes, columns=list(domain)))
    return lambda rows: synthesiser.generate(n_records=rows)[list(domain)]


def snsynth(
    model: str,
    codes: np.ndarray,
    domain: Mapping[str, int],
    epsilon: float,
    delta: float,
    seed: int,
) -> Draw:
    """MST or AIM of smartnoise-synth, which takes its domain from the values it finds."""
    pandas: Any = import_module("pandas")
    made: Any = getattr(import_module(f"snsynth.{model.lower()}"), f"{model}Synthesizer")
    np.random.seed(seed)  # noqa: NPY002  (it draws from the global state, beside noise that has no seed)
    synthesiser = made(epsilon=epsilon, delta=delta)
    synthesiser.fit(pandas.DataFrame(codes, columns=list(domain)), categorical_columns=list(domain))
    draw: Draw = synthesiser.sample
    return draw


LIBRARIES = {"dpmm": dpmm, "snsynth": snsynth}


def work(library: str, model: str, folder: Path) -> None:
    """Fit, draw, and say how many seconds of the processor and megabytes beyond a bare start that took."""
    before, begun = _megabytes("VmRSS"), time.process_time()
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    rows = asked.pop("rows")
    drawn = LIBRARIES[library](model, np.load(folder / "codes.npy"), **asked)(rows)
    np.save(folder / "rows.npy", np.asarray(drawn, dtype=np.int32))
    told = {
        "cpu_seconds": time.process_time() - begun,
        "peak_megabytes": max(0.0, _megabytes("VmHWM") - before),
    }
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")


def _megabytes(field: str) -> float:
    """Memory held (VmRSS) or held at most (VmHWM); 0 on systems that do not tell."""
    lines = STATUS.read_text(encoding="utf-8").splitlines() if STATUS.is_file() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), 0.0)


def _end_with_whoever_waits() -> None:
    os.read(0, 1)  # returns when the other end is closed, by hand or by the end of that process
    os._exit(1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    threading.Thread(target=_end_with_whoever_waits, daemon=True).start()
    work(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
