"""Fit one synthesiser of another library and draw rows. A program for that library's Python.

    python peer_worker.py LIBRARY MODEL FOLDER < a pipe that the caller keeps open

It imports nothing of Dither, because such a library may need other versions of Dither's
dependencies. It reads FOLDER/codes.npy and FOLDER/asked.json and writes FOLDER/rows.npy and
FOLDER/told.json. Each library runs as its documentation shows, without tuning.
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
    model_class: Any = getattr(import_module(f"dpmm.models.{model.lower()}"), f"{model}GM")
    synthesiser = model_class(epsilon=epsilon, delta=delta, n_jobs=1)
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
    """MST or AIM of smartnoise-synth, which infers its domain from the values."""
    pandas: Any = import_module("pandas")
    model_class: Any = getattr(import_module(f"snsynth.{model.lower()}"), f"{model}Synthesizer")
    # It draws from the global state; some of its noise has no seed.
    np.random.seed(seed)  # noqa: NPY002
    synthesiser = model_class(epsilon=epsilon, delta=delta)
    synthesiser.fit(pandas.DataFrame(codes, columns=list(domain)), categorical_columns=list(domain))
    draw: Draw = synthesiser.sample
    return draw


LIBRARIES = {"dpmm": dpmm, "snsynth": snsynth}


def work(library: str, model: str, folder: Path) -> None:
    """Fit and draw; write the rows and the resources beyond those of a bare start."""
    before = _megabytes("VmRSS")
    begun = time.process_time()
    options = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    rows = options.pop("rows")
    drawn = LIBRARIES[library](model, np.load(folder / "codes.npy"), **options)(rows)
    np.save(folder / "rows.npy", np.asarray(drawn, dtype=np.int32))
    resources = {
        "cpu_seconds": time.process_time() - begun,
        "peak_megabytes": max(0.0, _megabytes("VmHWM") - before),
    }
    (folder / "told.json").write_text(json.dumps(resources), encoding="utf-8")


def _megabytes(field: str) -> float:
    """Memory now (VmRSS) or at its peak (VmHWM); 0 on systems without /proc."""
    lines = STATUS.read_text(encoding="utf-8").splitlines() if STATUS.is_file() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), 0.0)


def _exit_with_caller() -> None:
    # Returns when the caller closes the pipe or ends.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    threading.Thread(target=_exit_with_caller, daemon=True).start()
    work(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
