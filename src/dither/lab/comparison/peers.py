"""Synthesisers of other libraries behind one small interface; each runs only when it is named and installed.

All of these work for a curator who holds every record, which at the same epsilon is a far weaker promise than local privacy and a
far easier problem: their lines are a yardstick.

Their libraries ask for versions that Dither cannot run with (dpmm: NumPy 1), so they run by a Python of their own: that of the
environment `venv-LIBRARY` in the folder that the variable DITHER_PEERS names, or this one where it has the library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dither.errors import ParameterError
from dither.lab.comparison import peer_worker
from dither.plugins import Plugin, plugin, usable
from dither.types import Codes

Draw = Callable[[int], Codes]
Fit = Callable[[Codes, Mapping[str, int], float, int], Draw]
DELTA = 1e-9
CENTRAL = "central"
FOLDER = "DITHER_PEERS"
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Peer:
    """A synthesiser from elsewhere.

    `fit` takes whole numbers (one row per person, a column per attribute), the number of values of each attribute by name, epsilon
    and a seed, and gives a function that draws so many rows of such numbers. `needs` is the module that must be installed, `trust`
    says what epsilon promises: "local" if nobody holds a record, "central" if a curator does.
    """

    name: str
    needs: str
    fit: Fit
    trust: str = CENTRAL

    @property
    def installed(self) -> bool:
        """Whether its library is there."""
        return _has(self.needs)


@dataclass(frozen=True)
class _Apart(Peer):
    """One whose library has, or may have, an environment of its own: `python` is its interpreter, None where there is none."""

    environment: str = ""

    @property
    def python(self) -> str | None:
        """Its own interpreter, or this one if the library is installed here."""
        own = Path(os.environ.get(FOLDER, ""), f"venv-{self.environment}")
        found = (
            [own / "bin" / "python", own / "Scripts" / "python.exe"] if FOLDER in os.environ else []
        )
        return next(
            (str(p) for p in found if p.is_file()), sys.executable if _has(self.needs) else None
        )

    @property
    def installed(self) -> bool:
        """Whether there is a Python that has it."""
        return self.python is not None


class Drawn:
    """Rows of a library that runs by itself: fitted when they are asked for, with what that took."""

    def __init__(
        self, python: str, library: str, model: str, codes: Codes, asked: Mapping[str, Any]
    ) -> None:
        self._call = (python, "-W", "ignore", peer_worker.__file__, library, model)
        self._codes, self._asked = codes, asked
        self.cpu_seconds = self.peak_megabytes = 0.0

    def __call__(self, rows: int) -> Codes:
        """The rows, from a process that ends when this one does."""
        with tempfile.TemporaryDirectory(
            prefix="dither-peer-"
        ) as place:  # for this user's eyes only, and gone afterwards
            np.save(Path(place, "codes.npy"), self._codes)
            Path(place, "asked.json").write_text(
                json.dumps({**self._asked, "rows": rows}), encoding="utf-8"
            )
            own = (
                {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
                | ONE_THREAD
                | {"JAX_PLATFORMS": "cpu"}
            )
            with subprocess.Popen(
                [*self._call, place],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=own,
            ) as child:
                assert child.stderr is not None
                said = child.stderr.read()  # to the end of it; its input stays open until then
            if child.returncode:
                lines = said.strip().splitlines() or [
                    "ended by the system, perhaps for want of memory"
                ]
                raise ParameterError(lines[-1], where="methods")
            told = json.loads(Path(place, "told.json").read_text(encoding="utf-8"))
            self.cpu_seconds, self.peak_megabytes = told["cpu_seconds"], told["peak_megabytes"]
            return np.asarray(np.load(Path(place, "rows.npy")), dtype=np.int32)


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a part of a package that is not there
        return False


def _apart(environment: str, library: str, model: str) -> _Apart:
    def fit(codes: Codes, domain: Mapping[str, int], epsilon: float, seed: int) -> Draw:
        python = peer.python
        assert python is not None
        asked = {"domain": dict(domain), "epsilon": epsilon, "delta": DELTA, "seed": seed}
        return Drawn(python, library, model, codes, asked)

    peer = _Apart(f"{environment}-{model.lower()}", library, fit, environment=environment)
    return peer


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        _apart("dpmm", "dpmm", "MST"),
        _apart("dpmm", "dpmm", "AIM"),
        _apart("smartnoise", "snsynth", "MST"),
        _apart("smartnoise", "snsynth", "AIM"),
    )
}


def peers() -> dict[str, Peer]:
    """Every peer there is an adapter for, other packages' included; a broken plug-in is left out."""
    return PEERS | usable("peers", PEERS, _read)[0]


def find_peer(name: str) -> Peer | None:
    """A peer by name, None if there is none; an error in one line where its library is not installed."""
    found = PEERS.get(name)
    if found is None and (added := plugin("peers", name)) is not None:
        found = _read(added)
    if found is not None and not found.installed:
        raise ParameterError(
            f"{name} needs the library {found.needs}, which is not installed here; see 'Compare methods on your own table'",
            where="methods",
        )
    return found


def _read(added: Plugin) -> Peer:
    loaded = added.load()
    if not isinstance(loaded, Peer) or loaded.name != added.name:
        raise added.fault("is no dither.lab.comparison.Peer of that name")
    return loaded
