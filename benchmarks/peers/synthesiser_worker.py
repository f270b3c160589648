"""The process that fits one synthesiser and draws rows from it; runs in that library's own environment, see `synthesisers`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.child import serve
from benchmarks.peers.peak import Peak

Draw = Callable[[int], np.ndarray]


def work(
    library: str,
    method: str,
    epsilon: float,
    delta: float,
    seed: int,
    rows: int,
    table: str,
    drawn: str,
) -> dict[str, Any]:
    """Fit the codes in `table`, draw rows into `drawn` (one array per sampler); CPU and wall seconds, memory beyond imports."""
    codes = np.load(table)
    about: dict[str, Any] = json.loads(Path(table).with_suffix(".json").read_text())
    prepared = PREPARED[library](method, codes, about, epsilon, delta, seed)
    peak, cpu, wall = Peak(), time.process_time(), time.perf_counter()
    samplers = prepared()
    result: dict[str, Any] = {
        "fit_cpu_s": time.process_time() - cpu,
        "fit_wall_s": time.perf_counter() - wall,
    }
    cpu = time.process_time()
    first = samplers[""](rows)
    result |= {"sample_cpu_s": time.process_time() - cpu, "peak_extra_mb": peak.extra_mb()}
    others = {name: draw(rows) for name, draw in samplers.items() if name}
    np.savez(drawn, **{"default": first, **others})
    return result


def dpmm(
    method: str, codes: np.ndarray, about: dict[str, Any], epsilon: float, delta: float, seed: int
) -> Callable[[], dict[str, Draw]]:
    import pandas as pd
    from dpmm.models.aim import AIMGM
    from dpmm.models.mst import MSTGM

    model = {"MST": MSTGM, "AIM": AIMGM}[method](epsilon=epsilon, delta=delta, n_jobs=1)
    domain = about["domain"]
    model.set_domain(domain)
    model.set_random_state(np.random.RandomState(seed))
    frame = pd.DataFrame(codes, columns=list(domain))

    def fit() -> dict[str, Draw]:
        model.fit(frame)
        return {
            "": lambda rows: model.generate(n_records=rows)[list(domain)].to_numpy(dtype=np.int32)
        }

    return fit


def smartnoise(
    method: str, codes: np.ndarray, about: dict[str, Any], epsilon: float, delta: float, seed: int
) -> Callable[[], dict[str, Draw]]:
    """As documented, and the same fitted model drawn from row by row instead of with the rounding that is its default."""
    import pandas as pd
    from snsynth.aim import AIMSynthesizer
    from snsynth.mst import MSTSynthesizer

    np.random.seed(seed)  # noqa: NPY002  (it draws from the global state; OpenDP's noise has no seed)
    model = {"MST": MSTSynthesizer, "AIM": AIMSynthesizer}[method](epsilon=epsilon, delta=delta)
    domain = about["domain"]
    frame = pd.DataFrame(codes, columns=list(domain))

    def table(rows: int) -> np.ndarray:
        return np.asarray(model.sample(rows), dtype=np.int32)

    def independent_rows(rows: int) -> np.ndarray:
        fitted = model.synthesizer
        model.synthesizer = _Sampling(fitted)
        try:
            return table(rows)
        finally:
            model.synthesizer = fitted

    def fit() -> dict[str, Draw]:
        model.fit(frame, categorical_columns=list(domain))
        return {"": table, "rows drawn independently": independent_rows}

    return fit


class _Sampling:
    """A fitted model whose rows are drawn independently."""

    def __init__(self, fitted: Any) -> None:
        self._fitted = fitted

    def synthetic_data(self, rows: int) -> Any:
        return self._fitted.synthetic_data(rows=rows, method="sample")


def dither(
    method: str, codes: np.ndarray, about: dict[str, Any], epsilon: float, delta: float, seed: int
) -> Callable[[], dict[str, Draw]]:
    """A whole local campaign: every row is a participant, and the fit begins when their reports are in."""
    from dither.methods import start
    from dither.schema import schema_from_json
    from dither.simulate import simulate

    schema = schema_from_json(about["schema"])
    machine = start(method, schema, epsilon, len(codes), seed=seed)
    rng = np.random.default_rng([seed, 1])
    simulate(machine, codes, rng)

    def fit() -> dict[str, Draw]:
        model = machine.model()
        return {"": lambda rows: np.asarray(model.sample(rows, rng), dtype=np.int32)}

    return fit


PREPARED = {"dpmm": dpmm, "smartnoise": smartnoise, "dither": dither}

if __name__ == "__main__":
    serve(work)
